//! Ordered scans, page by page. No lock is held between pages.

use crate::engine::Engine;
use crate::error::KvError;
use crate::key::OrderedKey;
use crate::shard::{Lookup, Shard};
use crate::txn::Txn;
use landfall_heap::{Damage, Gated, Item, Tickets};
use std::cmp::Ordering;
use std::collections::binary_heap::PeekMut;
use std::collections::btree_set::Range;
use std::collections::{BTreeSet, BinaryHeap};
use std::ops::Bound;

/// Most keys of a page. It bounds the time for which a page locks the shards.
const PAGE_KEYS_MAX: usize = 256;

/// The keys that a scan visits, in byte order.
#[derive(Clone, Debug)]
pub struct RangeQuery {
    /// Database.
    pub space: u8,
    /// The lowest key.
    pub start: Bound<Vec<u8>>,
    /// The highest key.
    pub end: Bound<Vec<u8>>,
    /// True to visit the keys in descending order.
    pub reverse: bool,
}

impl RangeQuery {
    /// Every key of a database.
    pub fn all(space: u8) -> Self {
        Self { space, start: Bound::Unbounded, end: Bound::Unbounded, reverse: false }
    }

    /// Narrows the range to keys that begin with `prefix`.
    #[must_use]
    pub fn with_prefix(mut self, prefix: &[u8]) -> Self {
        let above_start = match &self.start {
            Bound::Unbounded => true,
            Bound::Included(start) | Bound::Excluded(start) => prefix > start.as_slice(),
        };
        if above_start {
            self.start = Bound::Included(prefix.to_vec());
        }
        if let Some(after) = successor(prefix) {
            let below_end = match &self.end {
                Bound::Unbounded => true,
                // `after` is the least key above every key with the prefix. It does not have the prefix itself.
                Bound::Included(end) => after <= *end,
                Bound::Excluded(end) => after < *end,
            };
            if below_end {
                self.end = Bound::Excluded(after);
            }
        }
        self
    }

    /// Narrows the range to what follows `key` in the order of the scan.
    pub fn resume_after(&mut self, key: Vec<u8>) {
        if self.reverse {
            self.end = Bound::Excluded(key);
        } else {
            self.start = Bound::Excluded(key);
        }
    }

    fn bounds(&self) -> Option<(Bound<OrderedKey>, Bound<OrderedKey>)> {
        let low = match &self.start {
            Bound::Included(key) => Bound::Included(OrderedKey::new(self.space, key)),
            Bound::Excluded(key) => Bound::Excluded(OrderedKey::new(self.space, key)),
            Bound::Unbounded => Bound::Included(OrderedKey::new(self.space, b"")),
        };
        let high = match &self.end {
            Bound::Included(key) => Bound::Included(OrderedKey::new(self.space, key)),
            Bound::Excluded(key) => Bound::Excluded(OrderedKey::new(self.space, key)),
            Bound::Unbounded => match self.space.checked_add(1) {
                Some(next) => Bound::Excluded(OrderedKey::new(next, b"")),
                None => Bound::Unbounded,
            },
        };
        is_proper(&low, &high).then_some((low, high))
    }
}

/// False where `BTreeSet::range` would panic: an empty or inverted range.
fn is_proper(low: &Bound<OrderedKey>, high: &Bound<OrderedKey>) -> bool {
    match (low, high) {
        (Bound::Included(low), Bound::Included(high)) => low <= high,
        (Bound::Included(low) | Bound::Excluded(low), Bound::Excluded(high))
        | (Bound::Excluded(low), Bound::Included(high)) => low < high,
        _ => true,
    }
}

/// The least key above every key that begins with `prefix`; `None` if there is none.
fn successor(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != u8::MAX)?;
    let mut after = prefix[..=last].to_vec();
    after[last] += 1;
    Some(after)
}

/// How much a page may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageLimit {
    /// Most keys in the page.
    pub keys: usize,
    /// Bytes of keys and values at which the page ends. The last pair may exceed them.
    pub bytes: usize,
    /// True to check every value against its checksum. If false, only the keys may be shown.
    pub verify: bool,
}

/// A page of a scan.
#[derive(Debug, Default)]
pub struct Page<'h> {
    /// Keys and values, in order. The item of a damaged value is an error.
    pub items: Vec<(Vec<u8>, Result<Item<'h>, KvError>)>,
    /// The last key visited, for [`RangeQuery::resume_after`]; `None` at the end of the range.
    pub last: Option<Vec<u8>>,
}

