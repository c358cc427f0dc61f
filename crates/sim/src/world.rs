//! A simulated system: one engine on a simulated medium, its workers, and the oracle that follows their operations.

mod background;
mod checks;
mod commands;
mod commits;

use crate::observe::{open, recover};
use crate::op::{Op, key};
use crate::oracle::Oracle;
use crate::violation::Violation;
use landfall_heap::{CompactGoal, Compacted, Compactor, NewRegion, Writer};
use landfall_kv::{Engine, Recovered};
use landfall_media::sim::{CrashImage, SimMedia, SimOptions};
use landfall_media::{Dirty, Media, RUN_SIZE};
use std::sync::Arc;

/// Most unacknowledged operations of a writer before it commits. This bounds the states that the oracle must consider.
const PENDING_MAX: usize = 40;
/// Goals of single steps of compaction: move data, or move records. With them, a step moves whatever can be moved.
const GOALS: [CompactGoal; 2] = [CompactGoal::DENSE_DATA, CompactGoal::DENSE_SLABS];

/// Settings of a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup {
    /// Runs of 1 MiB, 32 at least.
    pub runs: u32,
    /// Number of workers, 1 at least.
    pub writers: usize,
    /// Fences are device I/O, so that batches overlap.
    pub deferred: bool,
    /// Landed bytes carry their sums, which are their only checksums. Not with `deferred`.
    pub sums: bool,
    /// Records up to which what counts as one is a group; more are a transaction.
    pub group_max: usize,
}

impl Setup {
    fn options(&self) -> SimOptions {
        SimOptions { deferred: self.deferred }
    }
}

/// A worker.
struct Worker {
    writer: Writer,
    /// The batch in flight: what its fence makes durable, and how many operations it acknowledges.
    in_flight: Option<(Dirty, usize)>,
}

/// One engine on a simulated medium, its workers, and the oracle that follows their operations.
pub struct World {
    setup: Setup,
    /// The medium.
    pub media: Arc<SimMedia>,
    /// The engine.
    pub engine: Engine,
    workers: Vec<Worker>,
    compactor: Compactor,
    /// The oracle.
    pub oracle: Oracle,
    /// Simulated time, Unix milliseconds.
    pub now_ms: u64,
    /// Counts of compaction since the region was opened.
    pub compacted: Compacted,
}

impl World {
    /// Creates an empty region. `prepare` gets the medium before anything is written.
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

    /// Opens the region on `media`, which must be undamaged, without judging it.
    ///
    /// # Errors
    /// The region cannot be opened, or recovery reports damage.
    pub fn open(setup: Setup, media: Arc<SimMedia>, oracle: Oracle, now_ms: u64) -> Result<Self, Violation> {
        let engine = recover(&as_media(&media))?;
        Ok(Self::around(setup, media, engine, oracle, now_ms))
    }

    /// Opens the region on `media`, which may be damaged, and returns the report of recovery, too.
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
        if setup.sums {
            // An error closes the medium, and the next write reports it.
            let _ = heap.set_integrity(landfall_heap::Integrity::Tcp);
        }
        engine.group_up_to(setup.group_max);
        let worker = |id| Worker { writer: Writer::new(Arc::clone(&heap), id as u8), in_flight: None };
        let workers = (0..setup.writers).map(worker).collect();
        let compactor = Compactor::new(Arc::clone(&heap));
        let compacted = Compacted::default();
        Self { setup, media, engine, workers, compactor, oracle, now_ms, compacted }
    }

    /// The settings of this world.
    pub fn setup(&self) -> Setup {
        self.setup
    }

    /// A medium that holds `image`, for a restart.
    pub fn medium(&self, image: &CrashImage) -> Arc<SimMedia> {
        SimMedia::restart(image, self.setup.options())
    }

    /// Executes one operation, and notes it in the oracle.
    ///
    /// # Errors
    /// A result or an error that the rules do not allow.
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
    /// The errors of [`Self::run`].
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
            Op::Extend { writer, key: index, value } => self.extend(writer, &key(index), value),
            Op::Patch { writer, key: index, value, at } => self.patch(writer, &key(index), value, at),
            Op::Land { writer, key: index, value, pieces } => self.land(writer, &key(index), value, pieces),
            Op::FlushAll { writer } => self.flush_all(writer),
            Op::Commit { writer } => self.commit(writer),
            Op::BeginCommit { writer } => {
                self.begin(writer);
                Ok(())
            }
            Op::FinishCommit { writer } => self.finish(writer),
            Op::Compact { budget, slabs } => self.compact(GOALS[usize::from(slabs)], budget).map(|_| ()),
            Op::CompactWithInterference { writer, seed } => self.compact_with_interference(writer, seed),
            Op::Mark => self.engine.heap().mark_slabs(1).map(|_| ()).map_err(Violation::from),
            Op::PrepareSlab => self.engine.heap().prepare_slab_within_reserve().map_err(Violation::from),
            Op::MaintainFreeRuns { keep } => self.maintain_free_runs(keep),
            Op::Purge { writer } => self.purge(writer),
            Op::Wait { ms } => {
                self.now_ms += ms;
                Ok(())
            }
            Op::Churn { writer, count, seed } => self.churn(writer, count, seed),
            Op::Check => self.check(),
        }
    }
}

fn as_media(media: &Arc<SimMedia>) -> Arc<dyn Media> {
    Arc::clone(media) as Arc<dyn Media>
}
