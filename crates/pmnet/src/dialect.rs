//! The protocol that a device's clients and servers speak: Landfall's extensions, or the authors' public release.
//!
//! Every decision in which a device treats the release differently is made here, from a header and a session's
//! [`Standing`]. What the release does, and what follows from that: `docs/format/pmnet.md`, "Foreign clients and
//! servers".

use crate::log::Standing;
use crate::wire::{FIRST_BYPASS, Header, SENT_AGAIN};

/// Which protocol the two sides of a device speak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dialect {
    /// Clients and servers are Landfall's.
    #[default]
    Landfall,
    /// Clients are the release's or Landfall's. The server is Landfall's, and accepts foreign sessions
    /// ([`crate::ServerConfig::foreign`]).
    ForeignClients,
    /// Clients and servers are the release's. Such a server accepts every session, answers each update when it
    /// arrives, and treats every packet as a request.
    ForeignBoth,
}

impl Dialect {
    /// Whether the device may send heartbeats to servers. A server of the release treats a heartbeat as a request.
    pub(crate) const fn asks_servers(self) -> bool {
        !matches!(self, Self::ForeignBoth)
    }

    /// Whether acknowledgements may be joined. Clients of the release do not know joint ACKs.
    pub(crate) const fn joins(self) -> bool {
        matches!(self, Self::Landfall)
    }

    /// Whether servers apply the updates of a session in order, which a read cache relies on.
    pub(crate) const fn has_order(self) -> bool {
        !matches!(self, Self::ForeignBoth)
    }

    /// Whether an update may be logged, and therefore acknowledged before its server has it.
    ///
    /// Number 0 is a foreign session's first update. A Landfall server answers it if it accepts the session, and
    /// only then later updates may be logged. A server without foreign sessions never answers it.
    pub(crate) fn logs(self, header: &Header, standing: impl FnOnce() -> Standing) -> bool {
        match self {
            Self::Landfall => header.seq > 0,
            Self::ForeignClients => {
                !header.is_foreign() || (header.seq > 0 && standing() > Standing::Unknown)
            }
            Self::ForeignBoth => true,
        }
    }

    /// Whether a client's packet begins a session and replaces an older session of the same name.
    pub(crate) fn begins(self, header: &Header) -> bool {
        matches!(self, Self::ForeignClients) && header.is_foreign() && header.seq == 0
    }

    /// Whether a server's *response* confirms every update of the session up to its number. It does from a Landfall
    /// server, which answers a foreign session in the order of the session's single numbering.
    pub(crate) fn response_confirms_all(self, seq: u32) -> bool {
        matches!(self, Self::ForeignClients) && seq < FIRST_BYPASS
    }

    /// Whether updates and bypasses of the packet's session share one numbering.
    pub(crate) fn numbers_together(self, header: &Header) -> bool {
        matches!(self, Self::ForeignClients) && header.is_foreign() && header.seq < FIRST_BYPASS
    }

    /// Whether the device tells a server that no log has the update that the server asks for.
    pub(crate) const fn reports_absence(self) -> bool {
        matches!(self, Self::ForeignClients)
    }

    /// Marks an update that is sent again, if it belongs to a foreign session: the mark says that a log sends it.
    /// True if it was marked.
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
    fn an_update_is_logged_early_only_if_its_server_accepts_the_session() {
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