impl Engine {
    /// Visits up to `limit` keys of the range, at most one page. A page is a snapshot; a scan of several pages is not.
    ///
    /// The page depends on the record of each of its keys, and on every record that has added or removed a key.
    ///
    /// # Errors
    /// [`KvError::NotDurable`] after a failed write.
    pub fn range(&self, query: &RangeQuery, limit: usize, now_ms: u64) -> Result<Gated<Page<'_>>, KvError> {
        self.page(query, PageLimit { keys: limit, bytes: usize::MAX, verify: true }, now_ms)
    }

    /// As [`Self::range`], with limits for keys and bytes.
    ///
    /// # Errors
    /// As [`Self::range`].
    pub fn page(
        &self,
        query: &RangeQuery,
        limit: PageLimit,
        now_ms: u64,
    ) -> Result<Gated<Page<'_>>, KvError> {
        let (page, tickets) = self.ungated_page(query, limit, now_ms)?;
        Ok(Gated::new(page, tickets))
    }

    /// A page, and the tickets that it depends on.
    pub(crate) fn ungated_page(
        &self,
        query: &RangeQuery,
        limit: PageLimit,
        now_ms: u64,
    ) -> Result<(Page<'_>, Tickets), KvError> {
        let Some(bounds) = query.bounds() else { return Ok(Default::default()) };
        let shards = self.lock_all();
        let mut tickets = Tickets::default();
        shards.iter().for_each(|shard| tickets.add_all(&shard.pending_changes(&self.heap)));
        let merge = Merge::new(shards.iter().map(|shard| &shard.order), &bounds, query.reverse);
        let filled = fill_page(merge, limit, |index, key| {
            self.visit(&shards[index], query.space, key, now_ms, &mut tickets)
        });
        drop(shards);
        let page = filled?;
        Ok((if limit.verify { page.in_memory()?.verified() } else { page }, tickets))
    }

    /// The next keys of one shard that follow `after`, each with its space in front: as many as the limit says. For a scan
    /// that locks one shard at a time.
    pub(crate) fn page_of_shard(
        &self,
        shard: usize,
        after: Option<&OrderedKey>,
        limit: PageLimit,
        now_ms: u64,
    ) -> Result<Page<'_>, KvError> {
        let shard = self.shards[shard].lock();
        let low = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut keys = shard.order.range::<OrderedKey, _>((low, Bound::Unbounded));
        let mut page = Page::default();
        let mut held = 0;
        for key in keys.by_ref().take(limit.keys) {
            // Only the operator sees the findings, so that no ticket is kept to wait for.
            let found = self.visit(&shard, key[0], &key[1..], now_ms, &mut Tickets::default())?;
            held += found.as_ref().and_then(|item| item.as_ref().ok()).map_or(0, |item| item.len);
            page.items.extend(found.map(|item| (key.to_vec(), item)));
            page.last = Some(key.to_vec());
            if held >= limit.bytes {
                break;
            }
        }
        page.last = page.last.filter(|_| keys.next().is_some());
        Ok(page)
    }

    fn visit(
        &self,
        shard: &Shard,
        space: u8,
        key: &[u8],
        now_ms: u64,
        tickets: &mut Tickets,
    ) -> Result<Visited<'_>, KvError> {
        match self.read_in(shard, &Lookup::new(&self.heap, space, key), now_ms) {
            Ok(seen) => {
                seen.pending.into_iter().for_each(|ticket| tickets.add(ticket));
                Ok(seen.item.map(Ok))
            }
            Err(error @ (KvError::NotDurable | KvError::Wait(_))) => Err(error),
            Err(error) => Ok(Some(Err(error))),
        }
    }
}

impl<'e> Txn<'e> {
    /// As [`Engine::page`], with the transaction's own writes. The transaction must have begun with
    /// [`Engine::transaction_all`].
    ///
    /// # Errors
    /// As [`Engine::range`].
    pub fn page(&self, query: &RangeQuery, limit: PageLimit) -> Result<Gated<Page<'e>>, KvError> {
        let Some(bounds) = query.bounds() else { return Ok(Gated::durable(Page::default())) };
        let mut tickets = self.pending_changes();
        let (engine, shards, now_ms) = self.parts();
        // The staged keys are one more source of the merge. They hide the shards' versions of those keys.
        let staged: BTreeSet<OrderedKey> = self.staged_keys(query.space).collect();
        let orders = shards.iter().map(|shard| &shard.order).chain(std::iter::once(&staged));
        let merge = Merge::new(orders, &bounds, query.reverse);
        let page = fill_page(merge, limit, |index, key| match shards.get(index) {
            None => Ok(self.seen(query.space, key)?.item.map(Ok)),
            Some(_) if staged.contains(&OrderedKey::new(query.space, key)) => Ok(None),
            Some(shard) => engine.visit(shard, query.space, key, now_ms, &mut tickets),
        })?;
        Ok(Gated::new(if limit.verify { page.in_memory()?.verified() } else { page }, tickets))
    }
}

