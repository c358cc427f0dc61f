//! `APPEND`: the appended bytes stay where they landed, and so do the old ones.

use super::call::Within;
use super::command::{Call, Spec};
use super::fail::Fail;
use super::flags::Flags;
use crate::args::Arg;
use landfall_heap::{Change, Extents, PIECES_FROM, Source, VALUE_BYTES_MAX};
use landfall_kv::{Item, Patchable, Pieces, Place, verify};

const WRITE: Flags = Flags::WRITE.and(Flags::DENY_OOM);

pub(super) const SPECS: &[Spec] = &[Spec::new(
    "append",
    3,
    WRITE.and(Flags::FAST),
    append,
    "string",
    "Appends a string to the value of a key.",
)
.keys(1, 1, 1)];

/// Values up to this length are copied as a whole: a list of pieces would cost more than the copy.
pub(super) const WHOLE_MAX: usize = 4096;
/// Pieces of a value, at most; a value with more is copied into one piece.
pub(super) const PIECES_MAX: usize = 64;

fn append(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    let (key, more) = (call.word(1), call.words.arg(2));
    let limit = call.value_len_max();
    let len = call.update(&[&key], |txn, space| {
        if let Some(old) = txn.patchable(space, &key)? {
            return patch(txn, space, &key, (old, Place::End), &more, limit);
        }
        let old = txn.peek(space, &key)?;
        let len = old.as_ref().map_or(0, |item| item.len) + more.len();
        if len > limit {
            return Err(Fail::too_long());
        }
        append_to(txn, space, &key, old, &more)?;
        Ok(len)
    })?;
    call.reply_integer(i64::try_from(len).unwrap_or(i64::MAX))
}

impl Call<'_, '_, '_> {
    /// Longest value that a command may create, bytes.
    pub(super) fn value_len_max(&self) -> usize {
        let limit = self.shared().config.max_request.0.min(VALUE_BYTES_MAX);
        usize::try_from(limit).unwrap_or(usize::MAX)
    }
}

/// Changes a part of a long value; its new length. What does not change is neither read nor written.
pub(super) fn patch(
    txn: &mut Within<'_, '_>,
    space: u8,
    key: &[u8],
    (old, place): (Patchable, Place),
    value: &Arg<'_>,
    limit: usize,
) -> Result<usize, Fail> {
    if value.is_empty() {
        return Ok(old.len);
    }
    let start = if let Place::At(at) = place { at } else { old.len };
    let end = start.checked_add(value.len()).filter(|end| *end <= limit).ok_or(Fail::too_long())?;
    let mut scratch = Extents::new();
    match value.source(&mut scratch) {
        Source::Landed { extents, crc } => txn.patch(space, key, place, Change::Landed(extents, crc))?,
        _ => txn.patch(space, key, place, Change::Bytes(&value.bytes()))?,
    }
    Ok(old.len.max(end))
}

fn append_to(
    txn: &mut Within<'_, '_>,
    space: u8,
    key: &[u8],
    old: Option<Item<'_>>,
    more: &Arg<'_>,
) -> Result<(), Fail> {
    let Some(old) = old else {
        super::call::stage(txn, space, key, None, more, 0);
        return Ok(());
    };
    let mut scratch = Extents::new();
    let is_long = old.len + more.len() >= PIECES_FROM as usize;
    if let Source::Landed { extents, .. } = more.source(&mut scratch)
        && old.len + more.len() > WHOLE_MAX
        && !old.extents().is_empty()
        && (is_long || old.extents().len() + extents.len() <= PIECES_MAX)
    {
        let all: Extents = old.extents().iter().chain(extents).copied().collect();
        let crcs = if is_long {
            // From now on the value is kept in pieces. Their checksums must be made of undamaged data.
            verify(&old)?;
            txn.heap().crcs_of(&all)?
        } else {
            // The checksum continues from the old one, so damage in the old part stays detectable.
            old.crcs_with(extents)?
        };
        let pieces = Pieces { all: &all, landed: extents, of: &old };
        txn.put_pieces(space, key, pieces, Some(crcs.get()), old.expiry_ms);
        return Ok(());
    }
    let Some(old) = txn.read(space, key)? else { return Ok(()) };
    let mut bytes = old.to_vec()?;
    bytes.extend_from_slice(&more.bytes());
    txn.put_bytes(space, key, bytes, old.expiry_ms);
    Ok(())
}
