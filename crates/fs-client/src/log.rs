//! The log of a client: slots of slabs, and landing runs for bytes.

use crate::host::{Gone, Host};
use landfall_fs::WritePlace;
use landfall_fs_link::{Control, Identity, SlabGrant, WriteRecord};
use landfall_heap::{RECORD_SIZE, RunId, SLOTS_PER_RUN, SlotId, crc};
use landfall_media::{Extent, RUN_SIZE, Site};
use std::ops::Range;

/// Extents end at multiples of so many bytes.
const GRAIN: u64 = landfall_fs_link::BLOCK_BYTES;

/// A landing run that is being filled.
#[derive(Clone, Copy, Debug)]
struct Landing {
    run: RunId,
    filled: u64,
}

/// An operation to append: its bytes follow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) place: WritePlace,
    pub(crate) seq: u64,
    pub(crate) time_ns: i64,
    pub(crate) len: u64,
}

/// The log. One thread at a time has it.
#[derive(Debug)]
pub(crate) struct Log {
    identity: Identity,
    /// Operations that are appended.
    appended: u64,
    /// Operations that are durable.
    durable: u64,
    slab: Option<SlabGrant>,
    landing: Option<Landing>,
    /// Number of the landing run that is being filled, or of the first one.
    landings: u64,
    /// Bytes of operations that are not durable: consecutive ones are one range.
    dirty: Vec<Range<u64>>,
}

fn extent(off: u64, len: u64) -> Extent {
    Extent::new(off, u32::try_from(len).expect("parts of a run have less than 4 GiB"))
}

impl Log {
    pub(crate) fn new(identity: Identity) -> Self {
        Self { identity, appended: 0, durable: 0, slab: None, landing: None, landings: 0, dirty: Vec::new() }
    }

    /// True if operations with so many bytes each can be appended without another grant.
    pub(crate) fn has_room(&self, control: &Control<'_>, lens: impl Iterator<Item = u64>) -> bool {
        let (mut filled, mut runs, mut count) = (self.landing.map(|landing| landing.filled), 0, 0);
        for len in lens {
            let taken = len.next_multiple_of(GRAIN);
            filled = match filled {
                Some(filled) if filled + taken <= RUN_SIZE => Some(filled + taken),
                before => {
                    runs += u64::from(before.is_some());
                    Some(taken)
                }
            };
            count += 1;
        }
        let slots = u64::from(SLOTS_PER_RUN);
        let last = (self.appended + u64::max(count, 1) - 1) / slots;
        let slabs = self.appended / slots..=last;
        let has_slabs = slabs.into_iter().all(|number| control.slab(number).is_some());
        has_slabs && (0..=runs).all(|run| control.landing(self.landings + run).is_some())
    }

    /// Appends an operation. `fill` stores its bytes at the offset that it gets. Returns where they are.
    ///
    /// # Errors
    /// [`Gone`], also if the server takes no operations any more; nothing is appended then.
    pub(crate) fn append(
        &mut self,
        control: &Control<'_>,
        host: &dyn Host,
        entry: &Entry,
        fill: impl FnOnce(u64) -> Result<(), Gone>,
    ) -> Result<Extent, Gone> {
        let slab = self.slab(control, host)?;
        let off = self.land(control, host, entry.len)?;
        fill(off)?;
        let bytes = extent(off, entry.len);
        let record = WriteRecord {
            client: self.identity.client,
            index: self.appended,
            place: entry.place,
            seq: entry.seq,
            time_ns: entry.time_ns,
            extents: &[bytes],
            crc: crc::of(host.bytes(bytes)?),
        };
        let slot = SlotId::new(slab.run, (self.appended % u64::from(SLOTS_PER_RUN)) as u32);
        let first = self.appended - u64::from(slot.index());
        let durable_before = self.durable.saturating_sub(first) as u32;
        host.store(slot.off(), &record.seal(self.identity.hash_seed, slot, slab.seal, durable_before))?;
        if !control.append(self.appended) {
            return Err(Gone);
        }
        self.appended += 1;
        self.note_dirty(bytes);
        Ok(bytes)
    }

    /// The slab of the next operation. Before its first slot is used, everything is durable.
    fn slab(&mut self, control: &Control<'_>, host: &dyn Host) -> Result<SlabGrant, Gone> {
        let slots = u64::from(SLOTS_PER_RUN);
        if let Some(slab) = self.slab.filter(|_| !self.appended.is_multiple_of(slots)) {
            return Ok(slab);
        }
        self.make_durable(control, host);
        let next = control.slab(self.appended / slots).ok_or(Gone)?;
        host.open_run(next.run)?;
        if let Some(full) = self.slab.replace(next) {
            host.close_run(full.run);
        }
        Ok(next)
    }

    /// Space for so many bytes, which lie in one run.
    fn land(&mut self, control: &Control<'_>, host: &dyn Host, len: u64) -> Result<u64, Gone> {
        let taken = len.next_multiple_of(GRAIN);
        let landing = match self.landing {
            Some(landing) if landing.filled + taken <= RUN_SIZE => landing,
            full => {
                if let Some(full) = full {
                    // Everything in it is appended: operations are appended one by one.
                    host.close_run(full.run);
                    self.landings += 1;
                    self.landing = None;
                    control.set_done(self.landings);
                }
                let run = control.landing(self.landings).ok_or(Gone)?;
                host.open_run(run)?;
                Landing { run, filled: 0 }
            }
        };
        self.landing = Some(Landing { filled: landing.filled + taken, ..landing });
        Ok(landing.run.off() + landing.filled)
    }

    fn note_dirty(&mut self, bytes: Extent) {
        if self.identity.is_executed_again() {
            return;
        }
        match self.dirty.last_mut() {
            Some(last) if last.end.next_multiple_of(GRAIN) == bytes.off => last.end = bytes.end(),
            _ => self.dirty.push(bytes.off..bytes.end()),
        }
    }

    /// Number of operations that are appended.
    pub(crate) fn appended(&self) -> u64 {
        self.appended
    }

    /// Makes durable what is appended, unless that would not count.
    pub(crate) fn make_durable(&mut self, control: &Control<'_>, host: &dyn Host) {
        if self.identity.is_executed_again() {
            return;
        }
        let Some(slab) = self.slab.filter(|_| self.durable < self.appended) else { return };
        for range in self.dirty.drain(..) {
            host.flush(Site::Data, extent(range.start, range.end - range.start));
        }
        // All of them are in this slab: what was in the one before is durable.
        let slots = u64::from(SLOTS_PER_RUN);
        let first = SlotId::new(slab.run, (self.durable % slots) as u32);
        host.flush(Site::Record, extent(first.off(), (self.appended - self.durable) * RECORD_SIZE));
        host.fence();
        self.durable = self.appended;
        control.set_durable(self.durable);
    }
}
