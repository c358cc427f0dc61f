//! Counters of a stack: packets by kind, and every dropped packet by reason.

/// Why a packet was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(usize)]
pub enum Drop {
    /// Shorter than its headers say, or with an invalid header.
    Malformed,
    /// A protocol that the stack does not handle.
    Protocol,
    /// Not addressed to this host.
    NotOurs,
    /// A fragment: the stack does not reassemble fragments.
    Fragment,
    /// The IP header's checksum is wrong.
    IpChecksum,
    /// The TCP, UDP or ICMP checksum is wrong.
    Checksum,
    /// The sender left the checksum to a network card, and there is none on this path: its checksum offload must be
    /// off.
    PartialChecksum,
    /// No application listens on that port.
    NoListener,
    /// No such connection exists.
    NoConnection,
    /// The connection table is full.
    Full,
    /// A SYN in a state that expects none.
    Syn,
    /// A reset whose sequence number is not exactly the next one (RFC 5961, 3.2).
    Reset,
    /// Outside of the receive window (RFC 9293, 3.10.7.4).
    OutOfWindow,
    /// A timestamp older than the last one (PAWS; RFC 7323, 5).
    Paws,
    /// An acknowledgement of data that were never sent, or were acknowledged long ago (RFC 5961, 5.2).
    BadAck,
    /// Data that have arrived before.
    Duplicate,
    /// Out-of-order data beyond what one connection, or all connections together, may keep.
    TooMuchWaiting,
    /// Data for a connection that accepts no more.
    Closed,
}

/// Name and value of each reason, in order.
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
    /// Received segments with the PUSH bit (RFC 9293, 3.9.1.2): the sender waits until its data are used.
    pub pushed: u64,
    /// Connections opened, by the application or by a peer.
    pub opened: u64,
    /// Retransmitted segments.
    pub retransmitted: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// Losses that halved a congestion window without a timeout.
    pub recoveries: u64,
    /// Out-of-order segments that were kept.
    pub out_of_order: u64,
    /// Bytes that were copied out of frames because they waited for long.
    pub set_aside_bytes: u64,
    /// SYNs answered with a cookie.
    pub cookies_sent: u64,
    /// Connections opened by the acknowledgement of a cookie.
    pub cookies_accepted: u64,
    /// Acknowledgements sent as a challenge to a suspicious segment (RFC 5961).
    pub challenges: u64,
    /// Packets dropped, by reason, in the order of [`DROPS`].
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
