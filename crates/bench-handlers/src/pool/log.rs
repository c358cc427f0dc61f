//! The record that commits a batch. Byte table: `docs/format/pool.md`.

use super::batch::{Batch, LINE};
use super::layout::{Layout, crc_of};
use crate::error::{HandlerError, Result};

/// Size of the header before a record's body, bytes.
pub(crate) const HEAD_BYTES: usize = 16;
/// Size of the header before an entry's lines, bytes.
const ENTRY_BYTES: usize = 16;

/// Maximum size of the record of a batch that changes `lines` lines.
pub(crate) const fn bytes_max(lines: usize) -> u64 {
    (HEAD_BYTES + lines * (ENTRY_BYTES + LINE)) as u64
}

/// Encodes the record of a batch. Consecutive lines share an entry.
pub(crate) fn encode(number: u64, batch: &Batch) -> Vec<u8> {
    let mut record = vec![0; HEAD_BYTES];
    record.reserve(batch.len() * (ENTRY_BYTES + LINE));
    let (mut entry, mut next) = (0, None);
    for (off, line) in batch.lines() {
        if next != Some(off) {
            entry = record.len();
            record.extend_from_slice(&off.to_le_bytes());
            record.extend_from_slice(&[0; 8]);
        }
        record.extend_from_slice(line);
        let len = (record.len() - entry - ENTRY_BYTES) as u64;
        record[entry + 8..entry + ENTRY_BYTES].copy_from_slice(&len.to_le_bytes());
        next = Some(off + LINE as u64);
    }
    seal(number, &mut record);
    record
}

fn seal(number: u64, record: &mut [u8]) {
    let body_len = u32::try_from(record.len() - HEAD_BYTES).expect("a half of the log is below 4 GiB");
    record[..8].copy_from_slice(&number.to_le_bytes());
    record[8..12].copy_from_slice(&body_len.to_le_bytes());
    let crc = crc_of(&[&record[..12], &record[HEAD_BYTES..]]);
    record[12..HEAD_BYTES].copy_from_slice(&crc.to_le_bytes());
}

/// A valid record.
pub(crate) struct Record<'a> {
    pub(crate) number: u64,
    /// Size of the whole record, bytes.
    pub(crate) len: u32,
    body: &'a [u8],
}

impl<'a> Record<'a> {
    /// Parses the record at the start of a half; `None` where it is incomplete or damaged.
    pub(crate) fn parse(half: &'a [u8]) -> Option<Self> {
        let (head, rest) = half.split_first_chunk::<HEAD_BYTES>()?;
        let number = long(head, 0)?;
        let body_len = u32::from_le_bytes(*head[8..].first_chunk()?);
        let crc = u32::from_le_bytes(*head[12..].first_chunk()?);
        let body = rest.get(..body_len as usize)?;
        let holds = number != 0 && number != u64::MAX && crc == crc_of(&[&head[..12], body]);
        holds.then_some(Self { number, len: body_len + HEAD_BYTES as u32, body })
    }

    /// Calls `visit(offset, bytes)` for every entry, in order.
    ///
    /// # Errors
    /// [`HandlerError::Damaged`] for an entry that no batch can have written.
    pub(crate) fn entries(
        &self,
        layout: &Layout,
        mut visit: impl FnMut(u64, &'a [u8]) -> Result<()>,
    ) -> Result<()> {
        let mut rest = self.body;
        while !rest.is_empty() {
            let damaged = HandlerError::damaged("record in the log", layout.half_of(self.number));
            let Some((off, bytes, behind)) = entry(rest, layout) else { return Err(damaged) };
            visit(off, bytes)?;
            rest = behind;
        }
        Ok(())
    }
}

fn entry<'a>(rest: &'a [u8], layout: &Layout) -> Option<(u64, &'a [u8], &'a [u8])> {
    let (off, len) = (long(rest, 0)?, long(rest, 8)?);
    let whole = off.is_multiple_of(LINE as u64) && len.is_multiple_of(LINE as u64) && len != 0;
    let body = &rest[ENTRY_BYTES..];
    let (bytes, behind) = body.split_at_checked(usize::try_from(len).ok()?)?;
    (whole && layout.is_home(off, len)).then_some((off, bytes, behind))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUT: Layout = Layout { len: 1 << 20, log_bytes: 4096 };

    fn batch() -> Batch {
        let mut batch = Batch::default();
        for off in [64, 65536, 65600] {
            batch.change(off, 0, &[off as u8; LINE], || Err(())).expect("a whole line");
        }
        batch
    }

    #[test]
    fn consecutive_lines_share_an_entry() {
        let bytes = encode(7, &batch());
        assert_eq!(bytes.len(), HEAD_BYTES + 2 * ENTRY_BYTES + 3 * LINE);
        let record = Record::parse(&bytes).expect("whole");
        let mut got = Vec::new();
        let take = |off, bytes: &[u8]| {
            got.push((off, bytes.len()));
            Ok(())
        };
        record.entries(&LAYOUT, take).expect("good entries");
        assert_eq!((record.number, got), (7, vec![(64, 64), (65536, 128)]));
    }

    #[test]
    fn a_truncated_or_changed_record_is_none() {
        let bytes = encode(7, &batch());
        for at in 0..bytes.len() {
            assert!(Record::parse(&bytes[..at]).is_none(), "cut at {at}");
            let mut changed = bytes.clone();
            changed[at] ^= 0x10;
            assert!(Record::parse(&changed).is_none(), "changed at {at}");
        }
        assert!(Record::parse(&[0; 100]).is_none());
    }

    #[test]
    fn an_entry_outside_the_home_lines_is_damage() {
        for off in [0, 4096, LAYOUT.len, 65] {
            let mut batch = Batch::default();
            batch.change(off, 0, &[1; LINE], || Err(())).expect("a whole line");
            let bytes = encode(1, &batch);
            let record = Record::parse(&bytes).expect("whole");
            let outcome = record.entries(&LAYOUT, |_, _| Ok(()));
            assert!(matches!(outcome, Err(HandlerError::Damaged { .. })), "offset {off}");
        }
    }
}
