//! What identifies packets: the addresses of a flow, the key of a session, the identity of an update.

use core::net::{IpAddr, Ipv6Addr, SocketAddr};

/// A client's and a server's address. Together they name the packets between the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Flow {
    /// The client's address and port.
    pub client: SocketAddr,
    /// The server's address and port.
    pub server: SocketAddr,
}

impl Flow {
    /// Length of [`Self::to_bytes`].
    pub const BYTES: usize = 36;

    /// The form in records: address (16, IPv4 mapped) and port (2, little-endian) of the client, then of the server.
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        for (half, end) in bytes.chunks_exact_mut(18).zip([self.client, self.server]) {
            half[..16].copy_from_slice(&octets(end.ip()));
            half[16..].copy_from_slice(&end.port().to_le_bytes());
        }
        bytes
    }

    /// Reads what [`Self::to_bytes`] writes.
    pub fn from_bytes(bytes: &[u8; Self::BYTES]) -> Self {
        let end = |half: &[u8]| {
            let octets: [u8; 16] = half[..16].try_into().expect("sixteen bytes");
            let port = u16::from_le_bytes([half[16], half[17]]);
            SocketAddr::new(Ipv6Addr::from(octets).to_canonical(), port)
        };
        Self { client: end(&bytes[..18]), server: end(&bytes[18..]) }
    }
}

/// An IP address as 16 octets; IPv4 is mapped into IPv6.
pub(crate) fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

/// Identifies a session at its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionKey {
    /// The client's address and port.
    pub client: SocketAddr,
    /// The client's number for the session.
    pub session: u16,
}

/// Identifies an update. Nothing else does; in particular, the packet's hash does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Identity {
    /// The client that sends it and the server that receives it.
    pub flow: Flow,
    /// The session.
    pub session: u16,
    /// Its sequence number in the session.
    pub seq: u32,
}

impl Identity {
    /// Length of [`Self::to_bytes`], which is the key of a log entry's record.
    pub const BYTES: usize = Flow::BYTES + 6;

    /// The flow's bytes, session (2) and sequence number (4), little-endian.
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..Flow::BYTES].copy_from_slice(&self.flow.to_bytes());
        bytes[36..38].copy_from_slice(&self.session.to_le_bytes());
        bytes[38..].copy_from_slice(&self.seq.to_le_bytes());
        bytes
    }

    /// Reads what [`Self::to_bytes`] writes; `None` if the length differs.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::BYTES] = bytes.try_into().ok()?;
        let flow = Flow::from_bytes(bytes[..Flow::BYTES].try_into().ok()?);
        let session = u16::from_le_bytes([bytes[36], bytes[37]]);
        let seq = u32::from_le_bytes(bytes[38..].try_into().ok()?);
        Some(Self { flow, session, seq })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identities_round_trip_through_their_bytes() {
        for (client, server) in [("10.0.0.1:40000", "10.0.0.2:51000"), ("[fd00::1]:1", "[fd00::2]:52000")] {
            let flow = Flow { client: client.parse().unwrap(), server: server.parse().unwrap() };
            let identity = Identity { flow, session: 0xabcd, seq: 0x0102_0304 };
            assert_eq!(Identity::from_bytes(&identity.to_bytes()), Some(identity));
        }
        assert_eq!(Identity::from_bytes(&[0; 41]), None);
    }
}
