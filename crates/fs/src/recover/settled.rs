//! What recovery has decided.

use crate::dead::Dead;
use crate::header::{Header, LogFields};
use crate::kept::Kept;
use crate::key::InodeNumber;
use crate::left::LeftLog;
use crate::names::Position;
use landfall_heap::{Damage, SlotId, spaces};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What recovery of files has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Number of inodes.
    pub inodes: u64,
    /// Records of names.
    pub names: u64,
    /// Records of data.
    pub data: u64,
    /// Operations that are not published.
    pub operations: u64,
    /// Operations that were never acknowledged, because an operation before them is missing.
    pub unacknowledged: u64,
    /// Records that cannot be read.
    pub damaged: u64,
    /// Index behind the last operation of the mount's log that counts: every operation below was found, or is published.
    pub log_end: u64,
    /// Inodes without a name that were kept ([`crate::Orphans::Keep`]).
    pub orphans: Vec<InodeNumber>,
    /// Notes for the operator.
    pub notes: Vec<String>,
}

/// The records that are current.
#[derive(Debug, Default)]
pub struct Settled {
    /// The header. `None` if there is no tree.
    pub header: Option<HeaderFound>,
    /// The published inodes that have no name.
    pub orphans: Vec<InodeNumber>,
    /// The published inodes.
    pub inodes: BTreeMap<InodeNumber, SlotId>,
    /// Their names, by the first position of each record.
    pub names: BTreeMap<(InodeNumber, Position), SlotId>,
    /// Their data, by the first block of each record.
    pub data: BTreeMap<(InodeNumber, u32), SlotId>,
    /// Their extended attributes.
    pub extended: BTreeMap<InodeNumber, SlotId>,
    /// The clients' logs, by client. Clients that have ended have none.
    pub logs: BTreeMap<u32, LogFound>,
    /// What clients have left whose logs never count.
    pub left: Vec<LeftFound>,
    /// Stale records of the tree, and the tombstones that they need.
    pub kept: Kept,
    /// Stale bounds, and the tombstones that they need.
    pub kept_bounds: Kept,
    /// Inodes that are gone, and of which something is left.
    pub dead: Dead,
    /// The highest number of an inode in any record of the tree that counts.
    pub number_max: Option<InodeNumber>,
    /// The highest client of any operation or bound.
    pub client_max: Option<u32>,
    /// All current records, by slot: consecutive records are read fastest.
    pub current: Vec<SlotId>,
    /// What cannot be read, by inode. A readable record of the key may be older, and must not stand in for it.
    pub damaged: BTreeMap<InodeNumber, Vec<DamagedRecord>>,
    /// There are slots that cannot be read and of which no key is known: each may be the newest record of any key.
    pub has_nameless: bool,
    /// The floor of the tree as the newest bound of the mount's log has it; 1 is none. `None` if no bound says it, or the
    /// newest one cannot be read.
    pub floor: Option<u64>,
    /// Some header, perhaps an older one, has a seed: a copy may have replaced the tree.
    pub is_of_chain: bool,
    /// Counts and notes.
    pub report: Recovered,
}

impl Settled {
    /// Why the header that was found may not be the newest one. It may say less of the tree then than counts: records of
    /// another tree, which a copy has replaced, would come back.
    ///
    /// A slot of which nothing is known may be the newest header. The newest bound of the mount's log says whether it is
    /// one of this tree: the floor names the tree.
    pub(crate) fn header_damage(&self) -> Option<Damage> {
        let mut records = self.damaged.get(&InodeNumber(0)).into_iter().flatten();
        if let Some(record) = records.find(|record| record.space == spaces::FILES_HEADER) {
            return Some(record.what);
        }
        match self.header.map(|found| found.header) {
            Some(Err(what)) => return Some(what),
            None if !self.inodes.is_empty() => return Some(Damage::Lost),
            _ => {}
        }
        let is_unknown = self.has_nameless && self.is_of_chain && self.floor.is_none();
        (self.has_older_header() || is_unknown).then_some(Damage::Lost)
    }

    /// True if the header that was found is that of a tree that a copy has replaced.
    pub(crate) fn has_older_header(&self) -> bool {
        let header = self.header.and_then(|found| found.header.ok());
        let known = header.map_or(1, |header| header.floor_in_bound());
        self.floor.is_some_and(|floor| floor > known)
    }
}

/// The header of the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderFound {
    /// Its record.
    pub slot: SlotId,
    /// What it says.
    pub header: Result<Header, Damage>,
}

/// A record of the tree that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DamagedRecord {
    /// Its slot.
    pub slot: SlotId,
    /// Its space, which says what it is a record of.
    pub space: u8,
    /// First position of names, first block of data; otherwise 0.
    pub place: u64,
    /// The check that failed.
    pub what: Damage,
}

/// The log of a client.
#[derive(Debug)]
pub struct LogFound {
    /// The newest bound of which there is a record, even if its value cannot be read.
    pub bound: Option<SlotId>,
    /// Index of the first operation that is not published.
    pub first: u64,
    /// The fields of the bound. `None` if it cannot be read, or only an older one: `damage` says why.
    pub fields: Option<LogFields>,
    /// The operations to be executed, from the first index on, without gaps.
    pub operations: Vec<OperationSlot>,
    /// The highest index of any record of an operation, also below the mark or behind a gap.
    pub index_max: Option<u64>,
    /// Operations behind what cannot be read. They are kept, and not executed.
    pub behind: Vec<OperationSlot>,
    /// What cannot be read: the bound, or the operation behind `operations`.
    pub damage: Option<LogDamage>,
}

/// A record of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperationSlot {
    /// Its index in the log.
    pub index: u64,
    /// Its version: the order of operations over all logs.
    pub seq: u64,
    /// Its record.
    pub slot: SlotId,
}

/// What recovery has found of a [`LeftLog`]: from its first operation on, without gaps.
#[derive(Debug)]
pub struct LeftFound {
    pub(crate) log: Arc<LeftLog>,
    pub(crate) operations: Vec<OperationSlot>,
}

/// What ends a log too early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogDamage {
    /// The slot, if it still names the log.
    pub slot: Option<SlotId>,
    /// Index of the operation; `None` for the bound.
    pub index: Option<u64>,
    /// The check that failed.
    pub what: Damage,
}
