//! Lines and stacked bars. The legend lies beside the data, never over them.

use super::colors::colors_of;
use super::scale::{Scale, Ticks};
use crate::common::error::BenchError;
use crate::common::measure::stats::Summary;
use plotters::coord::Shift;
use plotters::coord::combinators::BindKeyPoints;
use plotters::coord::ranged1d::{AsRangedCoord, Ranged, ValueFormatter};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use std::ops::Range;
use std::path::Path;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

const SIZE: (u32, u32) = (800, 400);
const TITLE_HEIGHT: u32 = 28;
/// Pixels for the longest name of a series.
const LEGEND_WIDTH: u32 = 190;
/// Pixels from one name of a legend to the next.
const LEGEND_STEP: u32 = 20;
/// Pixels of a legend's stroke and of the gap behind it.
const STROKE_WIDTH: i32 = 18;
/// Pixels for the names in front of stacked bars.
const NAMES_WIDTH: u32 = 130;
/// The largest numbers of labels on linear axes.
const X_LABELS: usize = 11;
const Y_LABELS: usize = 7;
const FONT: (&str, u32) = ("sans-serif", 12);
const BAND_COLOR: RGBColor = RGBColor(213, 94, 0);
const BAND_OPACITY: f64 = 0.15;

/// A line: a name, and points with their spread.
pub(crate) struct Line {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, Summary)>,
}

/// What an axis shows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Axis {
    name: &'static str,
    /// The scale, if it does not follow from the values.
    fixed: Option<Scale>,
}

impl Axis {
    /// An axis whose scale follows from its values: logarithmic if they span more than a decade.
    pub(crate) const fn of(name: &'static str) -> Self {
        Self { name, fixed: None }
    }

    /// An axis that is linear whatever the values are.
    pub(crate) const fn linear(name: &'static str) -> Self {
        Self { name, fixed: Some(Scale::Linear) }
    }

    /// An axis for ratios. It is always logarithmic, so that twice and half are equally far from one.
    pub(crate) const fn ratios(name: &'static str) -> Self {
        Self { name, fixed: Some(Scale::Log) }
    }

    fn scale(self, values: impl Iterator<Item = f64> + Clone) -> Scale {
        self.fixed.unwrap_or_else(|| Scale::of(values))
    }
}

/// Pixels of a wide letter.
#[cfg(test)]
const LETTER_WIDTH: u32 = 7;
/// The largest number of letters in the name of a series.
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
    /// A range of `y` that is shaded behind the lines, such as what the paper found.
    pub(crate) band: Option<(f64, f64)>,
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
        let names: Vec<&str> = chart.lines.iter().map(|line| &*line.name).collect();
        let colors = colors_of(&names)?;
        lines(&part(root, layout.plot), chart, &colors)?;
        legend(&part(root, layout.legend), &names, &colors)
    })
}

/// Draws a stroke in its color and a name for each series.
fn legend(area: &Area<'_>, names: &[&str], colors: &[RGBColor]) -> Drawn {
    for (series, (name, color)) in names.iter().zip(colors).enumerate() {
        let y = (series as u32 * LEGEND_STEP + LEGEND_STEP).cast_signed();
        area.draw(&PathElement::new([(4, y), (4 + STROKE_WIDTH, y)], color.stroke_width(3)))?;
        area.draw(&Text::new((*name).to_owned(), (STROKE_WIDTH + 10, y - 6), FONT.into_font()))?;
    }
    Ok(())
}

fn lines(area: &Area<'_>, chart: &Chart, colors: &[RGBColor]) -> Drawn {
    let points = || chart.lines.iter().flat_map(|line| &line.points);
    let at = points().map(|(at, _)| *at);
    let band = chart.band.into_iter().flat_map(|(low, high)| [low, high]);
    let values = points().flat_map(|(_, value)| [value.min, value.max]).chain(band);
    let scales = (chart.x.scale(at.clone()), chart.y.scale(values.clone()));
    let (x, y) = (scales.0.span(at), scales.1.span(values));
    let ticks = (scales.0.ticks(&x, X_LABELS), scales.1.ticks(&y, Y_LABELS));
    let (x_points, y_points) = (ticks.0.points.clone(), ticks.1.points.clone());
    let (width, data) = (x.clone(), (chart, colors));
    match scales {
        (Scale::Linear, Scale::Linear) => {
            let axes = (x, y);
            on_axes(area, data, &ticks, width, axes)
        }
        (Scale::Linear, Scale::Log) => {
            let axes = (x, y.log_scale().with_key_points(y_points));
            on_axes(area, data, &ticks, width, axes)
        }
        (Scale::Log, Scale::Linear) => {
            let axes = (x.log_scale().with_key_points(x_points), y);
            on_axes(area, data, &ticks, width, axes)
        }
        (Scale::Log, Scale::Log) => {
            let axes = (x.log_scale().with_key_points(x_points), y.log_scale().with_key_points(y_points));
            on_axes(area, data, &ticks, width, axes)
        }
    }
}

