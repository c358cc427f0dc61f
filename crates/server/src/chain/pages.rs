//! All keys, logs and files, for a copy to the node behind.

use crate::shared::{Shared, now_ns};
use landfall_chain_io::{AddRecord, CopiedPart, CopiedRecord, Pages, Position, Role};
use landfall_fs::{CopyPlace, FsError, is_compared};
use landfall_heap::{Damage, Gated, HeapError, Item, SlotId, Until, spaces};
use landfall_kv::{DATABASES, KvError, PageLimit, RangeQuery, verify};
use landfall_wal::{CopiedLogRecord, LogPart, LogPlace, ReadLimit, WalError};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Keys of a page.
const PAGE_KEYS: usize = 256;
/// Pause between looks whether a page is durable.
const WAIT: Duration = Duration::from_micros(200);
/// The log is published at least every second. If it takes longer, the copy may have to be whole.
const PUBLISHED_WITHIN: Duration = Duration::from_secs(5);
/// Bytes of a page.
const PAGE_BYTES: usize = 1 << 20;
/// Most values of a copy that are passed over as they cannot be read: it is not a bad sector if there are more.
const UNREADABLE_MAX: u64 = 4096;

/// Walks over all databases in the order of their keys.
pub(super) struct EnginePages {
    shared: Arc<Shared>,
    /// Values of this copy that the medium does not give.
    unreadable: AtomicU64,
}

impl std::fmt::Debug for EnginePages {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("EnginePages")
    }
}

impl EnginePages {
    pub(super) fn new(shared: &Arc<Shared>) -> Self {
        Self { shared: Arc::clone(shared), unreadable: AtomicU64::new(0) }
    }
}

impl Pages for EnginePages {
    fn begin(&self) {
        self.unreadable.store(0, Ordering::Relaxed);
        let Some(files) = self.shared.files.files() else { return };
        // What the node behind has published must be published here, or it seems to be there in vain.
        let (begun, next) = (Instant::now(), files.next_operation());
        while files.published_below() < next
            && begun.elapsed() < PUBLISHED_WITHIN
            && !is_given_up(&self.shared)
        {
            std::thread::sleep(WAIT);
        }
        while !files.hold_publishing() && !is_given_up(&self.shared) {
            std::thread::sleep(WAIT);
        }
    }

    fn end(&self) {
        self.shared.files.files().into_iter().for_each(|files| files.publish_again());
    }

    fn compares(&self, space: u8) -> bool {
        usize::from(space) < DATABASES || space == spaces::LOG || is_compared(space)
    }

    fn page<'h>(&'h self, from: &Position, add: AddRecord<'_, 'h>) -> Result<Option<Position>, HeapError> {
        match from.space {
            space if spaces::FILES.contains(&space) => self.page_of_files(from, add),
            spaces::LOG => self.page_of_logs(from, add),
            _ => self.page_of_keys(from, add),
        }
    }
}

