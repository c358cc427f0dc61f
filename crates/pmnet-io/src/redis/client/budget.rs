//! What the replies of all connections may hold, in sum, that their clients have not read.
//!
//! Half of the budget is for whoever comes first; the other half is divided equally among as many connections as there may be.
//! So whoever does not read cannot take what others need to go on.

/// Bytes that one connection may hold, however much is left.
const CONNECTION_MAX: usize = 8 << 20;

/// The budget and what is held of it, bytes.
#[derive(Debug)]
pub(super) struct Budget {
    shared: usize,
    each: usize,
    held: usize,
}

impl Budget {
    pub(super) fn new(bytes_max: usize, connections_max: usize) -> Self {
        let shared = bytes_max / 2;
        Self { shared, each: (bytes_max - shared) / connections_max.max(1), held: 0 }
    }

    /// What a connection may hold that holds `own` now: above that it waits for its client.
    pub(super) fn allowed(&self, own: usize) -> usize {
        let others = self.held.saturating_sub(own);
        self.shared.saturating_sub(others).max(self.each).min(CONNECTION_MAX)
    }

    /// A connection holds `now` where it held `before`.
    pub(super) fn note(&mut self, before: usize, now: usize) {
        self.held = self.held.saturating_sub(before) + now;
    }

    /// What all hold.
    pub(super) fn held(&self) -> usize {
        self.held
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: usize = 1 << 20;
    const REPLY: usize = 1000;

    /// Fills connection after connection as far as it may, a reply at a time.
    fn fill(budget: &mut Budget, held: &mut [usize]) {
        for own in held {
            while *own <= budget.allowed(*own) {
                budget.note(*own, *own + REPLY);
                *own += REPLY;
            }
        }
    }

    #[test]
    fn all_together_hold_no_more_than_the_budget_and_a_reply_each() {
        for connections in [1, 20, 500] {
            let mut budget = Budget::new(MAX, connections);
            let mut held = vec![0; connections];
            for _ in 0..3 {
                fill(&mut budget, &mut held);
                assert_eq!(budget.held(), held.iter().sum::<usize>());
                assert!(budget.held() <= MAX + connections * REPLY, "{connections}: {}", budget.held());
                budget.note(held[0], 0);
                held[0] = 0;
            }
        }
    }

    #[test]
    fn who_holds_nothing_goes_on_whatever_others_hold() {
        let mut budget = Budget::new(MAX, 20);
        fill(&mut budget, &mut [0; 19]);
        assert!(budget.allowed(0) >= MAX / 40);
    }
}
