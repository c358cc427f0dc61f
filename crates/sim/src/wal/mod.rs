//! Crash campaigns over logs, beside a key-value engine in the same region.
//!
//! Read [`WalCampaign`] first. Media and crashes are those of the campaigns over the engine. These rules are judged:
//!
//! - After a crash, the logs are in the state that some prefix of each writer's unacknowledged operations leaves.
//! - A log has no gap from its first offset on.
//! - An entry that may have been acknowledged to a client is found or was trimmed.
//! - Retention trims no entry that the settings of a log keep: by number, bytes and age.
//! - Trimmed entries and deleted logs never come back, and no offset is given twice.
//! - At the end, no space is leaked.

mod campaign;
mod op;
mod oracle;
mod world;

pub use campaign::{WalCampaign, WalSummary};
pub use op::LogOp;
pub use oracle::{LogEntry, LogState, LogsState, WalOracle};
pub use world::WalWorld;
