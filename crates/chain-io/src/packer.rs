//! Packs what a stream sends: `docs/format/chain.md`, "Packing".

use crate::counters::Counters;
use landfall_chain::{BLOCK_BYTES, BlockHeader, Compression, Compressor, Plan, block_lens, most_packed};
use landfall_media::RUN_SIZE;
use lz4_flex::block::{CompressTable, compress_into_with_table, get_maximum_output_size};
use std::io;

/// Length of a sample, bytes.
const SAMPLE_BYTES: u64 = 4 << 10;

/// Packs the payloads of one stream.
pub(crate) struct Packer {
    compressor: Compressor,
    /// Of the first payload on that is worth a sample: most streams never pack.
    coder: Option<Coder>,
}

impl Packer {
    pub(crate) fn new(setting: Compression) -> Self {
        Self { compressor: Compressor::new(setting), coder: None }
    }

    /// A batch begins, or a page of a copy.
    pub(crate) fn begin(&mut self) {
        self.compressor.begin();
    }

    /// It was acknowledged: so many bytes of values, so long after it began.
    pub(crate) fn end(&mut self, bytes: u64, ns: u64) {
        self.compressor.end(bytes, ns);
    }

    /// What is sent instead of values that have `len` bytes together, if `take_room` takes so many bytes of room behind; `None`:
    /// they go as they are.
    ///
    /// # Errors
    /// The coder's, which means a bug in it.
    pub(crate) fn pack(
        &mut self,
        values: &[&[u8]],
        len: u64,
        take_room: impl FnOnce(u64) -> bool,
    ) -> io::Result<Option<Vec<u8>>> {
        let plan = self.compressor.plan(len);
        if plan == Plan::AsIs || !take_room(len + RUN_SIZE) {
            return Ok(None);
        }
        let coder = self.coder.get_or_insert_default();
        if plan == Plan::Sample {
            let (sampled, packed) = coder.sample(values, len)?;
            if !self.compressor.note_sample(sampled, packed) {
                return Ok(None);
            }
        }
        let packed = coder.pack(values, len)?;
        let is_worth_it = self.compressor.note_packed(len, packed.as_ref().map(|packed| packed.len() as u64));
        Ok(packed.filter(|_| is_worth_it))
    }
}

/// What a message has become on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sent {
    /// Bytes of its values.
    pub(crate) value_bytes: u64,
    /// Bytes that were sent.
    pub(crate) wire_bytes: u64,
    /// Bytes of its payload, if that is packed.
    pub(crate) packed_bytes: Option<u64>,
}

impl Counters {
    pub(crate) fn note_sent(&self, sent: Sent) {
        Self::add(&self.value_bytes, sent.value_bytes);
        Self::add(&self.wire_bytes, sent.wire_bytes);
        if let Some(packed_bytes) = sent.packed_bytes {
            Self::add(&self.packed_bytes, sent.value_bytes);
            Self::add(&self.saved_bytes, sent.value_bytes - packed_bytes);
        }
    }
}

/// Memory for one block before and after packing.
struct Coder {
    table: CompressTable,
    gathered: Vec<u8>,
    packed: Vec<u8>,
}

impl Default for Coder {
    fn default() -> Self {
        Self {
            table: CompressTable::large(),
            gathered: Vec::new(),
            packed: vec![0; get_maximum_output_size(BLOCK_BYTES)],
        }
    }
}

impl Coder {
    /// Packs some places; returns how many bytes they were, and how many they became.
    fn sample(&mut self, values: &[&[u8]], len: u64) -> io::Result<(u64, u64)> {
        let last = len.saturating_sub(SAMPLE_BYTES);
        let (mut sampled, mut packed) = (0, 0);
        for from in [0, last / 2, last] {
            let mut values = Values::from(values, from);
            let block = values.take(SAMPLE_BYTES.min(len) as usize, &mut self.gathered);
            sampled += block.len() as u64;
            packed += compress(block, &mut self.packed, &mut self.table)?.min(block.len()) as u64;
        }
        Ok((sampled, packed))
    }

