//! A simulated system with logs and an engine in one region, their workers, and the oracle of the logs.

use super::op::LogOp;
use super::oracle::{Fact, LogEntry, LogState, LogsState, WalOracle};
use crate::joined::Leaves;
use crate::op::{Piece, value};
use crate::violation::{Violation, ensure};
use crate::world::Setup;
use landfall_heap::{
    CompactGoal, Compacted, Compactor, Gated, HeapError, NewRegion, Owner, OwnerBySpace, RunUse, Source,
    Tenant, Until, Writer, spaces,
};
use landfall_kv::{Engine, KvError, SetRequest};
use landfall_media::sim::{CrashImage, SimMedia, SimOptions};
use landfall_media::{ChunkSet, Dirty, Evict, Extent, Media, RUN_SIZE, Site};
use landfall_wal::{LogRecovery, Logs, ReadLimit, Settings, WalError};
use std::sync::Arc;

/// Most unacknowledged operations of a writer before it commits. This bounds the states that the oracle must consider.
const PENDING_MAX: usize = 10;
/// Most attempts at an operation that must wait.
const ATTEMPTS: usize = 2000;
/// Limits of one page: few entries, so that logs have several pages.
const PAGE: ReadLimit = ReadLimit { entries: 7, bytes: 100_000 };
/// Most steps until compaction must have nothing to do.
const STEPS_MAX: usize = 2000;
/// Most slabs that an empty region may keep: the slack of compaction, the last victim, and prepared slabs.
const SLACK_SLABS: u32 = 6;
const NS_PER_MS: u64 = 1_000_000;
const GOALS: [CompactGoal; 2] = [CompactGoal::DENSE_DATA, CompactGoal::DENSE_SLABS];

struct Worker {
    writer: Writer,
    in_flight: Option<(Dirty, usize)>,
}

/// Logs and an engine on a simulated medium, their workers, and the oracle.
pub struct WalWorld {
    setup: Setup,
    /// The medium.
    pub media: Arc<SimMedia>,
    /// The engine beside the logs.
    pub engine: Engine,
    /// The logs.
    pub logs: Logs,
    workers: Vec<Worker>,
    compactor: Compactor,
    /// The oracle.
    pub oracle: WalOracle,
    /// Simulated time, Unix milliseconds.
    pub now_ms: u64,
    /// What leaves memory, if the region is paged.
    pub leaves: Leaves,
    /// Counts of compaction since the region was opened.
    pub compacted: Compacted,
}

fn name(log: usize) -> String {
    format!("log-{log}")
}

fn consumer(number: usize) -> String {
    format!("consumer-{number}")
}

/// Opens a region that is not damaged.
pub(crate) fn open(media: &Arc<SimMedia>) -> Result<(Engine, Logs), Violation> {
    let recovery = Arc::new(LogRecovery::default());
    let tenants: Vec<Arc<dyn Tenant>> = vec![Arc::clone(&recovery) as Arc<dyn Tenant>];
    let media = Arc::clone(media) as Arc<dyn Media>;
    let (engine, found) = landfall_kv::Recovery::run_with(media, 4, tenants)?;
    ensure!(found.damaged.is_empty() && found.corrected.is_empty(), "recovery found damage: {found:?}");
    let (logs, found) = recovery.open(engine.heap())?;
    ensure!(found.damaged == 0 && found.notes.is_empty(), "recovery of logs found damage: {found:?}");
    Ok((engine, logs))
}

/// Reads every log from its first entry to the last that is durable.
pub(crate) fn observe(logs: &Logs) -> Result<LogsState, Violation> {
    let mut state = LogsState::new();
    for log in logs.logs(None, usize::MAX).into_iter().map(Gated::ungated) {
        state.insert(log.name.clone(), read(logs, &log.name, log.first)?);
    }
    Ok(state)
}