impl EnginePages {
    fn page_of_keys<'h>(
        &'h self,
        from: &Position,
        add: AddRecord<'_, 'h>,
    ) -> Result<Option<Position>, HeapError> {
        let mut query = RangeQuery::all(from.space);
        if let Some(after) = &from.after {
            query.resume_after(after.clone());
        }
        let limit = PageLimit { keys: PAGE_KEYS, bytes: PAGE_BYTES, verify: false };
        let page = self.shared.engine.page(&query, limit, now_ns() / 1_000_000).map_err(heap_error)?;
        let page = durable(&self.shared, page)?;
        Item::fetch_all(page.items.iter().filter_map(|(_, item)| item.as_ref().ok()))?;
        for (key, item) in page.items {
            if let Some(part) = value_part(&key, item, &self.unreadable)? {
                add(CopiedRecord { space: from.space, key, aux: 0, part })?;
            }
        }
        Ok(match page.last {
            Some(last) => Some(Position { space: from.space, after: Some(last) }),
            None => {
                let next = from.space + 1;
                let space = if usize::from(next) < DATABASES { next } else { spaces::LOG };
                Some(Position { space, after: None })
            }
        })
    }

    fn page_of_logs<'h>(
        &'h self,
        from: &Position,
        add: AddRecord<'_, 'h>,
    ) -> Result<Option<Position>, HeapError> {
        let limit = ReadLimit { entries: PAGE_KEYS, bytes: PAGE_BYTES as u64 };
        let place = from.after.as_deref().map_or(LogPlace::Start, decode);
        let page = self.shared.logs.copy_page(&place, limit).map_err(log_error).inspect_err(|error| {
            if matches!(error, HeapError::Media(_)) {
                tracing::error!(?place, %error, "entries of a log cannot be read, so that nothing is copied");
            }
        })?;
        let page = durable(&self.shared, page)?;
        if let Some((log, what)) = page.damaged {
            tracing::error!(log, %what, "a damaged log cannot be copied");
        }
        for CopiedLogRecord { space, key, part } in page.records {
            let part = match part {
                LogPart::Entry(item) => CopiedPart::Value(item),
                LogPart::Lost(mark) => CopiedPart::Tombstone { mark },
                LogPart::Bound(mark) => CopiedPart::Bound { mark },
            };
            add(CopiedRecord { space, key, aux: 0, part })?;
        }
        let files = || self.shared.files.files().map(|_| position(CopyPlace::START));
        let next = page.next.map(|next| Position { space: spaces::LOG, after: Some(encode(&next)) });
        Ok(next.or_else(files))
    }

    fn page_of_files<'h>(
        &'h self,
        from: &Position,
        add: AddRecord<'_, 'h>,
    ) -> Result<Option<Position>, HeapError> {
        let Some(files) = self.shared.files.files() else { return Ok(None) };
        if from.space == spaces::FILES_LOG {
            files.sync_all().map_err(fs_error)?;
            self.shared.wake_committer();
        }
        let place = CopyPlace { space: from.space, after: from.after.clone() };
        let (page, next) = files.copy_page(&place).map_err(fs_error)?;
        Item::fetch_all(page.iter().map(|record| &record.item))?;
        for landfall_fs::CopiedRecord { space, key, aux, item } in page {
            let is_whole = item.verify().inspect_err(|error| {
                tracing::error!(
                    slot = item.slot.0,
                    %error,
                    "a record of files cannot be read, so that nothing is copied: repair the region first"
                );
            })?;
            if !is_whole {
                tracing::error!(
                    slot = item.slot.0,
                    "a damaged record of files cannot be copied: repair the region first"
                );
                return Err(HeapError::Damaged { slot: item.slot, what: Damage::ValueChecksum });
            }
            add(CopiedRecord { space, key, aux, part: CopiedPart::Value(item) })?;
        }
        Ok(next.map(position))
    }
}

/// A key's version, verified; `None` if its record cannot be read. A value that the medium does not give is as good as one
/// that is damaged, unless there are too many.
fn value_part<'h>(
    key: &[u8],
    item: Result<Item<'h>, KvError>,
    unreadable: &AtomicU64,
) -> Result<Option<CopiedPart<'h>>, HeapError> {
    let is_passed_over = || unreadable.fetch_add(1, Ordering::Relaxed) < UNREADABLE_MAX;
    let verified = item.and_then(|item| match verify(&item) {
        Ok(()) => Ok(CopiedPart::Value(item)),
        Err(KvError::Damaged { what: Damage::ValueChecksum }) => Ok(CopiedPart::Damaged(item)),
        // Its record says what a node that has it whole is compared with.
        Err(KvError::Heap(HeapError::Media(_))) if item.crcs().is_some() && is_passed_over() => {
            Ok(CopiedPart::Damaged(item))
        }
        Err(error) => Err(error),
    });
    if !matches!(verified, Ok(CopiedPart::Value(_)) | Err(KvError::Wait(_))) {
        tracing::error!(key = %String::from_utf8_lossy(key), "a damaged key cannot be copied");
    }
    match verified {
        Ok(part) => Ok(Some(part)),
        Err(KvError::Damaged { .. }) => Ok(None),
        Err(error) => Err(heap_error(error)),
    }
}

/// A place among logs, as the bytes of a position: life and offset of a log within which it is, then its name.
fn encode(place: &LogPlace) -> Vec<u8> {
    match place {
        LogPlace::Start => Vec::new(),
        LogPlace::Within(name, life, offset) => {
            [&[1][..], &life.to_le_bytes(), &offset.to_le_bytes(), name.as_bytes()].concat()
        }
        LogPlace::Behind(name) => [&[0][..], name.as_bytes()].concat(),
    }
}

/// The inverse of [`encode`].
fn decode(bytes: &[u8]) -> LogPlace {
    let name = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let within = |rest: &[u8]| {
        let (life, rest) = rest.split_first_chunk::<8>()?;
        let (offset, rest) = rest.split_first_chunk::<8>()?;
        Some(LogPlace::Within(name(rest), u64::from_le_bytes(*life), u64::from_le_bytes(*offset)))
    };
    match bytes {
        [1, rest @ ..] => within(rest).unwrap_or_default(),
        [_, rest @ ..] => LogPlace::Behind(name(rest)),
        [] => LogPlace::Start,
    }
}

