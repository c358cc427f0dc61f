//! Reading durable entries in place: each is checked against its checksum and is not copied.

use crate::error::WalError;
use crate::log::State;
use crate::logs::Logs;
use landfall_heap::{Damage, Gated, Item, SlotId, Ticket};
use std::sync::atomic::Ordering;

/// Most entries that one call reads. The limit bounds how long the call holds the log's lock.
const PAGE_ENTRIES_MAX: usize = 1024;

/// How much one read returns at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadLimit {
    /// Most entries.
    pub entries: usize,
    /// Most bytes of entries. A first entry that is larger is returned alone.
    pub bytes: u64,
}

/// Consecutive entries.
#[derive(Debug)]
pub struct Page<'h> {
    /// Each entry with its offset. For an entry that fails its checksum, the error stands in its place.
    pub entries: Vec<(u64, Result<Item<'h>, WalError>)>,
    /// Offset at which the next read continues.
    pub next: u64,
    /// Offset of the log's first entry.
    pub first: u64,
    /// Offset behind the last durable entry.
    pub end: u64,
}

impl Logs {
    /// Reads durable entries from `from` on. Right behind the last entry, the page is empty. The result depends on the
    /// ticket of the log's head, because the first offset may come from a trim that is not durable yet.
    ///
    /// # Errors
    /// [`WalError::NoLog`], [`WalError::OutOfRange`], [`WalError::BadName`]; [`WalError::Damaged`] if the log's head is
    /// damaged; [`WalError::Wait`] while bytes that have left memory are read; the medium's.
    pub fn read(&self, name: &[u8], from: u64, limit: ReadLimit) -> Result<Gated<Page<'_>>, WalError> {
        let (page, pending) = self.page(name, from, limit)?;
        self.counters.read.fetch_add(page.entries.len() as u64, Ordering::Relaxed);
        Ok(Gated::new(page, pending))
    }

    /// Reads a page of durable entries, with the ticket of the head if the head is not durable yet. The entries are not
    /// counted as read.
    pub(crate) fn page(
        &self,
        name: &[u8],
        from: u64,
        limit: ReadLimit,
    ) -> Result<(Page<'_>, Option<Ticket>), WalError> {
        let log = self.find(name)?;
        let mut state = log.state.lock();
        state.check()?;
        let (first, end) = (state.first, state.durable(&self.heap));
        if !(first..=end).contains(&from) {
            return Err(WalError::OutOfRange { offset: from, first, next: end });
        }
        let pending = self.heap.pending(state.head.0);
        let mut page = Page { entries: Vec::new(), next: from, first, end };
        let (mut bytes, most) = (0, limit.entries.min(PAGE_ENTRIES_MAX));
        while page.next < end && page.entries.len() < most {
            let item = match self.hold(&state, page.next) {
                // Where its bytes are has left memory, which says nothing about the entry.
                Err(error @ WalError::Wait(_)) => return Err(error),
                item => item,
            };
            let len = item.as_ref().map_or(0, |item| item.len as u64);
            if !page.entries.is_empty() && bytes + len > limit.bytes {
                break;
            }
            bytes += len;
            page.entries.push((page.next, item));
            page.next += 1;
        }
        drop(state);
        let items = page.entries.iter().filter_map(|(_, item)| item.as_ref().ok());
        Item::fetch_all(items)?;
        page.entries.iter_mut().for_each(|(_, item)| check(item));
        Ok((page, pending))
    }

    /// Passes one durable entry, which has been checked, to `take`. Its record stays current until `take` returns, so that
    /// `take` can append records that refer to the same bytes.
    ///
    /// # Errors
    /// As [`Self::get`]. `take` was not called then.
    pub fn with_entry<T>(
        &self,
        name: &[u8],
        offset: u64,
        take: impl FnOnce(&Item<'_>) -> T,
    ) -> Result<Gated<T>, WalError> {
        // Bytes that have left memory are asked for without the lock.
        let read = self.get(name, offset)?;
        let log = self.find(name)?;
        let mut state = log.state.lock();
        state.check()?;
        let (first, end) = (state.first, state.durable(&self.heap));
        if !(first..end).contains(&offset) {
            return Err(WalError::OutOfRange { offset, first, next: end });
        }
        let pending = self.heap.pending(state.head.0);
        let mut item = self.hold(&state, offset);
        check(&mut item);
        drop(read);
        item.map(|item| Gated::new(take(&item), pending))
    }

    /// Reads one durable entry.
    ///
    /// # Errors
    /// The errors of [`Self::read`]; [`WalError::Damaged`] if the entry cannot be read, too.
    pub fn get(&self, name: &[u8], offset: u64) -> Result<Gated<Item<'_>>, WalError> {
        let (page, pending) = self.page(name, offset, ReadLimit { entries: 1, bytes: 0 })?;
        self.counters.read.fetch_add(page.entries.len() as u64, Ordering::Relaxed);
        match page.entries.into_iter().next() {
            Some((_, item)) => Ok(Gated::new(item?, pending)),
            None => Err(WalError::OutOfRange { offset, first: page.first, next: page.end }),
        }
    }

    /// Takes a reference to the frames of an entry. The caller holds the lock of the entry's log.
    pub(crate) fn hold(&self, state: &State, offset: u64) -> Result<Item<'_>, WalError> {
        let slot = state.slot(offset).filter(|slot| *slot != SlotId::NONE);
        let slot = slot.ok_or(WalError::Damaged { what: Damage::RecordChecksum })?;
        let view = self.heap.record(slot)?;
        Ok(Item::hold(&self.heap, slot, &view)?)
    }
}

/// Replaces an entry by an error whose bytes fail their checksum, or cannot be read.
fn check(item: &mut Result<Item<'_>, WalError>) {
    let Ok(held) = item else { return };
    let what = match held.verify() {
        Ok(true) => return,
        Ok(false) => Damage::ValueChecksum,
        Err(_) => Damage::Unreadable,
    };
    *item = Err(WalError::Damaged { what });
}
