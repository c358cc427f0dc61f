//! The plots.

use super::table1::{data_management, stage_data_management};
use super::{Results, paper};
use crate::common::error::BenchError;
use crate::common::measure::stats::Summary;
use crate::common::plots::bars::{Panel, bars};
use crate::common::plots::{Plot, short};
use crate::paper::args::StageStore;
use crate::paper::compare::{Row, find};
use crate::paper::contestant::{Over, Store};
use crate::paper::sections::{MTU, OVERS, STORES, http, with};
use crate::paper::wrk::Ask;
use plotters::coord::Shift;
use plotters::prelude::*;
use std::path::Path;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

const SIZE: (u32, u32) = (640, 400);

/// A line: a name, a color, points with their spread.
struct Line {
    name: String,
    color: RGBColor,
    points: Vec<(f64, Summary)>,
}

/// A chart over connections.
struct Chart {
    title: String,
    lines: Vec<Line>,
    /// What the paper found, as a band.
    band: Option<(f64, f64)>,
}

/// Draws every plot that there is data for.
pub(super) fn draw(out: &Path, results: &Results) -> Result<Vec<Plot>, BenchError> {
    let mut plots = Vec::new();
    for (over, end) in OVERS.into_iter().zip(["sockets", "xdp"]) {
        for (file, chart) in charts(results, over) {
            if chart.lines.iter().all(|line| line.points.is_empty()) {
                continue;
            }
            let file = format!("{file}-{end}.svg");
            draw_chart(&out.join(&file), &chart)?;
            plots.push(Plot { title: chart.title, file });
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

fn charts(results: &Results, over: Over) -> [(&'static str, Chart); 4] {
    let title = |what: &str| format!("Figure 2, {}: {what}", over.name());
    let lines = |of: &dyn Fn(Store, usize) -> Option<Summary>, stores: &[Store]| {
        let connections = || results.settings.connections.iter();
        let points = |store: Store| {
            connections()
                .filter_map(move |count| of(store, *count).map(|value| (*count as f64, value)))
                .collect()
        };
        let line = |store: &Store| Line {
            name: name_of(*store).into(),
            color: color_of(*store),
            points: points(*store),
        };
        stores.iter().map(line).collect()
    };
    let row =
        |store, connections| find(&results.figure2, with(store, over), http(Ask::Post, connections), MTU);
    let percent = |ratio: Option<Summary>, sign: f64| {
        ratio.and_then(|ratio| Summary::of(ratio.samples.iter().map(|ratio| (ratio - 1.0) * 100.0 * sign)))
    };
    let mean = |row: &Row| row.mean_us.clone();
    let with_management = [Store::LevelDb, Store::Heap];
    let throughput = lines(&|store, count| Some(row(store, count)?.rps.clone()), &STORES);
    let latency = lines(&|store, count| mean(row(store, count)?), &STORES);
    let lost = lines(
        &|store, count| percent(row(store, count)?.rps.over(&row(Store::Copy, count)?.rps), -1.0),
        &with_management,
    );
    let added = lines(
        &|store, count| percent(mean(row(store, count)?)?.over(&mean(row(Store::Copy, count)?)?), 1.0),
        &with_management,
    );
    let chart = |what: &str, lines, band| Chart { title: title(what), lines, band };
    [
        ("throughput", chart("requests a second by connections", throughput, None)),
        ("latency", chart("mean latency by connections, µs", latency, None)),
        (
            "throughput-lost",
            chart(
                "throughput lost against copy + flush, % (band: the paper's NoveLSM)",
                lost,
                Some(paper::LOST),
            ),
        ),
        (
            "latency-added",
            chart(
                "latency added against copy + flush, % (band: the paper's NoveLSM)",
                added,
                Some(paper::ADDED),
            ),
        ),
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

fn color_of(store: Store) -> RGBColor {
    match store {
        Store::Discard => RGBColor(150, 150, 150),
        Store::Copy => RGBColor(230, 159, 0),
        Store::LevelDb => RGBColor(213, 94, 0),
        Store::Heap => RGBColor(0, 114, 178),
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

fn draw_chart(path: &Path, chart: &Chart) -> Result<(), BenchError> {
    let draw = || -> Drawn {
        let root = SVGBackend::new(path, SIZE).into_drawing_area();
        root.fill(&WHITE)?;
        lines(&root, chart)?;
        root.present()?;
        Ok(())
    };
    draw().map_err(|error| BenchError::Plot { path: path.into(), message: error.to_string() })
}

/// Medians as lines, smallest to largest as bars across them; connections on a logarithmic axis.
fn lines(root: &Area<'_>, chart: &Chart) -> Drawn {
    let values = || chart.lines.iter().flat_map(|line| &line.points);
    let right = values().map(|(at, _)| *at).fold(2.0, f64::max);
    let in_band = chart.band.map_or(0.0, |band| band.1);
    let top = values().map(|(_, value)| value.max).fold(in_band, f64::max).max(f64::MIN_POSITIVE) * 1.1;
    let bottom = values().map(|(_, value)| value.min).fold(0.0, f64::min) * 1.1;
    let mut drawn = ChartBuilder::on(root)
        .caption(&chart.title, ("sans-serif", 14))
        .margin(10)
        .y_label_area_size(52)
        .x_label_area_size(32)
        .build_cartesian_2d((0.9..right * 1.2).log_scale(), bottom..top)?;
    let connections = |value: &f64| format!("{value:.0}");
    drawn
        .configure_mesh()
        .x_desc("connections")
        .x_label_formatter(&connections)
        .y_label_formatter(&|value| short(*value))
        .draw()?;
    if let Some((low, high)) = chart.band {
        let band = Rectangle::new([(0.9, low), (right * 1.2, high)], RGBColor(213, 94, 0).mix(0.15).filled());
        drawn.draw_series([band])?;
    }
    for line in &chart.lines {
        let color = line.color;
        let points = line.points.iter().map(|(at, value)| (*at, value.median));
        let legend = move |(x, y): (i32, i32)| PathElement::new([(x, y), (x + 16, y)], color.stroke_width(2));
        drawn.draw_series(LineSeries::new(points, color.stroke_width(2)))?.label(&line.name).legend(legend);
        let spreads = line.points.iter().map(|(at, value)| {
            ErrorBar::new_vertical(*at, value.min, value.median, value.max, color.filled(), 6)
        });
        drawn.draw_series(spreads)?;
    }
    drawn
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK)
        .draw()?;
    Ok(())
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