fn position(place: CopyPlace) -> Position {
    Position { space: place.space, after: place.after }
}

fn fs_error(error: FsError) -> HeapError {
    match error {
        FsError::Heap(error) => error,
        FsError::Wait(Until::Load(load)) => HeapError::Loading(load),
        FsError::Wait(_) | FsError::Backlog => HeapError::Busy,
        FsError::Tree(_) | FsError::Header(_) | FsError::FloorLost => {
            HeapError::Damaged { slot: SlotId::NONE, what: Damage::Unreadable }
        }
    }
}

/// Waits until a page is durable: only complete records are copied.
fn durable<T>(shared: &Shared, mut page: Gated<T>) -> Result<T, HeapError> {
    loop {
        page = match page.if_durable(shared.engine.heap()) {
            Ok(page) => return Ok(page),
            Err(_) if is_given_up(shared) => return Err(HeapError::Busy),
            Err(page) => page,
        };
        std::thread::sleep(WAIT);
    }
}

/// True if what is not durable may stay so: the region is closed, or the node ends or is not in the chain any more.
fn is_given_up(shared: &Shared) -> bool {
    let is_out = shared.chain.as_ref().is_some_and(|node| node.is_stopping() || node.role() == Role::Removed);
    is_out || shared.is_stopping() || shared.engine.heap().media().closed().is_some()
}

fn log_error(error: WalError) -> HeapError {
    match error {
        WalError::Heap(error) => error,
        WalError::Wait(Until::Load(load)) => HeapError::Loading(load),
        WalError::Wait(_) => HeapError::Busy,
        _ => HeapError::Damaged { slot: SlotId::NONE, what: Damage::Unreadable },
    }
}

fn heap_error(error: KvError) -> HeapError {
    match error {
        KvError::Heap(error) => error,
        KvError::Wait(Until::Load(load)) => HeapError::Loading(load),
        KvError::Wait(_) => HeapError::Busy,
        _ => HeapError::Damaged { slot: SlotId::NONE, what: Damage::Unreadable },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use landfall_heap::{NewRegion, Source, Writer, create};
    use landfall_kv::{Recovery, SetRequest};
    use landfall_media::RUN_SIZE;
    use landfall_media::sim::{SimMedia, SimOptions};

    #[test]
    fn a_value_that_cannot_be_read_keeps_no_other_one_from_being_copied_unless_the_medium_fails() {
        let media = SimMedia::new(48 * RUN_SIZE, SimOptions::default());
        create(&*media, &NewRegion { salt: [1; 16], hash_seed: 2, created_ms: 3 }).unwrap();
        let (engine, _) = Recovery::run(Arc::clone(&media) as _, 4).unwrap();
        // Each writer puts values into runs of its own.
        let set = |writer: u8, key: &[u8]| {
            let mut writer = Writer::new(Arc::clone(engine.heap()), writer);
            let value = Source::Bytes(&[7; 4000]);
            let request = SetRequest { space: 0, key, key_at: None, value, expiry_ms: 0, arrival_ns: 9 };
            let slot = engine.set(&mut writer, &request).unwrap().ungated().slot;
            writer.commit_now().unwrap();
            (writer, slot)
        };
        let ((_first, lost), (_second, _)) = (set(0, b"a"), set(1, b"b"));
        let view = engine.heap().record(lost).unwrap();
        for extent in engine.heap().all_extents(lost, &view).unwrap() {
            media.fail_reads(extent);
        }
        let parts = |unreadable: u64| {
            let (limit, unreadable) =
                (PageLimit { keys: 10, bytes: PAGE_BYTES, verify: false }, AtomicU64::new(unreadable));
            let page = engine.page(&RangeQuery::all(0), limit, 1).unwrap().ungated();
            let part = |(key, item): (Vec<u8>, _)| value_part(&key, item, &unreadable);
            page.items.into_iter().map(part).collect::<Vec<_>>()
        };
        let both = parts(0);
        assert!(
            matches!(both[..], [Ok(Some(CopiedPart::Damaged(_))), Ok(Some(CopiedPart::Value(_)))]),
            "{both:?}"
        );
        let both = parts(UNREADABLE_MAX);
        assert!(matches!(both[..], [Err(HeapError::Media(_)), Ok(Some(CopiedPart::Value(_)))]), "{both:?}");
    }
}
