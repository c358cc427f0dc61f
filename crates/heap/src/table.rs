//! The run table: one word a run, in two copies, which says whether the run is a slab. The runs' epochs are stored in
//! the same way. Byte table and the order of changes: `docs/format/region.md`.

use crate::crc;
use crate::layout::{EPOCH_OFFSETS, RunId, SLOTS_PER_RUN, TABLE_OFFSETS, ZONE_RUNS};
use landfall_media::{Dirty, Extent, Media, MediaError, Site};
use std::ops::Range;

/// The word of a run in the run table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunWord {
    /// Free, or data. Recovery decides by the records that refer to the run.
    NotSlab,
    /// The run is a slab.
    Slab {
        /// Slots below this index are durable with their data: the slab's *watermark*.
        durable: u32,
        /// All slots are written.
        sealed: bool,
    },
}

const KIND_SLAB: u8 = 1;
const FLAG_SEALED: u8 = 1;

/// Encodes a word. `NotSlab` is zero, so that in a zeroed table no run is a slab.
pub fn encode(word: RunWord, run: RunId, salt: &[u8; 16]) -> u64 {
    let RunWord::Slab { durable, sealed } = word else { return 0 };
    debug_assert!(durable <= SLOTS_PER_RUN);
    let low = u32::from(KIND_SLAB) | u32::from(u8::from(sealed) * FLAG_SEALED) << 8 | durable << 16;
    u64::from(low) | u64::from(check(low, run, salt)) << 32
}

/// Decodes a word; `None` if its check fails.
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

/// How often a run has become a slab. Its records are sealed with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Epoch(pub u32);

impl Epoch {
    /// Both copies were damaged: the records in the run may be of any epoch.
    pub const UNKNOWN: Self = Self(u32::MAX);

    /// The next epoch; `None` if the run must be zeroed first, and restarts with [`Self::FIRST`].
    pub fn next(self) -> Option<Self> {
        (self.0 < u32::MAX - 1).then(|| Self(self.0 + 1))
    }

    /// The epoch of the first slab in a run that holds zeroes.
    pub const FIRST: Self = Self(1);
}

/// Encodes an epoch. Epoch 0 is zero, so that with zeroed words no run was ever a slab.
pub fn encode_epoch(epoch: Epoch, run: RunId, salt: &[u8; 16]) -> u64 {
    if epoch.0 == 0 {
        return 0;
    }
    u64::from(epoch.0) | u64::from(check_epoch(epoch.0, run, salt)) << 32
}

/// Decodes an epoch; `None` if its check fails.
pub fn decode_epoch(word: u64, run: RunId, salt: &[u8; 16]) -> Option<Epoch> {
    let (low, found) = (word as u32, (word >> 32) as u32);
    (word == 0 || low != 0 && check_epoch(low, run, salt) == found).then_some(Epoch(low))
}

fn check_epoch(low: u32, run: RunId, salt: &[u8; 16]) -> u32 {
    let seeded = crc::append(crc::append(crc::of(salt), &run.0.to_le_bytes()), b"EPOC");
    crc::append(seeded, &low.to_le_bytes())
}

/// What a medium loses at once, at least.
const SECTOR_BYTES: u64 = 512;

/// The combined reading of a run's two copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadWord<W> {
    /// The valid word; `None` if both copies are damaged.
    pub word: Option<W>,
    /// The copies differ or one is damaged: rewrite both before any other change.
    pub repair: bool,
    /// A copy fails its check, or the medium has lost it. (Valid copies that differ are left by a crash between two writes.)
    pub damaged: bool,
}

impl<W: PartialEq> ReadWord<W> {
    fn of(words: [Option<W>; 2], word: Option<W>) -> Self {
        let damaged = words.contains(&None);
        Self { word, repair: damaged || words[0] != words[1], damaged }
    }
}

/// Reads one run's word. The first copy takes precedence, unless the medium has lost its sector: zeroes pass every check.
///
/// # Errors
/// The medium's.
pub fn read(media: &dyn Media, run: RunId, salt: &[u8; 16]) -> Result<ReadWord<RunWord>, MediaError> {
    let offsets = run.table_words();
    let words = read_copies(media, offsets, |word| decode(word, run, salt))?;
    let lost = match words {
        [Some(RunWord::NotSlab), Some(RunWord::Slab { .. })] => Some(0),
        [Some(RunWord::Slab { .. }), Some(RunWord::NotSlab)] => Some(1),
        _ => None,
    };
    if let Some(copy) = lost
        && words_in_sector(media, offsets[copy])? == 0
    {
        // A crash may have come between the two copies of a run that has just become a slab, or is none any more. With
        // others in its sector it was no crash.
        let damaged = words_in_sector(media, offsets[1 - copy])? > 1;
        return Ok(ReadWord { word: words[1 - copy], repair: true, damaged });
    }
    Ok(ReadWord::of(words, words[0].or(words[1])))
}

/// Reads one run's epoch. Of two valid copies the higher one counts: no run has had a lower one since it was stored.
///
/// # Errors
/// The medium's.
pub fn read_epoch(media: &dyn Media, run: RunId, salt: &[u8; 16]) -> Result<ReadWord<Epoch>, MediaError> {
    let words = read_copies(media, run.epoch_words(), |word| decode_epoch(word, run, salt))?;
    let highest = words.into_iter().flatten().max();
    let read = ReadWord::of(words, highest);
    // A crash leaves an epoch and the one before, or an unknown one and the first.
    let is_lost = words.contains(&Some(Epoch(0))) && highest.is_some_and(|highest| highest > Epoch::FIRST);
    Ok(ReadWord { damaged: read.damaged || is_lost, ..read })
}

