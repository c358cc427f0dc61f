//! UDP datagrams, and how damage changes them.

use crate::rng::Rng;
use std::net::SocketAddr;
use std::sync::Arc;

/// Most bits of a packet that damage flips, all of them within [`DAMAGE_BYTES`].
const DAMAGE_BITS_MAX: u64 = 8;
const DAMAGE_BYTES: usize = 2;

/// The direction of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Towards the server.
    Up,
    /// Towards a client.
    Down,
}

/// A UDP datagram under way.
#[derive(Clone, Debug)]
pub(super) struct Datagram {
    pub(super) from: SocketAddr,
    pub(super) to: SocketAddr,
    pub(super) payload: Arc<[u8]>,
    /// The UDP checksum over the payload, as the sender computed it.
    sum: u16,
}

impl Datagram {
    pub(super) fn new(from: SocketAddr, to: SocketAddr, payload: Vec<u8>) -> Self {
        let sum = checksum(&payload);
        Self { from, to, payload: payload.into(), sum }
    }

    /// True if the checksum matches the payload.
    pub(super) fn is_sound(&self) -> bool {
        checksum(&self.payload) == self.sum
    }

    pub(super) fn damage(&mut self, rng: &mut Rng) {
        let mut bytes = self.payload.to_vec();
        let at = rng.below(bytes.len().saturating_sub(DAMAGE_BYTES - 1).max(1) as u64) as usize;
        let window = &mut bytes[at..];
        let bits = (window.len().min(DAMAGE_BYTES) * 8) as u64;
        let flipped =
            (0..1 + rng.below(DAMAGE_BITS_MAX)).fold(0_u64, |flipped, _| flipped | 1 << rng.below(bits));
        window.iter_mut().zip(flipped.to_le_bytes()).for_each(|(byte, mask)| *byte ^= mask);
        self.payload = bytes.into();
    }
}

/// The checksum of RFC 768 over the payload alone: ones' complement of 16-bit words, with an odd last byte padded with
/// 0.
fn checksum(bytes: &[u8]) -> u16 {
    let word = |pair: &[u8]| u64::from(pair[0]) << 8 | u64::from(pair.get(1).copied().unwrap_or(0));
    let mut sum: u64 = bytes.chunks(2).map(word).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_damage_is_detected() {
        let address = "10.0.0.1:1".parse().unwrap();
        let mut rng = Rng::new(1);
        for len in [1, 2, 3, 16, 17, 300] {
            for round in 0..2000_u64 {
                let payload =
                    (0..len).map(|_| if round % 3 == 0 { 0xff } else { rng.draw() as u8 }).collect();
                let mut datagram = Datagram::new(address, address, payload);
                assert!(datagram.is_sound());
                datagram.damage(&mut rng);
                assert!(!datagram.is_sound(), "{datagram:?}");
            }
        }
    }

    #[test]
    fn the_checksum_is_the_one_of_rfc_1071() {
        assert_eq!(checksum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), !0xddf2);
    }
}
