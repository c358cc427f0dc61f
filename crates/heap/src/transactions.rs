//! Transactions: records in any number of slabs that count together or not at all, by one commit record. The protocol
//! and the argument for every crash point: `docs/format/commit.md`, "Transactions".

use crate::bond::TransactionId;
use crate::committed::Committed;
use crate::crc;
use crate::heap::Heap;
use crate::layout::SlotId;
use crate::owner::{Gone, Named, Owner};
use crate::record::{Draft, Fields, Kind, RecordView};
use crate::spaces;
use crate::successor::TakenRoom;
use std::sync::Arc;

/// Records that will count together. Its records do not count, and no index may point at them, until
/// [`crate::Writer::commit`] has returned. A transaction that is dropped instead is rolled back.
#[derive(Debug)]
#[must_use = "a transaction that is dropped is rolled back"]
pub struct Transaction {
    heap: Arc<Heap>,
    pub(crate) id: TransactionId,
    pub(crate) slots: Vec<SlotId>,
    /// At the writer's successor.
    pub(crate) room: TakenRoom,
}

impl Transaction {
    pub(crate) fn new(heap: &Arc<Heap>) -> Self {
        Self {
            heap: Arc::clone(heap),
            id: TransactionId(heap.draw_seq()),
            slots: Vec::new(),
            room: TakenRoom::default(),
        }
    }

    /// Number of records appended.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// True when nothing has been appended.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }
}

impl Drop for Transaction {
    /// Nothing is written: without a commit record none of its records counts.
    fn drop(&mut self) {
        if self.slots.is_empty() {
            return;
        }
        self.slots.iter().for_each(|slot| self.heap.retire_record(*slot));
        self.heap.note_release();
    }
}

impl Heap {
    /// Number of commit records that a record on the medium still needs.
    pub fn committed_transactions(&self) -> usize {
        self.transactions.0.lock().len()
    }

    /// The commit record of a transaction. Its key and its version are the id.
    pub(crate) fn commit_record(&self, id: TransactionId) -> Draft {
        let key = id.key();
        let mut draft = Draft::new(&Fields {
            kind: Kind::Commit,
            space: spaces::TRANSACTIONS,
            seq: id.0,
            rev: 0,
            hash: self.hash(spaces::TRANSACTIONS, &key),
            arrival_ns: 0,
            expiry_ms: 0,
            aux: 0,
        });
        draft.key_inline(&key);
        draft.value_inline(b"", crc::of(b""));
        draft
    }

    /// Notes a committed transaction: its commit record is durable in `slot`, and so are its `marked` records.
    pub(crate) fn note_committed(&self, id: TransactionId, slot: SlotId, marked: u64) {
        self.transactions.0.lock().insert(id, Committed { slot, marked });
    }

    /// True if a copy of the record counts without a transaction mark: the record has none, or recovery certainly
    /// believes the commit record.
    pub(crate) fn counts_by_itself(&self, view: &RecordView<'_>) -> bool {
        view.transaction().is_none_or(|id| {
            let transactions = self.transactions.0.lock();
            transactions.get(&id).is_some_and(|committed| self.is_marked(committed.slot))
        })
    }

    /// Notes that a record is gone from the medium, durably. False if the record never counted. With the last record of
    /// a transaction the commit record is retired.
    pub(crate) fn forget_marked(&self, id: TransactionId) -> bool {
        let mut transactions = self.transactions.0.lock();
        let Some(committed) = transactions.get_mut(&id) else { return false };
        committed.marked -= 1;
        if committed.marked == 0 {
            let slot = committed.slot;
            transactions.remove(&id);
            drop(transactions);
            self.drop_record(slot);
        }
        true
    }
}

/// The owners of all records: the heap owns commit records, the systems own all others.
pub(crate) struct WithHeap<'a> {
    pub(crate) heap: &'a Heap,
    pub(crate) systems: &'a dyn Owner,
}

impl WithHeap<'_> {
    /// The transaction that the commit record in a slot commits.
    fn id_in(&self, slot: SlotId) -> Option<TransactionId> {
        self.heap.record(slot).ok()?.commits()
    }
}

impl Owner for WithHeap<'_> {
    fn begin_move(&self, name: Named, slot: SlotId, hold: &mut dyn FnMut()) -> bool {
        if name.space != spaces::TRANSACTIONS {
            return self.systems.begin_move(name, slot, hold);
        }
        let Some(id) = self.id_in(slot) else { return false };
        let transactions = self.heap.transactions.0.lock();
        let is_current = transactions.get(&id).is_some_and(|committed| committed.slot == slot);
        if is_current {
            hold();
        }
        is_current
    }

    fn end_move(&self, name: Named, old: SlotId, new: SlotId) -> bool {
        if name.space != spaces::TRANSACTIONS {
            return self.systems.end_move(name, old, new);
        }
        let Some(id) = self.id_in(new) else { return false };
        let mut transactions = self.heap.transactions.0.lock();
        let current = transactions.get_mut(&id).filter(|committed| committed.slot == old);
        current.map(|committed| committed.slot = new).is_some()
    }

    fn abort_move(&self, name: Named) {
        // Stale commit records are not counted: they hide nothing.
        if name.space != spaces::TRANSACTIONS {
            self.systems.abort_move(name);
        }
    }

    fn forget(&self, gone: &mut [Gone]) {
        self.systems.forget(gone);
    }
}
