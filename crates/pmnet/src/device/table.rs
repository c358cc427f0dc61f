//! The match-action table (§IV-B2, Figure 8): for each type of packet, the action of each stage of the pipeline.
//!
//! The table is complete: other code carries out these actions, and makes no decision by type.

use crate::wire::{FIRST_BYPASS, Header, kind};

/// A side of a device, on which packets arrive and leave. It is known from the socket or interface, and never from a
/// packet's contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The clients' side. Anybody may send any packet there.
    Clients,
    /// The server's side.
    Server,
}

impl Side {
    /// The opposite side.
    pub const fn across(self) -> Self {
        match self {
            Self::Clients => Self::Server,
            Self::Server => Self::Clients,
        }
    }
}

/// Action of the ingress stage. A packet that arrives on another side than its row's is forwarded and not processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ingress {
    /// Accepted from the clients' side. The source is the client, the destination the server.
    FromClient,
    /// Accepted from the server's side. The source is the server, the destination the client.
    FromServer,
    /// Accepted from both sides.
    Any,
}

impl Ingress {
    /// Whether packets that arrive on `side` are accepted.
    pub const fn counts_from(self, side: Side) -> bool {
        matches!(
            (self, side),
            (Self::Any, _) | (Self::FromClient, Side::Clients) | (Self::FromServer, Side::Server)
        )
    }
}

/// Action of the PM-access stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// No action.
    None,
    /// Adds the packet to the log.
    Log,
    /// Removes every update of the session up to the packet's number.
    RemoveUpTo,
    /// Removes the update with the packet's number.
    RemoveOne,
    /// Looks up the requested updates.
    LookUpMissing,
    /// Looks up every update of the session above the packet's number. In the release's form, looks up the update
    /// with the packet's number.
    LookUpAfter,
    /// Counts the updates of the session above the packet's number, and reports the count to the server.
    CountHeld,
    /// Looks the key up in the read cache.
    ReadCache,
    /// Reports the packet to the read cache.
    TellCache,
    /// Notes that the server has accepted the session, and reports it to the read cache.
    Started,
    /// Removes the update with the packet's number, unless a server has accepted its session. Or notes that the
    /// session's updates must not be acknowledged.
    Refused,
    /// Joins the packet with this device's own acknowledgement, once that may be sent.
    Join,
}

/// Action of the egress stage, besides sending the updates that were looked up to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Egress {
    /// Forwards the packet.
    Forward,
    /// Forwards the packet. Sends a PMNet-ACK back once the log entry is durable.
    ForwardAndAck,
    /// Forwards the packet, unless everything was found or the packet was joined.
    ForwardIfMissed,
    /// Sends a reply back and forwards the packet.
    ReplyAndForward,
    /// Forwards the packet, unless it answers this device.
    ForwardIfForeign,
}

/// A row of the table: a type of packets, and the actions for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The `type` field that the row matches; `None` matches every type.
    pub kind: Option<u8>,
    /// Name of the type, for display.
    pub name: &'static str,
    /// Action of the first stage.
    pub ingress: Ingress,
    /// Action of the second stage.
    pub access: Access,
    /// Action of the third stage.
    pub egress: Egress,
}

const fn row(kind: u8, name: &'static str, ingress: Ingress, access: Access, egress: Egress) -> Row {
    Row { kind: Some(kind), name, ingress, access, egress }
}

/// Which packets of a row must be given to the pipeline. The driver of the device may forward the others on its own.
/// They would be forwarded in any case, and the pipeline would learn nothing from them that is worth a wake-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// All packets.
    Always,
    /// Packets with the number of an update. Bypasses are numbered from [`FIRST_BYPASS`] on.
    WithUpdateNumber,
    /// No packets.
    Never,
}

impl Row {
    /// Which of the row's packets are given to the pipeline. `sees_bypasses`: the device inspects bypasses, because
    /// it has a read cache or because keys are linearizable.
    pub const fn delivery(&self, sees_bypasses: bool) -> Delivery {
        match (self.access, self.egress) {
            (Access::ReadCache | Access::TellCache, _) if !sees_bypasses => Delivery::Never,
            (Access::RemoveOne, Egress::Forward) if !sees_bypasses => Delivery::WithUpdateNumber,
            (Access::None, Egress::Forward) | (Access::Join, _) => Delivery::Never,
            _ => Delivery::Always,
        }
    }
}

