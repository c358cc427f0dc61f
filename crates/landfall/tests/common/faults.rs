//! Faults of a chain whose view people write, while clients go on.

use super::Resp;
use super::chain::{Chain, REPLY_LIMIT};
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// Where clients write now, and where they read.
pub(crate) struct Addresses {
    pub(crate) nodes: Mutex<Vec<Option<SocketAddr>>>,
    pub(crate) first: AtomicUsize,
}

impl Addresses {
    /// Of a chain all of whose nodes run, the first one first.
    pub(crate) fn of_all(chain: &Chain) -> Self {
        let addresses = Self { nodes: Mutex::new(vec![None; chain.nodes.len()]), first: AtomicUsize::new(0) };
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
        Resp::connect(address, REPLY_LIMIT).ok()
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
