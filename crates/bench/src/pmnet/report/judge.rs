//! The targets, and whether they are met.

use super::goal::{Goal, MEDIA, goal, how, key_value, over_apps};
use super::{Results, paper, simulated};
use crate::common::measure::stats::Summary;
use crate::common::targets::Bound;
use crate::pmnet::app::App;
use crate::pmnet::app::On;
use crate::pmnet::choices::{PAYLOAD, app};
use crate::pmnet::compare::{Row, find};
use crate::pmnet::design::{Design, PMNET, PMNET_3, PMNET_CACHE, PMNET_FILE, Spec, Waits};
use crate::pmnet::sections::copies;
use landfall_bench_handlers::Structure;

/// Returns every target with its measurement.
pub(super) fn judge(results: &Results) -> Vec<Goal> {
    let rows = &results.rows;
    let mut goals = Vec::new();
    figure_15(rows, &mut goals);
    figure_18(rows, &mut goals);
    figure_19(results, &mut goals);
    figure_20(results, &mut goals);
    figure_21(results, &mut goals);
    figure_22(rows, &mut goals);
    recovery(results, &mut goals);
    simulated::judge(results, &mut goals);
    goals
}

/// Returns a quantity of one contestant over another's, round by round. `None` if one has fewer rounds.
pub(super) fn ratio(rows: &[Row], a: Spec, b: Spec, of: fn(&Row) -> &Summary) -> Option<Summary> {
    let (a, b) = (of(find(rows, a)?), of(find(rows, b)?));
    if a.samples.len() == b.samples.len() { a.over(b) } else { None }
}

pub(super) fn p50(row: &Row) -> &Summary {
    &row.p50_us
}

pub(super) fn p99(row: &Row) -> &Summary {
    &row.p99_us
}

pub(super) fn mean(row: &Row) -> &Summary {
    &row.mean_us
}

pub(super) fn rps(row: &Row) -> &Summary {
    &row.rps
}

/// Returns the mean latency of updates alone, or of all requests if all are updates.
pub(super) fn update_mean(row: &Row) -> &Summary {
    row.update_mean_us.as_ref().unwrap_or(&row.mean_us)
}

fn figure_15(rows: &[Row], goals: &mut Vec<Goal>) {
    let spec = |design, waits, bytes| Spec::ideal(design, waits, bytes);
    let [small, large] = paper::FIGURE_15;
    for (bytes, paper) in [small, (PAYLOAD, small.1), large] {
        let quoted = if bytes == PAYLOAD { format!("{paper} × at 50 B") } else { format!("{paper} ×") };
        for waits in [Waits::Spin, Waits::Polls, Waits::Block] {
            let how = how(waits);
            let what = format!("update latency at {bytes} B, client-server over PMNet, {how}");
            let measured =
                ratio(rows, spec(Design::ClientServer, waits, bytes), spec(PMNET, waits, bytes), p50);
            goals.push(goal("15", &what, quoted.clone(), (Bound::AtLeast, paper, "×"), measured));
        }
    }
    network_card(rows, goals);
    let others = [
        (Design::ClientServer, "server's reply through the same path"),
        (Design::Direct, "round trip with nothing in between"),
    ];
    for (other, name) in others {
        let what = format!("device ACK over the {name} at {PAYLOAD} B, both ends spinning");
        let measured = ratio(rows, spec(PMNET, Waits::Spin, PAYLOAD), spec(other, Waits::Spin, PAYLOAD), p50);
        goals.push(goal("15", &what, "–".into(), (Bound::AtMost, 0.8, "×"), measured));
    }
}

/// PMNet-NIC, which the paper finds to be as fast as PMNet-Switch.
fn network_card(rows: &[Row], goals: &mut Vec<Goal>) {
    let spec = |design, waits, bytes| Spec::ideal(design, waits, bytes);
    for (bytes, paper) in paper::FIGURE_15_NIC {
        for waits in [Waits::Spin, Waits::Polls, Waits::Block] {
            let what = format!("update latency at {bytes} B, client-server over PMNet-NIC, {}", how(waits));
            let measured =
                ratio(rows, spec(Design::ClientServer, waits, bytes), spec(Design::Nic, waits, bytes), p50);
            goals.push(goal("15", &what, format!("{paper} ×"), (Bound::AtLeast, paper, "×"), measured));
        }
    }
    for waits in [Waits::Spin, Waits::Polls, Waits::Block] {
        let of = |design| find(rows, spec(design, waits, PAYLOAD)).map(p50);
        let later = of(Design::Nic).zip(of(PMNET)).and_then(|(card, switch)| card.less(switch));
        let what = format!("PMNet-NIC later than PMNet-Switch at {PAYLOAD} B, {}", how(waits));
        let aim = (Bound::DifferenceAtMost, 1.0, "µs");
        goals.push(goal("15", &what, "< 1 µs".into(), aim, later));
    }
}

