//! The scale of an axis follows from what it shows.

use super::short;
use std::ops::Range;

/// Values that differ by more than this factor are shown on a logarithmic scale: on a linear one the small values would
/// all lie at its foot.
const DECADE: f64 = 10.0;

/// Points of a logarithmic axis with grid lines, at most: ten for each of six decades.
const LOG_POINTS: usize = 60;

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

    /// Returns how many points of an axis have grid lines, at most: `linear` on a linear axis.
    pub(crate) fn points(self, linear: usize) -> usize {
        if self == Self::Log { LOG_POINTS } else { linear }
    }

    /// Formats the label of a point. On a logarithmic axis only 1, 2 and 5 of each decade have labels: those of 6 to 9
    /// would lie over each other.
    pub(crate) fn label(self, value: f64) -> String {
        let leading = (value / 10f64.powf((value * 1.000_001).log10().floor())).round();
        let is_shown = self == Self::Linear || [1.0, 2.0, 5.0].contains(&leading);
        if is_shown { short(value) } else { String::new() }
    }
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

    #[test]
    fn a_logarithmic_axis_has_three_labels_a_decade() {
        let labels = |scale: Scale| {
            let points = (1..=10).map(|step| f64::from(step) * 0.1).chain((2..=10).map(f64::from));
            points.map(|value| scale.label(value)).filter(|label| !label.is_empty()).collect::<Vec<_>>()
        };
        assert_eq!(labels(Scale::Log), ["0.10", "0.20", "0.50", "1.00", "2.00", "5.00", "10"]);
        assert_eq!(labels(Scale::Linear).len(), 19);
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
