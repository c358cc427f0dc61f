//! All logs of a region: find, create, configure, delete and watch them. [`Logs`] is the crate's main type; appending,
//! reading, trimming and positions are in files of their own.

use crate::bounds::{Bound, Bounds};
use crate::error::WalError;
use crate::format::{Cut, ENDED, Head, Settings, check_log_name};
use crate::log::{CutHeld, Log, SlotIdOrNone, State};
use crate::mode::{Kept, Mode};
use crate::retention::Retention;
use crate::tombstones::Tombstone;
use landfall_heap::{FEATURE_LOGS, Gated, Heap, SlotId, Ticket, Until, Writer, spaces};
use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// Most writers that a region has.
const WRITERS: usize = 256;
/// Highest number of a log.
const NUMBER_MAX: u32 = u32::MAX - 1;

/// Counts for `INFO` and `/metrics`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WalStats {
    /// Number of logs.
    pub logs: u64,
    /// Number of entries, including those that are not durable yet.
    pub entries: u64,
    /// Bytes of all entries.
    pub bytes: u64,
    /// Entries appended since the region was opened.
    pub appended: u64,
    /// Entries read since the region was opened.
    pub read: u64,
    /// Entries trimmed since the region was opened, including those that retention trimmed.
    pub trimmed: u64,
    /// DRAM of the index from offsets to slots, bytes.
    pub index_bytes: u64,
}

/// Description of one log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogStats {
    /// Name of the log.
    pub name: String,
    /// Offset of the first entry.
    pub first: u64,
    /// Offset behind the last durable entry.
    pub next: u64,
    /// Bytes of its entries, including those that are not durable yet.
    pub bytes: u64,
    /// Number of consumers that have a position.
    pub consumers: u64,
}

/// Entries that were trimmed or deleted. Their records may be dropped once `cause` is durable.
#[derive(Debug)]
pub(crate) struct Retired {
    pub(crate) slots: Vec<SlotId>,
    /// Ticket of the trim or of the delete.
    pub(crate) cause: Ticket,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) appended: AtomicU64,
    pub(crate) read: AtomicU64,
    pub(crate) trimmed: AtomicU64,
}

/// Logs by name over one heap. All workers share it; each writes through its own [`Writer`].
///
/// Offsets of a log count from 0. No offset is given twice, also after trims and crashes. The first append to a name
/// creates its log.
#[derive(Debug)]
pub struct Logs {
    pub(crate) heap: Arc<Heap>,
    pub(crate) names: RwLock<Names>,
    pub(crate) numbers: RwLock<BTreeMap<u32, Arc<Log>>>,
    pub(crate) next_number: AtomicU32,
    /// The highest life of a log that this process knows of. It is not forgotten with the log's tombstone: another machine of
    /// the chain may still have that, and takes what is not above it for something of the deleted log.
    pub(crate) life_max: AtomicU64,
    pub(crate) bounds: Mutex<Bounds>,
    /// Logs that do not keep everything. Its lock is the last one that is taken.
    pub(crate) retention: Mutex<Retention>,
    /// Entries that [`Self::sweep`] has to free, oldest first.
    pub(crate) retired: Mutex<VecDeque<Retired>>,
    /// Deleted logs whose records may still be sent.
    pub(crate) ended: Mutex<Vec<(Ticket, Arc<Log>)>>,
    /// How this machine takes what another one sends.
    pub(crate) mode: Mutex<Mode>,
    /// Logs as they were before a copy that is under way.
    pub(crate) kept: Mutex<Kept>,
    /// For each writer, the logs that its next commits make grow. Any thread may add to a list.
    pub(crate) growing: Box<[Growing]>,
    pub(crate) counters: Counters,
}

#[derive(Debug, Default)]
pub(crate) struct Growing {
    /// The list is not empty. Changes under the lock of `logs`.
    pub(crate) any: AtomicBool,
    pub(crate) logs: Mutex<Vec<Arc<Log>>>,
}

