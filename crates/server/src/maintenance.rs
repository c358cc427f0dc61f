//! Background work on one thread: loading, preparing slabs, moving watermarks, purging expired keys,
//! compaction, scrubbing. Each in small steps, so that no lock is held for long.

use crate::shared::{Shared, count, now_ns};
use landfall_heap::{CompactGoal, Compacted, Compactor, HeapError, Owner, OwnerBySpace, Writer, spaces};
use landfall_kv::{KvError, ScrubCursor};
use landfall_wal::{LogScrub, WalError};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Pause between looks at what there is to do.
const PAUSE: Duration = Duration::from_millis(5);
/// Pause while there is plenty to do but no hurry: leaves the core to the workers.
const PAUSE_BUSY: Duration = Duration::from_micros(500);
/// Bytes that one compaction step moves.
const STEP_BYTES: u64 = 256 << 10;
/// Compaction steps in a row while the region is well above its goal.
const STEPS_BEHIND_MAX: usize = 32;
/// Keys purged, and keys scrubbed, in one step.
const STEP_KEYS: usize = 512;
/// How often logs are trimmed to what they are set to keep.
const RETAIN_EVERY: Duration = Duration::from_millis(100);
/// Trimmed entries freed in one step.
const STEP_ENTRIES: usize = 2048;
/// Slots by which a slab's watermark may lag behind under load.
const MARK_STEP: u32 = 4096;
/// How often watermarks are moved all the way.
const MARK_ALL_EVERY: Duration = Duration::from_secs(1);
/// No commit for this long: the server counts as idle, and compaction goes further.
const IDLE_AFTER: Duration = Duration::from_millis(300);
/// Runs loaded in the background in one step.
const LOADS_PER_STEP: usize = 8;

/// How dense the region is kept while writes go on: within the bound of 1.6 times (3 for small values).
const GOAL_LOADED: CompactGoal = CompactGoal { data_ratio: 1.27, slab_ratio: 1.4 };
/// The same where each packet has a frame of its own, which a value of 1 KiB fills by half: packing them is left
/// for when there is time, or no space.
const GOAL_LOADED_PACKETS: CompactGoal = CompactGoal { data_ratio: 2.6, slab_ratio: 1.4 };
/// How dense it becomes once they rest: within the bound of 1.25 times (2.2 for small values).
const GOAL_IDLE: CompactGoal = CompactGoal { data_ratio: 1.03, slab_ratio: 1.03 };
/// Times the goal at which writers are slowed down: compaction cannot keep up with them.
const BRAKE_FROM: f32 = 1.06;
/// Pause after each commit for each unit above that, seconds: 500 us at 7 % above the goal.
const BRAKE_SLOPE: f32 = 0.05;
/// Longest pause after a commit, seconds.
const BRAKE_MAX: f32 = 0.005;
/// Looking for runs to compact takes at most one part in so many of the time.
const REST_FACTOR: u32 = 50;

/// Writer id of the purger; workers count from 0, the compactor has an id of its own.
const PURGER_ID: u8 = 253;

/// The background worker.
pub(crate) struct Maintenance {
    shared: Arc<Shared>,
    compactor: Compactor,
    purger: Writer,
    scrub: ScrubCursor,
    /// Where the scrub of logs stands; keys and logs take turns.
    log_scrub: LogScrub,
    scrubs_logs: bool,
    retained_at: Instant,
    scrub_debt: f64,
    scrubbed_at: Instant,
    loading: bool,
    marked_at: Instant,
    commits_seen: u64,
    wrote_at: Instant,
    /// The compactor has nothing to do, and is not asked again until then.
    rests_until: Instant,
    complained: bool,
}

