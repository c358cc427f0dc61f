//! Operations on the engine, and workloads drawn from a seed.

use crate::oracle::{Key, Value};
use crate::rng::Rng;
use std::sync::Arc;

/// A value to write: its length and the seed of its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Length, bytes.
    pub len: usize,
    /// Seed of the bytes.
    pub seed: u64,
}

/// A write of one key within a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write {
    /// Number of the key, see [`key`].
    pub key: usize,
    /// The value; `None` deletes the key.
    pub value: Option<Piece>,
}

/// One step of a workload. The numbers of writers count from 0; the numbers of keys are those of [`key`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Writes a key.
    Set {
        /// Writer.
        writer: usize,
        /// Which key.
        key: usize,
        /// The value.
        value: Piece,
        /// Time to live, milliseconds; 0 for no expiry.
        ttl_ms: u64,
    },
    /// Deletes a key.
    Delete {
        /// Writer.
        writer: usize,
        /// Which key.
        key: usize,
    },
    /// Reads and writes several keys as one transaction.
    Group {
        /// Writer.
        writer: usize,
        /// The writes.
        writes: Vec<Write>,
    },
    /// Gives a key the value of another, by reference.
    Copy {
        /// Writer.
        writer: usize,
        /// Source key.
        from: usize,
        /// Target key.
        to: usize,
    },
    /// Reads a key and writes its value with more bytes appended.
    Extend {
        /// Writer.
        writer: usize,
        /// Which key.
        key: usize,
        /// The bytes to append.
        value: Piece,
    },
    /// Changes a part of a long value, by reference to the rest.
    Patch {
        /// Writer.
        writer: usize,
        /// Which key.
        key: usize,
        /// The bytes that take the place of others; with an even seed they have landed.
        value: Piece,
        /// From which byte on, about as many as the value has; at its end without.
        at: Option<usize>,
    },
    /// Writes a value that has landed in a run of a transport, in pieces. The record refers to it there.
    Land {
        /// Writer.
        writer: usize,
        /// Which key.
        key: usize,
        /// The value.
        value: Piece,
        /// Number of pieces, 1 to 16.
        pieces: usize,
    },
    /// Deletes everything.
    FlushAll {
        /// Writer.
        writer: usize,
    },
    /// Commits a writer's batch, or the batch in flight and the one gathered since.
    Commit {
        /// Writer.
        writer: usize,
    },
    /// Begins the commit of a writer's batch. Later operations belong to the next batch.
    BeginCommit {
        /// Writer.
        writer: usize,
    },
    /// Completes the commit that [`Op::BeginCommit`] began.
    FinishCommit {
        /// Writer.
        writer: usize,
    },
    /// One step of compaction with the densest goal.
    Compact {
        /// Most bytes to move.
        budget: u64,
        /// Move records out of a slab, instead of data out of a run.
        slabs: bool,
    },
    /// One step of compaction while writer `writer` changes keys that are being moved.
    CompactWithInterference {
        /// Writer.
        writer: usize,
        /// Seed of the changes.
        seed: u64,
    },
    /// Brings the watermarks in the run table up to date.
    Mark,
    /// Prepares a slab before it is needed.
    PrepareSlab,
    /// Maintains the free runs: returns some to the medium and makes others ready.
    MaintainFreeRuns {
        /// Ready runs to keep.
        keep: usize,
    },
    /// Deletes expired keys.
    Purge {
        /// Writer.
        writer: usize,
    },
    /// Time passes.
    Wait {
        /// Milliseconds.
        ms: u64,
    },
    /// Many small writes of few keys, with commits in between. They fill slabs.
    Churn {
        /// Writer.
        writer: usize,
        /// Number of writes.
        count: usize,
        /// Seed of the writes.
        seed: u64,
    },
    /// Reads all keys and compares them with the oracle.
    Check,
}

/// Number of different keys of a workload.
pub(crate) const KEYS: usize = 28;
/// Lengths of keys: short, too long for a group's record, too long for any record, several frames. Key 0 is empty.
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
    /// The value that a client reads.
    pub(crate) fn read(self, expiry_ms: u64) -> Value {
        Value { bytes: value(self), expiry_ms }
    }
}

/// A workload: a sequence of operations drawn from a seed.
#[derive(Debug)]
pub(crate) struct Workload {
    rng: Rng,
    writers: u64,
    deferred: bool,
    /// Size of values in this workload, 0 to 3: large values fill the region, small ones never do.
    weight: u64,
    /// Remaining operations of a storm: see [`Workload::storm`].
    storm: u64,
    /// Operations of another writer that depend on a flush which is not durable yet.
    after_flush: Vec<Op>,
}

/// Number of operations of a storm.
const STORM_OPS: u64 = 30;
/// A storm begins once in so many operations.
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
            50 if self.rng.one_in(2) => self.patch(writer, key),
            50 => Op::Extend { writer, key, value: Piece { len: self.rng.between(1, 40), seed } },
            51..53 => self.patch(writer, key),
            53..57 => Op::Land { writer, key, value, pieces: self.rng.between(1, 16) },
            57 if self.rng.one_in(2) => self.flush(writer),
            57..64 => Op::Commit { writer },
            64..74 if self.deferred => Op::BeginCommit { writer },
            74..80 if self.deferred => Op::FinishCommit { writer },
            64..80 => Op::Commit { writer },
            80..87 => Op::Compact { budget: 1 << self.rng.between(10, 22), slabs: self.rng.one_in(2) },
            87..90 => Op::CompactWithInterference { writer, seed },
            90..92 => Op::Mark,
            92 => Op::PrepareSlab,
            93 => Op::Purge { writer },
            94 => Op::MaintainFreeRuns { keep: self.rng.between(0, 24) },
            95..97 => Op::Wait { ms: self.rng.below(80) },
            97 if self.weight < 2 => Op::Churn { writer, count: self.rng.between(1, 3000), seed },
            97 | 98 => Op::Churn { writer, count: self.rng.between(1, 60), seed },
            _ => Op::Check,
        }
    }

    fn patch(&mut self, writer: usize, key: usize) -> Op {
        let len = [(1, 60), (60, 9000), (9000, 200_000)][self.rng.between(0, 2)];
        let value = Piece { len: self.rng.between(len.0, len.1), seed: self.rng.draw() };
        let at = (!self.rng.one_in(3)).then(|| self.rng.below(1 << 40) as usize);
        Op::Patch { writer, key, value, at }
    }

    /// A flush of everything. Sometimes another writer extends a key and commits before the flush is durable.
    fn flush(&mut self, writer: usize) -> Op {
        let other = (writer + 1) % self.writers as usize;
        if other != writer && self.rng.one_in(2) {
            let (key, value) = (self.key(), Piece { len: self.rng.between(1, 40), seed: self.rng.draw() });
            self.after_flush = vec![Op::Commit { writer: other }, Op::Extend { writer: other, key, value }];
        }
        Op::FlushAll { writer }
    }

    /// An operation of a storm: one writer overwrites what the compactor moves and never commits, while another fills
    /// and empties runs. Memory that is freed too early is soon overwritten.
    fn storm(&mut self) -> Op {
        let (key, seed) = (self.key(), self.rng.draw());
        match self.rng.below(8) {
            0..3 => Op::CompactWithInterference { writer: 0, seed },
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
