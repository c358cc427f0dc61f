//! The choice of servers.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// A server to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PeerChoice {
    /// This executable
    Landfall,
    /// Landfall without storing anything: the cost of parsing, replying and the kernel; only for SETs
    Discard,
    /// redis-server, appendonly yes, appendfsync always
    RedisAlways,
    /// redis-server, appendonly yes, appendfsync everysec
    RedisEverysec,
    /// redis-server, appendonly yes, appendfsync no
    RedisNo,
    /// redis-server without AOF
    RedisNone,
}
