//! Showing that a key is absent: that, too, must be something that a crash cannot take back.

use crate::engine::{Engine, FLUSH_SPACE};
use crate::error::KvError;
use crate::item::Item;
use crate::shard::{Lookup, Shard};
use crate::txn::Txn;
use landfall_heap::SlotId;
use std::sync::atomic::Ordering;

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

impl Engine {
    /// A key's value, unchecked, or why there is none: both found under one lock.
    ///
    /// # Errors
    /// As [`Engine::peek`].
    pub fn look(&self, space: u8, key: &[u8], now_ms: u64) -> Result<Seen<'_>, KvError> {
        let lookup = Lookup::new(&self.heap, space, key);
        let shard = self.shard(lookup.hash);
        if let Some(hit) = shard.find(&self.heap, &lookup)?.filter(|hit| !hit.is_expired(now_ms)) {
            self.check_visible(hit.slot)?;
            return Ok(Seen::Item(Item::hold(&self.heap, hit.slot, &hit.view)?));
        }
        let pending = self.pending_absence(&shard, &lookup)?;
        drop(shard);
        let pending = pending.or_else(|| self.pending_flush());
        pending.map_or(Ok(()), |slot| self.check_visible(slot))?;
        Ok(Seen::Absent { pending })
    }

    /// The slot that must be durable before it may be shown that a key is absent, if it is not yet.
    /// Ask after the key was found absent; [`Engine::look`] does both at once.
    pub fn absence_slot(&self, space: u8, key: &[u8]) -> Option<SlotId> {
        let lookup = Lookup::new(&self.heap, space, key);
        let pending = self.pending_absence(&self.shard(lookup.hash), &lookup).ok().flatten();
        pending.or_else(|| self.pending_flush())
    }

    /// The tombstone, or the expired version, of a key that cannot be read, while it is not durable.
    fn pending_absence(&self, shard: &Shard, lookup: &Lookup<'_>) -> Result<Option<SlotId>, KvError> {
        let hit = match shard.find(&self.heap, lookup)? {
            Some(expired) => Some(expired),
            None => shard.find_tomb(&self.heap, lookup)?,
        };
        Ok(hit.map(|hit| hit.slot).filter(|slot| !self.heap.is_durable(*slot)))
    }

    /// The mark of a flush that is not durable yet: until it is, no key may be shown to be absent.
    pub fn pending_flush(&self) -> Option<SlotId> {
        if !self.flush_pending.load(Ordering::Acquire) {
            return None;
        }
        let hash = self.heap.hash(FLUSH_SPACE, b"");
        // Under the lock: the compactor may have moved the mark, and a flush sets the flag under it, too.
        let shard = self.shard(hash);
        let pending = shard.tombs_of(hash).find(|slot| !self.heap.is_durable(*slot));
        if pending.is_none() {
            self.flush_pending.store(false, Ordering::Release);
        }
        pending
    }
}

impl Txn<'_> {
    /// As [`Engine::absence_slot`], for a key that the transaction has found absent and has not written;
    /// but for a flush: ask [`Engine::pending_flush`] once the transaction is over.
    pub fn absence_slot(&self, space: u8, key: &[u8]) -> Option<SlotId> {
        let lookup = Lookup::new(&self.engine.heap, space, key);
        self.engine.pending_absence(self.shard(lookup.hash), &lookup).ok().flatten()
    }
}
