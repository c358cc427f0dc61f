//! The log becomes durable, batch by batch: in this region by a fence, and at the log's successor.

use crate::error::FsError;
use crate::files::{Files, UnderWay};
use crate::key::InodeNumber;
use landfall_heap::{HeapError, Ticket};
use landfall_media::{MediaError, Site};
use parking_lot::MutexGuard;
use std::sync::Arc;

/// What [`Files::advance`] has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advanced {
    /// Everything that has been done is durable.
    All,
    /// A batch waits for the successor.
    Waits {
        /// The one before has been completed.
        has_completed: bool,
    },
    /// Somebody else is at it.
    Busy,
}

impl Files {
    /// Waits until everything that has been done to an inode is durable: in this region, and at the log's successor.
    ///
    /// # Errors
    /// The medium's: the region is closed for writing then.
    pub fn sync(&self, number: InodeNumber) -> Result<(), FsError> {
        let ticket = self.lock().pending.get(&number).copied();
        ticket.map_or(Ok(()), |ticket| self.sync_to(ticket))
    }

    /// Waits until everything that has been done is durable.
    ///
    /// # Errors
    /// As [`Self::sync`].
    pub fn sync_all(&self) -> Result<(), FsError> {
        let ticket = {
            let writer = &self.lock().writer;
            // What was appended and taken back leaves work, too, for which a full slab waits.
            writer.newest().or_else(|| writer.has_work().then(|| writer.ticket()))
        };
        if ticket.is_none() {
            // Writes that were refused have counted.
            self.pace.begin_batch();
        }
        ticket.map_or(Ok(()), |ticket| self.sync_to(ticket))
    }

    /// Waits for a ticket of the log. Whoever comes while a batch is being made durable shares the next one.
    pub(crate) fn sync_to(&self, ticket: Ticket) -> Result<(), FsError> {
        if self.heap.is_durable(ticket) {
            return Ok(());
        }
        let mut under_way = self.lock_commit();
        while !self.heap.is_durable(ticket) {
            let begun = match under_way.take() {
                None => self.begin_batch(),
                begun => begun,
            };
            let Some(UnderWay { fenced }) = begun else {
                // Whoever filled a slab has made all of it durable meanwhile.
                return if self.heap.is_durable(ticket) { Ok(()) } else { Err(self.never_durable()) };
            };
            let successor = self.lock().writer.successor();
            if let Some(successor) = successor.filter(|_| fenced.is_ok()) {
                // The outcome is that of the commit.
                let _ = successor.wait();
            }
            self.finish_batch(fenced)?;
        }
        Ok(())
    }

    /// Locks the batch under way. While its successor is waited for, much that has gathered for the next one is made durable in
    /// this region.
    fn lock_commit(&self) -> MutexGuard<'_, Option<UnderWay>> {
        if let Some(under_way) = self.commit.try_lock() {
            return under_way;
        }
        if self.has_successor() && self.pace.begin_fence() {
            // What fails closes the region, and is the outcome of the batch.
            let _ = self.persist();
        }
        self.commit.lock()
    }

    /// Goes on with making durable what has been done, as far as that needs no wait for the successor.
    ///
    /// # Errors
    /// As [`Self::sync`].
    pub fn advance(&self) -> Result<Advanced, FsError> {
        let Some(mut under_way) = self.commit.try_lock() else { return Ok(Advanced::Busy) };
        let mut has_completed = false;
        loop {
            if under_way.is_none() {
                if !self.lock().writer.has_work() {
                    return Ok(Advanced::All);
                }
                *under_way = self.begin_batch();
                if under_way.is_none() {
                    // Whoever filled a slab has made all of it durable meanwhile, or nothing can be any more.
                    let is_over = self.lock().writer.is_lost() || self.heap.media().closed().is_some();
                    return if is_over { Err(self.never_durable()) } else { Ok(Advanced::All) };
                }
            }
            let is_here = under_way.as_ref().is_some_and(|UnderWay { fenced }| fenced.is_ok());
            let successor = self.lock().writer.successor().filter(|_| is_here);
            if !successor.is_none_or(|successor| successor.is_done()) {
                return Ok(Advanced::Waits { has_completed });
            }
            under_way.take().map_or(Ok(()), |UnderWay { fenced }| self.finish_batch(fenced))?;
            has_completed = true;
        }
    }

    /// Makes a batch durable in this region, and sends it to the log's successor. `None` if there is nothing in it, or if the
    /// writer is lost.
    fn begin_batch(&self) -> Option<UnderWay> {
        let fenced = {
            let _fence = self.fence.lock();
            let (dirty, fenced_below) = {
                let mut state = self.lock();
                self.pace.begin_batch();
                (state.writer.begin_commit(), state.fenced_below())
            };
            let fenced = self.heap.media().fence(&mut dirty?, Site::Commit);
            self.note_persistent(fenced_below, &fenced);
            fenced
        };
        if fenced.is_ok() {
            let unsent = self.lock().writer.take_unsent();
            unsent.into_iter().for_each(|(successor, records)| successor.send(&self.heap, &records));
        }
        Some(UnderWay { fenced })
    }

    /// The successor has the batch, or never will have it.
    fn finish_batch(&self, fenced: Result<(), MediaError>) -> Result<(), FsError> {
        let mut state = self.lock();
        let done = state.writer.finish_commit(fenced);
        let heap = Arc::clone(&state.heap);
        state.pending.retain(|_, ticket| !heap.is_durable(*ticket));
        Ok(done?)
    }

    /// Makes room for what is appended next, when the log's slab is full, without a wait for the log's successor: what the slab
    /// has becomes durable in this region.
    ///
    /// # Errors
    /// As [`Self::sync`].
    pub fn make_slab_room(&self) -> Result<(), FsError> {
        if self.has_successor() { self.persist() } else { self.sync_all() }
    }

    /// Why nothing can be made durable any more: an earlier fence has failed, or another machine has taken over.
    pub(crate) fn never_durable(&self) -> FsError {
        let closed = self.heap.media().closed();
        closed.map_or(HeapError::Busy, |reason| MediaError::Closed { reason }.into()).into()
    }
}
