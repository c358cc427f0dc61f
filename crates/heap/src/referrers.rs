//! The records that refer to a data run.

use crate::coverage::Coverage;
use crate::layout::SlotId;
use std::ops::Range;

/// How a data run tracks bytes to which several records refer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Sharing {
    /// The run has no shared bytes.
    None = 0,
    /// [`Referrers::shared`] counts bytes with two references or more.
    Some = 1,
    /// [`Referrers::shared`] counts all referenced bytes, while recovery counts references.
    Counting = 2,
}

/// The records that refer to a data run.
#[derive(Debug, Default)]
pub(crate) struct Referrers {
    /// Slots as ranges: values that land together mostly get adjacent records. The ranges may include slots of other
    /// records, and of records that do not refer to the run any more.
    pub(crate) slots: Vec<Range<u32>>,
    /// Counts of shared bytes: see [`Sharing`].
    pub(crate) shared: Coverage,
}

/// Number of ranges at the end of the list in which a replaced slot is searched.
const RECENT: usize = 16;

/// Ranges with at most this many slots between them are joined.
const REFERRERS_GAP_MAX: u32 = 16;

impl Referrers {
    #[inline]
    pub(crate) fn note(&mut self, slot: SlotId) {
        match self.slots.last_mut() {
            Some(last) if (last.start..=last.end + REFERRERS_GAP_MAX).contains(&slot.0) => {
                last.end = last.end.max(slot.0 + 1);
            }
            _ => self.slots.push(slot.0..slot.0 + 1),
        }
    }

    /// Replaces the slot `old` by `new`, which refers to the same bytes. Otherwise versions of a value that changes
    /// often would fill the list.
    pub(crate) fn take_over(&mut self, old: SlotId, new: SlotId) {
        let recent = self.slots.len().saturating_sub(RECENT);
        let alone = old.0..old.0 + 1;
        if let Some(at) = self.slots[recent..].iter().rposition(|range| *range == alone) {
            self.slots.remove(recent + at);
        }
        self.note(new);
    }

    /// Sorts and joins the ranges.
    pub(crate) fn tidy(&mut self) {
        self.slots.sort_unstable_by_key(|range| range.start);
        let ranges = std::mem::take(&mut self.slots);
        for range in ranges {
            match self.slots.last_mut() {
                Some(last) if range.start <= last.end + REFERRERS_GAP_MAX => {
                    last.end = last.end.max(range.end);
                }
                _ => self.slots.push(range),
            }
        }
        self.slots.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_one_value_take_the_place_of_each_other() {
        let mut referrers = Referrers::default();
        let mut current = [SlotId(5), SlotId(1000)];
        current.iter().for_each(|slot| referrers.note(*slot));
        for step in 0..1000 {
            for (value, old) in current.iter_mut().enumerate() {
                let new = SlotId(10_000 + 100 * step + 50 * value as u32);
                referrers.take_over(*old, new);
                *old = new;
            }
        }
        assert_eq!(referrers.slots, current.map(|slot| slot.0..slot.0 + 1));
    }
}
