//! Faults of a chain whose view people write, while clients go on.

use super::chain::{Chain, REPLY_LIMIT};
use super::{Resp, ok};
use landfall_testbed::Host;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// After this long without a reply a client takes its server for dead, if nobody tells it.
const SILENCE: Duration = Duration::from_secs(3);

/// Where clients write now, and where they read.
pub(crate) struct Addresses {
    pub(crate) nodes: Mutex<Vec<Option<SocketAddr>>>,
    pub(crate) first: AtomicUsize,
    /// The host of the clients; `None`: this one.
    clients: Option<Host>,
    /// How long a client waits for a reply.
    limit: Duration,
}

impl Addresses {
    /// Of a chain all of whose nodes run, the first one first.
    pub(crate) fn of_all(chain: &Chain) -> Self {
        let nodes = Mutex::new(vec![None; chain.nodes.len()]);
        let clients = chain.server(0).clients.clone();
        // A client on another host may not be told that its server was killed.
        let limit = if clients.is_some() { SILENCE } else { REPLY_LIMIT };
        let addresses = Self { nodes, first: AtomicUsize::new(0), clients, limit };
        addresses.note(chain, &(0..chain.nodes.len()).collect::<Vec<_>>());
        addresses
    }

    /// Notes which nodes run.
    pub(crate) fn note(&self, chain: &Chain, running: &[usize]) {
        let mut nodes = self.nodes.lock().unwrap();
        for (index, address) in nodes.iter_mut().enumerate() {
            *address = running.contains(&index).then(|| chain.server(index).resp);
        }
    }

    /// A connection to a node, if it runs.
    pub(crate) fn of(&self, index: usize) -> Option<Resp> {
        let address = self.nodes.lock().unwrap()[index]?;
        let connect = || Resp::connect(address, self.limit).ok();
        self.clients.as_ref().map_or_else(connect, |host| host.enter(connect))
    }

    /// Calls `write` again and again until the end, with the node that takes writes and numbers that only grow. After a
    /// write that was not acknowledged it connects anew.
    pub(crate) fn write_until(&self, over: &AtomicBool, mut write: impl FnMut(&mut Resp, u64) -> bool) {
        let (mut resp, mut number) = (None, 0_u64);
        while !over.load(Ordering::Relaxed) {
            let Some(to) = &mut resp else {
                resp = self.of(self.first.load(Ordering::Acquire));
                std::thread::sleep(Duration::from_millis(5));
                continue;
            };
            number += 1;
            if !write(to, number) {
                resp = None;
            }
        }
    }
}

/// Keys that get numbers which only grow, each by one client, and what is known of them.
pub(crate) struct Numbers {
    /// The value of a number; it begins with it and a colon.
    value_of: fn(u64) -> Vec<u8>,
    /// Of each key the highest number that was acknowledged, and that was sent.
    known: Mutex<Vec<(u64, u64)>>,
}

impl Numbers {
    /// Keys of a client.
    const KEYS: usize = 10;

    pub(crate) fn new(clients: usize, value_of: fn(u64) -> Vec<u8>) -> Self {
        Self { value_of, known: Mutex::new(vec![(0, 0); clients * Self::KEYS]) }
    }

    /// A client writes to the node that takes writes, until the end.
    fn write(&self, client: usize, addresses: &Addresses, over: &AtomicBool) {
        addresses.write_until(over, |to, number| {
            let at = client * Self::KEYS + number as usize % Self::KEYS;
            self.known.lock().unwrap()[at].1 = number;
            let written = to.call(&[b"SET", format!("key:{at}").as_bytes(), &(self.value_of)(number)]);
            let is_acknowledged = written.is_ok_and(|reply| reply == ok());
            if is_acknowledged {
                self.known.lock().unwrap()[at].0 = number;
            }
            is_acknowledged
        });
    }

    /// All clients write while [`hunt`] goes on.
    pub(crate) fn hunt(&self, chain: &mut Chain, addresses: &Addresses) {
        let clients = self.known.lock().unwrap().len() / Self::KEYS;
        let over = AtomicBool::new(false);
        std::thread::scope(|threads| {
            for client in 0..clients {
                let over = &over;
                threads.spawn(move || self.write(client, addresses, over));
            }
            let _ends = Over(&over);
            hunt(chain, addresses);
        });
    }

    /// Fails unless a node has whole values only, each as new as the last one that was acknowledged.
    pub(crate) fn check(&self, all: &BTreeMap<Vec<u8>, Vec<u8>>, words: &str) {
        let mut written = 0;
        for (at, (acknowledged, sent)) in self.known.lock().unwrap().iter().enumerate() {
            let found = all.get(format!("key:{at}").as_bytes()).map_or(0, |value| {
                let end = value.iter().position(|byte| *byte == b':').expect("a number");
                let number = std::str::from_utf8(&value[..end]).unwrap().parse().unwrap();
                assert!(*value == (self.value_of)(number), "key:{at} is torn");
                number
            });
            let may_be = acknowledged..=sent;
            assert!(may_be.contains(&&found), "key:{at}: {found}, {acknowledged}, {sent}{words}");
            written += acknowledged;
        }
        assert!(written > 100, "they did write: {written}");
    }
}

/// Says that it is over when it is dropped, also when a test fails.
pub(crate) struct Over<'a>(pub(crate) &'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A small generator, seeded: the same faults each time.
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }
}

/// One fault, and what people do about it. All nodes are in step again when it returns.
fn fault(chain: &mut Chain, draw: &mut Draw, addresses: &Addresses) {
    let (nodes, victim) = (chain.nodes.len(), draw.below(chain.nodes.len()));
    let everybody: Vec<usize> = (0..nodes).collect();
    let others: Vec<usize> = everybody.iter().copied().filter(|index| *index != victim).collect();
    match draw.below(4) {
        // A node is killed, and is back soon.
        0 => chain.kill(victim),
        // It is stopped properly.
        1 => assert!(chain.take(victim).stop().success()),
        // It is removed, and added again, with what it has or with nothing.
        kind => {
            chain.kill(victim);
            chain.remove(victim);
            let first = chain.wait_until_in_step();
            addresses.note(chain, &others);
            addresses.first.store(first, Ordering::Release);
            std::thread::sleep(Duration::from_millis(draw.below(300) as u64));
            if kind == 3 {
                chain.nodes[victim].lose_disk();
            }
            chain.add(victim);
        }
    }
    addresses.note(chain, &others);
    std::thread::sleep(Duration::from_millis(draw.below(300) as u64));
    chain.start(victim);
    addresses.note(chain, &everybody);
    // While it is not in step yet, now and then.
    if draw.below(3) == 0 {
        std::thread::sleep(Duration::from_millis(draw.below(100) as u64));
        let again = draw.below(nodes);
        chain.kill(again);
        chain.start(again);
        addresses.note(chain, &everybody);
    }
    addresses.first.store(chain.wait_until_in_step(), Ordering::Release);
}

/// Eight faults, if nothing else is said, while clients go on.
pub(crate) fn hunt(chain: &mut Chain, addresses: &Addresses) {
    let number = |name: &str, default: u64| {
        std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
    };
    let (faults, mut draw) = (number("LANDFALL_KILLS", 8), Draw(number("LANDFALL_SEED", 1)));
    for _ in 0..faults {
        std::thread::sleep(Duration::from_millis(draw.below(500) as u64));
        fault(chain, &mut draw, addresses);
    }
    std::thread::sleep(Duration::from_millis(300));
}
