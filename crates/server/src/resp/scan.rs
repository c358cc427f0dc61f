//! Listing keys: `SCAN`, `KEYS`, `RANDOMKEY`, `DBSIZE`.

use super::command::{Call, Spec};
use super::fail::Fail;
use super::flags::Flags;
use landfall_kv::{Page, PageLimit, RangeQuery};
use landfall_resp::{glob_match, parse_i64, parse_u64};
use std::ops::Bound;

/// Keys that one `SCAN` visits, at most, whatever its `COUNT` is.
const SCAN_KEYS_MAX: usize = 100_000;
/// Bytes of keys beyond which one `SCAN` ends.
const SCAN_BYTES_MAX: usize = 1 << 20;
/// Keys that one `SCAN` visits without `COUNT`, as in Redis.
const SCAN_KEYS_DEFAULT: usize = 10;
/// Leading bytes of keys that `RANDOMKEY` uses, at most.
const RANDOM_DEPTH_MAX: usize = 64;

const LISTS: Flags = Flags::READ.and(Flags::ALL_KEYS);

pub(super) const SPECS: &[Spec] = &[
    Spec::new("scan", -2, LISTS, scan, "generic", "Iterates over the key names in the database."),
    Spec::new("keys", 2, LISTS, keys, "generic", "Returns all key names that match a pattern."),
    Spec::new("randomkey", 1, LISTS, randomkey, "generic", "Returns a random key name from the database."),
    Spec::new(
        "dbsize",
        1,
        LISTS.and(Flags::FAST),
        dbsize,
        "server",
        "Returns the number of keys in the database.",
    ),
];

impl<'e> Call<'_, 'e, '_> {
    /// A page of keys; the reply waits for the keys shown and for removals of others.
    pub(super) fn page(&mut self, query: &RangeQuery, limit: PageLimit) -> Result<Page<'e>, Fail> {
        let page = match &self.txn {
            Some(txn) => txn.page(query, limit)?,
            None => self.ctx.engine.page(query, limit, self.ctx.now_ms)?,
        };
        Ok(self.open(page))
    }

    /// A page of keys without values.
    fn keys_page(&mut self, query: &RangeQuery, keys: usize) -> Result<Page<'e>, Fail> {
        self.page(query, PageLimit { keys, bytes: usize::MAX, verify: false })
    }

    /// Longest reply that lists keys, bytes.
    pub(super) fn listing_bytes_max(&self) -> u64 {
        self.shared().config.reply_memory_max() as u64
    }
}

/// The error for a listing that is too long for one reply.
pub(super) fn listing_too_long(limit: u64, advice: &str) -> Fail {
    Fail::Error(format!("ERR the reply would exceed {limit} bytes: {advice}").into())
}

fn dbsize(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    let space = call.database();
    let count = match &call.txn {
        Some(txn) => txn.count(space)?,
        None => call.ctx.engine.count(space),
    };
    let count = call.open(count);
    call.reply_integer(i64::try_from(count).unwrap_or(i64::MAX))
}

/// The options of `SCAN` besides the cursor.
struct ScanOptions {
    pattern: Option<Vec<u8>>,
    count: usize,
    /// False if the requested type is one that no key has.
    strings: bool,
}

impl ScanOptions {
    fn parse(call: &Call<'_, '_, '_>) -> Result<Self, Fail> {
        let mut options = Self { pattern: None, count: SCAN_KEYS_DEFAULT, strings: true };
        for at in (2..call.words.len()).step_by(2) {
            if at + 1 == call.words.len() {
                return Err(Fail::syntax());
            }
            let value = call.word(at + 1);
            match call.word(at).to_ascii_uppercase().as_slice() {
                b"COUNT" => {
                    let count = parse_i64(&value).ok_or(Fail::not_an_integer())?;
                    options.count = usize::try_from(count).ok().filter(|n| *n > 0).ok_or(Fail::syntax())?;
                }
                b"MATCH" => options.pattern = Some(value.into_owned()),
                b"TYPE" => options.strings = value.eq_ignore_ascii_case(b"string"),
                _ => return Err(Fail::syntax()),
            }
        }
        Ok(options)
    }

    fn wants(&self, key: &[u8]) -> bool {
        self.strings && self.pattern.as_ref().is_none_or(|pattern| glob_match(pattern, key))
    }
}

