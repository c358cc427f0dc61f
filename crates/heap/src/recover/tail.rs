//! Decides which records above the watermarks count.

use super::found::{Found, Judge};
use crate::bond::{Bond, Group, TransactionId};
use crate::heap::Heap;
use crate::layout::SlotId;
use crate::record::{Kind, RecordView};
use std::collections::BTreeSet;

/// The slots of a slab above its watermark.
#[derive(Debug)]
pub(super) struct Tail {
    pub(super) records: Vec<TailRecord>,
}

#[derive(Debug)]
pub(super) enum TailRecord {
    /// The slot is torn or was never written.
    Invalid,
    /// The record and its data match their checksums.
    Valid { found: Found, bond: Bond, commits: Option<TransactionId> },
    /// The record matches its checksum, its data do not: they are torn, or were superseded and reused.
    DataGone { found: Found, bond: Bond },
}

impl TailRecord {
    pub(super) fn is_valid(&self) -> bool {
        !matches!(self, Self::Invalid)
    }

    pub(super) fn found(&self) -> Option<&Found> {
        match self {
            Self::Valid { found, .. } | Self::DataGone { found, .. } => Some(found),
            Self::Invalid => None,
        }
    }

    fn group(&self) -> Option<Group> {
        match self {
            Self::Valid { bond: Bond::Group(group), .. }
            | Self::DataGone { bond: Bond::Group(group), .. } => Some(*group),
            _ => None,
        }
    }

    fn commits(&self) -> Option<TransactionId> {
        match self {
            Self::Valid { commits, .. } => *commits,
            _ => None,
        }
    }
}

impl Found {
    /// True if this record supersedes `older`. The owner of `older` decides which flush marks end it.
    fn replaces(&self, older: &Self, judge: &impl Judge) -> bool {
        let same_key = self.kind != Kind::Flush && self.hash == older.hash;
        let flushed = self.kind == Kind::Flush && judge.is_flushed(self, older);
        let passed = self.kind == Kind::Bound
            && (self.space, self.aux) == (older.space, older.aux)
            && self.expiry_ms > older.expiry_ms;
        (same_key || flushed || passed) && (self.seq, self.rev) > (older.seq, older.rev)
    }
}

impl Tail {
    fn valid(&self) -> impl Iterator<Item = (Found, Bond)> + '_ {
        self.records.iter().filter_map(|record| match record {
            TailRecord::Valid { found, bond, .. } => Some((*found, *bond)),
            _ => None,
        })
    }

    fn gone(&self) -> impl Iterator<Item = &Found> + '_ {
        self.records.iter().filter_map(|record| match record {
            TailRecord::DataGone { found, .. } => Some(found),
            _ => None,
        })
    }

    /// Number of slots that count among the first `end`: all before the first one that is neither valid nor excused,
    /// without the last group if it is incomplete.
    fn prefix(&self, end: usize, excused: impl Fn(&Found, Bond) -> bool) -> usize {
        let bad = |record: &TailRecord| match record {
            TailRecord::Valid { .. } => false,
            TailRecord::DataGone { found, bond } => !excused(found, *bond),
            TailRecord::Invalid => true,
        };
        self.whole_groups(self.records[..end].iter().position(bad).unwrap_or(end))
    }

    /// Number of slots among the first `end` before the first incomplete group. Slots of a group that was rolled back
    /// may have been reused, so every member is checked.
    fn whole_groups(&self, end: usize) -> usize {
        let mut at = 0;
        while at < end {
            let Some(group) = self.records[at].group() else {
                at += 1;
                continue;
            };
            let count = group.count.max(1) as usize;
            let member = |place: usize| Some(Group { place: place as u32, ..group });
            let is_whole = at + count <= end && (0..count).all(|p| self.records[at + p].group() == member(p));
            if !is_whole {
                return at;
            }
            at += count;
        }
        end
    }
}

/// Cuts the tails: `docs/format/recovery.md`, step 4.
pub(super) struct Cutter<'t, J> {
    heap: &'t Heap,
    judge: &'t J,
    tails: &'t [Tail],
    /// Records that match their checksums, with their data.
    valid: Vec<(Found, Bond)>,
    /// Transactions whose commit record the scan has found.
    decided: BTreeSet<TransactionId>,
    /// Transactions with a valid commit record, also if a cut excludes that record.
    committed: BTreeSet<TransactionId>,
    /// Space and `aux` of the bounds in the tails, and of those that a commit record in a tail decides.
    bounds: BTreeSet<(u8, u32)>,
}

