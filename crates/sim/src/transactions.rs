//! A seeded campaign of transactions of 1 to 5000 keys: work, crash, recover (and crash that), judge, go on.
//!
//! Each writer has keys of its own, so that what may be found of them is told by that writer's operations alone: the
//! state after some of them, all those that were acknowledged included. The value of a key says which operation wrote it.

use crate::campaign::{Plan, skip_site};
use crate::observe::recover;
use crate::recount::recount;
use crate::rng::Rng;
use crate::violation::{Violation, ensure};
use landfall_heap::{CompactGoal, Compactor, Entry, HeapError, Kind, NewRegion, Source, Until, Writer};
use landfall_kv::{Engine, KvError, TxnKey};
use landfall_media::sim::{CrashImage, CrashState, SimMedia, SimOptions};
use landfall_media::{Dirty, Media, RUN_SIZE, Site};
use std::ops::Range;
use std::sync::Arc;

const WRITERS: usize = 2;
/// Keys of each writer, and most of one transaction.
const KEYS: usize = 5000;
const RUNS: u64 = 48;
/// Most crashes of recovery before it completes.
const RECOVERY_CRASHES_MAX: usize = 3;
/// Attempts at an operation that must wait.
const ATTEMPTS: usize = 2000;

/// What a campaign has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransactionSummary {
    /// Transactions that were committed.
    pub committed: u64,
    /// Transactions that were taken back.
    pub taken_back: u64,
    /// Crashes.
    pub crashes: u64,
    /// Crashes in the middle of recovery.
    pub recovery_crashes: u64,
    /// Recoveries that found a transaction that nobody had acknowledged.
    pub found_early: u64,
    /// Records that the compactor moved.
    pub moved: u64,
    /// Steps of compaction beside a batch in flight.
    pub beside: u64,
}

/// Which operation wrote each key of a writer.
type State = Vec<Option<u64>>;

/// What one operation does to keys that lie one behind the other.
#[derive(Clone, Debug)]
struct Effect {
    keys: Range<usize>,
    /// Which operation; `None` deletes.
    version: Option<u64>,
}

/// One writer, and what may be found of its keys.
struct Owner {
    writer: Writer,
    /// What was found after the last crash.
    base: State,
    effects: Vec<Effect>,
    /// How many effects are acknowledged.
    acknowledged: usize,
    /// The batch in flight: what its fence makes durable, and how many effects are durable then.
    in_flight: Option<(Dirty, usize)>,
}

impl Owner {
    /// How many of the effects count, if `found` is a state that the rules allow.
    fn judge(&self, found: &[Option<u64>]) -> Option<usize> {
        let mut state = self.base.clone();
        for (index, effect) in self.effects.iter().enumerate() {
            if index >= self.acknowledged && state == found {
                return Some(index);
            }
            state[effect.keys.clone()].fill(effect.version);
        }
        (state == found).then_some(self.effects.len())
    }
}

/// A run drawn from one seed.
pub struct TransactionCampaign {
    plan: Plan,
    rng: Rng,
    deferred: bool,
    media: Arc<SimMedia>,
    engine: Engine,
    owners: Vec<Owner>,
    compactor: Compactor,
    /// Operations so far: the next one's version.
    version: u64,
    summary: TransactionSummary,
}

impl TransactionCampaign {
    /// Runs the campaign of `seed`.
    ///
    /// # Errors
    /// The first state or answer that the rules do not allow.
    pub fn run(seed: u64, plan: Plan) -> Result<TransactionSummary, Violation> {
        let mut campaign = Self::new(seed, plan)?;
        for crash in 0..plan.crashes {
            campaign.round().map_err(|violation| violation.during(format!("round {crash}")))?;
        }
        Ok(campaign.summary)
    }

    fn new(seed: u64, plan: Plan) -> Result<Self, Violation> {
        let mut rng = Rng::new(seed);
        let deferred = rng.one_in(2);
        let media = SimMedia::new(RUNS * RUN_SIZE, SimOptions { deferred });
        skip_site(&media, plan.skip);
        landfall_heap::create(&*media, &NewRegion { salt: [42; 16], hash_seed: 7, created_ms: 1 })?;
        let engine = recover(&(Arc::clone(&media) as Arc<dyn Media>))?;
        let (compactor, owners) = around(&engine, &[vec![None; KEYS], vec![None; KEYS]]);
        let summary = TransactionSummary::default();
        Ok(Self { plan, rng, deferred, media, engine, owners, compactor, version: 0, summary })
    }

    fn round(&mut self) -> Result<(), Violation> {
        let ops = self.rng.between(1, self.plan.ops_max);
        (0..ops).try_for_each(|_| self.op())?;
        if !self.rng.one_in(4) {
            let ahead = 1 + if self.rng.one_in(2) { self.rng.below(60) } else { self.rng.below(9000) };
            self.media.freeze_at(self.media.ops().total() + ahead);
            for _ in 0..100 {
                self.op()?;
                if self.media.frozen().is_some() {
                    break;
                }
            }
        }
        let state = self.media.frozen().unwrap_or_else(|| self.media.crash_state());
        self.crash(&state)
    }

