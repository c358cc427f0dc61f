//! The steering program: selects the packets for the sockets.
//!
//! Every test falls through to `pass`: truncated, tagged, fragmented and unknown packets go to the kernel.

use super::asm::Register::{R0, R1, R2, R3, R7, R8};
use super::asm::{Assembler, Instruction, Label, Width};
use super::frame::{
    ARP, ETHER_BYTES, IPV4, IPV4_PROTOCOL, IPV6, IPV6_BYTES, IPV6_NEXT, UDP, XDP_PASS, half, word,
};
use crate::rules::{Rules, Target};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const IPV4_DESTINATION: i16 = ETHER_BYTES + 16;
const IPV6_DESTINATION: i16 = ETHER_BYTES + 24;
const ICMPV6_TYPE: i16 = ETHER_BYTES + IPV6_BYTES;
const ND_TARGET: i16 = ICMPV6_TYPE + 8;
const ARP_OPERATION: i16 = ETHER_BYTES + 6;
const ARP_TARGET: i16 = ETHER_BYTES + 24;
const ARP_BYTES: i16 = 28;

const TCP: u32 = 6;
const ICMPV6: u32 = 58;
const NEIGHBOUR_SOLICITATION: u32 = 135;

/// Parameters of a steering program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan<'r> {
    pub(crate) rules: &'r Rules,
    /// Descriptor of the map of sockets.
    pub(crate) sockets: i32,
    /// With stamps: the check word in front of a stamp is the stamp XORed with this value.
    pub(crate) cookie: Option<u64>,
}

struct Writer<'r> {
    asm: Assembler,
    rules: &'r Rules,
    redirect: Label,
    pass: Label,
}

/// Assembles the program for `plan`.
pub(crate) fn steering(plan: Plan<'_>) -> Vec<Instruction> {
    let mut asm = Assembler::default();
    if plan.rules.match_nothing() {
        // The verifier refuses code that no path leads to.
        asm.set(R0, XDP_PASS);
        asm.exit();
        return asm.finish();
    }
    let (redirect, pass) = (asm.label(), asm.label());
    let mut writer = Writer { asm, rules: plan.rules, redirect, pass };
    writer.classify();
    writer.asm.bind(redirect);
    if let Some(cookie) = plan.cookie {
        writer.asm.stamp(cookie);
    }
    writer.finish(plan.sockets)
}

