//! Lines, and stacked bars, with their legend beside what they show: never over it.

use super::{COLORS, short};
use crate::common::error::BenchError;
use crate::common::measure::stats::Summary;
use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, Ranged, ValueFormatter};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use std::path::Path;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

const SIZE: (u32, u32) = (800, 400);
const TITLE_HEIGHT: u32 = 28;
/// Room for the longest name of a series.
const LEGEND_WIDTH: u32 = 190;
/// From one name of a legend to the next.
const LEGEND_STEP: u32 = 20;
/// A legend's stroke, and the gap behind it.
const STROKE_WIDTH: i32 = 18;
/// Room for the names in front of stacked bars.
const NAMES_WIDTH: u32 = 130;
/// Of an axis, at most: more would touch each other where it is logarithmic.
const Y_LABELS: usize = 7;
const FONT: (&str, u32) = ("sans-serif", 12);

/// A line: a name, and points with their spread.
pub(crate) struct Line {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, Summary)>,
}

/// What an axis shows, and its scale.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Axis {
    name: &'static str,
    is_log: bool,
}

impl Axis {
    pub(crate) const fn linear(name: &'static str) -> Self {
        Self { name, is_log: false }
    }

    /// Ratios, and times of all magnitudes.
    pub(crate) const fn log(name: &'static str) -> Self {
        Self { name, is_log: true }
    }
}

/// Pixels of the widest letters.
#[cfg(test)]
const LETTER_WIDTH: u32 = 7;
/// Letters that the name of a series may have.
#[cfg(test)]
pub(crate) const NAME_MAX: usize =
    ((LEGEND_WIDTH - STROKE_WIDTH.unsigned_abs() - 10) / LETTER_WIDTH) as usize;

/// Lines and their axes.
pub(crate) struct Chart {
    pub(crate) file: String,
    pub(crate) title: String,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    pub(crate) lines: Vec<Line>,
}

/// Part of a picture, pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Region {
    left: u32,
    top: u32,
    width: u32,
    height: u32,
}

/// Where a chart's parts are.
#[derive(Clone, Copy, Debug)]
struct Layout {
    title: Region,
    /// Axes and data.
    plot: Region,
    legend: Region,
}

impl Layout {
    const fn new() -> Self {
        let (width, height) = SIZE;
        let below = height - TITLE_HEIGHT;
        let plot_width = width - LEGEND_WIDTH;
        Self {
            title: Region { left: 0, top: 0, width, height: TITLE_HEIGHT },
            plot: Region { left: 0, top: TITLE_HEIGHT, width: plot_width, height: below },
            legend: Region { left: plot_width, top: TITLE_HEIGHT, width: LEGEND_WIDTH, height: below },
        }
    }
}

fn part<'a>(root: &Area<'a>, region: Region) -> Area<'a> {
    root.clone().shrink((region.left, region.top), (region.width, region.height))
}

fn color_of(series: usize) -> RGBColor {
    COLORS[series % COLORS.len()]
}

