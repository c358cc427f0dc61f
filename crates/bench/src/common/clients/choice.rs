//! The choice of a load generator.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// The load generator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClientChoice {
    /// redis-benchmark where it is installed, else the built-in one
    Auto,
    /// redis-benchmark
    RedisBenchmark,
    /// The built-in one; adds p99.9
    Builtin,
}
