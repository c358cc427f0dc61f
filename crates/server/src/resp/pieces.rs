//! Parts of strings: `STRLEN`, `GETRANGE`, `SETRANGE`. Long parts are sent from their frames, and stay there.

use super::append::{PIECES_MAX, WHOLE_MAX, patch};
use super::call::stage;
use super::command::{Call, Spec};
use super::fail::Fail;
use super::flags::Flags;
use crate::args::Arg;
use landfall_heap::{Extents, PIECES_FROM, Source, slice};
use landfall_kv::{Item, ItemPart, Pieces, Place, Txn};
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
    let len = call.read_part(&key, |_| 0..0)?.map_or(0, |part| part.value_len);
    call.reply_integer(i64::try_from(len).unwrap_or(i64::MAX))
}

fn getrange(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    let (key, start, end) = (call.word(1), call.integer(2)?, call.integer(3)?);
    match call.read_part(&key, |len| range_of(start, end, len))? {
        Some(part) if !part.is_empty() => reply_part(call, &part),
        _ => {
            call.out().bulk(b"");
            Ok(())
        }
    }
}

/// The range from `start` to `end`, both inclusive; negative numbers count from the end.
fn range_of(start: i64, end: i64, len: usize) -> Range<usize> {
    let len = i64::try_from(len).unwrap_or(i64::MAX);
    if start < 0 && end < 0 && start > end {
        return 0..0;
    }
    let from_start = |at: i64| if at < 0 { at.saturating_add(len).max(0) } else { at };
    let (start, end) = (from_start(start), from_start(end).min(len - 1));
    if start > end { 0..0 } else { start.unsigned_abs() as usize..end.unsigned_abs() as usize + 1 }
}

fn reply_part(call: &mut Call<'_, '_, '_>, part: &ItemPart<'_>) -> Result<(), Fail> {
    call.out().bulk_header(part.len());
    call.reply.part(part)?;
    call.out().crlf();
    Ok(())
}

fn setrange(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    let (key, value) = (call.word(1), call.words.arg(3));
    let offset = usize::try_from(call.integer(2)?).map_err(|_| Fail::error("ERR offset is out of range"))?;
    let limit = call.value_len_max();
    let len = call.update(&[&key], |txn, space| {
        if let Some(old) = txn.patchable(space, &key)? {
            return patch(txn, space, &key, (old, Place::At(offset)), &value, limit);
        }
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
        && let Some(all) = replaced(old, offset, landed)
    {
        let crcs = txn.heap().crcs_of(&all)?;
        txn.put_pieces(space, key, Pieces { all: &all, landed, of: old }, Some(crcs.get()), expiry);
        return Ok(());
    }
    let end = offset + value.len();
    let mut bytes = old.map_or(Ok(Vec::new()), |item| item.to_vec())?;
    bytes.resize(bytes.len().max(end), 0);
    bytes[offset..end].copy_from_slice(&value.bytes());
    txn.put_bytes(space, key, bytes, expiry);
    Ok(())
}

/// The value with a part replaced, by reference; `None` if the value must be copied.
fn replaced(old: &Item<'_>, offset: usize, landed: &[Extent]) -> Option<Extents> {
    let end = offset + landed.iter().map(|extent| extent.len() as usize).sum::<usize>();
    if old.extents().is_empty() || offset > old.len || old.len.max(end) <= WHOLE_MAX {
        return None;
    }
    let mut pieces = slice(old.extents(), 0..offset);
    pieces.extend_from_slice(landed);
    pieces.extend(slice(old.extents(), end..old.len));
    let is_long = old.len.max(end) >= PIECES_FROM as usize;
    (is_long || pieces.len() <= PIECES_MAX).then_some(pieces)
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
}
