//! All keys, for a copy to the node behind.

use crate::shared::{Shared, now_ns};
use landfall_chain_io::{AddValue, Pages, Position};
use landfall_heap::{Damage, Gated, HeapError, SlotId, Until};
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
    fn page<'h>(&'h self, from: &Position, add: AddValue<'_, 'h>) -> Result<Option<Position>, HeapError> {
        let mut query = RangeQuery::all(from.space);
        if let Some(after) = &from.after {
            query.resume_after(after.clone());
        }
        let limit = PageLimit { keys: PAGE_KEYS, bytes: PAGE_BYTES, verify: true };
        let page = self.0.engine.page(&query, limit, now_ns() / 1_000_000).map_err(heap_error)?;
        let page = durable(&self.0, page)?;
        for (key, item) in page.items {
            match item {
                Ok(item) => add(from.space, &key, item)?,
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
                (usize::from(space) < DATABASES).then_some(Position { space, after: None })
            }
        })
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
