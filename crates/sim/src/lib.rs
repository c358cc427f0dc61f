//! One seeded simulator: crash campaigns over the heap, the key-value engine, logs, files and PMNet.
//!
//! Read [`Campaign`] first. It runs a workload drawn from a seed on a [`landfall_media::sim::SimMedia`] and crashes it
//! at points drawn from the same seed. It then recovers the region, and may crash recovery, too. The [`Oracle`] judges
//! what a client would read, and the campaign continues with the recovered region. [`World`] executes single [`Op`]s,
//! for traces written by hand.
//!
//! [`files`] crashes trees of files, [`pmnet`] a network of devices and servers.
//!
//! # The fault model
//!
//! - Media: as in [`landfall_media::sim`]. Unfenced lines may be lost, kept or torn at 8-byte words, each
//!   independently. A store or a fence may fail. A flush or fence may be left out (the canary).
//! - A batch may be in flight, and a part of the region out of memory, whatever else happens.
//! - Crashes happen between operations, in the middle of operations, and in the middle of recovery.
//! - Other workers change keys while the compactor moves a record, between reading the record and replacing it.
//! - Time advances or stands still.
//!
//! # What is judged
//!
//! The oracle shares no code with the engine: it is a map, and a list of the unacknowledged operations of each writer.
//! After a crash, a client must find all acknowledged operations and a prefix of each writer's unacknowledged
//! operations. An operation counts only together with the operations of other writers whose effect it read. A group
//! counts whole. No older version of an acknowledged key is found, and no value that was never written. Frames, live
//! bytes, live slots and stale copies are counted again from the records and compared with the counts of the heap.

#![forbid(unsafe_code)]

mod campaign;
pub mod files;
mod interference;
mod joined;
mod observe;
mod op;
mod oracle;
pub mod pmnet;
mod recount;
mod rng;
mod transactions;
mod violation;
mod wal;
mod world;

pub use campaign::{Campaign, Plan, Summary};
pub use joined::{JoinedCampaign, JoinedSummary, Leaves};
pub use observe::{observe, recover};
pub use op::{Op, Piece, Write, key, value};
pub use oracle::{Change, Key, Oracle, State, Value};
pub use recount::recount;
pub use rng::Rng;
pub use transactions::{TransactionCampaign, TransactionSummary};
pub use violation::Violation;
pub use wal::{LogEntry, LogOp, LogState, LogsState, WalCampaign, WalOracle, WalSummary, WalWorld};
pub use world::{Setup, World};
