//! A bit for each of some things.

use crate::wire::WireError;

/// A bit for each of some things. In a message they fill whole bytes, the lowest bit first; those behind the last are 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bits {
    bytes: Vec<u8>,
    count: usize,
}

impl Bits {
    /// So many bits, none set.
    pub fn none(count: usize) -> Self {
        Self { bytes: vec![0; count.div_ceil(8)], count }
    }

    /// So many bits, all set.
    pub fn all(count: usize) -> Self {
        let mut bits = Self::none(count);
        (0..count).for_each(|at| bits.set(at));
        bits
    }

    /// Sets a bit.
    ///
    /// # Panics
    /// If there are fewer bits.
    pub fn set(&mut self, at: usize) {
        assert!(at < self.count, "bit {at} of {}", self.count);
        self.bytes[at / 8] |= 1 << (at % 8);
    }

    /// Clears a bit.
    ///
    /// # Panics
    /// If there are fewer bits.
    pub fn clear(&mut self, at: usize) {
        assert!(at < self.count, "bit {at} of {}", self.count);
        self.bytes[at / 8] &= !(1 << (at % 8));
    }

    /// True if a bit is set.
    pub fn is_set(&self, at: usize) -> bool {
        at < self.count && self.bytes[at / 8] & 1 << (at % 8) != 0
    }

    /// True if none is set.
    pub fn is_none(&self) -> bool {
        self.bytes.iter().all(|byte| *byte == 0)
    }

    /// Keeps the bits that are set in `other`, too.
    pub fn keep(&mut self, other: &Self) {
        (0..self.count).filter(|at| !other.is_set(*at)).for_each(|at| self.clear(at));
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Reads so many bits from the front of `rest`.
    pub(crate) fn take(rest: &mut &[u8], count: usize) -> Result<Self, WireError> {
        let (bytes, behind) = rest.split_at_checked(count.div_ceil(8)).ok_or(WireError::Length)?;
        let over = count % 8;
        if over != 0 && bytes.last().is_some_and(|last| last >> over != 0) {
            return Err(WireError::Length);
        }
        *rest = behind;
        Ok(Self { bytes: bytes.to_vec(), count })
    }
}
