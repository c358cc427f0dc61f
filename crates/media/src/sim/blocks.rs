//! Batches that are being written to a device that writes whole blocks.

use std::collections::{BTreeMap, BTreeSet};

use super::chunks::Version;
use super::lines::{Lines, Promises};
use super::rng::Rng;
use crate::extent::Extent;
use crate::units::{BLOCK_SIZE, LINE_SIZE};

/// Identifies a submitted batch.
pub(super) type BatchId = u64;

/// The contents of a batch's blocks when the batch was submitted. The device may write them at any time until the batch
/// ends.
#[derive(Clone, Debug)]
struct Submitted {
    blocks: BTreeSet<u64>,
    lines: BTreeMap<u64, Version>,
    promises: Promises,
}

/// Two batches that were in flight at once with a block in common.
#[derive(Clone, Debug)]
struct Race {
    batches: [BatchId; 2],
    /// The common blocks, as the batch that was submitted first took them.
    older: Vec<(u64, Version)>,
}

/// The batches in flight.
#[derive(Clone, Debug, Default)]
pub(super) struct Blocks {
    next: BatchId,
    submitted: BTreeMap<BatchId, Submitted>,
    races: Vec<Race>,
    /// Batches do not wait for each other's blocks: the fault that a checker must detect.
    pub(super) may_overlap: bool,
}

impl Blocks {
    /// Takes a batch's blocks from memory and submits them to the device. If one of them is already being written, this
    /// batch waits until the other batch is written.
    pub(super) fn submit(&mut self, lines: &mut Lines, ranges: &[Extent], promises: &Promises) -> BatchId {
        let blocks: BTreeSet<u64> = ranges.iter().flat_map(|range| blocks_of(*range)).collect();
        let meets = |other: &Submitted| !other.blocks.is_disjoint(&blocks);
        let others: Vec<BatchId> =
            self.submitted.iter().filter(|(_, other)| meets(other)).map(|(id, _)| *id).collect();
        if !self.may_overlap {
            others.iter().for_each(|other| self.land(lines, *other));
        }
        let snapshot =
            blocks.iter().flat_map(|block| lines_of(*block)).map(|line| (line, lines.version(line)));
        let new = Submitted { lines: snapshot.collect(), blocks, promises: promises.clone() };
        self.next += 1;
        if self.may_overlap {
            let races: Vec<Race> = others.iter().map(|other| self.race(*other, &new)).collect();
            self.races.extend(races);
        }
        self.submitted.insert(self.next, new);
        self.next
    }

    fn race(&self, first: BatchId, second: &Submitted) -> Race {
        let first_lines = &self.submitted[&first].lines;
        let common = first_lines.iter().filter(|(line, _)| second.lines.contains_key(line));
        Race { batches: [first, self.next], older: common.map(|(line, version)| (*line, *version)).collect() }
    }

    /// The device has written a batch. Its owner may not know that yet.
    fn land(&mut self, lines: &mut Lines, id: BatchId) {
        if let Some(batch) = self.submitted.remove(&id) {
            lines.keep(batch.promises);
        }
    }

    /// A batch has ended. Where another batch that shares a block with it has ended, too, either may have been written
    /// last.
    pub(super) fn finish(&mut self, lines: &mut Lines, id: BatchId) {
        self.submitted.remove(&id);
        let (over, open): (Vec<Race>, Vec<Race>) = std::mem::take(&mut self.races)
            .into_iter()
            .partition(|race| race.batches.iter().all(|batch| !self.submitted.contains_key(batch)));
        self.races = open;
        for race in over {
            let older_is_last = Rng::new(race.batches[0] << 32 | race.batches[1]).below(2) == 0;
            if older_is_last {
                race.older.iter().for_each(|(line, version)| lines.overwrite(*line, version));
            }
        }
    }
}

fn blocks_of(range: Extent) -> std::ops::Range<u64> {
    if range.is_empty() { 0..0 } else { range.off / BLOCK_SIZE..range.end().div_ceil(BLOCK_SIZE) }
}

fn lines_of(block: u64) -> std::ops::Range<u64> {
    let lines = BLOCK_SIZE / LINE_SIZE;
    block * lines..(block + 1) * lines
}
