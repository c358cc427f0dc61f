//! One engine on a simulated medium, its workers, and the oracle that follows them.

use crate::meddler::{self, Meddler, Meddling};
use crate::observe::{expect_state, open, read, recover};
use crate::op::{Op, Piece, Write, key, value};
use crate::oracle::{Change, Key, Oracle, State, Value};
use crate::recount::recount;
use crate::rng::Rng;
use crate::violation::{Violation, ensure};
use landfall_heap::{CompactGoal, Compacted, Compactor, HeapError, NewRegion, Source, Writer};
use landfall_kv::{Engine, KvError, Recovered, SetRequest, TxnKey};
use landfall_media::sim::{SimMedia, SimOptions};
use landfall_media::{Dirty, Extent, Media, RUN_SIZE, Site};
use std::cell::RefCell;
use std::sync::Arc;

/// Attempts at an operation that must wait for a commit.
const ATTEMPTS: usize = 4;
/// Unacknowledged operations of a writer before it commits: bounds what the oracle must consider.
const PENDING_MAX: usize = 40;
/// Steps in which compaction must come to rest.
const REST_STEPS: usize = 2000;
/// Writes of a churn between two commits.
const CHURN_BATCH: usize = 20;
/// Keys that a churn writes.
const CHURN_KEYS: u64 = 6;
/// Slabs that an empty region may keep: what compaction calls slack, the last victim, prepared ones.
const SLACK_SLABS: u32 = 5;
/// Free runs that only the compactor may take.
const COMPACTOR_RESERVE_RUNS: u32 = 2;
/// Compaction until nothing but slack is left.
const GOAL: CompactGoal = CompactGoal { data_ratio: 1.0, slab_ratio: 1.0 };
/// Compaction for its own sake: something is always moved.
const GOAL_RESTLESS: CompactGoal = CompactGoal { data_ratio: -1e6, slab_ratio: -1e6 };

/// What a world is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup {
    /// Runs of 1 MiB; 32 is the least.
    pub runs: u32,
    /// Workers; at least 1.
    pub writers: usize,
    /// Fences are device I/O: batches overlap.
    pub deferred: bool,
}

impl Setup {
    fn options(&self) -> SimOptions {
        SimOptions { deferred: self.deferred }
    }
}

/// A worker.
struct Worker {
    writer: Writer,
    /// The batch under way: what its fence must make durable, and how many operations it acknowledges.
    in_flight: Option<(Dirty, usize)>,
}

/// One engine on a simulated medium, its workers, and the oracle that follows them.
pub struct World {
    setup: Setup,
    /// The medium.
    pub media: Arc<SimMedia>,
    /// The engine.
    pub engine: Engine,
    workers: Vec<Worker>,
    compactor: Compactor,
    /// What may be found.
    pub oracle: Oracle,
    /// Time, Unix milliseconds.
    pub now_ms: u64,
    /// What compaction has done in this life of the region.
    pub compacted: Compacted,
}

impl World {
    /// A new, empty region. `prepare` acts on the medium before anything is written.
    ///
    /// # Errors
    /// The region cannot be created or opened.
    pub fn create(setup: Setup, prepare: impl FnOnce(&SimMedia)) -> Result<Self, Violation> {
        let media = SimMedia::new(u64::from(setup.runs) * RUN_SIZE, setup.options());
        prepare(&media);
        let new = NewRegion { salt: [42; 16], hash_seed: 7, created_ms: 1 };
        landfall_heap::create(&*media, &new)?;
        Self::open(setup, media, Oracle::new(setup.writers), 1_000)
    }

    /// Opens what is on `media`, which must be undamaged, without judging it.
    ///
    /// # Errors
    /// What recovery found instead.
    pub fn open(setup: Setup, media: Arc<SimMedia>, oracle: Oracle, now_ms: u64) -> Result<Self, Violation> {
        let engine = recover(&as_media(&media))?;
        Ok(Self::around(setup, media, engine, oracle, now_ms))
    }

