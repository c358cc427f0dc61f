//! A seeded campaign that joins what other campaigns attack one by one: transactions of up to thousands of keys, values in
//! pieces that are changed in part and copied by reference, and data that leave memory.
//!
//! Each writer has keys of its own, as in the campaign of transactions: what may be found of them is the state after some
//! of that writer's operations, all those that were acknowledged included. A few keys of each writer have long values,
//! the others have short ones, which lie in their records. So only long values have data outside of records.

mod step;
mod values;

use crate::campaign::{Plan, skip_site};
use crate::observe::recover;
use crate::recount::recount;
use crate::rng::Rng;
use crate::violation::{Violation, ensure};
use landfall_heap::{CompactGoal, Compactor, HeapError, NewRegion, RunUse, Until, Writer};
use landfall_kv::{Engine, KvError};
use landfall_media::sim::{CrashImage, CrashState, SimMedia, SimOptions};
use landfall_media::{ChunkSet, Dirty, Evict, Media, Pages, RUN_SIZE, Site};
use std::sync::Arc;
use step::{Landing, Step};
use values::{Effect, KEYS, LONG, Longs, State, digest, key, short_version};

const WRITERS: usize = 2;
const RUNS: u64 = 48;
/// Bytes that may be in memory: so few that each run taken and each read makes others leave.
const MEMORY: u64 = 4 * RUN_SIZE;
/// How many times recovery itself may crash before it is let through.
const RECOVERY_CRASHES_MAX: u64 = 3;
/// Attempts at an operation that must wait.
const ATTEMPTS: usize = 2000;

/// What leaves memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaves {
    /// What the heap lets go.
    WhatMay,
    /// All data that nobody has pinned, durable or not: a mistake that the campaign must notice.
    Anything,
    /// What the heap lets go; while a batch is in flight, all data that nobody has pinned, as if the batch were durable: a
    /// mistake that the campaign must notice.
    WhatIsInFlight,
}

/// What a campaign has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JoinedSummary {
    /// Operations of more than one key.
    pub transactions: u64,
    /// Changes of parts of values in pieces.
    pub patches: u64,
    /// Copies by reference.
    pub copies: u64,
    /// Bytes that have left memory.
    pub evicted: u64,
    /// Crashes.
    pub crashes: u64,
    /// Crashes in the middle of recovery.
    pub recovery_crashes: u64,
    /// Recoveries that found an operation that nobody had acknowledged.
    pub found_early: u64,
    /// Records that the compactor moved.
    pub moved: u64,
    /// Steps of compaction, and times that data left memory, beside a batch in flight.
    pub beside: u64,
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
    /// The long values after all effects.
    longs: Longs,
}

impl Owner {
    fn new(engine: &Engine, id: usize, (base, longs): (State, Longs)) -> Self {
        let writer = Writer::new(Arc::clone(engine.heap()), id as u8);
        Self { writer, base, effects: Vec::new(), acknowledged: 0, in_flight: None, longs }
    }

    /// How many of the effects count, if `found` is a state that the rules allow.
    fn judge(&self, found: &State) -> Option<usize> {
        let mut state = self.base.clone();
        for (index, effect) in self.effects.iter().enumerate() {
            if index >= self.acknowledged && state == *found {
                return Some(index);
            }
            effect.apply(&mut state);
        }
        (state == *found).then_some(self.effects.len())
    }
}

/// A run drawn from one seed.
pub struct JoinedCampaign {
    plan: Plan,
    leaves: Leaves,
    rng: Rng,
    deferred: bool,
    /// Records up to which what counts as one is a group.
    group_max: usize,
    media: Arc<SimMedia>,
    engine: Engine,
    owners: Vec<Owner>,
    compactor: Compactor,
    /// Operations so far: the next one's version.
    version: u64,
    summary: JoinedSummary,
}

impl JoinedCampaign {
    /// Runs the campaign of `seed`.
    ///
    /// # Errors
    /// The first state or answer that the rules do not allow.
    pub fn run(seed: u64, plan: Plan, leaves: Leaves) -> Result<JoinedSummary, Violation> {
        let mut campaign = Self::new(seed, plan, leaves)?;
        for crash in 0..plan.crashes {
            campaign.round().map_err(|violation| violation.during(format!("round {crash}")))?;
        }
        Ok(campaign.summary)
    }

    fn new(seed: u64, plan: Plan, leaves: Leaves) -> Result<Self, Violation> {
        let mut rng = Rng::new(seed);
        let deferred = rng.one_in(2);
        let group_max = if rng.one_in(4) { 8 } else { 1 };
        let media = SimMedia::new(RUNS * RUN_SIZE, SimOptions { deferred });
        skip_site(&media, plan.skip);
        media.page(MEMORY);
        landfall_heap::create(&*media, &NewRegion { salt: [42; 16], hash_seed: 7, created_ms: 1 })?;
        let engine = recover(&(Arc::clone(&media) as Arc<dyn Media>))?;
        engine.group_up_to(group_max);
        let nothing = || (vec![None; KEYS], vec![None; LONG]);
        let owners = (0..WRITERS).map(|id| Owner::new(&engine, id, nothing())).collect();
        let compactor = Compactor::new(Arc::clone(engine.heap()));
        let summary = JoinedSummary::default();
        let version = 0;
        Ok(Self {
            plan,
            leaves,
            rng,
            deferred,
            group_max,
            media,
            engine,
            owners,
            compactor,
            version,
            summary,
        })
    }

