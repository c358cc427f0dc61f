//! Records of transactions, noted until recovery knows whether they count.

use super::found::Found;
use crate::bond::TransactionId;
use crate::layout::SlotId;
use crate::record::RecordView;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};

/// A commit record: its newest copy.
#[derive(Clone, Copy, Debug)]
struct CommitRecord {
    rev: u32,
    slot: SlotId,
}

/// Records of one transaction in one slab.
#[derive(Debug)]
struct Part {
    id: TransactionId,
    slots: Vec<SlotId>,
    is_handed_over: bool,
}

#[derive(Debug, Default)]
struct State {
    commits: BTreeMap<TransactionId, CommitRecord>,
    parts: Vec<Part>,
    /// Parts before this index have been visited.
    next: usize,
}

/// The records of transactions that the scan has found.
#[derive(Debug, Default)]
pub(super) struct Noted(Mutex<State>);

/// Counts of transaction records by outcome.
#[derive(Debug, Default)]
pub(super) struct Decided {
    pub(super) decided_in_tails: u64,
    pub(super) undecided: u64,
}

impl Noted {
    /// The notes of one slab's records.
    pub(super) fn slab(&self) -> SlabNotes<'_> {
        SlabNotes { noted: self, commits: Vec::new(), parts: Vec::new() }
    }

    /// Transactions with a commit record.
    pub(super) fn ids(&self) -> BTreeSet<TransactionId> {
        self.0.lock().commits.keys().copied().collect()
    }

    /// The next records of a committed transaction.
    pub(super) fn next_decided(&self) -> Option<Vec<SlotId>> {
        let mut state = self.0.lock();
        let state = &mut *state;
        while let Some(part) = state.parts.get_mut(state.next) {
            state.next += 1;
            if !part.is_handed_over && state.commits.contains_key(&part.id) {
                part.is_handed_over = true;
                return Some(part.slots.clone());
            }
        }
        None
    }

    /// The records of the wanted transactions.
    pub(super) fn of(&self, wanted: impl Fn(TransactionId) -> bool) -> Vec<(TransactionId, Vec<SlotId>)> {
        let state = self.0.lock();
        let parts = state.parts.iter().filter(|part| wanted(part.id));
        parts.map(|part| (part.id, part.slots.clone())).collect()
    }

    /// The records of transactions without a commit record.
    pub(super) fn undecided(&self) -> Vec<SlotId> {
        let state = self.0.lock();
        let undecided = state.parts.iter().filter(|part| !state.commits.contains_key(&part.id));
        undecided.flat_map(|part| &part.slots).copied().collect()
    }

    /// Ends reading: records of committed transactions that were not visited are visited next, all others never.
    pub(super) fn decide(&mut self) -> Decided {
        let state = self.0.get_mut();
        state.next = 0;
        let mut decided = Decided::default();
        for part in state.parts.iter().filter(|part| !part.is_handed_over) {
            let records = part.slots.len() as u64;
            match state.commits.contains_key(&part.id) {
                true => decided.decided_in_tails += records,
                false => decided.undecided += records,
            }
        }
        decided
    }

    /// Each commit record that is still needed, with the number of its transaction's records on the medium.
    pub(super) fn committed(&self) -> Vec<(TransactionId, SlotId, u64)> {
        let state = self.0.lock();
        let mut marked: BTreeMap<TransactionId, u64> = BTreeMap::new();
        for part in &state.parts {
            *marked.entry(part.id).or_default() += part.slots.len() as u64;
        }
        let needed =
            |(id, commit): (&TransactionId, &CommitRecord)| Some((*id, commit.slot, *marked.get(id)?));
        state.commits.iter().filter_map(needed).collect()
    }
}

/// The notes of one slab's records. They become visible when this is dropped.
pub(super) struct SlabNotes<'n> {
    noted: &'n Noted,
    commits: Vec<(TransactionId, CommitRecord)>,
    parts: Vec<Part>,
}

impl SlabNotes<'_> {
    /// Notes a record of a transaction or a commit record. False for any other record, which the caller visits.
    pub(super) fn note(&mut self, found: &Found, view: &RecordView<'_>) -> bool {
        if let Some(id) = view.commits() {
            self.commits.push((id, CommitRecord { rev: found.rev, slot: found.slot }));
            return true;
        }
        let Some(id) = view.transaction() else { return false };
        match self.parts.iter_mut().rev().find(|part| part.id == id) {
            Some(part) => part.slots.push(found.slot),
            None => self.parts.push(Part { id, slots: vec![found.slot], is_handed_over: false }),
        }
        true
    }
}

impl Drop for SlabNotes<'_> {
    fn drop(&mut self) {
        if self.commits.is_empty() && self.parts.is_empty() {
            return;
        }
        let mut state = self.noted.0.lock();
        for (id, commit) in self.commits.drain(..) {
            let known = state.commits.entry(id).or_insert(commit);
            if commit.rev > known.rev {
                *known = commit;
            }
        }
        state.parts.append(&mut self.parts);
    }
}
