//! A range of this node's keys, of the entries of a log, or of its records of files, beside those of the node before:
//! `docs/format/chain.md`, "Comparing".

use super::files::{publish_by, without_files};
use super::stop::{Stop, check_space};
use crate::context::Context;
use crate::reply::Reply;
use landfall_chain::{Bits, Compare, Compared, Difference, Digest, Digester, KeyRange, Reason, Refusal};
use landfall_chain_io::{Node, digest_of_files, entry_place, parse_entry_place, record_of};
use landfall_fs::{CopiedRecord, CopyPlace, FsError, is_compared};
use landfall_heap::{Damage, HeapError, Item, spaces};
use landfall_kv::{KvError, PageLimit, RangeQuery, verify};
use std::ops::Bound;

/// Most keys that are read for one message, ...
const KEYS_MAX: usize = 1024;
/// ... and most bytes of their values: all of these are verified.
const BYTES_MAX: usize = 8 << 20;

/// This node's version of a key.
struct Own {
    key: Vec<u8>,
    digest: Digest,
}

/// What this node has of a range.
#[derive(Default)]
struct Owned {
    keys: Vec<Own>,
    bytes: usize,
    /// The key at which the read has stopped.
    stopped_at: Option<Vec<u8>>,
}

/// Says what this node has of a range. Of buckets whose records are known, it deletes old ones that the node before does
/// not have. The reply waits until everything that was read is durable.
pub(super) fn compare(
    node: &Node,
    ctx: &mut Context<'_>,
    head: &[u8],
    reply: &mut Reply<'_>,
) -> Result<Difference, Stop> {
    let Compare { range, digester, with } = Compare::decode(head)?;
    let below = node.old_below()?;
    if is_compared(range.space) {
        return compare_files(node, ctx, &range, &digester, with);
    }
    if range.space == spaces::LOG {
        return compare_log(ctx, &range, &digester, with);
    }
    check_space(range.space)?;
    let owned = read(node, ctx, &range, &digester, reply)?;
    match with {
        Compared::Sums(sums) => Ok(owned.differs_from(&digester, &sums)),
        Compared::Records { keys: Some(_), .. } => Err(of_other_records().into()),
        Compared::Records { buckets, digests, keys: None } => {
            delete(ctx, &range, &owned, below, |own| {
                !buckets.is_set(own.bucket) || digests.contains(&own.digest)
            })?;
            Ok(owned.has_not(&digests))
        }
    }
}

fn compare_files(
    node: &Node,
    ctx: &Context<'_>,
    range: &KeyRange<'_>,
    digester: &Digester,
    with: Compared,
) -> Result<Difference, Stop> {
    let owned = read_files(node, ctx, range, digester)?;
    match with {
        Compared::Sums(sums) => Ok(owned.differs_from(digester, &sums)),
        Compared::Records { keys: None, .. } => Err(of_other_records().into()),
        Compared::Records { buckets, digests, keys: Some(keys) } => {
            let stays = |own: &Own| !buckets.is_set(own.digest.bucket) || keys.contains(&own.digest.key);
            let gone: Vec<&[u8]> =
                owned.keys.iter().filter(|own| !stays(own)).map(|own| &own.key[..]).collect();
            publish_by(ctx.shared, |publisher| publisher.drop_compared(range.space, &gone))?;
            Ok(owned.has_not(&digests))
        }
    }
}

/// What the copy of a log would bring, and was here before, is taken over.
fn compare_log(
    ctx: &mut Context<'_>,
    range: &KeyRange<'_>,
    digester: &Digester,
    with: Compared,
) -> Result<Difference, Stop> {
    let mut owned = read_log(ctx, range, digester)?;
    match with {
        Compared::Sums(sums) => {
            let mut differ = owned.differs_from(digester, &sums);
            for Own { key, digest } in &owned.keys {
                if !differ.missing.is_set(digest.bucket) && !adopt(ctx, key)? {
                    differ.missing.set(digest.bucket);
                }
            }
            Ok(differ)
        }
        Compared::Records { keys: Some(_), .. } => Err(of_other_records().into()),
        Compared::Records { buckets, digests, keys: None } => {
            let mut there = Vec::new();
            for own in owned.keys {
                let is_it = buckets.is_set(own.digest.bucket) && digests.contains(&own.digest.digest);
                if is_it && adopt(ctx, &own.key)? {
                    there.push(own);
                }
            }
            owned.keys = there;
            Ok(owned.has_not(&digests))
        }
    }
}

