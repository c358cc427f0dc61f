//! Several systems in one region: who owns which records, and what each is asked by recovery, by the
//! compactor and by the check.
//!
//! A record's *space* tells whose it is ([`spaces`]). One system drives recovery and brings the others along as
//! [`Tenant`]s; the compactor is given an [`OwnerBySpace`].

use crate::compact::{Gone, Named, Owner};
use crate::error::HeapError;
use crate::heap::Heap;
use crate::layout::SlotId;
use crate::record::RecordView;
use crate::recover::{DamagedSlot, Found, Judge};
use std::ops::RangeInclusive;

/// Spaces by the system that owns them. All others belong to the key-value engine.
pub mod spaces {
    use super::RangeInclusive;

    /// Entries of logs and the bounds that these count under.
    pub const LOG: u8 = 16;
    /// Positions of logs' consumers.
    pub const LOG_POSITION: u8 = 17;
    /// What belongs to logs.
    pub const LOGS: RangeInclusive<u8> = LOG..=LOG_POSITION;
    /// Updates that a PMNet device keeps.
    pub const PMNET_LOG: u8 = 32;
    /// The ports from which a PMNet relay sends clients' packets on.
    pub const PMNET_PATH: u8 = 33;
    /// What belongs to PMNet devices.
    pub const PMNET: RangeInclusive<u8> = PMNET_LOG..=PMNET_PATH;
}

/// A system whose records share the region with those of the one that drives recovery.
///
/// Order of calls: [`Self::take`] for every record below the watermarks and [`Self::take_damaged`], from any
/// number of threads; the questions of [`Judge`] and [`Self::take`] for those above that are believed;
/// perhaps [`Self::restart`] and all of it again; [`Self::settle`]; [`Self::current_some`] from any number of
/// threads until it returns false.
pub trait Tenant: Judge + Send + Sync + std::fmt::Debug {
    /// True for the spaces whose records are its own.
    fn owns(&self, space: u8) -> bool;

    /// Forgets everything taken: the scan begins anew.
    fn restart(&self);

    /// A believed record of its own.
    fn take(&self, heap: &Heap, found: &Found, view: &RecordView<'_>);

    /// A slot that cannot be read: one of its own, by the name, or one that nobody can name.
    fn take_damaged(&self, damaged: &DamagedSlot);

    /// Everything has been taken: decides what is current.
    ///
    /// # Errors
    /// The medium's.
    fn settle(&self, heap: &Heap) -> Result<(), HeapError>;

    /// Names some of the slots whose records are current; false when none is left.
    fn current_some(&self, visit: &mut dyn FnMut(SlotId)) -> bool;

    /// What a person would call the record with this key.
    fn describe(&self, space: u8, key: &[u8]) -> String;
}

/// One owner for each record, by its space.
pub struct OwnerBySpace<'a> {
    /// Owns what nobody else does.
    pub rest: &'a dyn Owner,
    /// The others, with their spaces.
    pub others: &'a [(RangeInclusive<u8>, &'a dyn Owner)],
}

impl std::fmt::Debug for OwnerBySpace<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OwnerBySpace").finish_non_exhaustive()
    }
}

impl OwnerBySpace<'_> {
    /// Place of a space's owner among `others`; one past them for `rest`.
    fn place(&self, space: u8) -> usize {
        self.others.iter().position(|(spaces, _)| spaces.contains(&space)).unwrap_or(self.others.len())
    }

    fn of(&self, space: u8) -> &dyn Owner {
        self.others.get(self.place(space)).map_or(self.rest, |(_, owner)| *owner)
    }
}

impl Owner for OwnerBySpace<'_> {
    fn begin_move(&self, name: Named, slot: SlotId, hold: &mut dyn FnMut()) -> bool {
        self.of(name.space).begin_move(name, slot, hold)
    }

    fn end_move(&self, name: Named, old: SlotId, new: SlotId) -> bool {
        self.of(name.space).end_move(name, old, new)
    }

    fn abort_move(&self, name: Named) {
        self.of(name.space).abort_move(name);
    }

    fn forget(&self, gone: &mut [Gone]) {
        gone.sort_by_key(|gone| self.place(gone.name.space));
        for some in gone.chunk_by_mut(|a, b| self.place(a.name.space) == self.place(b.name.space)) {
            self.of(some[0].name.space).forget(some);
        }
    }
}
