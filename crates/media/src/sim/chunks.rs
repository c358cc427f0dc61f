//! The durable lines of a region, in chunks that copies of it share until they change.

use crate::units::LINE_SIZE;
use std::sync::Arc;

/// The bytes of one cache line.
pub(super) type Line = [u8; LINE_SIZE as usize];

/// Contents of a line, and the number of the store that wrote them. Numbers increase.
#[derive(Clone, Copy, Debug)]
pub(super) struct Version {
    pub(super) store: u64,
    pub(super) line: Line,
}

/// Lines of a chunk: 16 KiB.
const CHUNK_LINES: usize = 256;
const CHUNK_BYTES: usize = CHUNK_LINES * LINE_SIZE as usize;
static ZEROES: Line = [0; LINE_SIZE as usize];
static BLANK: [u8; CHUNK_BYTES] = [0; CHUNK_BYTES];

/// Lines, and for each of them the number of the store that wrote it.
#[derive(Clone, Debug)]
struct Chunk {
    lines: [Line; CHUNK_LINES],
    stores: [u64; CHUNK_LINES],
}

const EMPTY: Chunk = Chunk { lines: [ZEROES; CHUNK_LINES], stores: [0; CHUNK_LINES] };

/// Durable lines. A chunk that nothing was stored to takes no memory.
#[derive(Clone, Debug)]
pub(super) struct Chunks {
    chunks: Vec<Option<Arc<Chunk>>>,
    len: usize,
}

impl Chunks {
    /// Lines with these bytes: a whole number of lines.
    pub(super) fn new(bytes: &[u8]) -> Self {
        let chunks = bytes.chunks(CHUNK_BYTES).map(|part| {
            // Slices are compared at memory's speed, also where nothing is optimised.
            (*part != BLANK[..part.len()]).then(|| {
                let mut chunk = Arc::new(EMPTY);
                Arc::make_mut(&mut chunk).lines.as_flattened_mut()[..part.len()].copy_from_slice(part);
                chunk
            })
        });
        Self { chunks: chunks.collect(), len: bytes.len() }
    }

    /// Zeroes: a whole number of lines.
    pub(super) fn blank(len: usize) -> Self {
        Self { chunks: vec![None; len.div_ceil(CHUNK_BYTES)], len }
    }

    fn chunk_mut(&mut self, chunk: usize) -> &mut Chunk {
        Arc::make_mut(self.chunks[chunk].get_or_insert_with(|| Arc::new(EMPTY)))
    }

    fn chunk(&self, index: u64) -> Option<(&Chunk, usize)> {
        let chunk = self.chunks.get(index as usize / CHUNK_LINES)?.as_ref()?;
        Some((chunk, index as usize % CHUNK_LINES))
    }

    /// A line.
    ///
    /// # Panics
    /// If it is past the end.
    pub(super) fn line(&self, index: u64) -> &Line {
        assert!(index * LINE_SIZE < self.len as u64, "a region is a whole number of lines");
        self.chunk(index).map_or(&ZEROES, |(chunk, at)| &chunk.lines[at])
    }

    /// The number of the store that wrote a line; 0 for what was there from the start.
    pub(super) fn store(&self, index: u64) -> u64 {
        self.chunk(index).map_or(0, |(chunk, at)| chunk.stores[at])
    }

    /// Replaces a line.
    pub(super) fn set(&mut self, index: u64, version: &Version) {
        let (chunk, at) = (self.chunk_mut(index as usize / CHUNK_LINES), index as usize % CHUNK_LINES);
        (chunk.lines[at], chunk.stores[at]) = (version.line, version.store);
    }

    /// A byte, to be changed without a store.
    ///
    /// # Panics
    /// If it is past the end.
    pub(super) fn byte_mut(&mut self, off: u64) -> &mut u8 {
        assert!(off < self.len as u64, "byte {off} of a region of {} bytes", self.len);
        let off = off as usize;
        &mut self.chunk_mut(off / CHUNK_BYTES).lines.as_flattened_mut()[off % CHUNK_BYTES]
    }

    /// Copies bytes out.
    ///
    /// # Panics
    /// If they are not all within the region.
    pub(super) fn read(&self, off: u64, into: &mut [u8]) {
        assert!(off as usize + into.len() <= self.len, "a read within the region");
        let (mut at, mut into) = (off as usize, into);
        while !into.is_empty() {
            let within = at % CHUNK_BYTES;
            let (part, rest) = into.split_at_mut(into.len().min(CHUNK_BYTES - within));
            match &self.chunks[at / CHUNK_BYTES] {
                Some(chunk) => part.copy_from_slice(&chunk.lines.as_flattened()[within..][..part.len()]),
                None => part.fill(0),
            }
            at += part.len();
            into = rest;
        }
    }