    /// Opens what is on `media` and may be damaged; what was found is returned.
    ///
    /// # Errors
    /// The region cannot be opened.
    pub fn open_damaged(
        setup: Setup,
        media: Arc<SimMedia>,
        oracle: Oracle,
        now_ms: u64,
    ) -> Result<(Self, Recovered), Violation> {
        let (engine, recovered) = open(&as_media(&media))?;
        Ok((Self::around(setup, media, engine, oracle, now_ms), recovered))
    }

    fn around(setup: Setup, media: Arc<SimMedia>, engine: Engine, oracle: Oracle, now_ms: u64) -> Self {
        let heap = Arc::clone(engine.heap());
        let worker = |id| Worker { writer: Writer::new(Arc::clone(&heap), id as u8), in_flight: None };
        let workers = (0..setup.writers).map(worker).collect();
        let compactor = Compactor::new(Arc::clone(&heap));
        let compacted = Compacted::default();
        Self { setup, media, engine, workers, compactor, oracle, now_ms, compacted }
    }

    /// What it is made of.
    pub fn setup(&self) -> Setup {
        self.setup
    }

    /// A medium that holds `image`, as a restart finds it.
    pub fn medium(&self, image: Vec<u8>) -> Arc<SimMedia> {
        SimMedia::from_image(image, self.setup.options())
    }

    /// Executes one operation, and tells the oracle.
    ///
    /// # Errors
    /// What happened and must not.
    pub fn run(&mut self, op: &Op) -> Result<(), Violation> {
        self.dispatch(op).map_err(|violation| violation.during(format!("{op:?}")))?;
        for writer in 0..self.workers.len() {
            if self.oracle.pending(writer) > PENDING_MAX {
                self.commit(writer)?;
            }
        }
        Ok(())
    }

