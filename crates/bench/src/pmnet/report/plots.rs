//! The plots.

use super::judge::update_mean;
use super::{Results, paper};
use crate::common::error::BenchError;
use crate::common::measure::stats::Summary;
use crate::common::plots::Plot;
use crate::common::plots::bars::{Panel, bars};
use crate::common::plots::chart::{Axis, Chart, Line, Stack, draw_chart, draw_stacks};
use crate::pmnet::app::App;
use crate::pmnet::breakdown::{self, PARTS};
use crate::pmnet::choices::{LARGE_PAYLOAD, PAYLOAD, app, key_value};
use crate::pmnet::compare::{PERCENTILES, Row, find};
use crate::pmnet::design::{Design, PMNET, PMNET_3, PMNET_CACHE, PMNET_FILE, Spec, Waits};
use crate::pmnet::sections::{FIGURE_16, FIGURE_20, copies, replicated};
use std::path::Path;

/// Draws every plot that there is data for.
pub(super) fn draw(out: &Path, results: &Results) -> Result<Vec<Plot>, BenchError> {
    let mut plots = Vec::new();
    let mut charts =
        Vec::from([Waits::Block, Waits::Polls, Waits::Spin].map(|waits| figure_15(results, waits)));
    charts.push(figure_16(results));
    charts.extend([1, results.settings.app_clients].map(|clients| figure_19(results, clients)));
    for it in key_value(&results.settings.apps) {
        charts.extend(FIGURE_20.map(|updates| figure_20(results, it, updates)));
    }
    for mut chart in charts {
        chart.lines.retain(|line| !line.points.is_empty());
        if chart.lines.is_empty() || plots.iter().any(|plot: &Plot| plot.file == chart.file) {
            continue;
        }
        draw_chart(&out.join(&chart.file), &chart)?;
        plots.push(Plot { title: chart.title, file: chart.file });
    }
    plots.splice(0..0, figure_2(out, results)?);
    let of_bars = [
        ("figure-18.svg", "Figure 18: update latency, µs", figure_18(results)),
        ("figure-21.svg", "Figure 21: mean update latency over client-server", figure_21(results)),
        ("figure-22.svg", "Figure 22: updates a second", figure_22(results)),
        ("recovery.svg", "Recovery: µs an update", recovery(results)),
    ];
    for (file, title, panels) in of_bars {
        if !panels.is_empty() {
            bars(&out.join(file), &panels)?;
            plots.push(Plot { title: title.into(), file: file.into() });
        }
    }
    Ok(plots)
}

fn word(waits: Waits) -> &'static str {
    match waits {
        Waits::Block => "waiting",
        Waits::Polls => "polling",
        Waits::Spin => "spinning",
    }
}

fn line(name: String, points: impl Iterator<Item = Option<(f64, Summary)>>) -> Line {
    Line { name, points: points.flatten().collect() }
}

fn figure_2(out: &Path, results: &Results) -> Result<Option<Plot>, BenchError> {
    if results.breakdown.is_empty() {
        return Ok(None);
    }
    let share = |row: &breakdown::Row, part| row.share(part).map_or(0.0, |share| share.median);
    let stack = |row: &breakdown::Row| Stack {
        name: row.app.name().into_owned(),
        parts: (0..PARTS.len()).map(|part| share(row, part)).collect(),
    };
    let stacks: Vec<Stack> = results.breakdown.iter().map(stack).collect();
    let title = "Figure 2: where an update\u{2019}s time goes without PMNet, %";
    let file = "figure-2.svg";
    draw_stacks(&out.join(file), title, &PARTS, &stacks)?;
    Ok(Some(Plot { title: title.into(), file: file.into() }))
}

fn figure_15(results: &Results, waits: Waits) -> Chart {
    let how = word(waits);
    let designs =
        [Design::ClientServer, PMNET, Design::Direct, Design::Tcp, Design::Bypass, Design::Nic, PMNET_FILE];
    let of = |design: Design| {
        let points = results.settings.sizes.iter().map(move |size| {
            let row = find(&results.rows, Spec::ideal(design, waits, *size))?;
            Some((*size as f64, row.p50_us.clone()))
        });
        line(design.name(), points)
    };
    let title =
        format!("Figure 15, {how}: update latency by payload, µs (paper: 2.83 × at 50 B, 2.19 × at 1000 B)");
    Chart {
        file: format!("figure-15-{how}.svg"),
        title,
        x: Axis::of("bytes"),
        y: Axis::of(""),
        lines: designs.map(of).into(),
        band: None,
    }
}

