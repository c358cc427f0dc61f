//! Blocks: size classes and free lists, which are stored in the pool.

use super::blocks::Pool;
use super::layout::{HEADS_AT, TOP_AT, USED_AT};
use super::transaction::Transaction;
use crate::error::{HandlerError, Result};

/// Maximum size of a block, bytes.
pub const BLOCK_BYTES_MAX: u64 = 128 << 10;

/// Size classes: eight of 64 to 512 bytes, then four for each of eight doublings.
const CLASSES: usize = 40;
const STEP: u64 = 64;
const EVEN_CLASSES: usize = 8;

/// A block that is in use or free.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Block {
    /// Offset from the start of the region, bytes.
    pub off: u64,
    /// Size of its class, bytes.
    pub size: u64,
}

impl Block {
    /// The block at `off` of an object of `len` bytes, at most [`BLOCK_BYTES_MAX`].
    pub(crate) fn of(off: u64, len: u64) -> Result<Self> {
        Ok(Self { off, size: size_of(class_of(len)?) })
    }
}

const fn size_of(class: usize) -> u64 {
    if class < EVEN_CLASSES {
        return STEP * (class as u64 + 1);
    }
    let (doubling, quarter) = ((class - EVEN_CLASSES) / 4, (class - EVEN_CLASSES) % 4);
    (STEP * EVEN_CLASSES as u64 / 4 * (quarter as u64 + 5)) << doubling
}

/// The smallest class that holds `len` bytes.
fn class_of(len: u64) -> Result<usize> {
    (0..CLASSES).find(|class| size_of(*class) >= len).ok_or(HandlerError::TooLong {
        what: "block",
        len,
        max: BLOCK_BYTES_MAX,
    })
}

/// True when two lengths belong to one size class.
pub(crate) fn same_class(one: u64, other: u64) -> bool {
    matches!((class_of(one), class_of(other)), (Ok(a), Ok(b)) if a == b)
}

const fn head_of(class: usize) -> u64 {
    HEADS_AT + 8 * class as u64
}

impl Transaction<'_> {
    /// Allocates a block for `len` bytes, at most [`BLOCK_BYTES_MAX`], aligned to 64. Its contents are undefined.
    ///
    /// # Errors
    /// [`HandlerError::Full`], [`HandlerError::TooLong`]; [`HandlerError::Damaged`]; those of the medium.
    pub fn alloc(&mut self, len: u64) -> Result<u64> {
        let class = class_of(len)?;
        let size = size_of(class);
        let off = match self.pop(class)? {
            Some(off) => off,
            None => match self.extend(size)? {
                Some(off) => off,
                None => self.split_for(class)?.ok_or(HandlerError::Full { bytes: size })?,
            },
        };
        let used = self.state(USED_AT)?;
        self.set_state(USED_AT, used.saturating_add(size))?;
        Ok(off)
    }

    /// Frees the block at `off` that was allocated for `len` bytes.
    ///
    /// # Errors
    /// [`HandlerError::Damaged`] for a range that cannot be a block; those of the medium.
    pub fn free(&mut self, off: u64, len: u64) -> Result<()> {
        let class = class_of(len)?;
        let used = self.state(USED_AT)?.checked_sub(size_of(class));
        self.set_state(USED_AT, used.ok_or(HandlerError::damaged("bytes in use", USED_AT))?)?;
        self.push(off, class)
    }

    fn pop(&mut self, class: usize) -> Result<Option<u64>> {
        let off = self.state(head_of(class))?;
        if off == 0 {
            return Ok(None);
        }
        self.check_block(off, size_of(class))?;
        let next = self.word(off)?;
        self.set_state(head_of(class), next)?;
        Ok(Some(off))
    }

    fn push(&mut self, off: u64, class: usize) -> Result<()> {
        self.check_block(off, size_of(class))?;
        let next = self.state(head_of(class))?;
        self.set_word(off, next)?;
        self.set_state(head_of(class), off)
    }

    /// Allocates bytes that have never been used.
    fn extend(&mut self, size: u64) -> Result<Option<u64>> {
        let top = self.state(TOP_AT)?;
        let end = top.checked_add(size).filter(|end| *end <= self.heap().end);
        if let Some(end) = end {
            self.set_state(TOP_AT, end)?;
        }
        Ok(end.map(|_| top))
    }

    /// Splits the smallest free block of a larger class.
    fn split_for(&mut self, class: usize) -> Result<Option<u64>> {
        for larger in class + 1..CLASSES {
            if let Some(off) = self.pop(larger)? {
                self.push_all(off + size_of(class), off + size_of(larger))?;
                return Ok(Some(off));
            }
        }
        Ok(None)
    }

    /// Frees a range as blocks, the largest first.
    fn push_all(&mut self, mut off: u64, end: u64) -> Result<()> {
        for class in (0..CLASSES).rev() {
            while end - off >= size_of(class) {
                self.push(off, class)?;
                off += size_of(class);
            }
        }
        Ok(())
    }

    fn check_block(&self, off: u64, size: u64) -> Result<()> {
        let top = self.state(TOP_AT)?;
        let within = off >= self.heap().start && off.checked_add(size).is_some_and(|end| end <= top);
        if !within || !off.is_multiple_of(STEP) {
            return Err(HandlerError::damaged("reference to a block", off));
        }
        Ok(())
    }
}

