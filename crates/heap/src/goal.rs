//! When the compactor works, and what it may empty.

use crate::run::RunUse;

/// When the compactor is idle, and which runs it may empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompactGoal {
    /// The compactor is idle while this many runs are free: [`crate::Heap::clean_below`].
    pub free_runs: u32,
    /// Whether live bytes may be moved out of data runs.
    pub data: bool,
    /// Whether current records may be moved out of slabs.
    pub slabs: bool,
    /// A run is emptied if at least one part in so many of it is gained.
    pub gain_parts: u64,
}

/// Least gain for which a run is emptied, one part in this many of a run. A delete needs a slot, and the reserve for
/// deletes lasts until the average slab has twice as large a share of dead slots.
pub(crate) const GAIN_PARTS: u64 = 64;

impl CompactGoal {
    /// Idle while this many runs are free.
    pub const fn free(free_runs: u32) -> Self {
        Self { free_runs, data: true, slabs: true, gain_parts: GAIN_PARTS }
    }

    /// Idle only when no run is worth emptying.
    pub const DENSE: Self = Self::free(u32::MAX);
    /// As [`Self::DENSE`], with data runs only.
    pub const DENSE_DATA: Self = Self { slabs: false, ..Self::DENSE };
    /// As [`Self::DENSE`], with slabs only.
    pub const DENSE_SLABS: Self = Self { data: false, ..Self::DENSE };
    /// Idle only when no slab is half dead.
    pub const HALF_DEAD_SLABS: Self = Self { gain_parts: 2, ..Self::DENSE_SLABS };

    /// Whether runs of this use may be emptied.
    pub(crate) const fn empties(self, used_for: RunUse) -> bool {
        match used_for {
            RunUse::Data => self.data,
            RunUse::Slab => self.slabs,
            _ => false,
        }
    }
}
