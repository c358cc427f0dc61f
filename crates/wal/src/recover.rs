//! Recovery: rebuild the logs from the records of the heap.
//!
//! [`LogRecovery`] is a [`Tenant`] of a [`Region`]. Once the region is open, [`LogRecovery::open`] returns the logs.
//! [`LogRecovery::run`] opens a region that holds nothing but logs.

mod found;
mod settle;

pub use found::Recovered;

use crate::bounds::Bounds;
use crate::error::WalError;
use crate::format::{Head, parse_entry_key, parse_position_key};
use crate::log::{CutHeld, Log, SlotIdOrNone, State};
use crate::logs::{HeadChange, Logs};
use crate::lost::with_commit;
use crate::moves::agrees;
use crate::slots::Slots;
use found::{BoundFound, BoundsFound, EntryFound};
use landfall_heap::{
    Damage, DamagedSlot, Found, Heap, HeapError, Judge, Keeper, Kind, RecordView, Region, SlotId, Tenant,
    Writer, spaces,
};
use landfall_media::Media;
use parking_lot::Mutex;
use settle::{LogFound, Settled};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Number of lists in which recovery gathers entries, so that threads share no lock. The entries of one slab all go to
/// one list.
const STRIPES: usize = 32;
/// Current records that one step of [`LogRecovery::current_some`] names.
const VISITED_AT_ONCE: usize = 4096;
/// Number of the writer that replaces lost heads. It is not the number of a worker: these count from 0.
const RECOVERY_ID: u8 = 252;

/// Recovery of the logs of one region.
#[derive(Debug)]
pub struct LogRecovery {
    bounds: Mutex<BoundsFound>,
    stripes: [Mutex<Vec<EntryFound>>; STRIPES],
    damaged: Mutex<Vec<DamagedSlot>>,
    settled: Mutex<Settled>,
    next_visited: AtomicUsize,
}

impl Default for LogRecovery {
    fn default() -> Self {
        Self {
            bounds: Mutex::default(),
            stripes: std::array::from_fn(|_| Mutex::default()),
            damaged: Mutex::default(),
            settled: Mutex::default(),
            next_visited: AtomicUsize::new(0),
        }
    }
}

impl Judge for LogRecovery {
    fn is_superseded(&self, _: &Heap, found: &Found) -> bool {
        let bounds = self.bounds.lock();
        match found.kind {
            Kind::Put => bounds.firsts.get(&found.aux).is_some_and(|first| *first > found.expiry_ms),
            _ => bounds.newest.get(&found.hash).is_some_and(|known| known.version.0 > found.seq),
        }
    }

    fn lacks_bound(&self, found: &Found) -> bool {
        found.kind == Kind::Put && !self.bounds.lock().firsts.contains_key(&found.aux)
    }
}

impl Tenant for LogRecovery {
    fn owns(&self, space: u8) -> bool {
        spaces::LOGS.contains(&space)
    }

    fn restart(&self) {
        *self.bounds.lock() = BoundsFound::default();
        self.stripes.iter().for_each(|stripe| stripe.lock().clear());
        self.damaged.lock().clear();
    }

    fn take(&self, heap: &Heap, found: &Found, view: &RecordView<'_>) -> Result<(), HeapError> {
        let Ok(key) = heap.key(view) else { return Ok(()) };
        if matches!(found.kind, Kind::Put | Kind::Tombstone) {
            if agrees(&key, found.aux, found.expiry_ms) {
                let entry = EntryFound {
                    number: found.aux,
                    len: view.value_len() as u32,
                    offset: found.expiry_ms,
                    seq: found.seq,
                    rev: found.rev,
                    slot: found.slot,
                    lost: found.kind == Kind::Tombstone,
                };
                self.stripes[found.slot.run().0 as usize % STRIPES].lock().push(entry);
            }
            return Ok(());
        }
        let bound = BoundFound {
            slot: found.slot,
            version: (found.seq, found.rev),
            space: found.space,
            number: found.aux,
            mark: found.expiry_ms,
            key: key.to_vec(),
            value: heap.value_bytes(found.slot, view).ok().map(std::borrow::Cow::into_owned),
        };
        let mut bounds = self.bounds.lock();
        bounds.number_max = bounds.number_max.max(found.aux);
        bounds.add(found.hash, bound);
        Ok(())
    }

    fn take_damaged(&self, damaged: &DamagedSlot) {
        self.damaged.lock().push(damaged.clone());
    }

    fn settle(&self, _: &Heap) -> Result<Vec<DamagedSlot>, HeapError> {
        let bounds = std::mem::take(&mut *self.bounds.lock());
        if bounds.newest.values().any(is_newer) {
            return Err(HeapError::NewerRecord { what: "the head of a log" });
        }
        let damaged = std::mem::take(&mut *self.damaged.lock());
        let mut entries: Vec<EntryFound> = Vec::new();
        self.stripes.iter().for_each(|stripe| entries.append(&mut stripe.lock()));
        *self.settled.lock() = settle::settle(bounds, entries, &damaged);
        Ok(Vec::new())
    }

