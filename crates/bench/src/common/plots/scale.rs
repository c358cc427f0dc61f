//! The scale of an axis follows from what it shows.

use super::short;
use plotters::coord::ranged1d::Ranged;
use plotters::coord::types::RangedCoordf64;
use std::ops::Range;

/// Values that differ by more than this factor are shown on a logarithmic scale: on a linear one the small values would
/// all lie at its foot.
const DECADE: f64 = 10.0;

/// A logarithmic axis with at most so many points has a label at each of them.
const LABELS_MAX: usize = 8;
/// A logarithmic axis with fewer points than this has points at equal distances, as a linear one.
const LOG_POINTS_MIN: usize = 3;

/// How values become distances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scale {
    Linear,
    Log,
}

impl Scale {
    /// Logarithmic for positive values that span more than a decade, linear otherwise.
    pub(crate) fn of(values: impl Iterator<Item = f64> + Clone) -> Self {
        let (smallest, largest) = extremes(values);
        if smallest > 0.0 && largest > smallest * DECADE { Self::Log } else { Self::Linear }
    }

    /// The range of an axis with these values.
    ///
    /// A linear axis begins at zero, or at the smallest value if that is negative. A logarithmic axis begins a little
    /// below the smallest positive value. Both end a little beyond the largest value.
    pub(crate) fn span(self, values: impl Iterator<Item = f64> + Clone) -> Range<f64> {
        match self {
            Self::Log => {
                let (smallest, largest) = extremes(values.filter(|value| *value > 0.0));
                if largest > 0.0 { smallest / 1.2..largest * 1.2 } else { 1.0..DECADE }
            }
            Self::Linear => {
                let (smallest, largest) = extremes(values);
                smallest.min(0.0) * 1.06..largest.max(f64::MIN_POSITIVE) * 1.06
            }
        }
    }

    /// Returns the points of an axis that have grid lines: on a linear axis, at most `linear`.
    pub(crate) fn ticks(self, span: &Range<f64>, linear: usize) -> Ticks {
        let points = if self == Self::Log { log_points(span) } else { Vec::new() };
        if points.len() < LOG_POINTS_MIN {
            let points = RangedCoordf64::from(span.clone()).key_points(linear);
            return Ticks { points, is_sparse: false };
        }
        Ticks { is_sparse: points.len() > LABELS_MAX, points }
    }
}

/// The points of an axis that have grid lines.
#[derive(Clone, Debug)]
pub(crate) struct Ticks {
    pub(crate) points: Vec<f64>,
    /// Whether only 1, 2 and 5 of each decade have labels: those of 6 to 9 would lie over each other.
    is_sparse: bool,
}

impl Ticks {
    /// Formats the label of a point. Empty if it has none.
    pub(crate) fn label(&self, value: f64) -> String {
        let leading = (value / 10f64.powf((value * 1.000_001).log10().floor())).round();
        let is_shown = !self.is_sparse || [1.0, 2.0, 5.0].contains(&leading);
        if is_shown { short(value) } else { String::new() }
    }
}

/// Returns 1 to 9 of each decade within a range of positive values, each once.
fn log_points(span: &Range<f64>) -> Vec<f64> {
    let decades = std::iter::successors(Some(span.start.log10().floor()), |decade| Some(decade + 1.0));
    let decades = decades.map(|decade| 10f64.powf(decade)).take_while(|decade| *decade <= span.end);
    let points = decades.flat_map(|decade| (1..=9).map(move |step| f64::from(step) * decade));
    points.filter(|point| span.contains(point)).collect()
}

/// The smallest and the largest of the values.
fn extremes(values: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
    (values.clone().fold(f64::INFINITY, f64::min), values.fold(f64::NEG_INFINITY, f64::max))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_more_than_a_decade_have_a_logarithmic_scale() {
        let scale = |values: &[f64]| Scale::of(values.iter().copied());
        assert_eq!(scale(&[1.0, 5.0, 10.1]), Scale::Log);
        assert_eq!(scale(&[1.0, 5.0, 10.0]), Scale::Linear);
        assert_eq!(scale(&[0.0, 1.0, 1000.0]), Scale::Linear, "zero has no place on a logarithmic scale");
        assert_eq!(scale(&[-1.0, 1000.0]), Scale::Linear);
        assert_eq!(scale(&[]), Scale::Linear);
    }

    fn labels(scale: Scale, span: Range<f64>) -> Vec<String> {
        let ticks = scale.ticks(&span, 5);
        ticks.points.iter().map(|value| ticks.label(*value)).filter(|label| !label.is_empty()).collect()
    }

    #[test]
    fn a_logarithmic_axis_of_decades_has_three_labels_each_and_none_twice() {
        assert_eq!(labels(Scale::Log, 0.09..11.0), ["0.1", "0.2", "0.5", "1", "2", "5", "10"]);
        assert_eq!(labels(Scale::Log, 25.0..4000.0), ["50", "100", "200", "500", "1 k", "2 k"]);
    }

    #[test]
    fn a_short_logarithmic_axis_has_labels_too() {
        assert_eq!(labels(Scale::Log, 0.55..2.5), ["0.6", "0.7", "0.8", "0.9", "1", "2"]);
        assert!(labels(Scale::Log, 1.1..1.9).len() >= 3, "{:?}", labels(Scale::Log, 1.1..1.9));
        assert_eq!(labels(Scale::Linear, 0.0..10.0), ["0", "5", "10"]);
    }

    #[test]
    fn every_value_lies_within_the_span() {
        for (scale, values) in
            [(Scale::Linear, vec![-3.0, 8.0]), (Scale::Linear, vec![2.0]), (Scale::Log, vec![0.5, 700.0])]
        {
            let span = scale.span(values.iter().copied());
            assert!(values.iter().all(|value| span.contains(value)), "{scale:?} {span:?}");
        }
        assert_eq!(Scale::Linear.span([2.0].into_iter()).start, 0.0);
        assert!(Scale::Log.span(std::iter::empty()).start > 0.0);
    }
}
