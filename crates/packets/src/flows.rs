//! The table of which worker has which connection, and the mailboxes for segments that arrive at another worker's
//! queue.
//!
//! A network card keeps a flow on one queue, but not for ever: the sender may choose another hash after a timeout, and
//! veth follows the sender's choice. Workers look up only segments of unknown flows in this table, so they rarely
//! contend for its lock.

use landfall_media::Extent;
use landfall_net::Tuple;
use landfall_sockets::Waker;
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Packets in the mailbox of one worker, at most; further ones are dropped, as by any queue.
const STRAYS_MAX: usize = 1024;

/// A packet for another worker. It carries one hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stray {
    pub(crate) packet: Extent,
    pub(crate) arrival_ns: u64,
}

/// The state that the workers of one interface share.
#[derive(Debug)]
pub(crate) struct Flows {
    owners: Mutex<HashMap<Tuple, usize>>,
    mailboxes: Box<[Mailbox]>,
}

#[derive(Debug, Default)]
struct Mailbox {
    strays: Mutex<VecDeque<Stray>>,
    /// Number of packets, so that an empty mailbox is detected without the lock.
    count: AtomicUsize,
    waker: OnceLock<Waker>,
}

impl Flows {
    pub(crate) fn new(workers: usize) -> Self {
        Self { owners: Mutex::default(), mailboxes: (0..workers).map(|_| Mailbox::default()).collect() }
    }

    /// True if there is more than one worker.
    pub(crate) fn is_shared(&self) -> bool {
        self.mailboxes.len() > 1
    }

    /// Sets the waker of a worker.
    pub(crate) fn set_waker(&self, worker: usize, waker: Waker) {
        let _ = self.mailboxes[worker].waker.set(waker);
    }

    /// A connection began at a worker.
    pub(crate) fn begin(&self, tuple: Tuple, worker: usize) {
        self.owners.lock().insert(tuple, worker);
    }

    /// A connection ended at a worker.
    pub(crate) fn end(&self, tuple: Tuple, worker: usize) {
        let mut owners = self.owners.lock();
        if owners.get(&tuple) == Some(&worker) {
            owners.remove(&tuple);
        }
    }

    /// Forwards a packet to the worker that has its connection, unless no worker has it or the mailbox is full.
    pub(crate) fn forward(&self, from: usize, tuple: &Tuple, stray: Stray) -> Forwarded {
        let owner = self.owners.lock().get(tuple).copied().filter(|owner| *owner != from);
        let Some(mailbox) = owner.map(|owner| &self.mailboxes[owner]) else { return Forwarded::Unknown };
        let mut strays = mailbox.strays.lock();
        if strays.len() >= STRAYS_MAX {
            return Forwarded::Full;
        }
        strays.push_back(stray);
        mailbox.count.store(strays.len(), Ordering::Release);
        drop(strays);
        mailbox.waker.get().into_iter().for_each(Waker::wake);
        Forwarded::Yes
    }

    /// Takes the packets that others have forwarded to a worker.
    pub(crate) fn collect(&self, worker: usize) -> VecDeque<Stray> {
        let mailbox = &self.mailboxes[worker];
        if mailbox.count.load(Ordering::Acquire) == 0 {
            return VecDeque::new();
        }
        let mut strays = mailbox.strays.lock();
        mailbox.count.store(0, Ordering::Release);
        std::mem::take(&mut *strays)
    }
}

/// What happened to a packet that was to be forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Forwarded {
    Yes,
    /// No worker has the connection.
    Unknown,
    /// The worker's mailbox is full: the packet is lost.
    Full,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stray_goes_only_to_the_worker_that_has_its_connection() {
        let at = |port| std::net::SocketAddr::from(([10, 0, 0, 1], port));
        let tuple = Tuple { local: at(80), remote: at(1000) };
        let flows = Flows::new(2);
        let stray = Stray { packet: Extent::new(2048, 60), arrival_ns: 7 };
        assert_eq!(flows.forward(0, &tuple, stray), Forwarded::Unknown);
        flows.begin(tuple, 1);
        assert_eq!(flows.forward(0, &tuple, stray), Forwarded::Yes);
        assert_eq!(flows.forward(1, &tuple, stray), Forwarded::Unknown, "its own worker no longer has it");
        assert_eq!(flows.collect(0).len(), 0);
        assert_eq!(flows.collect(1).len(), 1);
        assert_eq!(flows.collect(1).len(), 0);
        for _ in 0..STRAYS_MAX {
            assert_eq!(flows.forward(0, &tuple, stray), Forwarded::Yes);
        }
        assert_eq!(flows.forward(0, &tuple, stray), Forwarded::Full);
        flows.end(tuple, 0);
        assert_eq!(
            flows.forward(0, &tuple, stray),
            Forwarded::Full,
            "the connection of this worker has not ended"
        );
        flows.end(tuple, 1);
        assert_eq!(flows.forward(0, &tuple, stray), Forwarded::Unknown);
    }
}
