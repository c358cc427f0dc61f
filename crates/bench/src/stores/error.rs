//! The errors of stores that replace Landfall's.

use landfall_media::MediaError;

/// Why a store cannot be opened or did not accept a write.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum StoreError {
    /// Environment: LevelDB is not installed.
    #[error("LevelDB cannot be loaded ({message}): install it (Debian: libleveldb1d)")]
    NoLibrary {
        /// The loader's message.
        message: String,
    },
    /// Environment: a LevelDB without a function that is needed.
    #[error("this LevelDB has no {name}: version 1.20 or newer is needed")]
    NoSymbol {
        /// The function.
        name: &'static str,
    },
    /// LevelDB reported an error.
    #[error("LevelDB: {message}")]
    LevelDb {
        /// LevelDB's message.
        message: String,
    },
    /// The region has not even one run left to copy into.
    #[error("the region has no free run to copy into: use a larger --capacity")]
    Full,
    /// The medium reported an error.
    #[error(transparent)]
    Media(#[from] MediaError),
}
