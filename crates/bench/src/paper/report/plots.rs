//! The plots.

use super::table1::{data_management, stage_data_management};
use super::{Results, paper};
use crate::common::error::BenchError;
use crate::common::measure::stats::Summary;
use crate::common::plots::Plot;
use crate::common::plots::bars::{Panel, bars};
use crate::common::plots::chart::{Axis, Chart, Line, draw_chart};
use crate::paper::args::StageStore;
use crate::paper::compare::{Row, find};
use crate::paper::contestant::{Over, Store};
use crate::paper::sections::{MTU, OVERS, STORES, http, with};
use crate::paper::wrk::Ask;
use std::path::Path;

/// Draws every plot that there is data for.
pub(super) fn draw(out: &Path, results: &Results) -> Result<Vec<Plot>, BenchError> {
    let mut plots = Vec::new();
    for (over, end) in OVERS.into_iter().zip(["sockets", "xdp"]) {
        for mut chart in charts(results, over, end) {
            chart.lines.retain(|line| !line.points.is_empty());
            if chart.lines.is_empty() {
                continue;
            }
            draw_chart(&out.join(&chart.file), &chart)?;
            plots.push(Plot { title: chart.title, file: chart.file });
        }
    }
    let panels = management_panels(results);
    if !panels.is_empty() {
        let file = "data-management.svg".to_owned();
        bars(&out.join(&file), &panels)?;
        plots.push(Plot { title: "data management of a durable 1 KiB write, µs".into(), file });
    }
    Ok(plots)
}

/// Returns the charts of Figure 2 over one transport. Their files' names end with `end`.
fn charts(results: &Results, over: Over, end: &str) -> [Chart; 4] {
    let title = |what: &str| format!("Figure 2, {}: {what}", over.name());
    let lines = |of: &dyn Fn(Store, usize) -> Option<Summary>, stores: &[Store]| {
        let connections = || results.settings.connections.iter();
        let points = |store: Store| {
            connections()
                .filter_map(move |count| of(store, *count).map(|value| (*count as f64, value)))
                .collect()
        };
        let line = |store: &Store| Line { name: name_of(*store).into(), points: points(*store) };
        stores.iter().map(line).collect()
    };
    let row =
        |store, connections| find(&results.figure2, with(store, over), http(Ask::Post, connections), MTU);
    let mean = |row: &Row| row.mean_us.clone();
    let with_management = [Store::LevelDb, Store::Heap];
    let throughput = lines(&|store, count| Some(row(store, count)?.rps.clone()), &STORES);
    let latency = lines(&|store, count| mean(row(store, count)?), &STORES);
    let lost =
        lines(&|store, count| row(store, count)?.rps.over(&row(Store::Copy, count)?.rps), &with_management);
    let added = lines(
        &|store, count| mean(row(store, count)?)?.over(&mean(row(Store::Copy, count)?)?),
        &with_management,
    );
    let chart = |file: &str, what: &str, lines, band: Option<(f64, f64)>| Chart {
        file: format!("{file}-{end}.svg"),
        title: title(what),
        x: Axis::of("connections"),
        y: if band.is_some() { Axis::ratios("") } else { Axis::of("") },
        lines,
        band,
    };
    let against = "over that of copy + flush (band: the paper's NoveLSM)";
    let (lost_title, added_title) = (format!("throughput {against}"), format!("mean latency {against}"));
    let (lost_band, added_band) = (
        (1.0 - paper::LOST.1 / 100.0, 1.0 - paper::LOST.0 / 100.0),
        (1.0 + paper::ADDED.0 / 100.0, 1.0 + paper::ADDED.1 / 100.0),
    );
    [
        chart("throughput", "requests a second by connections", throughput, None),
        chart("latency", "mean latency by connections, µs", latency, None),
        chart("throughput-lost", &lost_title, lost, Some(lost_band)),
        chart("latency-added", &added_title, added, Some(added_band)),
    ]
}

fn name_of(store: Store) -> &'static str {
    match store {
        Store::Discard => "discard",
        Store::Copy => "copy + flush",
        Store::LevelDb => "LevelDB",
        Store::Heap => "landfall",
    }
}

fn management_panels(results: &Results) -> Vec<Panel> {
    let paper = || ("NoveLSM, paper".to_owned(), Summary::of([paper::DATA_MANAGEMENT]));
    let panel = |title: &str, bars: Vec<(String, Option<Summary>)>| {
        let measured = bars.len() > 1 && bars[1..].iter().any(|(_, value)| value.is_some());
        let bars = bars.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
        measured.then(|| Panel { title: title.into(), bars })
    };
    let by_stages = |store| stage_data_management(results, store);
    let by_trips = |over| {
        let bar = |store| (name_of(store).to_owned(), data_management(results, store, over));
        vec![paper(), bar(Store::LevelDb), bar(Store::Heap)]
    };
    let stages = vec![
        paper(),
        ("LevelDB".into(), by_stages(StageStore::LevelDb)),
        ("landfall".into(), by_stages(StageStore::Heap)),
    ];
    [
        panel("µs, by stages", stages),
        panel("µs, round trips, AF_XDP", by_trips(Over::XdpSpin)),
        panel("µs, round trips, sockets", by_trips(Over::Sockets)),
    ]
    .into_iter()
    .flatten()
    .collect()
}

#[cfg(test)]
mod tests {
    use super::draw;
    use crate::paper::report::tests::sample;

    #[test]
    fn each_plot_has_its_lines_and_the_papers_band() {
        let dir = tempfile::tempdir().unwrap();
        let mut results = sample();
        results.settings.connections = vec![1, 50];
        let plots = draw(dir.path(), &results).unwrap();
        assert_eq!(plots.len(), 9);
        let text = std::fs::read_to_string(dir.path().join("throughput-lost-xdp.svg")).unwrap();
        assert!(text.contains("landfall") && text.contains("<polyline") && text.contains("opacity=\"0.15\""));
    }

    #[test]
    fn nothing_measured_draws_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let mut results = sample();
        (results.figure2, results.table1, results.stages) = Default::default();
        assert!(draw(dir.path(), &results).unwrap().is_empty());
    }
}