    /// Packs values that have `len` bytes together; `None` as soon as that saves too little.
    fn pack(&mut self, values: &[&[u8]], len: u64) -> io::Result<Option<Vec<u8>>> {
        let most = most_packed(len);
        let (mut values, mut out) = (Values::from(values, 0), Vec::new());
        for block_len in block_lens(len) {
            let block = values.take(block_len, &mut self.gathered);
            let packed_len = compress(block, &mut self.packed, &mut self.table)?;
            if packed_len < block.len() {
                out.extend_from_slice(&BlockHeader::Packed(packed_len).encode(block.len()));
                out.extend_from_slice(&self.packed[..packed_len]);
            } else {
                out.extend_from_slice(&BlockHeader::Stored.encode(block.len()));
                out.extend_from_slice(block);
            }
            if out.len() as u64 > most {
                return Ok(None);
            }
        }
        Ok(Some(out))
    }
}

fn compress(block: &[u8], to: &mut [u8], table: &mut CompressTable) -> io::Result<usize> {
    compress_into_with_table(block, to, table).map_err(io::Error::other)
}

/// Values as one stream of bytes.
struct Values<'a> {
    values: std::slice::Iter<'a, &'a [u8]>,
    rest: &'a [u8],
}

impl<'a> Values<'a> {
    /// The bytes from position `from` on.
    fn from(values: &'a [&'a [u8]], mut from: u64) -> Self {
        let mut all = Self { values: values.iter(), rest: &[] };
        while from >= all.rest.len() as u64 {
            from -= all.rest.len() as u64;
            let Some(next) = all.values.next() else { return Self { rest: &[], ..all } };
            all.rest = next;
        }
        all.rest = &all.rest[from as usize..];
        all
    }

    /// The next bytes, gathered only where they lie apart; fewer at the end.
    fn take<'g>(&mut self, len: usize, gathered: &'g mut Vec<u8>) -> &'g [u8]
    where
        'a: 'g,
    {
        if let Some((here, rest)) = self.rest.split_at_checked(len) {
            self.rest = rest;
            return here;
        }
        gathered.clear();
        while gathered.len() < len {
            let (here, rest) = self.rest.split_at(self.rest.len().min(len - gathered.len()));
            gathered.extend_from_slice(here);
            self.rest = rest;
            if rest.is_empty() {
                let Some(next) = self.values.next() else { break };
                self.rest = next;
            }
        }
        gathered
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// `len` bytes of which one part in `one_in` is noise, and the rest zeros, in stretches of 100.
    pub(crate) fn noisy(len: usize, one_in: usize, seed: u64) -> Vec<u8> {
        let mut state = seed | 1;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        };
        (0..len).map(|at| if at % 100 < 100 / one_in { next() } else { 0 }).collect()
    }

    /// What is sent for `values`.
    pub(crate) fn pack(values: &[&[u8]]) -> Option<Vec<u8>> {
        Coder::default().pack(values, values.iter().map(|value| value.len() as u64).sum()).unwrap()
    }

    #[test]
    fn samples_are_taken_wherever_they_lie() {
        let whole = noisy(100_000, 2, 3);
        let parts: Vec<&[u8]> = whole.chunks(1000).chain([&[][..]]).collect();
        let mut coder = Coder::default();
        assert_eq!(coder.sample(&parts, 100_000).unwrap(), coder.sample(&[&whole], 100_000).unwrap());
        let (sampled, packed) = coder.sample(&parts, 100_000).unwrap();
        assert_eq!(sampled, 3 * SAMPLE_BYTES);
        assert!(packed * 10 < sampled * 7, "{packed}");
        let noise = noisy(100_000, 1, 5);
        let (sampled, packed) = coder.sample(&[&noise], 100_000).unwrap();
        assert_eq!(sampled, packed);
    }

    #[test]
    fn what_does_not_shrink_is_given_up() {
        assert_eq!(pack(&[&noisy(300_000, 1, 7)]), None);
        let half = [noisy(150_000, 1, 7), vec![0; 150_000]].concat();
        let packed = pack(&[&half]).unwrap();
        assert!((150_000..160_000).contains(&packed.len()), "a block of noise is stored: {}", packed.len());
    }
}
