//! What a device's clients and servers speak: Landfall's extensions, or the authors' public release.
//!
//! Everything in which a device treats the release otherwise is decided here, from a header and a session's [`Standing`]. What the
//! release does, and what follows: `docs/format/pmnet.md`, "Foreign clients and servers".

use crate::log::Standing;
use crate::wire::{FIRST_BYPASS, Header, SENT_AGAIN};

/// Who is on both sides of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dialect {
    /// Landfall's clients and servers.
    #[default]
    Landfall,
    /// The release's clients, and Landfall's, in front of a Landfall server that takes foreign sessions
    /// ([`crate::ServerConfig::foreign`]).
    ForeignClients,
    /// The release's clients and servers. Its servers take every session, answer updates one by one as they come, and take every
    /// packet for a request.
    ForeignBoth,
}

impl Dialect {
    /// Whether servers may be asked whether they live: the release's take that for a request.
    pub(crate) const fn asks_servers(self) -> bool {
        !matches!(self, Self::ForeignBoth)
    }

    /// Whether acknowledgements may be joined: the release's clients know no joint one.
    pub(crate) const fn joins(self) -> bool {
        matches!(self, Self::Landfall)
    }

    /// Whether servers apply the updates of a session in order, as a read cache needs it.
    pub(crate) const fn has_order(self) -> bool {
        !matches!(self, Self::ForeignBoth)
    }

    /// Whether an update may be logged, and so acknowledged before its server has it.
    ///
    /// Number 0 is a foreign session's first. Whether a Landfall server takes the session is known once it has answered that; a
    /// server without foreign sessions never does.
    pub(crate) fn logs(self, header: &Header, standing: impl FnOnce() -> Standing) -> bool {
        match self {
            Self::Landfall => header.seq > 0,
            Self::ForeignClients => {
                !header.is_foreign() || (header.seq > 0 && standing() > Standing::Unknown)
            }
            Self::ForeignBoth => true,
        }
    }

    /// Whether a packet of a client's begins a session in place of another one with its name.
    pub(crate) fn begins(self, header: &Header) -> bool {
        matches!(self, Self::ForeignClients) && header.is_foreign() && header.seq == 0
    }

    /// Whether a server's *response* confirms every update of the session up to its number: a Landfall server answers a foreign
    /// session in the order of its one numbering.
    pub(crate) fn response_confirms_all(self, seq: u32) -> bool {
        matches!(self, Self::ForeignClients) && seq < FIRST_BYPASS
    }

    /// Whether updates and bypasses of the packet's session share one numbering.
    pub(crate) fn numbers_together(self, header: &Header) -> bool {
        matches!(self, Self::ForeignClients) && header.is_foreign() && header.seq < FIRST_BYPASS
    }

    /// Whether a server is told that no log has what it asks for.
    pub(crate) const fn tells_absence(self) -> bool {
        matches!(self, Self::ForeignClients)
    }

    /// An update as it is sent again: one of a foreign session says that it comes from a log.
    pub(crate) fn mark(self, update: &mut [u8]) -> bool {
        let is_foreign = Header::parse(update).is_ok_and(|header| header.is_foreign());
        let marks = matches!(self, Self::ForeignClients) && is_foreign;
        if marks {
            update[1] = SENT_AGAIN;
        }
        marks
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::kind;

    fn foreign(seq: u32) -> Header {
        Header { hash: 0x8000_0000 | seq << 11, ..Header::new(kind::UPDATE, 50_000, seq) }
    }

    #[test]
    fn an_update_is_logged_early_only_where_its_server_takes_the_session() {
        let (unknown, heard) = (Standing::Unknown, Standing::Heard);
        for (dialect, header, standing, logs) in [
            (Dialect::Landfall, foreign(0), heard, false),
            (Dialect::Landfall, Header::new(kind::UPDATE, 1, 1), unknown, true),
            (Dialect::ForeignClients, foreign(0), heard, false),
            (Dialect::ForeignClients, foreign(1), unknown, false),
            (Dialect::ForeignClients, foreign(1), heard, true),
            (Dialect::ForeignClients, Header::new(kind::UPDATE, 1, 1), unknown, true),
            (Dialect::ForeignBoth, foreign(0), unknown, true),
        ] {
            assert_eq!(dialect.logs(&header, || standing), logs, "{dialect:?} {header:?} {standing:?}");
        }
    }

    #[test]
    fn only_foreign_updates_are_marked_and_only_for_a_server_that_knows_the_mark() {
        let (own, theirs) = (Header::new(kind::UPDATE, 1, 5).to_bytes(), foreign(5).to_bytes());
        for (dialect, bytes, marks) in [
            (Dialect::Landfall, theirs, false),
            (Dialect::ForeignClients, theirs, true),
            (Dialect::ForeignClients, own, false),
            (Dialect::ForeignBoth, theirs, false),
        ] {
            let mut marked = bytes;
            assert_eq!(dialect.mark(&mut marked), marks);
            assert_eq!(marked[1], if marks { SENT_AGAIN } else { bytes[1] });
            assert_eq!((marked[0], &marked[2..]), (bytes[0], &bytes[2..]));
        }
        assert!(!Dialect::ForeignClients.mark(&mut own[..7].to_vec()));
    }
}
