//! The number that epoll returns for a ready descriptor, which identifies its owner.

use crate::conn_id::ConnId;
use crate::slots::ID_BITS;

/// The source, in the bits from [`ID_BITS`] on; a connection's id or an index below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Token(pub(super) u64);

/// What kind of descriptor is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Conn,
    Listener,
    Writer,
    Waker,
    Watched,
}

impl Token {
    /// The token of a source that exists once.
    pub(super) const fn of(source: Source) -> Self {
        Self((source as u64) << ID_BITS)
    }

    pub(super) const fn of_conn(conn: ConnId) -> Self {
        Self(Self::of(Source::Conn).0 | conn.0)
    }

    pub(super) const fn of_listener(index: usize) -> Self {
        Self(Self::of(Source::Listener).0 | index as u64)
    }

    pub(super) const fn source(self) -> Source {
        match self.0 >> ID_BITS {
            0 => Source::Conn,
            1 => Source::Listener,
            2 => Source::Writer,
            3 => Source::Waker,
            _ => Source::Watched,
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
    fn source_and_connection_survive_the_token() {
        let conn = ConnId((1 << ID_BITS) - 3);
        assert_eq!((Token::of_conn(conn).source(), Token::of_conn(conn).conn()), (Source::Conn, conn));
        assert_eq!(Token::of_listener(7).index(), 7);
        for source in [Source::Conn, Source::Listener, Source::Writer, Source::Waker, Source::Watched] {
            assert_eq!(Token::of(source).source(), source);
        }
    }
}