    fn op(&mut self) -> Result<(), Violation> {
        let owner = self.rng.below(WRITERS as u64) as usize;
        match self.rng.below(20) {
            0..8 => self.transaction(owner),
            8..10 => self.take_back(owner),
            10..14 => self.write(owner, 1),
            14 if self.deferred => self.begin_or_finish(owner),
            14..16 => self.commit(owner),
            16 => Ok(self.engine.heap().mark_slabs(1).map(drop)?),
            _ => self.compact(),
        }
    }

    /// Few keys mostly, now and then thousands.
    fn transaction(&mut self, owner: usize) -> Result<(), Violation> {
        let most = [3, 40, 600, KEYS][self.rng.below(4) as usize];
        let count = self.rng.between(1, most);
        self.summary.committed += 1;
        self.write(owner, count)
    }

    /// Writes or deletes keys as one. More than one are durable at once.
    fn write(&mut self, owner: usize, count: usize) -> Result<(), Violation> {
        self.version += 1;
        let first = self.rng.between(0, KEYS - count);
        let version = (!self.rng.one_in(5)).then_some(self.version);
        let effect = Effect { keys: first..first + count, version };
        for _ in 0..ATTEMPTS {
            match write(&self.engine, &mut self.owners[owner].writer, owner, &effect) {
                Ok(()) => {
                    self.owners[owner].effects.push(effect);
                    self.acknowledge(owner);
                    return Ok(());
                }
                Err(KvError::Heap(HeapError::Full)) => return Ok(()),
                Err(KvError::Wait(Until::Space)) => self.clean()?,
                Err(KvError::Wait(_)) => self.commit(owner)?,
                Err(error) => return Err(error.into()),
            }
        }
        Err(Violation(format!("{effect:?} waits for space for ever")))
    }

    /// What its writer has made durable is acknowledged, but not past the moment of the crash that is being simulated.
    fn acknowledge(&mut self, owner: usize) {
        let owner = &mut self.owners[owner];
        if owner.writer.newest().is_none() && self.media.frozen().is_none() {
            owner.acknowledged = owner.effects.len();
        }
    }

    /// True if a batch is in flight.
    fn is_in_flight(&self) -> bool {
        self.owners.iter().any(|owner| owner.in_flight.is_some())
    }

    /// Begins to make an owner's batch durable, or ends what was begun: what is done in between is done beside a batch in
    /// flight.
    fn begin_or_finish(&mut self, owner: usize) -> Result<(), Violation> {
        if self.owners[owner].in_flight.is_some() {
            return self.finish(owner);
        }
        let owned = &mut self.owners[owner];
        if let Some(mut dirty) = owned.writer.begin_commit() {
            self.media.submit(&mut dirty);
            owned.in_flight = Some((dirty, owned.effects.len()));
        }
        Ok(())
    }

    fn finish(&mut self, owner: usize) -> Result<(), Violation> {
        let owned = &mut self.owners[owner];
        let Some((mut dirty, upto)) = owned.in_flight.take() else { return Ok(()) };
        let outcome = self.media.fence(&mut dirty, Site::Commit);
        owned.writer.finish_commit(outcome)?;
        if self.media.frozen().is_none() {
            owned.acknowledged = owned.acknowledged.max(upto);
        }
        Ok(())
    }

    fn commit(&mut self, owner: usize) -> Result<(), Violation> {
        self.finish(owner)?;
        self.owners[owner].writer.commit_now()?;
        self.acknowledge(owner);
        Ok(())
    }

    /// Appends a transaction past the engine, and drops it.
    fn take_back(&mut self, owner: usize) -> Result<(), Violation> {
        let count = self.rng.between(1, 3000);
        // A transaction begins when no commit is under way.
        self.finish(owner)?;
        let heap = Arc::clone(self.engine.heap());
        let writer = &mut self.owners[owner].writer;
        let mut transaction = match writer.begin_transaction(0) {
            Err(HeapError::Full | HeapError::Cleaning) => return Ok(()),
            begun => begun?,
        };
        for number in 0..count {
            let (key, value) = (key(owner, number), value(number, u64::MAX));
            let (kind, hash, value) = (Kind::Put, heap.hash(0, &key), Source::Bytes(&value));
            let entry = Entry {
                kind,
                space: 0,
                hash,
                key: &key,
                key_at: None,
                value,
                arrival_ns: 0,
                expiry_ms: 0,
                aux: 0,
            };
            match writer.append_to(&mut transaction, &entry) {
                Err(HeapError::Full | HeapError::Cleaning) => break,
                appended => appended?,
            };
        }
        drop(transaction);
        self.summary.taken_back += 1;
        self.acknowledge(owner);
        Ok(())
    }

    /// One step of compaction; in half of the cases beside writes that are not committed.
    fn compact(&mut self) -> Result<(), Violation> {
        if self.rng.one_in(2) { self.clean() } else { self.step_compaction() }
    }