/// Checks that the blocks `used`, in any order, and the free blocks cover the heap up to its top, each byte once.
pub(crate) fn check_tiling(pool: &Pool, mut used: Vec<Block>) -> Result<()> {
    let bytes_used: u64 = used.iter().map(|block| block.size).sum();
    if bytes_used != pool.state(USED_AT)? {
        return Err(HandlerError::damaged("bytes in use", USED_AT));
    }
    for class in 0..CLASSES {
        free_blocks(pool, class, &mut used)?;
    }
    used.sort_unstable();
    let mut next = pool.heap().start;
    for block in used {
        if block.off != next {
            return Err(HandlerError::damaged("block lost or used twice", next.min(block.off)));
        }
        next += block.size;
    }
    let top = pool.state(TOP_AT)?;
    if next == top { Ok(()) } else { Err(HandlerError::damaged("block lost before the top", next)) }
}

fn free_blocks(pool: &Pool, class: usize, into: &mut Vec<Block>) -> Result<()> {
    let mut off = pool.state(head_of(class))?;
    for _ in 0..=pool.blocks_max() {
        if off == 0 {
            return Ok(());
        }
        into.push(Block { off, size: size_of(class) });
        off = pool.word(off)?;
    }
    Err(HandlerError::damaged("free list without an end", head_of(class)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use landfall_media::sim::{SimMedia, SimOptions};

    fn pool(len: u64) -> Pool {
        Pool::create(SimMedia::new(len, SimOptions::default()), 4096).expect("a new pool")
    }

    #[test]
    fn size_classes_ascend_to_the_largest_block_in_whole_lines() {
        let sizes: Vec<u64> = (0..CLASSES).map(size_of).collect();
        assert_eq!(sizes[..12], [64, 128, 192, 256, 320, 384, 448, 512, 640, 768, 896, 1024]);
        assert!(sizes.is_sorted() && sizes.iter().all(|size| size % STEP == 0));
        assert_eq!(sizes[CLASSES - 1], BLOCK_BYTES_MAX);
        assert_eq!((class_of(0).expect("fits"), class_of(513).expect("fits")), (0, 8));
        assert!(matches!(class_of(BLOCK_BYTES_MAX + 1), Err(HandlerError::TooLong { .. })));
    }

    #[test]
    fn blocks_and_free_blocks_tile_the_heap() {
        let mut pool = pool(64 << 10);
        let mut tx = pool.begin().expect("open");
        let mut blocks: Vec<(u64, u64)> = Vec::new();
        for len in [1, 64, 65, 3000, 700] {
            blocks.push((tx.alloc(len).expect("room"), len));
        }
        for at in [3, 1] {
            let (off, len) = blocks.remove(at);
            tx.free(off, len).expect("a block");
        }
        let again = tx.alloc(60).expect("room");
        blocks.push((again, 60));
        tx.keep().expect("fits");
        let used: Vec<Block> =
            blocks.iter().map(|(off, len)| Block::of(*off, *len).expect("a size")).collect();
        check_tiling(&pool, used.clone()).expect("each byte once");
        assert!(check_tiling(&pool, used[1..].to_vec()).is_err());
    }

    #[test]
    fn a_full_heap_splits_a_free_block_or_reports_that_it_is_full() {
        let mut pool = pool(16 << 10);
        let mut tx = pool.begin().expect("open");
        let large = tx.alloc(3000).expect("room");
        while tx.alloc(64).is_ok() {}
        assert!(matches!(tx.alloc(1), Err(HandlerError::Full { bytes: 64 })));
        tx.free(large, 3000).expect("a block");
        assert_eq!(tx.alloc(100).expect("split"), large);
        assert_eq!(tx.alloc(2500).expect("the rest"), large + 128);
    }

    #[test]
    fn a_range_that_is_not_a_block_cannot_be_freed() {
        let mut pool = pool(16 << 10);
        let mut tx = pool.begin().expect("open");
        let off = tx.alloc(64).expect("room");
        for bad in [0, 64, off + 8, off + 64, u64::MAX - 63] {
            assert!(matches!(tx.free(bad, 1), Err(HandlerError::Damaged { .. })), "{bad}");
        }
    }
}
