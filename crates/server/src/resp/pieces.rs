//! Parts of strings: `STRLEN`, `GETRANGE`, `SETRANGE`. Long parts are sent, and kept, where they lie.

use super::append::{PIECES_MAX, WHOLE_MAX};
use super::call::{Call, Fail, stage};
use super::table::{Flags, Spec};
use crate::args::Arg;
use crate::reply::REPLY_COPY_MAX;
use landfall_heap::{CopyPath, Extents, Source};
use landfall_kv::{Item, Pieces, Txn};
use landfall_media::Extent;
use std::ops::Range;

const READ: Flags = Flags::READ;
const WRITE: Flags = Flags::WRITE.and(Flags::DENY_OOM);

pub(super) const SPECS: &[Spec] = &[
    Spec::new("strlen", 2, READ.and(Flags::FAST), strlen, "string", "Returns the length of a string value.")
        .keys(1, 1, 1),
    Spec::new("getrange", 4, READ, getrange, "string", "Returns a substring of the string stored at a key.")
        .keys(1, 1, 1),
    Spec::new("substr", 4, READ, getrange, "string", "Returns a substring from a string value.")
        .keys(1, 1, 1),
    Spec::new("setrange", 4, WRITE, setrange, "string", "Overwrites a part of a string value by an offset.")
        .keys(1, 1, 1),
];

fn strlen(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    let key = call.word(1);
    let len = call.peek(&key)?.map_or(0, |item| item.len);
    call.reply_integer(i64::try_from(len).unwrap_or(i64::MAX))
}

fn getrange(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    let (key, start, end) = (call.word(1), call.integer(2)?, call.integer(3)?);
    let item = call.read(&key)?;
    match item.map(|item| (range_of(start, end, item.len), item)) {
        Some((range, item)) if !range.is_empty() => reply_part(call, &item, range),
        _ => {
            call.out().bulk(b"");
            Ok(())
        }
    }
}

/// The bytes from `start` to `end`, both inclusive and, below zero, counted from the end.
fn range_of(start: i64, end: i64, len: usize) -> Range<usize> {
    let len = i64::try_from(len).unwrap_or(i64::MAX);
    if start < 0 && end < 0 && start > end {
        return 0..0;
    }
    let from_start = |at: i64| if at < 0 { at.saturating_add(len).max(0) } else { at };
    let (start, end) = (from_start(start), from_start(end).min(len - 1));
    if start > end { 0..0 } else { start.unsigned_abs() as usize..end.unsigned_abs() as usize + 1 }
}

fn reply_part(call: &mut Call<'_, '_, '_>, item: &Item<'_>, range: Range<usize>) -> Result<(), Fail> {
    let heap = call.ctx.engine.heap();
    if item.inline().is_some() || range.len() <= REPLY_COPY_MAX {
        let bytes = item.bytes()?;
        heap.copies.add(CopyPath::Reply, range.len());
        call.out().bulk(&bytes[range]);
        return Ok(());
    }
    call.out().bulk_header(range.len());
    for extent in slice(item.extents(), range) {
        heap.runs().hold(extent);
        call.reply.stored(extent);
    }
    call.out().crlf();
    Ok(())
}

/// The extents of a part of a value.
fn slice(extents: &[Extent], range: Range<usize>) -> Extents {
    let mut base = 0;
    let mut part = Extents::new();
    for extent in extents {
        let end = base + extent.len() as usize;
        let (from, to) = (range.start.max(base), range.end.min(end));
        if from < to {
            part.push(Extent::new(extent.off + (from - base) as u64, (to - from) as u32));
        }
        base = end;
    }
    part
}

fn setrange(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    let (key, value) = (call.word(1), call.words.arg(3));
    let offset = usize::try_from(call.integer(2)?).map_err(|_| Fail::error("ERR offset is out of range"))?;
    let limit = call.value_len_max();
    let len = call.update(&[&key], |txn, space| {
        let old = txn.read(space, &key)?;
        let old_len = old.as_ref().map_or(0, |item| item.len);
        if value.is_empty() {
            return Ok(old_len);
        }
        let end = offset.checked_add(value.len()).filter(|end| *end <= limit).ok_or(Fail::too_long())?;
        overwrite(txn, space, &key, old, offset, &value)?;
        Ok(old_len.max(end))
    })?;
    call.reply_integer(i64::try_from(len).unwrap_or(i64::MAX))
}

fn overwrite(
    txn: &mut Txn<'_>,
    space: u8,
    key: &[u8],
    old: Option<Item<'_>>,
    offset: usize,
    value: &Arg<'_>,
) -> Result<(), Fail> {
    let expiry = old.as_ref().map_or(0, |item| item.expiry_ms);
    let old_len = old.as_ref().map_or(0, |item| item.len);
    if offset == 0 && value.len() >= old_len {
        stage(txn, space, key, None, value, expiry);
        return Ok(());
    }
    let mut scratch = Extents::new();
    if let Some(old) = &old
        && let Source::Landed { extents: landed, .. } = value.source(&mut scratch)
        && let Some(all) = patched(old, offset, landed)
    {
        txn.put_pieces(space, key, Pieces { all: &all, landed, of: old }, None, expiry);
        return Ok(());
    }
    let end = offset + value.len();
    let mut bytes = old.map_or(Ok(Vec::new()), |item| item.to_vec())?;
    bytes.resize(bytes.len().max(end), 0);
    bytes[offset..end].copy_from_slice(&value.bytes());
    txn.put_bytes(space, key, bytes, expiry);
    Ok(())
}

/// The value with a part replaced, by reference; `None` where it has to be written anew.
fn patched(old: &Item<'_>, offset: usize, landed: &[Extent]) -> Option<Extents> {
    let end = offset + landed.iter().map(|extent| extent.len() as usize).sum::<usize>();
    if old.extents().is_empty() || offset > old.len || old.len.max(end) <= WHOLE_MAX {
        return None;
    }
    let mut pieces = slice(old.extents(), 0..offset);
    pieces.extend_from_slice(landed);
    pieces.extend(slice(old.extents(), end..old.len));
    (pieces.len() <= PIECES_MAX).then_some(pieces)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_inclusive_and_count_from_both_ends() {
        for (start, end, want) in [
            (0, -1, 0..5),
            (1, 2, 1..3),
            (-3, -2, 2..4),
            (-100, 100, 0..5),
            (3, 1, 0..0),
            (-1, -2, 0..0),
            (5, 9, 0..0),
            (i64::MIN, i64::MAX, 0..5),
            (0, i64::MIN, 0..1),
        ] {
            assert_eq!(range_of(start, end, 5), want, "{start} {end}");
        }
        assert_eq!(range_of(0, -1, 0), 0..0);
    }

    #[test]
    fn slices_of_extents_cover_exactly_the_bytes() {
        let extents = [Extent::new(100, 10), Extent::new(500, 5), Extent::new(900, 10)];
        assert_eq!(slice(&extents, 0..25).as_slice(), extents);
        assert_eq!(
            slice(&extents, 8..17).as_slice(),
            [Extent::new(108, 2), Extent::new(500, 5), Extent::new(900, 2)]
        );
        assert_eq!(slice(&extents, 10..15).as_slice(), [Extent::new(500, 5)]);
        assert!(slice(&extents, 7..7).is_empty());
        assert!(slice(&extents, Range { start: 30, end: 25 }).is_empty());
    }
}
