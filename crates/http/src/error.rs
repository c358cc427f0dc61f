//! What a peer can do wrong.

/// A request that cannot be taken. Reply with [`ResponseWriter::error`] and close the connection: where the
/// next request starts is not known any more.
///
/// [`ResponseWriter::error`]: crate::ResponseWriter::error
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{status}: {message}")]
#[non_exhaustive]
pub struct HttpError {
    /// Status code of the reply.
    pub status: u16,
    /// What is wrong, for the client's people.
    pub message: &'static str,
    /// True if the connection is to be closed after the reply.
    pub close: bool,
}

impl HttpError {
    /// An error that ends the connection.
    pub const fn new(status: u16, message: &'static str) -> Self {
        Self { status, message, close: true }
    }

    /// 400: the message is malformed, or could be read in two ways.
    pub(crate) const fn bad(message: &'static str) -> Self {
        Self::new(400, message)
    }
}
