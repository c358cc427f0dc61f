//! Bars beside each other, each with its name below it.

use super::{COLORS, short};
use crate::common::error::BenchError;
use crate::common::measure::stats::Summary;
use crate::common::peers::names;
use plotters::coord::Shift;
use plotters::prelude::*;
use std::path::Path;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

/// Width of a panel, pixels.
const PANEL_WIDTH: u32 = 380;
const PANEL_HEIGHT: u32 = 300;
const COLUMNS_MAX: usize = 4;

/// Bars beside each other, with one scale.
pub(crate) struct Panel {
    pub(crate) title: String,
    pub(crate) bars: Vec<(String, Summary)>,
}

/// Draws panels beside and below each other.
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
    let colors = colors_of(panel);
    for (index, ((peer, value), color)) in panel.bars.iter().zip(colors).enumerate() {
        let left = index as f64;
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

/// A color for each bar, none of them twice.
fn colors_of(panel: &Panel) -> Vec<RGBColor> {
    let mut taken: Vec<RGBColor> = Vec::new();
    for (name, _) in &panel.bars {
        let free = |color: &RGBColor| !taken.contains(color);
        let color = known_color(name).filter(free).or_else(|| COLORS.iter().copied().find(free));
        taken.push(color.unwrap_or(BLACK));
    }
    taken
}

/// One color for a server in every plot.
fn known_color(name: &str) -> Option<RGBColor> {
    Some(match name {
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
        _ => return None,
    })
}

/// A name that fits under a bar.
fn short_name(peer: &str) -> String {
    let peer = peer.strip_prefix("landfall, ").unwrap_or(peer);
    peer.trim_start_matches("redis").trim_start_matches([',', ' ']).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_color_stands_for_two_bars() {
        let bar = |name: &str| (name.to_owned(), Summary::of([1.0]).unwrap());
        let names = ["memory", "PMNet", "uniform", "Zipf", names::LANDFALL, names::REDIS_NONE];
        let panel = Panel { title: String::new(), bars: names.map(bar).into() };
        let colors: std::collections::BTreeSet<_> =
            colors_of(&panel).into_iter().map(|color| (color.0, color.1, color.2)).collect();
        assert_eq!(colors.len(), names.len());
    }

    #[test]
    fn names_are_short_under_bars() {
        assert_eq!(short_name("redis, no AOF"), "no AOF");
        assert_eq!(short_name("redis always"), "always");
        assert_eq!(short_name("landfall"), "landfall");
        assert_eq!(short_name(names::DISCARD), "discarding");
    }
}