fn figure_18(rows: &[Row], goals: &mut Vec<Goal>) {
    let [server, server_3] = [1, 3].map(|copies| Design::ServerLog { copies });
    let client_3 = Design::ClientLog { copies: 3 };
    let pairs = [
        (
            "server-side logging over PMNet",
            server,
            PMNET,
            Waits::Block,
            paper::SERVER_LOG[0] / paper::PMNET_LOG[0],
        ),
        (
            "server-side logging over PMNet, the device polls",
            server,
            PMNET,
            Waits::Polls,
            paper::SERVER_LOG[0] / paper::PMNET_LOG[0],
        ),
        (
            "server-side logging over PMNet, spinning",
            server,
            PMNET,
            Waits::Spin,
            paper::SERVER_LOG[0] / paper::PMNET_LOG[0],
        ),
        (
            "server-side logging over PMNet, 3 copies",
            server_3,
            PMNET_3,
            Waits::Block,
            paper::SERVER_LOG[1] / paper::PMNET_LOG[1],
        ),
        (
            "client-side logging over PMNet, 3 copies",
            client_3,
            PMNET_3,
            Waits::Block,
            paper::CLIENT_LOG[1] / paper::PMNET_LOG[1],
        ),
    ];
    for (what, other, ours, waits, paper) in pairs {
        let spec = |design| Spec::ideal(design, waits, PAYLOAD);
        let measured = ratio(rows, spec(other), spec(ours), p50);
        goals.push(goal("18", what, format!("{paper:.2} ×"), (Bound::AtLeast, 1.0, "×"), measured));
    }
}

fn figure_19(results: &Results, goals: &mut Vec<Goal>) {
    let (rows, choices) = (&results.rows, &results.settings.apps);
    let one = |it| ratio(rows, app(it, PMNET, 100, 1), app(it, Design::ClientServer, 100, 1), rps);
    for medium in MEDIA {
        let where_ = medium.words;
        let found = over_apps(choices, &key_value(medium), one);
        let count = found.as_ref().map_or(0, |(_, count)| *count);
        let what = format!(
            "update throughput over client-server, 1 client, mean of {count} key-value workloads of 6, {where_}"
        );
        let measured = found.map(|(summary, _)| summary);
        let quoted = format!("{} ×", paper::FIGURE_19);
        goals.push(goal("19", &what, quoted, (Bound::AtLeast, 5.0, "×"), measured));
    }
}

fn figure_20(results: &Results, goals: &mut Vec<Goal>) {
    let (rows, choices) = (&results.rows, &results.settings.apps);
    for medium in MEDIA {
        let where_ = medium.words;
        let mean_of = |ours, updates, of| {
            let one =
                |it| ratio(rows, app(it, Design::ClientServer, updates, 1), app(it, ours, updates, 1), of);
            over_apps(choices, &key_value(medium), one).map(|(summary, _)| summary)
        };
        let what = format!(
            "99th percentile at 100 % updates, client-server over PMNet, mean of the key-value workloads, {where_}"
        );
        let quoted = format!("{} ×", paper::TAIL);
        goals.push(goal("20a", &what, quoted, (Bound::AtLeast, 4.0, "×"), mean_of(PMNET, 100, p99)));
        let what = format!(
            "mean latency at 50 % updates, client-server over PMNet with read cache, mean of the key-value workloads, {where_}"
        );
        let quoted = format!("{} ×", paper::CACHE_MEAN);
        goals.push(goal("20b", &what, quoted, (Bound::AtLeast, 4.0, "×"), mean_of(PMNET_CACHE, 50, mean)));
    }
}

fn figure_21(results: &Results, goals: &mut Vec<Goal>) {
    let (rows, choices) = (&results.rows, &results.settings.apps);
    let structures = std::iter::once(App::Ideal).chain(Structure::ALL.map(App::Map)).collect();
    let on_redis = |on| vec![App::Redis(on), App::Twitter(on), App::Tpcc(on)];
    let groups: [(&str, Vec<App>); 3] = [
        ("ideal handler and structures in memory", structures),
        ("Redis, Twitter and TPC-C on tmpfs", on_redis(On::Memory)),
        ("Redis, Twitter and TPC-C on a file", on_redis(On::File)),
    ];
    for (which, apps) in groups {
        let mean_of = |a, b| {
            let one = |it| ratio(rows, copies(it, a), copies(it, b), update_mean);
            over_apps(choices, &apps, one).map(|(summary, _)| summary)
        };
        let quoted = format!("{} ×", paper::REPLICATED);
        let what =
            format!("3-way replication by servers over 3 devices, mean update latency, mean of {which}");
        let better = mean_of(Design::Replicated, PMNET_3);
        goals.push(goal("21", &what, quoted, (Bound::AtLeast, 6.0, "×"), better));
        let added = mean_of(PMNET_3, PMNET)
            .and_then(|ratio| Summary::of(ratio.samples.iter().map(|it| (it - 1.0) * 100.0)));
        let what = format!("3 devices over one: latency added, mean of {which}");
        let quoted = format!("{} %", paper::COPIES);
        goals.push(goal("21", &what, quoted, (Bound::DifferenceAtMost, 16.0, "%"), added));
    }
}

