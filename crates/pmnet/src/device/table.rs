//! The match-action table (§IV-B2, Figure 8): what each stage of the pipeline does with which type of packet.
//!
//! This is the whole of it: code elsewhere carries these actions out and decides nothing by type.

use crate::wire::{FIRST_BYPASS, Header, kind};

/// A side of a device: where a packet comes in, or leaves. It is known by the socket or interface, never by what a packet says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Towards the clients: anybody may send what they like there.
    Clients,
    /// Towards the server.
    Server,
}

impl Side {
    /// The side across.
    pub const fn across(self) -> Self {
        match self {
            Self::Clients => Self::Server,
            Self::Server => Self::Clients,
        }
    }
}

/// What the ingress stage does. A packet that came in at another side than its row's is sent on, and nothing else is done with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ingress {
    /// Counts from the clients' side: source is the client, destination the server.
    FromClient,
    /// Counts from the server's side: source is the server, destination the client.
    FromServer,
    /// Counts from either.
    Any,
}

impl Ingress {
    /// Whether packets that come in at `side` count.
    pub const fn counts_from(self, side: Side) -> bool {
        matches!(
            (self, side),
            (Self::Any, _) | (Self::FromClient, Side::Clients) | (Self::FromServer, Side::Server)
        )
    }
}

/// What the PM-access stage does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Nothing.
    None,
    /// Adds the packet to the log.
    Log,
    /// Removes every update of the session up to the packet's number.
    RemoveUpTo,
    /// Removes the update with the packet's number.
    RemoveOne,
    /// Looks up the updates that the server misses.
    LookUpMissing,
    /// Looks up every update of the session above the packet's number; in the release's form, the one with that number.
    LookUpAfter,
    /// Counts the updates of the session above the packet's number, and tells the server.
    CountHeld,
    /// Looks the key up in the read cache.
    ReadCache,
    /// Tells the read cache.
    TellCache,
    /// Notes that the server has taken the session; tells the read cache.
    Started,
    /// Removes the update with the packet's number, unless its session was taken by a server; or learns that updates of the
    /// session are not to be acknowledged.
    Refused,
    /// Joins it with this device's own acknowledgement, once that may leave.
    Join,
}

/// What the egress stage does, besides sending what was looked up to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Egress {
    /// Sends the packet on.
    Forward,
    /// Sends the packet on, and a PMNet-ACK back once the log entry is durable.
    ForwardAndAck,
    /// Sends the packet on unless all of it was found, or it was joined.
    ForwardIfMissed,
    /// Sends a reply back, and the packet on.
    ReplyAndForward,
    /// Sends the packet on unless it answers this device.
    ForwardIfForeign,
}

/// One row: packets of a type, and what is done with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The `type` field; `None` matches everything.
    pub kind: Option<u8>,
    /// For people.
    pub name: &'static str,
    /// First stage.
    pub ingress: Ingress,
    /// Second stage.
    pub access: Access,
    /// Third stage.
    pub egress: Egress,
}

const fn row(kind: u8, name: &'static str, ingress: Ingress, access: Access, egress: Egress) -> Row {
    Row { kind: Some(kind), name, ingress, access, egress }
}

/// Which packets of a row must come to the pipeline. The others would be sent on in any case, and nothing would be learnt from
/// them, or nothing that is worth being woken for: what moves packets may do so without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comes {
    /// All of them.
    Always,
    /// Those with the number of an update: bypasses are numbered from [`FIRST_BYPASS`] on.
    WithUpdatesNumber,
    /// None.
    Never,
}

impl Row {
    /// Which of its packets come to the pipeline of a device that looks at bypasses, for its read cache or to hold them, or of one
    /// that does not.
    pub const fn comes(&self, sees_bypasses: bool) -> Comes {
        match (self.access, self.egress) {
            (Access::ReadCache | Access::TellCache, _) if !sees_bypasses => Comes::Never,
            (Access::RemoveOne, Egress::Forward) if !sees_bypasses => Comes::WithUpdatesNumber,
            (Access::None, Egress::Forward) | (Access::Join, _) => Comes::Never,
            _ => Comes::Always,
        }
    }
}

