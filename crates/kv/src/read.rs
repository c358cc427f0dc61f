//! Reading a key. The result, a value or an absence, may depend on a record that is not durable yet.

use crate::engine::Engine;
use crate::error::KvError;
use crate::shard::{Hit, Lookup, Shard};
use landfall_heap::{Damage, Gated, HeapError, Item, ItemPart, Ticket};
use std::ops::Range;

/// The result of reading one key.
#[derive(Debug)]
pub(crate) struct Seen<T> {
    /// The key's value, or what was asked about it; `None` if the key is absent.
    pub(crate) item: Option<T>,
    /// The ticket that makes the version, or the absence, durable; `None` if it is durable already.
    pub(crate) pending: Option<Ticket>,
}

impl<T> Seen<T> {
    pub(crate) fn gated(self) -> Gated<Option<T>> {
        Gated::new(self.item, self.pending)
    }
}

impl Engine {
    /// A key's value, not checked against its checksum, or `None`. For its length, version and expiry.
    ///
    /// # Errors
    /// [`KvError::Damaged`]; [`KvError::NotDurable`] after a failed write.
    pub fn peek(&self, space: u8, key: &[u8], now_ms: u64) -> Result<Gated<Option<Item<'_>>>, KvError> {
        let lookup = Lookup::new(&self.heap, space, key);
        let seen = self.read_in(&self.shard(lookup.hash), &lookup, now_ms)?;
        Ok(seen.gated())
    }

    /// As [`Self::peek`], but checks the value against its checksum.
    ///
    /// # Errors
    /// As [`Self::peek`].
    pub fn get(&self, space: u8, key: &[u8], now_ms: u64) -> Result<Gated<Option<Item<'_>>>, KvError> {
        let lookup = Lookup::new(&self.heap, space, key);
        let seen = self.read_in(&self.shard(lookup.hash), &lookup, now_ms)?;
        seen.item.as_ref().map_or(Ok(()), verify)?;
        Ok(seen.gated())
    }

    /// Requests a key's value if it is evicted, so that a read soon after need not wait.
    pub fn fetch(&self, space: u8, key: &[u8], now_ms: u64) {
        if !self.heap.is_paged() {
            return;
        }
        let lookup = Lookup::new(&self.heap, space, key);
        let seen = self.read_in(&self.shard(lookup.hash), &lookup, now_ms);
        if let Ok(Seen { item: Some(item), .. }) = seen {
            // The call has queued the read. The command that needs the value waits for it.
            let _ = item.fetch();
        }
    }

    /// A part of a key's value, checked against its checksum. `part` gets the value's length and returns the range.
    /// Only the pieces that hold the range are read; a value that is not in pieces is read whole.
    ///
    /// # Errors
    /// As [`Self::peek`].
    pub fn get_part(
        &self,
        space: u8,
        key: &[u8],
        now_ms: u64,
        part: impl FnOnce(usize) -> Range<usize>,
    ) -> Result<Gated<Option<ItemPart<'_>>>, KvError> {
        let lookup = Lookup::new(&self.heap, space, key);
        let seen =
            self.read_with(&self.shard(lookup.hash), &lookup, now_ms, |hit| self.part_of(hit, part))?;
        seen.item.as_ref().map_or(Ok(()), |part| verify(part.item()))?;
        Ok(seen.gated())
    }

    pub(crate) fn part_of(
        &self,
        hit: &Hit<'_>,
        part: impl FnOnce(usize) -> Range<usize>,
    ) -> Result<ItemPart<'_>, HeapError> {
        self.heap.check_counted(hit.slot, &hit.view)?;
        ItemPart::hold(&self.heap, hit.slot, &hit.view, part(hit.view.value_len()))
    }

    pub(crate) fn read_in(
        &self,
        shard: &Shard,
        lookup: &Lookup<'_>,
        now_ms: u64,
    ) -> Result<Seen<Item<'_>>, KvError> {
        self.read_with(shard, lookup, now_ms, |hit| {
            self.heap.check_counted(hit.slot, &hit.view)?;
            Item::hold(&self.heap, hit.slot, &hit.view)
        })
    }

    /// Finds a key and applies `hold` to its version, unless the key is absent or expired.
    pub(crate) fn read_with<'h, T>(
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

    /// Refuses what is not durable after a failed write: it never becomes durable.
    pub(crate) fn check_obtainable(&self, ticket: Ticket) -> Result<(), KvError> {
        if self.heap.media().closed().is_some() && !self.heap.is_durable(ticket) {
            return Err(KvError::NotDurable);
        }
        Ok(())
    }
}

/// Checks a value against its checksum. Requests an evicted value from the heap's loader first.
///
/// # Errors
/// [`KvError::Wait`] if the value is being read; [`KvError::Damaged`]; errors of the medium.
pub fn verify(item: &Item<'_>) -> Result<(), KvError> {
    item.fetch()?;
    check(item)
}

/// Checks a value against its checksum. Blocks while an evicted value is read.
///
/// # Errors
/// [`KvError::Damaged`]; errors of the medium.
pub(crate) fn check(item: &Item<'_>) -> Result<(), KvError> {
    match item.verify()? {
        true => Ok(()),
        false => Err(KvError::Damaged { what: Damage::ValueChecksum }),
    }
}