impl Logs {
    pub(crate) fn new(heap: Arc<Heap>, next_number: u32) -> Self {
        Self {
            heap,
            names: RwLock::default(),
            numbers: RwLock::default(),
            next_number: AtomicU32::new(next_number),
            life_max: AtomicU64::new(0),
            bounds: Mutex::default(),
            retention: Mutex::default(),
            retired: Mutex::default(),
            ended: Mutex::default(),
            mode: Mutex::default(),
            kept: Mutex::default(),
            growing: (0..WRITERS).map(|_| Growing::default()).collect(),
            counters: Counters::default(),
        }
    }

    /// The heap that holds the logs.
    pub fn heap(&self) -> &Arc<Heap> {
        &self.heap
    }

    pub(crate) fn find(&self, name: &[u8]) -> Result<Arc<Log>, WalError> {
        let name = check_log_name(name)?;
        self.names.read().get(name).cloned().ok_or(WalError::NoLog)
    }

    pub(crate) fn by_number(&self, number: u32) -> Option<Arc<Log>> {
        self.numbers.read().get(&number).cloned()
    }

    pub(crate) fn add(&self, log: &Arc<Log>) {
        self.names.write().insert(log.name.clone(), Arc::clone(log));
        self.numbers.write().insert(log.number, Arc::clone(log));
        let settings = log.state.lock().settings;
        self.retention.lock().note(log.number, settings);
        self.life_max.fetch_max(log.life, Ordering::Relaxed);
    }

    /// The log of a name that has been checked. The log is created if there is none.
    pub(crate) fn find_or_create(
        &self,
        writer: &mut Writer,
        name: &str,
        arrival_ns: u64,
    ) -> Result<Arc<Log>, WalError> {
        if let Some(log) = self.names.read().get(name) {
            return Ok(Arc::clone(log));
        }
        self.create(writer, name, arrival_ns)
    }

    fn create(&self, writer: &mut Writer, name: &str, arrival_ns: u64) -> Result<Arc<Log>, WalError> {
        self.heap.check_room()?;
        // This writes the superblock, once in a region's life. No lock that readers need may be held meanwhile.
        self.heap.require_features(FEATURE_LOGS)?;
        let mut names = self.names.write();
        if let Some(log) = names.get(name) {
            return Ok(Arc::clone(log));
        }
        let mut new = NewLog { name, life: 0, first: 0, settings: Settings::default(), is_guessed: false };
        if writer.has_successor() {
            new.life = self.next_life(writer, name, arrival_ns)?;
        }
        self.make(writer, &mut names, &new, arrival_ns)
    }

    /// The life of the next log of this name, on a chain.
    ///
    /// # Errors
    /// [`WalError::Wait`] while the delete of the one before is on its way by another writer.
    fn next_life(&self, writer: &Writer, name: &str, arrival_ns: u64) -> Result<u64, WalError> {
        let hash = self.heap.hash(spaces::LOG, name.as_bytes());
        let ended = self.bounds.lock().tombstones.get(hash).copied();
        let pending = ended.and_then(|ended| self.heap.pending(ended.slot));
        match pending.filter(|ticket| ticket.writer() != writer.id()) {
            Some(ticket) => Err(WalError::Wait(Until::Ticket(ticket))),
            None => Ok(arrival_ns.max(self.life_max.load(Ordering::Relaxed) + 1)),
        }
    }

    /// Makes a log, which is not among `names`.
    pub(crate) fn make(
        &self,
        writer: &mut Writer,
        names: &mut Names,
        new: &NewLog<'_>,
        arrival_ns: u64,
    ) -> Result<Arc<Log>, WalError> {
        let NewLog { name, life, first, settings, is_guessed } = *new;
        let number = self.next_number.load(Ordering::Relaxed);
        if number > NUMBER_MAX {
            return Err(WalError::Exhausted { what: "log number" });
        }
        let hash = self.heap.hash(spaces::LOG, name.as_bytes());
        let (space, key, mark) = (spaces::LOG, name.as_bytes(), first);
        let value = Head { settings, life, ..Head::default() }.encode();
        let head = Bound { space, hash, key, number, mark, value: &value }.append(writer, arrival_ns)?;
        self.next_number.store(number + 1, Ordering::Relaxed);
        self.bounds.lock().supersede(writer, hash, None);
        self.retention.lock().note(number, settings);
        self.life_max.fetch_max(life, Ordering::Relaxed);
        let head = SlotIdOrNone(head);
        let mut state = State { head, first, settings, is_guessed, ..State::default() };
        state.turns.note(writer);
        let log = Arc::new(Log::new(number, name, hash, life, state));
        names.insert(log.name.clone(), Arc::clone(&log));
        self.numbers.write().insert(number, Arc::clone(&log));
        Ok(log)
    }

