//! `LF.RANGE start end [LIMIT n] [REV]`: keys with their values, in the order of their bytes.
//!
//! | word | means |
//! |---|---|
//! | `start`, `end` | lowest and highest key, both inclusive, whatever the direction |
//! | `-`, `+` | no lowest, no highest key |
//! | `(key` | not the key itself |
//! | `[key` | the key itself; needed for keys that begin with `(` or `[`, or that are `-` or `+` |
//! | `LIMIT n` | at most `n` keys; without it, all |
//! | `REV` | from the highest key down |
//!
//! The reply is one array: key, value, key, value, and so on. Values are sent from their frames. Each value is that of
//! the time of the command; within `EXEC`, and for ranges of up to 256 keys, the whole range is consistent, too.

use super::command::{Call, Spec};
use super::fail::Fail;
use super::flags::Flags;
use super::scan::listing_too_long;
use landfall_kv::{Item, KvError, PageLimit, RangeQuery};
use std::ops::Bound;

pub(super) const SPECS: &[Spec] = &[Spec::new(
    "lf.range",
    -3,
    Flags::READ.and(Flags::ALL_KEYS),
    range,
    "landfall",
    "Returns keys with their values, in order.",
)];

/// Parses a bound; `open` stands for no bound.
fn bound(word: &[u8], open: &[u8]) -> Bound<Vec<u8>> {
    match word {
        _ if word == open => Bound::Unbounded,
        [b'(', key @ ..] => Bound::Excluded(key.to_vec()),
        [b'[', key @ ..] => Bound::Included(key.to_vec()),
        key => Bound::Included(key.to_vec()),
    }
}

fn range(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    let (start, end) = (bound(&call.word(1), b"-"), bound(&call.word(2), b"+"));
    let mut query = RangeQuery { space: call.database(), start, end, reverse: false };
    let mut limit = usize::MAX;
    let mut at = 3;
    while at < call.words.len() {
        if call.words.is(at, "REV") {
            query.reverse = true;
        } else if call.words.is(at, "LIMIT") && at + 1 < call.words.len() {
            at += 1;
            limit = call.positive(at)?;
        } else {
            return Err(Fail::syntax());
        }
        at += 1;
    }
    let pairs = gather(call, query, limit)?;
    call.out().array(2 * pairs.len());
    for (key, item) in pairs {
        call.out().bulk(&key);
        call.reply_value(Some(item))?;
    }
    Ok(())
}

/// Collects the whole reply before any of it is written.
fn gather<'e>(
    call: &mut Call<'_, 'e, '_>,
    mut query: RangeQuery,
    limit: usize,
) -> Result<Vec<(Vec<u8>, Item<'e>)>, Fail> {
    let bytes_max = call.listing_bytes_max();
    let (mut pairs, mut bytes) = (Vec::new(), 0);
    while pairs.len() < limit {
        let room = usize::try_from(bytes_max - bytes).unwrap_or(usize::MAX).max(1);
        let page = call.page(&query, PageLimit { keys: limit - pairs.len(), bytes: room, verify: true })?;
        for (key, item) in page.items {
            let item = item.map_err(|error| damaged(&key, error))?;
            bytes += (key.len() + item.len) as u64;
            pairs.push((key, item));
        }
        if bytes > bytes_max {
            return Err(listing_too_long(bytes_max, "give a LIMIT and continue after the last key"));
        }
        let Some(last) = page.last else { break };
        query.resume_after(last);
    }
    Ok(pairs)
}

fn damaged(key: &[u8], error: KvError) -> Fail {
    match error.into() {
        Fail::Error(text) => Fail::Error(format!("{text} (key '{}')", key.escape_ascii()).into()),
        wait => wait,
    }
}
