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
            Self::AtMost => "≤",
        }
    }

    pub(crate) fn holds(self, measured: f64, wanted: f64) -> bool {
        match self {
            Self::AtLeast => measured >= wanted,
            Self::AtMost => measured <= wanted,
        }
    }
}

impl Target {
    /// Whether the median meets it; `None` if not measured.
    pub(crate) fn met(&self) -> Option<bool> {
        self.measured.as_ref().map(|measured| self.bound.holds(measured.median, self.wanted))
    }
}
