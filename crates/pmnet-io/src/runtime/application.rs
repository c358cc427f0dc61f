//! The interface between a server and its application, which stores state and executes requests.

use super::network::Network;
use landfall_pmnet::server::{ResponseTooLong, Trouble};
use landfall_pmnet::{SessionKey, SessionRow, Work};

/// The committed state of an application, as far as the server needs it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Saved {
    /// A row for each session.
    pub rows: Vec<SessionRow>,
    /// The floor; 0 at first.
    pub floor: u32,
    /// Sessions of which the application has lost confirmed updates, each with the last lost update.
    pub behind: Vec<(SessionKey, u32)>,
}

/// Result of a piece of work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// An update or a row is committed.
    Committed,
    /// A bypass is executed.
    Response {
        /// The answer.
        bytes: Vec<u8>,
        /// The row was committed together with effects.
        changed: bool,
    },
    /// Nothing was applied. The server hands the work out again.
    Failed,
}

/// A service behind PMNet: state that is committed together with the rows of sessions.
pub trait Application {
    /// Errors of the application.
    type Error: std::error::Error + Send + Sync + 'static;

    /// Loads the committed state. The server calls this at its start, and again after [`Self::execute`] has failed,
    /// which begins a new incarnation of the server. After an error, it calls this again after a pause.
    ///
    /// # Errors
    /// If the state cannot be loaded.
    fn load(&mut self) -> Result<Saved, Self::Error>;

    /// Executes a batch and commits it together with its rows. Returns an outcome for each piece of work, in order. An
    /// application that waits for something serves the network meanwhile: [`Network::wait_for`].
    ///
    /// Pieces of a session are executed in the order of the batch. If a piece fails, all pieces of its session behind
    /// it must fail, too. A batch may hold several rows of one session: the last one counts.
    ///
    /// # Errors
    /// If it is unknown whether the batch was committed.
    fn execute(&mut self, batch: &[Work], network: &mut Network) -> Result<Vec<Outcome>, Self::Error>;

    /// The response that a client gets instead of one that is too long. The request was executed.
    fn too_long(&self, response: &ResponseTooLong) -> Vec<u8> {
        response.to_string().into_bytes()
    }

    /// Handles trouble of a session that needs an operator. The server calls this between two batches.
    fn trouble(&mut self, trouble: &Trouble) {
        match trouble {
            Trouble::Silent { key, applied } => log_silent(key, *applied),
            Trouble::NoRoom { key, sessions } => log_no_room(key, *sessions),
            _ => tracing::error!(?trouble, "a session of PMNet cannot continue"),
        }
    }

    /// True if the server must end after this error, and not try again.
    fn is_fatal(&self, error: &Self::Error) -> bool {
        let _ = error;
        false
    }
}

/// Logs that a session was ended because it was silent.
pub(crate) fn log_silent(key: &SessionKey, applied: u32) {
    tracing::info!(
        client = %key.client, session = key.session, applied,
        "a session was silent for long, and no device holds updates of it: it is ended"
    );
}

/// Logs that there is no room for the row of another session.
pub(crate) fn log_no_room(key: &SessionKey, sessions: usize) {
    tracing::error!(
        client = %key.client, sessions,
        "there is no room for another session, and no row that may be evicted: clients are refused. `landfall pmnet sessions` \
         lists the sessions; with --devices, the server ends sessions that are silent"
    );
}
