//! Operations, and workloads drawn from a seed.

use crate::oracle::{Key, Value};
use crate::rng::Rng;
use std::sync::Arc;

/// A value to write: its length and the seed of its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Bytes.
    pub len: usize,
    /// What they are drawn from.
    pub seed: u64,
}

/// A write of one key within a group: `None` deletes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write {
    /// Which key, see [`key`].
    pub key: usize,
    /// The value.
    pub value: Option<Piece>,
}

/// One step of a workload. `writer` counts from 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Writes a key; `ttl_ms` of 0 is for ever.
    Set {
        /// Writer.
        writer: usize,
        /// Which key.
        key: usize,
        /// The value.
        value: Piece,
        /// Time to live.
        ttl_ms: u64,
    },
    /// Deletes a key.
    Delete {
        /// Writer.
        writer: usize,
        /// Which key.
        key: usize,
    },
    /// Reads and writes several keys as one.
    Group {
        /// Writer.
        writer: usize,
        /// What to write.
        writes: Vec<Write>,
    },
    /// Gives a key the value of another, by reference.
    Copy {
        /// Writer.
        writer: usize,
        /// Source.
        from: usize,
        /// Target.
        to: usize,
    },
    /// Reads a key and writes what was read with something after it.
    Extend {
        /// Writer.
        writer: usize,
        /// Which key.
        key: usize,
        /// What comes after it.
        value: Piece,
    },
    /// A value lands in a run of a transport, in pieces; the record refers to it there.
    Land {
        /// Writer.
        writer: usize,
        /// Which key.
        key: usize,
        /// The value.
        value: Piece,
        /// In how many pieces it lies; 1 to 16.
        pieces: usize,
    },
    /// Deletes everything.
    FlushAll {
        /// Writer.
        writer: usize,
    },
    /// Ends a writer's batch, or the batch under way and the one gathered since.
    Commit {
        /// Writer.
        writer: usize,
    },
    /// Begins to make a writer's batch durable; later operations gather the next one.
    BeginCommit {
        /// Writer.
        writer: usize,
    },
    /// Completes the batch that [`Op::BeginCommit`] began.
    FinishCommit {
        /// Writer.
        writer: usize,
    },
    /// One step of compaction towards no slack at all.
    Compact {
        /// Bytes to move.
        budget: u64,
        /// Records out of a slab, not data out of a run.
        slabs: bool,
    },
    /// The same, while writer `writer` changes keys that are being moved.
    CompactMeddled {
        /// Writer.
        writer: usize,
        /// What the meddling is drawn from.
        seed: u64,
    },
    /// Moves the watermarks in the run table.
    Mark,
    /// Prepares a slab ahead of need.
    PrepareSlab,
    /// Gives some free runs back to the medium, and has others made ready.
    TendFreeRuns {
        /// Ready runs to keep.
        keep: usize,
    },
    /// Purges what has expired.
    Purge {
        /// Writer.
        writer: usize,
    },
    /// Time passes.
    Wait {
        /// Milliseconds.
        ms: u64,
    },
    /// Many small writes of few keys, committed now and then: fills slabs.
    Churn {
        /// Writer.
        writer: usize,
        /// Writes.
        count: usize,
        /// What they are drawn from.
        seed: u64,
    },
    /// Reads everything and compares.
    Check,
}

/// Different keys of a workload.
pub(crate) const KEYS: usize = 28;
/// Lengths of keys: none, short, too long for a group's record, too long for any, several frames.
const KEY_LENS: [usize; 7] = [3, 8, 20, 40, 60, 300, 5000];

/// Key number `index` of every workload.
pub fn key(index: usize) -> Key {
    let space = (index % 5 == 4) as u8;
    if index == 0 {
        return Key { space, bytes: [].into() };
    }
    let mut bytes = format!("{index:03}").into_bytes();
    bytes.resize(KEY_LENS[index % KEY_LENS.len()], b'a' + (index % 26) as u8);
    Key { space, bytes: bytes.into() }
}

/// The bytes of a value.
pub fn value(piece: Piece) -> Arc<[u8]> {
    let mut rng = Rng::new(piece.seed);
    let words = (0..piece.len.div_ceil(8)).flat_map(|_| rng.draw().to_le_bytes());
    words.take(piece.len).collect()
}

impl Piece {
    /// The value that a client would read.
    pub(crate) fn read(self, expiry_ms: u64) -> Value {
        Value { bytes: value(self), expiry_ms }
    }
}

/// A workload: what comes next, drawn from a seed.
#[derive(Debug)]
pub(crate) struct Workload {
    rng: Rng,
    writers: u64,
    deferred: bool,
    /// How large values are in this run, 0 to 3: a run that fills the region, or one that never does.
    weight: u64,
    /// Operations left of a storm: see [`Workload::storm`].
    storm: u64,
    /// What the others do once a writer has flushed everything: they build on it, and commit.
    after_flush: Vec<Op>,
}

