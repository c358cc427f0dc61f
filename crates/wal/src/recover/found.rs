//! What recovery finds while it reads the records, and what it reports.

use crate::bounds::is_end;
use crate::format::Head;
use crate::tombstones::Tombstone;
use landfall_heap::{NoInlineCounts, SlotId, StaleCounts, spaces};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// What recovery of logs found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Number of logs.
    pub logs: u64,
    /// Number of entries.
    pub entries: u64,
    /// Entries that were never acknowledged, because an entry before them is missing.
    pub unacknowledged: u64,
    /// Entries that cannot be read.
    pub damaged: u64,
    /// Notes for the operator.
    pub notes: Vec<String>,
}

/// A record of an entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct EntryFound {
    pub(super) number: u32,
    pub(super) len: u32,
    pub(super) offset: u64,
    pub(super) seq: u64,
    pub(super) rev: u32,
    pub(super) slot: SlotId,
    /// The record says that the entry is lost.
    pub(super) lost: bool,
}

/// The newest record of a head or position that has been found so far.
#[derive(Clone, Debug)]
pub(super) struct BoundFound {
    pub(super) slot: SlotId,
    pub(super) version: (u64, u32),
    pub(super) space: u8,
    pub(super) number: u32,
    pub(super) mark: u64,
    pub(super) key: Vec<u8>,
    pub(super) value: Option<Vec<u8>>,
}

#[derive(Debug, Default)]
pub(super) struct BoundsFound {
    pub(super) newest: BTreeMap<u64, BoundFound>,
    pub(super) stale: StaleCounts,
    /// First offset of each log, by number of the log.
    pub(super) firsts: BTreeMap<u32, u64>,
    pub(super) number_max: u32,
}

impl BoundsFound {
    pub(super) fn add(&mut self, hash: u64, new: BoundFound) {
        if new.space == spaces::LOG {
            let first = self.firsts.entry(new.number).or_default();
            *first = (*first).max(new.mark);
        }
        let known = match self.newest.entry(hash) {
            Entry::Vacant(vacant) => {
                vacant.insert(new);
                return;
            }
            Entry::Occupied(known) => known.into_mut(),
        };
        self.stale.add(hash, &mut NoInlineCounts);
        if new.version > known.version {
            *known = new;
        }
    }
}

/// The tombstone that a bound is. `None` if it is no tombstone, or no stale record is left that needs it.
pub(super) fn tombstone(found: &BoundFound, has_stale: bool) -> Option<Tombstone> {
    let is_needed = is_end(found.mark) && has_stale;
    let head =
        found.value.as_deref().map_or_else(Head::default, |value| Head::decode(value).unwrap_or_default());
    let BoundFound { slot, number, space, .. } = *found;
    is_needed.then_some(Tombstone { slot, number, space, life: head.life })
}
