//! What an acknowledgement to a program waits for: `docs/format/chain.md`, "Files in the background".

use crate::error::FsError;
use crate::files::Files;
use crate::key::InodeNumber;
use crate::publish::{BACKLOG_BYTES, BACKLOG_OPERATIONS};
use crate::state::State;
use landfall_heap::Filled;
use landfall_media::{MediaError, Site};
use std::sync::atomic::Ordering;

/// What a fence that begins now makes durable in this region.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FencedBelow {
    /// Operations of the log with a lower index.
    next: u64,
    filled: Filled,
}

impl State {
    /// What a fence that begins now makes durable.
    pub(crate) fn fenced_below(&self) -> FencedBelow {
        FencedBelow { next: self.log.next(), filled: self.writer.filled() }
    }
}

impl Files {
    /// From now on [`Self::acknowledge`] does, or does not, wait for the log's successor.
    pub fn set_acknowledges_alone(&self, alone: bool) {
        self.acknowledges_alone.store(alone, Ordering::Release);
    }

    /// Waits until a program may be told that everything that has been done to an inode is durable: it is so in this
    /// region, and unless [`Self::set_acknowledges_alone`] says otherwise at the log's successor.
    ///
    /// # Errors
    /// The medium's: the region is closed for writing then.
    pub fn acknowledge(&self, number: InodeNumber) -> Result<(), FsError> {
        if !self.acknowledges_alone.load(Ordering::Acquire) {
            return self.sync(number);
        }
        let is_pending = self.lock().pending.contains_key(&number);
        if is_pending { self.persist() } else { Ok(()) }
    }

    /// As [`Self::acknowledge`], of everything that has been done.
    ///
    /// # Errors
    /// As [`Self::acknowledge`].
    pub fn acknowledge_all(&self) -> Result<(), FsError> {
        if self.acknowledges_alone.load(Ordering::Acquire) { self.persist() } else { self.sync_all() }
    }

    /// From now on what publishes the log is, or is not, to send nothing to the log's successor that nobody waits for
    /// ([`crate::Publisher::set_waits_to_be_asked`]).
    pub fn set_sends_when_asked(&self, waits: bool) {
        self.sends_when_asked.store(waits, Ordering::Release);
    }

    /// From now on chunks are, or are not, to be sent to the log's successor as they fill, and not only when they are published.
    pub fn set_sends_chunks(&self, sends: bool) {
        self.sends_chunks.store(sends, Ordering::Release);
    }

    /// As [`Self::set_sends_chunks`] has said.
    pub fn sends_chunks(&self) -> bool {
        self.sends_chunks.load(Ordering::Acquire)
    }

    /// True if what publishes the log waits until somebody asks: until the log is half full.
    pub fn publishing_waits_to_be_asked(&self) -> bool {
        let (operations, bytes) = self.log_len();
        let has_room = bytes < BACKLOG_BYTES / 2 && operations < BACKLOG_OPERATIONS as u64 / 2;
        has_room && self.sends_when_asked.load(Ordering::Acquire)
    }

    /// Makes durable in this region what the log has. The batch goes on: its successor gets it later. Whoever comes while
    /// that is done shares the next fence.
    pub(crate) fn persist(&self) -> Result<(), FsError> {
        let wanted = self.lock().log.next();
        let _fence = self.fence.lock();
        let (dirty, fenced_below) = {
            let mut state = self.lock();
            if state.persistent_below >= wanted {
                return Ok(());
            }
            if state.writer.is_lost() {
                return Err(self.never_durable());
            }
            (state.writer.begin_persist(), state.fenced_below())
        };
        let fenced = dirty.map_or(Ok(()), |mut dirty| self.heap.media().fence(&mut dirty, Site::Commit));
        let is_open = self.heap.media().closed().map_or(Ok(()), |reason| Err(MediaError::Closed { reason }));
        let outcome = fenced.and(is_open);
        self.note_persistent(fenced_below, &outcome);
        outcome.map_err(|error| landfall_heap::HeapError::from(error).into())
    }

    /// A fence of the log up to there has returned.
    pub(crate) fn note_persistent(&self, below: FencedBelow, outcome: &Result<(), MediaError>) {
        if outcome.is_ok() {
            let mut state = self.lock();
            state.persistent_below = state.persistent_below.max(below.next);
            state.writer.note_persisted(below.filled);
        }
    }
}