/// Operations of a storm, and between how many others one begins.
const STORM_OPS: u64 = 30;
const STORM_EVERY: u64 = 40;

impl Workload {
    pub(crate) fn new(seed: u64, writers: usize, deferred: bool) -> Self {
        let mut rng = Rng::new(seed);
        let weight = rng.below(4);
        Self { rng, writers: writers as u64, deferred, weight, storm: 0, after_flush: Vec::new() }
    }

    pub(crate) fn next(&mut self) -> Op {
        if let Some(op) = self.after_flush.pop() {
            return op;
        }
        if self.storm == 0 && self.writers > 1 && self.rng.one_in(STORM_EVERY) {
            self.storm = STORM_OPS;
        }
        if self.storm > 0 {
            self.storm -= 1;
            return self.storm();
        }
        let writer = self.rng.below(self.writers) as usize;
        let (key, value, seed) = (self.key(), self.piece(), self.rng.draw());
        match self.rng.below(100) {
            0..28 => Op::Set { writer, key, value, ttl_ms: self.ttl() },
            28..38 => Op::Delete { writer, key },
            38..48 => Op::Group { writer, writes: self.writes() },
            48 | 49 => Op::Copy { writer, from: self.key(), to: key },
            50 => Op::Extend { writer, key, value: Piece { len: self.rng.between(1, 40), seed } },
            51..57 => Op::Land { writer, key, value, pieces: self.rng.between(1, 16) },
            57 if self.rng.one_in(2) => self.flush(writer),
            57..64 => Op::Commit { writer },
            64..74 if self.deferred => Op::BeginCommit { writer },
            74..80 if self.deferred => Op::FinishCommit { writer },
            64..80 => Op::Commit { writer },
            80..87 => Op::Compact { budget: 1 << self.rng.between(10, 22), slabs: self.rng.one_in(2) },
            87..90 => Op::CompactMeddled { writer, seed },
            90..92 => Op::Mark,
            92 => Op::PrepareSlab,
            93 => Op::Purge { writer },
            94 => Op::TendFreeRuns { keep: self.rng.between(0, 24) },
            95..97 => Op::Wait { ms: self.rng.below(80) },
            97 if self.weight < 2 => Op::Churn { writer, count: self.rng.between(1, 3000), seed },
            97 | 98 => Op::Churn { writer, count: self.rng.between(1, 60), seed },
            _ => Op::Check,
        }
    }

    /// One worker flushes; now and then the others build on that before it is durable, and commit.
    fn flush(&mut self, writer: usize) -> Op {
        let other = (writer + 1) % self.writers as usize;
        if other != writer && self.rng.one_in(2) {
            let (key, value) = (self.key(), Piece { len: self.rng.between(1, 40), seed: self.rng.draw() });
            self.after_flush = vec![Op::Commit { writer: other }, Op::Extend { writer: other, key, value }];
        }
        Op::FlushAll { writer }
    }

    /// One worker overwrites what the compactor moves and never commits, while another fills and empties
    /// runs: what is freed too early is soon written over.
    fn storm(&mut self) -> Op {
        let (key, seed) = (self.key(), self.rng.draw());
        match self.rng.below(8) {
            0..3 => Op::CompactMeddled { writer: 0, seed },
            3 => Op::Set { writer: 1, key, value: Piece { len: 1_000_000, seed }, ttl_ms: 0 },
            4 => Op::Set {
                writer: 1,
                key,
                value: Piece { len: self.rng.between(1, 300_000), seed },
                ttl_ms: 0,
            },
            5 => Op::Delete { writer: 1, key },
            _ => Op::Commit { writer: 1 },
        }
    }

    fn key(&mut self) -> usize {
        self.rng.below(KEYS as u64) as usize
    }

    fn ttl(&mut self) -> u64 {
        if self.rng.one_in(4) { 1 + self.rng.below(100) } else { 0 }
    }

    fn writes(&mut self) -> Vec<Write> {
        let count = self.rng.between(1, 6);
        let write = |_| {
            let key = self.key();
            Write { key, value: (!self.rng.one_in(4)).then(|| self.piece()) }
        };
        (0..count).map(write).collect()
    }

    fn piece(&mut self) -> Piece {
        let (low, high) = match (self.rng.below(10), self.weight) {
            (0, _) => (0, 0),
            (1..4, _) => (1, 50),
            (4..7, _) | (_, 0) => (51, 2500),
            (7 | 8, _) | (_, 1) => (2500, 40_000),
            (_, 2) => (40_000, 400_000),
            (_, _) => (100_000, 1_600_000),
        };
        Piece { len: self.rng.between(low, high), seed: self.rng.draw() }
    }
}