    /// Writes a new head of a log with the fields of `next`, and takes its settings and its cut over into `state`.
    pub(crate) fn write_head(
        &self,
        writer: &mut Writer,
        log: &Log,
        state: &mut State,
        next: HeadChange,
        arrival_ns: u64,
    ) -> Result<SlotId, WalError> {
        let value = Head { settings: next.settings, cut: next.cut, life: log.life }.encode();
        let bound = Bound {
            space: spaces::LOG,
            hash: log.hash,
            key: log.name.as_bytes(),
            number: log.number,
            mark: next.first,
            value: &value,
        };
        let head = bound.append(writer, arrival_ns)?;
        let old = Some(state.head.0).filter(|old| *old != SlotId::NONE);
        self.bounds.lock().supersede(writer, log.hash, old);
        state.head = SlotIdOrNone(head);
        (state.settings, state.cut) = (next.settings, next.cut);
        self.retention.lock().note(log.number, next.settings);
        if state.cut_held == CutHeld::Not {
            state.cut_held = CutHeld::ByHead;
        }
        state.turns.note(writer);
        Ok(head)
    }

    /// Puts a log on the list of logs that this writer's commits make grow.
    pub(crate) fn list(&self, writer: u8, log: &Arc<Log>) {
        let growing = &self.growing[usize::from(writer)];
        let mut list = growing.logs.lock();
        list.push(Arc::clone(log));
        growing.any.store(true, Ordering::Release);
    }

    /// To be called after each commit of a writer. Returns the watchers of the logs that the commit may have made grow,
    /// one bit each, and removes them: who wants to wait on calls [`Self::watch`] again.
    pub fn after_commit(&self, writer: u8) -> u64 {
        let growing = &self.growing[usize::from(writer)];
        if !growing.any.load(Ordering::Acquire) {
            return 0;
        }
        let mut wake = 0;
        let mut logs = std::mem::take(&mut *growing.logs.lock());
        logs.retain(|log| {
            wake |= log.watchers.swap(0, Ordering::AcqRel);
            self.still_grows(writer, log)
        });
        // An append of another thread may have put a log on the list in the meantime.
        let mut list = growing.logs.lock();
        list.append(&mut logs);
        growing.any.store(!list.is_empty(), Ordering::Release);
        wake
    }

    /// True while the writer's newest entry waits for a later commit.
    fn still_grows(&self, writer: u8, log: &Log) -> bool {
        let mut state = log.state.lock();
        let Some(by) = state.by_writer.iter_mut().find(|by| by.last.writer() == writer) else { return false };
        by.is_listed = !self.heap.is_durable(by.last);
        by.is_listed
    }

    /// Registers a watcher that [`Self::after_commit`] returns when the log grows. `watcher` is a number below 64. True
    /// if an entry at `from` can be read already.
    ///
    /// # Errors
    /// [`WalError::NoLog`], [`WalError::BadName`], [`WalError::Damaged`].
    pub fn watch(&self, name: &[u8], from: u64, watcher: u8) -> Result<bool, WalError> {
        let log = self.find(name)?;
        log.watchers.fetch_or(1 << watcher, Ordering::AcqRel);
        let mut state = log.state.lock();
        state.check()?;
        Ok(state.durable(&self.heap) > from)
    }

    /// Returns how long a log keeps its entries.
    ///
    /// # Errors
    /// The errors of [`Self::watch`].
    pub fn settings(&self, name: &[u8]) -> Result<Gated<Settings>, WalError> {
        let log = self.find(name)?;
        let state = log.state.lock();
        state.check()?;
        Ok(Gated::new(state.settings, self.heap.pending(state.head.0)))
    }

