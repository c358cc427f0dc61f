//! The targets, and whether they are met.

use super::Results;
use super::table1::{data_management, share, stage_data_management};
use crate::common::measure::stats::Summary;
use crate::common::targets::{Bound, Target};
use crate::paper::args::StageStore;
use crate::paper::bulk;
use crate::paper::compare::{Row, Work, find};
use crate::paper::contestant::{Over, Store, Who, landfall};
use crate::paper::sections::{FEW_AND_MANY, MTU, MTU_LARGE, OVERS, http, resp, with};
use crate::paper::wrk::Ask;

/// Our own stack, never waiting: what the targets are about.
const OURS: Who = landfall(Over::XdpSpin);
const SOCKETS: Who = landfall(Over::Sockets);
/// The write-ahead log that PASTE is compared with.
const COPYING: Who = Who::Wal { direct: false, spin: false };

/// Every target with what was measured.
pub(super) fn judge(results: &Results) -> Vec<Target> {
    let mut targets = Vec::new();
    redis(results, &mut targets);
    http_posts(results, &mut targets);
    management(results, &mut targets);
    lost(results, &mut targets);
    wal(results, &mut targets);
    copies(results, &mut targets);
    transfers(results, &mut targets);
    targets
}

fn target(
    what: String,
    bound: Bound,
    (wanted, unit): (f64, &'static str),
    measured: Option<Summary>,
) -> Target {
    Target { what, bound, wanted, unit, measured }
}

/// A quantity of ours divided by another's under an equal load.
fn ratio(
    rows: &[Row],
    (ours, other): (Who, Who),
    (work, mtu): (Work, u32),
    of: fn(&Row) -> &Summary,
) -> Option<Summary> {
    of(find(rows, ours, work, mtu)?).over(of(find(rows, other, work, mtu)?))
}

fn rps(row: &Row) -> &Summary {
    &row.rps
}

fn p50(row: &Row) -> &Summary {
    &row.p50_us
}

fn redis(results: &Results, targets: &mut Vec<Target>) {
    let mut against = |other: Who, work: Work, mtu: u32, wanted: f64| {
        let what = format!("{}, MTU {mtu}: requests a second over {}", work.describe(), other.name());
        let measured = ratio(&results.targets, (OURS, other), (work, mtu), rps);
        targets.push(target(what, Bound::AtLeast, (wanted, "×"), measured));
    };
    against(Who::Redis, resp(true, 1, 1), MTU, 3.3);
    against(Who::Redis, resp(true, 50, 1), MTU, 1.15);
    against(SOCKETS, resp(true, 50, 1), MTU, 1.15);
    against(Who::Redis, resp(true, 50, 16), MTU, 1.25);
    against(Who::Redis, resp(false, 50, 16), MTU, 0.9);
    against(Who::Redis, resp(true, 50, 16), MTU_LARGE, 1.6);
    against(Who::Redis, resp(false, 50, 16), MTU_LARGE, 1.6);
    against(Who::Redis, Work::Trip { resp: true }, MTU, 3.3);
    for work in [resp(true, 1, 1), Work::Trip { resp: true }] {
        let what = format!("{}, MTU {MTU}: p50 over {}", work.describe(), Who::Redis.name());
        let measured = ratio(&results.targets, (OURS, Who::Redis), (work, MTU), p50);
        targets.push(target(what, Bound::AtMost, (0.35, "×"), measured));
    }
}

fn http_posts(results: &Results, targets: &mut Vec<Target>) {
    for (connections, wanted) in [(1, 3.0), (50, 1.05)] {
        let work = http(Ask::Post, connections);
        let what = format!("{}: requests a second over our server on sockets", work.describe());
        let measured = ratio(&results.tcp, (OURS, SOCKETS), (work, MTU), rps);
        targets.push(target(what, Bound::AtLeast, (wanted, "×"), measured));
    }
}

fn management(results: &Results, targets: &mut Vec<Target>) {
    let by_stages = |store| stage_data_management(results, store);
    for (how, ours, theirs) in [
        ("by stages in the process", by_stages(StageStore::Heap), by_stages(StageStore::LevelDb)),
        (
            "by differences of round trips over AF_XDP",
            data_management(results, Store::Heap, Over::XdpSpin),
            data_management(results, Store::LevelDb, Over::XdpSpin),
        ),
    ] {
        let share = ours.as_ref().zip(theirs.as_ref()).and_then(|(ours, theirs)| share(ours, theirs));
        let (what, bound) =
            (format!("data management of a durable 1 KiB write, {how}"), Bound::DifferenceAtMost);
        targets.push(target(what.clone(), bound, (0.6, "µs"), ours));
        targets.push(target(format!("{what}, over LevelDB's"), bound, (0.125, "×"), share));
    }
}

fn lost(results: &Results, targets: &mut Vec<Target>) {
    for over in OVERS {
        for connections in &results.settings.connections {
            let work = http(Ask::Post, *connections);
            let pair = (with(Store::Heap, over), with(Store::Discard, over));
            let kept = ratio(&results.figure2, pair, (work, MTU), rps);
            let lost =
                kept.and_then(|kept| Summary::of(kept.samples.iter().map(|share| (1.0 - share) * 100.0)));
            let what = format!("{}, {}: throughput lost against discarding", work.describe(), over.name());
            targets.push(target(what, Bound::DifferenceAtMost, (5.0, "%"), lost));
        }
    }
}

fn wal(results: &Results, targets: &mut Vec<Target>) {
    let Some(wal) = results.wal.iter().find(|wal| !wal.on_file) else { return };
    for connections in FEW_AND_MANY {
        let work = http(Ask::Append, connections);
        let over = |of| ratio(&wal.rows, (OURS, COPYING), (work, MTU), of);
        let what = |of| format!("{}: {of} over {}", work.describe(), COPYING.name());
        targets.push(target(what("appends a second"), Bound::AtLeast, (1.9, "×"), over(rps)));
        targets.push(target(what("p50"), Bound::AtMost, (0.54, "×"), over(p50)));
    }
}

fn copies(results: &Results, targets: &mut Vec<Target>) {
    for (ask, name) in [(Ask::Post, "PUT"), (Ask::Get, "GET")] {
        for who in [OURS, SOCKETS] {
            let row = find(&results.tcp, who, http(ask, 50), MTU);
            let what = format!("payload bytes copied in user space a 1 KiB {name}, {}", who.name());
            let measured = row.and_then(|row| row.copied_bytes.clone());
            targets.push(target(what, Bound::AtMost, (0.0, "B"), measured));
        }
    }
}

fn transfers(results: &Results, targets: &mut Vec<Target>) {
    for lose in bulk::LOSSES {
        for (put, name) in [(true, "to the server"), (false, "from the server")] {
            let speed = |over| bulk::find(&results.bulk, over, put, lose).map(|row| &row.mb_per_second);
            let measured = speed(Over::XdpSpin).zip(speed(Over::Sockets)).and_then(|(a, b)| a.over(b));
            let loss = f64::from(lose) / 100.0;
            let what =
                format!("bulk transfer {name}, {loss} % of frames lost: bytes a second over kernel TCP");
            targets.push(target(what, Bound::AtLeast, (1.0, "×"), measured));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paper::report::tests::sample;
    use crate::paper::sections::unflushed;

    #[test]
    fn every_target_has_a_figure_where_everything_was_measured() {
        let mut results = sample();
        results.settings.connections = vec![1, 50];
        for target in judge(&results) {
            // The sample has no appends of many connections.
            let expected = !target.what.starts_with("WAL append, 50");
            assert_eq!(target.measured.is_some(), expected, "{}", target.what);
        }
    }

    #[test]
    fn what_was_not_measured_is_not_passed() {
        let mut results = sample();
        results.targets.clear();
        let targets = judge(&results);
        let redis = targets.iter().find(|target| target.what.contains("over redis")).unwrap();
        assert_eq!(redis.met(), None);
    }

    /// Whether there are figures and verdicts of the targets that begin with `what`.
    fn judged(results: &Results, what: &str) -> Vec<(bool, bool)> {
        let targets = judge(results);
        let found = targets.iter().filter(|target| target.what.starts_with(what));
        found.map(|target| (target.measured.is_some(), target.met().is_some())).collect()
    }

    #[test]
    fn a_store_that_is_faster_than_none_is_noise_and_passes_nothing() {
        let mut results = sample();
        let ours = with(Store::Heap, Over::XdpSpin);
        let what = "HTTP POST, 50 connections, AF_XDP, spinning: throughput lost";
        assert_eq!(judged(&results, what), [(true, true)]);
        for row in results.figure2.iter_mut().filter(|row| row.who == ours) {
            row.rps = Summary::of(row.rps.samples.iter().map(|rps| rps * 2.0)).unwrap();
        }
        assert_eq!(judged(&results, what), [(true, false)]);
    }

    #[test]
    fn data_management_that_takes_less_than_no_time_is_noise_and_passes_nothing() {
        let mut results = sample();
        // Both the time and its ratio to LevelDB's.
        let what = "data management of a durable 1 KiB write, by differences";
        assert_eq!(judged(&results, what), [(true, true); 2]);
        let ours = unflushed(Store::Heap, Over::XdpSpin);
        for row in results.table1.iter_mut().filter(|row| row.who == ours) {
            row.mean_us = Summary::of([1.0, 1.0]);
        }
        assert_eq!(judged(&results, what), [(true, false); 2]);
    }

    #[test]
    fn known_figures_come_out() {
        let targets = judge(&sample());
        let find = |what: &str| targets.iter().find(|target| target.what.starts_with(what)).unwrap();
        let median = |what: &str| find(what).measured.as_ref().unwrap().median;
        assert_eq!(median("SET, 1 client, MTU 1500: requests a second over redis"), 4.0);
        assert_eq!(find("HTTP POST, 1 connection: requests").met(), Some(true));
        // 20.5 against 20 µs a request: 2.4 % less throughput.
        let lost = median("HTTP POST, 1 connection, AF_XDP, spinning: throughput lost");
        assert!((lost - 2.44).abs() < 0.1, "{lost}");
    }
}
