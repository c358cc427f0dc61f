//! `APPEND`: what is appended stays where it landed, and so does what was there.

use super::call::{Call, Fail, Within};
use super::table::{Flags, Spec};
use crate::args::Arg;
use landfall_heap::{Extents, Source, VALUE_BYTES_MAX};
use landfall_kv::{Item, Pieces};

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

/// Values up to this length are written anew: a list of pieces would cost more than the copy.
pub(super) const WHOLE_MAX: usize = 4096;
/// Pieces in which a value may lie; with more of them it is written anew, in one.
pub(super) const PIECES_MAX: usize = 64;

fn append(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    let (key, more) = (call.word(1), call.words.arg(2));
    let limit = call.value_len_max();
    let len = call.update(&[&key], |txn, space| {
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
    /// Longest value that a command may make, bytes.
    pub(super) fn value_len_max(&self) -> usize {
        let limit = self.shared().config.max_request.0.min(VALUE_BYTES_MAX);
        usize::try_from(limit).unwrap_or(usize::MAX)
    }
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
    if let Source::Landed { extents, .. } = more.source(&mut scratch)
        && old.len + more.len() > WHOLE_MAX
        && !old.extents().is_empty()
        && old.extents().len() + extents.len() <= PIECES_MAX
    {
        // The checksum goes on from the old one: damage in the old part stays visible.
        let crc = old.crc_with(extents)?;
        let pieces: Extents = old.extents().iter().chain(extents).copied().collect();
        let pieces = Pieces { all: &pieces, landed: extents, of: &old };
        txn.put_pieces(space, key, pieces, Some(crc), old.expiry_ms);
        return Ok(());
    }
    let Some(old) = txn.read(space, key)? else { return Ok(()) };
    let mut bytes = old.to_vec()?;
    bytes.extend_from_slice(&more.bytes());
    txn.put_bytes(space, key, bytes, old.expiry_ms);
    Ok(())
}
