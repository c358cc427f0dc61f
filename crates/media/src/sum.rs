//! One's-complement sums of byte ranges (RFC 1071): what TCP puts on the wire and an extent may keep.
//!
//! Sums add up: the sum of a stream is made of the sums of its pieces, and the sum of a piece is what is left
//! when its neighbours are taken away. That is how a value's sum is *derived* from its packet's checksum, and
//! how a reply's checksum is made of the sums of the extents that it sends (RFC 1071, section 2; RFC 1624).

use crate::sys::total_of_words;

/// Sum of 16-bit big-endian words, modulo 65535: zero and all ones are the same number here.
///
/// A sum belongs to bytes of which the first is the high half of a word; [`Sum::then`] and its inverses turn a
/// sum around where a piece starts at an odd place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Sum(u16);

const MODULUS: u32 = 0xffff;

impl Sum {
    /// Of no bytes.
    pub const ZERO: Self = Self(0);

    /// Of `bytes`; an odd last byte is the high half of a word (RFC 1071, section 1).
    #[inline]
    pub fn of(bytes: &[u8]) -> Self {
        // Words in little-endian order: the sum comes out with its bytes swapped (RFC 1071, section 2 B).
        Self::of_total(total_of_words(bytes)).swapped()
    }

    /// Of one 16-bit word.
    pub const fn of_word(word: u16) -> Self {
        Self((word as u32 % MODULUS) as u16)
    }

    /// Of a 32-bit number in network order.
    pub const fn of_u32(number: u32) -> Self {
        Self((number % MODULUS) as u16)
    }

    const fn of_total(total: u64) -> Self {
        // 2^16 is one modulo 65535: words of a larger number may just be added up.
        Self((total % MODULUS as u64) as u16)
    }

    /// Of the same bytes one place further on: halves of words change places.
    #[must_use]
    #[inline]
    pub const fn swapped(self) -> Self {
        Self(self.0.swap_bytes())
    }

    const fn placed_at(self, offset: usize) -> Self {
        if offset.is_multiple_of(2) { self } else { self.swapped() }
    }

    /// Of both, each starting at an even place.
    #[must_use]
    #[inline]
    pub const fn plus(self, other: Self) -> Self {
        Self::of_u32(self.0 as u32 + other.0 as u32)
    }

    /// What is left of a sum of two when one is taken away.
    #[must_use]
    #[inline]
    pub const fn minus(self, other: Self) -> Self {
        Self::of_u32(self.0 as u32 + MODULUS - other.0 as u32)
    }

    /// Of `len` bytes with this sum, followed by bytes with sum `next`.
    #[must_use]
    #[inline]
    pub const fn then(self, len: usize, next: Self) -> Self {
        self.plus(next.placed_at(len))
    }

    /// Of the part at `range` of bytes that have this sum, looking only at the shorter of the part and the rest.
    #[inline]
    pub fn of_part(self, bytes: &[u8], range: std::ops::Range<usize>) -> Self {
        let (start, rest) = (range.start, bytes.len() - range.len());
        if range.len() <= rest {
            return Self::of(&bytes[range]);
        }
        let before = Self::of(&bytes[..start]);
        let after = Self::of(&bytes[range.end..]).placed_at(range.end);
        // The part's place is turned back: swapping twice changes nothing.
        self.minus(before).minus(after).placed_at(start)
    }

    /// The checksum that makes everything sum up to zero: what goes into a header. Never zero in its other
    /// form, so that it also suits UDP, where a zero says that there is none (RFC 768).
    pub const fn checksum(self) -> u16 {
        !self.0
    }

    /// True for bytes that hold a right checksum of themselves.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// As kept on the medium: never zero, which says that none is kept.
    pub const fn to_stored(self) -> u16 {
        if self.0 == 0 { 0xffff } else { self.0 }
    }

    /// As it was kept on the medium; `None` for zero.
    pub const fn from_stored(stored: u16) -> Option<Self> {
        if stored == 0 { None } else { Some(Self::of_word(stored)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 1071, word by word.
    fn plain(bytes: &[u8]) -> u16 {
        let mut total: u32 = 0;
        for pair in bytes.chunks(2) {
            total += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
            total = (total & 0xffff) + (total >> 16);
        }
        (total % MODULUS) as u16
    }

    fn sample(len: usize) -> Vec<u8> {
        (0..len).map(|i| (i * 89 + i / 7 * 31 + 200) as u8).collect()
    }

    #[test]
    fn the_sum_is_that_of_the_words_one_by_one() {
        for len in (0..600).chain([1447, 1448, 9000]) {
            let bytes = sample(len);
            assert_eq!(Sum::of(&bytes).0, plain(&bytes), "{len} bytes");
        }
        assert_eq!(Sum::of(&[0xff; 65536]), Sum::ZERO);
        // The example of RFC 1071, section 3.
        assert_eq!(Sum::of(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]).0, 0xddf2);
    }

    #[test]
    fn pieces_make_the_whole_and_a_part_is_what_its_neighbours_leave() {
        let bytes = sample(97);
        let whole = Sum::of(&bytes);
        for start in 0..bytes.len() {
            let joined = Sum::of(&bytes[..start]).then(start, Sum::of(&bytes[start..]));
            assert_eq!(joined, whole);
            for end in start..=bytes.len() {
                assert_eq!(whole.of_part(&bytes, start..end), Sum::of(&bytes[start..end]), "{start}..{end}");
            }
        }
    }

    #[test]
    fn a_checksum_of_its_own_makes_the_sum_zero_and_is_never_stored_as_none() {
        for len in [0, 2, 40, 64] {
            let mut bytes = sample(len);
            let checksum = Sum::of(&bytes).checksum();
            assert_ne!(checksum, 0);
            bytes.extend([(checksum >> 8) as u8, checksum as u8]);
            assert!(Sum::of(&bytes).is_zero());
        }
        assert_eq!(Sum::from_stored(Sum::ZERO.to_stored()), Some(Sum::ZERO));
        assert_eq!(Sum::from_stored(0), None);
    }
}
