//! What can go wrong in a store that stands in for ours.

use landfall_media::MediaError;

/// Why a store cannot be opened, or did not take a write.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum StoreError {
    /// Environment: LevelDB is not installed.
    #[error("LevelDB cannot be loaded ({message}): install it (Debian: libleveldb1d)")]
    NoLibrary {
        /// What the loader said.
        message: String,
    },
    /// Environment: a LevelDB without a function that is needed.
    #[error("this LevelDB has no {name}: version 1.20 or newer is needed")]
    NoSymbol {
        /// The function.
        name: &'static str,
    },
    /// From LevelDB.
    #[error("LevelDB: {message}")]
    LevelDb {
        /// What it said.
        message: String,
    },
    /// The region has not even one run left to copy into.
    #[error("the region has no free run to copy into: use a larger --capacity")]
    Full,
    /// From the medium.
    #[error(transparent)]
    Media(#[from] MediaError),
}