    /// All bytes.
    pub(super) fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len];
        for (off, part) in self.stored() {
            bytes[off as usize..][..part.len()].copy_from_slice(part);
        }
        bytes
    }

    /// The chunks that something was stored to, with their offsets. All other bytes are zero.
    pub(super) fn stored(&self) -> impl Iterator<Item = (u64, &[u8])> {
        let offsets = (0..self.len).step_by(CHUNK_BYTES);
        let chunks = offsets.zip(&self.chunks).filter_map(|(off, chunk)| Some((off, chunk.as_ref()?)));
        chunks.map(|(off, chunk)| {
            let len = CHUNK_BYTES.min(self.len - off);
            (off as u64, &chunk.lines.as_flattened()[..len])
        })
    }

    /// True if all bytes are equal. Chunks that are shared are not compared.
    pub(super) fn has_bytes_of(&self, other: &Self) -> bool {
        let is_equal = |(one, other): (&Option<Arc<Chunk>>, &Option<Arc<Chunk>>)| match (one, other) {
            (None, None) => true,
            (Some(chunk), None) | (None, Some(chunk)) => *chunk.lines.as_flattened() == BLANK,
            (Some(one), Some(other)) => Arc::ptr_eq(one, other) || one.lines == other.lines,
        };
        self.len == other.len && self.chunks.iter().zip(&other.chunks).all(is_equal)
    }

    /// Bytes of the region.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Extends the region with zeroes.
    pub(super) fn grow(&mut self, len: usize) {
        self.len = len;
        self.chunks.resize(len.div_ceil(CHUNK_BYTES), None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(store: u64, byte: u8) -> Version {
        Version { store, line: [byte; LINE_SIZE as usize] }
    }

    #[test]
    fn a_copy_stays_as_it_was_when_the_original_changes() {
        let mut chunks = Chunks::new(&[7; 3 * CHUNK_BYTES]);
        let copy = chunks.clone();
        chunks.set(300, &version(5, 9));
        *chunks.byte_mut(1) = 8;
        assert_eq!((chunks.line(300)[0], chunks.store(300), chunks.to_vec()[1]), (9, 5, 8));
        assert_eq!((copy.line(300)[0], copy.store(300), copy.to_vec()[1]), (7, 0, 7));
    }

    #[test]
    fn regions_have_equal_bytes_whoever_stored_them() {
        let blank = Chunks::blank(3 * CHUNK_BYTES);
        let mut one = blank.clone();
        assert!(one.has_bytes_of(&blank));
        one.set(300, &version(5, 0));
        assert!(one.has_bytes_of(&blank) && blank.has_bytes_of(&one), "zeroes were stored");
        one.set(300, &version(6, 1));
        assert!(!one.has_bytes_of(&blank) && !blank.has_bytes_of(&one));
        let mut other = blank.clone();
        other.set(300, &version(7, 1));
        assert!(one.has_bytes_of(&other));
        other.set(700, &version(8, 1));
        assert!(!one.has_bytes_of(&other));
        assert!(!blank.has_bytes_of(&Chunks::blank(2 * CHUNK_BYTES)), "it is longer");
    }

    #[test]
    fn bytes_are_read_across_chunks_whether_something_was_stored_there_or_not() {
        // The region ends within a chunk.
        let len = 2 * CHUNK_BYTES + 128;
        assert_eq!(Chunks::new(&vec![0; len]).stored().count(), 0);
        let mut chunks = Chunks::blank(len);
        assert_eq!((chunks.stored().count(), chunks.to_vec()), (0, vec![0; len]));
        chunks.set(CHUNK_LINES as u64, &version(1, 3));
        chunks.set(2 * CHUNK_LINES as u64 + 1, &version(2, 4));
        assert_eq!(chunks.stored().map(|(_, part)| part.len()).collect::<Vec<_>>(), [CHUNK_BYTES, 128]);
        let mut read = vec![1; CHUNK_BYTES + 100];
        chunks.read(CHUNK_BYTES as u64 - 2, &mut read);
        assert_eq!((&read[..4], read[66]), (&[0, 0, 3, 3][..], 0));
        assert_eq!(Chunks::new(&chunks.to_vec()).to_vec(), chunks.to_vec());
        chunks.grow(4 * CHUNK_BYTES);
        assert_eq!((chunks.to_vec().len(), chunks.line(4 * CHUNK_LINES as u64 - 1)[0]), (4 * CHUNK_BYTES, 0));
    }
}
