//! The durable state of a session, which the application commits.

use crate::identity::{SessionKey, octets};
use crate::wire::FIRST_BYPASS;
use core::net::{Ipv6Addr, SocketAddr};

/// First byte of [`SessionRow::to_bytes`].
const VERSION: u8 = 1;
const ENDED: u8 = 1;
/// The highest floor. Rows with numbers above this limit are not evicted, because the floor would leave too few numbers to
/// new sessions.
pub const FLOOR_MAX: u32 = 1 << 30;

/// The durable state of a session. It is committed together with the effects of the request that changes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionRow {
    /// The session.
    pub key: SessionKey,
    /// The nonce in the client's session start; 0 for foreign sessions.
    pub nonce: u64,
    /// Number of the last update that was applied; in a foreign session, of the last request. Before the first one,
    /// it is one less than the first number: `u32::MAX` where the first number is 0.
    pub update: u32,
    /// Number of the last executed bypass that changed something. Before the first one, it is one less than the
    /// first number. In a session that has ended, it is the last bypass.
    pub bypass: u32,
    /// Whether the session has ended.
    pub ended: bool,
    /// Counts the ends of sessions: rows with the lowest counts are evicted first.
    pub touched: u64,
    /// The lease in seconds that was announced to the client; 0 without a lease.
    pub lease: u16,
}

impl SessionRow {
    /// Length of [`Self::to_bytes`].
    pub const BYTES: usize = 48;

    /// The highest number that the session has used, of its updates, or of its bypasses counted from their first
    /// number. When the row is evicted, the floor rises to it.
    pub fn height(&self) -> u32 {
        let bypasses = self.bypass - (FIRST_BYPASS - 1);
        if self.update == u32::MAX { bypasses } else { self.update.max(bypasses) }
    }

    /// Whether the row may be evicted: the floor then leaves enough numbers to new sessions.
    pub fn is_evictable(&self) -> bool {
        self.height() <= FLOOR_MAX
    }

    /// The row's bytes. Byte table: `docs/format/pmnet.md`, "A session's row".
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[0] = VERSION;
        bytes[1] = if self.ended { ENDED } else { 0 };
        bytes[2..4].copy_from_slice(&self.key.session.to_le_bytes());
        bytes[4..20].copy_from_slice(&octets(self.key.client.ip()));
        bytes[20..22].copy_from_slice(&self.key.client.port().to_le_bytes());
        bytes[22..24].copy_from_slice(&self.lease.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.nonce.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.update.to_le_bytes());
        bytes[36..40].copy_from_slice(&self.bypass.to_le_bytes());
        bytes[40..].copy_from_slice(&self.touched.to_le_bytes());
        bytes
    }

    /// Whether the row belongs to a session of the authors' release, whose updates and bypasses share one numbering.
    pub fn is_foreign(&self) -> bool {
        self.nonce == 0
    }

    /// Reads what [`Self::to_bytes`] writes. `None` if the length, the version, a flag or a number is invalid.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::BYTES] = bytes.try_into().ok()?;
        if bytes[0] != VERSION || bytes[1] > ENDED {
            return None;
        }
        let u32_at = |at: usize| bytes[at..].first_chunk().map(|four| u32::from_le_bytes(*four));
        let u64_at = |at: usize| bytes[at..].first_chunk().map(|eight| u64::from_le_bytes(*eight));
        let address = Ipv6Addr::from(*bytes[4..].first_chunk::<16>()?).to_canonical();
        let client = SocketAddr::new(address, u16::from_le_bytes([bytes[20], bytes[21]]));
        let row = Self {
            key: SessionKey { client, session: u16::from_le_bytes([bytes[2], bytes[3]]) },
            nonce: u64_at(24)?,
            update: u32_at(32)?,
            bypass: u32_at(36)?,
            ended: bytes[1] == ENDED,
            touched: u64_at(40)?,
            lease: u16::from_le_bytes([bytes[22], bytes[23]]),
        };
        let numbers = (row.update < FIRST_BYPASS || row.update == u32::MAX) && row.bypass >= FIRST_BYPASS - 1;
        numbers.then_some(row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(client: &str) -> SessionRow {
        SessionRow {
            key: SessionKey { client: client.parse().unwrap(), session: 0x0102 },
            nonce: 0x1112_1314_1516_1718,
            update: 7,
            bypass: FIRST_BYPASS + 9,
            ended: true,
            touched: 0x2122_2324_2526_2728,
            lease: 0x3132,
        }
    }

    #[test]
    fn rows_round_trip_through_their_bytes() {
        for client in ["10.0.0.1:40000", "[fd00::1]:1"] {
            let row = row(client);
            assert_eq!(SessionRow::from_bytes(&row.to_bytes()), Some(row));
            let open = SessionRow { ended: false, update: u32::MAX, bypass: FIRST_BYPASS - 1, ..row };
            assert_eq!(SessionRow::from_bytes(&open.to_bytes()), Some(open));
        }
    }

    #[test]
    fn the_bytes_of_a_row_match_the_document() {
        let bytes = row("10.0.0.1:40000").to_bytes();
        let mut expected = vec![1, 1, 2, 1];
        expected.extend_from_slice(&[
            0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1, 0x40, 0x9c, 0x32, 0x31,
        ]);
        expected
            .extend_from_slice(&[0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11, 7, 0, 0, 0, 9, 0, 0, 0x80]);
        expected.extend_from_slice(&[0x28, 0x27, 0x26, 0x25, 0x24, 0x23, 0x22, 0x21]);
        assert_eq!(bytes[..], expected[..]);
    }

    #[test]
    fn bytes_that_are_no_row_are_refused() {
        let bytes = row("10.0.0.1:40000").to_bytes();
        assert_eq!(SessionRow::from_bytes(&bytes[..47]), None);
        for (at, byte) in [(0, 2), (1, 2), (35, 0x80), (39, 0)] {
            let mut other = bytes;
            other[at] = byte;
            assert_eq!(SessionRow::from_bytes(&other), None, "byte {at}");
        }
    }
}
