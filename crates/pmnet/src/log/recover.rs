//! Opening a log: the records in the heap become entries of the index.
//!
//! Which records are accepted, and why: `docs/format/pmnet.md`. A value that fails its check belonged to an update
//! that was removed, or that was never acknowledged. It is no damage, and does not cut off the records behind it.

use super::index::Index;
use super::session::Standing;
use super::state::{Aux, Limits, Log, Shared};
use crate::error::LogError;
use crate::identity::{Flow, Identity};
use landfall_heap::{
    Damage, DamagedSlot, Found, Heap, HeapError, Judge, Keeper, RecordView, Region, SlotId, Tenant, spaces,
};
use landfall_media::Media;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What opening has found in the region.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Updates in the log.
    pub entries: u64,
    /// Bytes of their packets.
    pub bytes: u64,
    /// Records of updates whose packets are no longer there.
    pub gone: u64,
    /// Records of updates whose client has lost the port from which they were forwarded. The server has confirmed
    /// them.
    pub strays: u64,
    /// Records that were never acknowledged.
    pub rejected: u64,
    /// Slots that could not be read.
    pub damaged: u64,
    /// Paths of clients.
    pub paths: u64,
    /// Notes for the operator.
    pub notes: Vec<String>,
}

#[derive(Clone, Copy, Debug)]
struct Newest {
    version: (u64, u32),
    slot: SlotId,
    aux: u32,
}

/// The newest record of each identity and of each path.
#[derive(Debug, Default)]
struct Records {
    updates: BTreeMap<Identity, Newest>,
    paths: BTreeMap<Flow, Newest>,
}

/// The log as a tenant of the region that is being opened.
#[derive(Debug, Default)]
struct LogTenant {
    records: Mutex<Records>,
    index: Mutex<Index>,
    /// Counts so far. They are complete once the region is open.
    found: Mutex<Recovered>,
}

fn keep_newer<K: Ord>(map: &mut BTreeMap<K, Newest>, key: K, new: Newest) {
    let known = map.entry(key).or_insert(new);
    if new.version > known.version {
        *known = new;
    }
}

/// Every record whose packet is no longer there is excused.
impl Judge for LogTenant {
    fn is_superseded(&self, _: &Heap, _: &Found) -> bool {
        true
    }
}

impl Tenant for LogTenant {
    fn owns(&self, space: u8) -> bool {
        spaces::PMNET.contains(&space)
    }

    fn restart(&self) {
        *self.records.lock() = Records::default();
    }

    fn take(&self, heap: &Heap, found: &Found, view: &RecordView<'_>) -> Result<(), HeapError> {
        let newest = Newest { version: (found.seq, found.rev), slot: found.slot, aux: found.aux };
        let Ok(key) = heap.key(view) else { return Ok(()) };
        let mut records = self.records.lock();
        if found.space == spaces::PMNET_LOG {
            if let Some(identity) = Identity::from_bytes(&key) {
                keep_newer(&mut records.updates, identity, newest);
            }
        } else if let Ok(bytes) = (*key).try_into() {
            keep_newer(&mut records.paths, Flow::from_bytes(bytes), newest);
        }
        Ok(())
    }

    /// Only counted. A record that cannot be read may have been removed long ago.
    fn take_damaged(&self, _: &DamagedSlot) {}

    /// No one repairs a device's log, so damaged slots need not be kept.
    fn pins_damaged(&self) -> bool {
        false
    }

    fn settle(&self, _: &Heap) -> Result<Vec<DamagedSlot>, HeapError> {
        Ok(Vec::new())
    }

    /// Processes all records in one call, because whether an update is kept depends on all paths.
    fn current_some(&self, keeper: &dyn Keeper) -> Result<bool, HeapError> {
        let records = std::mem::take(&mut *self.records.lock());
        if records.updates.is_empty() && records.paths.is_empty() {
            return Ok(false);
        }
        let (mut index, mut found) = (self.index.lock(), self.found.lock());
        adopt_paths(keeper, &records, &mut index)?;
        found.paths = index.path_count() as u64;
        for (identity, newest) in &records.updates {
            adopt_update(keeper, identity, newest, &mut index, &mut found)?;
        }
        Ok(true)
    }

    fn describe(&self, _: u8, _: &[u8]) -> Option<String> {
        None
    }
}

impl Log {
    /// Opens the log in a region that nobody else uses.
    ///
    /// # Errors
    /// Every error with which the region cannot be opened. [`HeapError::Foreign`] if the region contains something
    /// else.
    pub fn open(media: Arc<dyn Media>, limits: Limits) -> Result<(Self, Recovered), LogError> {
        let tenant = Arc::new(LogTenant::default());
        let (heap, region) = Region::run(media, vec![Arc::clone(&tenant) as Arc<dyn Tenant>])?;
        let mut recovered = std::mem::take(&mut *tenant.found.lock());
        recovered.rejected = region.resolved.rejected;
        recovered.damaged = region.damaged.iter().filter(|slot| slot.what != Damage::Lost).count() as u64;
        recovered.notes = region.notes;
        let index = std::mem::take(&mut *tenant.index.lock());
        let shared = Arc::new(Shared { heap, index: Mutex::new(index) });
        Ok((Self::new(shared, limits), recovered))
    }
}

/// Adds an update to the index, if its packet passes its check.
fn adopt_update(
    keeper: &dyn Keeper,
    identity: &Identity,
    newest: &Newest,
    index: &mut Index,
    found: &mut Recovered,
) -> Result<(), HeapError> {
    let Aux { port, not_started, .. } = Aux::of(newest.aux);
    if port != 0 && index.path(&identity.flow) != Some(port) {
        found.strays += 1;
        return Ok(());
    }
    let mut len = 0;
    let is_kept = keeper.keep(newest.slot, &mut |view| {
        len = view.value_len();
        match keeper.heap().verify_value(newest.slot, view) {
            Err(HeapError::Damaged { .. }) => Ok(false),
            verified => verified.map(|_| true),
        }
    })?;
    if !is_kept {
        found.gone += 1;
        return Ok(());
    }
    index.insert(*identity, newest.slot, len as u32);
    if !not_started {
        index.raise(identity.flow, identity.session, Standing::Started, usize::MAX);
    }
    index.mark_durable(identity, newest.slot);
    found.entries += 1;
    found.bytes += len as u64;
    Ok(())
}

/// Adds the paths to the index. A port that several clients have had belongs to the client that got it last. Port 0 is
/// nobody's: these records stand for servers.
fn adopt_paths(keeper: &dyn Keeper, records: &Records, index: &mut Index) -> Result<(), HeapError> {
    let mut owners: BTreeMap<u32, (u64, Flow)> = BTreeMap::new();
    for (flow, newest) in &records.paths {
        let owner = owners.entry(newest.aux).or_insert((newest.version.0, *flow));
        *owner = (*owner).max((newest.version.0, *flow));
    }
    for (flow, newest) in &records.paths {
        let is_owner = owners.get(&newest.aux).is_some_and(|(_, owner)| owner == flow || newest.aux == 0);
        let Some(port) = u16::try_from(newest.aux).ok().filter(|_| is_owner) else { continue };
        keeper.keep(newest.slot, &mut |_| Ok(true))?;
        index.set_path(*flow, port, newest.slot);
    }
    Ok(())
}
