//! A target, and the words for it that several figures share.

use crate::common::measure::stats::Summary;
use crate::common::targets::{Bound, Target};
use crate::pmnet::app::{App, On};
use crate::pmnet::design::Waits;
use landfall_bench_handlers::Structure;
use serde::Serialize;

/// A target, and what the paper found.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Goal {
    pub(super) figure: &'static str,
    pub(super) target: Target,
    /// What the paper found, as a number where it gives one.
    pub(super) paper: String,
}

pub(super) fn goal(
    figure: &'static str,
    what: &str,
    paper: String,
    (bound, wanted, unit): (Bound, f64, &'static str),
    measured: Option<Summary>,
) -> Goal {
    Goal { figure, paper, target: Target { what: what.to_owned(), bound, wanted, unit, measured } }
}

/// The mean of several quantities, round by round.
pub(super) fn mean_of_rounds(found: &[Summary]) -> Option<Summary> {
    let rounds = found.iter().map(|summary| summary.samples.len()).min()?;
    let mean =
        |round: usize| found.iter().map(|summary| summary.samples[round]).sum::<f64>() / found.len() as f64;
    Summary::of((0..rounds).map(mean))
}

/// The key-value workloads of the paper: five structures, here on either medium, and Redis.
pub(super) fn key_value(medium: Medium) -> Vec<App> {
    Structure::ALL.map(medium.structures).into_iter().chain([App::Redis(medium.redis)]).collect()
}

/// The medium of applications' data.
#[derive(Clone, Copy)]
pub(super) struct Medium {
    pub(super) words: &'static str,
    structures: fn(Structure) -> App,
    redis: On,
}

/// The media as in the paper, where all applications are on persistent memory.
pub(super) const IN_MEMORY: Medium =
    Medium { words: "structures in memory, Redis on tmpfs", structures: App::Map, redis: On::Memory };
/// All combinations of media.
pub(super) const MEDIA: [Medium; 3] = [
    IN_MEMORY,
    Medium { words: "structures in memory, Redis on a file", structures: App::Map, redis: On::File },
    Medium { words: "everything on a file", structures: App::Filed, redis: On::File },
];

/// Describes how processes wait.
pub(super) fn how(waits: Waits) -> &'static str {
    match waits {
        Waits::Spin => "both ends spinning",
        Waits::Polls => "the device polls, hosts wait in the kernel",
        Waits::Block => "everybody waits in the kernel",
    }
}
