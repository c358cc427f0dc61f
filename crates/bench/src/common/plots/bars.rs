//! Bars beside each other, each with its name below it.

use super::colors::colors_of;
use super::scale::{Scale, Ticks};
use crate::common::error::BenchError;
use crate::common::measure::stats::Summary;
use plotters::coord::Shift;
use plotters::coord::combinators::BindKeyPoints;
use plotters::coord::ranged1d::{AsRangedCoord, Ranged, ValueFormatter};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use std::path::Path;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

/// Width of a panel, pixels.
const PANEL_WIDTH: u32 = 380;
const PANEL_HEIGHT: u32 = 300;
const COLUMNS_MAX: usize = 4;
/// The largest number of labels on a linear axis.
const Y_LABELS: usize = 5;
/// Room above the highest bar: a factor.
const HEADROOM: f64 = 1.1;
/// How far below the smallest value a logarithmic axis begins, so that the smallest bar can be seen: a factor.
const FOOT: f64 = 2.0;

/// Bars that share one scale.
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

fn bar_panel(area: &Area<'_>, panel: &Panel) -> Drawn {
    let values = panel.bars.iter().flat_map(|(_, value)| [value.min, value.max]);
    let scale = Scale::of(values.clone());
    let mut span = scale.span(values);
    span.end *= HEADROOM;
    match scale {
        Scale::Linear => {
            let ticks = scale.ticks(&span, Y_LABELS);
            bars_on(area, (panel, &panel.title), &ticks, (span.start, 0.0), span)
        }
        Scale::Log => {
            span.start /= FOOT;
            let title = format!("{}, logarithmic", panel.title);
            let ticks = scale.ticks(&span, Y_LABELS);
            let y = span.clone().log_scale().with_key_points(ticks.points.clone());
            bars_on(area, (panel, &title), &ticks, (span.start, span.start), y)
        }
    }
}

/// Draws the median as a bar that stands on `foot`, and the smallest to the largest sample as a line across its end.
/// The axis begins at `bottom`, which is below the foot if a sample is negative.
fn bars_on<Y>(
    area: &Area<'_>,
    (panel, title): (&Panel, &str),
    ticks: &Ticks,
    (bottom, foot): (f64, f64),
    y: Y,
) -> Drawn
where
    Y: AsRangedCoord<Value = f64>,
    Y::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    let count = panel.bars.len() as f64;
    let mut chart: ChartContext<'_, _, Cartesian2d<RangedCoordf64, Y::CoordDescType>> =
        ChartBuilder::on(area)
            .caption(title, ("sans-serif", 13))
            .margin(8)
            .y_label_area_size(52)
            .x_label_area_size(22)
            .build_cartesian_2d(0.0..count, y)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .disable_x_axis()
        .y_labels(Y_LABELS)
        .light_line_style(TRANSPARENT)
        .y_label_formatter(&|value| ticks.label(*value))
        .draw()?;
    let names: Vec<&str> = panel.bars.iter().map(|(name, _)| &**name).collect();
    for (index, ((name, value), color)) in panel.bars.iter().zip(colors_of(&names)?).enumerate() {
        let left = index as f64;
        let bar = Rectangle::new([(left + 0.15, foot), (left + 0.85, value.median)], color.filled());
        chart.draw_series([bar])?;
        let spread =
            ErrorBar::new_vertical(left + 0.5, value.min, value.median, value.max, BLACK.stroke_width(1), 8);
        chart.draw_series([spread])?;
        let style = ("sans-serif", 11).into_font().color(&BLACK);
        let (x, y) = chart.backend_coord(&(left + 0.12, bottom));
        let (origin_x, origin_y) = area.get_base_pixel();
        area.draw(&Text::new(short_name(name), (x - origin_x, y - origin_y + 6), style))?;
    }
    Ok(())
}

/// Returns a name that fits under a bar.
fn short_name(peer: &str) -> String {
    let peer = peer.strip_prefix("landfall, ").unwrap_or(peer);
    peer.trim_start_matches("redis").trim_start_matches([',', ' ']).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::peers::names;

    /// Heights of the bars of a panel, pixels.
    fn heights(values: &[f64]) -> Vec<u32> {
        let bar = |(at, value): (usize, &f64)| (format!("bar {at}"), Summary::of([*value]).unwrap());
        let panel = Panel { title: String::new(), bars: values.iter().enumerate().map(bar).collect() };
        let file = tempfile::NamedTempFile::new().unwrap();
        bars(file.path(), &[panel]).unwrap();
        let svg = std::fs::read_to_string(file.path()).unwrap();
        let height = |rest: &str| rest.split("height=\"").nth(1)?.split('"').next()?.parse().ok();
        // The first rectangle is the background.
        svg.split("<rect").skip(2).filter_map(height).collect()
    }

    #[test]
    fn a_bar_a_thousand_times_smaller_than_its_neighbor_can_be_seen() {
        let heights = heights(&[1.0, 1000.0]);
        assert!(heights[0] >= 10 && heights[0] < heights[1], "{heights:?}");
    }

    #[test]
    fn bars_within_a_decade_are_as_long_as_their_values() {
        let heights = heights(&[1.0, 4.0]);
        assert!((heights[0] * 4).abs_diff(heights[1]) <= 4, "{heights:?}");
    }

    #[test]
    fn names_are_short_under_bars() {
        assert_eq!(short_name("redis, no AOF"), "no AOF");
        assert_eq!(short_name("redis always"), "always");
        assert_eq!(short_name("landfall"), "landfall");
        assert_eq!(short_name(names::DISCARD), "discarding");
    }
}
