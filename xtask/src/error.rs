//! What stops a developer command.

use std::fmt;
use std::io;
use std::path::Path;

/// Why a command did not succeed, told apart by who is to blame.
#[derive(Debug)]
#[non_exhaustive]
pub(crate) enum Error {
    /// The command line is wrong.
    Usage(String),
    /// The environment refused: what was attempted, and what the system said.
    Environment {
        /// What was attempted.
        attempt: String,
        /// What the system said.
        source: io::Error,
    },
    /// A program's JSON could not be read.
    Json(serde_json::Error),
    /// A program that had to succeed did not.
    Program {
        /// The command line.
        line: String,
        /// How it ended.
        ending: String,
    },
    /// A check found something; it has been printed already.
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
