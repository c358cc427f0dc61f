//! ICMP (RFC 792), ICMPv6 (RFC 4443) and neighbour discovery (RFC 4861): echo, packets that are too big, and hardware
//! addresses. A message that a destination is unreachable does not end a connection: such messages are easily forged,
//! and the condition is often temporary (RFC 5461; RFC 1122, 4.2.3.9).

use super::host::{Received, Stack};
use crate::address::{ETHERNET_HEADER, PROTOCOL_ICMP, PROTOCOL_ICMPV6, PROTOCOL_TCP, Tuple};
use crate::config::Mac;
use crate::frames::Frames;
use crate::ip;
use crate::stats::Drop;
use crate::tcp::seq::Seq;
use crate::time::Instant;
use core::net::{IpAddr, Ipv6Addr, SocketAddr};
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{
    EthernetAddress, Icmpv4Message, Icmpv4Packet, Icmpv6Message, Icmpv6Packet, Icmpv6Repr,
    NdiscNeighborFlags, NdiscRepr, RawHardwareAddress,
};

/// Smallest MTU of any link (RFC 791: 68 bytes).
const MTU_MIN: u16 = 68;

/// Hardware address and IP address of a message's sender, and the local address that it was sent to.
type Ends = (Mac, IpAddr, IpAddr);

impl Stack {
    pub(super) fn receive_icmp(
        &mut self,
        frames: &mut dyn Frames,
        now: Instant,
        ends: Ends,
        message: &[u8],
    ) -> Result<Received, Drop> {
        let packet = Icmpv4Packet::new_checked(message).map_err(|_| Drop::Malformed)?;
        if !packet.verify_checksum() {
            return Err(Drop::Checksum);
        }
        match packet.msg_type() {
            Icmpv4Message::EchoRequest if self.config.owns_addresses => {
                self.may_send_icmp()?;
                let mut reply = message.to_vec();
                let mut packet = Icmpv4Packet::new_unchecked(&mut reply[..]);
                packet.set_msg_type(Icmpv4Message::EchoReply);
                packet.fill_checksum();
                self.send_icmp(ends.0, ends.2, ends.1, PROTOCOL_ICMP, &reply);
                Ok(Received::Done)
            }
            // RFC 1191: fragmentation needed. The formerly unused field has the next hop's MTU.
            Icmpv4Message::DstUnreachable if packet.msg_code() == 4 => {
                let mtu = u16::from(message[6]) << 8 | u16::from(message[7]);
                self.too_big(frames, now, &message[8..], mtu)
            }
            _ => Err(Drop::Protocol),
        }
    }

    pub(super) fn receive_icmp_v6(
        &mut self,
        frames: &mut dyn Frames,
        now: Instant,
        ends: Ends,
        from_link: bool,
        message: &[u8],
    ) -> Result<Received, Drop> {
        let (IpAddr::V6(from), IpAddr::V6(to)) = (ends.1, ends.2) else { return Err(Drop::Malformed) };
        let packet = Icmpv6Packet::new_checked(message).map_err(|_| Drop::Malformed)?;
        if !packet.verify_checksum(&from, &to) {
            return Err(Drop::Checksum);
        }
        match packet.msg_type() {
            Icmpv6Message::EchoRequest if self.config.owns_addresses && !to.is_multicast() => {
                self.may_send_icmp()?;
                let mut reply = message.to_vec();
                let mut packet = Icmpv6Packet::new_unchecked(&mut reply[..]);
                packet.set_msg_type(Icmpv6Message::EchoReply);
                packet.fill_checksum(&to, &from);
                self.send_icmp(ends.0, ends.2, ends.1, PROTOCOL_ICMPV6, &reply);
                Ok(Received::Done)
            }
            Icmpv6Message::PktTooBig => {
                let mtu = u16::try_from(packet.pkt_too_big_mtu()).unwrap_or(u16::MAX);
                self.too_big(frames, now, message.get(8..).ok_or(Drop::Malformed)?, mtu)
            }
            Icmpv6Message::NeighborSolicit | Icmpv6Message::NeighborAdvert => {
                // RFC 4861, 7.1: accepted only from the link itself.
                if !from_link || !self.config.owns_addresses {
                    return Err(Drop::NotOurs);
                }
                self.receive_ndisc(now, ends, message)
            }
            _ => Err(Drop::Protocol),
        }
    }