/// Whether a payload is an update's: it is sent on whatever becomes of it here, and so may be sent on first.
pub fn goes_on(payload: &[u8]) -> bool {
    Header::parse(payload).is_ok_and(|header| matching(header.kind).egress == Egress::ForwardAndAck)
}

/// Whether a payload comes to the pipeline. What has no whole header is sent on, too.
pub fn comes(payload: &[u8], sees_bypasses: bool) -> bool {
    let Ok(header) = Header::parse(payload) else { return false };
    match matching(header.kind).comes(sees_bypasses) {
        Comes::Always => true,
        Comes::WithUpdatesNumber => header.seq < FIRST_BYPASS,
        Comes::Never => false,
    }
}

/// The rows in order: the first that matches counts.
pub const TABLE: &[Row] = &[
    row(kind::UPDATE, "update", Ingress::FromClient, Access::Log, Egress::ForwardAndAck),
    row(kind::UPDATE_FRAGMENT, "update fragment", Ingress::FromClient, Access::Log, Egress::ForwardAndAck),
    row(kind::PMNET_ACK, "PMNet-ACK", Ingress::FromServer, Access::Join, Egress::ForwardIfMissed),
    row(kind::JOINT_ACK, "joint ACK", Ingress::FromServer, Access::Join, Egress::ForwardIfMissed),
    row(kind::SERVER_ACK, "server-ACK", Ingress::FromServer, Access::RemoveUpTo, Egress::Forward),
    row(kind::RESPONSE, "response", Ingress::FromServer, Access::RemoveOne, Egress::Forward),
    row(
        kind::RETRANSMIT,
        "retransmission",
        Ingress::FromServer,
        Access::LookUpMissing,
        Egress::ForwardIfMissed,
    ),
    row(kind::RECOVER, "recover", Ingress::FromServer, Access::LookUpAfter, Egress::ForwardIfMissed),
    row(kind::HELD_REQUEST, "held request", Ingress::FromServer, Access::CountHeld, Egress::Forward),
    row(kind::BYPASS, "bypass", Ingress::FromClient, Access::ReadCache, Egress::ForwardIfMissed),
    row(
        kind::ORDERED_BYPASS,
        "ordered bypass",
        Ingress::FromClient,
        Access::ReadCache,
        Egress::ForwardIfMissed,
    ),
    row(
        kind::BYPASS_FRAGMENT,
        "bypass fragment",
        Ingress::FromClient,
        Access::ReadCache,
        Egress::ForwardIfMissed,
    ),
    row(
        kind::RESPONSE_FRAGMENT,
        "response fragment",
        Ingress::FromServer,
        Access::TellCache,
        Egress::Forward,
    ),
    row(kind::RESPONSE_PART, "response part", Ingress::FromServer, Access::TellCache, Egress::Forward),
    row(kind::RESPONSE_REQUEST, "response request", Ingress::Any, Access::None, Egress::Forward),
    row(kind::SESSION_STARTED, "session started", Ingress::FromServer, Access::Started, Egress::Forward),
    row(kind::SESSION_ENDED, "session ended", Ingress::FromServer, Access::TellCache, Egress::Forward),
    row(kind::SESSION_REFUSED, "session refused", Ingress::FromServer, Access::Refused, Egress::Forward),
    row(kind::HEARTBEAT, "heartbeat", Ingress::Any, Access::None, Egress::ReplyAndForward),
    row(
        kind::HEARTBEAT_REPLY,
        "heartbeat reply",
        Ingress::FromServer,
        Access::None,
        Egress::ForwardIfForeign,
    ),
    Row { kind: None, name: "other", ingress: Ingress::Any, access: Access::None, egress: Egress::Forward },
];

