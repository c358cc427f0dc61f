//! The plots.

use super::Results;
use crate::args::MediaChoice;
use crate::error::BenchError;
use crate::measure::stats::Summary;
use crate::peers::names;
use crate::workloads::{restart, throughput};
use plotters::coord::Shift;
use plotters::prelude::*;
use std::path::Path;

/// A plot that was drawn.
#[derive(Clone, Debug)]
pub(crate) struct Plot {
    pub(crate) title: String,
    /// Its file, in the output folder.
    pub(crate) file: String,
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

/// Width of a panel, pixels.
const PANEL_WIDTH: u32 = 380;
const PANEL_HEIGHT: u32 = 300;
const PANELS_MAX: usize = 24;
const COLUMNS_MAX: usize = 4;

/// Draws every plot that there is data for.
pub(crate) fn draw(out: &Path, results: &Results) -> Result<Vec<Plot>, BenchError> {
    let mut plots = Vec::new();
    for media in [MediaChoice::Pm, MediaChoice::File] {
        for quantity in QUANTITIES {
            let panels = panels(results, media, quantity);
            let title = format!("{}: {}", media.name(), quantity.title);
            let file = format!("{}-{}.svg", quantity.file, media.name());
            plots.extend(if_any(&panels, || bars(&out.join(&file), &panels))?.map(|()| Plot { title, file }));
        }
        let panels = mixed_panels(results, media);
        let title = format!("{}: p99 latency of one GET client beside SETs, µs", media.name());
        let file = format!("mixed-{}.svg", media.name());
        plots.extend(if_any(&panels, || bars(&out.join(&file), &panels))?.map(|()| Plot { title, file }));
        let panels = amplification_panels(results, media);
        let title = format!("{}: bytes written to the medium for each byte received", media.name());
        let file = format!("amplification-{}.svg", media.name());
        plots.extend(if_any(&panels, || bars(&out.join(&file), &panels))?.map(|()| Plot { title, file }));
        let panels = memory_panels(results, media);
        let title = format!("{}: resident memory, MiB", media.name());
        let file = format!("memory-{}.svg", media.name());
        plots.extend(if_any(&panels, || bars(&out.join(&file), &panels))?.map(|()| Plot { title, file }));
        let rows: Vec<_> = results.restart.iter().filter(|row| row.media == media).collect();
        let title = format!("{}: restart time by records", media.name());
        let file = format!("restart-{}.svg", media.name());
        plots.extend(if_any(&rows, || lines(&out.join(&file), &rows))?.map(|()| Plot { title, file }));
    }
    Ok(plots)
}

fn if_any<T>(data: &[T], draw: impl FnOnce() -> Result<(), BenchError>) -> Result<Option<()>, BenchError> {
    if data.is_empty() { Ok(None) } else { draw().map(Some) }
}

/// A quantity of throughput rows.
#[derive(Clone, Copy)]
struct Quantity {
    file: &'static str,
    title: &'static str,
    of: fn(&throughput::Row) -> &Summary,
}

const QUANTITIES: [Quantity; 3] = [
    Quantity { file: "throughput", title: "requests a second", of: |row| &row.rps },
    Quantity { file: "latency", title: "p99 latency, µs", of: |row| &row.p99_us },
    Quantity { file: "cpu", title: "server CPU, µs a request", of: |row| &row.cpu_us },
];

/// Bars beside each other, with one scale.
pub(crate) struct Panel {
    pub(crate) title: String,
    pub(crate) bars: Vec<(String, Summary)>,
}

fn panels(results: &Results, media: MediaChoice, quantity: Quantity) -> Vec<Panel> {
    let mut panels: Vec<Panel> = Vec::new();
    for row in results.throughput.iter().filter(|row| row.media == media) {
        let title = format!("{} {}", row.operation.name(), row.shape.describe());
        add_bar(&mut panels, title, &row.peer, (quantity.of)(row));
    }
    panels
}

fn mixed_panels(results: &Results, media: MediaChoice) -> Vec<Panel> {
    let mut panels: Vec<Panel> = Vec::new();
    for row in results.mixed.iter().filter(|row| row.media == media) {
        add_bar(&mut panels, format!("beside {}", row.load.describe()), &row.peer, &row.p99_us);
    }
    panels
}

fn amplification_panels(results: &Results, media: MediaChoice) -> Vec<Panel> {
    let mut panels: Vec<Panel> = Vec::new();
    for row in results.amplification.iter().filter(|row| row.media == media) {
        let title = format!("{:.0} % live", row.live_share * 100.0);
        let value = Summary::of([row.counted.amplification()]);
        value.into_iter().for_each(|value| add_bar(&mut panels, title.clone(), row.draw.name(), &value));
    }
    panels
}

fn memory_panels(results: &Results, media: MediaChoice) -> Vec<Panel> {
    let mut panels: Vec<Panel> = Vec::new();
    for row in results.memory.iter().filter(|row| row.media == media) {
        for (when, memory) in [("loading", &row.loaded), ("a restart", &row.restarted)] {
            let value = Summary::of([memory.rss as f64 / f64::from(1 << 20)]);
            let title = format!("{} keys after {when}", row.records);
            value.into_iter().for_each(|value| add_bar(&mut panels, title.clone(), &row.peer, &value));
        }
    }
    panels
}

fn add_bar(panels: &mut Vec<Panel>, title: String, peer: &str, value: &Summary) {
    let bar = (peer.to_owned(), value.clone());
    if let Some(panel) = panels.iter_mut().find(|panel| panel.title == title) {
        panel.bars.push(bar);
    } else if panels.len() < PANELS_MAX {
        panels.push(Panel { title, bars: vec![bar] });
    }
}

pub(crate) fn bars(path: &Path, panels: &[Panel]) -> Result<(), BenchError> {
    let columns = panels.len().min(COLUMNS_MAX);
    let rows = panels.len().div_ceil(columns.max(1));
    let size = (PANEL_WIDTH * columns as u32, PANEL_HEIGHT * rows as u32);
    let draw = || -> Drawn {
        let root = SVGBackend::new(path, size).into_drawing_area();
        root.fill(&WHITE)?;
        for (area, panel) in root.split_evenly((rows, columns)).iter().zip(panels) {
            bar_panel(area, panel)?;
        }
        root.present()?;
        Ok(())
    };
    draw().map_err(|error| BenchError::Plot { path: path.into(), message: error.to_string() })
}

/// Median as a bar, smallest to largest as a line across its end.
fn bar_panel(area: &Area<'_>, panel: &Panel) -> Drawn {
    let top = panel.bars.iter().map(|(_, value)| value.max).fold(f64::MIN_POSITIVE, f64::max) * 1.15;
    let count = panel.bars.len() as f64;
    let mut chart = ChartBuilder::on(area)
        .caption(&panel.title, ("sans-serif", 13))
        .margin(8)
        .y_label_area_size(52)
        .x_label_area_size(22)
        .build_cartesian_2d(0.0..count, 0.0..top)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .disable_x_axis()
        .y_labels(5)
        .y_label_formatter(&|value| short(*value))
        .draw()?;
    for (index, (peer, value)) in panel.bars.iter().enumerate() {
        let left = index as f64;
        let color = color_of(peer);
        let bar = Rectangle::new([(left + 0.15, 0.0), (left + 0.85, value.median)], color.filled());
        chart.draw_series([bar])?;
        let spread =
            ErrorBar::new_vertical(left + 0.5, value.min, value.median, value.max, BLACK.stroke_width(1), 8);
        chart.draw_series([spread])?;
        let style = ("sans-serif", 11).into_font().color(&BLACK);
        let (x, y) = chart.backend_coord(&(left + 0.12, 0.0));
        let (origin_x, origin_y) = area.get_base_pixel();
        area.draw(&Text::new(short_name(peer), (x - origin_x, y - origin_y + 6), style))?;
    }
    Ok(())
}

fn lines(path: &Path, rows: &[&restart::Row]) -> Result<(), BenchError> {
    let draw = || -> Drawn {
        let root = SVGBackend::new(path, (640, 400)).into_drawing_area();
        root.fill(&WHITE)?;
        restart_chart(&root, rows)?;
        root.present()?;
        Ok(())
    };
    draw().map_err(|error| BenchError::Plot { path: path.into(), message: error.to_string() })
}

fn restart_chart(root: &Area<'_>, rows: &[&restart::Row]) -> Drawn {
    let right = rows.iter().map(|row| row.records as f64).fold(1.0, f64::max);
    let top = rows.iter().map(|row| row.seconds.max).fold(f64::MIN_POSITIVE, f64::max) * 1.1;
    let mut chart = ChartBuilder::on(root)
        .caption("restart: seconds by records", ("sans-serif", 15))
        .margin(10)
        .y_label_area_size(52)
        .x_label_area_size(32)
        .build_cartesian_2d(0.0..right * 1.05, 0.0..top)?;
    let label = |value: &f64| short(*value);
    chart.configure_mesh().x_label_formatter(&label).y_label_formatter(&label).draw()?;
    for (peer, cold) in series_of(rows) {
        let points: Vec<_> = rows.iter().filter(|row| (&*row.peer, row.cold) == (peer, cold)).collect();
        let color = if cold { color_of(peer).mix(0.5) } else { color_of(peer).to_rgba() };
        let line = LineSeries::new(
            points.iter().map(|row| (row.records as f64, row.seconds.median)),
            color.stroke_width(2),
        );
        let name = if cold { format!("{peer}, cold") } else { peer.to_owned() };
        let legend = move |(x, y): (i32, i32)| PathElement::new([(x, y), (x + 16, y)], color.stroke_width(2));
        chart.draw_series(line)?.label(name).legend(legend);
        let spreads = points.iter().map(|row| {
            let seconds = &row.seconds;
            ErrorBar::new_vertical(
                row.records as f64,
                seconds.min,
                seconds.median,
                seconds.max,
                color.filled(),
                6,
            )
        });
        chart.draw_series(spreads)?;
    }
    let legend = SeriesLabelPosition::UpperLeft;
    chart
        .configure_series_labels()
        .position(legend)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK)
        .draw()?;
    Ok(())
}