    /// Changes how long a log keeps its entries.
    ///
    /// # Errors
    /// The errors of [`Self::watch`]; [`WalError::Wait`], and the heap's errors for a full and for a closed region.
    pub fn set_settings(
        &self,
        writer: &mut Writer,
        name: &[u8],
        settings: Settings,
        arrival_ns: u64,
    ) -> Result<Gated<()>, WalError> {
        let log = self.find(name)?;
        let mut state = log.state.lock();
        state.check()?;
        state.turns.take(&self.heap, writer)?;
        let change = HeadChange { settings, ..HeadChange::of(&state) };
        self.write_head(writer, &log, &mut state, change, arrival_ns)?;
        Ok(writer.gate(()))
    }

    /// Deletes a log. Its name may be used for a new log, whose offsets count from 0. `None` if there is no such log.
    ///
    /// # Errors
    /// [`WalError::BadName`], [`WalError::Wait`], and the heap's errors for a full and for a closed region.
    pub fn delete(
        &self,
        writer: &mut Writer,
        name: &[u8],
        arrival_ns: u64,
    ) -> Result<Option<Gated<()>>, WalError> {
        let name = check_log_name(name)?;
        let mut names = self.names.write();
        let Some(log) = names.get(name).cloned() else { return Ok(None) };
        log.state.lock().turns.take(&self.heap, writer)?;
        self.end(writer, &mut names, &log, Entries::Go, arrival_ns)?;
        Ok(Some(writer.gate(())))
    }

    /// Deletes a log, which is among `names`.
    pub(crate) fn end(
        &self,
        writer: &mut Writer,
        names: &mut Names,
        log: &Arc<Log>,
        entries: Entries,
        arrival_ns: u64,
    ) -> Result<(), WalError> {
        let mut state = log.state.lock();
        let end = HeadChange { first: ENDED, settings: Settings::default(), cut: Cut::default() };
        let head = self.write_head(writer, log, &mut state, end, arrival_ns)?;
        state.ended = true;
        std::mem::take(&mut state.unreadable_heads).into_iter().for_each(|slot| writer.supersede(slot));
        let gone = if entries == Entries::Go { state.slots.len() } else { 0 };
        self.retire_entries(writer, &mut state, gone);
        for ahead in std::mem::take(&mut state.ahead).into_values() {
            writer.supersede(ahead.slot);
        }
        let mut bounds = self.bounds.lock();
        let Log { number, life, .. } = **log;
        bounds.add_tombstone(log.hash, Tombstone { slot: head, number, space: spaces::LOG, life });
        for position in std::mem::take(&mut state.positions).into_values() {
            position.slots().for_each(|slot| writer.supersede(slot));
        }
        bounds.retire_positions(writer, log.number);
        drop(bounds);
        if state.note_writer(writer.ticket()) {
            self.list(writer.id(), log);
        }
        names.remove(&log.name);
        if entries == Entries::Go {
            self.numbers.write().remove(&log.number);
        }
        if writer.has_successor() {
            self.ended.lock().push((writer.ticket(), Arc::clone(log)));
        }
        Ok(())
    }

    /// Describes one log.
    ///
    /// # Errors
    /// The errors of [`Self::watch`].
    pub fn stats_of(&self, name: &[u8]) -> Result<Gated<LogStats>, WalError> {
        let log = self.find(name)?;
        let mut state = log.state.lock();
        state.check()?;
        Ok(self.describe(&log, &mut state))
    }

    fn describe(&self, log: &Log, state: &mut State) -> Gated<LogStats> {
        let stats = LogStats {
            name: log.name.to_string(),
            first: state.first,
            next: state.durable(&self.heap),
            bytes: state.slots.bytes(),
            consumers: state.positions.len() as u64,
        };
        Gated::new(stats, self.heap.pending(state.head.0))
    }

    /// Describes up to `count` logs in order of their names, from the first name behind `after` on.
    pub fn logs(&self, after: Option<&str>, count: usize) -> Vec<Gated<LogStats>> {
        let names = self.names.read();
        let from = after.map_or(std::ops::Bound::Unbounded, std::ops::Bound::Excluded);
        let some = names.range::<str, _>((from, std::ops::Bound::Unbounded)).take(count);
        some.map(|(_, log)| self.describe(log, &mut log.state.lock())).collect()
    }

