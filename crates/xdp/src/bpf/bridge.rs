//! The bridge program: selected datagrams of some ports go to the sockets, everything else to the peer interface.

use super::asm::Register::{R0, R1, R2, R3, R7, R8};
use super::asm::{Assembler, Instruction, Label, Width};
use super::frame::{IPV4, IPV4_PROTOCOL, IPV6, IPV6_NEXT, UDP, XDP_PASS, XDP_REDIRECT};
use crate::wanted::Kind;

/// Length of a UDP header (RFC 768), bytes, and the offsets of its ports.
const UDP_BYTES: i32 = 8;
const UDP_PORTS: [i16; 2] = [0, 2];

/// Parameters of a bridge program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BridgePlan<'w> {
    /// First and last port, in ascending order.
    pub(crate) ports: (u16, u16),
    /// Payloads for the sockets, and the descriptor of an array whose first entry counts the other payloads; `None`:
    /// all payloads are for the sockets.
    pub(crate) kinds: Option<(&'w [Kind], i32)>,
    /// Descriptor of the map of sockets.
    pub(crate) sockets: i32,
    /// Descriptor of the map that holds the peer interface; `None`: packets go to the kernel.
    pub(crate) peer: Option<i32>,
    /// The check word in front of a stamp is the stamp XORed with this value.
    pub(crate) cookie: u64,
}

/// Assembles the program for `plan`.
pub(crate) fn bridge(plan: BridgePlan<'_>) -> Vec<Instruction> {
    let mut asm = Assembler::default();
    let [ours, others, done] = [(); 3].map(|()| asm.label());
    datagrams(&mut asm, others);
    ports(&mut asm, plan.ports, ours);
    asm.jump(others);
    asm.bind(ours);
    if let Some((wanted, counter)) = plan.kinds {
        kinds(&mut asm, wanted, counter, others);
    }
    asm.stamp(plan.cookie);
    asm.redirect_to_socket(plan.sockets);
    asm.jump_if_equal(R0, XDP_REDIRECT, done);
    asm.bind(others);
    match plan.peer {
        Some(peer) => asm.redirect_to_first(peer),
        None => asm.set(R0, XDP_PASS),
    }
    asm.bind(done);
    asm.exit();
    asm.finish()
}

/// Jumps to `others` unless the frame has a whole UDP header. R2 then points to the header.
fn datagrams(asm: &mut Assembler, others: Label) {
    let [ipv4, ipv6, udp] = [(); 3].map(|()| asm.label());
    asm.begin(others);
    asm.jump_if_equal(R2, IPV4, ipv4);
    asm.jump_if_equal(R2, IPV6, ipv6);
    asm.jump(others);
    asm.bind(ipv4);
    asm.ipv4_header(others);
    asm.load(Width::Byte, R3, R7, IPV4_PROTOCOL);
    asm.jump_if_not(R3, UDP, others);
    asm.not_a_fragment(others);
    asm.behind_ipv4();
    asm.jump(udp);
    asm.bind(ipv6);
    asm.ipv6_header(others);
    // Packets with extension headers, fragments among them, do not count as UDP.
    asm.load(Width::Byte, R3, R7, IPV6_NEXT);
    asm.jump_if_not(R3, UDP, others);
    asm.behind_ipv6();
    asm.bind(udp);
    asm.copy(R1, R2);
    asm.add(R1, UDP_BYTES);
    asm.jump_if_beyond(R1, R8, others);
}

/// Jumps to `ours` if a port of the UDP header at R2 is in the range from `first` to `last`.
fn ports(asm: &mut Assembler, (first, last): (u16, u16), ours: Label) {
    let count = u32::from(last) - u32::from(first) + 1;
    for at in UDP_PORTS {
        asm.load(Width::Half, R3, R2, at);
        asm.network_half(R3);
        // Ports below the first become large numbers.
        asm.add(R3, -i32::from(first));
        asm.jump_if_less(R3, count, ours);
    }
}

/// Jumps to `others` unless the payload behind the UDP header at R2 is of one of these kinds. Counts the payloads that
/// are not.
fn kinds(asm: &mut Assembler, wanted: &[Kind], counter: i32, others: Label) {
    let [matched, count] = [(); 2].map(|()| asm.label());
    need(asm, 0, count);
    asm.load(Width::Byte, R3, R2, UDP_BYTES as i16);
    for Kind { first, zero } in wanted {
        let Some(zero) = zero else {
            asm.jump_if_equal(R3, (*first).into(), matched);
            continue;
        };
        let next = asm.label();
        asm.jump_if_not(R3, (*first).into(), next);
        need(asm, zero.at, count);
        asm.load(Width::Byte, R3, R2, UDP_BYTES as i16 + i16::from(zero.at));
        asm.and(R3, zero.mask.into());
        asm.jump_if_equal(R3, 0, matched);
        asm.jump(count);
        asm.bind(next);
    }
    if wanted.is_empty() {
        // No byte has this value: the verifier refuses code that no path leads to.
        asm.jump_if_equal(R3, 0x100, matched);
    }
    asm.bind(count);
    asm.set_first_entry(R1, counter);
    asm.set(R2, 1);
    asm.atomic_add(R1, R2);
    asm.jump(others);
    asm.bind(matched);
}

/// Jumps to `other` unless the payload has a byte at `at`.
fn need(asm: &mut Assembler, at: u8, other: Label) {
    asm.copy(R1, R2);
    asm.add(R1, UDP_BYTES + i32::from(at) + 1);
    asm.jump_if_beyond(R1, R8, other);
}