fn figure_22(rows: &[Row], goals: &mut Vec<Goal>) {
    let [kernel, vma] = paper::FIGURE_22;
    for (waits, paper) in [(Waits::Block, kernel), (Waits::Polls, kernel), (Waits::Spin, vma)] {
        let spec = |design| Spec::ideal(design, waits, PAYLOAD);
        let how = how(waits);
        let what = format!("update throughput over client-server, 1 client, {how}");
        let measured = ratio(rows, spec(PMNET), spec(Design::ClientServer), rps);
        goals.push(goal("22", &what, format!("{paper} ×"), (Bound::AtLeast, paper, "×"), measured));
    }
}

fn recovery(results: &Results, goals: &mut Vec<Goal>) {
    for design in [PMNET, PMNET_FILE] {
        let row = results.recovery.iter().find(|row| row.design == design);
        let what = format!("replay of an update, {}", design.name());
        let quoted = format!("{} µs", paper::REPLAY_US);
        let us = row.map(|row| row.us.clone());
        goals.push(goal("recovery", &what, quoted, (Bound::AtMost, 20.0, "µs"), us));
        let mib = results.settings.replay_mib;
        let what = format!("replay of a log of {mib} MiB, {}", design.name());
        let rate = row.map(|row| row.rate.clone());
        goals.push(goal("recovery", &what, "–".into(), (Bound::AtLeast, 50_000.0, "requests/s"), rate));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pmnet::report::tests::sample;

    fn median(goals: &[Goal], figure: &str, what: &str) -> f64 {
        let goal = goals.iter().find(|goal| goal.figure == figure && goal.target.what.contains(what));
        goal.unwrap().target.measured.as_ref().unwrap().median
    }

    #[test]
    fn ratios_are_those_of_the_figures() {
        let goals = judge(&sample());
        let near = |value: f64, expected: f64| assert!((value - expected).abs() < 0.01, "{value} {expected}");
        near(median(&goals, "15", "client-server over PMNet, both ends"), 3.0);
        near(median(&goals, "15", "with nothing in between"), 20.0 / 30.0);
        near(median(&goals, "15", "through the same path"), 1.0 / 3.0);
        near(median(&goals, "18", "server-side logging over PMNet, 3 copies"), 60.0 / 22.0);
        near(median(&goals, "19", "update throughput"), 3.0);
        near(median(&goals, "20b", "mean latency"), 6.0);
        near(median(&goals, "21", "3-way replication"), 8.0);
        near(median(&goals, "21", "latency added"), 10.0);
        near(median(&goals, "recovery", "replay of an update"), 10.5);
        assert!(goals.iter().all(|goal| goal.target.met().is_some()), "everything was measured");
    }

    #[test]
    fn what_was_not_measured_is_not_judged() {
        let mut results = sample();
        (results.breakdown, results.rows, results.recovery, results.model) = Default::default();
        assert!(judge(&results).iter().all(|goal| goal.target.met().is_none()));
    }

    /// Whether there is a verdict on Redis's means on a file and on tmpfs.
    fn has_means(results: &Results, figure: &str) -> [bool; 2] {
        let goals = judge(results);
        ["Redis on a file", "Redis on tmpfs"].map(|medium| {
            let has_words = |goal: &&Goal| goal.figure == figure && goal.target.what.contains(medium);
            goals.iter().find(has_words).unwrap().target.met().is_some()
        })
    }

    #[test]
    fn a_mean_is_judged_only_with_both_sides_of_every_application() {
        let mut results = sample();
        assert_eq!(has_means(&results, "19"), [true; 2]);
        results.rows.retain(|row| row.spec != app(App::Redis(On::File), PMNET, 100, 1));
        assert_eq!(has_means(&results, "19"), [false, true]);
        results.model.rows.retain(|row| row.app != App::Redis(On::File));
        assert_eq!(has_means(&results, "19, simulated"), [false, true]);
    }

    #[test]
    fn three_devices_that_are_sooner_than_one_are_noise() {
        let mut results = sample();
        for row in results.rows.iter_mut().filter(|row| row.spec.design == PMNET_3) {
            row.update_mean_us = Summary::of([1.0, 1.0]);
        }
        let mut goals = judge(&results);
        goals.retain(|goal| goal.target.what.contains("over one: latency added, mean of"));
        let verdicts = goals.iter().map(|goal| (goal.target.measured.is_some(), goal.target.met()));
        assert_eq!(verdicts.collect::<Vec<_>>(), [(true, None); 3]);
    }

    #[test]
    fn contestants_with_different_numbers_of_rounds_are_not_compared() {
        let mut results = sample();
        let fewer = results.rows.iter_mut().find(|row| row.spec == app(App::Redis(On::File), PMNET, 100, 1));
        let fewer = fewer.unwrap();
        fewer.rps = Summary::of([fewer.rps.median]).unwrap();
        assert_eq!(has_means(&results, "19"), [false, true]);
    }
}
