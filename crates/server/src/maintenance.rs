//! Background work on one thread: loading, preparing slabs, moving watermarks, purging expired keys, compaction,
//! scrubbing. All of it runs in small steps, so that no lock is held for long. It is for all systems in the region: the
//! mount of its files has no thread of its own for the heap.

use crate::chain;
use crate::counters::count;
use crate::files::FilesMount;
use crate::scrubber::Scrubber;
use crate::shared::{Shared, now_ns};
use landfall_heap::{Compacted, Compactor, FreeGoal, HeapError, Owner, OwnerBySpace, Until, Writer, spaces};
use landfall_kv::KvError;
use landfall_wal::WalError;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Pause between checks for work.
const PAUSE: Duration = Duration::from_millis(5);
/// Pause while there is much work that is not urgent, so that the workers get the core.
const PAUSE_BUSY: Duration = Duration::from_micros(500);
/// Bytes that one compaction step moves.
const STEP_BYTES: u64 = 1 << 20;
/// Compaction steps in a row while too few runs are free.
const STEPS_MAX: usize = 32;
/// Keys purged in one step.
const STEP_KEYS: usize = 512;
/// Interval at which logs are trimmed to their retention settings.
const RETAIN_EVERY: Duration = Duration::from_millis(100);
/// Trimmed entries freed in one step.
const STEP_ENTRIES: usize = 2048;
/// Slots by which a slab's watermark may lag under load.
const MARK_STEP: u32 = 4096;
/// Interval at which watermarks are moved all the way.
const MARK_ALL_EVERY: Duration = Duration::from_secs(1);
/// Runs loaded in the background in one step.
const LOADS_PER_STEP: usize = 8;

/// Free runs prepared, or returned to the medium, in one step; more than the writes of a second use.
const FREE_RUNS_PER_STEP: usize = 8;
/// Free runs that were not needed for this long are returned.
const WINDOW: Duration = Duration::from_secs(1);
/// The search for runs to compact takes at most this part of the time.
const IDLE_FACTOR: u32 = 50;
/// Longest pause of the search while a writer waits for space.
const IDLE_MAX: Duration = Duration::from_millis(100);

/// Writers of a mount of files: that of the log, and that which publishes it.
const WRITERS_OF_FILES: usize = 2;

/// Writer id of the purger. Workers count from 0, and the compactor has its own id.
const PURGER_ID: u8 = 253;

/// Pause of a job that failed, so that it does not use a core for nothing.
const PAUSE_FAILED: Duration = Duration::from_secs(1);

/// The background jobs. Damage stops only the job that it concerns, and jobs do not stop each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Job {
    Load,
    PrepareFreeRuns,
    PrepareSlabs,
    Mark,
    Purge,
    KeepLogs,
    Compact,
    Scrub,
}

impl Job {
    fn name(self) -> &'static str {
        match self {
            Self::Load => "loading",
            Self::PrepareFreeRuns => "preparing and returning free runs",
            Self::PrepareSlabs => "preparing slabs",
            Self::Mark => "moving watermarks",
            Self::Purge => "expiry",
            Self::KeepLogs => "trimming logs",
            Self::Compact => "compaction",
            Self::Scrub => "scrubbing",
        }
    }
}

/// Jobs that failed, and the time of their next attempt.
#[derive(Debug, Default)]
struct Failures(BTreeMap<Job, Instant>);

impl Failures {
    /// Runs a step of one job. A failure is logged once until the job succeeds, and the job is tried again later; other
    /// jobs continue.
    fn attempt<R: Default>(
        &mut self,
        job: Job,
        now: Instant,
        step: impl FnOnce() -> Result<R, KvError>,
    ) -> R {
        if self.0.get(&job).is_some_and(|until| now < *until) {
            return R::default();
        }
        match step() {
            Ok(done) => {
                self.0.remove(&job);
                done
            }
            Err(error) => {
                if self.0.insert(job, now + PAUSE_FAILED).is_none() {
                    tracing::error!(%error, job = job.name(), "background work failed; other jobs continue");
                }
                R::default()
            }
        }
    }
}