    fn current_some(&self, keeper: &dyn Keeper) -> Result<bool, HeapError> {
        let from = self.next_visited.fetch_add(VISITED_AT_ONCE, Ordering::Relaxed);
        let some: Vec<SlotId> = {
            let settled = self.settled.lock();
            settled.current.iter().skip(from).take(VISITED_AT_ONCE).copied().collect()
        };
        for slot in &some {
            // A record whose value is damaged is kept: a read of it returns an error.
            keeper.keep(*slot, &mut |_| Ok(true))?;
        }
        Ok(!some.is_empty())
    }

    fn describe(&self, space: u8, key: &[u8]) -> Option<String> {
        let settled = self.settled.lock();
        let name = |number: u32| match settled.logs.iter().find(|log| log.number == number) {
            Some(log) => format!("log {}", log.name),
            None => format!("log number {number}"),
        };
        Some(match (parse_entry_key(key), parse_position_key(key)) {
            (Some((number, offset)), _) if space == spaces::LOG => {
                format!("{}, offset {offset}", name(number))
            }
            (_, Some((number, consumer))) if space == spaces::LOG_POSITION => {
                format!("{}, consumer {consumer}", name(number))
            }
            _ => format!("log {}", key.escape_ascii()),
        })
    }
}

/// True for a head of a newer release. Nobody here knows what it says of its log, deleted or not.
fn is_newer(bound: &BoundFound) -> bool {
    let head = bound.value.as_deref().filter(|_| bound.space == spaces::LOG).map(Head::decode);
    head == Some(Err(Damage::Newer))
}

impl LogRecovery {
    /// Ends recovery and returns the logs. To be called once the heap is open.
    ///
    /// # Errors
    /// The errors of the medium.
    pub fn open(&self, heap: &Arc<Heap>) -> Result<(Logs, Recovered), WalError> {
        let settled = std::mem::take(&mut *self.settled.lock());
        let logs = Logs::new(Arc::clone(heap), settled.number_max.saturating_add(1));
        let lives = settled.tombstones.values().map(|tombstone| tombstone.life);
        logs.life_max.store(lives.max().unwrap_or(0), Ordering::Relaxed);
        *logs.bounds.lock() = Bounds { stale: settled.stale, tombstones: settled.tombstones };
        let mut lost = Vec::new();
        for found in settled.logs {
            let of_positions = found.positions.values().flat_map(|position| &position.unreadable);
            let unreadable = found.unreadable.values().chain(&found.unreadable_heads);
            unreadable.chain(of_positions.map(|(slot, _)| slot)).for_each(|slot| heap.adopt_damaged(*slot));
            let needs_head = found.head == SlotId::NONE && found.damaged.is_none();
            let log = Arc::new(restore_log(heap, found));
            logs.add(&log);
            if needs_head {
                lost.push(log);
            }
        }
        write_heads(&logs, &lost)?;
        Ok((logs, settled.report))
    }

    /// Opens a region that holds logs and nothing else.
    ///
    /// # Errors
    /// The errors of [`Region::run`]; [`HeapError::Foreign`] if the region holds records of another owner.
    pub fn run(media: Arc<dyn Media>) -> Result<(Logs, Recovered), WalError> {
        let recovery = Arc::new(Self::default());
        let (heap, _) = Region::run(media, vec![Arc::clone(&recovery) as Arc<dyn Tenant>])?;
        recovery.open(&heap)
    }
}

/// Builds the log that takes appends and reads from what recovery found of it.
fn restore_log(heap: &Heap, found: LogFound) -> Log {
    let mut slots = Slots::default();
    found.slots.iter().for_each(|(slot, len)| slots.push(*slot, u64::from(*len)));
    let mut cut = found.cut;
    if let Some(offset) = found.cut_at {
        (cut.offset, cut.seq) = (offset, heap.draw_seq());
    }
    let is_held = found.cut_at.is_none() && found.head != SlotId::NONE;
    let state = State {
        first: found.first,
        slots,
        unreadable: found.unreadable,
        head: SlotIdOrNone(found.head),
        settings: found.settings,
        cut,
        cut_held: if is_held { CutHeld::Durably } else { CutHeld::Not },
        positions: found.positions,
        damaged: found.damaged,
        unreadable_heads: found.unreadable_heads,
        ..State::default()
    };
    let hash = heap.hash(spaces::LOG, found.name.as_bytes());
    Log::new(found.number, &found.name, hash, found.life, state)
}

/// Writes heads for logs whose head is lost. If the region is full, the next append to the log writes its head.
fn write_heads(logs: &Logs, lost: &[Arc<Log>]) -> Result<(), WalError> {
    if lost.is_empty() {
        return Ok(());
    }
    let mut writer = Writer::new(Arc::clone(&logs.heap), RECOVERY_ID);
    for log in lost {
        let mut state = log.state.lock();
        let written = with_commit(&mut writer, |writer| {
            let change = HeadChange::of(&state);
            logs.write_head(writer, log, &mut state, change, 0)
        });
        match written {
            Ok(_) => {}
            Err(WalError::Heap(HeapError::Full)) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(writer.commit_now()?)
}
