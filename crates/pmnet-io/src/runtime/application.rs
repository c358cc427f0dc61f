//! What a server's application provides.

use super::server::Network;
use landfall_pmnet::server::{ResponseTooLong, Trouble};
use landfall_pmnet::{SessionKey, SessionRow, Work};

/// What an application has committed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Saved {
    /// A row for each session.
    pub rows: Vec<SessionRow>,
    /// The floor; 0 at first.
    pub floor: u32,
    /// Sessions of which the application has lost updates that it had confirmed, and the last of those.
    pub behind: Vec<(SessionKey, u32)>,
}

/// What became of a piece of work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// An update or a row is committed.
    Committed,
    /// A bypass is executed.
    Response {
        /// The answer.
        bytes: Vec<u8>,
        /// Whether the row was committed, with effects.
        changed: bool,
    },
    /// Nothing was applied, for now: it is handed out again.
    Failed,
}

/// A service behind PMNet: state that is committed together with the rows of sessions.
pub trait Application {
    /// Why it cannot go on for now.
    type Error: std::error::Error + Send + Sync + 'static;

    /// What is committed. Called at the start, and again after [`Self::execute`] has failed: a new incarnation
    /// of the server begins then. After an error it is called again, with pauses.
    ///
    /// # Errors
    /// What keeps it from telling.
    fn load(&mut self) -> Result<Saved, Self::Error>;

    /// Executes a batch and commits it together with its rows. An outcome for each piece of work, in order. What
    /// takes long serves the network meanwhile: [`Network::wait_for`].
    ///
    /// Within a session, the order is that of the batch, and behind a piece that failed all others fail. A batch may
    /// hold several rows of one session: the last one counts.
    ///
    /// # Errors
    /// If it is unknown what was committed.
    fn execute(&mut self, batch: &[Work], network: &mut Network) -> Result<Vec<Outcome>, Self::Error>;

    /// What a client is told instead of a response that is longer than is taken; the request was executed.
    fn too_long(&self, response: &ResponseTooLong) -> Vec<u8> {
        response.to_string().into_bytes()
    }

    /// A session needs an operator. Called between two batches.
    fn trouble(&mut self, trouble: &Trouble) {
        match trouble {
            Trouble::Silent { key, applied } => tell_silent(key, *applied),
            Trouble::NoRoom { key, sessions } => tell_no_room(key, *sessions),
            _ => tracing::error!(?trouble, "a session of PMNet cannot go on"),
        }
    }

    /// Whether it must end instead of trying again.
    fn is_fatal(&self, error: &Self::Error) -> bool {
        let _ = error;
        false
    }
}

/// A session has ended by its silence.
pub(crate) fn tell_silent(key: &SessionKey, applied: u32) {
    tracing::info!(
        client = %key.client, session = key.session, applied,
        "a session was silent for long, and no device holds anything of it: it is ended"
    );
}

/// There is no room for the row of another session.
pub(crate) fn tell_no_room(key: &SessionKey, sessions: usize) {
    tracing::error!(
        client = %key.client, sessions,
        "there is no room for another session, and no row that may go: clients are refused. `landfall pmnet sessions` shows them; \
         with --devices the server ends those that fall silent"
    );
}