/// The background worker.
pub(crate) struct Maintenance {
    shared: Arc<Shared>,
    compactor: Compactor,
    purger: Writer,
    scrubber: Scrubber,
    /// Logs are trimmed to their settings again at this time.
    retain_at: Instant,
    /// How long compaction took in the last round.
    compacted_for: Duration,
    loading: bool,
    window_began: Instant,
    marked_at: Instant,
    /// The compactor found no run worth compacting, and is not asked again until then.
    idle_until: Instant,
    failures: Failures,
}

impl Maintenance {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        let heap = shared.engine.heap();
        let now = Instant::now();
        Self {
            compactor: Compactor::new(Arc::clone(heap)),
            purger: Writer::new(Arc::clone(heap), PURGER_ID),
            scrubber: Scrubber::new(Arc::clone(&shared)),
            shared,
            retain_at: now,
            compacted_for: Duration::ZERO,
            loading: true,
            window_began: now,
            marked_at: now,
            idle_until: now,
            failures: Failures::default(),
        }
    }

    /// Works until the server stops, then moves every watermark.
    pub(crate) fn run(mut self) {
        let _ = self.shared.maintenance.set(std::thread::current());
        while !self.shared.is_stopping() {
            let mount = self.shared.files.mount();
            let asked = mount.as_ref().map_or(0, |mount| mount.asked());
            let busy = self.step();
            match mount {
                Some(mount) if chain::asks_for_room(&self.shared) => mount.note_progress(),
                Some(mount) if !busy => mount.answer(asked),
                _ => {}
            }
            // A writer that waits for space wakes this thread.
            std::thread::park_timeout(if busy { PAUSE_BUSY } else { PAUSE });
        }
        if let Some(mount) = self.shared.files.mount() {
            mount.end_answers();
        }
    }

    /// Runs a step of every job; true if there is more to do at once.
    fn step(&mut self) -> bool {
        self.attempt(Job::Load, Self::load);
        if self.shared.engine.heap().media().closed().is_some() {
            return false;
        }
        self.shared.engine.heap().relieve_memory(0);
        self.attempt(Job::PrepareFreeRuns, Self::prepare_free_runs);
        self.attempt(Job::PrepareSlabs, |worker| worker.prepare_slabs());
        self.attempt(Job::Mark, Self::mark);
        let purging = self.attempt(Job::Purge, Self::purge);
        let sweeping = self.attempt(Job::KeepLogs, Self::keep_logs);
        let begun = Instant::now();
        let compacting = self.attempt(Job::Compact, Self::compact);
        self.compacted_for = begun.elapsed();
        if !self.loading {
            self.attempt(Job::Scrub, |worker| worker.scrubber.step());
        }
        purging || sweeping || compacting || self.loading
    }

    /// Runs a step of one job.
    fn attempt<R: Default>(&mut self, job: Job, step: impl FnOnce(&mut Self) -> Result<R, KvError>) -> R {
        let mut failures = std::mem::take(&mut self.failures);
        let done = failures.attempt(job, Instant::now(), || step(self));
        self.failures = failures;
        done
    }

    /// The mount of the region's files, while there is one.
    fn mount(&self) -> Option<Arc<dyn FilesMount>> {
        self.shared.files.mount()
    }

    /// True if files are written: by a mount, or by the node before in a chain.
    fn writes_files(&self) -> bool {
        self.mount().is_some() || self.shared.chain.is_some() && self.shared.files.files().is_some()
    }

    /// Loads a file's runs into memory.
    fn load(&mut self) -> Result<(), KvError> {
        let media = self.shared.engine.heap().media();
        for _ in 0..LOADS_PER_STEP {
            match media.load_some() {
                Ok(true) => {}
                Ok(false) => {
                    if std::mem::replace(&mut self.loading, false) && !self.shared.engine.heap().is_paged() {
                        tracing::info!("everything is in memory");
                    }
                    break;
                }
                // Each unreadable run is reported once; the others are loaded.
                Err(error) => tracing::error!(%error, "a part of the region cannot be read"),
            }
        }
        Ok(())
    }

    /// Prepares free runs ahead of their use, and returns runs that were not needed for a while, a few at a time.
    fn prepare_free_runs(&mut self) -> Result<(), KvError> {
        let window_over = self.window_began.elapsed() >= WINDOW;
        if window_over {
            self.window_began = Instant::now();
        }
        let heap = self.shared.engine.heap();
        let goal = if self.writes_files() { FreeGoal::TOGETHER } else { FreeGoal::DEFAULT };
        for step in 0..FREE_RUNS_PER_STEP {
            if !heap.maintain_free_runs(goal, window_over && step == 0)? {
                break;
            }
        }
        Ok(())
    }

    /// Keeps slabs ready, so that no worker has to zero one while clients wait.
    fn prepare_slabs(&self) -> Result<(), KvError> {
        let heap = self.shared.engine.heap();
        // One more for the log of files, and for what publishes it.
        let writers = self.shared.config.workers + if self.writes_files() { WRITERS_OF_FILES } else { 0 };
        if heap.has_room() && heap.spare_slabs() < writers.div_ceil(4) + 1 {
            heap.prepare_slab_within_reserve()?;
        }
        Ok(())
    }

    fn mark(&mut self) -> Result<(), KvError> {
        let heap = self.shared.engine.heap();
        let all = self.marked_at.elapsed() >= MARK_ALL_EVERY;
        if all {
            self.marked_at = Instant::now();
        }
        heap.mark_slabs(if all { 1 } else { MARK_STEP })?;
        Ok(())
    }

    /// Repeats a step of a job that makes space, while it has more to do, as long as compaction took in the last round: a round
    /// that is slow because space is short would otherwise make the less of it. True if there is more to do.
    fn repeat(&mut self, step: impl Fn(&mut Self) -> Result<bool, KvError>) -> Result<bool, KvError> {
        let begun = Instant::now();
        loop {
            if !step(self)? {
                return Ok(false);
            }
            if begun.elapsed() >= self.compacted_for {
                return Ok(true);
            }
        }
    }

    /// Purges expired keys. True if there are more.
    fn purge(&mut self) -> Result<bool, KvError> {
        self.repeat(Self::purge_some)
    }

    fn purge_some(&mut self) -> Result<bool, KvError> {
        let now_ms = now_ns() / 1_000_000;
        if !chain::may_purge(&self.shared)
            || self.shared.engine.next_expiry_ms().is_none_or(|due| due > now_ms)
        {
            return Ok(false);
        }
        let purged = match self.shared.engine.purge_expired(&mut self.purger, now_ms, STEP_KEYS) {
            // There is no slot for a tombstone: the compaction that follows makes room.
            Err(KvError::Wait(_) | KvError::Heap(HeapError::Full)) => Ok(0),
            other => other,
        };
        // Keys purged before an error are committed nevertheless.
        self.purger.commit_now()?;
        // Readers that found a key just purged wait for its tombstone.
        self.shared.wake_all();
        Ok(purged? == STEP_KEYS)
    }

    /// Trims logs to their retention settings, and frees trimmed entries. True if there is more to do.
    fn keep_logs(&mut self) -> Result<bool, KvError> {
        let mut is_behind = false;
        if chain::may_purge(&self.shared) && Instant::now() >= self.retain_at {
            is_behind = self.repeat(Self::retain_some)?;
            if !is_behind {
                self.retain_at = Instant::now() + RETAIN_EVERY;
            }
        }
        Ok(self.repeat(Self::sweep_some)? || is_behind)
    }

    fn retain_some(&mut self) -> Result<bool, KvError> {
        let retained = self.shared.logs.retain(&mut self.purger, now_ns() / 1_000_000);
        // What was trimmed before an error is committed nevertheless.
        self.purger.commit_now()?;
        match retained {
            Ok(done) => Ok(done.has_more),
            Err(WalError::Wait(Until::Commit)) => Ok(true),
            Err(WalError::Wait(_) | WalError::Heap(HeapError::Full)) => Ok(false),
            Err(WalError::Heap(error)) => Err(error.into()),
            Err(error) => {
                tracing::error!(%error, "a log cannot be trimmed");
                Ok(false)
            }
        }
    }

    fn sweep_some(&mut self) -> Result<bool, KvError> {
        let may_sweep = chain::may_change_records(&self.shared);
        Ok(may_sweep && self.shared.logs.sweep(STEP_ENTRIES) == STEP_ENTRIES)
    }

    /// Makes space while too few runs are free, as fast as possible: faster writers wait for it. True while there is
    /// more to do.
    fn compact(&mut self) -> Result<bool, KvError> {
        let mount = self.mount();
        if !chain::may_change_records(&self.shared) {
            return Ok(false);
        }
        if Instant::now() < self.idle_until && !mount.as_ref().is_some_and(|mount| mount.is_asked()) {
            return Ok(false);
        }
        for _ in 0..STEPS_MAX {
            let begun = Instant::now();
            let done = self.compact_step()?;
            if self.shared.engine.heap().take_awaited() {
                self.shared.wake_all();
            }
            if let Some(mount) = &mount {
                mount.note_progress();
            }
            if done.is_idle {
                // The compactor may have checked all runs without finding one worth compacting.
                self.idle_until = Instant::now() + (begun.elapsed() * IDLE_FACTOR).min(IDLE_MAX);
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn compact_step(&mut self) -> Result<Compacted, KvError> {
        let files = self.shared.files.files().map(|files| (spaces::FILES, &**files as &dyn Owner));
        let others: SmallVec<[(_, &dyn Owner); 2]> =
            [(spaces::LOGS, &self.shared.logs as &dyn Owner)].into_iter().chain(files).collect();
        let owner = OwnerBySpace { default: &self.shared.engine, others: &others };
        let goal = self.shared.engine.heap().compact_goal();
        let done = match self.compactor.step(&owner, goal, STEP_BYTES) {
            // No space is left to work with: deletes free runs without compaction.
            Err(HeapError::Full) => Compacted { is_idle: true, ..Compacted::default() },
            other => other?,
        };
        count(&self.shared.counters.compacted_bytes, done.moved_bytes);
        count(&self.shared.counters.compacted_records, done.moved_records);
        Ok(done)
    }
}

/// Moves every watermark after the last writer has ended, so that the next start trusts all data.
pub(crate) fn leave_clean(shared: &Shared) {
    if let Err(error) = shared.engine.heap().mark_slabs(1) {
        tracing::error!(%error, "watermarks were not written; the next start will read more data");
    }
}

#[cfg(test)]
mod tests {
    use super::{Failures, Job, PAUSE_FAILED};
    use landfall_heap::HeapError;
    use landfall_kv::KvError;
    use std::time::Instant;

    fn fails() -> Result<u32, KvError> {
        Err(HeapError::Full.into())
    }

    #[test]
    fn a_job_that_fails_is_tried_again_later_and_other_jobs_continue() {
        let (mut failures, now) = (Failures::default(), Instant::now());
        assert_eq!(failures.attempt(Job::Load, now, fails), 0);
        assert_eq!(failures.attempt(Job::Load, now, || Ok(1)), 0, "not at once");
        assert_eq!(failures.attempt(Job::Compact, now, || Ok(2)), 2, "another job");
        assert_eq!(failures.attempt(Job::Load, now + PAUSE_FAILED, || Ok(3)), 3);
        assert_eq!(failures.attempt(Job::Load, now, || Ok(4)), 4, "what has succeeded does not wait");
    }
}
