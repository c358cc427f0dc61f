//! A target, and the words for it that several figures share.

use crate::common::measure::stats::Summary;
use crate::common::targets::{Bound, Target};
use crate::pmnet::app::{App, On};
use crate::pmnet::args::AppChoice;
use crate::pmnet::choices::measured;
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

/// Returns the mean over those of `apps` that are among the run's `choices`, round by round, and their number. `None` if
/// one of them is missing: a mean over the rest is another quantity.
pub(super) fn over_apps(
    choices: &[AppChoice],
    apps: &[App],
    one: impl Fn(App) -> Option<Summary>,
) -> Option<(Summary, usize)> {
    let wanted = measured(choices);
    let found = apps.iter().filter(|app| wanted.contains(app)).map(|app| one(*app));
    let found: Vec<Summary> = found.collect::<Option<_>>()?;
    Some((mean_of_rounds(&found)?, found.len()))
}

/// Returns the mean of several quantities, round by round. `None` if they have different numbers of rounds.
fn mean_of_rounds(found: &[Summary]) -> Option<Summary> {
    let rounds = found.first()?.samples.len();
    if found.iter().any(|summary| summary.samples.len() != rounds) {
        return None;
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    const CHOICES: [AppChoice; 2] = [AppChoice::Redis, AppChoice::Landfall];
    const APPS: [App; 3] = [App::Redis(On::File), App::Landfall, App::Twitter(On::File)];

    fn mean(landfall: Option<Summary>) -> Option<(Summary, usize)> {
        over_apps(&CHOICES, &APPS, |it| {
            if it == App::Landfall { landfall.clone() } else { Summary::of([1.0, 5.0]) }
        })
    }

    #[test]
    fn a_mean_is_taken_round_by_round_over_the_applications_that_were_chosen() {
        let (mean, count) = mean(Summary::of([3.0, 1.0])).unwrap();
        assert_eq!((mean.samples, count), (vec![2.0, 3.0], 2));
        assert_eq!(over_apps(&[], &APPS, |_| Summary::of([1.0])), None);
    }

    #[test]
    fn an_application_that_is_missing_or_has_other_rounds_leaves_no_mean() {
        assert_eq!(mean(None), None);
        assert_eq!(mean(Summary::of([3.0])), None, "fewer rounds");
        assert_eq!(mean(Summary::of([3.0, 1.0, 1.0])), None, "the others have fewer");
    }
}
