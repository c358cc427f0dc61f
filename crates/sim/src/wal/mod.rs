//! Crash campaigns over logs, beside a key-value engine in the same region.
//!
//! Read [`WalCampaign`] first. Media and crashes are as in the campaigns over the engine. What is judged: after
//! a crash each log must be what some prefix of each writer's unacknowledged operations leaves, dense from its
//! first offset on; whatever a client could have been told is there or trimmed; trimmed entries, deleted logs
//! and offsets never come back; at the end nothing leaks.

mod campaign;
mod op;
mod oracle;
mod world;

pub use campaign::{WalCampaign, WalSummary};
pub use op::LogOp;
pub use oracle::{LogState, LogsState, WalOracle};
pub use world::WalWorld;
