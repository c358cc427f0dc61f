//! The memory budget for replies that clients have not read, over all connections.
//!
//! Half of the budget is shared: the first connections that need it get it. The other half is divided equally among the
//! most connections that there may be. A client that does not read can therefore not block the others.

/// Most bytes that one connection may hold, however much of the budget remains.
const CONNECTION_MAX: usize = 8 << 20;

/// The budget and its use, bytes.
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

    /// Bytes that a connection may hold if it holds `own` bytes now. Above that, it waits until its client reads.
    pub(super) fn allowed(&self, own: usize) -> usize {
        let others = self.held.saturating_sub(own);
        self.shared.saturating_sub(others).max(self.each).min(CONNECTION_MAX)
    }

    /// Notes that a connection holds `now` bytes instead of `before`.
    pub(super) fn note(&mut self, before: usize, now: usize) {
        self.held = self.held.saturating_sub(before) + now;
    }

    /// Bytes that all connections hold.
    pub(super) fn held(&self) -> usize {
        self.held
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: usize = 1 << 20;
    const REPLY: usize = 1000;

    /// Fills each connection up to its limit, one reply at a time.
    fn fill(budget: &mut Budget, held: &mut [usize]) {
        for own in held {
            while *own <= budget.allowed(*own) {
                budget.note(*own, *own + REPLY);
                *own += REPLY;
            }
        }
    }

    #[test]
    fn all_connections_hold_at_most_the_budget_and_one_reply_each() {
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
    fn a_connection_that_holds_nothing_has_room_whatever_others_hold() {
        let mut budget = Budget::new(MAX, 20);
        fill(&mut budget, &mut [0; 19]);
        assert!(budget.allowed(0) >= MAX / 40);
    }
}
