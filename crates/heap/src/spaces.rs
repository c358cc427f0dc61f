//! The spaces of each system. A new system is added to [`SYSTEMS`], and its feature to the table in `tenant.rs`.

use std::ops::RangeInclusive;

/// Entries of logs, and the bounds of logs.
pub const LOG: u8 = 16;
/// Positions of logs' consumers.
pub const LOG_POSITION: u8 = 17;
/// The spaces of logs.
pub const LOGS: RangeInclusive<u8> = LOG..=LOG_POSITION;
/// Updates that a PMNet device keeps.
pub const PMNET_LOG: u8 = 32;
/// The ports from which a PMNet relay forwards clients' packets.
pub const PMNET_PATH: u8 = 33;
/// The spaces of PMNet devices.
pub const PMNET: RangeInclusive<u8> = PMNET_LOG..=PMNET_PATH;
/// The header of the tree of files.
pub const FILES_HEADER: u8 = 48;
/// Inodes.
pub const FILES_INODE: u8 = 49;
/// Names in directories.
pub const FILES_NAMES: u8 = 50;
/// Data of files.
pub const FILES_DATA: u8 = 51;
/// Extended attributes of inodes.
pub const FILES_EXTENDED: u8 = 52;
/// Operations on files, and the bounds of their logs.
pub const FILES_LOG: u8 = 53;
/// The spaces of files.
pub const FILES: RangeInclusive<u8> = FILES_HEADER..=FILES_LOG;
/// Commit records of transactions, which the heap owns.
pub const TRANSACTIONS: u8 = 253;
/// Tombstones that repair has written over unreadable slots. No system owns them.
pub const NOWHERE: u8 = 254;

/// The mark of a flush of all keys.
pub const FLUSH: u8 = 255;

/// A system that keeps records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct System {
    /// What it keeps, for people.
    pub name: &'static str,
    /// Its spaces.
    pub spaces: RangeInclusive<u8>,
}

/// Every system but the key-value engine, which owns all other spaces.
pub const SYSTEMS: [System; 3] = [
    System { name: "logs", spaces: LOGS },
    System { name: "the updates of a PMNet device", spaces: PMNET },
    System { name: "files", spaces: FILES },
];

/// What the owner of a space keeps, for people.
pub fn name(space: u8) -> &'static str {
    SYSTEMS.iter().find(|system| system.spaces.contains(&space)).map_or("keys", |system| system.name)
}

/// True for the spaces that no system owns.
pub fn is_none(space: u8) -> bool {
    matches!(space, TRANSACTIONS | NOWHERE)
}

/// True for the spaces of the key-value engine.
pub fn is_keys(space: u8) -> bool {
    !is_none(space) && SYSTEMS.iter().all(|system| !system.spaces.contains(&space))
}
