//! The match-action table (§IV-B2, Figure 8): what each stage of the pipeline does with which type of packet.
//!
//! This is the whole of it: code elsewhere carries these actions out and decides nothing by type.

use crate::wire::kind;

/// What the ingress stage does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ingress {
    /// Comes from a client: source is the client, destination the server.
    FromClient,
    /// Comes from a server: source is the server, destination the client.
    FromServer,
    /// Either.
    Any,
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
    /// Looks up every update of the session above the packet's number.
    LookUpAfter,
    /// Looks the key up in the read cache.
    ReadCache,
}

/// What the egress stage does, besides sending what was looked up to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Egress {
    /// Sends the packet on.
    Forward,
    /// Sends the packet on, and a PMNet-ACK back once the log entry is durable.
    ForwardAndAck,
    /// Sends the packet on unless all of it was found.
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

/// The rows in order: the first that matches counts.
pub const TABLE: &[Row] = &[
    row(kind::UPDATE, "update", Ingress::FromClient, Access::Log, Egress::ForwardAndAck),
    row(kind::UPDATE_FRAGMENT, "update fragment", Ingress::FromClient, Access::Log, Egress::ForwardAndAck),
    row(kind::PMNET_ACK, "PMNet-ACK", Ingress::FromServer, Access::None, Egress::Forward),
    row(kind::SERVER_ACK, "server-ACK", Ingress::FromServer, Access::RemoveUpTo, Egress::Forward),
    row(kind::RESPONSE, "response", Ingress::FromServer, Access::RemoveOne, Egress::Forward),
    row(
        kind::RETRANSMIT,
        "retransmission",
        Ingress::FromServer,
        Access::LookUpMissing,
        Egress::ForwardIfMissed,
    ),
    row(kind::RECOVER, "recover", Ingress::FromServer, Access::LookUpAfter, Egress::Forward),
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
    row(kind::HEARTBEAT, "heartbeat", Ingress::Any, Access::None, Egress::ReplyAndForward),
    row(kind::HEARTBEAT_REPLY, "heartbeat reply", Ingress::Any, Access::None, Egress::ForwardIfForeign),
    Row { kind: None, name: "other", ingress: Ingress::Any, access: Access::None, egress: Egress::Forward },
];

/// The row that a packet of this type matches.
pub fn matching(kind: u8) -> &'static Row {
    let matches = |row: &&Row| row.kind.is_none_or(|known| known == kind);
    TABLE.iter().find(matches).expect("the last row matches everything")
}

/// The table, for people.
pub fn describe() -> String {
    let mut text =
        format!("{:<6} {:<16} {:<11} {:<14} {}\n", "type", "name", "ingress", "PM access", "egress");
    for row in TABLE {
        let kind = row.kind.map_or("*".into(), |kind| format!("{kind:#04x}"));
        let (ingress, access) = (format!("{:?}", row.ingress), format!("{:?}", row.access));
        text += &format!("{kind:<6} {:<16} {ingress:<11} {access:<14} {:?}\n", row.name, row.egress);
    }
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
        assert_eq!(describe().lines().count(), TABLE.len() + 1);
    }
}
