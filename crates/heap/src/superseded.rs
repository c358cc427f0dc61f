//! The versions that a batch supersedes.

use crate::layout::SlotId;
use landfall_media::Extent;

/// Superseded versions and the extents that they refer to. The extents are released when the replacements are durable.
#[derive(Debug, Default)]
pub(crate) struct Superseded {
    /// Each version with the number of its extents in `extents`.
    slots: Vec<(SlotId, usize)>,
    extents: Vec<Extent>,
}

/// Above this capacity the memory of the lists is not kept for the next batch.
const SUPERSEDED_KEPT: usize = 4096;

impl Superseded {
    pub(crate) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    #[inline]
    pub(crate) fn note(&mut self, slot: SlotId, refers: impl FnOnce(&mut Vec<Extent>)) {
        let before = self.extents.len();
        refers(&mut self.extents);
        self.slots.push((slot, self.extents.len() - before));
    }

    /// Every version with its extents.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (SlotId, &[Extent])> {
        let mut rest = self.extents.as_slice();
        self.slots.iter().map(move |(slot, count)| {
            let (refers, others) = rest.split_at(*count);
            rest = others;
            (*slot, refers)
        })
    }

    /// An empty list that reuses the memory, unless that is large.
    pub(crate) fn emptied(mut self) -> Self {
        if self.slots.capacity().max(self.extents.capacity()) > SUPERSEDED_KEPT {
            return Self::default();
        }
        self.slots.clear();
        self.extents.clear();
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_version_comes_with_its_own_extents_and_nothing_is_left_over_for_the_next_batch() {
        let extents = [Extent::new(0, 1), Extent::new(10, 2), Extent::new(20, 3)];
        let mut superseded = Superseded::default();
        for round in 0..2 {
            superseded.note(SlotId(round), |_| {});
            superseded.note(SlotId(7), |all| all.extend(&extents[..2]));
            superseded.note(SlotId(8), |all| all.push(extents[2]));
            let got: Vec<_> = superseded.iter().collect();
            assert_eq!(
                got,
                [(SlotId(round), &[][..]), (SlotId(7), &extents[..2]), (SlotId(8), &extents[2..])]
            );
            superseded = superseded.emptied();
            assert!(superseded.is_empty() && superseded.iter().next().is_none());
        }
    }
}
