//! The targets, and whether they are met.

use super::Results;
use crate::args::MediaChoice;
use crate::clients::Operation;
use crate::measure::stats::Summary;
use crate::peers::names;
use crate::workloads::throughput::Row;
use serde::Serialize;

/// Which side of the bound is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum Bound {
    #[serde(rename = "at least")]
    AtLeast,
    #[serde(rename = "at most")]
    AtMost,
}

/// A target and what was measured.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Target {
    pub(crate) what: String,
    pub(crate) bound: Bound,
    pub(crate) wanted: f64,
    pub(crate) unit: &'static str,
    /// `None`: not measured in this run.
    pub(crate) measured: Option<Summary>,
}

impl Target {
    /// Whether the median meets it; `None` if not measured.
    pub(crate) fn met(&self) -> Option<bool> {
        let measured = self.measured.as_ref()?.median;
        Some(match self.bound {
            Bound::AtLeast => measured >= self.wanted,
            Bound::AtMost => measured <= self.wanted,
        })
    }
}

/// Throughput targets of SET at 1 KiB: medium, clients, pipeline; requests a second over redis `always`, over
/// redis without AOF; server CPU per request over redis `always`.
const SETS: [(MediaChoice, usize, usize, f64, f64, f64); 6] = [
    (MediaChoice::Pm, 1, 1, 1.1, 1.1, 0.75),
    (MediaChoice::Pm, 50, 1, 1.15, 1.05, 0.6),
    (MediaChoice::Pm, 50, 16, 5.0, 2.0, 0.2),
    (MediaChoice::File, 1, 1, 1.5, 0.45, 0.6),
    (MediaChoice::File, 50, 1, 1.5, 0.9, 0.6),
    (MediaChoice::File, 50, 16, 4.0, 1.5, 0.25),
];
/// GET at 1 KiB: clients, pipeline; requests a second and CPU over redis without AOF.
const GETS: [(usize, usize, f64, f64); 2] = [(50, 1, 0.95, 0.8), (50, 16, 1.5, 0.8)];
/// p99 of a GET client beside SETs on a file over redis `always`: pipeline of the load, bound.
const MIXED: [(usize, f64); 2] = [(1, 0.5), (16, 0.2)];
/// Pipelines at which 50 clients are served with and without storing.
const DISCARD_PIPELINES: [usize; 2] = [1, 16];
/// Space: value bytes, settled, while overwriting.
const SPACE: [(usize, f64, f64); 2] = [(1024, 1.25, 1.6), (100, 2.2, 3.0)];
/// The value size that the throughput targets are about.
const VALUE_BYTES: usize = 1024;

/// Every target with what was measured.
pub(crate) fn judge(results: &Results) -> Vec<Target> {
    let mut targets = Vec::new();
    sets(results, &mut targets);
    gets(results, &mut targets);
    mixed(results, &mut targets);
    discard(results, &mut targets);
    restart(results, &mut targets);
    space(results, &mut targets);
    range(results, &mut targets);
    targets
}

fn sets(results: &Results, targets: &mut Vec<Target>) {
    for (media, clients, pipeline, over_always, over_none, cpu) in SETS {
        let ratio =
            |peer, of| throughput_ratio(results, media, Operation::Set, (clients, pipeline), peer, of);
        let what = format!("{}: SET, {clients} × {pipeline}", media.name());
        for (peer, wanted) in [(names::REDIS_ALWAYS, over_always), (names::REDIS_NONE, over_none)] {
            let measured = ratio(peer, rps);
            let what = format!("{what}: requests a second over {peer}");
            targets.push(Target { what, bound: Bound::AtLeast, wanted, unit: "×", measured });
        }
        let what = format!("{what}: server CPU a request over {}", names::REDIS_ALWAYS);
        let measured = ratio(names::REDIS_ALWAYS, cpu_us);
        targets.push(Target { what, bound: Bound::AtMost, wanted: cpu, unit: "×", measured });
    }
}

