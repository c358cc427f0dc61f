//! The background scrub checks the keys in memory, then the logs, then the data of files, then the medium if that is
//! separate, each in small steps.

use std::sync::Arc;
use std::time::{Duration, Instant};

use landfall_fs::FilesScrub;
use landfall_heap::RunId;
use landfall_kv::{KvError, ScrubCursor};
use landfall_wal::LogScrub;

use crate::counters::count;
use crate::shared::{Shared, now_ns};

/// Keys, log entries, or records of files, checked in one step.
const STEP: usize = 64;
/// Cost of a key, at least, bytes: finding a key takes as long as checking this many.
const KEY_COST: u64 = 1024;
/// Cost of a record without its data, bytes.
const RECORD_COST: u64 = 128;
/// Least cost of a step, bytes.
const STEP_COST: u64 = 4096;
/// A step runs once this many bytes of the rate have accumulated.
const STEP_WORTH: f64 = 64.0 * 1024.0;
/// A pass begins this long after the previous one began, or when that one ends. Damage develops over years, while a
/// pass over a small store takes seconds.
const PASS_EVERY: Duration = Duration::from_secs(600);

/// Current stage of a scrub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Keys,
    Logs,
    Files,
    /// The next run to check.
    Medium(u32),
    Idle,
}

/// Rate limiter of the scrub.
#[derive(Debug)]
struct Pace {
    stage: Stage,
    /// Bytes that may be scrubbed now; negative after a step that cost more.
    budget: f64,
    seen_at: Instant,
    pass_began: Instant,
}

impl Pace {
    fn new(now: Instant) -> Self {
        Self { stage: Stage::Keys, budget: 0.0, seen_at: now, pass_began: now }
    }

    /// The stage to run a step of, if the rate (bytes a second) allows one.
    fn due(&mut self, now: Instant, rate: f64) -> Option<Stage> {
        let since = now.duration_since(self.seen_at).as_secs_f64();
        self.seen_at = now;
        // The budget holds at most one second's worth, or what a step is worth; the debt of a large run is kept.
        self.budget = (self.budget + rate * since).min(rate.max(STEP_WORTH));
        if self.stage == Stage::Idle && now.duration_since(self.pass_began) >= PASS_EVERY {
            self.pass_began = now;
            self.stage = Stage::Keys;
        }
        (self.stage != Stage::Idle && self.budget >= STEP_WORTH).then_some(self.stage)
    }

    fn spend(&mut self, bytes: u64) {
        self.budget -= bytes as f64;
    }
}

/// Checks stored data at the configured rate.
pub(crate) struct Scrubber {
    shared: Arc<Shared>,
    keys: ScrubCursor,
    logs: LogScrub,
    files: FilesScrub,
    pace: Pace,
}