fn series_of<'r>(rows: &[&'r restart::Row]) -> Vec<(&'r str, bool)> {
    let mut series: Vec<(&str, bool)> = rows.iter().map(|row| (&*row.peer, row.cold)).collect();
    series.sort_unstable();
    series.dedup();
    series
}

/// The same color for a server in every plot.
fn color_of(peer: &str) -> RGBColor {
    match peer {
        names::LANDFALL => RGBColor(0, 114, 178),
        names::DISCARD => RGBColor(86, 180, 233),
        names::REDIS_ALWAYS => RGBColor(213, 94, 0),
        names::REDIS_EVERYSEC => RGBColor(230, 159, 0),
        names::REDIS_NO => RGBColor(204, 121, 167),
        "PMNet" | "1 device" | "memory" => RGBColor(0, 114, 178),
        "3 devices" | "file" => RGBColor(0, 158, 115),
        "client log" => RGBColor(230, 159, 0),
        "server log" => RGBColor(213, 94, 0),
        "the paper" => RGBColor(106, 61, 154),
        _ => RGBColor(150, 150, 150),
    }
}

/// A name that fits under a bar.
fn short_name(peer: &str) -> String {
    let peer = peer.strip_prefix("landfall, ").unwrap_or(peer);
    peer.trim_start_matches("redis").trim_start_matches([',', ' ']).to_owned()
}