fn figure_16(results: &Results) -> Chart {
    let of = |design: Design| {
        let points = results.settings.clients.iter().map(move |clients| {
            let spec = Spec::ideal(design, Waits::Block, LARGE_PAYLOAD).by(*clients);
            let row = find(&results.rows, spec)?;
            Some((row.rps.median * (LARGE_PAYLOAD * 8) as f64 / 1e9, row.mean_us.clone()))
        });
        line(design.name(), points)
    };
    let title = "Figure 16: mean latency by bandwidth, µs".to_owned();
    let lines = FIGURE_16.map(of).into();
    Chart {
        file: "figure-16.svg".into(),
        title,
        x: Axis::of("Gbit/s of payload"),
        y: Axis::of(""),
        lines,
        band: None,
    }
}

fn figure_19(results: &Results, clients: usize) -> Chart {
    let of = |it: App| {
        let points = results.settings.ratios.iter().map(move |updates| {
            let row = |design| find(&results.rows, app(it, design, *updates, clients));
            let faster = row(PMNET)?.rps.over(&row(Design::ClientServer)?.rps)?;
            Some((f64::from(*updates), faster))
        });
        line(it.name().into_owned(), points)
    };
    let title = format!(
        "Figure 19, {clients} client(s): throughput over client-server (paper: {} at 100 %)",
        paper::FIGURE_19
    );
    let mut lines: Vec<Line> = results.settings.apps.iter().map(|choice| of(choice.app())).collect();
    if lines.iter().any(|line| !line.points.is_empty()) {
        let paper = Summary::of([paper::FIGURE_19]).map(|mean| (100.0, mean));
        lines.push(line("the paper\u{2019}s mean".into(), [paper].into_iter()));
    }
    let (x, y) = (Axis::of("updates, %"), Axis::ratios(""));
    Chart { file: format!("figure-19-{clients}.svg"), title, x, y, lines, band: None }
}

/// Returns the latency distribution with the axes of the paper: latency on x, share of requests on y.
fn figure_20(results: &Results, it: App, updates: u32) -> Chart {
    let of = |design: Design| {
        let row = find(&results.rows, app(it, design, updates, 1));
        let points = row.into_iter().flat_map(|row: &Row| {
            PERCENTILES
                .iter()
                .zip(&row.distribution)
                .map(|(percent, us)| Some((us.median, Summary::of([*percent])?)))
        });
        line(design.name(), points)
    };
    let name = it.name().replace(' ', "-");
    let title = format!("Figure 20, {}, {updates} % updates: share of requests by latency, %", it.name());
    let lines = [Design::ClientServer, PMNET, PMNET_CACHE].map(of).into();
    Chart {
        file: format!("figure-20-{name}-{updates}.svg"),
        title,
        x: Axis::of("µs"),
        y: Axis::of(""),
        lines,
        band: None,
    }
}

fn panel(title: &str, of: Vec<(String, Option<Summary>)>) -> Option<Panel> {
    let bars: Vec<_> = of.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
    (!bars.is_empty()).then(|| Panel { title: title.into(), bars })
}

fn figure_18(results: &Results) -> Vec<Panel> {
    let of = |design, waits| {
        find(&results.rows, Spec::ideal(design, waits, PAYLOAD)).map(|row| row.p50_us.clone())
    };
    let logs = |copies, ours: Design, waits| {
        let designs = [
            ("client log", Design::ClientLog { copies }),
            ("server log", Design::ServerLog { copies }),
            ("PMNet", ours),
        ];
        designs.map(|(name, design)| (name.to_owned(), of(design, waits))).to_vec()
    };
    let measured = [
        panel("one copy, waiting", logs(1, PMNET, Waits::Block)),
        panel("one copy, device polls", logs(1, PMNET, Waits::Polls)),
        panel("one copy, spinning", logs(1, PMNET, Waits::Spin)),
        panel("three copies, waiting", logs(3, PMNET_3, Waits::Block)),
    ];
    // The figure compares loggers: without one there is nothing to compare.
    if !results
        .rows
        .iter()
        .any(|row| matches!(row.spec.design, Design::ClientLog { .. } | Design::ServerLog { .. }))
    {
        return Vec::new();
    }
    let papers = [0, 1].map(|at| {
        let values = [
            ("client log", paper::CLIENT_LOG[at]),
            ("server log", paper::SERVER_LOG[at]),
            ("PMNet", paper::PMNET_LOG[at]),
        ];
        let bars = values.map(|(name, us)| (name.to_owned(), Summary::of([us]))).to_vec();
        panel(if at == 0 { "the paper, one copy" } else { "the paper, three copies" }, bars)
    });
    measured.into_iter().chain(papers).flatten().collect()
}