fn gets(results: &Results, targets: &mut Vec<Target>) {
    for media in [MediaChoice::Pm, MediaChoice::File] {
        for (clients, pipeline, faster, cpu) in GETS {
            let ratio = |of| {
                throughput_ratio(results, media, Operation::Get, (clients, pipeline), names::REDIS_NONE, of)
            };
            let what = |of| {
                format!("{}: GET, {clients} × {pipeline}: {of} over {}", media.name(), names::REDIS_NONE)
            };
            let (rps_what, cpu_what) = (what("requests a second"), what("server CPU a request"));
            let target = |what, bound, wanted, measured| Target { what, bound, wanted, unit: "×", measured };
            targets.push(target(rps_what, Bound::AtLeast, faster, ratio(rps)));
            targets.push(target(cpu_what, Bound::AtMost, cpu, ratio(cpu_us)));
        }
    }
}

fn rps(row: &Row) -> &Summary {
    &row.rps
}

fn cpu_us(row: &Row) -> &Summary {
    &row.cpu_us
}

/// landfall over `peer` for one load.
fn throughput_ratio(
    results: &Results,
    media: MediaChoice,
    operation: Operation,
    (clients, pipeline): (usize, usize),
    peer: &str,
    of: fn(&Row) -> &Summary,
) -> Option<Summary> {
    let row = |peer: &str| {
        results.throughput.iter().find(|row| {
            let shape = (row.shape.clients, row.shape.pipeline, row.shape.value_bytes, row.shape.random_keys);
            (row.media, row.operation, &*row.peer) == (media, operation, peer)
                && shape == (clients, pipeline, VALUE_BYTES, 0)
        })
    };
    of(row(names::LANDFALL)?).over(of(row(peer)?))
}

fn mixed(results: &Results, targets: &mut Vec<Target>) {
    for (pipeline, wanted) in MIXED {
        let row = |peer: &str| {
            let mut rows = results.mixed.iter().filter(|row| row.media == MediaChoice::File);
            rows.find(|row| row.load.pipeline == pipeline && row.peer == peer)
        };
        let pair = row(names::LANDFALL).zip(row(names::REDIS_ALWAYS));
        let measured = pair.and_then(|(ours, theirs)| ours.p99_us.over(&theirs.p99_us));
        let what = format!("file: p99 of GET beside SETs, 50 × {pipeline}, over {}", names::REDIS_ALWAYS);
        targets.push(Target { what, bound: Bound::AtMost, wanted, unit: "×", measured });
    }
}

fn discard(results: &Results, targets: &mut Vec<Target>) {
    for media in [MediaChoice::Pm, MediaChoice::File] {
        for pipeline in DISCARD_PIPELINES {
            let row = |peer: &str| {
                let mut rows = results.discard.iter().filter(|row| row.media == media);
                rows.find(|row| row.shape.pipeline == pipeline && row.peer == peer)
            };
            let pair = row(names::LANDFALL).zip(row(names::DISCARD));
            let measured = pair.and_then(|(stored, discarded)| stored.rps.over(&discarded.rps));
            let what = format!(
                "{}: SET, 50 × {pipeline}: requests a second over the same server storing nothing",
                media.name()
            );
            targets.push(Target { what, bound: Bound::AtLeast, wanted: 0.9, unit: "×", measured });
        }
    }
}

fn restart(results: &Results, targets: &mut Vec<Target>) {
    for media in [MediaChoice::Pm, MediaChoice::File] {
        let most = results.restart.iter().map(|row| row.records).max().unwrap_or(0);
        let row = |peer: &str| {
            let mut rows = results.restart.iter().filter(|row| row.media == media && !row.cold);
            rows.find(|row| row.records == most && row.peer == peer)
        };
        let pair = row(names::LANDFALL).zip(row(names::REDIS_ALWAYS));
        let measured = pair.and_then(|(ours, theirs)| ours.seconds.over(&theirs.seconds));
        let what = format!(
            "{}: restart with {most} records over {} (the target is for 1000000)",
            media.name(),
            names::REDIS_ALWAYS
        );
        targets.push(Target { what, bound: Bound::AtMost, wanted: 0.2, unit: "×", measured });
    }
}

