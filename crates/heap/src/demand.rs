//! Reserves, reclaimable space and the demand for it.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

/// Runs that only the compactor may take, including those that it fills: for moved data, for their records, and one for
/// emptying slabs.
pub const COMPACTOR_RESERVE_RUNS: u32 = 3;
/// Free runs beyond those that only landing may take, for each transport: requests must still arrive when the region is
/// full.
pub const LANDING_RESERVE_RUNS: u32 = 4;

/// Free and reclaimable space, and who waits for it.
#[derive(Debug)]
pub(crate) struct Space {
    pub(crate) landing_reserve: AtomicU32,
    /// Number of runs that the compactor fills.
    pub(crate) compactor_fills: AtomicU32,
    /// A compactor exists.
    pub(crate) is_cleaned: AtomicBool,
    /// Runs that compaction could free, as last found or estimated.
    pub(crate) reclaimable: AtomicU32,
    /// How often the compactor has searched all runs.
    pub(crate) searches: AtomicU64,
    /// Number of commits that released references, and its value when the compactor's last search began.
    pub(crate) releases: AtomicU64,
    pub(crate) releases_seen: AtomicU64,
    /// A writer or a transport waits for space.
    pub(crate) is_awaited: AtomicBool,
    /// Most runs beyond the reserves that one writer waits for.
    pub(crate) demand: AtomicU32,
}

impl Default for Space {
    fn default() -> Self {
        Self {
            landing_reserve: AtomicU32::new(LANDING_RESERVE_RUNS),
            compactor_fills: AtomicU32::new(0),
            is_cleaned: AtomicBool::new(false),
            reclaimable: AtomicU32::new(0),
            searches: AtomicU64::new(0),
            releases: AtomicU64::new(0),
            releases_seen: AtomicU64::new(0),
            is_awaited: AtomicBool::new(false),
            demand: AtomicU32::new(0),
        }
    }
}
