//! Why a campaign ended early.

use crate::error::Error;

/// Why a campaign ended early.
#[derive(Debug)]
pub(super) enum Stop {
    /// It cannot run here: nothing was tested.
    Skip(String),
    /// It failed.
    Failed(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}
