//! The results of the demonstration, as text or as one JSON object.

use super::model::Wrong;
use serde::Serialize;
use std::time::Duration;

/// Descriptions of violations and failures that are kept, at most.
const TEXTS_MAX: usize = 50;

/// Counts over all cycles.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Report {
    /// Seed of the workload.
    pub(crate) seed: u64,
    /// The medium of the region.
    pub(crate) medium: String,
    /// Kills.
    pub(crate) cycles: u32,
    /// Kills during recovery.
    pub(crate) killed_in_recovery: u32,
    /// Starts elsewhere that ended before they started a server.
    pub(crate) silent_starts: u32,
    /// Sent writes.
    pub(crate) sent: u64,
    /// Acknowledged writes.
    pub(crate) acknowledged: u64,
    /// Writes refused for lack of space.
    pub(crate) refused: u64,
    /// Keys read back and checked.
    pub(crate) verified: u64,
    /// Offline checks without damage.
    pub(crate) checks: u64,
    /// Acknowledged writes that were missing.
    pub(crate) lost: u64,
    /// Values that were never written.
    pub(crate) torn: u64,
    /// Overwritten, deleted or expired values that were current again.
    pub(crate) resurrected: u64,
    /// Groups that were only partly there.
    pub(crate) split: u64,
    /// Bytes that the compactor moved meanwhile.
    pub(crate) compacted_bytes: u64,
    /// Time from start to ready, the median, milliseconds.
    pub(crate) restart_ms_median: f64,
    /// Time from start to ready, the maximum, milliseconds.
    pub(crate) restart_ms_max: f64,
    /// Time from load to verified, the median of the cycles, milliseconds.
    pub(crate) cycle_ms_median: f64,
    /// Duration of the demonstration.
    pub(crate) seconds: f64,
    /// Descriptions of violations, up to a limit.
    pub(crate) violations: Vec<String>,
    /// Errors of the demonstration itself, such as servers that do not start and unexpected replies.
    pub(crate) failures: Vec<String>,
    #[serde(skip)]
    pub(crate) restarts: Vec<Duration>,
    #[serde(skip)]
    pub(crate) took: Vec<Duration>,
}

impl Report {
    /// Counts a violation.
    pub(crate) fn add_violation(&mut self, wrong: Wrong, text: &str) {
        *match wrong {
            Wrong::Lost => &mut self.lost,
            Wrong::Torn => &mut self.torn,
            Wrong::Resurrected => &mut self.resurrected,
            Wrong::Split => &mut self.split,
        } += 1;
        if self.violations.len() < TEXTS_MAX {
            self.violations.push(format!("cycle {}: {text}", self.cycles));
        }
    }

    /// Records that something could not be done.
    pub(crate) fn fail(&mut self, text: &str) {
        if self.failures.len() < TEXTS_MAX {
            self.failures.push(format!("cycle {}: {text}", self.cycles));
        }
    }

    /// True if every promise was kept.
    pub(crate) fn is_clean(&self) -> bool {
        self.violations.is_empty() && self.failures.is_empty()
    }

    /// Computes the statistics of the restarts.
    pub(crate) fn close(&mut self, took: Duration) {
        self.restarts.sort_unstable();
        self.took.sort_unstable();
        let ms =
            |took: Option<&Duration>| took.map_or(0.0, |took| (took.as_secs_f64() * 10_000.0).round() / 10.0);
        self.restart_ms_median = ms(self.restarts.get(self.restarts.len() / 2));
        self.restart_ms_max = ms(self.restarts.last());
        self.cycle_ms_median = ms(self.took.get(self.took.len() / 2));
        self.seconds = (took.as_secs_f64() * 10.0).round() / 10.0;
    }

    /// The results as a table.
    pub(crate) fn table(&self) -> String {
        let rows = [
            ("region on", self.medium.clone()),
            ("kills (in recovery)", format!("{} ({})", self.cycles, self.killed_in_recovery)),
            ("writes sent", self.sent.to_string()),
            ("writes acknowledged", self.acknowledged.to_string()),
            ("writes refused: full", self.refused.to_string()),
            ("keys verified", self.verified.to_string()),
            ("offline checks, clean", self.checks.to_string()),
            ("bytes compacted", self.compacted_bytes.to_string()),
            ("restart, median / max", format!("{} / {} ms", self.restart_ms_median, self.restart_ms_max)),
            ("cycle, median", format!("{} ms", self.cycle_ms_median)),
            ("lost", self.lost.to_string()),
            ("torn", self.torn.to_string()),
            ("resurrected", self.resurrected.to_string()),
            ("groups split", self.split.to_string()),
        ];
        let mut text: String = rows.iter().map(|(name, value)| format!("  {name:<24} {value}\n")).collect();
        for line in self.violations.iter().chain(&self.failures) {
            text.push_str(&format!("  ! {line}\n"));
        }
        let verdict =
            if self.is_clean() { "every acknowledged write is there" } else { "PROMISES WERE BROKEN" };
        text.push_str(&format!("{verdict}; again with --cycles {} --seed {}\n", self.cycles, self.seed));
        text
    }
}