fn read(logs: &Logs, name: &str, first: u64) -> Result<LogState, Violation> {
    let settings = logs.settings(name.as_bytes())?.ungated();
    let mut log = LogState { first, settings, ..LogState::default() };
    let mut from = first;
    loop {
        let page = logs.read(name.as_bytes(), from, PAGE)?.ungated();
        for (offset, item) in page.entries {
            ensure!(offset == first + log.entries.len() as u64, "log {name} skips to {offset}");
            let item = item.map_err(|error| Violation::from(error).during(format!("{name} {offset}")))?;
            let arrival_ms = item.arrival_ns / NS_PER_MS;
            log.entries.push(LogEntry { bytes: item.to_vec()?.into(), arrival_ms });
        }
        from = page.next;
        if from == page.end {
            break;
        }
    }
    log.positions = logs.positions(name.as_bytes())?.ungated().into_iter().collect();
    Ok(log)
}

impl WalWorld {
    /// Creates an empty region. `prepare` gets the medium before anything is written.
    ///
    /// # Errors
    /// The region cannot be created or opened.
    pub fn create(setup: Setup, prepare: impl FnOnce(&SimMedia)) -> Result<Self, Violation> {
        let options = SimOptions { deferred: setup.deferred };
        let media = SimMedia::new(u64::from(setup.runs) * RUN_SIZE, options);
        prepare(&media);
        landfall_heap::create(&*media, &NewRegion { salt: [42; 16], hash_seed: 7, created_ms: 1 })?;
        Self::open(setup, media, WalOracle::new(setup.writers), 1_000)
    }

    /// Opens the region on `media` without judging it.
    ///
    /// # Errors
    /// The region cannot be opened, or recovery reports damage.
    pub fn open(
        setup: Setup,
        media: Arc<SimMedia>,
        oracle: WalOracle,
        now_ms: u64,
    ) -> Result<Self, Violation> {
        let (engine, logs) = open(&media)?;
        let heap = Arc::clone(engine.heap());
        let worker = |id| Worker { writer: Writer::new(Arc::clone(&heap), id as u8), in_flight: None };
        let workers = (0..setup.writers).map(worker).collect();
        let compactor = Compactor::new(heap.clone());
        let (compacted, leaves) = (Compacted::default(), Leaves::WhatMay);
        Ok(Self { setup, media, engine, logs, workers, compactor, oracle, now_ms, leaves, compacted })
    }

    /// The settings of this world.
    pub fn setup(&self) -> Setup {
        self.setup
    }

    /// A medium that holds `image`, for a restart.
    pub fn medium(&self, image: &CrashImage) -> Arc<SimMedia> {
        SimMedia::restart(image, SimOptions { deferred: self.setup.deferred })
    }

    /// Executes one operation, and notes it in the oracle.
    ///
    /// # Errors
    /// A result or an error that the rules do not allow.
    pub fn run(&mut self, op: &LogOp) -> Result<(), Violation> {
        self.dispatch(op).map_err(|violation| violation.during(format!("{op:?}")))?;
        for writer in 0..self.workers.len() {
            if self.oracle.pending(writer) > PENDING_MAX {
                self.commit(writer)?;
            }
        }
        self.acknowledge_entries();
        Ok(())
    }

    fn acknowledge_entries(&mut self) {
        // After the moment of a simulated crash, no client gets an acknowledgement.
        if self.media.frozen().is_none() {
            let heap = Arc::clone(self.engine.heap());
            self.oracle.acknowledge_entries(&heap);
        }
    }

    fn dispatch(&mut self, op: &LogOp) -> Result<(), Violation> {
        match *op {
            LogOp::Append { writer, log, ref values } => self.append(writer, log, values),
            LogOp::Land { writer, log, value } => self.land(writer, log, value),
            LogOp::Trim { writer, log, eighths } => self.trim(writer, log, eighths),
            LogOp::Delete { writer, log } => self.delete(writer, log),
            LogOp::Position { writer, log, consumer, deletes } => {
                self.position(writer, log, consumer, deletes)
            }
            LogOp::Settings { writer, log, settings } => self.settings(writer, log, settings),
            LogOp::Retain { writer } => self.retain(writer),
            LogOp::Sweep { limit } => {
                self.logs.sweep(limit);
                Ok(())
            }
            LogOp::Engine { writer, value } => self.use_engine(writer, value),
            LogOp::Commit { writer } => self.commit(writer),
            LogOp::BeginCommit { writer } => {
                self.begin(writer);
                Ok(())
            }
            LogOp::FinishCommit { writer } => self.finish(writer),
            LogOp::Compact { slabs } => self.compact(GOALS[usize::from(slabs)]).map(|_| ()),
            LogOp::Evict => {
                self.evict();
                Ok(())
            }
            LogOp::Mark => Ok(self.engine.heap().mark_slabs(1).map(|_| ())?),
            LogOp::Wait { ms } => {
                self.now_ms += ms;
                Ok(())
            }
            LogOp::Check => self.check_shown(),
        }
    }

