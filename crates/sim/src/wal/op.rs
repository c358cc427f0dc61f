//! Operations on logs, and workloads drawn from a seed.

use crate::op::Piece;
use crate::rng::Rng;
use landfall_wal::Settings;

/// Number of logs of a workload.
pub(crate) const LOGS: usize = 4;
/// Number of consumers of each log.
pub(crate) const CONSUMERS: usize = 2;

/// One step of a workload. The numbers of writers, logs and consumers count from 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogOp {
    /// Appends entries as one group.
    Append {
        /// Writer.
        writer: usize,
        /// Which log.
        log: usize,
        /// The entries.
        values: Vec<Piece>,
    },
    /// Appends an entry that has landed in a run of a transport. The record refers to it there.
    Land {
        /// Writer.
        writer: usize,
        /// Which log.
        log: usize,
        /// The entry.
        value: Piece,
    },
    /// Trims entries.
    Trim {
        /// Writer.
        writer: usize,
        /// Which log.
        log: usize,
        /// How many eighths of the log.
        eighths: u64,
    },
    /// Deletes a log.
    Delete {
        /// Writer.
        writer: usize,
        /// Which log.
        log: usize,
    },
    /// Commits a position, or deletes it.
    Position {
        /// Writer.
        writer: usize,
        /// Which log.
        log: usize,
        /// Which consumer.
        consumer: usize,
        /// Deletes the position.
        deletes: bool,
    },
    /// Sets how long a log keeps its entries.
    Settings {
        /// Writer.
        writer: usize,
        /// Which log.
        log: usize,
        /// By number, bytes and age.
        settings: Settings,
    },
    /// Executes a step of retention.
    Retain {
        /// Writer.
        writer: usize,
    },
    /// Frees trimmed entries.
    Sweep {
        /// Most entries to free.
        limit: usize,
    },
    /// Writes a key of the engine beside the logs, or flushes the engine.
    Engine {
        /// Writer.
        writer: usize,
        /// The value; `None` flushes.
        value: Option<Piece>,
    },
    /// Commits a writer's batch.
    Commit {
        /// Writer.
        writer: usize,
    },
    /// Begins the commit of a writer's batch.
    BeginCommit {
        /// Writer.
        writer: usize,
    },
    /// Completes the commit that [`LogOp::BeginCommit`] began.
    FinishCommit {
        /// Writer.
        writer: usize,
    },
    /// One step of compaction.
    Compact {
        /// Move records out of a slab, instead of data out of a run.
        slabs: bool,
    },
    /// Data leave the memory of a paged region.
    Evict,
    /// Brings the watermarks in the run table up to date.
    Mark,
    /// Time passes.
    Wait {
        /// Milliseconds.
        ms: u64,
    },
    /// Reads all logs and compares them with the oracle.
    Check,
}

/// A workload: a sequence of operations drawn from a seed.
#[derive(Debug)]
pub(crate) struct LogWorkload {
    rng: Rng,
    writers: u64,
    deferred: bool,
    /// Some entries of this workload are large.
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
                LogOp::Position { writer, log, consumer, deletes: self.rng.one_in(4) }
            }
            61..63 => LogOp::Settings { writer, log, settings: self.settings() },
            63..65 => LogOp::Retain { writer },
            65..71 => LogOp::Sweep { limit: self.rng.between(1, 60) },
            71..74 => LogOp::Engine { writer, value: (!self.rng.one_in(4)).then(|| self.piece()) },
            74..78 => LogOp::Commit { writer },
            78..83 if self.deferred => LogOp::BeginCommit { writer },
            83..87 if self.deferred => LogOp::FinishCommit { writer },
            78..87 => LogOp::Commit { writer },
            87..94 => LogOp::Compact { slabs: self.rng.one_in(2) },
            94 => LogOp::Evict,
            95..97 => LogOp::Mark,
            97 => LogOp::Wait { ms: self.rng.below(40) },
            _ => LogOp::Check,
        }
    }

    /// Each limit in half of the cases.
    fn settings(&mut self) -> Settings {
        let mut limit = |most| if self.rng.one_in(2) { 0 } else { 1 + self.rng.below(most) };
        Settings { retain_entries: limit(12), retain_bytes: limit(9000), retain_ms: limit(60) }
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