/// A number for an axis: two labels in a row must not round to the same.
pub(crate) fn short(value: f64) -> String {
    match value.abs() {
        large if large >= 1e6 => format!("{:.1} M", value / 1e6),
        large if large >= 1e4 => format!("{:.0} k", value / 1e3),
        large if large >= 1e3 => format!("{:.1} k", value / 1e3),
        large if large >= 10.0 => format!("{value:.0}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::{draw, short, short_name};
    use crate::args::MediaChoice;
    use crate::measure::stats::Summary;
    use crate::report::tests::sample_results;
    use crate::workloads::restart;

    #[test]
    fn labels_of_an_axis_tell_its_steps_apart() {
        let labels = [0.0, 500.0, 1000.0, 1500.0, 2000.0, 50_000.0, 1.5e6].map(short);
        assert_eq!(labels, ["0.00", "500", "1.0 k", "1.5 k", "2.0 k", "50 k", "1.5 M"]);
    }

    #[test]
    fn each_plot_is_a_file_with_a_bar_or_line_for_each_server() {
        let dir = tempfile::tempdir().unwrap();
        let mut results = sample_results();
        results.restart = [("landfall", 0.1), ("redis always", 2.0)]
            .into_iter()
            .flat_map(|(peer, seconds)| [1000, 2000].map(|records| (peer, records, seconds)))
            .map(|(peer, records, seconds)| restart::Row {
                media: MediaChoice::Pm,
                peer: peer.into(),
                records,
                cold: false,
                seconds: Summary::of([seconds, seconds * 1.1]).unwrap(),
            })
            .collect();
        let plots = draw(dir.path(), &results).unwrap();
        let files: Vec<&str> = plots.iter().map(|plot| &*plot.file).collect();
        assert_eq!(files, ["throughput-pm.svg", "latency-pm.svg", "cpu-pm.svg", "restart-pm.svg"]);
        let text = std::fs::read_to_string(dir.path().join("throughput-pm.svg")).unwrap();
        ["landfall", "always", "no AOF"].iter().for_each(|name| assert!(text.contains(name), "{name}"));
        let text = std::fs::read_to_string(dir.path().join("restart-pm.svg")).unwrap();
        assert!(text.contains("<polyline") && text.contains("redis always"));
    }

    #[test]
    fn names_are_short_under_bars() {
        assert_eq!(short_name("redis, no AOF"), "no AOF");
        assert_eq!(short_name("redis always"), "always");
        assert_eq!(short_name("landfall"), "landfall");
        assert_eq!(short_name(crate::peers::names::DISCARD), "discarding");
    }
}