fn scan(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    let cursor = parse_u64(&call.word(1)).ok_or(Fail::error("ERR invalid cursor"))?;
    let options = ScanOptions::parse(call)?;
    let mut query = query_of(call.database(), options.pattern.as_deref());
    if let Some(after) = call.shared().cursors.lock().find(cursor) {
        query.resume_after(after.to_vec());
    }
    let mut left = options.count.min(SCAN_KEYS_MAX);
    let (mut found, mut bytes) = (Vec::new(), 0);
    let mut next = None;
    while left > 0 && bytes < SCAN_BYTES_MAX {
        let page = call.keys_page(&query, left)?;
        left -= page.items.len().clamp(1, left);
        for (key, _) in page.items.into_iter().filter(|(key, _)| options.wants(key)) {
            bytes += key.len();
            found.push(key);
        }
        next = page.last;
        let Some(last) = &next else { break };
        query.resume_after(last.clone());
    }
    let cursor = next.map_or(0, |after| call.shared().cursors.lock().keep(after));
    call.out().array(2);
    call.out().bulk(itoa::Buffer::new().format(cursor).as_bytes());
    call.out().array(found.len());
    found.iter().for_each(|key| call.out().bulk(key));
    Ok(())
}

/// A query for the keys that may match a pattern: those with its literal prefix.
fn query_of(space: u8, pattern: Option<&[u8]>) -> RangeQuery {
    let pattern = pattern.unwrap_or_default();
    let literal = pattern.iter().position(|byte| matches!(byte, b'*' | b'?' | b'[' | b'\\'));
    RangeQuery::all(space).with_prefix(&pattern[..literal.unwrap_or(pattern.len())])
}

fn keys(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    let pattern = call.word(1);
    let mut query = query_of(call.database(), Some(&pattern));
    let limit = call.listing_bytes_max();
    let (mut found, mut bytes) = (Vec::new(), 0);
    loop {
        let page = call.keys_page(&query, usize::MAX)?;
        for (key, _) in page.items {
            if glob_match(&pattern, &key) {
                bytes += key.len() as u64;
                found.push(key);
            }
        }
        if bytes > limit {
            return Err(listing_too_long(limit, "use SCAN"));
        }
        let Some(last) = page.last else { break };
        query.resume_after(last);
    }
    call.out().array(found.len());
    found.iter().for_each(|key| call.out().bulk(key));
    Ok(())
}

/// Selects a random key, byte by byte among those that occur. Keys with rare prefixes are selected more often than
/// others.
fn randomkey(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    let mut seed = call.ctx.arrival_ns ^ call.session.id << 48;
    let mut prefix = Vec::new();
    let Some(mut picked) = edge(call, &prefix, false)? else {
        call.out().null();
        return Ok(());
    };
    while prefix.len() < RANDOM_DEPTH_MAX
        && let Some(next) = descend(call, &mut prefix, &picked, &mut seed)?
    {
        picked = next;
    }
    call.out().bulk(&picked);
    Ok(())
}

/// Selects one of the bytes that follow the prefix: returns the first key with it, and the new prefix. `None` if the
/// choice is `first`, the first key with the prefix.
fn descend(
    call: &mut Call<'_, '_, '_>,
    prefix: &mut Vec<u8>,
    first: &[u8],
    seed: &mut u64,
) -> Result<Option<Vec<u8>>, Fail> {
    let Some(last) = edge(call, prefix, true)?.filter(|last| last != first) else { return Ok(None) };
    let common = first.iter().zip(&last).take_while(|(a, b)| a == b).count();
    let mut low = first.get(common).copied();
    if low.is_none() {
        // The first key ends where others continue, so it is one more choice.
        low = first_from(call, Bound::Excluded(first.to_vec()))?.and_then(|next| next.get(common).copied());
    }
    let low = low.unwrap_or(last[common]);
    let choices = u64::from(last[common] - low) + 1 + u64::from(first.len() == common);
    let choice = random(seed) % choices;
    let Ok(byte) = u8::try_from(u64::from(low) + choice) else { return Ok(None) };
    if byte > last[common] {
        return Ok(None);
    }
    let next = first_from(call, Bound::Included([&first[..common], &[byte]].concat()))?;
    *prefix = next.as_ref().map_or(Vec::new(), |next| next[..=common.min(next.len() - 1)].to_vec());
    Ok(next)
}

/// The first or last key with a prefix.
fn edge(call: &mut Call<'_, '_, '_>, prefix: &[u8], last: bool) -> Result<Option<Vec<u8>>, Fail> {
    let query = RangeQuery { reverse: last, ..RangeQuery::all(call.database()).with_prefix(prefix) };
    Ok(call.keys_page(&query, 1)?.items.pop().map(|(key, _)| key))
}

fn first_from(call: &mut Call<'_, '_, '_>, start: Bound<Vec<u8>>) -> Result<Option<Vec<u8>>, Fail> {
    let query = RangeQuery { start, ..RangeQuery::all(call.database()) };
    Ok(call.keys_page(&query, 1)?.items.pop().map(|(key, _)| key))
}

/// The next number of a simple generator (splitmix64); its quality does not matter here.
fn random(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*seed ^ *seed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}
