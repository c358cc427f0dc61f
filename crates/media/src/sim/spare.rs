//! Images of regions that are gone, kept for the next ones.
//!
//! A crash campaign makes a region for each crash. Fresh memory is zeroed by the kernel, a huge page at a time; a spare
//! image costs only as much as was stored to the region before.

use crate::sys::Image;
use std::cell::RefCell;
use std::ops::Deref;

/// Most images that a thread keeps: as many regions as a test usually has at once.
const SPARES_MAX: usize = 4;
/// Longest image that is kept.
const SPARE_BYTES_MAX: u64 = 64 << 20;

thread_local! {
    static SPARES: RefCell<Vec<Spare>> = const { RefCell::new(Vec::new()) };
}

/// A blank image, with the length and the reservation that it was made for.
struct Spare {
    image: Image,
    size: (u64, u64),
}

/// The image of a simulated region.
pub(super) struct Lent {
    /// Present until [`Self::give_back`].
    image: Option<Image>,
    size: (u64, u64),
}

impl Lent {
    /// Blank memory of `len` bytes, which may grow to `reserve` bytes.
    ///
    /// # Panics
    /// If there is no memory.
    pub(super) fn new(len: u64, reserve: u64) -> Self {
        let size = (len, reserve);
        let image = take(size)
            .unwrap_or_else(|| Image::anonymous(len, reserve).expect("memory for a simulated region"));
        Self { image: Some(image), size }
    }

    /// Keeps the image for another region. `stored`: offsets and lengths of all that may not be zero.
    pub(super) fn give_back(&mut self, stored: impl Iterator<Item = (u64, u64)>) {
        let (len, _) = self.size;
        // A region that has grown is like no new one.
        let is_kept = |image: &Image| image.len() == len && len <= SPARE_BYTES_MAX;
        let Some(image) = self.image.take().filter(is_kept) else { return };
        for (off, len) in stored {
            image.zero(off, len).expect("within the region");
        }
        keep(Spare { image, size: self.size });
    }
}

impl Deref for Lent {
    type Target = Image;

    #[inline]
    fn deref(&self) -> &Image {
        self.image.as_ref().expect("only a region that is gone gives its image back")
    }
}

fn take(size: (u64, u64)) -> Option<Image> {
    SPARES.with_borrow_mut(|spares| {
        let at = spares.iter().position(|spare| spare.size == size)?;
        Some(spares.swap_remove(at).image)
    })
}

fn keep(spare: Spare) {
    // A thread that ends keeps nothing.
    let _ = SPARES.try_with(|spares| {
        let mut spares = spares.borrow_mut();
        if spares.len() == SPARES_MAX {
            spares.remove(0);
        }
        spares.push(spare);
    });
}

#[cfg(test)]
mod tests {
    use crate::sim::{SimMedia, SimOptions};
    use crate::{ChunkSet, Evict, Extent, Media, RUN_SIZE, Site, Standing, persist};

    const LEN: u64 = 2 * RUN_SIZE;

    fn region() -> std::sync::Arc<SimMedia> {
        SimMedia::new(LEN, SimOptions::default())
    }

    fn all(media: &SimMedia) -> &[u8] {
        media.bytes(Extent::new(0, LEN as u32)).expect("in bounds")
    }

    fn save(media: &SimMedia, off: u64, bytes: &[u8]) {
        media.store(off, bytes).expect("in bounds");
        persist(media, Extent::new(off, bytes.len() as u32), Site::Data, Site::Commit).expect("durable");
    }

    #[test]
    fn a_new_region_is_blank_in_the_memory_of_one_that_is_gone() {
        let old = region();
        let address = all(&old).as_ptr();
        old.store(100, b"pending").expect("in bounds");
        save(&old, 70_000, b"durable");
        save(&old, 90_000, b"durable");
        old.store(90_000, b"pending").expect("in bounds");
        old.damage(300_000, 1);
        old.damage_medium(400_000, 1);
        save(&old, RUN_SIZE + 100, b"given back");
        old.give_back_run(RUN_SIZE, Standing::Bare).expect("a run");
        drop(old);
        let new = region();
        assert_eq!(all(&new).as_ptr(), address);
        assert_eq!(all(&new), vec![0; LEN as usize]);
    }

    #[test]
    fn memory_of_regions_that_were_paged_or_have_grown_is_not_used_again() {
        let paged = region();
        paged.page(0);
        paged.clone().pages().expect("it is paged").evict(0, Evict::Any, ChunkSet::ALL);
        drop(paged);
        assert_eq!(all(&region()), vec![0; LEN as usize]);
        let grown = region();
        grown.grow(LEN + RUN_SIZE).expect("within the reservation");
        drop(grown);
        assert_eq!(region().len(), LEN);
    }
}
