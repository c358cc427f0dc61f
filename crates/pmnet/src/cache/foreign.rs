//! Foreign sessions in the read cache: they begin without a session start, and may reuse the name of an older
//! session.

use super::key::Id;
use super::state::Cache;
use super::values::Weight;

impl<S: Copy + Ord, V: Weight> Cache<S, V> {
    /// Handles the first packet of a session whose start is not announced. The session's numbers begin here. An
    /// older session of the same name is over. A copy of a first packet that is still in flight changes nothing.
    ///
    /// The caller guarantees that its log has no updates of the older session. Updates of it that passed without
    /// being logged, and that are not known to be applied, may still reach the server at any time. In that case the
    /// cache shuts.
    pub fn foreign_session_started(&mut self, session: S, first_update: u32, first_bypass: u32) {
        if self.flights.contains_key(&Id { session, seq: first_update }) {
            return;
        }
        if self.sessions.get(session).is_some_and(|row| !row.is_removable()) {
            return self.clear();
        }
        self.remove_sessions(session..=session);
        self.session_started(session, first_update, first_bypass);
    }
}
