//! The engine: shards, and the commands that touch one key.

use crate::error::KvError;
use crate::shard::{DATABASES, Hit, Lookup, Shard};
use landfall_heap::layout::GROUP_RECORDS_MAX;
use landfall_heap::{
    Entry, Gated, Heap, HeapError, Kind, Patch, SlotId, Source, Ticket, Tickets, Until, Writer,
};
use landfall_media::Extent;
use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The space of the flush mark's record; no client key is in it.
pub(crate) const FLUSH_SPACE: u8 = landfall_heap::spaces::FLUSH;

/// A write of one key.
#[derive(Clone, Copy, Debug)]
pub struct SetRequest<'a> {
    /// Database, below [`DATABASES`], or a space of a later type.
    pub space: u8,
    /// The key.
    pub key: &'a [u8],
    /// Where the key landed, if it landed in one extent.
    pub key_at: Option<Extent>,
    /// The value.
    pub value: Source<'a>,
    /// Expiry, Unix milliseconds; 0 means never.
    pub expiry_ms: u64,
    /// Arrival of the request, Unix nanoseconds.
    pub arrival_ns: u64,
}

/// A write that was appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// The new version's record.
    pub slot: SlotId,
    /// Expiry of the replaced version, Unix milliseconds, 0 means never; `None` if the key was absent.
    pub old_expiry_ms: Option<u64>,
}

impl Written {
    /// True if the key had a value that had not expired at `now_ms`.
    pub fn has_replaced(&self, now_ms: u64) -> bool {
        self.old_expiry_ms.is_some_and(|expiry_ms| expiry_ms == 0 || expiry_ms > now_ms)
    }
}

/// Counts for `INFO` and `/metrics`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Keys of each database, expired ones included until they are purged.
    pub keys: [u64; DATABASES],
    /// Keys of each database that have an expiry.
    pub expiring: [u64; DATABASES],
    /// Tombstones that are kept because an older record of the key is still on the medium.
    pub tombstones: u64,
    /// Records on the medium that are not current.
    pub stale: u64,
    /// Keys whose record cannot be read.
    pub damaged: u64,
    /// DRAM of the index, bytes: an estimate without the bytes of keys.
    pub index_bytes: u64,
}

/// What the index holds for a key that is about to be written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found<'h> {
    /// The current version of the key. For a damaged key it may be an older version, which is only superseded.
    pub(crate) current: Option<Hit<'h>>,
    /// A record of the key cannot be read.
    pub(crate) damaged: bool,
}

impl Found<'_> {
    /// True when there is nothing to replace or to delete.
    pub(crate) fn is_nothing(&self) -> bool {
        self.current.is_none() && !self.damaged
    }
}

/// The key-value engine over one heap.
#[derive(Debug)]
pub struct Engine {
    pub(crate) heap: Arc<Heap>,
    pub(crate) shards: Box<[Mutex<Shard>]>,
    /// Records with a lower version are flushed.
    pub(crate) flush_seq: AtomicU64,
    /// The shard in which expired keys are looked for next.
    pub(crate) purge_from: AtomicUsize,
    /// Number of keys purged because they expired.
    pub(crate) expired: AtomicU64,
    /// Most records that are appended as a group; more are appended as a transaction of the heap.
    pub(crate) group_max: AtomicUsize,
}

impl Engine {
    pub(crate) fn new(heap: Arc<Heap>, shards: Box<[Mutex<Shard>]>, flush_seq: u64) -> Self {
        assert!(shards.len().is_power_of_two());
        let (flush_seq, expired) = (AtomicU64::new(flush_seq), AtomicU64::new(0));
        let group_max = AtomicUsize::new(GROUP_RECORDS_MAX);
        Self { heap, shards, flush_seq, purge_from: AtomicUsize::new(0), expired, group_max }
    }

    /// The heap that stores the records.
    pub fn heap(&self) -> &Arc<Heap> {
        &self.heap
    }

    /// Limits groups to `records` records from now on. Larger writes are transactions of the heap, as writes of more
    /// than [`GROUP_RECORDS_MAX`] records always are. For tests, which need fewer keys that way.
    pub fn group_up_to(&self, records: usize) {
        self.group_max.store(records.min(GROUP_RECORDS_MAX), Ordering::Relaxed);
    }

