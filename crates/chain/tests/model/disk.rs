//! What is durable at a node.

use super::{Canary, Record, Version};
use std::collections::BTreeMap;

/// What a node has on its medium, in the order of its own seqs.
#[derive(Clone, Debug, Default)]
pub(super) struct Disk {
    pub(super) keys: BTreeMap<u8, (Version, u64)>,
    pub(super) flushed: u64,
    pub(super) seq: u64,
    pub(super) since: u64,
    pub(super) starts: u64,
    pub(super) floor: u64,
}

impl Disk {
    pub(super) fn write(&mut self, record: Record) {
        self.seq += 1;
        match record {
            Record::Write(key, version) => {
                self.keys.insert(key, (version, self.seq));
            }
            Record::Flush => {
                self.keys.clear();
                self.flushed = self.seq;
            }
        }
    }

    pub(super) fn present(&self) -> BTreeMap<u8, u64> {
        let present = self.keys.iter().filter(|(_, ((_, is_there), _))| *is_there);
        present.map(|(key, ((number, _), _))| (*key, *number)).collect()
    }

    pub(super) fn raise_floor(&mut self) {
        self.floor = self.floor.max(self.seq + 1);
    }

    /// Goes on where it was. Numbers that were drawn without a record are not found again: what is complete below the floor
    /// has them.
    pub(super) fn recover(&mut self, canary: Canary) {
        let newest = self.keys.values().map(|(_, seq)| *seq).max().unwrap_or(0).max(self.flushed);
        let floor = if canary == Canary::SeqsFall { 0 } else { self.floor };
        self.seq = newest.max(floor.saturating_sub(1));
    }

    /// What a restart sends again.
    pub(super) fn unsent(&self) -> Vec<Record> {
        let mut from: Vec<(u64, Record)> =
            self.keys.iter().map(|(key, (version, seq))| (*seq, Record::Write(*key, *version))).collect();
        from.push((self.flushed, Record::Flush));
        from.retain(|(seq, _)| *seq >= self.floor && *seq > 0);
        from.sort_by_key(|(seq, _)| *seq);
        from.into_iter().map(|(_, record)| record).collect()
    }
}
