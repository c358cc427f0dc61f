//! Showing that a key is absent: that, too, must be something that a crash cannot take back.

use crate::engine::Engine;
use crate::error::KvError;
use crate::shard::{Lookup, Shard};
use crate::txn::Txn;
use landfall_heap::{Damage, Heap, Item, SlotId};

/// What a read has come to.
#[derive(Debug)]
pub enum Seen<'h> {
    /// The key's value, unchecked. Show it once [`Item::slot`] is durable.
    Item(Item<'h>),
    /// No such key. If `pending` is set, say so only once it is durable.
    Absent {
        /// The delete, flush or short-lived version that a crash could still take back.
        pending: Option<SlotId>,
    },
}

impl<'h> Seen<'h> {
    /// The value, if there is one.
    pub fn item(self) -> Option<Item<'h>> {
        match self {
            Self::Item(item) => Some(item),
            Self::Absent { .. } => None,
        }
    }

    /// The record that must be durable before this is shown; [`SlotId::NONE`] if there is none.
    pub fn slot(&self) -> SlotId {
        match self {
            Self::Item(item) => item.slot,
            Self::Absent { pending } => pending.unwrap_or(SlotId::NONE),
        }
    }

    /// Checks a value against its checksum.
    ///
    /// # Errors
    /// [`KvError::Damaged`]; the medium's.
    pub fn verify(&self) -> Result<(), KvError> {
        match self {
            Self::Item(item) if !item.verify()? => Err(KvError::Damaged { what: Damage::ValueChecksum }),
            _ => Ok(()),
        }
    }
}

impl Engine {
    /// A key's value, unchecked, or why there is none: both found under one lock.
    ///
    /// # Errors
    /// As [`Engine::peek`].
    pub fn look(&self, space: u8, key: &[u8], now_ms: u64) -> Result<Seen<'_>, KvError> {
        let lookup = Lookup::new(&self.heap, space, key);
        let shard = self.shard(lookup.hash);
        self.look_in(&shard, &lookup, now_ms)
    }

    pub(crate) fn look_in(
        &self,
        shard: &Shard,
        lookup: &Lookup<'_>,
        now_ms: u64,
    ) -> Result<Seen<'_>, KvError> {
        let pending = match shard.find(&self.heap, lookup)? {
            Some(hit) if hit.is_expired(now_ms) => Some(hit.slot).filter(|slot| !self.heap.is_durable(*slot)),
            Some(hit) => {
                self.check_visible(hit.slot)?;
                return Ok(Seen::Item(Item::hold(&self.heap, hit.slot, &hit.view)?));
            }
            None => shard.pending_absence(&self.heap, lookup)?,
        };
        pending.map_or(Ok(()), |slot| self.check_visible(slot))?;
        Ok(Seen::Absent { pending })
    }

    /// The slot that must be durable before it may be shown that a key is absent, if it is not yet.
    /// Ask after the key was found absent; [`Engine::look`] does both at once.
    pub fn absence_slot(&self, space: u8, key: &[u8]) -> Option<SlotId> {
        let lookup = Lookup::new(&self.heap, space, key);
        absence_in(&self.heap, &self.shard(lookup.hash), &lookup)
    }
}

/// The expired version, or the tombstone, of a key that cannot be read, while it is not durable.
fn absence_in(heap: &Heap, shard: &Shard, lookup: &Lookup<'_>) -> Option<SlotId> {
    match shard.find(heap, lookup).ok()? {
        Some(expired) => Some(expired.slot).filter(|slot| !heap.is_durable(*slot)),
        None => shard.pending_absence(heap, lookup).ok().flatten(),
    }
}

impl Txn<'_> {
    /// As [`Engine::absence_slot`], for a key that the transaction has found absent and has not written.
    pub fn absence_slot(&self, space: u8, key: &[u8]) -> Option<SlotId> {
        let lookup = Lookup::new(&self.engine.heap, space, key);
        absence_in(&self.engine.heap, self.shard(lookup.hash), &lookup)
    }
}
