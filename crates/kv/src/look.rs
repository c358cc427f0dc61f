//! Reading a key: its value, or that there is none. Either may rest on what a crash could still take back.

use crate::engine::Engine;
use crate::error::KvError;
use crate::shard::{Hit, Lookup, Shard};
use landfall_heap::{Damage, Gated, HeapError, Item, ItemPart, Ticket};
use std::ops::Range;

/// What a read of one key has come to.
#[derive(Debug)]
pub(crate) struct Seen<T> {
    /// The key's value, or what is to be known of it; none if the key is absent.
    pub(crate) item: Option<T>,
    /// What makes the version, or the absence, durable.
    pub(crate) pending: Option<Ticket>,
}

impl<T> Seen<T> {
    pub(crate) fn gated(self) -> Gated<Option<T>> {
        Gated::new(self.item, self.pending)
    }
}

impl Engine {
    /// A key's value, unchecked, or that there is none: both found under one lock. For its length, version and expiry.
    ///
    /// # Errors
    /// [`KvError::Damaged`]; [`KvError::NotDurable`] after a failed write.
    pub fn look(&self, space: u8, key: &[u8], now_ms: u64) -> Result<Gated<Option<Item<'_>>>, KvError> {
        let lookup = Lookup::new(&self.heap, space, key);
        let seen = self.look_in(&self.shard(lookup.hash), &lookup, now_ms)?;
        Ok(seen.gated())
    }

    /// As [`Self::look`], the value checked against its checksum.
    ///
    /// # Errors
    /// As [`Self::look`].
    pub fn get(&self, space: u8, key: &[u8], now_ms: u64) -> Result<Gated<Option<Item<'_>>>, KvError> {
        let lookup = Lookup::new(&self.heap, space, key);
        let seen = self.look_in(&self.shard(lookup.hash), &lookup, now_ms)?;
        seen.item.as_ref().map_or(Ok(()), verify)?;
        Ok(seen.gated())
    }

    /// Asks for a key's value where it has left memory, so that reading it soon need not wait.
    pub fn fetch(&self, space: u8, key: &[u8], now_ms: u64) {
        if !self.heap.is_paged() {
            return;
        }
        let lookup = Lookup::new(&self.heap, space, key);
        let seen = self.look_in(&self.shard(lookup.hash), &lookup, now_ms);
        if let Ok(Seen { item: Some(item), .. }) = seen {
            // What has to be read is asked for; whoever needs it will wait.
            let _ = item.fetch();
        }
    }

    /// A part of a key's value, checked against its checksum. `part` chooses it, of so many bytes. As much of the
    /// value is read as must be for that.
    ///
    /// # Errors
    /// As [`Self::look`].
    pub fn get_part(
        &self,
        space: u8,
        key: &[u8],
        now_ms: u64,
        part: impl FnOnce(usize) -> Range<usize>,
    ) -> Result<Gated<Option<ItemPart<'_>>>, KvError> {
        let lookup = Lookup::new(&self.heap, space, key);
        let seen = self.look_at(&self.shard(lookup.hash), &lookup, now_ms, |hit| self.part_of(hit, part))?;
        seen.item.as_ref().map_or(Ok(()), |part| verify(part.item()))?;
        Ok(seen.gated())
    }

    pub(crate) fn part_of(
        &self,
        hit: &Hit<'_>,
        part: impl FnOnce(usize) -> Range<usize>,
    ) -> Result<ItemPart<'_>, HeapError> {
        ItemPart::hold(&self.heap, hit.slot, &hit.view, part(hit.view.value_len()))
    }

    pub(crate) fn look_in(
        &self,
        shard: &Shard,
        lookup: &Lookup<'_>,
        now_ms: u64,
    ) -> Result<Seen<Item<'_>>, KvError> {
        self.look_at(shard, lookup, now_ms, |hit| Item::hold(&self.heap, hit.slot, &hit.view))
    }

    /// What `hold` takes of a key's value.
    pub(crate) fn look_at<'h, T>(
        &'h self,
        shard: &Shard,
        lookup: &Lookup<'_>,
        now_ms: u64,
        hold: impl FnOnce(&Hit<'h>) -> Result<T, HeapError>,
    ) -> Result<Seen<T>, KvError> {
        let (item, pending) = match shard.find(&self.heap, lookup)? {
            Some(hit) if hit.is_expired(now_ms) => (None, self.heap.pending(hit.slot)),
            Some(hit) => {
                let pending = self.heap.pending(hit.slot);
                (Some(hold(&hit)?), pending)
            }
            None => (None, shard.pending_absence(&self.heap, lookup)?),
        };
        pending.map_or(Ok(()), |ticket| self.check_obtainable(ticket))?;
        Ok(Seen { item, pending })
    }

    /// After a failed write nothing that is not durable may be shown: it never will be.
    pub(crate) fn check_obtainable(&self, ticket: Ticket) -> Result<(), KvError> {
        if self.heap.media().closed().is_some() && !self.heap.is_durable(ticket) {
            return Err(KvError::NotDurable);
        }
        Ok(())
    }
}

/// Checks a value that is to be shown against its checksum.
///
/// # Errors
/// [`KvError::Wait`] where a loader has to read it first; [`KvError::Damaged`]; the medium's.
pub fn verify(item: &Item<'_>) -> Result<(), KvError> {
    item.fetch()?;
    check(item)
}

/// Checks a value against its checksum. Waits for the medium if it has left memory.
///
/// # Errors
/// [`KvError::Damaged`]; the medium's.
pub(crate) fn check(item: &Item<'_>) -> Result<(), KvError> {
    match item.verify()? {
        true => Ok(()),
        false => Err(KvError::Damaged { what: Damage::ValueChecksum }),
    }
}
