//! What a data run knows of the records that refer to it.

use crate::coverage::Coverage;
use crate::layout::SlotId;
use std::ops::Range;

/// What a data run knows of bytes to which several records refer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Sharing {
    /// There are none.
    None = 0,
    /// [`Referrers::shared`] has those with two records or more.
    Some = 1,
    /// It has all bytes that records refer to: references are being counted by recovery.
    Counting = 2,
}

/// Which records refer to a data run.
#[derive(Debug, Default)]
pub(crate) struct Referrers {
    /// Slots, as ranges: what lands one after the other is mostly recorded one after the other. May name slots of other
    /// records, and of records that moved on since.
    pub(crate) slots: Vec<Range<u32>>,
    /// Bytes to which several refer: see [`Sharing`].
    pub(crate) shared: Coverage,
}

/// Among so many ranges, the last ones, is looked for the slot whose place another takes.
const RECENT: usize = 16;

/// Slots between two ranges that are not worth a range of their own.
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

    /// `new` refers to what `old` did. Versions of a value that is changed often would else fill the list.
    pub(crate) fn take_over(&mut self, old: SlotId, new: SlotId) {
        let recent = self.slots.len().saturating_sub(RECENT);
        let alone = old.0..old.0 + 1;
        if let Some(at) = self.slots[recent..].iter().rposition(|range| *range == alone) {
            self.slots.remove(recent + at);
        }
        self.note(new);
    }

    /// Orders and joins ranges that were noted in no order.
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
