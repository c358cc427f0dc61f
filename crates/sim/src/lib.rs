//! One seeded simulator: crash campaigns over the heap, the key-value engine, logs and PMNet.
//!
//! Read [`Campaign`] first. It runs a workload drawn from a seed on a [`landfall_media::sim::SimMedia`], crashes it at
//! points drawn from the same seed, recovers (and crashes recovery), lets the [`Oracle`] judge what a client would
//! read, and continues with the recovered region. [`World`] executes single [`Op`]s, for traces written by hand.
//!
//! # The fault model
//!
//! - Media: as in [`landfall_media::sim`]. Unfenced lines may be lost, kept or torn at 8-byte words, each
//!   independently; a fence may fail; a site may lie (the canary).
//! - Crashes happen between operations, in the middle of operations, and in the middle of recovery.
//! - Other workers act while the compactor moves a record, between its reading of the record and the switch.
//! - Time advances, or stands still.
//!
//! # What is judged
//!
//! The oracle shares no code with the engine: it is a map, and a list of the unacknowledged operations of each writer.
//! After a crash a client must find everything acknowledged and, of each writer's unacknowledged operations, a prefix;
//! and no operation without those operations of other writers whose effect it saw. A group counts whole. Nothing older
//! than what was acknowledged is found, and nothing that was never written. Frames, live bytes, live slots and stale
//! copies are counted again from the records and compared with the heap's own counts.

#![forbid(unsafe_code)]

mod campaign;
mod meddler;
mod observe;
mod op;
mod oracle;
pub mod pmnet;
mod recount;
mod rng;
mod violation;
mod wal;
mod world;

pub use campaign::{Campaign, Plan, Summary};
pub use observe::{observe, recover};
pub use op::{Op, Piece, Write, key, value};
pub use oracle::{Change, Key, Oracle, State, Value};
pub use recount::recount;
pub use rng::Rng;
pub use violation::Violation;
pub use wal::{LogOp, LogState, LogsState, WalCampaign, WalOracle, WalSummary, WalWorld};
pub use world::{Setup, World};
