//! The wait for the answer to a batch.

use crate::node::Node;
use std::cell::Cell;
use std::time::{Duration, Instant};

/// How long a batch is waited for when the node stops.
pub(crate) const GRACE: Duration = Duration::from_secs(2);
/// After so long without an answer people are told.
const SLOW_AFTER: Duration = Duration::from_secs(5);

/// A wait for the answer to a batch.
pub(crate) struct AnswerWait<'n> {
    node: &'n Node,
    stream: usize,
    generation: u64,
    /// After so long the node behind counts as silent.
    patience: Duration,
    begun: Cell<Option<Instant>>,
    is_told: Cell<bool>,
}

impl<'n> AnswerWait<'n> {
    /// A wait in a stream, while the connections of a generation count.
    pub(crate) fn new(node: &'n Node, stream: usize, generation: u64, patience: Duration) -> Self {
        let (begun, is_told) = (Cell::default(), Cell::default());
        Self { node, stream, generation, patience, begun, is_told }
    }

    /// True if it is waited on. It is asked whenever nothing has come for a while.
    pub(crate) fn goes_on(&self) -> bool {
        let waited = self.waited();
        if waited >= SLOW_AFTER && !self.is_told.replace(true) {
            let behind = self.node.behind().map_or_else(String::new, |(name, _)| name);
            tracing::warn!(
                node = behind,
                stream = self.stream,
                seconds = waited.as_secs(),
                "the node behind has not acknowledged a batch for so long: writes wait for it"
            );
        }
        let is_over = self.node.stopping_for().is_some_and(|time| time >= GRACE);
        !is_over && !self.is_silent() && self.node.generation() == self.generation
    }

    /// How long ago this was called first.
    fn waited(&self) -> Duration {
        let begun = self.begun.get().unwrap_or_else(Instant::now);
        self.begun.set(Some(begun));
        begun.elapsed()
    }

    /// True if nothing has come for too long.
    pub(crate) fn is_silent(&self) -> bool {
        self.begun.get().is_some_and(|begun| begun.elapsed() >= self.patience)
    }
}