    fn round(&mut self) -> Result<(), Violation> {
        let ops = self.rng.between(1, self.plan.ops_max);
        (0..ops).try_for_each(|_| self.op())?;
        if !self.rng.one_in(4) {
            let ahead = 1 + if self.rng.one_in(2) { self.rng.below(60) } else { self.rng.below(6000) };
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
        match self.rng.below(24) {
            0..6 => self.transaction(owner),
            6..13 => self.write(owner, 1, 1),
            13 if self.deferred => self.begin_or_finish(owner),
            13..15 => self.commit(owner),
            15 => Ok(self.engine.heap().mark_slabs(1).map(drop)?),
            16..19 => self.compact(),
            19..21 => {
                self.evict();
                Ok(())
            }
            21..23 => self.read(owner),
            _ if self.rng.one_in(4) => self.flush_all(owner),
            _ => Ok(()),
        }
    }

    /// Several long values and few other keys mostly, now and then thousands.
    fn transaction(&mut self, owner: usize) -> Result<(), Violation> {
        let shorts_max = [1, 30, 600, KEYS - LONG][self.rng.below(4) as usize];
        let steps = self.rng.between(1, 5);
        self.write(owner, steps, shorts_max)
    }

    /// Executes steps as one. More than a group of records are durable at once.
    fn write(&mut self, owner: usize, count: usize, shorts_max: usize) -> Result<(), Violation> {
        self.version += 1;
        let (mut longs, mut effect) = (self.owners[owner].longs.clone(), Effect::default());
        let mut steps = Vec::new();
        for _ in 0..count {
            let step = Step::draw(&mut self.rng, &longs, self.version, shorts_max);
            step.apply(&mut longs, &mut effect);
            steps.push(step);
        }
        if effect.is_empty() {
            return Ok(());
        }
        let landings: Vec<Landing> =
            steps.iter().map(|step| Landing::of(&self.engine, step)).collect::<Result<_, _>>()?;
        let written = self.write_steps(owner, &steps, &landings);
        landings.iter().for_each(|landing| landing.release(&self.engine));
        if written? {
            self.count(&steps, &effect);
            let owned = &mut self.owners[owner];
            owned.effects.push(effect);
            owned.longs = longs;
            self.acknowledge(owner);
        }
        Ok(())
    }

    /// False if the region is full.
    fn write_steps(&mut self, owner: usize, steps: &[Step], landings: &[Landing]) -> Result<bool, Violation> {
        for _ in 0..ATTEMPTS {
            let owned = &mut self.owners[owner];
            match step::write(&self.engine, &mut owned.writer, owner, &owned.longs, steps, landings) {
                Ok(()) => return Ok(true),
                Err(KvError::Heap(HeapError::Full)) => return Ok(false),
                Err(KvError::Wait(Until::Space)) => self.clean()?,
                Err(KvError::Wait(_)) => self.commit(owner)?,
                Err(error) => return Err(Violation::from(error).during(format!("{steps:?}"))),
            }
        }
        Err(Violation(format!("{steps:?} wait for space for ever")))
    }

    fn count(&mut self, steps: &[Step], effect: &Effect) {
        let of = |kind: fn(&Step) -> bool| steps.iter().filter(|step| kind(step)).count() as u64;
        self.summary.transactions += u64::from(effect.keys() > 1);
        self.summary.patches += of(|step| matches!(step, Step::Patch { .. }));
        self.summary.copies += of(|step| matches!(step, Step::Copy { .. }));
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
        self.evict();
        self.read(owner)
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

    fn commit_all(&mut self) -> Result<(), Violation> {
        (0..WRITERS).try_for_each(|owner| self.commit(owner))
    }

    /// One step of compaction; in half of the cases beside writes that are not committed.
    fn compact(&mut self) -> Result<(), Violation> {
        if self.rng.one_in(2) { self.clean() } else { self.step_compaction() }
    }

    /// One step of compaction for somebody who waits for space: nothing that is not committed keeps it from being freed.
    fn clean(&mut self) -> Result<(), Violation> {
        self.commit_all()?;
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

    /// Ends every key of all writers.
    fn flush_all(&mut self, owner: usize) -> Result<(), Violation> {
        self.commit_all()?;
        match self.engine.flush_all(&mut self.owners[owner].writer, 1) {
            Ok(flushed) => flushed.ungated(),
            Err(KvError::Wait(_) | KvError::Heap(HeapError::Full)) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        self.owners[owner].writer.commit_now()?;
        for owner in 0..WRITERS {
            self.owners[owner].effects.push(Effect::of_flush());
            self.owners[owner].longs = vec![None; LONG];
            self.acknowledge(owner);
        }
        Ok(())
    }

    fn evict(&mut self) {
        let evicted = self.drop_data();
        self.summary.evicted += evicted;
        self.summary.beside += u64::from(evicted > 0 && self.is_in_flight());
    }

    /// Has data leave memory. Returns how many bytes.
    fn drop_data(&self) -> u64 {
        let is_mistaken = match self.leaves {
            Leaves::WhatMay => false,
            Leaves::Anything => true,
            Leaves::WhatIsInFlight => self.is_in_flight(),
        };
        if !is_mistaken {
            return evict_what_may(&self.engine);
        }
        let runs = self.engine.heap().runs().iter();
        let data = runs.filter(|(_, run)| run.used_for() == RunUse::Data);
        data.map(|(id, _)| self.media.evict(id.off(), Evict::Any, ChunkSet::ALL)).sum()
    }

    /// Reads a long value, from which data leave memory while it is held, and a part of it.
    fn read(&mut self, owner: usize) -> Result<(), Violation> {
        let number = self.rng.below(LONG as u64) as usize;
        let name = key(owner, number);
        let held = self.engine.get(0, &name, 0)?.ungated();
        let evicted = self.drop_data();
        let expected = self.owners[owner].longs[number].clone();
        let found = held.as_ref().map(|item| item.to_vec()).transpose()?;
        ensure!(found.as_deref() == expected.as_deref().map(Vec::as_slice), "{number} is another value");
        drop(held);
        self.summary.evicted += evicted;
        let Some(expected) = expected else { return Ok(()) };
        let (from, to) = (self.rng.between(0, expected.len()), self.rng.between(0, expected.len()));
        let part = from.min(to)..from.max(to);
        let found = self.engine.get_part(0, &name, 0, |_| part.clone())?.ungated();
        let found = found.map(|part| part.to_vec(self.engine.heap())).transpose()?;
        ensure!(found.as_deref() == Some(&expected[part]), "a part of {number} is another value");
        Ok(())
    }

    /// Recovers an image of the crash, through crashes of recovery, judges what is found and goes on.
    fn crash(&mut self, state: &CrashState) -> Result<(), Violation> {
        self.summary.crashes += 1;
        let mut image = state.draw(self.rng.draw());
        for _ in 0..self.rng.below(RECOVERY_CRASHES_MAX) {
            let media = self.medium(&image);
            media.freeze_at(1 + self.rng.below(20));
            self.judged(&media)?;
            self.summary.recovery_crashes += 1;
            let state = media.frozen().unwrap_or_else(|| media.crash_state());
            image = state.draw(self.rng.draw());
        }
        self.media = self.medium(&image);
        let (engine, found) = self.judged(&self.media)?;
        engine.group_up_to(self.group_max);
        let early =
            |(owner, found): (&Owner, &(State, Longs))| owner.judge(&found.0) > Some(owner.acknowledged);
        self.summary.found_early += u64::from(self.owners.iter().zip(&found).any(early));
        self.owners =
            found.into_iter().enumerate().map(|(id, found)| Owner::new(&engine, id, found)).collect();
        self.compactor = Compactor::new(Arc::clone(engine.heap()));
        self.engine = engine;
        Ok(())
    }

    fn medium(&self, image: &CrashImage) -> Arc<SimMedia> {
        let media = SimMedia::restart(image, SimOptions { deferred: self.deferred });
        skip_site(&media, self.plan.skip);
        media.page(MEMORY);
        media
    }

    /// What is found on a medium, if the rules allow it.
    fn judged(&self, media: &Arc<SimMedia>) -> Result<(Engine, Vec<(State, Longs)>), Violation> {
        let engine = recover(&(Arc::clone(media) as Arc<dyn Media>))?;
        evict_what_may(&engine);
        let mut found = Vec::new();
        for (number, owner) in self.owners.iter().enumerate() {
            let (state, longs) = found_of(&engine, number)?;
            ensure!(
                owner.judge(&state).is_some(),
                "writer {number}: no state after {}..={} of its operations; the last are {:?}",
                owner.acknowledged,
                owner.effects.len(),
                owner.effects.iter().rev().take(3).collect::<Vec<_>>()
            );
            found.push((state, longs));
        }
        recount(&engine, 0)?;
        Ok((engine, found))
    }
}

/// As if more than all of the memory were to come.
fn evict_what_may(engine: &Engine) -> u64 {
    engine.heap().relieve_memory(RUNS * RUN_SIZE)
}

/// All keys of a writer, and its long values.
fn found_of(engine: &Engine, owner: usize) -> Result<(State, Longs), Violation> {
    let (mut state, mut longs) = (State::new(), Longs::new());
    for number in 0..KEYS {
        let item = engine.get(0, &key(owner, number), 0)?.ungated();
        let bytes = item.map(|item| item.to_vec()).transpose()?;
        if number < LONG {
            state.push(bytes.as_deref().map(digest));
            longs.push(bytes.map(Arc::new));
        } else {
            state.push(bytes.map(|bytes| short_version(number, &bytes)).transpose()?);
        }
    }
    Ok((state, longs))
}
