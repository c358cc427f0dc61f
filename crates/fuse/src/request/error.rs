//! What can be wrong with a request.

use crate::types::Unique;

/// A request that cannot be decoded. The kernel sends none; a damaged one is answered with `EIO` where it has an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a malformed request of opcode {opcode}: {what}")]
pub struct DecodeError {
    /// The request's id; `None`: its header is incomplete, so that nothing can be answered.
    pub unique: Option<Unique>,
    /// Its opcode, 0 where the header is incomplete.
    pub opcode: u32,
    /// What is wrong.
    pub what: Malformed,
}

/// What is wrong with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Malformed {
    /// It ends before a field that it must have.
    #[error("it is too short")]
    Short,
    /// The length in its header is not the length that was received.
    #[error("its length is not the received one")]
    Length,
    /// A string has no end.
    #[error("a string has no terminating NUL")]
    Unterminated,
    /// A name is empty or holds a slash.
    #[error("a name is empty or holds a slash")]
    Name,
    /// A field holds a value that the protocol does not know.
    #[error("a field holds an unknown value")]
    Value,
}