fn adopt(ctx: &mut Context<'_>, place: &[u8]) -> Result<bool, Stop> {
    let (offset, key) = parse_entry_place(place).ok_or_else(of_no_log)?;
    Ok(ctx.logs.adopt(ctx.writer, key, offset)?)
}

/// Reads the entries of a range that are kept, and verifies their values; damaged ones are left out.
fn read_log(ctx: &Context<'_>, range: &KeyRange<'_>, digester: &Digester) -> Result<Owned, Stop> {
    let place = |place: Option<&[u8]>| {
        place.and_then(|place| parse_entry_place(place).map(|(at, key)| (at, key.to_vec())))
    };
    let ((first, key), (last, other)) = place(range.after).zip(place(range.until)).ok_or_else(of_no_log)?;
    if key != other {
        return Err(of_no_log().into());
    }
    let mut owned = Owned::default();
    for item in ctx.logs.kept_entries(&key, &(first..=last), KEYS_MAX)? {
        owned.bytes += item.len;
        if owned.bytes > BYTES_MAX && !owned.keys.is_empty() {
            break;
        }
        item.fetch()?;
        if item.verify().map_err(HeapError::from)? {
            let key = entry_place(item.expiry_ms, &key);
            let digest = digester.digest(&record_of(ctx.engine.heap(), range.space, 0, &key, &item)?);
            owned.keys.push(Own { key, digest });
        }
    }
    Ok(owned)
}

fn of_no_log() -> Refusal {
    Refusal::new(Reason::Message, "these are no entries of a log")
}

fn of_other_records() -> Refusal {
    Refusal::new(Reason::Message, "records of the one kind are compared as those of the other")
}

/// Reads the published records of a range, and their values.
fn read_files(
    node: &Node,
    ctx: &Context<'_>,
    range: &KeyRange<'_>,
    digester: &Digester,
) -> Result<Owned, Stop> {
    let files = ctx.shared.files.files().ok_or_else(without_files)?;
    let mut place = CopyPlace { space: range.space, after: range.after.map(<[u8]>::to_vec) };
    let mut owned = Owned::default();
    loop {
        let page = files.records_within(&place, range.until).map_err(|error| match error {
            FsError::Heap(HeapError::Damaged { .. }) => unreadable(node),
            error => error.into(),
        })?;
        Item::fetch_all(page.records.iter().map(|record| &record.item))?;
        for CopiedRecord { space, key, aux, item } in page.records {
            let digest = digest_of_files(files.heap(), digester, (space, aux), &key, &item)?;
            let is_whole = item.verify().map_err(HeapError::from)?;
            let digest = if is_whole { digest } else { Digest { digest: !digest.digest, ..digest } };
            owned.bytes += item.len;
            owned.keys.push(Own { key, digest });
        }
        let Some(last) = owned.keys.last().filter(|_| !page.is_last) else { return Ok(owned) };
        place.after = Some(last.key.clone());
        if owned.keys.len() >= KEYS_MAX || owned.bytes >= BYTES_MAX {
            owned.stopped_at = place.after;
            return Ok(owned);
        }
    }
}

/// Ends the copy: the next one keeps nothing.
fn unreadable(node: &Node) -> Stop {
    node.note_damage();
    let text = "a record of this node cannot be read: the next copy keeps nothing that is here";
    Refusal::new(Reason::Copy, text).into()
}

