//! CRC-32C (Castagnoli; RFC 3720 appendix B.4), as every checksum of the format uses it.

use crc_fast::{CrcAlgorithm, Digest};

/// CRC-32C of some bytes.
#[inline]
pub fn of(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// CRC-32C of bytes whose checksum is `crc`, followed by `bytes`.
#[inline]
pub fn append(crc: u32, bytes: &[u8]) -> u32 {
    if crc == 0 {
        return of(bytes);
    }
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(!crc));
    digest.update(bytes);
    digest.finalize() as u32
}

/// CRC-32C of two concatenated parts, from the CRC-32C of each. `len` is the length of the second part, bytes.
///
/// A CRC is the remainder of a polynomial over GF(2). The bytes of the second part shift the first part's polynomial,
/// and the remainders add up.
pub fn combined(first: u32, second: u32, len: u64) -> u32 {
    multiplied(shift_of(len), first) ^ second
}

/// The polynomial, lowest power first.
const POLYNOMIAL: u32 = 0x82f6_3b78;
/// The polynomial 1.
const ONE: u32 = 1 << 31;
/// Number of entries in [`SQUARES`]: the bits of a length in bits.
const SQUARES_MAX: usize = 48;
/// x^(2^n) modulo the polynomial.
const SQUARES: [u32; SQUARES_MAX] = {
    let mut squares = [ONE >> 1; SQUARES_MAX];
    let mut n = 1;
    while n < SQUARES_MAX {
        squares[n] = multiplied(squares[n - 1], squares[n - 1]);
        n += 1;
    }
    squares
};

/// x^(8 len) modulo the polynomial.
fn shift_of(len: u64) -> u32 {
    let bits = len << 3;
    let powers = (0..SQUARES_MAX).filter(|n| bits >> n & 1 != 0).map(|n| SQUARES[n]);
    powers.reduce(multiplied).unwrap_or(ONE)
}

/// The product of two polynomials modulo the polynomial.
const fn multiplied(a: u32, b: u32) -> u32 {
    let (mut product, mut shifted, mut power) = (0, b, 0);
    while power < u32::BITS {
        product ^= shifted & (a >> (31 - power) & 1).wrapping_neg();
        shifted = shifted >> 1 ^ POLYNOMIAL & (shifted & 1).wrapping_neg();
        power += 1;
    }
    product
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn parts_of_any_length_combine() {
        let zeroes = vec![0; 3 << 20];
        for len in [0, 1, 63, 64, 4096, 65_535, 65_536, 1 << 20, 3 << 20] {
            assert_eq!(
                combined(of(b"head"), of(&zeroes[..len]), len as u64),
                append(of(b"head"), &zeroes[..len])
            );
        }
        let doubled = (0..25).fold((of(b"\0"), 1), |(crc, len), _| (combined(crc, crc, len), 2 * len));
        let appended = (0..32).fold(0, |crc, _| append(crc, &zeroes[..1 << 20]));
        assert_eq!(doubled, (appended, 32 << 20));
    }

    #[test]
    fn the_check_value_of_the_catalogue_comes_out() {
        assert_eq!(of(b"123456789"), 0xe306_9283);
        assert_eq!(of(b""), 0);
    }

    proptest! {
        #[test]
        fn another_implementation_agrees_however_the_bytes_are_split(
            bytes in prop::collection::vec(any::<u8>(), 0..5000),
            split in any::<prop::sample::Index>(),
        ) {
            let (head, tail) = bytes.split_at(split.index(bytes.len() + 1));
            prop_assert_eq!(of(&bytes), crc32c::crc32c(&bytes));
            prop_assert_eq!(append(of(head), tail), crc32c::crc32c(&bytes));
            prop_assert_eq!(combined(of(head), of(tail), tail.len() as u64), crc32c::crc32c(&bytes));
        }
    }
}
