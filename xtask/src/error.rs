//! Errors of developer commands.

use std::fmt;
use std::io;
use std::path::Path;

/// Why a command failed, grouped by cause.
#[derive(Debug)]
#[non_exhaustive]
pub(crate) enum Error {
    /// The command line is wrong.
    Usage(String),
    /// An operation failed: what was attempted, and the system's error.
    Environment {
        /// What was attempted.
        attempt: String,
        /// The system's error.
        source: io::Error,
    },
    /// A program's JSON could not be read.
    Json(serde_json::Error),
    /// A program failed that had to succeed.
    Program {
        /// The command line.
        line: String,
        /// How the program ended.
        ending: String,
    },
    /// A check reported findings, which have been printed.
    Found(String),
}

impl Error {
    /// An [`Error::Environment`] about a file.
    pub(crate) fn file(attempt: &str, path: &Path, source: io::Error) -> Self {
        Self::Environment { attempt: format!("{attempt} {}", path.display()), source }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(advice) => write!(f, "{advice}"),
            Self::Environment { attempt, source } => write!(f, "cannot {attempt}: {source}"),
            Self::Json(source) => write!(f, "bad JSON: {source}"),
            Self::Program { line, ending } => write!(f, "`{line}` {ending}"),
            Self::Found(summary) => write!(f, "{summary}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Environment { source, .. } => Some(source),
            _ => None,
        }
    }
}