fn read_copies<W: Copy>(
    media: &dyn Media,
    offsets: [u64; 2],
    decode: impl Fn(u64) -> Option<W>,
) -> Result<[Option<W>; 2], MediaError> {
    let mut words = [None; 2];
    for (copy, off) in offsets.into_iter().enumerate() {
        let bytes = media.bytes(Extent::new(off, 8))?;
        let word = u64::from_le_bytes(bytes.try_into().expect("eight bytes were asked for"));
        // What the medium cannot read is zeroes, which pass every check.
        let is_read = !media.unreadable().iter().any(|block| (block.off..block.end()).contains(&off));
        words[copy] = decode(word).filter(|_| is_read);
    }
    Ok(words)
}

/// Number of words in the sector of a word that are not zero.
fn words_in_sector(media: &dyn Media, off: u64) -> Result<usize, MediaError> {
    let sector = Extent::new(off / SECTOR_BYTES * SECTOR_BYTES, SECTOR_BYTES as u32);
    Ok(media.bytes(sector)?.chunks(8).filter(|word| word.iter().any(|byte| *byte != 0)).count())
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
    write_copies(media, dirty, run.table_words(), encode(word, run, salt), Site::RunTable)
}

/// Stores and flushes both copies of an epoch; the caller fences [`Site::SlabEpochFence`].
///
/// # Errors
/// The medium's.
pub fn write_epoch(
    media: &dyn Media,
    dirty: &mut Dirty,
    run: RunId,
    epoch: Epoch,
    salt: &[u8; 16],
) -> Result<(), MediaError> {
    write_copies(media, dirty, run.epoch_words(), encode_epoch(epoch, run, salt), Site::SlabEpoch)
}

/// Zeroes, durably, the run tables of the zones that begin in `runs`.
///
/// # Errors
/// The medium's.
pub fn zero_tables(media: &dyn Media, runs: Range<u32>) -> Result<(), MediaError> {
    zero_words(media, TABLE_OFFSETS, runs, [Site::RunTable, Site::RunTableFence])
}

/// Zeroes, durably, the epochs of the zones that begin in `runs`.
///
/// # Errors
/// The medium's.
pub fn zero_epochs(media: &dyn Media, runs: Range<u32>) -> Result<(), MediaError> {
    zero_words(media, EPOCH_OFFSETS, runs, [Site::SlabEpoch, Site::SlabEpochFence])
}

fn zero_words(
    media: &dyn Media,
    offsets: [u64; 2],
    runs: Range<u32>,
    [flush, fence]: [Site; 2],
) -> Result<(), MediaError> {
    let mut dirty = Dirty::new();
    for zone in runs.filter(|run| run.is_multiple_of(ZONE_RUNS)) {
        for off in offsets {
            let words = Extent::new(RunId(zone).off() + off, ZONE_RUNS * 8);
            media.zero(words)?;
            media.flush(&mut dirty, flush, words);
        }
    }
    media.fence(&mut dirty, fence)
}

fn write_copies(
    media: &dyn Media,
    dirty: &mut Dirty,
    offsets: [u64; 2],
    bits: u64,
    site: Site,
) -> Result<(), MediaError> {
    for off in offsets {
        media.store_u64(off, bits)?;
        media.flush(dirty, site, Extent::new(off, 8));
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

    /// As in `docs/format/region.md`.
    #[test]
    fn the_bits_of_an_epoch_are_frozen() {
        let check =
            crc32c::crc32c(&[&[7; 16][..], &9u32.to_le_bytes(), b"EPOC", &3u32.to_le_bytes()].concat());
        assert_eq!(encode_epoch(Epoch(3), RunId(9), &[7; 16]), u64::from(check) << 32 | 3);
        assert_eq!(encode_epoch(Epoch(3), RunId(9), &[7; 16]), 0xc500_ba06_0000_0003);
    }

    #[test]
    fn epochs_survive_encoding_and_every_flipped_bit_is_noticed() {
        let salt = [7; 16];
        for epoch in [Epoch::FIRST, Epoch(0x1234_5678), Epoch::UNKNOWN] {
            let bits = encode_epoch(epoch, RunId(9), &salt);
            assert_eq!(decode_epoch(bits, RunId(9), &salt), Some(epoch));
            assert_eq!(decode_epoch(bits, RunId(10), &salt), None, "a misplaced word is not believed");
            assert_eq!(decode(bits, RunId(9), &salt), None, "nor is an epoch believed to be a run's word");
            for bit in 0..64 {
                assert_eq!(decode_epoch(bits ^ 1 << bit, RunId(9), &salt), None, "bit {bit}");
            }
        }
        assert_eq!(decode_epoch(0, RunId(3), &salt), Some(Epoch(0)));
    }

    #[test]
    fn an_epoch_is_reused_only_after_the_run_was_zeroed() {
        assert_eq!(Epoch(0).next(), Some(Epoch::FIRST));
        assert_eq!(Epoch(u32::MAX - 2).next(), Some(Epoch(u32::MAX - 1)));
        assert_eq!([Epoch(u32::MAX - 1).next(), Epoch::UNKNOWN.next()], [None, None]);
    }
}
