//! Why a call fails, and what C is told about it.

use crate::abi::Code;
use landfall_pmnet::client::ClientError;
use landfall_pmnet_io::runtime::{KeyFileError, RuntimeError, SessionError};

/// Why a call fails.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum CallError {
    /// Blame: the caller.
    #[error("{0} is a null pointer")]
    Null(&'static str),
    /// Blame: the caller.
    #[error("the address {text:?} is not HOST:PORT with a host that is known")]
    Address {
        /// What was given.
        text: String,
    },
    /// Blame: the caller.
    #[error("{what} is out of range: {value}; {range}")]
    Range {
        /// Which argument.
        what: &'static str,
        /// What was given.
        value: u64,
        /// What is possible.
        range: &'static str,
    },
    /// Blame: a caller that is newer than the library.
    #[error("the options set fields that this version does not know")]
    UnknownOptions,
    /// Blame: whoever has made the file.
    #[error(transparent)]
    Key(#[from] KeyFileError),
    /// Blame: whoever stored it.
    #[error("row {index} of those given is no session's row")]
    Row {
        /// Which, from 0.
        index: usize,
    },
    /// Blame: the caller.
    #[error("no update {id} of this session is to be waited for")]
    NotQueued {
        /// What was given.
        id: u64,
    },
    /// Blame: the caller.
    #[error("{max} updates have not been waited for")]
    Unwaited {
        /// As many as may be.
        max: usize,
    },
    /// Blame: the caller.
    #[error("request {id} does not wait for an answer")]
    NotWaiting {
        /// What was given.
        id: u64,
    },
    /// Blame: the caller.
    #[error("request {id} {is}; {instead} answers it")]
    WrongAnswer {
        /// Which.
        id: u64,
        /// What it is.
        is: &'static str,
        /// The call that fits.
        instead: &'static str,
    },
    /// Blame: the caller.
    #[error("request {id} is behind one of its session that has failed: it must fail, too")]
    BehindFailed {
        /// Which.
        id: u64,
    },
    /// Blame: the caller.
    #[error("request {id} cannot fail: one behind it in its session has been answered")]
    BeforeDone {
        /// Which.
        id: u64,
    },
    /// Blame: the caller.
    #[error("a response of {len} bytes is longer than {max}")]
    Response {
        /// Bytes of it.
        len: usize,
        /// Bytes that fit.
        max: usize,
    },
    /// Blame: the system, the network or the server.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// Blame: the system.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    /// Blame: the system.
    #[error("cannot {what}: {source}")]
    Kernel {
        /// What was tried.
        what: &'static str,
        /// Its reason.
        source: std::io::Error,
    },
    /// Blame: the system; what the thread said.
    #[error("the server has ended: {reason}")]
    Ended {
        /// Why.
        reason: String,
    },
    /// Blame: this library.
    #[error("a defect in the library: {message}")]
    Panicked {
        /// What it said.
        message: String,
    },
}

impl CallError {
    /// What the call returns.
    pub(crate) fn code(&self) -> Code {
        match self {
            Self::Null(_)
            | Self::Address { .. }
            | Self::Range { .. }
            | Self::UnknownOptions
            | Self::Key(_)
            | Self::Row { .. } => Code::Argument,
            Self::NotQueued { .. }
            | Self::NotWaiting { .. }
            | Self::WrongAnswer { .. }
            | Self::BehindFailed { .. }
            | Self::BeforeDone { .. } => Code::Misuse,
            Self::Unwaited { .. } => Code::Full,
            Self::Response { .. } => Code::TooLarge,
            Self::Session(error) => session_code(error),
            Self::Runtime(_) | Self::Kernel { .. } | Self::Ended { .. } => Code::System,
            Self::Panicked { .. } => Code::Internal,
        }
    }
}

fn session_code(error: &SessionError) -> Code {
    match error {
        SessionError::Request(ClientError::Full) => Code::Full,
        SessionError::Request(ClientError::TooLarge { .. }) | SessionError::ResponseTooLong { .. } => {
            Code::TooLarge
        }
        SessionError::Request(ClientError::Exhausted) => Code::Exhausted,
        SessionError::Request(ClientError::Ended) | SessionError::Ended => Code::Ended,
        SessionError::Refused(_) => Code::Refused,
        SessionError::Failed(_) => Code::NoAnswer,
        SessionError::Runtime(_) => Code::System,
        _ => Code::Internal,
    }
}
