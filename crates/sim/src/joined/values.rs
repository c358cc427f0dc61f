//! Keys and values of the campaign, and what operations do to them.

use crate::violation::{Violation, ensure};
use std::ops::Range;
use std::sync::Arc;

/// Keys of each writer that have long values: the first ones.
pub(super) const LONG: usize = 6;
/// All keys of each writer.
pub(super) const KEYS: usize = LONG + 3000;

/// What each key of a writer has: of a long value its digest, of a short one which operation wrote it.
pub(super) type State = Vec<Option<u64>>;
/// The long values of a writer.
pub(super) type Longs = Vec<Option<Arc<Vec<u8>>>>;

/// What an operation does to keys that lie one behind the other, part after part.
#[derive(Clone, Debug, Default)]
pub(super) struct Effect(Vec<(Range<usize>, Option<u64>)>);

impl Effect {
    pub(super) fn of_flush() -> Self {
        Self(vec![(0..KEYS, None)])
    }

    pub(super) fn push(&mut self, keys: Range<usize>, value: Option<u64>) {
        self.0.push((keys, value));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn keys(&self) -> usize {
        self.0.iter().map(|(keys, _)| keys.len()).sum()
    }

    pub(super) fn apply(&self, state: &mut State) {
        self.0.iter().for_each(|(keys, value)| state[keys.clone()].fill(*value));
    }
}

pub(super) fn key(owner: usize, number: usize) -> Vec<u8> {
    format!("{owner}:{number}").into_bytes()
}

/// A short value: it lies in the record.
pub(super) fn short(number: usize, version: u64) -> Vec<u8> {
    let mut value = version.to_le_bytes().to_vec();
    value.resize(8 + number % 3, number as u8);
    value
}

/// Which operation wrote a short value.
pub(super) fn short_version(number: usize, value: &[u8]) -> Result<u64, Violation> {
    let version = value.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
    let version = version.filter(|version| *value == *short(number, *version));
    ensure!(version.is_some(), "key {number} has a value of nobody");
    Ok(version.unwrap_or_default())
}

/// Bytes of a long value, drawn from a seed.
pub(super) fn long(len: usize, seed: u64) -> Vec<u8> {
    let word = |at: u64| (at ^ seed).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(23).to_le_bytes();
    let mut bytes: Vec<u8> = (0..len.div_ceil(8) as u64).flat_map(word).collect();
    bytes.truncate(len);
    bytes
}

/// Tells long values apart.
pub(super) fn digest(bytes: &[u8]) -> u64 {
    let mixed = |sum: u64, word: u64| (sum ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
    let words = bytes.chunks(8).map(|chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(word)
    });
    words.fold(bytes.len() as u64, mixed)
}