/// The row that a packet of this type matches.
pub fn matching(kind: u8) -> &'static Row {
    let matches = |row: &&Row| row.kind.is_none_or(|known| known == kind);
    TABLE.iter().find(matches).expect("the last row matches everything")
}

/// The table, for people.
pub fn describe() -> String {
    let line = |[kind, name, ingress, access, egress, comes]: [&str; 6]| {
        format!("{kind:<6} {name:<18} {ingress:<11} {access:<14} {egress:<17} {comes}\n")
    };
    let mut text = line(["type", "name", "ingress", "PM access", "egress", "comes to a process that waits"]);
    for row in TABLE {
        let kind = row.kind.map_or("*".into(), |kind| format!("{kind:#04x}"));
        let [ingress, access, egress] =
            [format!("{:?}", row.ingress), format!("{:?}", row.access), format!("{:?}", row.egress)];
        let comes = match [false, true].map(|sees_bypasses| row.comes(sees_bypasses)) {
            [Comes::Always, _] => "always",
            [Comes::Never, Comes::Never] => "never",
            [Comes::Never, _] => "with a read cache, or where keys are linearizable",
            [Comes::WithUpdatesNumber, _] => "if it has an update's number, or as a bypass does",
        };
        text += &line([&kind, row.name, &ingress, &access, &egress, comes]);
    }
    text += "FromClient counts from the clients' side alone, FromServer from the server's: what comes in at the other is sent on, and not believed\n";
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_matches_one_row_and_unknown_ones_are_forwarded() {
        for byte in 0..=u8::MAX {
            let known = TABLE.iter().filter(|row| row.kind == Some(byte)).count();
            assert!(known <= 1, "{byte:#x} has two rows");
            if known == 0 {
                let row = matching(byte);
                assert_eq!((row.access, row.egress), (Access::None, Egress::Forward));
            }
        }
        assert_eq!(describe().lines().count(), TABLE.len() + 2);
    }

    #[test]
    fn what_confirms_or_asks_counts_from_the_servers_side_alone() {
        for row in TABLE {
            let adds = matches!(row.access, Access::Log | Access::ReadCache);
            let only_passes = row.egress == Egress::ReplyAndForward
                || (row.access == Access::None && row.egress == Egress::Forward);
            let sides = [Side::Clients, Side::Server].map(|side| row.ingress.counts_from(side));
            assert_eq!(sides, [adds || only_passes, !adds || only_passes], "{row:?}");
        }
    }

    #[test]
    fn what_does_not_come_would_be_sent_on_anyway() {
        for row in TABLE {
            let passes_without_cache =
                matches!(row.access, Access::None | Access::ReadCache | Access::TellCache | Access::Join)
                    && matches!(row.egress, Egress::Forward | Egress::ForwardIfMissed);
            assert_eq!(row.comes(false) == Comes::Never, passes_without_cache, "{row:?}");
            let passes =
                row.access == Access::Join || (row.access == Access::None && row.egress == Egress::Forward);
            assert_eq!(row.comes(true), if passes { Comes::Never } else { Comes::Always }, "{row:?}");
        }
        assert_eq!(matching(kind::NO_OP).comes(true), Comes::Never, "what no row names is sent on");
    }

    #[test]
    fn a_response_comes_if_it_may_remove_an_update() {
        let packet = |kind, seq| Header::new(kind, 7, seq).to_bytes();
        for (seq, sees_bypasses, expected) in [
            (0, false, true),
            (FIRST_BYPASS - 1, false, true),
            (FIRST_BYPASS, false, false),
            (FIRST_BYPASS, true, true),
        ] {
            assert_eq!(comes(&packet(kind::RESPONSE, seq), sees_bypasses), expected, "{seq:#x}");
        }
        assert!(comes(&packet(kind::UPDATE, FIRST_BYPASS), false));
        assert!(!comes(&packet(kind::PMNET_ACK, 1), true));
        assert!(!comes(&packet(kind::UPDATE, 1)[..15], true));
    }
}
