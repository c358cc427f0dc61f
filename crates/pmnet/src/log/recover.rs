//! Opening: the heap's records become updates again.
//!
//! What is believed and why: `docs/format/pmnet.md`. A value that does not hold belonged to an update that was removed, or
//! never acknowledged: it is no damage, and cuts off nothing behind it.

use super::index::Index;
use super::{Aux, Limits, Log, Shared, Standing};
use crate::error::LogError;
use crate::{Flow, Identity};
use landfall_heap::{Found, Heap, HeapError, Judge, Opening, RecordView, Slot, SlotId, spaces};
use landfall_media::Media;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What opening has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Updates in the log.
    pub entries: u64,
    /// Bytes of their packets.
    pub bytes: u64,
    /// Records of updates whose packets were gone.
    pub gone: u64,
    /// Records of updates that were sent on from a port that their client has no more: they were confirmed.
    pub strays: u64,
    /// Records that never were acknowledged.
    pub rejected: u64,
    /// Slots that cannot be read.
    pub damaged: u64,
    /// Ports of clients.
    pub paths: u64,
    /// Notes for people.
    pub notes: Vec<String>,
}

/// Every record whose packet is gone is excused.
struct Excused;

impl Judge for Excused {
    fn is_superseded(&self, _: &Heap, _: &Found) -> bool {
        true
    }
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
    foreign: Option<u8>,
    damaged: u64,
}

impl Records {
    fn take(&mut self, heap: &Heap, found: &Found, view: &RecordView<'_>) {
        let newest = Newest { version: (found.seq, found.rev), slot: found.slot, aux: found.aux };
        let Ok(key) = heap.key(view) else { return };
        match found.space {
            spaces::PMNET_LOG => {
                if let Some(identity) = Identity::from_bytes(key) {
                    keep_newer(&mut self.updates, identity, newest);
                }
            }
            spaces::PMNET_PATH => {
                if let Ok(bytes) = key.try_into() {
                    keep_newer(&mut self.paths, Flow::from_bytes(bytes), newest);
                }
            }
            // A slot that repair has filled says nothing.
            space if found.seq > 0 => self.foreign = self.foreign.or(Some(space)),
            _ => {}
        }
    }
}

fn keep_newer<K: Ord>(map: &mut BTreeMap<K, Newest>, key: K, new: Newest) {
    let known = map.entry(key).or_insert(new);
    if new.version > known.version {
        *known = new;
    }
}

impl Log {
    /// Opens the log in a region that nobody else uses.
    ///
    /// # Errors
    /// All the ways in which the region cannot be opened; [`HeapError::Foreign`] if something else is in it.
    pub fn open(media: Arc<dyn Media>, limits: Limits) -> Result<(Self, Recovered), LogError> {
        let mut opening = Opening::begin(media)?;
        let mut records = Records::default();
        for unit in opening.units() {
            let heap = opening.heap();
            let scanned = opening.scan(unit, |found, view| records.take(heap, &found, view))?;
            records.damaged += scanned.damaged.len() as u64;
            for slot in unit.tail() {
                let Slot::Record(view) = heap.slot(slot)? else { continue };
                let ours = |space: &u8| spaces::PMNET.contains(space) || view.seq() == 0;
                let theirs = Some(view.space()).filter(|space| !ours(space));
                records.foreign = records.foreign.or(theirs);
            }
        }
        // Before anything is decided that only the owners of these records could decide.
        if let Some(space) = records.foreign {
            return Err(HeapError::Foreign { space }.into());
        }
        let mut accepted = Vec::new();
        let resolved = opening.resolve(&Excused, |found, _| accepted.push(found))?;
        let heap = opening.heap();
        for found in accepted {
            records.take(heap, &found, &heap.record(found.slot)?);
        }
        let mut recovered = Recovered {
            rejected: resolved.rejected,
            damaged: records.damaged,
            notes: opening.notes.clone(),
            ..Recovered::default()
        };
        let index = adopt(&opening, &records, &mut recovered)?;
        let shared = Arc::new(Shared { heap: opening.finish()?, index: Mutex::new(index) });
        Ok((Self::new(shared, limits), recovered))
    }
}

/// Takes up every path, and every update whose packet holds.
fn adopt(opening: &Opening, records: &Records, recovered: &mut Recovered) -> Result<Index, LogError> {
    let mut index = Index::default();
    adopt_paths(opening, records, &mut index)?;
    recovered.paths = index.path_count() as u64;
    let heap = opening.heap();
    for (identity, newest) in &records.updates {
        let Aux { port, not_started, .. } = Aux::of(newest.aux);
        if port != 0 && index.path(&identity.flow) != Some(port) {
            recovered.strays += 1;
            continue;
        }
        let view = heap.record(newest.slot)?;
        match heap.verify_value(newest.slot, &view).and_then(|_| opening.adopt(newest.slot, &view)) {
            Ok(()) => {
                index.insert(*identity, newest.slot, view.value_len() as u32);
                if !not_started {
                    index.raise(identity.flow, identity.session, Standing::Started, usize::MAX);
                }
                index.mark_durable(identity, newest.slot);
                recovered.entries += 1;
                recovered.bytes += view.value_len() as u64;
            }
            Err(HeapError::Damaged { .. }) => recovered.gone += 1,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(index)
}

/// A port that another client had before belongs to whom it was given last.
fn adopt_paths(opening: &Opening, records: &Records, index: &mut Index) -> Result<(), LogError> {
    let mut owners: BTreeMap<u32, (u64, Flow)> = BTreeMap::new();
    for (flow, newest) in &records.paths {
        let owner = owners.entry(newest.aux).or_insert((newest.version.0, *flow));
        *owner = (*owner).max((newest.version.0, *flow));
    }
    for (flow, newest) in &records.paths {
        let is_owner = owners.get(&newest.aux).is_some_and(|(_, owner)| owner == flow);
        let Some(port) = u16::try_from(newest.aux).ok().filter(|_| is_owner) else { continue };
        opening.adopt(newest.slot, &opening.heap().record(newest.slot)?)?;
        index.set_path(*flow, port, newest.slot);
    }
    Ok(())
}
