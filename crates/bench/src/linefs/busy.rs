//! Appends with fsync on an idle and on a busy machine, as the chain replicates and as Assise does: after LineFS, Table 3.

use crate::common::error::BenchError;
use crate::common::measure::stats::Summary;
use crate::common::peers::Programs;
use crate::files::{FsArgs, LoadChoice, Sample, prepare, run_here};
use crate::linefs::args::{LinefsArgs, LinefsLoad};
use crate::linefs::corunner::{self, CoRunner, Priority};
use crate::linefs::place::{Kind, Place};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What is measured in turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Contestant {
    /// The co-runner without anything beside it.
    CoRunner,
    /// One server, a chain, or GlusterFS, and the co-runner beside it.
    Chain(Kind),
}

impl Contestant {
    pub(super) const ALL: [Self; 3] = [Self::CoRunner, Self::Chain(Kind::Chain), Self::Chain(Kind::Assise)];

    /// The name in reports.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::CoRunner => "co-runner alone",
            Self::Chain(kind) => kind.name(""),
        }
    }
}

/// Latencies of appends with fsync, and what they cost a co-runner.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct BusyRow {
    pub(super) place: String,
    /// Microseconds, on an idle machine.
    pub(super) idle: Option<Latency>,
    /// Beside the co-runner.
    pub(super) busy: Option<Latency>,
    /// Time of one round of the co-runner, ms.
    pub(super) round_ms: Summary,
}

/// Latencies of an operation, microseconds.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Latency {
    pub(super) mean: Summary,
    pub(super) p99: Summary,
}

/// What one turn has found.
pub(super) struct BusySample {
    idle: Option<Sample>,
    busy: Option<Sample>,
    round_ms: f64,
}

impl Latency {
    pub(super) fn of<'a>(samples: impl Iterator<Item = &'a Sample> + Clone) -> Option<Self> {
        let mean = Summary::of(samples.clone().filter_map(Sample::mean_us))?;
        Some(Self { mean, p99: Summary::of(samples.filter_map(Sample::p99_us))? })
    }
}

impl BusyRow {
    /// Of all rounds; `None` if there is none.
    pub(super) fn of(contestant: Contestant, samples: &[BusySample]) -> Option<Self> {
        Some(Self {
            place: contestant.name().into(),
            idle: Latency::of(samples.iter().filter_map(|sample| sample.idle.as_ref())),
            busy: Latency::of(samples.iter().filter_map(|sample| sample.busy.as_ref())),
            round_ms: Summary::of(samples.iter().map(|sample| sample.round_ms))?,
        })
    }

    /// By how much the p99 grows beside the co-runner, as a factor.
    pub(super) fn factor(&self) -> Option<Summary> {
        self.busy.as_ref()?.p99.over(&self.idle.as_ref()?.p99)
    }

    /// By how much the p99 grows beside the co-runner, microseconds.
    fn growth(&self) -> Option<Summary> {
        self.busy.as_ref()?.p99.less(&self.idle.as_ref()?.p99)
    }

    /// The growth of this p99 over that of another; `None` if that has not grown in each round.
    pub(super) fn growth_over(&self, other: &Self) -> Option<Summary> {
        let theirs = other.growth()?;
        if theirs.min > 0.0 { self.growth()?.over(&theirs) } else { None }
    }
}

/// One turn, at servers that have just been started.
pub(super) fn once(
    contestant: Contestant,
    programs: &Programs,
    args: &LinefsArgs,
) -> Result<BusySample, BenchError> {
    let threads = args.co_threads();
    let bytes = corunner::point_bytes(args.quick);
    let Contestant::Chain(kind) = contestant else {
        let time = Duration::from_secs_f64(args.seconds);
        let round_ms = corunner::alone(bytes, threads, time);
        return Ok(BusySample { idle: None, busy: None, round_ms });
    };
    let settings = args.of_loads();
    let place = Place::new(kind, programs, &settings, args.region_bytes(LinefsLoad::Busy))?;
    let idle = append_to(&place, &settings)?;
    let runner = CoRunner::start(bytes, threads, Priority::Same);
    let busy = append_to(&place, &settings)?;
    let round_ms = runner.end();
    Ok(BusySample { idle: Some(idle), busy: Some(busy), round_ms })
}

/// Appends 16 KiB, each with fsync, for a while.
pub(super) fn append_to(place: &Place, settings: &FsArgs) -> Result<Sample, BenchError> {
    prepare(LoadChoice::Append, place.files(), settings)?;
    let loaded = run_here(LoadChoice::Append, 1, place.files(), settings)?;
    Ok(Sample::of(&loaded.ran, loaded.cpu_ns))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn row(contestant: Contestant, p99: [f64; 2], round_ms: f64) -> BusyRow {
        let of = |us: f64| Summary::of([us, us * 1.1]).unwrap();
        let latency = |us: f64| Some(Latency { mean: of(us / 2.0), p99: of(us) });
        let [idle, busy] = match contestant {
            Contestant::CoRunner => [None, None],
            Contestant::Chain(_) => p99.map(latency),
        };
        BusyRow { place: contestant.name().into(), idle, busy, round_ms: of(round_ms) }
    }

    #[test]
    fn what_does_not_grow_is_no_measure_of_what_does() {
        let ours = row(Contestant::Chain(Kind::Chain), [100.0, 150.0], 1.0);
        let theirs = row(Contestant::Chain(Kind::Assise), [100.0, 300.0], 1.0);
        let near = |summary: Option<Summary>, value: f64| (summary.unwrap().median - value).abs() < 1e-9;
        assert!(near(ours.factor(), 1.5) && near(ours.growth_over(&theirs), 0.25));
        let quicker = row(Contestant::Chain(Kind::Assise), [100.0, 90.0], 1.0);
        assert_eq!(ours.growth_over(&quicker), None);
        assert_eq!(row(Contestant::CoRunner, [1.0, 1.0], 1.0).factor(), None);
    }
}
