//! Optional authentication of packets by a key that clients, devices and server share.
//!
//! Read [`Guard`] first: it seals outgoing packets and opens incoming ones. Position and coverage of the tag,
//! freshness, and the treatment of repeated packets: `docs/format/pmnet.md`, "Tags". A guard without a key changes
//! no packet: the packets are those of the authors' format.

mod fresh;
mod key;
mod unsealed;

pub use key::Key;
pub use unsealed::Unsealed;

use crate::device::Side;
use crate::identity::octets;
use crate::wire::kind;
use core::hash::Hasher;
use core::net::SocketAddr;
use fresh::Fresh;
use siphasher::sip128::{Hasher128, SipHasher24};

/// Bytes of a tag.
const TAG_BYTES: usize = 16;
/// Bytes of a stamp: the time (8) and the sender (8).
const STAMP_BYTES: usize = 16;
/// Nanoseconds by which the last stamp may be ahead of the clock: stamps differ, however fast packets are sent.
const AHEAD_NS: u64 = 1_000_000_000;
/// Most bytes that a guard adds to a packet.
pub const SEAL_BYTES_MAX: usize = STAMP_BYTES + TAG_BYTES;

/// The addresses and the direction that a tag covers. A packet is valid for one client and in one direction only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    towards: Side,
    client: SocketAddr,
    server_port: u16,
}

impl Ends {
    /// For a packet from a client to a server.
    pub fn to_server(client: SocketAddr, server_port: u16) -> Self {
        Self { towards: Side::Server, client, server_port }
    }

    /// For a packet from a server or a device to a client.
    pub fn to_client(client: SocketAddr, server_port: u16) -> Self {
        Self { towards: Side::Clients, client, server_port }
    }

    /// For a packet with these addresses, in this direction.
    pub fn of(towards: Side, from: SocketAddr, to: SocketAddr) -> Self {
        match towards {
            Side::Server => Self::to_server(from, to.port()),
            Side::Clients => Self::to_client(to, from.port()),
        }
    }

    /// The bytes that are hashed before the packet.
    fn to_bytes(self) -> [u8; 21] {
        let mut bytes = [0; 21];
        bytes[0] = if self.towards == Side::Server { 1 } else { 2 };
        bytes[1..17].copy_from_slice(&octets(self.client.ip()));
        bytes[17..19].copy_from_slice(&self.client.port().to_le_bytes());
        bytes[19..].copy_from_slice(&self.server_port.to_le_bytes());
        bytes
    }
}

/// Whether a packet of this type may arrive again without effect, because its numbers identify it. Packets of other
/// types carry a stamp.
fn is_numbered(kind: u8) -> bool {
    matches!(
        kind,
        kind::UPDATE
            | kind::UPDATE_FRAGMENT
            | kind::PMNET_ACK
            | kind::JOINT_ACK
            | kind::SERVER_ACK
            | kind::RESPONSE
            | kind::RESPONSE_FRAGMENT
            | kind::CACHE_RESPONSE
    )
}

/// Seals outgoing packets and opens incoming ones.
#[derive(Debug, Default)]
pub struct Guard {
    lock: Option<Lock>,
}

#[derive(Debug)]
struct Lock {
    key: Key,
    /// Distinguishes the stamps of this guard from those of others.
    sender: u64,
    /// The last stamp that this guard has used.
    stamp: u64,
    fresh: Fresh,
}

impl Guard {
    /// A guard with a key. The caller draws `sender` at random for each guard.
    pub fn new(key: Key, sender: u64) -> Self {
        Self { lock: Some(Lock { key, sender, stamp: 0, fresh: Fresh::default() }) }
    }

    /// A guard with `key`, if there is one. `sender` draws a random number, as for [`Self::new`], and is called only
    /// with a key.
    pub fn of(key: Option<&Key>, sender: impl FnOnce() -> u64) -> Self {
        key.map_or_else(Self::default, |key| Self::new(key.clone(), sender()))
    }

    /// True if the guard has a key.
    pub fn is_keyed(&self) -> bool {
        self.lock.is_some()
    }