    fn receive_ndisc(&mut self, now: Instant, ends: Ends, message: &[u8]) -> Result<Received, Drop> {
        let (IpAddr::V6(from), IpAddr::V6(to)) = (ends.1, ends.2) else { return Err(Drop::Malformed) };
        let packet = Icmpv6Packet::new_checked(message).map_err(|_| Drop::Malformed)?;
        let repr = Icmpv6Repr::parse(&from, &to, &packet, &ChecksumCapabilities::ignored());
        match repr.map_err(|_| Drop::Malformed)? {
            Icmpv6Repr::Ndisc(NdiscRepr::NeighborSolicit { target_addr, .. }) => {
                if !self.config.addresses.contains(&target_addr.into()) {
                    return Err(Drop::NotOurs);
                }
                self.limits.discovery = self.limits.discovery.checked_sub(1).ok_or(Drop::Full)?;
                // RFC 4861, 7.2.4: a sender without an address of its own is answered by multicast.
                let (to, mac) = if from.is_unspecified() {
                    (Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1), [0x33, 0x33, 0, 0, 0, 1])
                } else {
                    if self.asks_for(from.into()) {
                        self.resolved(now, from.into(), ends.0);
                    }
                    (from, ends.0)
                };
                let solicited = if from.is_unspecified() {
                    NdiscNeighborFlags::empty()
                } else {
                    NdiscNeighborFlags::SOLICITED
                };
                let repr = NdiscRepr::NeighborAdvert {
                    flags: NdiscNeighborFlags::OVERRIDE | solicited,
                    target_addr,
                    lladdr: Some(self.own_mac()),
                };
                self.send_ndisc(mac, target_addr, to, repr);
                Ok(Received::Done)
            }
            Icmpv6Repr::Ndisc(NdiscRepr::NeighborAdvert { target_addr, lladdr, .. }) => {
                if target_addr.is_multicast() || !self.asks_for(target_addr.into()) {
                    return Err(Drop::NotOurs);
                }
                let option = lladdr.filter(|mac| mac.len() == 6).map(|mac| {
                    let mut known = [0; 6];
                    known.copy_from_slice(mac.as_bytes());
                    known
                });
                self.resolved(now, target_addr.into(), option.unwrap_or(ends.0));
                Ok(Received::Done)
            }
            _ => Err(Drop::Protocol),
        }
    }

    fn own_mac(&self) -> RawHardwareAddress {
        EthernetAddress(self.config.mac).into()
    }

    /// RFC 4861, 7.2.2: asks for a neighbour's hardware address.
    pub(super) fn send_solicitation(&mut self, ours: Ipv6Addr, target: Ipv6Addr) {
        let low = target.octets();
        let group = Ipv6Addr::new(
            0xff02,
            0,
            0,
            0,
            0,
            1,
            0xff00 | u16::from(low[13]),
            u16::from(low[14]) << 8 | u16::from(low[15]),
        );
        let mac = [0x33, 0x33, 0xff, low[13], low[14], low[15]];
        let repr = NdiscRepr::NeighborSolicit { target_addr: target, lladdr: Some(self.own_mac()) };
        self.send_ndisc(mac, ours, group, repr);
    }

    fn send_ndisc(&mut self, mac: Mac, from: Ipv6Addr, to: Ipv6Addr, repr: NdiscRepr<'_>) {
        let repr = Icmpv6Repr::Ndisc(repr);
        let mut message = vec![0; repr.buffer_len()];
        let mut packet = Icmpv6Packet::new_unchecked(&mut message[..]);
        repr.emit(&from, &to, &mut packet, &ChecksumCapabilities::default());
        self.send_icmp(mac, from.into(), to.into(), PROTOCOL_ICMPV6, &message);
    }

    fn may_send_icmp(&mut self) -> Result<(), Drop> {
        self.limits.icmp = self.limits.icmp.checked_sub(1).ok_or(Drop::Full)?;
        Ok(())
    }

    fn send_icmp(&mut self, mac: Mac, from: IpAddr, to: IpAddr, protocol: u8, message: &[u8]) {
        let ip_len = crate::address::ip_header_len(from);
        let mut bytes = vec![0; ETHERNET_HEADER + ip_len];
        ip::write_ethernet(&mut bytes, self.config.mac, mac, from);
        ip::write(&mut bytes[ETHERNET_HEADER..], from, to, protocol, message.len(), false);
        bytes.extend_from_slice(message);
        self.send_raw(bytes);
    }

    /// A router could not forward a packet: its connection sends smaller ones from now on (RFC 1191, RFC 8201). The
    /// message is accepted only if it quotes a sequence number in flight (RFC 5927, 4.1).
    fn too_big(
        &mut self,
        frames: &mut dyn Frames,
        now: Instant,
        packet: &[u8],
        mtu: u16,
    ) -> Result<Received, Drop> {
        let (tuple, seq) = quoted_segment(packet).ok_or(Drop::Malformed)?;
        if mtu < MTU_MIN {
            return Err(Drop::Malformed);
        }
        let id = self.table.find(&tuple).ok_or(Drop::NoConnection)?;
        self.with(now, frames, id, |tcb, context| tcb.path_mtu(context, seq, mtu));
        Ok(Received::Done)
    }
}

/// Tuple and sequence number of the segment that an ICMP error quotes. The quotation may end after eight bytes.
fn quoted_segment(packet: &[u8]) -> Option<(Tuple, Seq)> {
    let (from, to, protocol, at): (IpAddr, IpAddr, u8, usize) = match packet.first()? >> 4 {
        4 => {
            let header = packet.get(..20)?;
            let address = |at: usize| <[u8; 4]>::try_from(&header[at..at + 4]).ok().map(IpAddr::from);
            (address(12)?, address(16)?, header[9], usize::from(header[0] & 15) * 4)
        }
        6 => {
            let header = packet.get(..40)?;
            let address = |at: usize| <[u8; 16]>::try_from(&header[at..at + 16]).ok().map(IpAddr::from);
            (address(8)?, address(24)?, header[6], 40)
        }
        _ => return None,
    };
    let tcp = packet.get(at..at + 8).filter(|_| protocol == PROTOCOL_TCP)?;
    let word = |at: usize| u16::from(tcp[at]) << 8 | u16::from(tcp[at + 1]);
    let local = SocketAddr::new(from, word(0));
    let remote = SocketAddr::new(to, word(2));
    Some((Tuple { local, remote }, Seq(u32::from(word(4)) << 16 | u32::from(word(6)))))
}
