//! Targets, and whether they are met.

use super::measure::stats::Summary;
use serde::Serialize;

/// Which side of the bound is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum Bound {
    #[serde(rename = "at least")]
    AtLeast,
    #[serde(rename = "at most")]
    AtMost,
    /// At most, of a difference that cannot truly be below zero. One that comes out below zero is noise.
    #[serde(rename = "at most")]
    DifferenceAtMost,
}

/// A target and what was measured.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Target {
    pub(crate) what: String,
    pub(crate) bound: Bound,
    pub(crate) wanted: f64,
    pub(crate) unit: &'static str,
    /// `None`: not measured in this run.
    pub(crate) measured: Option<Summary>,
}

impl Bound {
    pub(crate) const fn sign(self) -> &'static str {
        match self {
            Self::AtLeast => "≥",
            Self::AtMost | Self::DifferenceAtMost => "≤",
        }
    }

    pub(crate) fn holds(self, measured: f64, wanted: f64) -> bool {
        match self {
            Self::AtLeast => measured >= wanted,
            Self::AtMost | Self::DifferenceAtMost => measured <= wanted,
        }
    }

    /// Whether a value is more than noise.
    fn can_judge(self, measured: f64) -> bool {
        self != Self::DifferenceAtMost || measured >= 0.0
    }
}

impl Target {
    /// Whether the median meets it; `None` if not measured, or if noise is all that was measured.
    pub(crate) fn met(&self) -> Option<bool> {
        let measured = self.measured.as_ref()?.median;
        self.bound.can_judge(measured).then(|| self.bound.holds(measured, self.wanted))
    }

    /// Says why there is no verdict.
    pub(crate) fn why_unjudged(&self) -> &'static str {
        if self.measured.is_some() { "not measurable" } else { "not measured" }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(bound: Bound, measured: &[f64]) -> (Option<bool>, &'static str) {
        let measured = Summary::of(measured.iter().copied());
        let target = Target { what: String::new(), bound, wanted: 5.0, unit: "%", measured };
        (target.met(), target.why_unjudged())
    }

    #[test]
    fn a_difference_below_zero_is_noise_and_meets_nothing() {
        let difference = Bound::DifferenceAtMost;
        assert_eq!(verdict(difference, &[-72.0, -5.0, 12.0]), (None, "not measurable"));
        assert_eq!(verdict(difference, &[]), (None, "not measured"));
        assert_eq!(verdict(difference, &[-1.0, 0.0, 1.0]).0, Some(true));
        assert_eq!(verdict(difference, &[6.0]).0, Some(false));
        assert_eq!(verdict(Bound::AtMost, &[-5.0]).0, Some(true));
    }
}