fn space(results: &Results, targets: &mut Vec<Target>) {
    for media in [MediaChoice::Pm, MediaChoice::File] {
        for (value_bytes, settled, overwriting) in SPACE {
            let mut rows =
                results.space.iter().filter(|row| row.media == media && row.peer == names::LANDFALL);
            let row = rows.find(|row| row.value_bytes == value_bytes);
            let what = |when| {
                format!(
                    "{}: bytes on the medium over keys and values of {value_bytes} B, {when}",
                    media.name()
                )
            };
            let target = |what, wanted, measured: Option<f64>| {
                let measured = measured.and_then(|value| Summary::of([value]));
                Target { what, bound: Bound::AtMost, wanted, unit: "×", measured }
            };
            targets.push(target(what("after ten overwrites"), settled, row.map(|row| row.settled)));
            targets.push(target(what("while overwriting"), overwriting, row.map(|row| row.overwriting_max)));
            if media == MediaChoice::Pm {
                let what = format!("pm: DRAM a key beyond the key, values of {value_bytes} B");
                let dram = target(what, 100.0, row.map(|row| row.anon_per_key_beyond_key));
                targets.push(Target { unit: "B", ..dram });
            }
        }
    }
}

fn range(results: &Results, targets: &mut Vec<Target>) {
    for media in [MediaChoice::Pm, MediaChoice::File] {
        for (value_bytes, keys_only, kind) in
            [(100, true, "keys only"), (100, false, "100 B"), (1024, false, "1 KiB")]
        {
            let mut rows = results.range.iter().filter(|row| row.media == media);
            let row = rows.find(|row| (row.value_bytes, row.keys_only) == (value_bytes, keys_only));
            let what = format!("{}: range scan of 1000 keys, {kind}, wall time a key", media.name());
            let measured = row.map(|row| row.wall_us_per_key.clone());
            targets.push(Target { what, bound: Bound::AtMost, wanted: 2.0, unit: "µs", measured });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Bound, Target, judge};
    use crate::report::tests::{of, sample_results};

    fn find<'t>(targets: &'t [Target], what: &str) -> &'t Target {
        targets.iter().find(|target| target.what == what).unwrap()
    }

    #[test]
    fn measured_ratios_are_judged() {
        let targets = judge(&sample_results());
        // 115 over 100: just met.
        let always = find(&targets, "pm: SET, 50 × 1: requests a second over redis always");
        assert_eq!(always.met(), Some(true));
        let cpu = find(&targets, "pm: SET, 50 × 1: server CPU a request over redis always");
        assert_eq!((cpu.measured.as_ref().unwrap().median, cpu.met()), (0.5, Some(true)));
    }

    #[test]
    fn what_was_not_measured_is_not_passed() {
        let targets = judge(&sample_results());
        assert_eq!(find(&targets, "pm: SET, 1 × 1: requests a second over redis always").met(), None);
        assert_eq!(find(&targets, "file: SET, 50 × 1: requests a second over redis always").met(), None);
    }

    #[test]
    fn bounds_have_a_direction() {
        let target = |bound, measured| Target {
            what: String::new(),
            bound,
            wanted: 1.0,
            unit: "×",
            measured: Some(of(&[measured])),
        };
        assert_eq!(target(Bound::AtLeast, 0.9).met(), Some(false));
        assert_eq!(target(Bound::AtMost, 0.9).met(), Some(true));
        assert_eq!(target(Bound::AtMost, 1.1).met(), Some(false));
    }

    #[test]
    fn other_value_sizes_and_random_keys_do_not_stand_in() {
        let mut results = sample_results();
        results.throughput.iter_mut().for_each(|row| row.shape.random_keys = 10);
        assert!(judge(&results).iter().all(|target| target.measured.is_none()));
    }
}
