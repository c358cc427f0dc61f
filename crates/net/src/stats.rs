//! What the stack counts: packets by kind, and every packet that it drops, by reason.

/// Why a packet was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(usize)]
pub enum Drop {
    /// Shorter than its headers say, or with a header that makes no sense.
    Malformed,
    /// A protocol that is not ours to answer.
    Protocol,
    /// Not for one of our addresses.
    NotOurs,
    /// A piece of a fragmented packet: fragments are not put together.
    Fragment,
    /// The IP header's checksum is wrong.
    IpChecksum,
    /// The TCP, UDP or ICMP checksum is wrong.
    Checksum,
    /// The sender left the checksum to a network card that is not there: its checksum offload must be off.
    PartialChecksum,
    /// Nobody listens on that port.
    NoListener,
    /// No such connection.
    NoConnection,
    /// As many connections as there may be.
    Full,
    /// A SYN where none is expected.
    Syn,
    /// A reset that is not exactly right (RFC 5961, 3.2).
    Reset,
    /// Outside of the window, or old (RFC 9293, 3.10.7.4).
    OutOfWindow,
    /// A timestamp from the past (RFC 7323, 5).
    Paws,
    /// An acknowledgement of what was never sent, or long ago (RFC 5961, 5.2).
    BadAck,
    /// Data that had arrived before.
    Duplicate,
    /// Data after a hole, more of it than a connection, or all of them, may keep.
    TooMuchWaiting,
    /// Data for a connection that takes no more.
    Closed,
}

/// Names and number of the reasons, in order.
pub const DROPS: [(&str, Drop); 18] = [
    ("malformed", Drop::Malformed),
    ("protocol", Drop::Protocol),
    ("not_ours", Drop::NotOurs),
    ("fragment", Drop::Fragment),
    ("ip_checksum", Drop::IpChecksum),
    ("checksum", Drop::Checksum),
    ("partial_checksum", Drop::PartialChecksum),
    ("no_listener", Drop::NoListener),
    ("no_connection", Drop::NoConnection),
    ("full", Drop::Full),
    ("syn", Drop::Syn),
    ("reset", Drop::Reset),
    ("out_of_window", Drop::OutOfWindow),
    ("paws", Drop::Paws),
    ("bad_ack", Drop::BadAck),
    ("duplicate", Drop::Duplicate),
    ("too_much_waiting", Drop::TooMuchWaiting),
    ("closed", Drop::Closed),
];

/// Counters of one stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Frames received.
    pub received: u64,
    /// Frames handed out for sending.
    pub sent: u64,
    /// Segments received whose sender waits for what it has sent to be used (RFC 9293, 3.9.1.2: PUSH).
    pub pushed: u64,
    /// Connections that were opened, by us or by a peer.
    pub opened: u64,
    /// Segments sent again.
    pub retransmitted: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// Losses that cost half of a congestion window, without a timeout.
    pub recoveries: u64,
    /// Segments that arrived after a hole and were kept.
    pub out_of_order: u64,
    /// Bytes that were copied out of frames because they waited long.
    pub set_aside_bytes: u64,
    /// SYNs answered with a cookie.
    pub cookies_sent: u64,
    /// Connections opened by a cookie that came back.
    pub cookies_accepted: u64,
    /// Acknowledgements sent to challenge a suspicious segment (RFC 5961).
    pub challenges: u64,
    /// Packets dropped, by reason: see [`DROPS`].
    dropped: [u64; DROPS.len()],
}

impl Stats {
    /// Packets dropped for this reason.
    pub fn dropped(&self, reason: Drop) -> u64 {
        self.dropped[reason as usize]
    }

    /// Packets dropped, with the reasons' names.
    pub fn drops(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        DROPS.iter().map(|(name, reason)| (*name, self.dropped(*reason)))
    }

    pub(crate) fn drop(&mut self, reason: Drop) {
        self.dropped[reason as usize] += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_its_name_and_place() {
        for (index, (_, reason)) in DROPS.iter().enumerate() {
            assert_eq!(*reason as usize, index);
        }
    }
}