    /// One step of compaction for somebody who waits for space: nothing that is not committed keeps it from being freed.
    fn clean(&mut self) -> Result<(), Violation> {
        (0..WRITERS).try_for_each(|owner| self.commit(owner))?;
        self.step_compaction()
    }

    fn step_compaction(&mut self) -> Result<(), Violation> {
        self.summary.beside += u64::from(self.is_in_flight());
        let goal = if self.rng.one_in(2) { CompactGoal::DENSE_DATA } else { CompactGoal::DENSE_SLABS };
        match self.compactor.step(&self.engine, goal, 1 << 20) {
            Ok(done) => self.summary.moved += done.moved_records,
            Err(HeapError::Full) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Recovers an image of the crash, through crashes of recovery, judges what is found and goes on.
    fn crash(&mut self, state: &CrashState) -> Result<(), Violation> {
        self.summary.crashes += 1;
        let mut image = state.draw(self.rng.draw());
        for _ in 0..self.rng.between(0, RECOVERY_CRASHES_MAX) {
            let media = self.medium(&image);
            media.freeze_at(1 + self.rng.below(20));
            self.judged(&media)?;
            self.summary.recovery_crashes += 1;
            let state = media.frozen().unwrap_or_else(|| media.crash_state());
            image = state.draw(self.rng.draw());
        }
        self.media = self.medium(&image);
        let (engine, found) = self.judged(&self.media)?;
        let early = |(owner, state): (&Owner, &State)| owner.judge(state) > Some(owner.acknowledged);
        self.summary.found_early += u64::from(self.owners.iter().zip(&found).any(early));
        (self.compactor, self.owners) = around(&engine, &found);
        self.engine = engine;
        Ok(())
    }

    fn medium(&self, image: &CrashImage) -> Arc<SimMedia> {
        let media = SimMedia::restart(image, SimOptions { deferred: self.deferred });
        skip_site(&media, self.plan.skip);
        media
    }

    /// What is found on a medium, if the rules allow it.
    fn judged(&self, media: &Arc<SimMedia>) -> Result<(Engine, Vec<State>), Violation> {
        let engine = recover(&(Arc::clone(media) as Arc<dyn Media>))?;
        let mut found = Vec::new();
        for (number, owner) in self.owners.iter().enumerate() {
            let state: State =
                (0..KEYS).map(|key| version_of(&engine, number, key)).collect::<Result<_, _>>()?;
            ensure!(
                owner.judge(&state).is_some(),
                "writer {number}: no state after {}..={} of its operations; the last are {:?}",
                owner.acknowledged,
                owner.effects.len(),
                owner.effects.iter().rev().take(3).collect::<Vec<_>>()
            );
            found.push(state);
        }
        recount(&engine, 0)?;
        Ok((engine, found))
    }
}

/// Writers and a compactor over an engine in which `found` was found.
fn around(engine: &Engine, found: &[State]) -> (Compactor, Vec<Owner>) {
    // Whatever has more than one record is a transaction.
    engine.group_up_to(1);
    let owner = |(id, base): (usize, &State)| Owner {
        writer: Writer::new(Arc::clone(engine.heap()), id as u8),
        base: base.clone(),
        effects: Vec::new(),
        acknowledged: 0,
        in_flight: None,
    };
    (Compactor::new(Arc::clone(engine.heap())), found.iter().enumerate().map(owner).collect())
}

fn key(owner: usize, number: usize) -> Vec<u8> {
    format!("{owner}:{number}").into_bytes()
}

/// What an operation writes: in the record, or in frames.
fn value(number: usize, version: u64) -> Vec<u8> {
    let mut value = version.to_le_bytes().to_vec();
    value.resize(8 + number % 4 * 50, number as u8);
    value
}

fn write(engine: &Engine, writer: &mut Writer, owner: usize, effect: &Effect) -> Result<(), KvError> {
    let keys: Vec<Vec<u8>> = effect.keys.clone().map(|number| key(owner, number)).collect();
    let mut txn = engine.transaction(keys.iter().map(|key| TxnKey { space: 0, key }), 0);
    for (number, key) in effect.keys.clone().zip(&keys) {
        match effect.version {
            Some(version) => txn.put_bytes(0, key, value(number, version), 0),
            None => drop(txn.delete(0, key)?.ungated()),
        }
    }
    let committed = txn.commit(writer, 1)?;
    let is_transaction = effect.keys.len() > 1 && effect.version.is_some();
    assert!(!is_transaction || committed.tickets().is_empty(), "it is durable when it returns");
    Ok(())
}

/// Which operation wrote a key.
fn version_of(engine: &Engine, owner: usize, number: usize) -> Result<Option<u64>, Violation> {
    let Some(item) = engine.get(0, &key(owner, number), 0)?.ungated() else { return Ok(None) };
    let bytes = item.bytes()?;
    let version = u64::from_le_bytes(bytes[..8].try_into().expect("no value is shorter"));
    ensure!(*bytes == *value(number, version), "key {number} of writer {owner} has a value of nobody");
    Ok(Some(version))
}