impl Scrubber {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            keys: ScrubCursor::default(),
            logs: LogScrub::default(),
            files: FilesScrub::default(),
            pace: Pace::new(Instant::now()),
        }
    }

    /// Runs a step, if one is due.
    ///
    /// # Errors
    /// Errors of the medium.
    pub(crate) fn step(&mut self) -> Result<(), KvError> {
        match self.pace.due(Instant::now(), self.shared.config.scrub_rate.0 as f64) {
            Some(Stage::Keys) => self.keys(),
            Some(Stage::Logs) => {
                self.logs();
                Ok(())
            }
            Some(Stage::Files) => {
                self.files();
                Ok(())
            }
            Some(Stage::Medium(run)) => self.medium(run),
            Some(Stage::Idle) | None => Ok(()),
        }
    }

    fn keys(&mut self) -> Result<(), KvError> {
        let done = self.shared.engine.scrub(&mut self.keys, STEP, now_ns() / 1_000_000)?;
        if done.wrapped {
            self.pace.stage = Stage::Logs;
        }
        self.pace.spend((done.bytes + done.keys * RECORD_COST).max(done.keys * KEY_COST).max(STEP_COST));
        self.count(done.keys, done.bytes, done.findings.len());
        for finding in &done.findings {
            let key = String::from_utf8_lossy(&finding.key);
            tracing::error!(%key, database = finding.space, what = %finding.what, "damaged: not served; write or delete the key to repair it");
        }
        Ok(())
    }

    fn logs(&mut self) {
        let done = self.shared.logs.scrub(&mut self.logs, STEP);
        if done.wrapped {
            self.pace.stage = Stage::Files;
        }
        self.pace.spend((done.bytes + done.entries * RECORD_COST).max(STEP_COST));
        self.count(done.entries, done.bytes, done.findings.len());
        for (log, offset, what) in &done.findings {
            tracing::error!(log, offset, %what, "damaged: not served; trim past it");
        }
    }

    fn files(&mut self) {
        let done = self.shared.files.files().map(|files| files.scrub(&mut self.files, STEP as u64));
        if done.as_ref().is_none_or(|done| done.wrapped) {
            let apart = self.shared.engine.heap().has_separate_medium();
            self.pace.stage = if apart { Stage::Medium(0) } else { Stage::Idle };
        }
        let Some(done) = done else { return };
        self.pace.spend((done.bytes + done.records * RECORD_COST).max(STEP_COST));
        self.count(done.records, done.bytes, done.findings.len());
        for (file, offset, what) in &done.findings {
            tracing::error!(inode = file.0, offset, %what, "damaged: not served; write this part of the file again");
        }
    }

    /// Checks one run of the medium against memory, and rewrites the parts that are damaged only on the medium.
    fn medium(&mut self, run: u32) -> Result<(), KvError> {
        let heap = self.shared.engine.heap();
        let last = run + 1 >= heap.geometry().runs;
        self.pace.stage = if last { Stage::Idle } else { Stage::Medium(run + 1) };
        let done = heap.scrub_medium(RunId(run)).inspect_err(|_| self.count(0, 0, 1))?;
        self.pace.spend(done.bytes);
        self.count(0, done.bytes, done.damaged.len());
        for slot in done.damaged {
            let view = heap.record(slot).ok();
            let key = view.as_ref().and_then(|view| heap.key(view).ok());
            let key = key.as_deref().map(String::from_utf8_lossy);
            tracing::error!(slot = slot.0, ?key, "damaged on the medium, intact in memory: rewritten");
            heap.write_again(slot)?;
        }
        Ok(())
    }

    fn count(&self, keys: u64, bytes: u64, findings: usize) {
        let counters = &self.shared.counters;
        count(&counters.scrubbed_keys, keys);
        count(&counters.scrubbed_bytes, bytes);
        count(&counters.scrub_findings, findings as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_below_what_a_step_is_worth_has_steps_that_are_far_apart() {
        let now = Instant::now();
        let mut pace = Pace::new(now);
        assert_eq!(pace.due(now + Duration::from_secs(1), 32.0 * 1024.0), None);
        assert_eq!(pace.due(now + Duration::from_secs(3), 32.0 * 1024.0), Some(Stage::Keys));
    }

    const RATE: f64 = 16.0 * 1024.0 * 1024.0;
    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_step_waits_for_its_share_of_the_rate_and_pays_for_what_it_read() {
        let start = Instant::now();
        let mut pace = Pace::new(start);
        assert_eq!(pace.due(start, RATE), None, "nothing has come together");
        assert_eq!(pace.due(start + SECOND, RATE), Some(Stage::Keys));
        pace.spend(48 << 20);
        assert_eq!(pace.due(start + 2 * SECOND, RATE), None, "in debt");
        assert_eq!(pace.due(start + 4 * SECOND, RATE), Some(Stage::Keys));
        assert_eq!(Pace::new(start).due(start + SECOND, 0.0), None, "no rate: no scrub");
    }

    #[test]
    fn a_pass_begins_ten_minutes_after_the_last_one_began() {
        let start = Instant::now();
        let mut pace = Pace::new(start);
        pace.stage = Stage::Idle;
        assert_eq!(pace.due(start + PASS_EVERY - SECOND, RATE), None);
        assert_eq!(pace.due(start + PASS_EVERY, RATE), Some(Stage::Keys));
        // A pass that takes longer is followed by the next one at once.
        pace.stage = Stage::Idle;
        assert_eq!(pace.due(start + 2 * PASS_EVERY, RATE), Some(Stage::Keys));
    }
}
