//! Requests over io_uring: a thread serves some of the kernel's queues, one for each possible CPU.
//!
//! While a thread waits, for space or for the medium, nobody else serves its queues. So it never waits for a commit: a thread of
//! its own commits (`syncs`), and leaves the replies in the mailboxes of the rings. (Where others sync, a write may wait until the
//! next batch begins: `landfall_fs::Waiter`.) The data of a WRITE come in memory that is fixed, and are copied into frames once;
//! replies are copied into that memory.

use crate::landing::Landing;
use crate::mailbox::Mailbox;
use crate::transport::{Incoming, Later, Transport};
use landfall_fuse::{
    Arrived, Decoder, Device, EntryId, Negotiated, Op, Reply, Ring, RingError, Sent, Share, Unique,
};
use landfall_heap::{CopyPath, Heap};
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// Entries of all queues together, if that gives each queue a number of them between these bounds: as many of its requests
/// are in flight at once, and each has memory for the largest one, which takes none until it is used.
const ENTRIES: usize = 256;
const DEPTH_MIN: usize = 4;
const DEPTH_MAX: usize = 16;

/// What ends the wait of a ring.
const STOP: usize = 0;

/// Divides queues among threads: as many threads as workers are asked for, one queue each at least.
pub(crate) fn shares(queues: u16, workers: usize) -> Vec<Share> {
    let threads = workers.clamp(1, usize::from(queues).max(1));
    let depth = (ENTRIES / usize::from(queues).max(1)).clamp(DEPTH_MIN, DEPTH_MAX);
    let of = |thread| (0..queues).skip(thread).step_by(threads).collect();
    (0..threads).map(|thread| Share { queues: of(thread), depth }).collect()
}

/// Requests of some queues.
pub(crate) struct Queues {
    ring: Ring,
    mailbox: Arc<Mailbox>,
    heap: Arc<Heap>,
    /// What was received last.
    current: Option<EntryId>,
    /// Entries whose requests are answered later.
    owed: usize,
    /// Of one queue.
    depth: usize,
}

impl Queues {
    /// Opens a ring, which the calling thread alone may use. It serves until the mount ends, or `stop` is readable.
    ///
    /// # Errors
    /// [`RingError`] says what to do.
    pub(crate) fn open(
        device: &Device,
        share: Share,
        negotiated: &Negotiated,
        (heap, stop): (Arc<Heap>, &OwnedFd),
    ) -> Result<Self, RingError> {
        let mailbox = Arc::new(Mailbox::new()?);
        let depth = share.depth;
        let ring = Ring::open(device, share, negotiated, &[stop.as_fd(), mailbox.raised()])?;
        Ok(Self { ring, mailbox, heap, current: None, owed: 0, depth })
    }

    fn deliver(&mut self) -> io::Result<()> {
        for (entry, reply) in self.mailbox.take() {
            self.owed = self.owed.saturating_sub(1);
            self.ring.reply(entry, &reply)?;
        }
        Ok(())
    }

    /// Replies to the request that was received last, by `reply`.
    fn answer(&mut self, reply: impl FnOnce(&mut Ring, EntryId) -> io::Result<Sent>) -> io::Result<Sent> {
        let entry = self.current.ok_or_else(|| io::Error::other("a request is answered twice"))?;
        let sent = reply(&mut self.ring, entry)?;
        self.current = None;
        Ok(sent)
    }
}

impl Transport for Queues {
    fn receive<'a>(
        &mut self,
        decoder: &Decoder,
        landing: &mut Landing,
        joined: &'a mut Vec<u8>,
    ) -> io::Result<Incoming<'a>> {
        let entry = loop {
            match self.ring.receive()? {
                Arrived::Request(entry) => break entry,
                Arrived::Woken(STOP) | Arrived::Ended => return Ok(Incoming::Ended),
                Arrived::Woken(_) => self.deliver()?,
            }
        };
        self.current = Some(entry);
        let decoded = self.ring.request(entry, decoder, joined);
        if let Ok(request) = &decoded
            && let Op::Write(_) = request.op
        {
            landing.land(self.ring.payload(entry));
        }
        Ok(decoded.into())
    }

    fn reply(&mut self, reply: &Reply) -> io::Result<Sent> {
        self.answer(|ring, entry| ring.reply(entry, reply))
    }

    fn reply_data(&mut self, unique: Unique, data: &[IoSlice<'_>]) -> io::Result<Sent> {
        self.heap.copies.add(CopyPath::Reply, data.iter().map(|slice| slice.len()).sum());
        self.answer(|ring, entry| ring.reply_data(entry, unique, data))
    }

    fn later(&mut self) -> Later {
        let entry = self.current.take().expect("a request that was received is answered once");
        self.owed += 1;
        Later::Ring(Arc::clone(&self.mailbox), entry)
    }

    fn may_owe_more(&self) -> bool {
        self.owed < self.depth / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_queue_is_served_by_one_thread() {
        let queues = |count, workers| -> Vec<Vec<u16>> {
            shares(count, workers).into_iter().map(|share| share.queues).collect()
        };
        assert_eq!(queues(2, 4), [[0], [1]], "no thread without a queue");
        assert_eq!(queues(5, 2), [vec![0, 2, 4], vec![1, 3]]);
        assert_eq!(queues(1, 0), [[0]]);
    }

    #[test]
    fn many_queues_have_fewer_entries_each() {
        for (count, depth) in [(1, 16), (16, 16), (32, 8), (1000, 4)] {
            assert!(shares(count, 4).iter().all(|share| share.depth == depth), "{count} queues");
        }
    }
}
