//! Connections to the address of a node of a chain that have not said who they are.

use landfall_sockets::ConnId;
use std::collections::VecDeque;

/// Most of them at one worker. With a further one the oldest ends: whoever is the node before says so at once, and must find
/// room among any number that say nothing.
const STRANGERS_MAX: usize = 128;

/// Those that were strangers when they were looked at last, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Strangers(VecDeque<ConnId>);

impl Strangers {
    /// Adds a connection. Returns the one that has to end.
    pub(super) fn add(&mut self, id: ConnId, is_stranger: impl Fn(&ConnId) -> bool) -> Option<ConnId> {
        self.0.retain(is_stranger);
        self.0.push_back(id);
        if self.0.len() > STRANGERS_MAX { self.0.pop_front() } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_stranger_ends_and_nobody_who_is_known() {
        let mut strangers = Strangers::default();
        let known = |id: &ConnId| id.0 % 2 == 1;
        for id in 0..2 * STRANGERS_MAX as u64 - 1 {
            assert_eq!(strangers.add(ConnId(id), |id| !known(id)), None, "{id}");
        }
        let next = ConnId(1 << 20);
        assert_eq!(strangers.add(next, |id| !known(id)), Some(ConnId(0)));
        assert_eq!(strangers.add(next, |id| !known(id)), Some(ConnId(2)));
    }
}
