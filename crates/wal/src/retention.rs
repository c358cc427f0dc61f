//! Which logs do not keep everything, and which of them are looked at next.

use crate::format::Settings;
use std::collections::BTreeSet;

/// Most logs that one step looks at.
const STEP_LOGS: usize = 1024;

/// Logs that do not keep everything, and how far the steps have come.
#[derive(Debug, Default)]
pub(crate) struct Retention {
    /// Numbers of logs.
    logs: BTreeSet<u32>,
    /// The next one to be looked at.
    next: u32,
    /// Since the first one was looked at, a log had more to trim than one step does.
    is_behind: bool,
}

impl Retention {
    /// Notes what a log keeps from now on.
    pub(crate) fn note(&mut self, number: u32, settings: Settings) {
        if settings == Settings::default() {
            self.logs.remove(&number);
        } else {
            self.logs.insert(number);
        }
    }

    /// The logs of the next step.
    pub(crate) fn begin_step(&mut self) -> Vec<u32> {
        let some: Vec<u32> = self.logs.range(self.next..).take(STEP_LOGS).copied().collect();
        self.next = match some.last() {
            Some(last) if some.len() == STEP_LOGS => last.saturating_add(1),
            _ => 0,
        };
        some
    }

    /// Ends a step. True if another one has work.
    pub(crate) fn end_step(&mut self, is_behind: bool) -> bool {
        self.is_behind |= is_behind;
        self.next > 0 || std::mem::take(&mut self.is_behind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limited() -> Settings {
        Settings { retain_entries: 1, ..Settings::default() }
    }

    #[test]
    fn steps_look_at_the_logs_that_have_limits_and_at_no_others() {
        let mut retention = Retention::default();
        (0..10).for_each(|number| retention.note(number, Settings::default()));
        (3..6).for_each(|number| retention.note(number, limited()));
        retention.note(4, Settings::default());
        assert_eq!(retention.begin_step(), [3, 5]);
        assert!(!retention.end_step(false));
        assert_eq!(retention.begin_step(), [3, 5]);
        assert!(retention.end_step(true), "one of them has more");
        assert_eq!(retention.begin_step(), [3, 5]);
        assert!(!retention.end_step(false));
    }

    #[test]
    fn a_step_goes_on_where_the_one_before_has_ended() {
        let mut retention = Retention::default();
        let count = 2 * STEP_LOGS as u32 + 10;
        (0..count).for_each(|number| retention.note(number, limited()));
        let mut seen = Vec::new();
        for is_last in [false, false, true] {
            seen.extend(retention.begin_step());
            assert!(retention.end_step(seen.len() <= STEP_LOGS), "the first one was behind");
            assert_eq!(retention.next == 0, is_last);
        }
        assert_eq!(seen, (0..count).collect::<Vec<_>>());
        assert_eq!(retention.begin_step().first(), Some(&0));
    }
}