    /// Executes a command. While it must wait, commits or cleans and tries again. `None` if the region is full, or
    /// there is no such log or consumer.
    fn execute<T>(
        &mut self,
        writer: usize,
        mut command: impl FnMut(&Logs, &mut Writer) -> Result<T, WalError>,
    ) -> Result<Option<T>, Violation> {
        for _ in 0..ATTEMPTS {
            match command(&self.logs, &mut self.workers[writer].writer) {
                Ok(done) => return Ok(Some(done)),
                Err(WalError::Heap(HeapError::Full) | WalError::NoLog | WalError::NoConsumer) => {
                    return Ok(None);
                }
                Err(WalError::Wait(Until::Space)) => self.clean()?,
                Err(WalError::Wait(_)) => self.commit_all()?,
                Err(error) => return Err(error.into()),
            }
        }
        Err(Violation(format!("a command still waits after {ATTEMPTS} commits and steps of cleaning")))
    }

    fn append(&mut self, writer: usize, log: usize, pieces: &[Piece]) -> Result<(), Violation> {
        let values: Vec<Arc<[u8]>> = pieces.iter().map(|piece| value(*piece)).collect();
        let sources: Vec<Source<'_>> = values.iter().map(|value| Source::Bytes(value)).collect();
        self.append_sources(writer, log, &sources, &values)
    }

