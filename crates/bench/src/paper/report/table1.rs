//! Table 1: differences, of round trips and of stages.

use super::Results;
use crate::common::measure::stats::Summary;
use crate::paper::args::StageStore;
use crate::paper::compare::{Work, find};
use crate::paper::contestant::{Over, Store, Who};
use crate::paper::sections::{MTU, http, unflushed, with};
use crate::paper::wrk::Ask;

/// Mean round trip of a 1 KiB write, one connection, µs, as wrk sees it: what the paper reports.
pub(super) fn wrk_round_trip(results: &Results, who: Who) -> Option<&Summary> {
    find(&results.table1, who, http(Ask::Post, 1), MTU)?.mean_us.as_ref()
}

/// The round trip of a client that never waits, without the slowest twentieth. Differences are computed from it.
pub(super) fn round_trip(results: &Results, who: Who) -> Option<&Summary> {
    find(&results.table1, who, Work::Trip { resp: false }, MTU)?.mean_us.as_ref()
}

/// What a store adds to the round trip of the server that discards, its flushes left out, µs.
pub(super) fn data_management(results: &Results, store: Store, over: Over) -> Option<Summary> {
    let stored = round_trip(results, unflushed(store, over))?;
    stored.less(round_trip(results, with(Store::Discard, over))?)
}

/// A difference of ours over another's, of the medians: a round whose difference is next to nothing would make a ratio of
/// any size. Below zero if either is: two differences that are noise are no ratio above it.
pub(super) fn share(ours: &Summary, theirs: &Summary) -> Option<Summary> {
    let ratio = (ours.median / theirs.median).abs();
    let is_noise = ours.median.min(theirs.median) < 0.0;
    Summary::of([if is_noise { -ratio } else { ratio }])
}

/// What flushing adds, µs.
pub(super) fn persistence(results: &Results, store: Store, over: Over) -> Option<Summary> {
    round_trip(results, with(store, over))?.less(round_trip(results, unflushed(store, over))?)
}

/// The stage that holds everything a store does for one durable write, parsing aside.
fn whole_stage(store: StageStore) -> &'static str {
    match store {
        StageStore::Heap => "insert, checksum, commit each",
        StageStore::Copy => "copy, commit each",
        StageStore::LevelDb => "prepare, write, copy, commit each",
    }
}

/// Data management by stages: everything except parsing and flushing, µs.
pub(super) fn stage_data_management(results: &Results, store: StageStore) -> Option<Summary> {
    results.stage(store, false, whole_stage(store)).and_then(in_us)
}

/// Parsing of HTTP, µs: equal for every store.
pub(super) fn parsing(results: &Results, store: StageStore) -> Option<Summary> {
    results.stage(store, false, "parse").and_then(in_us)
}

/// Flushing by stages, µs.
pub(super) fn stage_persistence(results: &Results, store: StageStore) -> Option<Summary> {
    let with = results.stage(store, true, whole_stage(store))?;
    with.less(results.stage(store, false, whole_stage(store))?).as_ref().and_then(in_us)
}

/// The rows of the paper's table for a store, by stages, µs. What a store does not do is `None`.
#[derive(Clone, Debug, Default)]
pub(super) struct Breakdown {
    pub(super) preparation: Option<Summary>,
    pub(super) checksum: Option<Summary>,
    pub(super) copy: Option<Summary>,
    pub(super) insertion: Option<Summary>,
    pub(super) commit: Option<Summary>,
}

/// The breakdown of a store.
pub(super) fn breakdown(results: &Results, store: StageStore) -> Breakdown {
    let stage = |name| results.stage(store, false, name);
    let less =
        |with: Option<&Summary>, without: Option<&Summary>| with?.less(without?).as_ref().and_then(in_us);
    let copied = || results.stage(StageStore::Copy, false, "copy");
    let copy_alone = copied().and_then(in_us);
    match store {
        StageStore::Heap => Breakdown {
            checksum: less(stage("insert, checksum"), stage("insert")),
            insertion: stage("insert").and_then(in_us),
            commit: less(stage(whole_stage(store)), stage("insert, checksum")),
            ..Breakdown::default()
        },
        StageStore::Copy => Breakdown { copy: copy_alone, ..Breakdown::default() },
        StageStore::LevelDb => Breakdown {
            preparation: stage("prepare").and_then(in_us),
            checksum: less(stage("prepare, write"), stage("prepare, write of nothing")),
            copy: copy_alone,
            insertion: less(stage("prepare, write of nothing"), stage("prepare")),
            commit: None,
        },
    }
}

fn in_us(ns: &Summary) -> Option<Summary> {
    Summary::of(ns.samples.iter().map(|ns| ns / 1000.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paper::report::tests::sample;

    fn near(summary: Option<Summary>, expected: f64) {
        let median = summary.unwrap().median;
        // The sample's rounds differ by a tenth.
        assert!((median - expected * 1.05).abs() < 0.01 * expected.abs().max(1.0), "{median} for {expected}");
    }

    #[test]
    fn differences_of_round_trips_are_the_papers() {
        let results = sample();
        near(data_management(&results, Store::LevelDb, Over::Sockets), 6.7);
        near(persistence(&results, Store::Heap, Over::XdpSpin), 0.3);
    }

    #[test]
    fn a_share_of_noise_is_below_zero() {
        let of = |median| Summary::of([median]).unwrap();
        for (ours, theirs, expected) in
            [(1.0, 4.0, 0.25), (-1.0, 4.0, -0.25), (1.0, -4.0, -0.25), (-1.0, -4.0, -0.25)]
        {
            assert_eq!(share(&of(ours), &of(theirs)), Some(of(expected)), "{ours} {theirs}");
        }
        assert_eq!(share(&of(1.0), &of(0.0)), None);
    }

    #[test]
    fn stages_add_up_to_what_a_store_does() {
        let results = sample();
        let heap = breakdown(&results, StageStore::Heap);
        near(stage_data_management(&results, StageStore::Heap), 0.32);
        let sum = [&heap.checksum, &heap.insertion, &heap.commit].map(|part| part.as_ref().unwrap().median);
        near(Summary::of([sum.iter().sum::<f64>()]), 0.32);
        near(breakdown(&results, StageStore::LevelDb).insertion, 0.84);
        near(stage_persistence(&results, StageStore::LevelDb), 0.2);
    }
}