impl Writer<'_> {
    fn classify(&mut self) {
        let [ipv4, ipv6, arp] = [(); 3].map(|()| self.asm.label());
        self.asm.begin(self.pass);
        self.asm.jump_if_equal(R2, IPV4, ipv4);
        self.asm.jump_if_equal(R2, IPV6, ipv6);
        self.asm.jump_if_equal(R2, ARP, arp);
        self.asm.jump(self.pass);
        self.asm.bind(arp);
        self.arp();
        self.asm.bind(ipv4);
        self.ipv4();
        self.asm.bind(ipv6);
        self.ipv6();
    }

    /// Matches requests and replies (RFC 826) for Ethernet and IPv4 whose target protocol address is an own one.
    fn arp(&mut self) {
        let addressed = self.asm.label();
        self.asm.need(ETHER_BYTES + ARP_BYTES, self.pass);
        self.asm.load(Width::Word, R2, R7, ETHER_BYTES);
        self.asm.jump_if_not(R2, word([0, 1, 0x08, 0x00]), self.pass);
        self.asm.load(Width::Half, R2, R7, ETHER_BYTES + 4);
        self.asm.jump_if_not(R2, half([6, 4]), self.pass);
        self.asm.load(Width::Half, R2, R7, ARP_OPERATION);
        self.asm.jump_if_equal(R2, half([0, 1]), addressed);
        self.asm.jump_if_not(R2, half([0, 2]), self.pass);
        self.asm.bind(addressed);
        self.asm.load(Width::Word, R2, R7, ARP_TARGET);
        for address in self.own_v4() {
            self.asm.jump_if_equal(R2, word(address.octets()), self.redirect);
        }
        self.asm.jump(self.pass);
    }

    fn ipv4(&mut self) {
        self.asm.ipv4_header(self.pass);
        self.asm.load(Width::Word, R2, R7, IPV4_DESTINATION);
        for address in self.own_v4() {
            self.asm.jump_if_equal(R2, word(address.octets()), self.redirect);
        }
        for (address, ports) in self.rules.shared() {
            if let IpAddr::V4(address) = address {
                let next = self.asm.label();
                self.asm.jump_if_not(R2, word(address.octets()), next);
                self.ports_v4(&ports);
                self.asm.bind(next);
            }
        }
        self.asm.jump(self.pass);
    }

    /// Ends with a jump to `redirect` or `pass`.
    fn ports_v4(&mut self, ports: &[u16]) {
        self.asm.load(Width::Byte, R3, R7, IPV4_PROTOCOL);
        self.only_tcp_and_udp();
        self.asm.not_a_fragment(self.pass);
        self.asm.behind_ipv4();
        self.ports(ports);
    }

    /// Passes everything but TCP and UDP; the protocol is in R3.
    fn only_tcp_and_udp(&mut self) {
        let known = self.asm.label();
        self.asm.jump_if_equal(R3, TCP, known);
        self.asm.jump_if_not(R3, UDP, self.pass);
        self.asm.bind(known);
    }

    /// Compares the destination port of the TCP or UDP header at R2.
    fn ports(&mut self, ports: &[u16]) {
        self.asm.copy(R1, R2);
        self.asm.add(R1, 4);
        self.asm.jump_if_beyond(R1, R8, self.pass);
        self.asm.load(Width::Half, R3, R2, 2);
        for port in ports {
            self.asm.jump_if_equal(R3, half([(port >> 8) as u8, *port as u8]), self.redirect);
        }
        self.asm.jump(self.pass);
    }

    fn ipv6(&mut self) {
        self.asm.ipv6_header(self.pass);
        for address in self.own_v6() {
            let next = self.asm.label();
            self.same_v6(IPV6_DESTINATION, address, next);
            self.asm.jump(self.redirect);
            self.asm.bind(next);
        }
        for (address, ports) in self.rules.shared() {
            if let IpAddr::V6(address) = address {
                let next = self.asm.label();
                self.same_v6(IPV6_DESTINATION, address, next);
                // Packets with extension headers, fragments among them, do not count as TCP or UDP.
                self.asm.load(Width::Byte, R3, R7, IPV6_NEXT);
                self.only_tcp_and_udp();
                self.asm.behind_ipv6();
                self.ports(&ports);
                self.asm.bind(next);
            }
        }
        self.solicitations();
    }

    /// Matches neighbour solicitations (RFC 4861, 4.3) for an own address, sent to its solicited-node address.
    fn solicitations(&mut self) {
        let own = self.own_v6();
        if own.is_empty() {
            self.asm.jump(self.pass);
            return;
        }
        self.asm.need(ND_TARGET + 16, self.pass);
        self.asm.load(Width::Byte, R2, R7, IPV6_NEXT);
        self.asm.jump_if_not(R2, ICMPV6, self.pass);
        self.asm.load(Width::Byte, R2, R7, ICMPV6_TYPE);
        self.asm.jump_if_not(R2, NEIGHBOUR_SOLICITATION, self.pass);
        for address in own {
            let next = self.asm.label();
            self.same_v6(IPV6_DESTINATION, solicited_node(address), next);
            self.same_v6(ND_TARGET, address, next);
            self.asm.jump(self.redirect);
            self.asm.bind(next);
        }
        self.asm.jump(self.pass);
    }

    /// Jumps to `other` unless the address at `offset` is `address`.
    fn same_v6(&mut self, offset: i16, address: Ipv6Addr, other: Label) {
        for (at, bytes) in (offset..).step_by(4).zip(address.octets().as_chunks::<4>().0) {
            self.asm.load(Width::Word, R2, R7, at);
            self.asm.jump_if_not(R2, word(*bytes), other);
        }
    }

    /// Redirects to the socket of the queue, or passes to the kernel if there is none.
    fn finish(mut self, sockets: i32) -> Vec<Instruction> {
        self.asm.redirect_to_socket(sockets);
        self.asm.exit();
        self.asm.bind(self.pass);
        self.asm.set(R0, XDP_PASS);
        self.asm.exit();
        self.asm.finish()
    }

    fn own_v4(&self) -> Vec<Ipv4Addr> {
        let own = |target: &Target| match target {
            Target::Own(IpAddr::V4(address)) => Some(*address),
            _ => None,
        };
        self.rules.targets.iter().filter_map(own).collect()
    }

    fn own_v6(&self) -> Vec<Ipv6Addr> {
        self.rules.own_v6()
    }
}

/// ff02::1:ffXX:XXXX of an address (RFC 4291, 2.7.1).
pub(crate) fn solicited_node(address: Ipv6Addr) -> Ipv6Addr {
    let [.., a, b, c] = address.octets();
    let mut octets = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00, 0).octets();
    octets[13..].copy_from_slice(&[a, b, c]);
    octets.into()
}
