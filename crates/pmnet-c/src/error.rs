//! Errors of calls: their text for `PMNet_last_error`, and their code.

use crate::abi::Code;
use landfall_pmnet::client::ClientError;
use landfall_pmnet_io::runtime::{KeyFileError, RuntimeError, SessionError};

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum CallError {
    /// An argument must not be null. Blame: the caller.
    #[error("{0} is a null pointer")]
    Null(&'static str),
    /// An address cannot be parsed or resolved. Blame: the caller.
    #[error("the address {text:?} is not HOST:PORT with a known host")]
    Address {
        /// The argument.
        text: String,
    },
    /// An argument is out of range. Blame: the caller.
    #[error("{what} is out of range: {value}; {range}")]
    Range {
        /// The argument's name.
        what: &'static str,
        /// The argument's value.
        value: u64,
        /// The allowed values.
        range: &'static str,
    },
    /// The options contain fields of a later version. Blame: a caller that is newer than the library.
    #[error("the options set fields that this version does not know")]
    UnknownOptions,
    /// The key file cannot be used. Blame: whoever created the file.
    #[error(transparent)]
    Key(#[from] KeyFileError),
    /// A stored row is invalid. Blame: whoever stored it.
    #[error("row {index} is not a valid row of a session")]
    Row {
        /// Index of the row, from 0 on.
        index: usize,
    },
    /// The number is not that of a queued update. Blame: the caller.
    #[error("session has no queued update {id} to wait for")]
    NotQueued {
        /// The argument.
        id: u64,
    },
    /// Too many updates are queued. Blame: the caller.
    #[error("{max} queued updates have not been waited for")]
    Unwaited {
        /// The limit.
        max: usize,
    },
    /// The request is unknown or already answered. Blame: the caller.
    #[error("request {id} does not wait for an answer")]
    NotWaiting {
        /// The argument.
        id: u64,
    },
    /// The request was answered with the wrong call. Blame: the caller.
    #[error("request {id} {is}; answer it with {instead}")]
    WrongAnswer {
        /// The request.
        id: u64,
        /// The kind of the request.
        is: &'static str,
        /// The right call.
        instead: &'static str,
    },
    /// The request must fail. Blame: the caller.
    #[error("request {id} follows one of its session that has failed: it must fail, too")]
    BehindFailed {
        /// The request.
        id: u64,
    },
    /// The request must not fail. Blame: the caller.
    #[error("request {id} cannot fail: a later one of its session has been answered")]
    BeforeDone {
        /// The request.
        id: u64,
    },
    /// The response is too long. Blame: the caller.
    #[error("a response of {len} bytes is longer than {max}")]
    Response {
        /// Length of the response.
        len: usize,
        /// Most bytes of a response.
        max: usize,
    },
    /// The session has failed. Blame: the system, the network or the server.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The runtime has failed. Blame: the system.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    /// The kernel has refused an operation. Blame: the system.
    #[error("cannot {what}: {source}")]
    Kernel {
        /// The operation.
        what: &'static str,
        /// The kernel's error.
        source: std::io::Error,
    },
    /// The server's thread has ended. Blame: the system.
    #[error("the server has ended: {reason}")]
    Ended {
        /// The thread's error.
        reason: String,
    },
    /// A call has panicked. Blame: this library.
    #[error("a defect in the library: {message}")]
    Panicked {
        /// The panic's message.
        message: String,
    },
}

impl CallError {
    /// The result of the call.
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