/// Reads the keys of a range, expired ones too, and verifies their values.
fn read(
    node: &Node,
    ctx: &Context<'_>,
    range: &KeyRange<'_>,
    digester: &Digester,
    reply: &mut Reply<'_>,
) -> Result<Owned, Stop> {
    let bound = |key: Option<&[u8]>, of: fn(Vec<u8>) -> Bound<Vec<u8>>| {
        key.map_or(Bound::Unbounded, |key| of(key.to_vec()))
    };
    let mut query = RangeQuery {
        space: range.space,
        start: bound(range.after, Bound::Excluded),
        end: bound(range.until, Bound::Included),
        reverse: false,
    };
    let mut owned = Owned::default();
    loop {
        let limit = PageLimit { keys: KEYS_MAX, bytes: BYTES_MAX, verify: false };
        // A key that has expired is read as well: by the clock, nothing has.
        let page = ctx.engine.page(&query, limit, 0)?.open(reply);
        Item::fetch_all(page.items.iter().filter_map(|(_, item)| item.as_ref().ok()))?;
        for (key, item) in page.items {
            owned.bytes += item.as_ref().map_or(0, |item| item.len);
            let digest = digest_of(node, ctx, range.space, digester, &key, item)?;
            owned.keys.push(Own { key, digest });
        }
        let Some(last) = page.last else { return Ok(owned) };
        if owned.keys.len() >= KEYS_MAX || owned.bytes >= BYTES_MAX {
            owned.stopped_at = Some(last);
            return Ok(owned);
        }
        query.resume_after(last);
    }
}

/// The digest of this node's version of a key. A damaged value has one that no other node's version has.
fn digest_of(
    node: &Node,
    ctx: &Context<'_>,
    space: u8,
    digester: &Digester,
    key: &[u8],
    item: Result<Item<'_>, KvError>,
) -> Result<Digest, Stop> {
    let item = match item {
        Ok(item) => item,
        Err(KvError::Damaged { .. }) => return Err(unreadable(node)),
        Err(error) => return Err(error.into()),
    };
    let record = match record_of(ctx.engine.heap(), space, 0, key, &item) {
        Ok(record) => record,
        Err(HeapError::Damaged { .. }) => return Err(unreadable(node)),
        Err(error) => return Err(error.into()),
    };
    let digest = digester.digest(&record);
    match verify(&item) {
        Ok(()) => Ok(digest),
        Err(KvError::Damaged { what: Damage::ValueChecksum }) => {
            tracing::warn!(key = %String::from_utf8_lossy(key), "a damaged value is copied again");
            Ok(Digest { digest: !digest.digest, ..digest })
        }
        Err(KvError::Damaged { .. }) => Err(unreadable(node)),
        Err(error) => Err(error.into()),
    }
}

/// Deletes the old keys that do not stay.
fn delete(
    ctx: &mut Context<'_>,
    range: &KeyRange<'_>,
    owned: &Owned,
    below: u64,
    stays: impl Fn(&Digest) -> bool,
) -> Result<(), KvError> {
    for own in owned.keys.iter().filter(|own| !stays(&own.digest)) {
        ctx.engine.delete_older(ctx.writer, range.space, &own.key, below, ctx.arrival_ns)?;
    }
    Ok(())
}

impl Owned {
    /// Which buckets have another sum.
    fn differs_from(&self, digester: &Digester, sums: &[u64]) -> Difference {
        let is_nothing = self.keys.is_empty();
        let mut missing = Bits::none(sums.len());
        let own = digester.sums(self.keys.iter().map(|own| own.digest));
        let is_whole = self.stopped_at.is_none();
        let differ = (0..sums.len()).filter(|at| !is_whole || own[*at] != sums[*at]);
        differ.for_each(|at| missing.set(at));
        Difference {
            is_nothing,
            stopped_at: None,
            missing: if is_nothing { Bits::default() } else { missing },
        }
    }

    /// Which digests none of these keys has.
    fn has_not(self, digests: &[u64]) -> Difference {
        let mut own: Vec<u64> = self.keys.iter().map(|own| own.digest.digest).collect();
        own.sort_unstable();
        let mut missing = Bits::none(digests.len());
        let lacks = (0..digests.len()).filter(|at| own.binary_search(&digests[*at]).is_err());
        lacks.for_each(|at| missing.set(at));
        Difference { is_nothing: false, stopped_at: self.stopped_at, missing }
    }
}
