//! Memory of the caller that packets lie in.

/// An area of memory that is mapped, readable and writable for as long as the UMEM lives (the contract of
/// [`crate::Umem::register`]).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Area {
    base: usize,
    bytes: u64,
}

impl Area {
    pub(crate) const fn new(base: usize, bytes: u64) -> Self {
        Self { base, bytes }
    }

    pub(crate) const fn base(self) -> usize {
        self.base
    }

    pub(crate) const fn bytes(self) -> u64 {
        self.bytes
    }

    /// The two words that end at `end`, as little-endian numbers; `None` if they are not entirely inside the area.
    pub(crate) fn words_before(self, end: u64) -> Option<[u64; 2]> {
        const BYTES: u64 = size_of::<[u64; 2]>() as u64;
        let start = end.checked_sub(BYTES).filter(|_| end <= self.bytes)?;
        let at = std::ptr::with_exposed_provenance::<[u64; 2]>(self.base + usize::try_from(start).ok()?);
        // SAFETY: the 16 bytes are inside the mapping, see above; every pattern is a valid value. The kernel wrote them
        // before it published the descriptor, and does not write again until the chunk is filled again.
        Some(unsafe { at.read_unaligned() }.map(u64::from_le))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_just_before_the_end_and_never_outside() {
        let memory = [1u64, 2, 3];
        let area = Area::new(memory.as_ptr().expose_provenance(), 24);
        assert_eq!(area.words_before(24), Some([2, 3]));
        assert_eq!(area.words_before(16), Some([1, 2]));
        assert_eq!(area.words_before(15), None);
        assert_eq!(area.words_before(25), None);
        assert_eq!(area.words_before(u64::MAX), None);
    }
}
