//! The targets, and whether they are met.

use super::{Results, paging};
use crate::common::clients::Operation;
use crate::common::measure::stats::Summary;
use crate::common::peers::names;
use crate::common::targets::{Bound, Target};
use crate::keys::args::{MediaChoice, WorkloadChoice};
use crate::keys::workloads::amplification::{Counted, Draw, SHARES};
use crate::keys::workloads::instructions::PIPELINE;
use crate::keys::workloads::throughput::{FASTEST, Row};
use crate::keys::workloads::{memory, mixed, space};

/// The quantity by which loads are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Quantity {
    /// Requests a second.
    Rate,
    /// CPU time of all threads of the server, a request.
    Cpu,
}

impl Quantity {
    pub(crate) const fn of(self, row: &Row) -> &Summary {
        match self {
            Self::Rate => &row.rps,
            Self::Cpu => &row.cpu_us,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Rate => "requests a second",
            Self::Cpu => "server CPU a request",
        }
    }

    /// More requests are better, more CPU is not.
    const fn bound(self) -> Bound {
        match self {
            Self::Rate => Bound::AtLeast,
            Self::Cpu => Bound::AtMost,
        }
    }
}

/// A target for SETs of 1 KiB with random keys: clients and pipeline, the peer, the ratio to it.
type SetAim = (MediaChoice, (usize, usize), &'static str, Quantity, f64);

const SETS: [SetAim; 12] = [
    (MediaChoice::Pm, (50, 16), names::REDIS_ALWAYS, Quantity::Rate, 3.0),
    (MediaChoice::Pm, (50, 16), names::REDIS_ALWAYS, Quantity::Cpu, 0.3),
    (MediaChoice::Pm, (50, 16), names::DISCARD, Quantity::Cpu, 1.8),
    (MediaChoice::Pm, (50, 1), names::REDIS_ALWAYS, Quantity::Rate, 1.2),
    (MediaChoice::Pm, (50, 1), names::REDIS_ALWAYS, Quantity::Cpu, 0.75),
    (MediaChoice::File, (1, 1), names::REDIS_ALWAYS, Quantity::Rate, 1.4),
    (MediaChoice::File, (1, 1), names::REDIS_ALWAYS, Quantity::Cpu, 0.8),
    (MediaChoice::File, (50, 1), names::REDIS_ALWAYS, Quantity::Rate, 1.5),
    (MediaChoice::File, (50, 1), names::REDIS_ALWAYS, Quantity::Cpu, 0.8),
    (MediaChoice::File, (50, 1), names::REDIS_NO, Quantity::Rate, 1.0),
    (MediaChoice::File, (50, 16), names::REDIS_ALWAYS, Quantity::Rate, 3.5),
    (MediaChoice::File, (50, 16), names::REDIS_ALWAYS, Quantity::Cpu, 0.35),
];
/// GET with random keys, 50 clients with pipeline 16: requests a second over redis.
const GET_RATE: f64 = 1.2;
/// A GET client beside SETs on a file over redis `always`: pipeline of the load, bounds of p50 and p99.
const MIXED: [(usize, f64, f64); 2] = [(1, 0.08, 0.2), (16, 0.08, 0.15)];
/// Bytes written for each received: live share, keys, most.
const AMPLIFICATION: [(f64, Draw, f64); 4] = [
    (SHARES[0], Draw::Uniform, 1.2),
    (SHARES[1], Draw::Uniform, 1.8),
    (SHARES[2], Draw::Uniform, 3.0),
    (SHARES[2], Draw::Zipf, 2.0),
];
/// Resident memory with many keys over redis's.
const MEMORY: f64 = 1.0;
/// What an empty region may gain over its restarts, MiB: noise.
const EMPTY_GAIN_MIB: f64 = 8.0;
/// Instructions of a SET, user space of the worker.
const INSTRUCTIONS: f64 = 3000.0;
/// DRAM a key beyond the key's own bytes. Bytes on the medium have no target:
/// a store may use its capacity, and moves nothing while there is room.
const DRAM_BYTES: f64 = 100.0;
/// The value size that the throughput targets are about.
const VALUE_BYTES: usize = 1024;

/// Returns every target of the requested measurements, with the measured value.
pub(crate) fn judge(results: &Results) -> Vec<Target> {
    let mut targets = Vec::new();
    for workload in &results.settings.only {
        match workload {
            WorkloadChoice::Set => sets(results, &mut targets),
            WorkloadChoice::Get => gets(results, &mut targets),
            WorkloadChoice::Mixed => mixed(results, &mut targets),
            WorkloadChoice::Amplification => amplification(results, &mut targets),
            WorkloadChoice::Memory => memory(results, &mut targets),
            WorkloadChoice::Instructions => instructions(results, &mut targets),
            WorkloadChoice::Restart => restart(results, &mut targets),
            WorkloadChoice::Space => space(results, &mut targets),
            WorkloadChoice::Range => range(results, &mut targets),
            WorkloadChoice::Paging => paging::judge(results, &mut targets),
        }
    }
    targets
}

fn sets(results: &Results, targets: &mut Vec<Target>) {
    let asked_for = SETS.into_iter().filter(|aim| results.settings.media.contains(&aim.0));
    for (media, load, peer, quantity, wanted) in asked_for {
        let measured = load_ratio(results, (media, Operation::Set, load), peer, quantity);
        let (clients, pipeline) = load;
        let what = format!("{}: SET, {clients} × {pipeline}: {} over {peer}", media.name(), quantity.name());
        targets.push(Target { what, bound: quantity.bound(), wanted, unit: "×", measured });
    }
}

/// Returns the target for a load, if there is one: bound and ratio.
pub(crate) fn set_aim(results: &Results, row: &Row, peer: &str, quantity: Quantity) -> Option<(Bound, f64)> {
    let is_meant = row.operation == Operation::Set && is_meant(results, row);
    let load = (row.shape.clients, row.shape.pipeline);
    let mut aims = SETS.iter().filter(|_| is_meant);
    let aim = aims.find(|aim| (aim.0, aim.1, aim.2, aim.3) == (row.media, load, peer, quantity))?;
    Some((quantity.bound(), aim.4))
}

/// Returns whether the targets apply to a row's values and keys.
fn is_meant(results: &Results, row: &Row) -> bool {
    (row.shape.value_bytes, row.shape.random_keys) == (VALUE_BYTES, results.settings.keys())
}

fn gets(results: &Results, targets: &mut Vec<Target>) {
    for media in results.settings.media.iter().copied() {
        let (clients, pipeline) = FASTEST;
        let peer = names::REDIS_ALWAYS;
        let measured = load_ratio(results, (media, Operation::Get, FASTEST), peer, Quantity::Rate);
        let what = format!("{}: GET, {clients} × {pipeline}: requests a second over {peer}", media.name());
        targets.push(Target { what, bound: Bound::AtLeast, wanted: GET_RATE, unit: "×", measured });
    }
}

/// Returns landfall over `peer` for one load.
fn load_ratio(
    results: &Results,
    (media, operation, load): (MediaChoice, Operation, (usize, usize)),
    peer: &str,
    quantity: Quantity,
) -> Option<Summary> {
    let row = |peer: &str| {
        let mut rows = results.throughput.iter().filter(|row| is_meant(results, row));
        rows.find(|row| {
            let shape = (row.shape.clients, row.shape.pipeline);
            (row.media, row.operation, &*row.peer, shape) == (media, operation, peer, load)
        })
    };
    quantity.of(row(names::LANDFALL)?).over(quantity.of(row(peer)?))
}

fn mixed(results: &Results, targets: &mut Vec<Target>) {
    let is_asked_for = results.settings.media.contains(&MediaChoice::File);
    for (pipeline, p50, p99) in MIXED.into_iter().filter(|_| is_asked_for) {
        let row = |peer: &str| {
            let mut rows = results.mixed.iter().filter(|row| row.media == MediaChoice::File);
            rows.find(|row| row.load.pipeline == pipeline && row.peer == peer)
        };
        let pair = row(names::LANDFALL).zip(row(names::REDIS_ALWAYS));
        let mut target = |name, wanted, of: fn(&mixed::Row) -> &Summary| {
            let measured = pair.and_then(|(ours, theirs)| of(ours).over(of(theirs)));
            let peer = names::REDIS_ALWAYS;
            let what = format!("file: {name} of a lone GET client beside SETs, 50 × {pipeline}, over {peer}");
            targets.push(Target { what, bound: Bound::AtMost, wanted, unit: "×", measured });
        };
        target("p50", p50, |row| &row.p50_us);
        target("p99", p99, |row| &row.p99_us);
    }
}

fn amplification(results: &Results, targets: &mut Vec<Target>) {
    for media in results.settings.media.iter().copied() {
        for (share, draw, wanted) in AMPLIFICATION {
            let mut rows = results.amplification.iter().filter(|row| row.media == media);
            let row = rows.find(|row| (row.live_share, row.draw) == (share, draw));
            let mut target = |how, of: fn(&Counted) -> Option<f64>| {
                let measured = row.and_then(|row| Summary::of([of(&row.counted)?]));
                let what =
                    format!("{}: {how}, {:.0} % live, {} keys", media.name(), share * 100.0, draw.name());
                targets.push(Target { what, bound: Bound::AtMost, wanted, unit: "×", measured });
            };
            target("bytes written for each received", |counted| Some(counted.amplification()));
            if media == MediaChoice::File {
                target("the same as the kernel counts", Counted::storage_amplification);
            }
        }
    }
}

fn memory(results: &Results, targets: &mut Vec<Target>) {
    for media in results.settings.media.iter().copied() {
        let row = |peer| results.memory.iter().find(|row| (row.media, &*row.peer) == (media, peer));
        let pair = row(names::LANDFALL).zip(row(names::REDIS_ALWAYS));
        let mut target = |when, of: fn(&memory::Row) -> u64| {
            let measured = pair.and_then(|(ours, redis)| Summary::of([of(ours) as f64 / of(redis) as f64]));
            let (name, bytes, peer) = (media.name(), memory::VALUE_BYTES, names::REDIS_ALWAYS);
            let what = format!("{name}: memory with keys of {bytes} B {when} over {peer}");
            targets.push(Target { what, bound: Bound::AtMost, wanted: MEMORY, unit: "×", measured });
        };
        target("after loading", |row| row.loaded.rss);
        target("after a restart", |row| row.restarted.rss);
        let empty = results.empty.iter().find(|empty| empty.media == media);
        let measured = empty.and_then(|empty| Summary::of([empty.gained_bytes()? / f64::from(1 << 20)]));
        let what = format!("{}: memory that an empty region gains over three restarts", media.name());
        targets.push(Target { what, bound: Bound::AtMost, wanted: EMPTY_GAIN_MIB, unit: "MiB", measured });
    }
}

fn instructions(results: &Results, targets: &mut Vec<Target>) {
    let whole = results.instructions.iter().find(|row| row.is_whole);
    let measured = whole.and_then(|row| Summary::of([row.so_far]));
    let what = format!("instructions of a SET in a pipeline of {PIPELINE}, without its flush");
    targets.push(Target { what, bound: Bound::AtMost, wanted: INSTRUCTIONS, unit: "", measured });
}

fn restart(results: &Results, targets: &mut Vec<Target>) {
    for media in results.settings.media.iter().copied() {
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
    let is_ours = |row: &&space::Row| row.media == MediaChoice::Pm && row.peer == names::LANDFALL;
    for row in results.space.iter().filter(is_ours) {
        let measured = Summary::of([row.anon_per_key_beyond_key]);
        let what = format!("pm: DRAM a key beyond the key, values of {} B", row.value_bytes);
        targets.push(Target { what, bound: Bound::AtMost, wanted: DRAM_BYTES, unit: "B", measured });
    }
}

fn range(results: &Results, targets: &mut Vec<Target>) {
    for media in results.settings.media.iter().copied() {
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
    use super::{Bound, MediaChoice, Target, WorkloadChoice, judge};
    use crate::keys::report::tests::{of, sample_results};
    use crate::keys::workloads::throughput::set_loads;

    fn find<'t>(targets: &'t [Target], what: &str) -> &'t Target {
        targets.iter().find(|target| target.what == what).unwrap()
    }

    #[test]
    fn measured_ratios_are_judged() {
        let targets = judge(&sample_results());
        // 115 over 100, with a target of 1.2.
        let always = find(&targets, "pm: SET, 50 × 1: requests a second over redis always");
        assert_eq!(always.met(), Some(false));
        let cpu = find(&targets, "pm: SET, 50 × 1: server CPU a request over redis always");
        assert_eq!((cpu.measured.as_ref().unwrap().median, cpu.met()), (0.5, Some(true)));
    }

    #[test]
    fn what_was_not_measured_is_not_passed() {
        let targets = judge(&sample_results());
        assert_eq!(find(&targets, "pm: SET, 50 × 16: requests a second over redis always").met(), None);
        assert_eq!(find(&targets, "file: SET, 50 × 1: requests a second over redis always").met(), None);
    }

    #[test]
    fn only_what_was_asked_for_is_judged() {
        let mut results = sample_results();
        results.settings.only = vec![WorkloadChoice::Set, WorkloadChoice::Range];
        results.settings.media = vec![MediaChoice::File];
        let targets = judge(&results);
        let is_asked_for =
            |what: &str| what.starts_with("file: ") && (what.contains("range scan") || what.contains("SET"));
        assert!(targets.iter().all(|target| is_asked_for(&target.what)), "{targets:?}");
        assert!(targets.iter().any(|target| target.what.contains("SET")));
    }

    #[test]
    fn every_aim_is_about_a_load_that_is_measured() {
        for (media, load, ..) in super::SETS {
            assert!(set_loads(media).contains(&load), "{} {load:?}", media.name());
        }
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
    fn other_numbers_of_keys_do_not_stand_in() {
        let mut results = sample_results();
        results.throughput.iter_mut().for_each(|row| row.shape.random_keys = 10);
        assert!(judge(&results).iter().all(|target| target.measured.is_none()));
    }
}
