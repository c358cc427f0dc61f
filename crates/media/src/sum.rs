//! One's-complement sums of byte ranges (RFC 1071): the sum in TCP headers, which an extent may carry.
//!
//! Sums can be added and subtracted: the sum of a stream is the sum of the sums of its pieces, and the sum of a piece
//! is the whole sum less the sums of its neighbours. So a value's sum is *derived* from its packet's checksum, and a
//! reply's checksum from the sums of the extents that it sends (RFC 1071, section 2; RFC 1624).

use crate::sys::words::total_of_words;

/// Sum of 16-bit big-endian words, modulo 65535: zero and all ones are one number here.
///
/// A sum assumes that the first byte is the high half of a word. [`Sum::then`] and its inverses swap the bytes of a sum
/// where a piece starts at an odd offset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Sum(u16);

const MODULUS: u32 = 0xffff;

impl Sum {
    /// The sum of no bytes.
    pub const ZERO: Self = Self(0);

    /// The sum of `bytes`; an odd last byte is the high half of a word (RFC 1071, section 1).
    #[inline]
    pub fn of(bytes: &[u8]) -> Self {
        // Words in little-endian order: the sum comes out with its bytes swapped (RFC 1071, section 2 B).
        Self::of_total(total_of_words(bytes)).swapped()
    }

    /// The sum of one 16-bit word.
    pub const fn of_word(word: u16) -> Self {
        Self((word as u32 % MODULUS) as u16)
    }

    /// The sum of a 32-bit number in network order.
    pub const fn of_u32(number: u32) -> Self {
        Self((number % MODULUS) as u16)
    }

    const fn of_total(total: u64) -> Self {
        // 2^16 is 1 modulo 65535, so that the words of a larger number can be added.
        Self((total % MODULUS as u64) as u16)
    }

    /// The sum of these bytes at an offset that is one higher: the halves of each word are swapped.
    #[must_use]
    #[inline]
    pub const fn swapped(self) -> Self {
        Self(self.0.swap_bytes())
    }

    const fn placed_at(self, offset: usize) -> Self {
        if offset.is_multiple_of(2) { self } else { self.swapped() }
    }

    /// The sum of both, each starting at an even offset.
    #[must_use]
    #[inline]
    pub const fn plus(self, other: Self) -> Self {
        Self::of_u32(self.0 as u32 + other.0 as u32)
    }

    /// The sum of two parts less the sum of one of them.
    #[must_use]
    #[inline]
    pub const fn minus(self, other: Self) -> Self {
        Self::of_u32(self.0 as u32 + MODULUS - other.0 as u32)
    }

    /// The sum of `len` bytes with this sum, followed by bytes with sum `next`.
    #[must_use]
    #[inline]
    pub const fn then(self, len: usize, next: Self) -> Self {
        self.plus(next.placed_at(len))
    }

    /// The sum of the part at `range` of `bytes`, which have this sum. Reads only the shorter of the part and the rest.
    #[inline]
    pub fn of_part(self, bytes: &[u8], range: std::ops::Range<usize>) -> Self {
        let (start, rest) = (range.start, bytes.len() - range.len());
        if range.len() <= rest {
            return Self::of(&bytes[range]);
        }
        let before = Self::of(&bytes[..start]);
        let after = Self::of(&bytes[range.end..]).placed_at(range.end);
        // The swap of an odd offset is undone: swapping twice changes nothing.
        self.minus(before).minus(after).placed_at(start)
    }

    /// The checksum for a header: with it, everything sums to zero. It is never stored as zero, so that it also suits
    /// UDP, where zero means that there is no checksum (RFC 768).
    pub const fn checksum(self) -> u16 {
        !self.0
    }

    /// True for bytes that contain a correct checksum of themselves.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// The stored form: never zero, since zero means that no sum is stored.
    pub const fn to_stored(self) -> u16 {
        if self.0 == 0 { 0xffff } else { self.0 }
    }

    /// The sum from its stored form; `None` for zero.
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
    fn sums_of_pieces_add_up_and_a_part_is_the_whole_less_its_neighbours() {
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
    fn a_checksum_makes_the_sum_zero_and_is_never_stored_as_none() {
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
