//! Problems for the operator.

use crate::identity::SessionKey;

/// A problem with a session that the operator must know about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Trouble {
    /// The application has lost updates that it had confirmed. The session is refused.
    Behind {
        /// The session.
        key: SessionKey,
        /// The last update that the application has applied.
        applied: u32,
        /// The last update that the application had confirmed.
        confirmed: u32,
    },
    /// Updates have been requested repeatedly, and have not arrived.
    Missing {
        /// The session.
        key: SessionKey,
        /// The first missing update.
        first: u32,
    },
    /// A session was silent for long, no device held updates of it, and the server has ended it. This is no fault;
    /// it is reported so that the operator can trace it.
    Silent {
        /// The session.
        key: SessionKey,
        /// The last update that was applied.
        applied: u32,
    },
    /// There is no room for the row of another session, and no row can be evicted.
    NoRoom {
        /// The session that was refused.
        key: SessionKey,
        /// Number of rows.
        sessions: usize,
    },
}