/// Draws medians as lines with a dot at each point, and the smallest to the largest sample as bars across them.
fn on_axes<X, Y>(
    area: &Area<'_>,
    (chart, colors): (&Chart, &[RGBColor]),
    ticks: &(Ticks, Ticks),
    width: Range<f64>,
    (x, y): (X, Y),
) -> Drawn
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
    drawn
        .configure_mesh()
        .x_desc(chart.x.name)
        .y_desc(chart.y.name)
        .x_labels(X_LABELS)
        .y_labels(Y_LABELS)
        .light_line_style(TRANSPARENT)
        .x_label_formatter(&|value| ticks.0.label(*value))
        .y_label_formatter(&|value| ticks.1.label(*value))
        .draw()?;
    if let Some((low, high)) = chart.band {
        let ends = [(width.start, low), (width.end, high)];
        drawn.draw_series([Rectangle::new(ends, BAND_COLOR.mix(BAND_OPACITY).filled())])?;
    }
    for (line, color) in chart.lines.iter().zip(colors) {
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

/// A stacked bar: a name and the percentage of each series.
pub(crate) struct Stack {
    pub(crate) name: String,
    pub(crate) parts: Vec<f64>,
}

/// Draws stacked bars one below the other. `series` names the parts of each bar, in their order.
pub(crate) fn draw_stacks(
    path: &Path,
    title: &str,
    series: &[&str],
    stacks: &[Stack],
) -> Result<(), BenchError> {
    picture(path, title, |root| {
        let layout = Layout::new();
        let colors = colors_of(series)?;
        bars_of_parts(&part(root, layout.plot), stacks, &colors)?;
        legend(&part(root, layout.legend), series, &colors)
    })
}

fn bars_of_parts(area: &Area<'_>, stacks: &[Stack], colors: &[RGBColor]) -> Drawn {
    let count = stacks.len() as f64;
    // A descending axis puts the first bar on top.
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
        for (width, color) in stack.parts.iter().zip(colors) {
            let ends = [(left, top + 0.15), (left + width, top + 0.85)];
            chart.draw_series([Rectangle::new(ends, color.filled())])?;
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
    use crate::common::plots::colors::COLORS;

    fn overlap(a: Region, b: Region) -> bool {
        let cross = |(a, a_len): (u32, u32), (b, b_len): (u32, u32)| a < b + b_len && b < a + a_len;
        cross((a.left, a.width), (b.left, b.width)) && cross((a.top, a.height), (b.top, b.height))
    }

    const LINEAR: Axis = Axis { name: "linear", fixed: Some(Scale::Linear) };

    fn chart(y: Axis, series: usize) -> Chart {
        let point = |at: f64, value: f64| (at, Summary::of([value, value * 2.0]).unwrap());
        let line = |series: usize| Line {
            name: format!("series {series}"),
            points: vec![point(25.0, 0.5 * (series + 1) as f64), point(100.0, 40.0 * (series + 1) as f64)],
        };
        let lines = (0..series).map(line).collect();
        Chart { file: String::new(), title: "title".into(), x: LINEAR, y, lines, band: None }
    }

    fn drawn(chart: &Chart) -> String {
        let file = tempfile::NamedTempFile::new().unwrap();
        draw_chart(file.path(), chart).unwrap();
        std::fs::read_to_string(file.path()).unwrap()
    }

    /// Returns the column and row of each point of every line of a picture.
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
    fn a_chart_with_more_lines_than_colors_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        draw_chart(file.path(), &chart(Axis::of("y"), COLORS.len())).unwrap();
        let refused = draw_chart(file.path(), &chart(Axis::of("y"), COLORS.len() + 1));
        assert!(matches!(refused, Err(BenchError::Plot { .. })), "{refused:?}");
    }

    #[test]
    fn data_stay_out_of_the_legend_and_the_legend_out_of_the_data() {
        let Layout { plot, legend, .. } = Layout::new();
        for y in [LINEAR, Axis::ratios("y")] {
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
        let axis = |is_log| if is_log { Axis::of("y") } else { LINEAR };
        // 0.5 to 1 and 40 to 80 have equal ratios.
        let gaps = |is_log| {
            let svg = drawn(&chart(axis(is_log), 2));
            let circles = svg
                .split("<circle")
                .skip(1)
                .filter_map(|rest| rest.split("cy=\"").nth(1)?.split('"').next()?.parse::<i32>().ok());
            let rows: Vec<i32> = circles.collect();
            // Each series has two dots, and two more in the middle of their spreads.
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
