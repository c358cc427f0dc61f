//! The background scrub: memory's keys, then its logs, then, where that is something else, the medium, each in small steps.

use std::sync::Arc;
use std::time::{Duration, Instant};

use landfall_heap::RunId;
use landfall_kv::{KvError, ScrubCursor};
use landfall_wal::LogScrub;

use crate::shared::{Shared, count, now_ns};

/// Keys checked in one step, and log entries.
const STEP: usize = 64;
/// A key that is scrubbed counts as so many bytes at least: finding it takes as long as checking them.
const KEY_COST: u64 = 1024;
/// A record beside its data, bytes.
const RECORD_COST: u64 = 128;
/// What a step costs at least, bytes.
const STEP_COST: u64 = 4096;
/// A step is taken once so many bytes of the rate have come together.
const STEP_WORTH: f64 = 64.0 * 1024.0;
/// A pass begins so long after the last one began, or when that is done. Damage takes years to come, and a pass over a small
/// store takes seconds.
const PASS_EVERY: Duration = Duration::from_secs(600);

/// Where a scrub stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Keys,
    Logs,
    /// The run that comes next.
    Medium(u32),
    Rest,
}

/// How much may be scrubbed, and when.
#[derive(Debug)]
struct Pace {
    stage: Stage,
    /// Bytes that may be scrubbed now; below zero after a step that cost more.
    budget: f64,
    seen_at: Instant,
    pass_began: Instant,
}

impl Pace {
    fn new(now: Instant) -> Self {
        Self { stage: Stage::Keys, budget: 0.0, seen_at: now, pass_began: now }
    }

    /// What to do a step of, if the rate (bytes a second) allows one.
    fn due(&mut self, now: Instant, rate: f64) -> Option<Stage> {
        let since = now.duration_since(self.seen_at).as_secs_f64();
        self.seen_at = now;
        // Up to a second's worth at once, but for the debt of a run just read.
        self.budget = (self.budget + rate * since).min(rate);
        if self.stage == Stage::Rest && now.duration_since(self.pass_began) >= PASS_EVERY {
            self.pass_began = now;
            self.stage = Stage::Keys;
        }
        (self.stage != Stage::Rest && self.budget >= STEP_WORTH).then_some(self.stage)
    }

    fn spend(&mut self, bytes: u64) {
        self.budget -= bytes as f64;
    }
}

/// Checks what is stored, at the configured rate.
pub(crate) struct Scrubber {
    shared: Arc<Shared>,
    keys: ScrubCursor,
    logs: LogScrub,
    pace: Pace,
}

impl Scrubber {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            keys: ScrubCursor::default(),
            logs: LogScrub::default(),
            pace: Pace::new(Instant::now()),
        }
    }

    /// A step, if one is due.
    ///
    /// # Errors
    /// The medium's.
    pub(crate) fn step(&mut self) -> Result<(), KvError> {
        match self.pace.due(Instant::now(), self.shared.config.scrub_rate.0 as f64) {
            Some(Stage::Keys) => self.keys(),
            Some(Stage::Logs) => {
                self.logs();
                Ok(())
            }
            Some(Stage::Medium(run)) => self.medium(run),
            Some(Stage::Rest) | None => Ok(()),
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
            tracing::error!(%key, database = finding.space, what = %finding.what, "damaged: not served; write or delete the key to heal it");
        }
        Ok(())
    }

    fn logs(&mut self) {
        let done = self.shared.logs.scrub(&mut self.logs, STEP);
        if done.wrapped {
            let apart = self.shared.engine.heap().has_medium_apart();
            self.pace.stage = if apart { Stage::Medium(0) } else { Stage::Rest };
        }
        self.pace.spend((done.bytes + done.entries * RECORD_COST).max(STEP_COST));
        self.count(done.entries, done.bytes, done.findings.len());
        for (log, offset, what) in &done.findings {
            tracing::error!(log, offset, %what, "damaged: not served; trim past it");
        }
    }

    /// Checks one run of the medium against memory, and writes again what only the medium holds wrong.
    fn medium(&mut self, run: u32) -> Result<(), KvError> {
        let heap = self.shared.engine.heap();
        let last = run + 1 >= heap.geometry().runs;
        self.pace.stage = if last { Stage::Rest } else { Stage::Medium(run + 1) };
        let done = heap.scrub_medium(RunId(run)).inspect_err(|_| self.count(0, 0, 1))?;
        self.pace.spend(done.bytes);
        self.count(0, done.bytes, done.damaged.len());
        for slot in done.damaged {
            let view = heap.record(slot).ok();
            let key = view.as_ref().and_then(|view| heap.key(view).ok());
            let key = key.as_deref().map(String::from_utf8_lossy);
            tracing::error!(slot = slot.0, ?key, "damaged on the medium, whole in memory: written again");
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

    const RATE: f64 = 16.0 * 1024.0 * 1024.0;
    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_step_waits_for_its_part_of_the_rate_and_pays_for_what_it_read() {
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
        pace.stage = Stage::Rest;
        assert_eq!(pace.due(start + PASS_EVERY - SECOND, RATE), None);
        assert_eq!(pace.due(start + PASS_EVERY, RATE), Some(Stage::Keys));
        // A pass that takes longer is followed by the next at once.
        pace.stage = Stage::Rest;
        assert_eq!(pace.due(start + 2 * PASS_EVERY, RATE), Some(Stage::Keys));
    }
}
