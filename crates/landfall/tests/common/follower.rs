//! A client that writes wherever writes go.

use super::faults::Over;
use super::{Reply, Resp, bulk, ok, wait_until};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// How long a client waits for a reply before it connects anew.
pub(crate) const PATIENCE: Duration = Duration::from_millis(500);

/// The text of a bulk.
pub(crate) fn text(reply: &Reply) -> String {
    match reply {
        Reply::Bulk(bytes) => String::from_utf8(bytes.clone()).unwrap(),
        other => panic!("a bulk was expected, not {other:?}"),
    }
}

/// Where a server says that writes go.
pub(crate) fn first(asked: &mut Resp) -> Option<SocketAddr> {
    let Ok(Reply::Array(words)) = asked.call(&[b"SENTINEL", b"GET-MASTER-ADDR-BY-NAME", b"orders"]) else {
        return None;
    };
    format!("{}:{}", text(&words[0]), text(&words[1])).parse().ok()
}

/// Connects to the server that one of these says takes writes.
pub(crate) fn connect_by(sentinels: &[SocketAddr]) -> Option<Resp> {
    let ask = |at: &SocketAddr| first(&mut Resp::connect(*at, PATIENCE).ok()?);
    Resp::connect(sentinels.iter().find_map(ask)?, PATIENCE).ok()
}

/// A client that writes numbers one after the other, each with a key of its own, and connects anew after any error.
pub(crate) struct Follower {
    connect: Box<dyn Fn() -> Option<Resp> + Sync>,
    acknowledged: AtomicU64,
    over: AtomicBool,
}

impl Follower {
    pub(crate) fn new(connect: impl Fn() -> Option<Resp> + Sync + 'static) -> Self {
        let connect = Box::new(connect);
        Self { connect, acknowledged: AtomicU64::new(0), over: AtomicBool::new(false) }
    }

    fn write(&self) {
        let (mut resp, mut number) = (None, 1);
        while !self.over.load(Ordering::Relaxed) {
            let Some(to) = &mut resp else {
                std::thread::sleep(Duration::from_millis(20));
                resp = (self.connect)();
                continue;
            };
            let set = to.call(&[b"SET", format!("key:{number}").as_bytes(), number.to_string().as_bytes()]);
            if set.is_ok_and(|reply| reply == ok()) {
                self.acknowledged.store(number, Ordering::SeqCst);
                number += 1;
            } else {
                resp = None;
            }
        }
    }

    fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Ordering::SeqCst)
    }

    /// Waits until it has written more.
    pub(crate) fn wait_for_more(&self, limit: Duration) {
        let more = self.acknowledged() + 100;
        wait_until(limit, || (self.acknowledged() >= more).then_some(()))
            .unwrap_or_else(|| panic!("{} writes, and no more", self.acknowledged()));
    }

    /// Runs `work` while it writes.
    pub(crate) fn during(&self, work: impl FnOnce()) {
        std::thread::scope(|threads| {
            threads.spawn(|| self.write());
            let _ends = Over(&self.over);
            work();
        });
    }

    /// Checks that a server has everything that was acknowledged.
    pub(crate) fn check(&self, resp: &mut Resp) {
        for number in 1..=self.acknowledged() {
            let read = resp.call(&[b"GET", format!("key:{number}").as_bytes()]).unwrap();
            assert_eq!(read, bulk(number.to_string()));
        }
    }
}