impl Maintenance {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        let heap = shared.engine.heap();
        let now = Instant::now();
        Self {
            compactor: Compactor::new(Arc::clone(heap)),
            purger: Writer::new(Arc::clone(heap), PURGER_ID),
            shared: Arc::clone(&shared),
            scrub: ScrubCursor::default(),
            log_scrub: LogScrub::default(),
            scrubs_logs: false,
            retained_at: now,
            scrub_debt: 0.0,
            scrubbed_at: now,
            loading: true,
            marked_at: now,
            commits_seen: 0,
            wrote_at: now,
            rests_until: now,
            complained: false,
        }
    }

    /// Works until the server stops, then leaves the region with every watermark moved.
    pub(crate) fn run(mut self) {
        while !self.shared.is_stopping() {
            let busy = self.step();
            std::thread::sleep(if busy { PAUSE_BUSY } else { PAUSE });
        }
    }

    /// True if there is more to do at once.
    fn step(&mut self) -> bool {
        match self.try_step() {
            Ok(busy) => busy,
            Err(error) => {
                if !std::mem::replace(&mut self.complained, true) {
                    tracing::error!(%error, "background work failed; reads go on");
                }
                false
            }
        }
    }

    fn try_step(&mut self) -> Result<bool, KvError> {
        self.load()?;
        if self.shared.engine.heap().media().closed().is_some() {
            return Ok(false);
        }
        self.prepare_slabs()?;
        self.mark()?;
        let purging = self.purge()?;
        let sweeping = self.keep_logs()?;
        let compacting = self.compact()?;
        self.scrub()?;
        Ok(purging || sweeping || compacting || self.loading)
    }

    /// Brings a file's runs into memory, and prepares space ahead of its use.
    fn load(&mut self) -> Result<(), KvError> {
        let media = self.shared.engine.heap().media();
        for _ in 0..LOADS_PER_STEP {
            if !media.load_some()? {
                if std::mem::replace(&mut self.loading, false) {
                    tracing::info!("everything is in memory");
                }
                break;
            }
        }
        Ok(())
    }

    /// Keeps slabs ready, so that no worker has to zero one while clients wait.
    fn prepare_slabs(&self) -> Result<(), KvError> {
        let heap = self.shared.engine.heap();
        if heap.has_room() && heap.spare_slabs() < self.shared.config.workers.div_ceil(4) + 1 {
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

    fn purge(&mut self) -> Result<bool, KvError> {
        let now_ms = now_ns() / 1_000_000;
        if self.shared.engine.next_expiry_ms().is_none_or(|due| due > now_ms) {
            return Ok(false);
        }
        let purged = match self.shared.engine.purge_expired(&mut self.purger, now_ms, STEP_KEYS) {
            Err(KvError::Wait(_)) => Ok(0),
            other => other,
        };
        // What was purged before an error is committed all the same.
        self.purger.commit_now()?;
        // Readers who found a key just purged wait for its tombstone.
        self.shared.wake_all();
        Ok(purged? == STEP_KEYS)
    }

    /// Trims logs to what they are set to keep, and frees what was trimmed. True if there is more to free.
    fn keep_logs(&mut self) -> Result<bool, KvError> {
        let logs = &self.shared.logs;
        if self.retained_at.elapsed() >= RETAIN_EVERY {
            self.retained_at = Instant::now();
            match logs.retain(&mut self.purger, now_ns() / 1_000_000) {
                Ok(_) | Err(WalError::Wait(_)) => {}
                Err(WalError::Heap(error)) => return Err(error.into()),
                Err(error) => tracing::error!(%error, "a log cannot be trimmed"),
            }
            self.purger.commit_now()?;
        }
        Ok(logs.sweep(STEP_ENTRIES) == STEP_ENTRIES)
    }

    fn compact(&mut self) -> Result<bool, KvError> {
        let commits = self.shared.counters.commits.load(Ordering::Relaxed);
        if commits != self.commits_seen {
            self.commits_seen = commits;
            self.wrote_at = Instant::now();
        }
        let loaded = if self.shared.config.xdp.is_some() { GOAL_LOADED_PACKETS } else { GOAL_LOADED };
        let goal = if self.wrote_at.elapsed() > IDLE_AFTER { GOAL_IDLE } else { loaded };
        let begun = Instant::now();
        if begun < self.rests_until {
            return Ok(false);
        }
        for _ in 0..STEPS_BEHIND_MAX {
            let done = self.compact_step(goal)?;
            // A compactor that finds nothing to move is not helped by slower writers.
            self.brake(if done.rests { 0.0 } else { done.excess }, goal);
            if done.rests {
                self.rests_until = Instant::now() + begun.elapsed() * REST_FACTOR;
            }
            if !done.is_behind() || done.rests {
                return Ok(!done.rests);
            }
        }
        Ok(true)
    }

    /// Slows the writers down where compaction cannot keep up with them: the region's size is bounded, their
    /// speed is not.
    fn brake(&self, excess: f32, goal: CompactGoal) {
        let over = if goal != GOAL_IDLE { (excess - BRAKE_FROM).max(0.0) } else { 0.0 };
        let pause = Duration::from_secs_f32((over * BRAKE_SLOPE).min(BRAKE_MAX));
        self.shared.brake_us.store(pause.subsec_micros(), Ordering::Relaxed);
    }

    fn compact_step(&mut self, goal: CompactGoal) -> Result<Compacted, KvError> {
        let others: [(_, &dyn Owner); 1] = [(spaces::LOGS, &self.shared.logs)];
        let owner = OwnerBySpace { rest: &self.shared.engine, others: &others };
        let done = match self.compactor.step(&owner, goal, STEP_BYTES) {
            // Nothing left to work with: deletes will free runs by themselves.
            Err(HeapError::Full) => Compacted { rests: true, ..Compacted::default() },
            other => other?,
        };
        count(&self.shared.counters.compacted_bytes, done.moved_bytes);
        count(&self.shared.counters.compacted_records, done.moved_records);
        Ok(done)
    }

    /// Checks what is stored, at the configured rate.
    fn scrub(&mut self) -> Result<(), KvError> {
        let rate = self.shared.config.scrub_rate.0 as f64;
        let since = self.scrubbed_at.elapsed().as_secs_f64();
        self.scrubbed_at = Instant::now();
        self.scrub_debt = (self.scrub_debt + rate * since).min(rate);
        if self.loading || self.scrub_debt < 64.0 * 1024.0 {
            return Ok(());
        }
        if self.scrubs_logs {
            return self.scrub_logs();
        }
        let done = self.shared.engine.scrub(&mut self.scrub, 64, now_ns() / 1_000_000)?;
        self.scrubs_logs = done.wrapped;
        self.scrub_debt -= (done.bytes + done.keys * 128).max(4096) as f64;
        let counters = &self.shared.counters;
        count(&counters.scrubbed_keys, done.keys);
        count(&counters.scrubbed_bytes, done.bytes);
        count(&counters.scrub_findings, done.findings.len() as u64);
        for finding in &done.findings {
            let key = String::from_utf8_lossy(&finding.key);
            tracing::error!(%key, database = finding.space, what = %finding.what, "damaged: not served; write or delete the key to heal it");
        }
        Ok(())
    }
}

impl Maintenance {
    fn scrub_logs(&mut self) -> Result<(), KvError> {
        let done = self.shared.logs.scrub(&mut self.log_scrub, 64);
        self.scrubs_logs = !done.wrapped;
        self.scrub_debt -= (done.bytes + done.entries * 128).max(4096) as f64;
        let counters = &self.shared.counters;
        count(&counters.scrubbed_keys, done.entries);
        count(&counters.scrubbed_bytes, done.bytes);
        count(&counters.scrub_findings, done.findings.len() as u64);
        for (log, offset, what) in &done.findings {
            tracing::error!(log, offset, %what, "damaged: not served; trim past it");
        }
        Ok(())
    }
}

/// Moves every watermark, when no writer is left: the next start then trusts everything.
pub(crate) fn leave_clean(shared: &Shared) {
    if let Err(error) = shared.engine.heap().mark_slabs(1) {
        tracing::error!(%error, "watermarks were not written; the next start will look at more data");
    }
}
