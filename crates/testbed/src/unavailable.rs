//! Why a test is skipped.

use std::fmt;

/// Why this machine cannot provide a testbed, or a part of one. The text for a `SKIP:` line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Unavailable {
    /// One line of text for the reader of the test's output.
    pub reason: String,
}

impl Unavailable {
    pub(crate) fn new(what: impl fmt::Display, why: impl fmt::Display) -> Self {
        Self { reason: format!("{what}: {why}") }
    }
}