    fn append_sources(
        &mut self,
        writer: usize,
        log: usize,
        sources: &[Source<'_>],
        values: &[Arc<[u8]>],
    ) -> Result<(), Violation> {
        let name = name(log);
        let expected = self.oracle.newest().get(&name).map_or(0, |log| log.first + log.entries.len() as u64);
        let known = self.oracle.life(&name);
        let arrival_ms = self.now_ms;
        let done = self.execute(writer, |logs, writer| {
            logs.append(writer, name.as_bytes(), sources, arrival_ms * NS_PER_MS)
        });
        let life = match known {
            Some(life) => life,
            // The log was created, even if the append failed, also where the medium has.
            None if self.logs.stats_of(name.as_bytes()).is_ok() => {
                let life = self.oracle.begin_life();
                let head =
                    Fact::Head { name: name.clone(), life, first: Some(0), settings: Settings::default() };
                self.oracle.note(writer, head);
                life
            }
            None => return done.map(drop),
        };
        let Some(done) = done? else { return Ok(()) };
        let tickets = done.tickets().clone();
        let done = done.ungated();
        ensure!(done.first == expected, "{name} gave offset {}, not {expected}", done.first);
        ensure!(!tickets.is_empty(), "an append depends on no ticket");
        for (offset, bytes) in (done.first..).zip(values) {
            let entry = LogEntry { bytes: Arc::clone(bytes), arrival_ms };
            self.oracle.note(writer, Fact::Entry { life, offset, entry });
            self.oracle.promise(&name, life, offset, &tickets);
        }
        self.oracle.join(writer, values.len());
        Ok(())
    }

    fn land(&mut self, writer: usize, log: usize, piece: Piece) -> Result<(), Violation> {
        let heap = Arc::clone(self.engine.heap());
        let Some(run) = heap.take_landing_run() else { return Ok(()) };
        let bytes = value(piece);
        if let Err(error) = self.media.store(run + 7, &bytes) {
            heap.retire_landing_run(run);
            return Err(error.into());
        }
        let extents = [Extent::new(run + 7, bytes.len() as u32)];
        heap.runs().hold(extents[0]);
        let done = self.append_sources(
            writer,
            log,
            &[Source::Landed { extents: &extents, crc: None }],
            &[Arc::clone(&bytes)],
        );
        heap.runs().release(extents[0]);
        heap.retire_landing_run(run);
        done
    }

    /// The current state of a log, and its number.
    fn now(&self, log: usize) -> Option<(LogState, u64)> {
        let name = name(log);
        Some((self.oracle.newest().get(&name)?.clone(), self.oracle.life(&name)?))
    }

    fn note_head(&mut self, writer: usize, log: usize, life: u64, first: Option<u64>, settings: Settings) {
        self.oracle.note(writer, Fact::Head { name: name(log), life, first, settings });
    }

    fn trim(&mut self, writer: usize, log: usize, eighths: u64) -> Result<(), Violation> {
        let Some((now, life)) = self.now(log) else { return Ok(()) };
        let before = now.first + now.entries.len() as u64 * eighths / 8;
        let done = self.execute(writer, |logs, writer| logs.trim(writer, name(log).as_bytes(), before, 5))?;
        if let Some(first) = done.map(Gated::ungated) {
            ensure!(first == before, "a trim to {before} left the first offset {first}");
            if before > now.first {
                self.note_head(writer, log, life, Some(first), now.settings);
            }
        }
        Ok(())
    }

    fn delete(&mut self, writer: usize, log: usize) -> Result<(), Violation> {
        let known = self.now(log);
        let done = self.execute(writer, |logs, writer| logs.delete(writer, name(log).as_bytes(), 5))?;
        match (done, known) {
            (Some(Some(_)), Some((_, life))) => self.note_head(writer, log, life, None, Settings::default()),
            (Some(deleted), known) => {
                ensure!(
                    deleted.is_some() == known.is_some(),
                    "log {log}: the delete and the oracle disagree whether it exists"
                );
            }
            (None, _) => {}
        }
        Ok(())
    }

    fn position(&mut self, writer: usize, log: usize, number: usize, deletes: bool) -> Result<(), Violation> {
        let (log_name, consumer) = (name(log), consumer(number));
        let Some((_, life)) = self.now(log) else { return Ok(()) };
        let offset = self.logs.stats_of(log_name.as_bytes())?.ungated().next;
        let done = self.execute(writer, |logs, writer| {
            let (log, consumer) = (log_name.as_bytes(), consumer.as_bytes());
            if deletes {
                logs.delete_position(writer, log, consumer, 5).map(|done| done.is_some())
            } else {
                logs.commit_position(writer, log, consumer, offset, 5).map(|_| true)
            }
        })?;
        if done == Some(true) {
            let offset = (!deletes).then_some(offset);
            self.oracle.note(writer, Fact::Position { life, consumer, offset });
        }
        Ok(())
    }

    fn settings(&mut self, writer: usize, log: usize, settings: Settings) -> Result<(), Violation> {
        let Some((now, life)) = self.now(log) else { return Ok(()) };
        let done = self
            .execute(writer, |logs, writer| logs.set_settings(writer, name(log).as_bytes(), settings, 5))?;
        if done.is_some() {
            self.note_head(writer, log, life, Some(now.first), settings);
        }
        Ok(())
    }

    fn retain(&mut self, writer: usize) -> Result<(), Violation> {
        for _ in 0..ATTEMPTS {
            let done = self.logs.retain(&mut self.workers[writer].writer, self.now_ms);
            // What was trimmed stays so, whether or not something else has to wait; behind a commit there may be more.
            let trimmed = self.trimmed()?;
            self.oracle.note_each_alone(writer, trimmed);
            match done {
                Ok(_) | Err(WalError::Heap(HeapError::Full)) => return Ok(()),
                Err(WalError::Wait(Until::Space)) => self.clean()?,
                Err(WalError::Wait(_)) => self.commit_all()?,
                Err(error) => return Err(error.into()),
            }
        }
        Err(Violation(format!("retention still waits after {ATTEMPTS} commits and steps of cleaning")))
    }

    /// The heads of the logs that keep less than the oracle knows.
    fn trimmed(&self) -> Result<Vec<Fact>, Violation> {
        let mut heads = Vec::new();
        for log in 0..super::op::LOGS {
            let Some((now, life)) = self.now(log) else { continue };
            let first = self.logs.stats_of(name(log).as_bytes())?.ungated().first;
            ensure!(first <= kept_from(&now, self.now_ms), "log {log} keeps less than it is set to");
            if first > now.first {
                let settings = now.settings;
                heads.push(Fact::Head { name: name(log), life, first: Some(first), settings });
            }
        }
        Ok(heads)
    }

    fn use_engine(&mut self, writer: usize, piece: Option<Piece>) -> Result<(), Violation> {
        let bytes = piece.map(value);
        for _ in 0..ATTEMPTS {
            let writer = &mut self.workers[writer].writer;
            let done = match &bytes {
                Some(bytes) => self.engine.set(writer, &beside(bytes)).map(drop),
                None => self.engine.flush_all(writer, 5).map(drop),
            };
            match done {
                Ok(_) | Err(KvError::Heap(HeapError::Full)) => return Ok(()),
                Err(KvError::Wait(Until::Space)) => self.clean()?,
                Err(KvError::Wait(_)) => self.commit_all()?,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Commits every worker's batch.
    ///
    /// # Errors
    /// A fence failed.
    pub fn commit_all(&mut self) -> Result<(), Violation> {
        (0..self.workers.len()).try_for_each(|writer| self.commit(writer))
    }

    fn commit(&mut self, writer: usize) -> Result<(), Violation> {
        for _ in 0..3 {
            self.finish(writer)?;
            self.begin(writer);
        }
        self.finish(writer)
    }

    fn begin(&mut self, writer: usize) {
        let acknowledges = self.oracle.pending(writer);
        let worker = &mut self.workers[writer];
        if worker.in_flight.is_none()
            && let Some(mut dirty) = worker.writer.begin_commit()
        {
            self.media.submit(&mut dirty);
            worker.in_flight = Some((dirty, acknowledges));
        }
    }

    fn finish(&mut self, writer: usize) -> Result<(), Violation> {
        let worker = &mut self.workers[writer];
        let Some((mut dirty, acknowledges)) = worker.in_flight.take() else { return Ok(()) };
        let outcome = self.media.fence(&mut dirty, Site::Commit);
        worker.writer.finish_commit(outcome)?;
        self.logs.after_commit(writer as u8);
        if self.media.frozen().is_none() {
            self.oracle.acknowledge(writer, acknowledges);
        }
        Ok(())
    }

    /// Has data leave the memory of a paged region, as if more than all of it were to come.
    fn evict(&self) {
        let Some(pages) = Media::pages(Arc::clone(&self.media)) else { return };
        let heap = self.engine.heap();
        let is_mistaken = match self.leaves {
            Leaves::WhatMay => false,
            Leaves::Anything => true,
            Leaves::WhatIsInFlight => self.workers.iter().any(|worker| worker.in_flight.is_some()),
        };
        if !is_mistaken {
            heap.relieve_memory(self.media.len());
            return;
        }
        for (id, _) in heap.runs().iter().filter(|(_, run)| run.used_for() == RunUse::Data) {
            pages.evict(id.off(), Evict::Any, ChunkSet::ALL);
        }
    }

    /// Executes one step of compaction. True if there was nothing to do.
    fn compact(&mut self, goal: CompactGoal) -> Result<bool, Violation> {
        let others: [(_, &dyn Owner); 1] = [(spaces::LOGS, &self.logs)];
        let owner = OwnerBySpace { default: &self.engine, others: &others };
        match self.compactor.step(&owner, goal, 1 << 20) {
            Ok(done) => {
                self.compacted.moved_records += done.moved_records;
                self.compacted.freed_slabs += done.freed_slabs;
                Ok(done.is_idle)
            }
            Err(HeapError::Full) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Executes one step of cleaning, as a server does while a client waits for space. All batches are committed first.
    fn clean(&mut self) -> Result<(), Violation> {
        self.commit_all()?;
        self.compact(CompactGoal::free(self.engine.heap().clean_below())).map(drop)
    }

    /// Checks that what readers get now lies between the acknowledged and all operations.
    fn check_shown(&self) -> Result<(), Violation> {
        let shown = observe(&self.logs)?;
        if self.media.frozen().is_some() { Ok(()) } else { self.oracle.check_shown(&shown) }
    }

    /// Checks that readers get the effect of all operations. All batches must be committed.
    ///
    /// # Errors
    /// A difference.
    pub fn check(&self) -> Result<(), Violation> {
        let found = observe(&self.logs)?;
        ensure!(found == self.oracle.newest(), "a running system has another state");
        Ok(())
    }

    /// Recovers what a crash has left, and judges it.
    ///
    /// # Errors
    /// The region cannot be opened, or is in a state that the rules do not allow.
    pub fn judge(&self, image: &CrashImage) -> Result<(), Violation> {
        let (_engine, logs) = open(&self.medium(image))?;
        self.oracle.judge(&observe(&logs)?)
    }

    /// Deletes every log and all keys of the engine, compacts, and checks that all space is free.
    ///
    /// # Errors
    /// Space that is not free.
    pub fn empty(&mut self) -> Result<(), Violation> {
        self.commit_all()?;
        self.check()?;
        for log in 0..super::op::LOGS {
            self.delete(0, log)?;
        }
        self.use_engine(0, None)?;
        self.commit_all()?;
        self.logs.sweep(usize::MAX);
        ensure!(self.logs.unswept() == 0, "entries of deleted logs are kept");
        let mut steps = 0;
        while !self.compact(CompactGoal::DENSE)? {
            steps += 1;
            ensure!(steps < STEPS_MAX, "compaction has not finished after {STEPS_MAX} steps");
        }
        let runs = self.engine.heap().runs();
        ensure!(runs.live_bytes() == 0, "{} live bytes remain", runs.live_bytes());
        let (counts, open) = (runs.counts(), self.workers.len() as u32 + 1);
        ensure!(counts.data <= open && counts.slab <= open + SLACK_SLABS, "an empty region takes {counts:?}");
        // Tombstones of logs and the flush mark may remain as long as older records are on the medium.
        let most = super::op::LOGS as u64 + 1;
        ensure!(runs.live_slots() <= most, "{} records are live, at most {most} may be", runs.live_slots());
        Ok(())
    }
}

/// The first entry that a log keeps by its settings.
fn kept_from(log: &LogState, now_ms: u64) -> u64 {
    let exceeds = |limit: u64, now: u64| limit != 0 && now > limit;
    let (mut count, mut bytes) = (0, 0);
    for (index, entry) in log.entries.iter().enumerate().rev() {
        (count, bytes) = (count + 1, bytes + entry.bytes.len() as u64);
        let age_ms = now_ms.saturating_sub(entry.arrival_ms);
        let settings = log.settings;
        if exceeds(settings.retain_entries, count)
            || exceeds(settings.retain_bytes, bytes)
            || exceeds(settings.retain_ms, age_ms)
        {
            return log.first + index as u64 + 1;
        }
    }
    log.first
}

/// A key of the engine beside the logs.
fn beside(bytes: &[u8]) -> SetRequest<'_> {
    let value = Source::Bytes(bytes);
    SetRequest { space: 0, key: b"beside", key_at: None, value, expiry_ms: 0, arrival_ns: 5 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_log_keeps_by_its_settings_is_known_without_it() {
        let entry = |arrival_ms| LogEntry { bytes: [0; 10].into(), arrival_ms };
        let entries: Vec<LogEntry> = [100, 110, 120].into_iter().map(entry).collect();
        let kept = |retain_entries, retain_bytes, retain_ms| {
            let settings = Settings { retain_entries, retain_bytes, retain_ms };
            let log = LogState { first: 7, entries: entries.clone(), settings, ..LogState::default() };
            kept_from(&log, 125)
        };
        assert_eq!(
            [kept(0, 0, 0), kept(3, 30, 25), kept(2, 0, 0), kept(0, 29, 0), kept(0, 0, 24)],
            [7, 7, 8, 8, 8]
        );
        assert_eq!([kept(3, 9, 0), kept(0, 0, 4), kept(1, 30, 15)], [10, 10, 9]);
    }
}
