//! Encoding of lists of pieces. Byte tables: `docs/format/records.md`.

use super::piece::{Piece, PieceCrc, whole};
use crate::crc;
use crate::layout::VALUE_BYTES_MAX;
use landfall_media::{Extent, Sum};

/// Bytes of an entry.
pub(crate) const ENTRY_SIZE: usize = 16;
/// Bytes of the CRC-32C at the end of a list.
const CRC_SIZE: usize = 4;
/// Most pieces in one list.
pub(crate) const LIST_PIECES_MAX: usize = 256;
/// Most pieces in a list when it is first written. Later changes may split pieces.
pub(crate) const LIST_PIECES_FIRST: usize = 192;

/// An entry of a list of lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Branch {
    /// A list of pieces.
    pub(crate) list: Extent,
    /// Bytes of the value in these pieces, and their CRC-32C.
    pub(crate) part: PieceCrc,
}

impl Branch {
    pub(crate) fn new(list: Extent, pieces: &[Piece]) -> Self {
        let len = pieces.iter().map(|piece| piece.extent.len()).sum();
        Self { list, part: PieceCrc { len, crc: whole(pieces.iter().map(|piece| piece.part())) } }
    }
}

/// Bytes of a list with this many entries.
const fn list_size(entries: usize) -> usize {
    entries * ENTRY_SIZE + CRC_SIZE
}

const _: () = assert!(list_size(LIST_PIECES_MAX) <= u16::MAX as usize);

fn entry(off: u64, word: u16, part: PieceCrc) -> [u8; ENTRY_SIZE] {
    let mut bytes = [0; ENTRY_SIZE];
    bytes[..6].copy_from_slice(&off.to_le_bytes()[..6]);
    bytes[6..8].copy_from_slice(&word.to_le_bytes());
    bytes[8..12].copy_from_slice(&part.len.to_le_bytes());
    bytes[12..].copy_from_slice(&part.crc.to_le_bytes());
    bytes
}

fn parsed(bytes: &[u8; ENTRY_SIZE]) -> (u64, u16, PieceCrc) {
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    let mut off = [0; 8];
    off[..6].copy_from_slice(&bytes[..6]);
    let sum_or_size = u16::from_le_bytes([bytes[6], bytes[7]]);
    (u64::from_le_bytes(off), sum_or_size, PieceCrc { len: word(8), crc: word(12) })
}

fn sealed(entries: impl Iterator<Item = [u8; ENTRY_SIZE]>) -> Vec<u8> {
    let mut bytes: Vec<u8> = entries.flatten().collect();
    let crc = crc::of(&bytes);
    bytes.extend_from_slice(&crc.to_le_bytes());
    bytes
}

/// The entries of a list; `None` if its CRC-32C does not match.
fn opened(bytes: &[u8]) -> Option<&[[u8; ENTRY_SIZE]]> {
    let (entries, crc) = bytes.split_last_chunk::<CRC_SIZE>()?;
    let (entries, rest) = entries.as_chunks();
    (rest.is_empty() && crc::of(entries.as_flattened()) == u32::from_le_bytes(*crc)).then_some(entries)
}

/// Encodes a list of pieces.
pub(crate) fn of_pieces(pieces: &[Piece]) -> Vec<u8> {
    let sum = |piece: &Piece| piece.extent.sum().map_or(0, Sum::to_stored);
    sealed(pieces.iter().map(|piece| entry(piece.extent.off, sum(piece), piece.part())))
}

/// Encodes a list of lists.
pub(crate) fn of_branches(branches: &[Branch]) -> Vec<u8> {
    sealed(branches.iter().map(|branch| entry(branch.list.off, branch.list.len() as u16, branch.part)))
}

/// Decodes a list of pieces; `None` if it does not list `part` of a value.
pub(crate) fn pieces(bytes: &[u8], part: PieceCrc) -> Option<Vec<Piece>> {
    let piece = |bytes| {
        let (off, sum, PieceCrc { len, crc }) = parsed(bytes);
        Piece { extent: Extent::new(off, len).with_sum(Sum::from_stored(sum)), crc }
    };
    let pieces: Vec<Piece> = opened(bytes)?.iter().map(piece).collect();
    lists(pieces.iter().map(|piece| piece.part()), part).then_some(pieces)
}

/// Offsets of the pieces of a list; none if its CRC-32C does not match.
pub(crate) fn offsets(bytes: &[u8]) -> impl Iterator<Item = u64> {
    opened(bytes).unwrap_or_default().iter().map(|entry| parsed(entry).0)
}

/// Decodes a list of lists; `None` if it does not list `part` of a value.
pub(crate) fn branches(bytes: &[u8], part: PieceCrc) -> Option<Vec<Branch>> {
    let branch = |bytes| {
        let (off, size, part) = parsed(bytes);
        Branch { list: Extent::new(off, u32::from(size)), part }
    };
    let branches: Vec<Branch> = opened(bytes)?.iter().map(branch).collect();
    lists(branches.iter().map(|branch| branch.part), part).then_some(branches)
}

/// True if the parts combine to `part`.
fn lists(parts: impl Iterator<Item = PieceCrc> + Clone, part: PieceCrc) -> bool {
    let len: u64 = parts.clone().map(|part| u64::from(part.len)).sum();
    len <= VALUE_BYTES_MAX && len == u64::from(part.len) && whole(parts) == part.crc
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(off: u64, bytes: &[u8]) -> Piece {
        let extent = Extent::new(off, bytes.len() as u32).with_sum(Some(Sum::of(bytes)));
        Piece { extent, crc: crc::of(bytes) }
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Byte for byte as in `docs/format/records.md`, because later versions must read lists of earlier ones.
    #[test]
    fn the_bytes_of_lists_are_frozen() {
        let pieces = [piece(0xabcd_ef01_2345, b"123456789"), piece(4096, b"abc")];
        let list = of_pieces(&pieces);
        assert_eq!(hex(&list), "452301efcdabd50909000000839206e300100000000062c403000000b73f4b3618381fb0");
        let branch = Branch::new(Extent::new(8192, list.len() as u32), &pieces);
        assert_eq!(hex(&of_branches(&[branch])), "00200000000024000c0000001a54a092774234ab");
    }

    #[test]
    fn a_list_holds_only_for_the_part_of_the_value_that_it_lists() {
        let all = [piece(100, b"123456789"), piece(200, b"abc")];
        let list = of_pieces(&all);
        let part = PieceCrc { len: 12, crc: crc::of(b"123456789abc") };
        let read = pieces(&list, part).expect("reads back");
        assert_eq!(read, all);
        assert!(read.iter().zip(&all).all(|(read, piece)| read.extent.sum() == piece.extent.sum()));
        assert_eq!(pieces(&list, PieceCrc { crc: part.crc ^ 1, ..part }), None);
        assert_eq!(pieces(&list, PieceCrc { len: 11, ..part }), None);
        for bit in 0..list.len() * 8 {
            let mut flipped = list.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(pieces(&flipped, part), None, "bit {bit}");
        }
        let upper =
            [Branch::new(Extent::new(300, 36), &all[..1]), Branch::new(Extent::new(400, 20), &all[1..])];
        assert_eq!(branches(&of_branches(&upper), part).as_deref(), Some(&upper[..]));
        assert_eq!(branches(&of_branches(&upper[..1]), part), None);
    }
}
