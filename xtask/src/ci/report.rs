//! The result of each step, as lines and as the closing table.

use super::tally::Tally;
use std::time::Duration;

/// The result of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Everything that the step checks holds.
    Passed,
    /// A check failed; the reason.
    Failed(String),
    /// The step could not run here, or was excluded; the reason. Never counts as passed.
    Skipped(String),
    /// An earlier step failed.
    NotRun,
}

impl Verdict {
    /// Whether this result fails the whole run.
    pub(crate) fn is_failure(&self) -> bool {
        matches!(self, Self::Failed(_))
    }

    fn word(&self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed(_) => "FAILED",
            Self::Skipped(_) => "SKIPPED",
            Self::NotRun => "not run",
        }
    }

    fn reason(&self) -> &str {
        match self {
            Self::Failed(why) | Self::Skipped(why) => why,
            Self::Passed => "",
            Self::NotRun => "an earlier step failed",
        }
    }
}

/// One row of the table.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// The step's name.
    pub(crate) name: &'static str,
    /// The step's result.
    pub(crate) verdict: Verdict,
    /// Wall time.
    pub(crate) took: Duration,
    /// The tests that the step ran; empty for steps that run no tests.
    pub(crate) tally: Tally,
}

impl Entry {
    /// A row without time and without tests.
    pub(crate) fn idle(name: &'static str, verdict: Verdict) -> Self {
        Self { name, verdict, took: Duration::ZERO, tally: Tally::default() }
    }

    /// What the row adds to the total: its tests, and the step itself where it failed or was skipped as a whole. So a
    /// failed or skipped step always shows in the total.
    fn counted(&self) -> Tally {
        let mut counted = self.tally.clone();
        match &self.verdict {
            Verdict::Failed(_) if counted.failed == 0 => counted.failed = 1,
            Verdict::Skipped(_) => counted.skipped += 1,
            _ => {}
        }
        counted
    }
}

/// The line that is printed when a step ends.
pub(crate) fn line(entry: &Entry) -> String {
    format!("--- {}\n", row(entry).trim_end())
}

/// The closing table, the tests that skipped themselves, and the total as the last line.
pub(crate) fn closing(entries: &[Entry]) -> String {
    let mut text = format!("\n{:<8} {:<8} {:>8}  {:<24} why\n", "step", "verdict", "time", "tests");
    for entry in entries {
        text += row(entry).trim_end();
        text.push('\n');
    }
    let mut total = Tally::default();
    for entry in entries {
        total.add(&entry.counted());
    }
    for why in &total.skips {
        text += &format!("skipped test: {why}\n");
    }
    text + &format!("\n{} passed, {} failed, {} skipped\n", total.passed, total.failed, total.skipped)
}

fn row(entry: &Entry) -> String {
    let Tally { passed, failed, skipped, .. } = entry.tally;
    let tests = match passed + failed + skipped {
        0 => String::new(),
        _ => format!("{passed} ok, {failed} bad, {skipped} skip"),
    };
    let took = format!("{:.1} s", entry.took.as_secs_f64());
    let Entry { name, verdict, .. } = entry;
    format!("{name:<8} {:<8} {took:>8}  {tests:<24} {}", verdict.word(), verdict.reason())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn total(entries: &[Entry]) -> String {
        closing(entries).lines().last().unwrap().to_owned()
    }

    fn tested(verdict: Verdict, passed: usize, failed: usize, skipped: usize) -> Entry {
        Entry { tally: Tally { passed, failed, skipped, skips: Vec::new() }, ..Entry::idle("test", verdict) }
    }

    #[test]
    fn total_counts_tests_in_the_agreed_form() {
        let entries = [tested(Verdict::Passed, 7, 0, 1), tested(Verdict::Failed("x".into()), 3, 2, 0)];
        assert_eq!(total(&entries), "10 passed, 2 failed, 1 skipped");
    }

    #[test]
    fn failed_or_skipped_step_without_tests_shows_in_the_total() {
        let entries = [
            Entry::idle("fmt", Verdict::Failed("x".into())),
            Entry::idle("peers", Verdict::Skipped("no root".into())),
            Entry::idle("tidy", Verdict::Passed),
            Entry::idle("docs", Verdict::NotRun),
        ];
        assert_eq!(total(&entries), "0 passed, 1 failed, 1 skipped");
        assert!(closing(&entries).contains("SKIPPED") && closing(&entries).contains("no root"));
    }
}