/// Whether a payload is an update. An update is forwarded whatever the pipeline does with it, so it may be forwarded
/// first.
pub fn is_always_forwarded(payload: &[u8]) -> bool {
    Header::parse(payload).is_ok_and(|header| matching(header.kind).egress == Egress::ForwardAndAck)
}

/// Whether a payload is given to the pipeline. A payload without a complete header is only forwarded.
pub fn is_delivered(payload: &[u8], sees_bypasses: bool) -> bool {
    let Ok(header) = Header::parse(payload) else { return false };
    match matching(header.kind).delivery(sees_bypasses) {
        Delivery::Always => true,
        Delivery::WithUpdateNumber => header.seq < FIRST_BYPASS,
        Delivery::Never => false,
    }
}

/// The rows in order. The first row that matches applies.
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

/// The table as text, for display.
pub fn describe() -> String {
    let line = |[kind, name, ingress, access, egress, comes]: [&str; 6]| {
        format!("{kind:<6} {name:<18} {ingress:<11} {access:<14} {egress:<17} {comes}\n")
    };
    let mut text = line(["type", "name", "ingress", "PM access", "egress", "given to a process that waits"]);
    for row in TABLE {
        let kind = row.kind.map_or("*".into(), |kind| format!("{kind:#04x}"));
        let [ingress, access, egress] =
            [format!("{:?}", row.ingress), format!("{:?}", row.access), format!("{:?}", row.egress)];
        let delivery = match [false, true].map(|sees_bypasses| row.delivery(sees_bypasses)) {
            [Delivery::Always, _] => "always",
            [Delivery::Never, Delivery::Never] => "never",
            [Delivery::Never, _] => "with a read cache, or if keys are linearizable",
            [Delivery::WithUpdateNumber, _] => "with the number of an update, or as a bypass is",
        };
        text += &line([&kind, row.name, &ingress, &access, &egress, delivery]);
    }
    text += "FromClient: accepted from the clients' side only; FromServer: from the server's side only. \
             A packet from the other side is forwarded and not processed\n";
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
    fn packets_that_confirm_or_ask_are_accepted_from_the_servers_side_only() {
        for row in TABLE {
            let adds = matches!(row.access, Access::Log | Access::ReadCache);
            let only_passes = row.egress == Egress::ReplyAndForward
                || (row.access == Access::None && row.egress == Egress::Forward);
            let sides = [Side::Clients, Side::Server].map(|side| row.ingress.counts_from(side));
            assert_eq!(sides, [adds || only_passes, !adds || only_passes], "{row:?}");
        }
    }

    #[test]
    fn packets_that_are_not_delivered_would_be_forwarded_anyway() {
        for row in TABLE {
            let passes_without_cache =
                matches!(row.access, Access::None | Access::ReadCache | Access::TellCache | Access::Join)
                    && matches!(row.egress, Egress::Forward | Egress::ForwardIfMissed);
            assert_eq!(row.delivery(false) == Delivery::Never, passes_without_cache, "{row:?}");
            let passes =
                row.access == Access::Join || (row.access == Access::None && row.egress == Egress::Forward);
            assert_eq!(
                row.delivery(true),
                if passes { Delivery::Never } else { Delivery::Always },
                "{row:?}"
            );
        }
        assert_eq!(
            matching(kind::NO_OP).delivery(true),
            Delivery::Never,
            "a type without a row is forwarded"
        );
    }

    #[test]
    fn a_response_is_delivered_if_it_may_remove_an_update() {
        let packet = |kind, seq| Header::new(kind, 7, seq).to_bytes();
        for (seq, sees_bypasses, expected) in [
            (0, false, true),
            (FIRST_BYPASS - 1, false, true),
            (FIRST_BYPASS, false, false),
            (FIRST_BYPASS, true, true),
        ] {
            assert_eq!(is_delivered(&packet(kind::RESPONSE, seq), sees_bypasses), expected, "{seq:#x}");
        }
        assert!(is_delivered(&packet(kind::UPDATE, FIRST_BYPASS), false));
        assert!(!is_delivered(&packet(kind::PMNET_ACK, 1), true));
        assert!(!is_delivered(&packet(kind::UPDATE, 1)[..15], true));
    }
}
