//! The changes of a batch: copies of lines, and the undo information of the last transaction.

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

/// Size of a line, bytes.
pub(crate) const LINE: usize = landfall_media::LINE_SIZE as usize;

pub(crate) type Line = [u8; LINE];

struct Changed {
    off: u64,
    bytes: Line,
    /// The transaction that has saved the previous contents in `undo`.
    noted_by: u64,
}

/// Changed lines by offset, and their contents before the open transaction.
#[derive(Default)]
pub(crate) struct Batch {
    lines: HashTable<Changed>,
    undo: Vec<(u64, Option<Line>)>,
    transaction: u64,
}

impl Batch {
    /// Number of changed lines.
    pub(crate) fn len(&self) -> usize {
        self.lines.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// True when the open transaction is the batch's first.
    pub(crate) fn is_first(&self) -> bool {
        self.undo.iter().filter(|(_, before)| before.is_none()).count() == self.lines.len()
    }

    /// Offsets and contents, ascending.
    pub(crate) fn lines(&self) -> Vec<(u64, &Line)> {
        let mut lines: Vec<(u64, &Line)> = self.lines.iter().map(|line| (line.off, &line.bytes)).collect();
        lines.sort_unstable_by_key(|(off, _)| *off);
        lines
    }

    /// True when a line of the range was changed.
    pub(crate) fn touches(&self, off: u64, len: usize) -> bool {
        !self.lines.is_empty() && lines_of(off, len).any(|line| self.find(line).is_some())
    }

    /// Applies the changes to `bytes`, which were read at `off`.
    pub(crate) fn patch(&self, off: u64, bytes: &mut [u8]) {
        let end = off + bytes.len() as u64;
        for line in lines_of(off, bytes.len()).filter_map(|line| self.find(line)) {
            let (from, to) = (off.max(line.off), end.min(line.off + LINE as u64));
            let part = &line.bytes[(from - line.off) as usize..(to - line.off) as usize];
            bytes[(from - off) as usize..(to - off) as usize].copy_from_slice(part);
        }
    }

    fn find(&self, off: u64) -> Option<&Changed> {
        self.lines.find(hash(off), |line| line.off == off)
    }

    /// Changes a part of the line at `off`, starting at its byte `from`. `home` reads the durable contents of the line.
    pub(crate) fn change<E>(
        &mut self,
        off: u64,
        from: usize,
        bytes: &[u8],
        home: impl FnOnce() -> Result<Line, E>,
    ) -> Result<(), E> {
        let transaction = self.transaction;
        let line = match self.lines.entry(hash(off), |line| line.off == off, |line| hash(line.off)) {
            Entry::Occupied(line) => line.into_mut(),
            Entry::Vacant(place) => {
                let line = if bytes.len() == LINE { [0; LINE] } else { home()? };
                self.undo.push((off, None));
                place.insert(Changed { off, bytes: line, noted_by: transaction }).into_mut()
            }
        };
        if line.noted_by != transaction {
            self.undo.push((off, Some(line.bytes)));
            line.noted_by = transaction;
        }
        line.bytes[from..from + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    /// Ends the transaction and keeps its changes.
    pub(crate) fn keep(&mut self) {
        self.undo.clear();
        self.transaction += 1;
    }

    /// Ends the transaction and reverts its changes.
    pub(crate) fn revert(&mut self) {
        for (off, before) in self.undo.drain(..).rev() {
            let Ok(mut line) = self.lines.find_entry(hash(off), |line| line.off == off) else { continue };
            match before {
                Some(bytes) => line.get_mut().bytes = bytes,
                None => _ = line.remove(),
            }
        }
        self.transaction += 1;
    }

    /// Discards all changes.
    pub(crate) fn clear(&mut self) {
        self.lines.clear();
        self.keep();
    }
}

/// Offsets of the lines that a range touches.
fn lines_of(off: u64, len: usize) -> impl Iterator<Item = u64> {
    (first_line(off)..off + len as u64).step_by(LINE)
}

/// Fibonacci hashing; the table uses the highest and the lowest bits.
const fn hash(off: u64) -> u64 {
    (off / LINE as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32)
}

/// Offset of the line that `off` lies in.
pub(crate) const fn first_line(off: u64) -> u64 {
    off / LINE as u64 * LINE as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(batch: &mut Batch, off: u64, byte: u8) {
        batch.change(off, 1, &[byte; 2], || Ok::<_, ()>([9; LINE])).expect("the home is there");
    }

    fn seen(batch: &Batch) -> Vec<u8> {
        let mut bytes = vec![9; 3 * LINE];
        batch.patch(0, &mut bytes);
        [1, 65, 129].map(|at| bytes[at]).to_vec()
    }

    #[test]
    fn a_reverted_transaction_leaves_the_others() {
        let mut batch = Batch::default();
        change(&mut batch, 0, 1);
        batch.keep();
        assert!(!batch.touches(64, 100) && batch.touches(63, 2));
        change(&mut batch, 0, 2);
        change(&mut batch, 0, 3);
        change(&mut batch, 64, 4);
        assert_eq!((seen(&batch), batch.is_first()), (vec![3, 4, 9], false));
        batch.revert();
        assert_eq!((seen(&batch), batch.len()), (vec![1, 9, 9], 1));
    }

    #[test]
    fn the_first_transaction_of_a_batch_is_known_as_such() {
        let mut batch = Batch::default();
        change(&mut batch, 0, 1);
        change(&mut batch, 128, 1);
        assert!(batch.is_first());
        batch.keep();
        assert!(!batch.is_first());
        batch.clear();
        assert!(batch.is_empty() && batch.is_first());
    }
}
