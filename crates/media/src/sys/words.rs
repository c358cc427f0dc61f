//! Summing words with the widest registers that the processor has.

/// Fewer bytes are summed with plain code: detecting the processor's features would take longer.
const WIDE_MIN: usize = 128;

/// Sum of the little-endian double words of `bytes`, then of the remaining single bytes, alternately as low and high
/// half of a word. Modulo 65535 it is the sum of the little-endian words.
#[inline]
pub(crate) fn total_of_words(bytes: &[u8]) -> u64 {
    if bytes.len() >= WIDE_MIN && is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has what the function was compiled for.
        return unsafe { wide(bytes) };
    }
    plain(bytes)
}

/// `plain`, which the compiler vectorizes here with registers of 32 bytes.
#[target_feature(enable = "avx2")]
fn wide(bytes: &[u8]) -> u64 {
    plain(bytes)
}

#[inline(always)]
fn plain(bytes: &[u8]) -> u64 {
    let mut doubles = bytes.chunks_exact(4);
    // The sum cannot overflow before 2^32 words.
    let whole =
        doubles.by_ref().map(|word| u64::from(u32::from_le_bytes([word[0], word[1], word[2], word[3]])));
    let total: u64 = whole.sum();
    let rest = doubles.remainder().iter().enumerate();
    rest.fold(total, |total, (at, byte)| total + (u64::from(*byte) << (8 * (at % 2))))
}
