//! Addresses of the region image.

use landfall_media::{Extent, RUN_SIZE};

/// The region image that a transport was opened over: mapped, readable and writable for as long as the transport lives
/// (the contract of [`crate::open`]).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Region {
    base: usize,
    len: u64,
}

impl Region {
    /// The image at `image`: address, bytes.
    pub(crate) const fn new(image: (usize, u64)) -> Self {
        Self { base: image.0, len: image.1 }
    }

    /// Address of an extent's first byte.
    ///
    /// # Panics
    /// If the extent is not completely inside the image: the kernel would read or write other memory.
    pub(crate) fn address(self, extent: Extent) -> *mut u8 {
        let end = extent.off.checked_add(u64::from(extent.len()));
        assert!(
            end.is_some_and(|end| end <= self.len),
            "{extent:?} reaches past {} bytes of image",
            self.len
        );
        let off = usize::try_from(extent.off).expect("the image is mapped, so its offsets fit an address");
        std::ptr::with_exposed_provenance_mut(self.base + off)
    }

    /// The whole run at `run_off`.
    pub(crate) fn run(run_off: u64) -> Extent {
        assert!(
            run_off.is_multiple_of(RUN_SIZE),
            "a run starts at a multiple of {RUN_SIZE}, not at {run_off}"
        );
        Extent::new(run_off, RUN_SIZE as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_base_plus_offset() {
        let region = Region::new((0x10_0000, 2 * RUN_SIZE));
        assert_eq!(region.address(Extent::new(7, 3)).addr(), 0x10_0007);
        assert_eq!(region.address(Region::run(RUN_SIZE)).addr(), 0x20_0000);
    }

    #[test]
    #[should_panic(expected = "reaches past")]
    fn an_extent_past_the_image_is_refused() {
        Region::new((0x10_0000, RUN_SIZE)).address(Extent::new(RUN_SIZE - 1, 2));
    }

    #[test]
    #[should_panic(expected = "reaches past")]
    fn an_extent_that_wraps_around_is_refused() {
        Region::new((0x10_0000, RUN_SIZE)).address(Extent::new(u64::MAX, 2));
    }
}