    /// Most bytes that the guard adds to a packet. Senders subtract them from the path's MTU.
    pub fn bytes_max(&self) -> usize {
        if self.is_keyed() { SEAL_BYTES_MAX } else { 0 }
    }

    /// Appends stamp and tag to a packet that is about to be sent.
    pub fn seal(&mut self, ends: Ends, unix_ns: u64, packet: &mut Vec<u8>) {
        let Some(lock) = &mut self.lock else { return };
        if !packet.first().is_some_and(|kind| is_numbered(*kind)) {
            if lock.stamp > unix_ns.saturating_add(AHEAD_NS) {
                // The clock was ahead: receivers would take its stamps for stale until it gets there. Stamps are the sender's.
                (lock.sender, lock.stamp) = (lock.sender.wrapping_add(1), 0);
            }
            lock.stamp = unix_ns.max(lock.stamp + 1);
            packet.extend_from_slice(&lock.stamp.to_le_bytes());
            packet.extend_from_slice(&lock.sender.to_le_bytes());
        }
        let tag = lock.key.tag(ends, packet);
        packet.extend_from_slice(&tag.to_le_bytes());
    }

    /// Verifies and removes the seal. Returns the packet as it was before it was sealed.
    ///
    /// # Errors
    /// [`Unsealed`]: the packet must be dropped.
    pub fn open<'a>(&mut self, ends: Ends, unix_ns: u64, bytes: &'a [u8]) -> Result<&'a [u8], Unsealed> {
        let Some(lock) = &mut self.lock else { return Ok(bytes) };
        let (sealed, tag) = bytes.split_last_chunk::<TAG_BYTES>().ok_or(Unsealed::Tag)?;
        // One comparison of integers takes equally long wherever the tags differ.
        if lock.key.tag(ends, sealed) ^ u128::from_le_bytes(*tag) != 0 {
            return Err(Unsealed::Tag);
        }
        if sealed.first().is_some_and(|kind| is_numbered(*kind)) {
            return Ok(sealed);
        }
        let (packet, stamp) = sealed.split_last_chunk::<STAMP_BYTES>().ok_or(Unsealed::Tag)?;
        let whole = u128::from_le_bytes(*stamp);
        lock.fresh.take((whole >> 64) as u64, whole as u64, unix_ns)?;
        Ok(packet)
    }
}

impl Key {
    fn tag(&self, ends: Ends, packet: &[u8]) -> u128 {
        let mut hasher = SipHasher24::new_with_key(self.bytes());
        hasher.write(&ends.to_bytes());
        hasher.write(packet);
        hasher.finish128().as_u128()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Body, FIRST_BYPASS, Packet};

    const NOW: u64 = 1_700_000_000_000_000_000;

    fn guard(key: u8, sender: u64) -> Guard {
        Guard::new(Key::from_hex(&format!("{key:02x}").repeat(16)).unwrap(), sender)
    }

    fn ends() -> Ends {
        Ends::to_server("10.0.0.1:40000".parse().unwrap(), 51000)
    }

    fn update() -> Vec<u8> {
        Packet::new(7, 9, Body::Update(b"request")).to_bytes()
    }

    fn bypass() -> Vec<u8> {
        Packet::new(7, FIRST_BYPASS, Body::Bypass { after: None, request: b"get" }).to_bytes()
    }

    fn sealed(packet: &[u8], at: u64) -> Vec<u8> {
        let mut bytes = packet.to_vec();
        guard(1, 5).seal(ends(), at, &mut bytes);
        bytes
    }

    #[test]
    fn a_sealed_packet_can_be_opened_and_without_a_key_nothing_changes() {
        for packet in [update(), bypass()] {
            let bytes = sealed(&packet, NOW);
            assert_eq!(guard(1, 6).open(ends(), NOW, &bytes), Ok(&packet[..]));
            let mut plain = packet.clone();
            Guard::default().seal(ends(), NOW, &mut plain);
            assert_eq!(plain, packet);
            assert_eq!(Guard::default().open(ends(), NOW, &plain), Ok(&packet[..]));
        }
        assert_eq!(sealed(&update(), NOW).len(), update().len() + TAG_BYTES);
        assert_eq!(sealed(&bypass(), NOW).len(), bypass().len() + SEAL_BYTES_MAX);
        assert_eq!(
            sealed(&update(), NOW),
            sealed(&update(), NOW + 1),
            "a repeated update has identical bytes"
        );
    }