fn picture(path: &Path, title: &str, draw: impl FnOnce(&Area<'_>) -> Drawn) -> Result<(), BenchError> {
    let draw = || -> Drawn {
        let root = SVGBackend::new(path, SIZE).into_drawing_area();
        root.fill(&WHITE)?;
        part(&root, Layout::new().title).draw(&Text::new(title.to_owned(), (12, 10), FONT.into_font()))?;
        draw(&root)?;
        root.present()?;
        Ok(())
    };
    draw().map_err(|error| BenchError::Plot { path: path.into(), message: error.to_string() })
}

/// Draws lines.
pub(crate) fn draw_chart(path: &Path, chart: &Chart) -> Result<(), BenchError> {
    picture(path, &chart.title, |root| {
        let layout = Layout::new();
        lines(&part(root, layout.plot), chart)?;
        let names: Vec<&str> = chart.lines.iter().map(|line| &*line.name).collect();
        legend(&part(root, layout.legend), &names)
    })
}

/// A stroke in its color and a name, for each series.
fn legend(area: &Area<'_>, names: &[&str]) -> Drawn {
    for (series, name) in names.iter().enumerate() {
        let y = (series as u32 * LEGEND_STEP + LEGEND_STEP).cast_signed();
        area.draw(&PathElement::new([(4, y), (4 + STROKE_WIDTH, y)], color_of(series).stroke_width(3)))?;
        area.draw(&Text::new((*name).to_owned(), (STROKE_WIDTH + 10, y - 6), FONT.into_font()))?;
    }
    Ok(())
}

/// The span of an axis: from nothing to a little beyond the largest, or from a little below the smallest where it is logarithmic.
fn span(axis: Axis, values: impl Iterator<Item = f64> + Clone) -> std::ops::Range<f64> {
    let largest = values.clone().fold(f64::MIN_POSITIVE, f64::max);
    if axis.is_log {
        let smallest = values.filter(|value| *value > 0.0).fold(largest, f64::min);
        return smallest / 1.2..largest * 1.2;
    }
    0.0..largest * 1.06
}

fn lines(area: &Area<'_>, chart: &Chart) -> Drawn {
    let values = || chart.lines.iter().flat_map(|line| &line.points);
    let x = span(chart.x, values().map(|(at, _)| *at));
    let y = span(chart.y, values().flat_map(|(_, value)| [value.min, value.max]));
    match (chart.x.is_log, chart.y.is_log) {
        (false, false) => on_axes(area, chart, x, y),
        (false, true) => on_axes(area, chart, x, y.log_scale()),
        (true, false) => on_axes(area, chart, x.log_scale(), y),
        (true, true) => on_axes(area, chart, x.log_scale(), y.log_scale()),
    }
}

/// Medians as lines with a dot at each point, smallest to largest as bars across them.
fn on_axes<X, Y>(area: &Area<'_>, chart: &Chart, x: X, y: Y) -> Drawn
where
    X: AsRangedCoord<Value = f64>,
    Y: AsRangedCoord<Value = f64>,
    X::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
    Y::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    let mut drawn = ChartBuilder::on(area)
        .margin(10)
        .y_label_area_size(52)
        .x_label_area_size(36)
        .build_cartesian_2d(x, y)?;
    let label = |value: &f64| short(*value);
    drawn
        .configure_mesh()
        .x_desc(chart.x.name)
        .y_desc(chart.y.name)
        .y_labels(Y_LABELS)
        .light_line_style(TRANSPARENT)
        .x_label_formatter(&label)
        .y_label_formatter(&label)
        .draw()?;
    for (series, line) in chart.lines.iter().enumerate() {
        let color = color_of(series);
        let points = || line.points.iter().map(|(at, value)| (*at, value.median));
        drawn.draw_series(LineSeries::new(points(), color.stroke_width(2)))?;
        drawn.draw_series(points().map(|point| Circle::new(point, 3, color.filled())))?;
        let spreads = line.points.iter().filter(|(_, value)| value.samples.len() > 1).map(|(at, value)| {
            ErrorBar::new_vertical(*at, value.min, value.median, value.max, color.stroke_width(1), 6)
        });
        drawn.draw_series(spreads)?;
    }
    Ok(())
}

/// A bar: a name, and parts of a hundred, one for each series.
pub(crate) struct Stack {
    pub(crate) name: String,
    pub(crate) parts: Vec<f64>,
}

/// Draws one bar below the other.
pub(crate) fn draw_stacks(
    path: &Path,
    title: &str,
    series: &[&str],
    stacks: &[Stack],
) -> Result<(), BenchError> {
    picture(path, title, |root| {
        let layout = Layout::new();
        bars_of_parts(&part(root, layout.plot), stacks)?;
        legend(&part(root, layout.legend), series)
    })
}

fn bars_of_parts(area: &Area<'_>, stacks: &[Stack]) -> Drawn {
    let count = stacks.len() as f64;
    // The first one on top.
    let mut chart: ChartContext<'_, _, Cartesian2d<RangedCoordf64, RangedCoordf64>> = ChartBuilder::on(area)
        .margin(10)
        .y_label_area_size(NAMES_WIDTH)
        .x_label_area_size(30)
        .build_cartesian_2d(0.0..100.0, count..0.0)?;
    let label = |value: &f64| format!("{value:.0} %");
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .disable_y_mesh()
        .disable_y_axis()
        .x_labels(11)
        .x_label_formatter(&label)
        .draw()?;
    for (row, stack) in stacks.iter().enumerate() {
        let (top, mut left) = (row as f64, 0.0);
        for (series, width) in stack.parts.iter().enumerate() {
            let ends = [(left, top + 0.15), (left + width, top + 0.85)];
            chart.draw_series([Rectangle::new(ends, color_of(series).filled())])?;
            left += width;
        }
        let (x, y) = chart.backend_coord(&(0.0, top + 0.5));
        let (origin_x, origin_y) = area.get_base_pixel();
        let at = (x - origin_x - NAMES_WIDTH.cast_signed(), y - origin_y - 6);
        area.draw(&Text::new(stack.name.clone(), at, FONT.into_font()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn overlap(a: Region, b: Region) -> bool {
        let cross = |(a, a_len): (u32, u32), (b, b_len): (u32, u32)| a < b + b_len && b < a + a_len;
        cross((a.left, a.width), (b.left, b.width)) && cross((a.top, a.height), (b.top, b.height))
    }

    fn chart(y: Axis, series: usize) -> Chart {
        let point = |at: f64, value: f64| (at, Summary::of([value, value * 2.0]).unwrap());
        let line = |series: usize| Line {
            name: format!("series {series}"),
            points: vec![point(25.0, 0.5 * (series + 1) as f64), point(100.0, 40.0 * (series + 1) as f64)],
        };
        let lines = (0..series).map(line).collect();
        Chart { file: String::new(), title: "title".into(), x: Axis::linear("x"), y, lines }
    }

    fn drawn(chart: &Chart) -> String {
        let file = tempfile::NamedTempFile::new().unwrap();
        draw_chart(file.path(), chart).unwrap();
        std::fs::read_to_string(file.path()).unwrap()
    }

    /// Columns and rows of the points of every line that is drawn.
    fn points(svg: &str) -> Vec<(u32, u32)> {
        let lists = svg.split("points=\"").skip(1).filter_map(|rest| rest.split('"').next());
        let point = |text: &str| {
            let (x, y) = text.split_once(',')?;
            Some((x.trim().parse().ok()?, y.trim().parse().ok()?))
        };
        lists.flat_map(|list| list.split_whitespace().filter_map(point).collect::<Vec<_>>()).collect()
    }

    #[test]
    fn no_part_of_a_picture_lies_over_another() {
        let Layout { title, plot, legend } = Layout::new();
        assert!(!overlap(title, plot) && !overlap(title, legend) && !overlap(plot, legend));
        let within =
            |region: Region| region.left + region.width <= SIZE.0 && region.top + region.height <= SIZE.1;
        assert!(within(title) && within(plot) && within(legend));
    }

    #[test]
    fn a_legend_holds_as_many_names_as_there_are_colors() {
        assert!(COLORS.len() as u32 * LEGEND_STEP + LEGEND_STEP / 2 <= Layout::new().legend.height);
    }

    #[test]
    fn every_series_has_a_color_of_its_own() {
        let colors: BTreeSet<(u8, u8, u8)> = COLORS.iter().map(|color| (color.0, color.1, color.2)).collect();
        assert_eq!(colors.len(), COLORS.len());
    }

    #[test]
    fn data_stay_out_of_the_legend_and_the_legend_out_of_the_data() {
        let Layout { plot, legend, .. } = Layout::new();
        for y in [Axis::linear("y"), Axis::log("y")] {
            let svg = drawn(&chart(y, 5));
            let (of_data, of_legend): (Vec<_>, Vec<_>) =
                points(&svg).into_iter().partition(|(x, _)| *x < legend.left);
            assert!(
                of_data.iter().all(|(x, y)| *x <= plot.left + plot.width && *y >= plot.top),
                "{of_data:?}"
            );
            assert_eq!(of_legend.len(), 2 * 5, "a stroke for each series: {of_legend:?}");
        }
    }

    #[test]
    fn equal_ratios_are_equal_distances_on_a_logarithmic_axis() {
        let axis = |is_log| if is_log { Axis::log("y") } else { Axis::linear("y") };
        // 0.5 to 1 and 40 to 80 have equal ratios.
        let gaps = |is_log| {
            let svg = drawn(&chart(axis(is_log), 2));
            let circles = svg
                .split("<circle")
                .skip(1)
                .filter_map(|rest| rest.split("cy=\"").nth(1)?.split('"').next()?.parse::<i32>().ok());
            let rows: Vec<i32> = circles.collect();
            // Of each series two dots, and two more in the middle of their spreads.
            assert_eq!(rows.len(), 8);
            [(rows[0] - rows[4]).abs(), (rows[1] - rows[5]).abs()]
        };
        let [small, large] = gaps(true);
        assert!(small.abs_diff(large) <= 1 && small > 10, "{small} {large}");
        let [small, large] = gaps(false);
        assert!(large > 10 * small.max(1), "{small} {large}");
    }

    #[test]
    fn parts_of_a_bar_are_beside_each_other() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let stacks = [Stack { name: "one".into(), parts: vec![25.0, 75.0] }];
        draw_stacks(file.path(), "title", &["a", "b"], &stacks).unwrap();
        let svg = std::fs::read_to_string(file.path()).unwrap();
        let number = |text: &str, name: &str| -> u32 {
            text.split(&format!("{name}=\"")).nth(1).unwrap().split('"').next().unwrap().parse().unwrap()
        };
        let bars: Vec<(u32, u32)> =
            svg.split("<rect").skip(2).map(|rest| (number(rest, "x"), number(rest, "width"))).collect();
        assert_eq!(bars.len(), 2, "{svg}");
        assert!(bars[1].0.abs_diff(bars[0].0 + bars[0].1) <= 1, "{bars:?}");
        assert!((bars[1].1).abs_diff(bars[0].1 * 3) <= 3, "{bars:?}");
    }
}