    /// Executes several operations.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn run_all(&mut self, ops: &[Op]) -> Result<(), Violation> {
        ops.iter().try_for_each(|op| self.run(op))
    }

    fn dispatch(&mut self, op: &Op) -> Result<(), Violation> {
        match *op {
            Op::Set { writer, key: index, value, ttl_ms } => {
                let expiry_ms = if ttl_ms == 0 { 0 } else { self.now_ms + ttl_ms };
                self.set(writer, &key(index), value, expiry_ms)
            }
            Op::Delete { writer, key: index } => self.delete(writer, &key(index)),
            Op::Group { writer, ref writes } => self.group(writer, writes),
            Op::Copy { writer, from, to } => self.copy(writer, &key(from), &key(to)),
            Op::Land { writer, key: index, value, pieces } => self.land(writer, &key(index), value, pieces),
            Op::FlushAll { writer } => self.flush_all(writer),
            Op::Commit { writer } => self.commit(writer),
            Op::BeginCommit { writer } => {
                self.begin(writer);
                Ok(())
            }
            Op::FinishCommit { writer } => self.finish(writer),
            Op::Compact { budget } => self.compact(GOAL_RESTLESS, budget).map(|_| ()),
            Op::CompactMeddled { writer, seed } => self.compact_meddled(writer, seed),
            Op::Mark => self.engine.heap().mark_slabs(1).map(|_| ()).map_err(Violation::from),
            Op::PrepareSlab => self.engine.heap().prepare_slab_within_reserve().map_err(Violation::from),
            Op::Purge { writer } => self.purge(writer),
            Op::Wait { ms } => {
                self.now_ms += ms;
                Ok(())
            }
            Op::Churn { writer, count, seed } => self.churn(writer, count, seed),
            Op::Check => self.check(),
        }
    }

    // ---- commands ----

    /// Runs a command, committing and trying again while it must wait. A full region does nothing.
    fn execute<T>(
        &mut self,
        writer: usize,
        mut command: impl FnMut(&Engine, &mut Writer) -> Result<T, KvError>,
    ) -> Result<Option<T>, Violation> {
        for _ in 0..ATTEMPTS {
            match command(&self.engine, &mut self.workers[writer].writer) {
                Ok(done) => return Ok(Some(done)),
                Err(KvError::Heap(HeapError::Full)) => return Ok(None),
                Err(KvError::Wait(_)) => self.commit_all()?,
                Err(error) => return Err(error.into()),
            }
        }
        Err(Violation(format!("a command still waits after {ATTEMPTS} commits")))
    }

    fn set(&mut self, writer: usize, key: &Key, piece: Piece, expiry_ms: u64) -> Result<(), Violation> {
        let bytes = value(piece);
        let done = self.execute(writer, |engine, writer| {
            engine.set(writer, &request(key, Source::Bytes(&bytes), None, expiry_ms))
        })?;
        if done.is_some() {
            let change = vec![(key.clone(), Some(Value { bytes, expiry_ms }))];
            self.oracle.note(writer, Change::Keys(change));
        }
        Ok(())
    }

    fn delete(&mut self, writer: usize, key: &Key) -> Result<(), Violation> {
        let now_ms = self.now_ms;
        let there = self.oracle.newest(now_ms).contains_key(key);
        let done =
            self.execute(writer, |engine, writer| engine.delete(writer, key.space, &key.bytes, now_ms, 5))?;
        ensure!(
            done.is_some() || self.is_crowded(),
            "a delete found the region full, with {} free runs",
            self.engine.heap().runs().free_count()
        );
        if let Some(deleted) = done {
            ensure!(deleted.is_some() == there, "{key:?} was there: {there}, deleted: {}", deleted.is_some());
            // Nothing is written where nothing was.
            if there {
                self.oracle.note(writer, Change::Keys(vec![(key.clone(), None)]));
            }
        }
        Ok(())
    }

    /// True when not even a delete need find room.
    fn is_crowded(&self) -> bool {
        self.engine.heap().runs().free_count() <= COMPACTOR_RESERVE_RUNS
    }

    fn group(&mut self, writer: usize, writes: &[Write]) -> Result<(), Violation> {
        let (now_ms, seen) = (self.now_ms, self.oracle.newest(self.now_ms));
        let keys: Vec<(Key, Option<Value>)> =
            writes.iter().map(|write| (key(write.key), write.value.map(|piece| piece.read(0)))).collect();
        let mut wrong = None;
        let done = self.execute(writer, |engine, writer| {
            let all = keys.iter().map(|(key, _)| TxnKey { space: key.space, key: &key.bytes });
            let mut txn = engine.transaction(all, now_ms);
            let mut expected = seen.clone();
            for (key, value) in &keys {
                wrong = wrong.take().or(wrong_read(&txn, &expected, key)?);
                stage(&mut txn, key, value.as_ref())?;
                match value {
                    Some(value) => expected.insert(key.clone(), value.clone()),
                    None => expected.remove(key),
                };
                wrong = wrong.take().or(wrong_read(&txn, &expected, key)?);
            }
            txn.commit(writer, 5)
        })?;
        if let Some(wrong) = wrong {
            return Err(wrong);
        }
        if done.is_some() {
            let mut changes = last_of_each(keys);
            changes.retain(|(key, value)| value.is_some() || seen.contains_key(key));
            self.oracle.note(writer, Change::Keys(changes));
        }
        Ok(())
    }

    fn copy(&mut self, writer: usize, from: &Key, to: &Key) -> Result<(), Violation> {
        let now_ms = self.now_ms;
        let done = self.execute(writer, |engine, writer| {
            let keys = [from, to].map(|key| TxnKey { space: key.space, key: &key.bytes });
            let mut txn = engine.transaction(keys, now_ms);
            txn.check_writable(writer, from.space, &from.bytes)?;
            let Some(item) = txn.read(from.space, &from.bytes)? else { return Ok(false) };
            txn.put_item(to.space, &to.bytes, &item, 0);
            drop(item);
            txn.commit(writer, 5).map(|_| true)
        })?;
        if done == Some(true) {
            let copied = self.oracle.newest(now_ms).get(from).cloned();
            let copied = copied.ok_or_else(|| Violation(format!("{from:?} was copied and is not there")))?;
            self.oracle
                .note(writer, Change::Keys(vec![(to.clone(), Some(Value { expiry_ms: 0, ..copied }))]));
        }
        Ok(())
    }

    fn land(&mut self, writer: usize, key: &Key, piece: Piece, pieces: usize) -> Result<(), Violation> {
        let heap = Arc::clone(self.engine.heap());
        let Some(run) = heap.take_landing_run() else { return Ok(()) };
        let landed = Landed::store(&self.media, run, key, &value(piece), pieces)?;
        landed.all().for_each(|extent| heap.runs().hold(extent));
        let source = Source::Landed { extents: &landed.value, crc: None };
        let done = self
            .execute(writer, |engine, writer| engine.set(writer, &request(key, source, Some(landed.key), 0)));
        landed.all().for_each(|extent| heap.runs().release(extent));
        heap.retire_landing_run(run);
        if done?.is_some() {
            let bytes = landed.bytes.as_slice().into();
            self.oracle.note(writer, Change::Keys(vec![(key.clone(), Some(Value { bytes, expiry_ms: 0 }))]));
        }
        Ok(())
    }

    fn flush_all(&mut self, writer: usize) -> Result<(), Violation> {
        if self.execute(writer, |engine, writer| engine.flush_all(writer, 5))?.is_some() {
            self.oracle.note(writer, Change::Flush);
        }
        Ok(())
    }

    fn purge(&mut self, writer: usize) -> Result<(), Violation> {
        let now_ms = self.now_ms;
        // What has expired is not there for anyone, purged or not: the oracle need not know.
        self.execute(writer, |engine, writer| engine.purge_expired(writer, now_ms, 1000))?;
        let due = self.engine.next_expiry_ms();
        ensure!(due.is_none_or(|due| due > now_ms) || self.is_crowded(), "expired keys are left: {due:?}");
        Ok(())
    }

    fn churn(&mut self, writer: usize, count: usize, seed: u64) -> Result<(), Violation> {
        let mut rng = Rng::new(seed);
        for step in 0..count {
            let target = key(7 * (1 + rng.below(CHURN_KEYS) as usize % 3) + rng.below(2) as usize);
            if rng.one_in(3) {
                self.delete(writer, &target)?;
            } else {
                let value = Piece { len: rng.between(0, 12), seed: rng.draw() };
                self.set(writer, &target, value, 0)?;
            }
            if step % CHURN_BATCH == CHURN_BATCH - 1 {
                self.commit(writer)?;
            }
        }
        Ok(())
    }

    // ---- commits ----

    /// Ends every worker's batch.
    ///
    /// # Errors
    /// A fence failed.
    pub fn commit_all(&mut self) -> Result<(), Violation> {
        (0..self.workers.len()).try_for_each(|writer| self.commit(writer))
    }

    fn commit(&mut self, writer: usize) -> Result<(), Violation> {
        // Once more: finishing a batch may leave something to erase.
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
            && let Some(dirty) = worker.writer.begin_commit()
        {
            worker.in_flight = Some((dirty, acknowledges));
        }
    }

    fn finish(&mut self, writer: usize) -> Result<(), Violation> {
        let worker = &mut self.workers[writer];
        let Some((mut dirty, acknowledges)) = worker.in_flight.take() else { return Ok(()) };
        let outcome = self.media.fence(&mut dirty, Site::Commit);
        worker.writer.finish_commit(outcome)?;
        // Past the moment of the crash that is being simulated nobody hears of it.
        if self.media.frozen().is_none() {
            self.oracle.acknowledge(writer, acknowledges);
        }
        Ok(())
    }

    // ---- the background ----

    /// One step of compaction; true when there was nothing to do.
    fn compact(&mut self, goal: CompactGoal, budget: u64) -> Result<bool, Violation> {
        match self.compactor.step(&self.engine, goal, budget) {
            Ok(done) => Ok(self.note_compacted(done)),
            Err(HeapError::Busy | HeapError::Full) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Adds up what compaction does; true when it rests.
    fn note_compacted(&mut self, done: Compacted) -> bool {
        self.compacted.moved_records += done.moved_records;
        self.compacted.moved_bytes += done.moved_bytes;
        self.compacted.freed_slabs += done.freed_slabs;
        self.compacted.damaged += done.damaged;
        done.rests
    }

    fn compact_meddled(&mut self, writer: usize, seed: u64) -> Result<(), Violation> {
        let Self { engine, workers, compactor, oracle, media, now_ms, .. } = self;
        let Worker { writer: appends, in_flight } = &mut workers[writer];
        let mut act = |key: &Key, piece: Option<Piece>, commits: bool| {
            let bytes = piece.map(value);
            match &bytes {
                Some(bytes) => {
                    engine.set(appends, &request(key, Source::Bytes(bytes), None, 0)).map(|_| ())?
                }
                None => engine.delete(appends, key.space, &key.bytes, *now_ms, 5).map(|_| ())?,
            }
            oracle.note(writer, meddler::change(key, piece));
            if commits && in_flight.is_none() {
                let acknowledges = oracle.pending(writer);
                appends.commit_now()?;
                if media.frozen().is_none() {
                    oracle.acknowledge(writer, acknowledges);
                }
            }
            Ok(())
        };
        let meddling = RefCell::new(Meddling { act: &mut act, rng: Rng::new(seed) });
        let stepped = compactor.step(&Meddler { engine, meddling }, GOAL_RESTLESS, 1 << 20);
        match stepped.map(|done| self.note_compacted(done)) {
            Ok(_) | Err(HeapError::Busy | HeapError::Full) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Compacts until there is nothing to do.
    ///
    /// # Errors
    /// It never comes to rest; the medium's.
    pub fn compact_to_rest(&mut self) -> Result<(), Violation> {
        for _ in 0..REST_STEPS {
            if self.compact(GOAL, 1 << 20)? {
                return Ok(());
            }
        }
        Err(Violation(format!("compaction has not come to rest after {REST_STEPS} steps")))
    }

    // ---- checks ----

    /// Reads everything and compares it with what was executed.
    ///
    /// # Errors
    /// What differs.
    pub fn check(&self) -> Result<(), Violation> {
        expect_state(&self.engine, &self.oracle.newest(self.now_ms), self.now_ms)
    }

    /// Counts references, live bytes and stale copies again; every batch must be complete.
    ///
    /// # Errors
    /// The first count that differs.
    pub fn recount(&self) -> Result<(), Violation> {
        recount(&self.engine, self.workers.len() + 1)
    }

    /// Deletes every key, then everything at once, compacts, and wants all space back.
    ///
    /// # Errors
    /// What is left.
    pub fn empty(&mut self) -> Result<(), Violation> {
        let keys: Vec<Key> = self.oracle.newest(self.now_ms).into_keys().collect();
        keys.iter().try_for_each(|key| self.delete(0, key))?;
        self.commit_all()?;
        self.compact_to_rest()?;
        self.recount().map_err(|violation| violation.during("with every key deleted"))?;
        self.flush_all(0)?;
        self.commit_all()?;
        self.compact_to_rest()?;
        self.recount().map_err(|violation| violation.during("with everything flushed"))?;
        ensure!(self.engine.heap().runs().live_bytes() == 0, "live bytes are left");
        let counts = self.engine.heap().runs().counts();
        let open = self.workers.len() as u32 + 1;
        ensure!(counts.data <= open && counts.slab <= open + SLACK_SLABS, "an empty region takes {counts:?}");
        self.check()
    }

    /// What a client may be shown at once is what a crash cannot take back; absence is shown, too.
    ///
    /// # Errors
    /// What would be shown too early, or made to wait for nothing.
    pub fn check_durable(&self) -> Result<(), Violation> {
        let acknowledged = self.oracle.acknowledged(self.now_ms);
        let newest = self.oracle.newest(self.now_ms);
        // In deferred mode, and before a simulated crash, the oracle hears of everything that is durable.
        let sees_all = self.setup.deferred && self.media.frozen().is_none();
        for key in acknowledged.keys().chain(newest.keys()) {
            let slot = self.engine.look(key.space, &key.bytes, self.now_ms)?.slot();
            let durable = self.engine.is_durable(slot);
            if !self.oracle.is_pending(key) {
                ensure!(durable, "{key:?} was acknowledged and must not be shown");
            } else if sees_all && acknowledged.get(key) != newest.get(key) {
                ensure!(!durable, "{key:?} may be shown, and a crash could still take it back");
            }
        }
        Ok(())
    }

    /// Reads one key.
    ///
    /// # Errors
    /// It is damaged, or not durable on a closed region.
    pub fn read(&self, key: &Key) -> Result<Option<Value>, Violation> {
        read(&self.engine, key, self.now_ms)
    }
}

fn as_media(media: &Arc<SimMedia>) -> Arc<dyn Media> {
    Arc::clone(media) as Arc<dyn Media>
}

fn request<'a>(key: &'a Key, value: Source<'a>, key_at: Option<Extent>, expiry_ms: u64) -> SetRequest<'a> {
    SetRequest { space: key.space, key: &key.bytes, key_at, value, expiry_ms, arrival_ns: 5 }
}

fn stage(txn: &mut landfall_kv::Txn<'_>, key: &Key, value: Option<&Value>) -> Result<(), KvError> {
    match value {
        Some(value) => txn.put_bytes(key.space, &key.bytes, value.bytes.to_vec(), value.expiry_ms),
        None => drop(txn.delete(key.space, &key.bytes)?),
    }
    Ok(())
}

/// What is wrong with how a transaction reads a key, if anything.
fn wrong_read(txn: &landfall_kv::Txn<'_>, expected: &State, key: &Key) -> Result<Option<Violation>, KvError> {
    let found = txn.read(key.space, &key.bytes)?.map(|item| item.to_vec()).transpose()?;
    let wanted = expected.get(key).map(|value| value.bytes.to_vec());
    Ok((found != wanted).then(|| Violation(format!("a transaction reads {key:?} as another value"))))
}

/// Of several writes of one key in a group the last counts.
fn last_of_each(keys: Vec<(Key, Option<Value>)>) -> Vec<(Key, Option<Value>)> {
    let mut last: Vec<(Key, Option<Value>)> = Vec::new();
    for (key, value) in keys {
        last.retain(|(known, _)| *known != key);
        last.push((key, value));
    }
    last
}

/// A key and a value as a transport would leave them in a landing run.
struct Landed {
    key: Extent,
    value: Vec<Extent>,
    bytes: Vec<u8>,
}

impl Landed {
    /// Stores the key, then the value in `pieces` pieces with gaps between them.
    fn store(media: &SimMedia, run: u64, key: &Key, value: &[u8], pieces: usize) -> Result<Self, Violation> {
        let value = &value[..value.len().min(RUN_SIZE as usize / 2)];
        media.store(run, &key.bytes)?;
        let mut landed =
            Self { key: Extent::new(run, key.bytes.len() as u32), value: Vec::new(), bytes: value.to_vec() };
        let mut at = run + key.bytes.len() as u64 + 3;
        for piece in value.chunks(value.len().div_ceil(pieces).max(1)) {
            media.store(at, piece)?;
            landed.value.push(Extent::new(at, piece.len() as u32));
            at += piece.len() as u64 + 77;
        }
        Ok(landed)
    }

    fn all(&self) -> impl Iterator<Item = Extent> + '_ {
        std::iter::once(self.key).chain(self.value.iter().copied())
    }
}