    #[test]
    fn a_sender_whose_clock_was_ahead_is_heard_when_it_is_right_again() {
        let (mut sender, mut receiver) = (guard(1, 5), guard(1, 6));
        let mut send = |at: u64| {
            let mut bytes = bypass();
            sender.seal(ends(), at, &mut bytes);
            receiver.open(ends(), NOW, &bytes).map(drop)
        };
        assert_eq!(send(NOW + 3_600_000_000_000), Err(Unsealed::Stale));
        assert_eq!([send(NOW), send(NOW), send(NOW - 10)], [Ok(()); 3]);
    }

    #[test]
    fn a_flipped_bit_another_key_and_a_truncated_packet_fail() {
        for packet in [update(), bypass()] {
            let bytes = sealed(&packet, NOW);
            for bit in 0..bytes.len() * 8 {
                let mut bad = bytes.clone();
                bad[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(guard(1, 6).open(ends(), NOW, &bad), Err(Unsealed::Tag), "bit {bit}");
            }
            for len in 0..bytes.len() {
                assert_eq!(guard(1, 6).open(ends(), NOW, &bytes[..len]), Err(Unsealed::Tag));
            }
            assert_eq!(guard(2, 6).open(ends(), NOW, &bytes), Err(Unsealed::Tag));
            assert_eq!(guard(1, 6).open(ends(), NOW, &packet), Err(Unsealed::Tag));
        }
    }

    #[test]
    fn a_packet_is_valid_for_one_client_one_port_and_one_direction() {
        let bytes = sealed(&update(), NOW);
        let client = ends().client;
        for other in [
            Ends::to_client(client, 51000),
            Ends::to_server(client, 51001),
            Ends::to_server("10.0.0.1:40001".parse().unwrap(), 51000),
            Ends::to_server("10.0.0.9:40000".parse().unwrap(), 51000),
        ] {
            assert_eq!(guard(1, 6).open(other, NOW, &bytes), Err(Unsealed::Tag), "{other:?}");
        }
        let mapped = Ends::to_server("[::ffff:10.0.0.1]:40000".parse().unwrap(), 51000);
        assert!(guard(1, 6).open(mapped, NOW, &bytes).is_ok(), "the IPv4-mapped form of an address");
    }

    #[test]
    fn a_packet_without_a_number_of_its_own_is_accepted_once() {
        let mut receiver = guard(1, 6);
        let (first, second) = (sealed(&bypass(), NOW), sealed(&bypass(), NOW + 1));
        assert!(receiver.open(ends(), NOW, &second).is_ok());
        assert!(receiver.open(ends(), NOW, &first).is_ok(), "overtaken");
        assert_eq!(receiver.open(ends(), NOW, &first), Err(Unsealed::Repeated));
        assert_eq!(receiver.open(ends(), NOW, &second), Err(Unsealed::Repeated));
        assert!(receiver.open(ends(), NOW, &sealed(&update(), NOW)).is_ok());
        assert!(receiver.open(ends(), NOW, &sealed(&update(), NOW)).is_ok(), "its number identifies it");
    }

    #[test]
    fn the_tag_is_siphash_2_4_with_128_bits() {
        // The first of the reference implementation's vectors (`vectors_sip128`): key 00 to 0f, no input.
        let key: [u8; 16] = std::array::from_fn(|at| at as u8);
        let hash = |input: &[u8]| {
            let mut hasher = SipHasher24::new_with_key(&key);
            hasher.write(input);
            hasher.finish128().as_u128().to_le_bytes()
        };
        let empty =
            [0xa3, 0x81, 0x7f, 0x04, 0xba, 0x25, 0xa8, 0xe6, 0x6d, 0xf6, 0x72, 0x14, 0xc7, 0x55, 0x02, 0x93];
        assert_eq!(hash(&[]), empty);
    }
}
