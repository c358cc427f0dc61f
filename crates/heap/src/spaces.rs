//! Spaces of records by the system that owns them. A new system is registered here, in [`SYSTEMS`].

use crate::superblock::{FEATURE_LOGS, FEATURE_PMNET};
use std::ops::RangeInclusive;

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
/// Commit records of transactions. They belong to the heap itself.
pub const TRANSACTIONS: u8 = 253;
/// Records that say nothing, in slots that could not be read. They belong to no system.
pub const NOWHERE: u8 = 254;

/// A system that keeps records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct System {
    /// Its spaces.
    pub spaces: RangeInclusive<u8>,
    /// The feature of regions that may hold its records.
    pub feature: u32,
}

/// Every system but the key-value engine, which owns all other spaces.
pub const SYSTEMS: [System; 2] =
    [System { spaces: LOGS, feature: FEATURE_LOGS }, System { spaces: PMNET, feature: FEATURE_PMNET }];

/// True for the spaces of no system: their records are the heap's own, or say nothing.
pub fn is_none(space: u8) -> bool {
    matches!(space, TRANSACTIONS | NOWHERE)
}

/// True for the spaces of the key-value engine.
pub fn is_keys(space: u8) -> bool {
    !is_none(space) && SYSTEMS.iter().all(|system| !system.spaces.contains(&space))
}
