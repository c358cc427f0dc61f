//! Sessions that begin without a session start, under names that are used again.

use super::values::Weight;
use super::{Cache, Id};

impl<S: Copy + Ord, V: Weight> Cache<S, V> {
    /// The first packet of a session passes, which no start of the session has told of: numbers begin here. A session that had its
    /// name is over, and a copy of a first packet that is still in flight tells nothing new.
    ///
    /// The caller vouches that nothing of that other session is in its log. What passed of it unlogged, and is not known to be
    /// applied, may come to the server at any time: the cache shuts.
    pub fn session_begins_anew(&mut self, session: S, first_update: u32, first_bypass: u32) {
        if self.flights.contains_key(&Id { session, seq: first_update }) {
            return;
        }
        if self.sessions.get(session).is_some_and(|row| !row.may_go()) {
            return self.clear();
        }
        self.forget_sessions(session..=session);
        self.session_started(session, first_update, first_bypass);
    }
}