fn figure_21(results: &Results) -> Vec<Panel> {
    if !results.rows.iter().any(|row| row.spec.design == Design::Replicated) {
        return Vec::new();
    }
    let of = |it: App| {
        let base = find(&results.rows, copies(it, Design::ClientServer))?;
        let designs = [("3 servers", Design::Replicated), ("1 device", PMNET), ("3 devices", PMNET_3)];
        let bars = designs.map(|(name, design)| {
            let row = find(&results.rows, copies(it, design));
            (name.to_owned(), row.and_then(|row| update_mean(row).over(update_mean(base))))
        });
        panel(&it.name(), bars.to_vec())
    };
    replicated(&results.settings.apps).filter_map(of).collect()
}

fn figure_22(results: &Results) -> Vec<Panel> {
    let of = |waits| {
        let bar = |name: &str, design| {
            let row = find(&results.rows, Spec::ideal(design, waits, PAYLOAD));
            (name.to_owned(), row.map(|row| row.rps.clone()))
        };
        panel(
            &format!("1 client, {}", word(waits)),
            vec![bar("client-server", Design::ClientServer), bar("PMNet", PMNET)],
        )
    };
    [Waits::Block, Waits::Polls, Waits::Spin].map(of).into_iter().flatten().collect()
}

fn recovery(results: &Results) -> Vec<Panel> {
    if results.recovery.is_empty() {
        return Vec::new();
    }
    let mut bars = vec![("the paper".to_owned(), Summary::of([paper::REPLAY_US]))];
    let name = |design: Design| if design == PMNET_FILE { "file" } else { "memory" };
    bars.extend(results.recovery.iter().map(|row| (name(row.design).to_owned(), Some(row.us.clone()))));
    panel("µs an update", bars).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::draw;
    use crate::common::plots::chart::NAME_MAX;
    use crate::common::plots::colors::COLORS;
    use crate::pmnet::args::AppChoice;
    use crate::pmnet::breakdown::PARTS;
    use crate::pmnet::design::{Design, PMNET_CACHE, PMNET_FILE};
    use crate::pmnet::report::tests::sample;
    use clap::ValueEnum;

    #[test]
    fn a_legend_holds_the_longest_names() {
        let apps = AppChoice::value_variants().iter().map(|choice| choice.app().name().into_owned());
        let designs =
            [Design::ClientServer, Design::Tcp, Design::Nic, PMNET_FILE, PMNET_CACHE].map(Design::name);
        let parts = PARTS.map(str::to_owned);
        for name in apps.chain(designs).chain(parts) {
            assert!(name.chars().count() <= NAME_MAX, "{name}");
        }
        // Figure 19 shows all applications and the paper's mean.
        assert!(AppChoice::value_variants().len() < COLORS.len());
    }

    #[test]
    fn each_plot_has_its_lines_and_bars_beside_the_papers() {
        let dir = tempfile::tempdir().unwrap();
        let plots = draw(dir.path(), &sample()).unwrap();
        let files: std::collections::BTreeSet<&str> = plots.iter().map(|plot| &*plot.file).collect();
        assert_eq!(files.len(), plots.len());
        let text = |file: &str| std::fs::read_to_string(dir.path().join(file)).unwrap();
        let cdf = text("figure-20-redis-50.svg");
        assert!(
            cdf.contains("client-server")
                && cdf.contains("PMNet with read cache")
                && cdf.contains("<polyline")
        );
        assert!(text("figure-18.svg").contains("the paper, three copies"));
        assert!(text("recovery.svg").contains("the paper"));
    }

    #[test]
    fn nothing_measured_draws_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let mut results = sample();
        (results.breakdown, results.rows, results.recovery, results.model) = Default::default();
        assert!(draw(dir.path(), &results).unwrap().is_empty());
    }
}