    /// Number of keys purged because they expired, since the engine was opened.
    pub fn expired_keys(&self) -> u64 {
        self.expired.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn shard_index(&self, hash: u64) -> usize {
        hash as usize & (self.shards.len() - 1)
    }

    #[inline]
    pub(crate) fn shard(&self, hash: u64) -> MutexGuard<'_, Shard> {
        self.shards[self.shard_index(hash)].lock()
    }

    /// Locks every shard, in ascending order.
    pub(crate) fn lock_all(&self) -> Vec<MutexGuard<'_, Shard>> {
        self.shards.iter().map(Mutex::lock).collect()
    }

    /// Writes a key and returns what the write replaced.
    ///
    /// # Errors
    /// [`KvError::Wait`]; the region is full or closed, or the key or value is too large.
    pub fn set(&self, writer: &mut Writer, request: &SetRequest<'_>) -> Result<Gated<Written>, KvError> {
        let lookup = Lookup::new(&self.heap, request.space, request.key);
        let mut shard = self.shard(lookup.hash);
        let mut crcs = None;
        let value = writer.certified(request.value, &mut crcs)?;
        let found = self.find_for_write(&shard, writer, &lookup)?;
        let slot = self.set_found(&mut shard, writer, &lookup, &SetRequest { value, ..*request }, found)?;
        Ok(writer.gate(Written { slot, old_expiry_ms: found.current.map(|hit| hit.view.expiry_ms()) }))
    }

    /// Writes a key instead of what was found.
    #[inline]
    fn set_found(
        &self,
        shard: &mut Shard,
        writer: &mut Writer,
        lookup: &Lookup<'_>,
        request: &SetRequest<'_>,
        found: Found<'_>,
    ) -> Result<SlotId, KvError> {
        let tomb = if found.current.is_none() { self.tomb_for_write(shard, writer, lookup)? } else { None };
        let entry = Entry {
            kind: Kind::Put,
            space: request.space,
            hash: lookup.hash,
            key: request.key,
            key_at: request.key_at,
            value: request.value,
            arrival_ns: request.arrival_ns,
            expiry_ms: request.expiry_ms,
            aux: 0,
        };
        let slot = writer.append(&entry)?;
        self.install(shard, writer, lookup, slot, request.expiry_ms, found, tomb);
        Ok(slot)
    }

    /// Writes a key of which there is no version, expired ones included; false if there is one.
    ///
    /// # Errors
    /// As [`Self::set`].
    pub fn set_absent(&self, writer: &mut Writer, request: &SetRequest<'_>) -> Result<bool, KvError> {
        let lookup = Lookup::new(&self.heap, request.space, request.key);
        let mut shard = self.shard(lookup.hash);
        let found = self.find_for_write(&shard, writer, &lookup)?;
        if !found.is_nothing() {
            return Ok(false);
        }
        let mut crcs = None;
        let value = writer.certified(request.value, &mut crcs)?;
        self.set_found(&mut shard, writer, &lookup, &SetRequest { value, ..*request }, found)?;
        Ok(true)
    }

    /// Deletes a key; false if the key was absent.
    ///
    /// # Errors
    /// As [`Self::set`], but the region is never full while the delete reserve lasts.
    pub fn delete(
        &self,
        writer: &mut Writer,
        space: u8,
        key: &[u8],
        now_ms: u64,
        arrival_ns: u64,
    ) -> Result<Gated<bool>, KvError> {
        let lookup = Lookup::new(&self.heap, space, key);
        let mut shard = self.shard(lookup.hash);
        let found = self.find_for_write(&shard, writer, &lookup)?;
        if found.is_nothing() {
            let absence = shard.pending_absence(&self.heap, &lookup)?;
            return Ok(Gated::new(false, absence));
        }
        let expired = !found.damaged && found.current.is_some_and(|hit| hit.is_expired(now_ms));
        let tomb = writer.append(&tombstone(&lookup, arrival_ns))?;
        self.install_tombstone(&mut shard, writer, &lookup, tomb, found);
        Ok(writer.gate(!expired))
    }

    /// Deletes a key if its version has a lower seq than `below`, or cannot be read; false if it has none, or a newer one.
    ///
    /// # Errors
    /// As [`Self::delete`].
    pub fn delete_older(
        &self,
        writer: &mut Writer,
        space: u8,
        key: &[u8],
        below: u64,
        arrival_ns: u64,
    ) -> Result<bool, KvError> {
        let lookup = Lookup::new(&self.heap, space, key);
        let mut shard = self.shard(lookup.hash);
        let found = self.find_for_write(&shard, writer, &lookup)?;
        let is_older = found.damaged || found.current.is_some_and(|hit| hit.view.seq() < below);
        if is_older {
            let tomb = writer.append(&tombstone(&lookup, arrival_ns))?;
            self.install_tombstone(&mut shard, writer, &lookup, tomb, found);
        }
        Ok(is_older)
    }

    /// Makes an appended version current. The record that it replaces is freed once the batch is durable.
    #[expect(
        clippy::too_many_arguments,
        reason = "the version that is replaced and the one that replaces it"
    )]
    #[inline]
    pub(crate) fn install(
        &self,
        shard: &mut Shard,
        writer: &mut Writer,
        lookup: &Lookup<'_>,
        slot: SlotId,
        expiry_ms: u64,
        found: Found<'_>,
        tomb: Option<SlotId>,
    ) {
        if found.damaged {
            shard.clear_damage(&self.heap, lookup, |unreadable| writer.supersede(unreadable));
        }
        shard.put(lookup, slot, expiry_ms, found.current.map(|hit| (hit.slot, hit.view.expiry_ms())));
        match found.current {
            Some(old) => writer.supersede_read(old.slot, &old.view),
            None => shard.note_change(writer),
        }
        if let Some(tomb) = tomb {
            shard.remove_tomb(lookup.hash, tomb);
            writer.supersede(tomb);
        }
    }

    /// Makes the appended record of a changed value current. It takes over the references of the previous record, which
    /// has been current under this lock since the change began.
    pub(crate) fn install_patched(
        &self,
        shard: &mut Shard,
        writer: &mut Writer,
        lookup: &Lookup<'_>,
        slot: SlotId,
        expiry_ms: u64,
        patch: &Patch,
    ) {
        shard.put(lookup, slot, expiry_ms, Some((patch.base(), expiry_ms)));
        writer.supersede_patched(slot, patch);
    }

    /// Makes an appended tombstone current.
    pub(crate) fn install_tombstone(
        &self,
        shard: &mut Shard,
        writer: &mut Writer,
        lookup: &Lookup<'_>,
        tomb: SlotId,
        found: Found<'_>,
    ) {
        if found.damaged {
            shard.clear_damage(&self.heap, lookup, |unreadable| writer.supersede(unreadable));
        }
        match found.current {
            Some(old) => {
                shard.delete(lookup, tomb, old.slot, old.view.expiry_ms());
                writer.supersede_read(old.slot, &old.view);
            }
            None => shard.delete_unreadable(lookup, tomb),
        }
        shard.note_change(writer);
    }

    /// Finds the version that a write will replace. An error if another writer's version, or its delete, is not durable
    /// yet.
    #[inline]
    pub(crate) fn find_for_write<'h>(
        &'h self,
        shard: &Shard,
        writer: &Writer,
        lookup: &Lookup<'_>,
    ) -> Result<Found<'h>, KvError> {
        match shard.find(&self.heap, lookup) {
            Ok(current) => {
                let pending = match current {
                    Some(hit) => self.heap.pending(hit.slot),
                    None => shard.pending_absence(&self.heap, lookup)?,
                };
                self.check_own_ticket(pending, writer)?;
                Ok(Found { current, damaged: false })
            }
            Err(KvError::Damaged { .. }) => {
                Ok(Found { current: shard.find_readable(&self.heap, lookup), damaged: true })
            }
            Err(error) => Err(error),
        }
    }

    /// Finds the tombstone that a write will replace. An error if another writer's tombstone is not durable yet.
    #[inline]
    pub(crate) fn tomb_for_write(
        &self,
        shard: &Shard,
        writer: &Writer,
        lookup: &Lookup<'_>,
    ) -> Result<Option<SlotId>, KvError> {
        let Some(tomb) = shard.find_tomb(&self.heap, lookup)? else { return Ok(None) };
        self.check_own_ticket(self.heap.pending(tomb.slot), writer)?;
        Ok(Some(tomb.slot))
    }

    /// Refuses to depend on what another writer has not made durable yet: a crash could undo the cause and keep the
    /// effect.
    #[inline]
    pub(crate) fn check_own_ticket(&self, pending: Option<Ticket>, writer: &Writer) -> Result<(), KvError> {
        let Some(ticket) = pending else { return Ok(()) };
        self.check_obtainable(ticket)?;
        if ticket.writer() == writer.id() { Ok(()) } else { Err(KvError::Wait(Until::Ticket(ticket))) }
    }

    /// Deletes every key with one record.
    ///
    /// # Errors
    /// As [`Self::delete`].
    pub fn flush_all(&self, writer: &mut Writer, arrival_ns: u64) -> Result<Gated<()>, KvError> {
        self.flush_locked(self.lock_all(), writer, arrival_ns)
    }

    /// Deletes every key with one record, provided that only database `space` holds keys. Otherwise it changes nothing
    /// and returns `None`.
    ///
    /// # Errors
    /// As [`Self::delete`].
    pub fn flush_only(
        &self,
        writer: &mut Writer,
        space: u8,
        arrival_ns: u64,
    ) -> Result<Option<Gated<()>>, KvError> {
        let shards = self.lock_all();
        let elsewhere = |shard: &Shard| shard.table.len() as u64 > shard.count_of(space);
        if shards.iter().any(|shard| elsewhere(shard)) {
            return Ok(None);
        }
        self.flush_locked(shards, writer, arrival_ns).map(Some)
    }

    fn flush_locked(
        &self,
        mut shards: Vec<MutexGuard<'_, Shard>>,
        writer: &mut Writer,
        arrival_ns: u64,
    ) -> Result<Gated<()>, KvError> {
        for shard in &shards {
            for entry in shard.table.iter().chain(shard.tombs.iter()) {
                self.check_own_ticket(self.heap.pending(entry.slot), writer)?;
            }
        }
        let hash = self.heap.hash(FLUSH_SPACE, b"");
        let mark = writer.append(&Entry {
            kind: Kind::Flush,
            space: FLUSH_SPACE,
            hash,
            key: b"",
            key_at: None,
            value: Source::None,
            arrival_ns,
            expiry_ms: 0,
            aux: 0,
        })?;
        self.flush_seq.store(self.heap.record(mark)?.seq(), Ordering::Release);
        for shard in &mut shards {
            let old = std::mem::take(&mut **shard);
            old.table.iter().chain(old.tombs.iter()).for_each(|entry| writer.supersede(entry.slot));
            old.unreadable.iter().for_each(|(_, slot)| writer.supersede(*slot));
            shard.note_flush(writer);
        }
        shards[self.shard_index(hash)].add_tomb(hash, mark);
        Ok(writer.gate(()))
    }

    /// Current records, tombstones and the flush mark included, with this seq or a higher one, in the order of their seqs.
    ///
    /// # Errors
    /// The medium's. Records that cannot be read are left out.
    pub fn records_from(&self, seq: u64) -> Result<Vec<SlotId>, KvError> {
        let mut found = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock();
            for entry in shard.table.iter().chain(shard.tombs.iter()) {
                match self.heap.record(entry.slot) {
                    Ok(view) if view.seq() >= seq => found.push((view.seq(), entry.slot)),
                    Ok(_) | Err(HeapError::Damaged { .. }) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        found.sort_unstable();
        Ok(found.into_iter().map(|(_, slot)| slot).collect())
    }

    /// Number of keys in a database, expired ones included until they are purged.
    pub fn count(&self, space: u8) -> Gated<u64> {
        let (mut count, mut changes) = (0, Tickets::default());
        for shard in &self.shards {
            let shard = shard.lock();
            count += shard.count_of(space);
            changes.add_all(&shard.pending_changes(&self.heap));
        }
        Gated::new(count, changes)
    }

    /// Sums of the counts of all shards.
    pub fn stats(&self) -> Stats {
        let mut stats = Stats::default();
        for shard in &self.shards {
            let shard = shard.lock();
            for (sum, keys) in stats.keys.iter_mut().zip(shard.keys) {
                *sum += keys;
            }
            for (sum, keys) in stats.expiring.iter_mut().zip(shard.expiring) {
                *sum += keys;
            }
            stats.tombstones += shard.tombs.len() as u64;
            stats.stale += shard.stale.total();
            stats.damaged += shard.damaged.len() as u64;
            stats.index_bytes += shard.memory_bytes();
        }
        stats
    }
}

/// The record that deletes a key.
pub(crate) fn tombstone<'a>(lookup: &Lookup<'a>, arrival_ns: u64) -> Entry<'a> {
    Entry {
        kind: Kind::Tombstone,
        space: lookup.space,
        hash: lookup.hash,
        key: lookup.key,
        key_at: None,
        value: Source::None,
        arrival_ns,
        expiry_ms: 0,
        aux: 0,
    }
}
