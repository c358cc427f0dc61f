//! The number that comes back with a completion, which identifies the operation and its owner.

use crate::conn_id::ConnId;
use crate::slots::ID_BITS;

/// The operation, in the bits from [`ID_BITS`] on; a connection's id or an index below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Token(pub(super) u64);

/// The kind of a queued operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Accept,
    Receive,
    Send,
    Cancel,
    Wake,
    Written,
    Watch,
}

impl Token {
    /// The token of an operation that exists once at a time.
    pub(super) const fn of(operation: Operation) -> Self {
        Self((operation as u64) << ID_BITS)
    }

    pub(super) const fn of_conn(operation: Operation, conn: ConnId) -> Self {
        Self(Self::of(operation).0 | conn.0)
    }

    pub(super) const fn of_index(operation: Operation, index: usize) -> Self {
        Self(Self::of(operation).0 | index as u64)
    }

    pub(super) const fn operation(self) -> Operation {
        match self.0 >> ID_BITS {
            0 => Operation::Accept,
            1 => Operation::Receive,
            2 => Operation::Send,
            4 => Operation::Wake,
            5 => Operation::Written,
            6 => Operation::Watch,
            _ => Operation::Cancel,
        }
    }

    pub(super) const fn conn(self) -> ConnId {
        ConnId(self.below())
    }

    pub(super) const fn index(self) -> usize {
        self.below() as usize
    }

    const fn below(self) -> u64 {
        self.0 & ((1 << ID_BITS) - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operation_and_connection_survive_the_token() {
        let conn = ConnId((1 << ID_BITS) - 3);
        for operation in [
            Operation::Accept,
            Operation::Receive,
            Operation::Send,
            Operation::Cancel,
            Operation::Wake,
            Operation::Written,
            Operation::Watch,
        ] {
            let token = Token::of_conn(operation, conn);
            assert_eq!((token.operation(), token.conn()), (operation, conn));
            assert_eq!(Token::of_index(operation, 7).index(), 7);
        }
    }
}
