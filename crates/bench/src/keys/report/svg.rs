//! The plots.

use super::Results;
use crate::common::error::BenchError;
use crate::common::measure::stats::Summary;
use crate::common::plots::bars::{Panel, bars};
use crate::common::plots::chart::{Axis, Chart, Line, draw_chart};
use crate::common::plots::{PANELS_MAX, Plot};
use crate::keys::args::MediaChoice;
use crate::keys::workloads::{restart, throughput};
use std::path::Path;

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

/// Draws seconds by records, a line for each server.
fn lines(path: &Path, rows: &[&restart::Row]) -> Result<(), BenchError> {
    let line = |(peer, cold): (&str, bool)| {
        let points = rows.iter().filter(|row| (&*row.peer, row.cold) == (peer, cold));
        Line {
            name: if cold { format!("{peer}, cold") } else { peer.to_owned() },
            points: points.map(|row| (row.records as f64, row.seconds.clone())).collect(),
        }
    };
    let chart = Chart {
        file: String::new(),
        title: "restart: seconds by records".into(),
        x: Axis::of("records"),
        y: Axis::of("seconds"),
        lines: series_of(rows).into_iter().map(line).collect(),
        band: None,
    };
    draw_chart(path, &chart)
}

fn series_of<'r>(rows: &[&'r restart::Row]) -> Vec<(&'r str, bool)> {
    let mut series: Vec<(&str, bool)> = rows.iter().map(|row| (&*row.peer, row.cold)).collect();
    series.sort_unstable();
    series.dedup();
    series
}

#[cfg(test)]
mod tests {
    use super::draw;
    use crate::common::measure::stats::Summary;
    use crate::keys::args::MediaChoice;
    use crate::keys::report::tests::sample_results;
    use crate::keys::workloads::restart;

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
}