impl<'t, J: Judge> Cutter<'t, J> {
    pub(super) fn new(
        heap: &'t Heap,
        judge: &'t J,
        tails: &'t [Tail],
        decided: BTreeSet<TransactionId>,
    ) -> Self {
        let in_tails = tails.iter().flat_map(|tail| &tail.records).filter_map(TailRecord::commits);
        let committed: BTreeSet<_> = decided.iter().copied().chain(in_tails).collect();
        let mut valid: Vec<_> = tails.iter().flat_map(Tail::valid).collect();
        // Records that will never count excuse no other record.
        valid.retain(|(_, bond)| bond.transaction().is_none_or(|id| committed.contains(&id)));
        let bound =
            |(found, _): &(Found, Bond)| (found.kind == Kind::Bound).then_some((found.space, found.aux));
        let bounds = valid.iter().filter_map(bound).collect();
        Self { heap, judge, tails, valid, decided, committed, bounds }
    }

    /// True if the only commit record of the transaction is in a tail.
    pub(super) fn is_decided_in_a_tail(&self, id: TransactionId) -> bool {
        self.committed.contains(&id) && !self.decided.contains(&id)
    }

    /// Hashes of the records whose data are gone.
    pub(super) fn gone_hashes(&self) -> BTreeSet<u64> {
        self.tails.iter().flat_map(Tail::gone).map(|found| found.hash).collect()
    }

    /// True if records whose data are gone count only under this bound.
    pub(super) fn bounds_gone(&self, bound: &RecordView<'_>) -> bool {
        let of_bound = (bound.space(), bound.aux());
        bound.kind() == Kind::Bound
            && self.tails.iter().flat_map(Tail::gone).any(|found| (found.space, found.aux) == of_bound)
    }

    /// Number of slots that count in each tail. A record in a tail excuses others only while it counts itself, and
    /// `excusers` only while the commit records of their transactions count.
    pub(super) fn cut_all(&mut self, excusers: &[(TransactionId, Found)]) -> Vec<usize> {
        let bounds = excusers.iter().filter(|(_, found)| found.kind == Kind::Bound);
        self.bounds.extend(bounds.map(|(_, found)| (found.space, found.aux)));
        let mut cuts: Vec<usize> = self.tails.iter().map(|tail| tail.records.len()).collect();
        loop {
            let again = self.cut_again(&cuts, excusers);
            if again == cuts {
                return cuts;
            }
            cuts = again;
        }
    }

    fn cut_again(&self, cuts: &[usize], excusers: &[(TransactionId, Found)]) -> Vec<usize> {
        let cut_off = self.tails.iter().zip(cuts).flat_map(|(tail, cut)| &tail.records[*cut..]);
        let dropped: BTreeSet<SlotId> =
            cut_off.filter_map(TailRecord::found).map(|found| found.slot).collect();
        let decided = self.decided_below(cuts);
        let counts = |bond: Bond| bond.transaction().is_none_or(|id| decided.contains(&id));
        let in_tails =
            self.valid.iter().filter(|(found, bond)| !dropped.contains(&found.slot) && counts(*bond));
        let noted = excusers.iter().filter(|(id, _)| decided.contains(id));
        let believed: Vec<&Found> =
            in_tails.map(|(found, _)| found).chain(noted.map(|(_, found)| found)).collect();
        let excused = |found: &Found, bond: Bond| {
            self.was_taken_back(bond)
                || self.is_known(found)
                || believed.iter().any(|newer| newer.replaces(found, self.judge))
        };
        self.tails.iter().zip(cuts).map(|(tail, cut)| tail.prefix(*cut, excused)).collect()
    }

    /// Transactions that count with these cuts.
    fn decided_below(&self, cuts: &[usize]) -> BTreeSet<TransactionId> {
        let below = self.tails.iter().zip(cuts).flat_map(|(tail, cut)| &tail.records[..*cut]);
        self.decided.iter().copied().chain(below.filter_map(TailRecord::commits)).collect()
    }

    /// True for a record of a transaction without a valid commit record. Commit records that a cut excludes are
    /// included, since the set of excused records must not grow as cuts move down.
    fn was_taken_back(&self, bond: Bond) -> bool {
        bond.transaction().is_some_and(|id| !self.committed.contains(&id))
    }

    /// True if the scan has found a newer record. Never said of a copy of the compactor: above the watermark it has not
    /// been current, and a torn one that is believed passes for the newest.
    fn is_known(&self, found: &Found) -> bool {
        found.rev == 0 && (self.judge.is_superseded(self.heap, found) || self.lacks_bound(found))
    }

    fn lacks_bound(&self, found: &Found) -> bool {
        self.judge.lacks_bound(found) && !self.bounds.contains(&(found.space, found.aux))
    }
}