/// A key's value or its error; `None` if the key is absent.
type Visited<'h> = Option<Result<Item<'h>, KvError>>;

/// Visits keys in order until the page is full.
fn fill_page<'h>(
    mut merge: Merge<'_>,
    limit: PageLimit,
    mut visit: impl FnMut(usize, &[u8]) -> Result<Visited<'h>, KvError>,
) -> Result<Page<'h>, KvError> {
    let keys_max = limit.keys.min(PAGE_KEYS_MAX);
    let mut page = Page::default();
    let (mut visited, mut bytes_held) = (0, 0);
    while keys_max > 0
        && let Some((index, key)) = merge.next()
    {
        visited += 1;
        let bytes = &key[1..];
        if let Some(item) = visit(index, bytes)? {
            bytes_held += bytes.len() + item.as_ref().map_or(0, |item| item.len);
            page.items.push((bytes.to_vec(), item));
        }
        let full = page.items.len() == keys_max || bytes_held >= limit.bytes;
        if full || visited == 4 * PAGE_KEYS_MAX {
            page.last = Some(bytes.to_vec());
            break;
        }
    }
    Ok(page)
}

impl Page<'_> {
    /// Requests all evicted values.
    fn in_memory(self) -> Result<Self, KvError> {
        let items = self.items.iter().filter_map(|(_, item)| item.as_ref().ok());
        Item::fetch_all(items)?;
        Ok(self)
    }

    /// Checks every value against its checksum. [`Engine::page`] releases its locks first.
    pub(crate) fn verified(mut self) -> Self {
        for (_, item) in &mut self.items {
            let Ok(found) = item else { continue };
            let what = match found.verify() {
                Ok(true) => continue,
                Ok(false) => Damage::ValueChecksum,
                Err(_) => Damage::Unreadable,
            };
            *item = Err(KvError::Damaged { what });
        }
        self
    }
}

/// Merges several ordered sets.
struct Merge<'a> {
    sources: Vec<Source<'a>>,
    /// The next key of each source that has one.
    heads: BinaryHeap<Head<'a>>,
}

enum Source<'a> {
    Up(Range<'a, OrderedKey>),
    Down(std::iter::Rev<Range<'a, OrderedKey>>),
}

impl<'a> Iterator for Source<'a> {
    type Item = &'a OrderedKey;

    fn next(&mut self) -> Option<&'a OrderedKey> {
        match self {
            Self::Up(keys) => keys.next(),
            Self::Down(keys) => keys.next(),
        }
    }
}

/// The next key of a source. The greatest head is the next of the merge; of equal keys it is the first source's.
#[derive(PartialEq, Eq)]
struct Head<'a> {
    key: &'a OrderedKey,
    source: usize,
    reverse: bool,
}

impl Ord for Head<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        let by_key = if self.reverse { self.key.cmp(other.key) } else { other.key.cmp(self.key) };
        by_key.then(other.source.cmp(&self.source))
    }
}

impl PartialOrd for Head<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<'a> Merge<'a> {
    fn new(
        orders: impl Iterator<Item = &'a BTreeSet<OrderedKey>>,
        bounds: &(Bound<OrderedKey>, Bound<OrderedKey>),
        reverse: bool,
    ) -> Self {
        let source = |order: &'a BTreeSet<OrderedKey>| {
            let range = order.range::<OrderedKey, _>((bounds.0.as_ref(), bounds.1.as_ref()));
            if reverse { Source::Down(range.rev()) } else { Source::Up(range) }
        };
        let mut sources: Vec<_> = orders.map(source).collect();
        let head =
            |(source, keys): (usize, &mut Source<'a>)| Some(Head { key: keys.next()?, source, reverse });
        let heads = sources.iter_mut().enumerate().filter_map(head).collect();
        Self { sources, heads }
    }

    fn next(&mut self) -> Option<(usize, &'a OrderedKey)> {
        let mut head = self.heads.peek_mut()?;
        let (source, key) = (head.source, head.key);
        match self.sources[source].next() {
            Some(next) => head.key = next,
            None => drop(PeekMut::pop(head)),
        }
        Some((source, key))
    }
}
