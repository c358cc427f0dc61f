//! How long a holder may use its leases: `docs/format/fs-network.md`, "Leases".

use crate::leases::LEASE_TERM;
use std::collections::VecDeque;
use std::time::Duration;

/// Answers whose times are remembered.
const ANSWERS_MAX: usize = 16;

/// The time in which leases hold. It is measured by a clock that goes on while the machine sleeps.
#[derive(Debug, Default)]
pub(super) struct Term {
    until: Option<Duration>,
    /// When the answers to these questions were sent.
    answers: VecDeque<(u64, Duration)>,
}

impl Term {
    /// The server asks, and has heard the answer to the question `heard`; the answer is about to be sent. False if leases
    /// have lapsed: what they have allowed to keep may have changed since, although there may be a new term from now on.
    #[must_use]
    pub(super) fn asked(&mut self, number: u64, heard: u64, now: Duration) -> bool {
        let answered = self.answers.iter().find(|(number, _)| *number == heard).map(|(_, sent)| *sent);
        // Nobody knows when an answer was sent that is not remembered.
        let is_unknown = heard != 0 && answered.is_none();
        let has_lapsed = is_unknown || self.until.is_some_and(|until| now >= until);
        // One that is over already counts: the next question finds out.
        self.until = self.until.max(answered.map(|sent| sent + LEASE_TERM));
        self.answers.retain(|(number, _)| *number >= heard);
        self.answers.push_back((number, now));
        if self.answers.len() > ANSWERS_MAX {
            self.answers.pop_front();
        }
        !has_lapsed
    }

    pub(super) fn holds(&self, now: Duration) -> bool {
        self.until.is_some_and(|until| now < until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Duration = Duration::from_millis(250);

    #[test]
    fn leases_hold_for_a_term_after_an_answer_that_was_heard() {
        let mut term = Term::default();
        assert!(term.asked(1, 0, STEP) && !term.holds(STEP), "nothing was heard");
        assert!(term.asked(2, 1, 2 * STEP));
        assert!(term.holds(STEP + LEASE_TERM - Duration::from_nanos(1)) && !term.holds(STEP + LEASE_TERM));
        assert!(term.asked(3, 1, 3 * STEP) && !term.holds(STEP + LEASE_TERM), "the second one was lost");
        assert!(term.asked(4, 3, 4 * STEP) && term.holds(STEP + LEASE_TERM));
    }

    #[test]
    fn a_new_term_does_not_revive_what_was_kept_in_one_that_had_ended() {
        let mut term = Term::default();
        assert!(term.asked(1, 0, STEP));
        assert!(term.asked(2, 1, 20 * STEP) && !term.holds(20 * STEP), "it comes late");
        assert!(!term.asked(3, 2, 21 * STEP), "what was kept since the first question is void");
        assert!(term.holds(21 * STEP));
        assert!(term.asked(4, 3, 22 * STEP));
        assert!(!term.asked(5, 4, 40 * STEP));
        assert!(!Term::default().asked(6, 5, 41 * STEP), "it has forgotten when it answered");
    }
}
