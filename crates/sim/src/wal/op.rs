//! Operations on logs, and workloads drawn from a seed.

use crate::op::Piece;
use crate::rng::Rng;

/// Logs of a workload.
pub(crate) const LOGS: usize = 4;
/// Consumers of each.
pub(crate) const CONSUMERS: usize = 2;

/// One step. `writer` counts from 0; `log` and `consumer` are numbers of names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogOp {
    /// Appends entries as one.
    Append {
        /// Writer.
        writer: usize,
        /// Which log.
        log: usize,
        /// The entries.
        values: Vec<Piece>,
    },
    /// An entry lands in a run of a transport; the record refers to it there.
    Land {
        /// Writer.
        writer: usize,
        /// Which log.
        log: usize,
        /// The entry.
        value: Piece,
    },
    /// Gives entries up.
    Trim {
        /// Writer.
        writer: usize,
        /// Which log.
        log: usize,
        /// Of 8 parts of the log, how many.
        eighths: u64,
    },
    /// Ends a log.
    Delete {
        /// Writer.
        writer: usize,
        /// Which log.
        log: usize,
    },
    /// Keeps a position, or forgets it.
    Position {
        /// Writer.
        writer: usize,
        /// Which log.
        log: usize,
        /// Which consumer.
        consumer: usize,
        /// Forgets it.
        forgets: bool,
    },
    /// Sets how many entries a log keeps, 0 for all.
    Settings {
        /// Writer.
        writer: usize,
        /// Which log.
        log: usize,
        /// Entries.
        retain_entries: u64,
    },
    /// A step of retention.
    Retain {
        /// Writer.
        writer: usize,
    },
    /// Lets go of what was given up.
    Sweep {
        /// Entries at most.
        limit: usize,
    },
    /// Writes a key of the engine beside the logs, or flushes all of these.
    Engine {
        /// Writer.
        writer: usize,
        /// The value; `None` flushes.
        value: Option<Piece>,
    },
    /// Ends a writer's batch.
    Commit {
        /// Writer.
        writer: usize,
    },
    /// Begins to make a writer's batch durable.
    BeginCommit {
        /// Writer.
        writer: usize,
    },
    /// Completes it.
    FinishCommit {
        /// Writer.
        writer: usize,
    },
    /// One step of compaction.
    Compact {
        /// Records out of a slab, not data out of a run.
        slabs: bool,
    },
    /// Moves the watermarks in the run table.
    Mark,
    /// Reads everything and compares.
    Check,
}

/// A workload: what comes next, drawn from a seed.
#[derive(Debug)]
pub(crate) struct LogWorkload {
    rng: Rng,
    writers: u64,
    deferred: bool,
    /// How large entries are in this run.
    large: bool,
}

impl LogWorkload {
    pub(crate) fn new(seed: u64, writers: usize, deferred: bool) -> Self {
        let mut rng = Rng::new(seed);
        let large = rng.one_in(3);
        Self { rng, writers: writers as u64, deferred, large }
    }

    pub(crate) fn next(&mut self) -> LogOp {
        let writer = self.rng.below(self.writers) as usize;
        let log = self.rng.below(LOGS as u64) as usize;
        match self.rng.below(100) {
            0..26 => LogOp::Append { writer, log, values: vec![self.piece()] },
            26..38 => LogOp::Append { writer, log, values: self.pieces() },
            38..46 => LogOp::Land { writer, log, value: self.piece() },
            46..52 => LogOp::Trim { writer, log, eighths: self.rng.below(9) },
            52..55 => LogOp::Delete { writer, log },
            55..61 => {
                let consumer = self.rng.below(CONSUMERS as u64) as usize;
                LogOp::Position { writer, log, consumer, forgets: self.rng.one_in(4) }
            }
            61..63 => LogOp::Settings { writer, log, retain_entries: self.rng.below(12) },
            63..65 => LogOp::Retain { writer },
            65..71 => LogOp::Sweep { limit: self.rng.between(1, 60) },
            71..74 => LogOp::Engine { writer, value: (!self.rng.one_in(4)).then(|| self.piece()) },
            74..78 => LogOp::Commit { writer },
            78..83 if self.deferred => LogOp::BeginCommit { writer },
            83..87 if self.deferred => LogOp::FinishCommit { writer },
            78..87 => LogOp::Commit { writer },
            87..95 => LogOp::Compact { slabs: self.rng.one_in(2) },
            95..97 => LogOp::Mark,
            _ => LogOp::Check,
        }
    }

    fn pieces(&mut self) -> Vec<Piece> {
        (0..self.rng.between(2, 6)).map(|_| self.piece()).collect()
    }

    fn piece(&mut self) -> Piece {
        let (low, high) = match (self.rng.below(10), self.large) {
            (0, _) => (0, 0),
            (1..4, _) => (1, 60),
            (4..8, _) | (_, false) => (61, 3000),
            (_, true) => (50_000, 700_000),
        };
        Piece { len: self.rng.between(low, high), seed: self.rng.draw() }
    }
}
