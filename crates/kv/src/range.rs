//! Ordered scans, a page at a time: no lock is held between pages.

use crate::engine::Engine;
use crate::error::KvError;
use crate::item::Item;
use crate::shard::{Lookup, OrderedKey, Shard, ordered_key};
use parking_lot::MutexGuard;
use std::collections::btree_set::Range;
use std::iter::Peekable;
use std::ops::Bound;

/// Keys a page holds at most: bounds how long a page keeps the shards locked.
const PAGE_KEYS_MAX: usize = 256;

/// Which keys to visit, in byte order. Bounds are inclusive where they say so.
#[derive(Clone, Debug)]
pub struct RangeQuery {
    /// Database.
    pub space: u8,
    /// Lowest key.
    pub start: Bound<Vec<u8>>,
    /// Highest key.
    pub end: Bound<Vec<u8>>,
    /// From the highest key down.
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
                Bound::Included(end) | Bound::Excluded(end) => after < *end,
            };
            if below_end {
                self.end = Bound::Excluded(after);
            }
        }
        self
    }

    /// The rest of the range after `key` has been visited.
    pub fn resume_after(&mut self, key: Vec<u8>) {
        if self.reverse {
            self.end = Bound::Excluded(key);
        } else {
            self.start = Bound::Excluded(key);
        }
    }

    fn bounds(&self) -> Option<(Bound<OrderedKey>, Bound<OrderedKey>)> {
        let low = match &self.start {
            Bound::Included(key) => Bound::Included(ordered_key(self.space, key)),
            Bound::Excluded(key) => Bound::Excluded(ordered_key(self.space, key)),
            Bound::Unbounded => Bound::Included(ordered_key(self.space, b"")),
        };
        let high = match &self.end {
            Bound::Included(key) => Bound::Included(ordered_key(self.space, key)),
            Bound::Excluded(key) => Bound::Excluded(ordered_key(self.space, key)),
            Bound::Unbounded => match self.space.checked_add(1) {
                Some(next) => Bound::Excluded(ordered_key(next, b"")),
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
    /// Most keys.
    pub keys: usize,
    /// Bytes of keys and values after which the page ends; the last pair may exceed them.
    pub bytes: usize,
    /// Check every value against its checksum; without it only keys may be shown.
    pub verify: bool,
}

/// A page of a scan.
#[derive(Debug, Default)]
pub struct Page<'h> {
    /// Keys and values, in order. A damaged value is an error in its place.
    pub items: Vec<(Vec<u8>, Result<Item<'h>, KvError>)>,
    /// The last key looked at, for [`RangeQuery::resume_after`]; `None` when the range is exhausted.
    pub last: Option<Vec<u8>>,
}

impl Engine {
    /// Visits up to `limit` keys of the range, at most a page of them. Values are as of now; the page as a
    /// whole is consistent, a scan of several pages is not a snapshot.
    ///
    /// # Errors
    /// [`KvError::NotDurable`] after a failed write.
    pub fn range(&self, query: &RangeQuery, limit: usize, now_ms: u64) -> Result<Page<'_>, KvError> {
        self.page(query, PageLimit { keys: limit, bytes: usize::MAX, verify: true }, now_ms)
    }

    /// The same, holding no more than the limit says.
    ///
    /// # Errors
    /// As [`Self::range`].
    pub fn page(&self, query: &RangeQuery, limit: PageLimit, now_ms: u64) -> Result<Page<'_>, KvError> {
        let keys_max = limit.keys.min(PAGE_KEYS_MAX);
        let mut page = Page::default();
        let Some(bounds) = query.bounds().filter(|_| keys_max > 0) else { return Ok(page) };
        let shards = self.lock_all();
        let mut merge = Merge::new(&shards, &bounds, query.reverse);
        let (mut visited, mut bytes_held) = (0, 0);
        while let Some((index, key)) = merge.next() {
            visited += 1;
            let bytes = &key[1..];
            if let Some(item) = self.visit(&shards[index], query.space, bytes, now_ms)? {
                bytes_held += bytes.len() + item.as_ref().map_or(0, |item| item.len);
                page.items.push((bytes.to_vec(), item));
            }
            let full = page.items.len() == keys_max || bytes_held >= limit.bytes;
            if full || visited == 4 * PAGE_KEYS_MAX {
                page.last = Some(bytes.to_vec());
                break;
            }
        }
        drop(shards);
        if limit.verify {
            page.verify();
        }
        Ok(page)
    }

    fn visit(
        &self,
        shard: &Shard,
        space: u8,
        key: &[u8],
        now_ms: u64,
    ) -> Result<Option<Result<Item<'_>, KvError>>, KvError> {
        let lookup = Lookup::new(&self.heap, space, key);
        match shard.find(&self.heap, &lookup) {
            Ok(Some(hit)) if !hit.is_expired(now_ms) => {
                self.check_visible(hit.slot)?;
                Ok(Some(Item::hold(&self.heap, hit.slot, &hit.view).map_err(KvError::from)))
            }
            Ok(_) => Ok(None),
            Err(error) => Ok(Some(Err(error))),
        }
    }
}

impl Page<'_> {
    /// Checks every value against its checksum, after the locks are gone.
    fn verify(&mut self) {
        for (_, item) in &mut self.items {
            if let Ok(found) = item
                && !matches!(found.verify(), Ok(true))
            {
                *item = Err(KvError::Damaged { what: landfall_heap::Damage::ValueChecksum });
            }
        }
    }
}

/// Merges the shards' orders into one.
struct Merge<'a> {
    sources: Vec<Source<'a>>,
    reverse: bool,
}

enum Source<'a> {
    Up(Peekable<Range<'a, OrderedKey>>),
    Down(Peekable<std::iter::Rev<Range<'a, OrderedKey>>>),
}

impl<'a> Source<'a> {
    fn peek(&mut self) -> Option<&'a OrderedKey> {
        match self {
            Self::Up(keys) => keys.peek().copied(),
            Self::Down(keys) => keys.peek().copied(),
        }
    }

    fn advance(&mut self) -> Option<&'a OrderedKey> {
        match self {
            Self::Up(keys) => keys.next(),
            Self::Down(keys) => keys.next(),
        }
    }
}

impl<'a> Merge<'a> {
    fn new(
        shards: &'a [MutexGuard<'_, Shard>],
        bounds: &(Bound<OrderedKey>, Bound<OrderedKey>),
        reverse: bool,
    ) -> Self {
        let range = |shard: &'a MutexGuard<'_, Shard>| shard.order.range::<OrderedKey, _>((bounds.0.as_ref(), bounds.1.as_ref()));
        let source = |shard| {
            if reverse { Source::Down(range(shard).rev().peekable()) } else { Source::Up(range(shard).peekable()) }
        };
        Self { sources: shards.iter().map(source).collect(), reverse }
    }

    fn next(&mut self) -> Option<(usize, &'a OrderedKey)> {
        let mut best: Option<(usize, &OrderedKey)> = None;
        for (index, source) in self.sources.iter_mut().enumerate() {
            let Some(key) = source.peek() else { continue };
            let better = best.is_none_or(|(_, known)| if self.reverse { key > known } else { key < known });
            if better {
                best = Some((index, key));
            }
        }
        let (index, _) = best?;
        self.sources[index].advance().map(|key| (index, key))
    }
}
