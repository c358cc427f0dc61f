//! Code that all programs share: find the headers of a frame, write a time stamp, redirect to a socket.
//!
//! Preserved registers: R6 is the context, R7 the frame, R8 its end, R9 the length of the IPv4 header. For frames that
//! are truncated, tagged, fragmented or unknown, tests jump to the label that the caller names.

use super::asm::Register::{R0, R1, R2, R3, R6, R7, R8, R9};
use super::asm::{Assembler, Label, Width};

/// Bytes in front of a stamped frame: a check word, then the stamp.
pub(crate) const META_BYTES: u64 = 16;
/// Bytes of the stamp, which lies directly in front of the frame.
pub(crate) const STAMP_BYTES: u64 = 8;

const HELPER_KTIME_GET_NS: i32 = 5;
const HELPER_REDIRECT_MAP: i32 = 51;
const HELPER_ADJUST_META: i32 = 54;
pub(super) const XDP_PASS: i32 = 2;
pub(super) const XDP_REDIRECT: u32 = 4;

/// Offsets in `struct xdp_md`, the program's argument.
const MD_DATA: i16 = 0;
const MD_DATA_END: i16 = 4;
const MD_DATA_META: i16 = 8;
const MD_QUEUE: i16 = 16;

/// Offsets in a frame.
const ETHER_TYPE: i16 = 12;
pub(super) const ETHER_BYTES: i16 = 14;
const IPV4_FRAGMENT: i16 = ETHER_BYTES + 6;
pub(super) const IPV4_PROTOCOL: i16 = ETHER_BYTES + 9;
const IPV4_BYTES_MIN: i16 = 20;
pub(super) const IPV6_NEXT: i16 = ETHER_BYTES + 6;
pub(super) const IPV6_BYTES: i16 = 40;

/// EtherTypes, as [`half`]s.
pub(super) const IPV4: u32 = half([0x08, 0x00]);
pub(super) const IPV6: u32 = half([0x86, 0xdd]);
pub(super) const ARP: u32 = half([0x08, 0x06]);
pub(super) const UDP: u32 = 17;

impl Assembler {
    /// Loads the preserved registers, and the EtherType into R2.
    pub(super) fn begin(&mut self, other: Label) {
        self.copy(R6, R1);
        self.load(Width::Word, R7, R6, MD_DATA);
        self.load(Width::Word, R8, R6, MD_DATA_END);
        self.need(ETHER_BYTES, other);
        self.load(Width::Half, R2, R7, ETHER_TYPE);
    }

    /// Jumps to `other` if the frame is shorter than `bytes`.
    pub(super) fn need(&mut self, bytes: i16, other: Label) {
        self.copy(R1, R7);
        self.add(R1, i32::from(bytes));
        self.jump_if_beyond(R1, R8, other);
    }

    /// Checks version and length of an IPv4 header. Afterwards its first 20 bytes are readable, and R9 is its length.
    pub(super) fn ipv4_header(&mut self, other: Label) {
        self.need(ETHER_BYTES + IPV4_BYTES_MIN, other);
        self.load(Width::Byte, R9, R7, ETHER_BYTES);
        self.copy(R2, R9);
        self.and(R2, 0xf0);
        self.jump_if_not(R2, 0x40, other);
        self.and(R9, 0x0f);
        self.jump_if_less(R9, 5, other);
        self.shift_left(R9, 2);
    }

    /// Jumps to `other` for fragments, because only the first one has ports: more fragments follow, or the offset is
    /// not zero.
    pub(super) fn not_a_fragment(&mut self, other: Label) {
        self.load(Width::Half, R3, R7, IPV4_FRAGMENT);
        self.and(R3, half([0x3f, 0xff]).cast_signed());
        self.jump_if_not(R3, 0, other);
    }

    /// Points R2 behind the IPv4 header.
    pub(super) fn behind_ipv4(&mut self) {
        self.copy(R2, R7);
        self.add_register(R2, R9);
        self.add(R2, i32::from(ETHER_BYTES));
    }

    /// Checks the version of an IPv6 header. Afterwards the whole header is readable.
    pub(super) fn ipv6_header(&mut self, other: Label) {
        self.need(ETHER_BYTES + IPV6_BYTES, other);
        self.load(Width::Byte, R2, R7, ETHER_BYTES);
        self.and(R2, 0xf0);
        self.jump_if_not(R2, 0x60, other);
    }

    /// Points R2 behind the IPv6 header.
    pub(super) fn behind_ipv6(&mut self) {
        self.copy(R2, R7);
        self.add(R2, i32::from(ETHER_BYTES + IPV6_BYTES));
    }

    /// Writes the time in front of the frame, and a check word in front of the time. Afterwards R7 and R8 are no longer
    /// pointers.
    pub(super) fn stamp(&mut self, cookie: u64) {
        let without = self.label();
        self.copy(R1, R6);
        self.set(R2, -(META_BYTES as i32));
        self.call(HELPER_ADJUST_META);
        self.jump_if_not(R0, 0, without);
        self.call(HELPER_KTIME_GET_NS);
        self.load(Width::Word, R2, R6, MD_DATA_META);
        self.load(Width::Word, R3, R6, MD_DATA);
        self.copy(R1, R2);
        self.add(R1, META_BYTES as i32);
        self.jump_if_beyond(R1, R3, without);
        self.store(Width::Double, R2, (META_BYTES - STAMP_BYTES) as i16, R0);
        self.set_double(R1, cookie);
        self.xor_register(R0, R1);
        self.store(Width::Double, R2, 0, R0);
        self.bind(without);
    }

    /// Sets R0 to [`XDP_REDIRECT`], to the socket of the queue, or to [`XDP_PASS`] if there is none.
    pub(super) fn redirect_to_socket(&mut self, sockets: i32) {
        self.load(Width::Word, R2, R6, MD_QUEUE);
        self.redirect(sockets);
    }

    /// Sets R0 to [`XDP_REDIRECT`], to the first entry of `map`, or to [`XDP_PASS`] if there is none.
    pub(super) fn redirect_to_first(&mut self, map: i32) {
        self.set(R2, 0);
        self.redirect(map);
    }

    fn redirect(&mut self, map: i32) {
        self.set_map(R1, map);
        self.set(R3, XDP_PASS);
        self.call(HELPER_REDIRECT_MAP);
    }
}

/// Four bytes of a packet as a 32-bit load returns them.
pub(super) const fn word(bytes: [u8; 4]) -> u32 {
    u32::from_le_bytes(bytes)
}

/// Two bytes of a packet as a 16-bit load returns them.
pub(super) const fn half(bytes: [u8; 2]) -> u32 {
    u16::from_le_bytes(bytes) as u32
}
