//! What a peer can do wrong.

/// A violation of the protocol by the peer. Reply with [`Writer::protocol_error`] and close the connection:
/// where the next command starts is not known any more.
///
/// The texts are those of Redis 7, which clients and their tests compare.
///
/// [`Writer::protocol_error`]: crate::Writer::protocol_error
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProtocolError {
    /// The count after `*` is not a canonical decimal, or is above `Limits::args_max`.
    #[error("Protocol error: invalid multibulk length")]
    InvalidMultibulkLength,
    /// The count after `$` is not a canonical decimal, is negative, or is above `Limits::bulk_bytes_max`.
    #[error("Protocol error: invalid bulk length")]
    InvalidBulkLength,
    /// An array element that is not a bulk string; `got` is the byte in place of the `$`.
    #[error("Protocol error: expected '$', got '{}'", char::from(*got))]
    ExpectedBulk {
        /// The byte found.
        got: u8,
    },
    /// The line after `*` does not end within `Limits::inline_bytes_max`.
    #[error("Protocol error: too big mbulk count string")]
    MultibulkCountTooLong,
    /// The line after `$` does not end within `Limits::inline_bytes_max`.
    #[error("Protocol error: too big bulk count string")]
    BulkCountTooLong,
    /// An inline command does not end within `Limits::inline_bytes_max`.
    #[error("Protocol error: too big inline request")]
    InlineTooLong,
    /// An inline command with a quote that is not closed, or closed in the middle of a word.
    #[error("Protocol error: unbalanced quotes in request")]
    UnbalancedQuotes,
    /// A client that has yet to authenticate sends more than 10 arguments.
    #[error("Protocol error: unauthenticated multibulk length")]
    UnauthenticatedMultibulkLength,
    /// A client that has yet to authenticate sends an argument of more than 16384 bytes.
    #[error("Protocol error: unauthenticated bulk length")]
    UnauthenticatedBulkLength,
    /// The bytes after a bulk string are not CRLF. Redis skips them unread; here they are read as a sign
    /// that the peer's lengths are wrong, since what follows would be stored as something it is not.
    #[error("Protocol error: expected CRLF after bulk")]
    MissingBulkEnd,
}