    /// Counts over all logs.
    pub fn stats(&self) -> WalStats {
        let mut stats = WalStats {
            appended: self.counters.appended.load(Ordering::Relaxed),
            read: self.counters.read.load(Ordering::Relaxed),
            trimmed: self.counters.trimmed.load(Ordering::Relaxed),
            ..WalStats::default()
        };
        for log in self.names.read().values() {
            let state = log.state.lock();
            stats.logs += 1;
            stats.entries += state.slots.len() as u64;
            stats.bytes += state.slots.bytes();
            stats.index_bytes += state.slots.memory_bytes();
        }
        stats
    }
}

/// Logs by name.
pub(crate) type Names = BTreeMap<Box<str>, Arc<Log>>;

/// What becomes of the entries of a log that ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entries {
    Go,
    /// They stay as they are, as long as this process wants them. After a crash they mean nothing.
    Stay,
}

/// A log that is to be made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewLog<'a> {
    pub(crate) name: &'a str,
    pub(crate) life: u64,
    pub(crate) first: u64,
    pub(crate) settings: Settings,
    pub(crate) is_guessed: bool,
}

/// The fields of a new head.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeadChange {
    pub(crate) first: u64,
    pub(crate) settings: Settings,
    pub(crate) cut: Cut,
}

impl HeadChange {
    /// The fields of the current head.
    pub(crate) fn of(state: &State) -> Self {
        Self { first: state.first, settings: state.settings, cut: state.cut }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LogRecovery;
    use landfall_heap::{NewRegion, Source};
    use landfall_media::RUN_SIZE;
    use landfall_media::sim::{SimMedia, SimOptions};

    fn append(logs: &Logs, writer: &mut Writer, name: &[u8]) {
        logs.append(writer, name, &[Source::Bytes(b"x")], 1).unwrap().ungated();
    }

    /// The next server may still have the tombstone, and takes what is not above it for a record of the deleted log.
    #[test]
    fn a_life_is_above_those_of_deleted_logs_whose_tombstones_are_gone_also_if_a_clock_steps_back() {
        let media = SimMedia::new(32 * RUN_SIZE, SimOptions::default());
        landfall_heap::create(&*media, &NewRegion { salt: [1; 16], hash_seed: 2, created_ms: 3 }).unwrap();
        let (logs, _) = LogRecovery::run(media).unwrap();
        let mut writer = Writer::new(Arc::clone(logs.heap()), 0);
        let new =
            NewLog { name: "a", life: 1000, first: 0, settings: Settings::default(), is_guessed: false };
        logs.make(&mut writer, &mut logs.names.write(), &new, 1000).unwrap();
        logs.delete(&mut writer, b"a", 1001).unwrap().unwrap().ungated();
        writer.commit_now().unwrap();
        let hash = logs.heap.hash(spaces::LOG, b"a");
        assert_eq!(logs.bounds.lock().tombstones.remove(hash).map(|gone| gone.life), Some(1000));
        assert_eq!(logs.next_life(&writer, "a", 900).unwrap(), 1001);
        assert_eq!(logs.next_life(&writer, "a", 2000).unwrap(), 2000);
    }

    #[test]
    fn a_log_that_begins_to_grow_while_another_thread_looks_after_a_commit_stays_listed() {
        const WATCHER: u8 = 5;
        let media = SimMedia::new(32 * RUN_SIZE, SimOptions::default());
        landfall_heap::create(&*media, &NewRegion { salt: [1; 16], hash_seed: 2, created_ms: 3 }).unwrap();
        let (logs, _) = LogRecovery::run(media).unwrap();
        let mut writer = Writer::new(Arc::clone(logs.heap()), 0);
        append(&logs, &mut writer, b"a");
        let a = logs.find(b"a").unwrap();
        // The other thread takes the list, and then waits for the lock of log `a`.
        let lock = a.state.lock();
        std::thread::scope(|scope| {
            scope.spawn(|| logs.after_commit(0));
            while !logs.growing[0].logs.lock().is_empty() {
                std::thread::yield_now();
            }
            append(&logs, &mut writer, b"b");
            drop(lock);
        });
        assert!(!logs.watch(b"b", 0, WATCHER).unwrap(), "not durable yet");
        writer.commit_now().unwrap();
        assert_eq!(logs.after_commit(0), 1 << WATCHER);
        assert_eq!(logs.growing[0].logs.lock().len(), 0, "both logs are durable");
    }
}
