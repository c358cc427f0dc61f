//! The run table: one word a run, in two copies, telling slabs from everything else.
//! Byte table and the order of changes: `docs/format/region.md`.

use crate::crc;
use crate::layout::{RunId, SLOTS_PER_RUN};
use landfall_media::{Dirty, Extent, Media, MediaError, Site};

/// What a run is, durably.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunWord {
    /// Free, or data that records refer to: recovery tells which by the records.
    NotSlab,
    /// Records lie here.
    Slab {
        /// Slots below this index are durable with their data: the slab's *watermark*.
        durable: u32,
        /// No slot will be written again.
        sealed: bool,
    },
}

const KIND_SLAB: u8 = 1;
const FLAG_SEALED: u8 = 1;

/// Encodes a word. `NotSlab` is zero, so that a zeroed table says that no run is a slab.
pub fn encode(word: RunWord, run: RunId, salt: &[u8; 16]) -> u64 {
    let RunWord::Slab { durable, sealed } = word else { return 0 };
    debug_assert!(durable <= SLOTS_PER_RUN);
    let low = u32::from(KIND_SLAB) | u32::from(u8::from(sealed) * FLAG_SEALED) << 8 | durable << 16;
    u64::from(low) | u64::from(check(low, run, salt)) << 32
}

/// Decodes a word; `None` when its check fails.
pub fn decode(word: u64, run: RunId, salt: &[u8; 16]) -> Option<RunWord> {
    if word == 0 {
        return Some(RunWord::NotSlab);
    }
    let (low, found) = (word as u32, (word >> 32) as u32);
    let durable = low >> 16;
    let valid = check(low, run, salt) == found
        && low as u8 == KIND_SLAB
        && (low >> 8) as u8 & !FLAG_SEALED == 0
        && durable <= SLOTS_PER_RUN;
    valid.then_some(RunWord::Slab { durable, sealed: (low >> 8) as u8 & FLAG_SEALED != 0 })
}

fn check(low: u32, run: RunId, salt: &[u8; 16]) -> u32 {
    let seeded = crc::append(crc::of(salt), &run.0.to_le_bytes());
    crc::append(seeded, &low.to_le_bytes())
}

/// What one run's two copies say together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadWord {
    /// The word to believe; `None` when both copies are damaged.
    pub word: Option<RunWord>,
    /// The copies differ or one is damaged: rewrite both before anything else.
    pub repair: bool,
    /// A copy fails its check. (Copies that hold and differ are what a crash between two writes leaves.)
    pub damaged: bool,
}

/// Reads one run's word, preferring the first copy.
///
/// # Errors
/// The medium's.
pub fn read(media: &dyn Media, run: RunId, salt: &[u8; 16]) -> Result<ReadWord, MediaError> {
    let mut words = [None; 2];
    for (copy, off) in run.table_words().into_iter().enumerate() {
        let bytes = media.bytes(Extent::new(off, 8))?;
        let word = u64::from_le_bytes(bytes.try_into().expect("eight bytes were asked for"));
        words[copy] = decode(word, run, salt);
    }
    Ok(ReadWord {
        word: words[0].or(words[1]),
        repair: words[0].is_none() || words[0] != words[1],
        damaged: words.contains(&None),
    })
}

/// Stores and flushes both copies; the caller fences [`Site::RunTableFence`].
///
/// # Errors
/// The medium's.
pub fn write(
    media: &dyn Media,
    dirty: &mut Dirty,
    run: RunId,
    word: RunWord,
    salt: &[u8; 16],
) -> Result<(), MediaError> {
    let bits = encode(word, run, salt);
    for off in run.table_words() {
        media.store_u64(off, bits)?;
        media.flush(dirty, Site::RunTable, Extent::new(off, 8));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As in `docs/format/region.md`.
    #[test]
    fn the_bits_of_a_word_are_frozen() {
        let word = RunWord::Slab { durable: 0x1234, sealed: true };
        assert_eq!(encode(word, RunId(9), &[7; 16]), 0xd1a4_4c15_1234_0101);
    }

    #[test]
    fn words_survive_encoding_and_every_flipped_bit_is_noticed() {
        let salt = [7; 16];
        for word in
            [RunWord::Slab { durable: 0, sealed: false }, RunWord::Slab { durable: 8192, sealed: true }]
        {
            let bits = encode(word, RunId(9), &salt);
            assert_eq!(decode(bits, RunId(9), &salt), Some(word));
            assert_eq!(decode(bits, RunId(10), &salt), None, "a misplaced word is not believed");
            for bit in 0..64 {
                assert_eq!(decode(bits ^ 1 << bit, RunId(9), &salt), None, "bit {bit}");
            }
        }
        assert_eq!(decode(0, RunId(3), &salt), Some(RunWord::NotSlab));
    }
}
