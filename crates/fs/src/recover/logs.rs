//! Which operations of a client's log count.

use super::found::{BoundFound, OperationFound};
use super::settled::{LogDamage, LogFound, OperationSlot};
use super::unreadable::Unreadable;
use crate::header::LogFields;
use crate::log::CLIENT;
use landfall_heap::Damage;

impl From<&OperationFound> for OperationSlot {
    fn from(found: &OperationFound) -> Self {
        Self { index: found.index, seq: found.version.seq, slot: found.slot }
    }
}

impl LogFound {
    /// A log whose bound cannot be read. Its operations are kept: nobody knows which of them are published.
    pub(super) fn without_bound(operations: &[OperationFound], damage: LogDamage) -> Self {
        Self {
            bound: None,
            first: 0,
            fields: None,
            operations: Vec::new(),
            index_max: operations.last().map(|operation| operation.index),
            behind: newest(operations).map(OperationSlot::from).collect(),
            damage: Some(damage),
        }
    }

    /// The log that a bound begins. `operations` are all of its client, in order. Returns the number of operations that
    /// were never acknowledged, too. Those of the mount at or above the mark that were appended before the bound are of an
    /// earlier time, in which they lay behind a gap.
    pub(super) fn new(
        client: u32,
        bound: &BoundFound,
        fields: LogFields,
        operations: &[OperationFound],
        unreadable: &Unreadable,
    ) -> (Self, u64) {
        let from = operations.partition_point(|operation| operation.index < bound.mark);
        let is_later = |found: &&OperationFound| client != CLIENT || found.version.seq > bound.version.seq;
        let later: Vec<OperationFound> = operations[from..].iter().filter(is_later).copied().collect();
        let known: Vec<OperationSlot> = newest(&later).map(OperationSlot::from).collect();
        let count = known.iter().zip(bound.mark..).take_while(|(known, index)| known.index == *index).count();
        let (first, behind) = known.split_at(count);
        let next = bound.mark + count as u64;
        let damage = missing(client, next, !behind.is_empty(), unreadable);
        let kept = if damage.is_some() { behind } else { &[] };
        let log = Self {
            bound: Some(bound.slot),
            first: bound.mark,
            fields: Some(fields),
            operations: first.to_vec(),
            index_max: operations.last().map(|operation| operation.index),
            behind: kept.to_vec(),
            damage,
        };
        (log, (behind.len() - kept.len()) as u64)
    }
}

/// Why there is no operation with this index: it cannot be read, or was never acknowledged (`None`).
fn missing(client: u32, index: u64, has_behind: bool, unreadable: &Unreadable) -> Option<LogDamage> {
    if let Some((slot, what)) = unreadable.operations.get(&(client, index)) {
        return Some(LogDamage { slot: Some(*slot), index: Some(index), what: *what });
    }
    // A slot of which nothing is known may have been the operation.
    let may_be_lost = has_behind && unreadable.unnamed > 0;
    may_be_lost.then_some(LogDamage { slot: None, index: Some(index), what: Damage::Lost })
}

/// Of several records of one index the last one, which has the highest version.
pub(super) fn newest(operations: &[OperationFound]) -> impl Iterator<Item = &OperationFound> {
    operations.chunk_by(|a, b| a.index == b.index).filter_map(<[_]>::last)
}
