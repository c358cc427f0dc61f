//! All keys and files, for a copy to the node behind.

use crate::shared::{Shared, now_ns};
use landfall_chain_io::{AddValue, Pages, Position};
use landfall_fs::{CopiedRecord, CopyPlace, FsError};
use landfall_heap::{Damage, Gated, HeapError, SlotId, Until, spaces};
use landfall_kv::{DATABASES, KvError, Page, PageLimit, RangeQuery};
use std::sync::Arc;
use std::time::Duration;

/// Keys of a page.
const PAGE_KEYS: usize = 256;
/// Pause between looks whether a page is durable.
const WAIT: Duration = Duration::from_micros(200);
/// Bytes of a page.
const PAGE_BYTES: usize = 1 << 20;

/// Walks over all databases in the order of their keys.
pub(super) struct EnginePages(Arc<Shared>);

impl std::fmt::Debug for EnginePages {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("EnginePages")
    }
}

impl EnginePages {
    pub(super) fn new(shared: &Arc<Shared>) -> Self {
        Self(Arc::clone(shared))
    }
}

impl Pages for EnginePages {
    fn begin(&self) {
        let Some(files) = self.0.files.files() else { return };
        while !files.hold_publishing() && !self.0.is_stopping() {
            std::thread::sleep(WAIT);
        }
    }

    fn end(&self) {
        self.0.files.files().into_iter().for_each(|files| files.publish_again());
    }

    fn page<'h>(&'h self, from: &Position, add: AddValue<'_, 'h>) -> Result<Option<Position>, HeapError> {
        if spaces::FILES.contains(&from.space) {
            return self.page_of_files(from, add);
        }
        let mut query = RangeQuery::all(from.space);
        if let Some(after) = &from.after {
            query.resume_after(after.clone());
        }
        let limit = PageLimit { keys: PAGE_KEYS, bytes: PAGE_BYTES, verify: true };
        let page = self.0.engine.page(&query, limit, now_ns() / 1_000_000).map_err(heap_error)?;
        let page = durable(&self.0, page)?;
        for (key, item) in page.items {
            match item {
                Ok(item) => add(from.space, &key, 0, item)?,
                Err(error) => {
                    let name = String::from_utf8_lossy(&key).into_owned();
                    tracing::error!(%error, key = name, "a damaged key cannot be copied");
                }
            }
        }
        Ok(match page.last {
            Some(last) => Some(Position { space: from.space, after: Some(last) }),
            None => {
                let space = from.space + 1;
                let is_database = usize::from(space) < DATABASES;
                let files = self.0.files.files().map(|_| position(CopyPlace::START));
                if is_database { Some(Position { space, after: None }) } else { files }
            }
        })
    }
}

impl EnginePages {
    fn page_of_files<'h>(
        &'h self,
        from: &Position,
        add: AddValue<'_, 'h>,
    ) -> Result<Option<Position>, HeapError> {
        let Some(files) = self.0.files.files() else { return Ok(None) };
        if from.space == spaces::FILES_LOG {
            files.sync_all().map_err(fs_error)?;
        }
        let place = CopyPlace { space: from.space, after: from.after.clone() };
        let (page, next) = files.copy_page(&place).map_err(fs_error)?;
        for CopiedRecord { space, key, aux, item } in page {
            if !item.verify()? {
                tracing::error!(
                    slot = item.slot.0,
                    "a damaged record of files cannot be copied: repair the region first"
                );
                return Err(HeapError::Damaged { slot: item.slot, what: Damage::ValueChecksum });
            }
            add(space, &key, aux, item)?;
        }
        Ok(next.map(position))
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
        FsError::Tree(_) => HeapError::Damaged { slot: SlotId::NONE, what: Damage::Unreadable },
    }
}

/// Waits until a page is durable: only complete versions are copied.
fn durable<'h>(shared: &'h Shared, mut page: Gated<Page<'h>>) -> Result<Page<'h>, HeapError> {
    loop {
        page = match page.if_durable(shared.engine.heap()) {
            Ok(page) => return Ok(page),
            Err(_) if shared.is_stopping() => return Err(HeapError::Busy),
            Err(page) => page,
        };
        std::thread::sleep(WAIT);
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
