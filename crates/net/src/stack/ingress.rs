//! Handles an arriving frame: checks Ethernet and IP headers and passes the payload to its protocol.

use super::arrival::Arrival;
use super::host::{Received, Stack};
use super::latest::Latest;
use crate::address::{ETHERNET_HEADER, PROTOCOL_ICMP, PROTOCOL_ICMPV6, PROTOCOL_TCP, PROTOCOL_UDP};
use crate::frames::Frames;
use crate::ip::{parse_v4, parse_v6};
use crate::stats::Drop;
use crate::tcp::segment;
use crate::time::Instant;
use core::net::IpAddr;
use landfall_media::Extent;
use smoltcp::wire::{EthernetFrame, EthernetProtocol};

impl Stack {
    /// Handles the Ethernet frame at `packet`. The caller holds the frame and may release it afterwards: the stack adds
    /// holds for what it keeps. `arrival_ns` is the arrival time, Unix nanoseconds.
    pub fn receive(
        &mut self,
        now: Instant,
        frames: &mut dyn Frames,
        packet: Extent,
        arrival_ns: u64,
    ) -> Received {
        self.stats.received += 1;
        self.limits.roll(now, &self.secret);
        match self.dispatch(now, frames, packet, arrival_ns) {
            Ok(received) => received,
            Err(reason) => {
                self.stats.drop(reason);
                Received::Done
            }
        }
    }

    /// Answers a stray segment that belongs to no stack: a SYN opens a connection of this one, any other segment is answered
    /// with a reset (RFC 9293, 3.10.7.1).
    pub fn refuse(&mut self, now: Instant, frames: &dyn Frames, packet: Extent) {
        let bytes = frames.bytes(packet);
        let outcome =
            self.parse(bytes, packet.off, 0).map(|arrival| arrival.map(|a| self.answer_unowned(now, &a)));
        if let Err(reason) | Ok(Some(Err(reason))) = outcome {
            self.stats.drop(reason);
        }
    }

    fn dispatch(
        &mut self,
        now: Instant,
        frames: &mut dyn Frames,
        packet: Extent,
        arrival_ns: u64,
    ) -> Result<Received, Drop> {
        // Headers are read in place; the protocols need `frames` themselves.
        let bytes = frames.bytes(packet);
        if let Some(again) = self.latest.as_ref().and_then(|latest| latest.again(bytes))
            && self.table.get(again.conn).is_some()
        {
            let off = packet.off + again.tcp_at as u64;
            let segment = segment::parse(again.tcp, off, again.pseudo, arrival_ns, again.congested)?;
            let (conn, from_mac) = (again.conn, again.from_mac);
            self.receive_known(now, frames, conn, from_mac, segment);
            return Ok(Received::Done);
        }
        let Some(arrival) = self.parse(bytes, packet.off, arrival_ns)? else {
            let frame = EthernetFrame::new_checked(bytes).map_err(|_| Drop::Malformed)?;
            let payload = frame.payload().to_vec();
            return self.receive_arp(now, &payload).map(|()| Received::Done);
        };
        match arrival.ip.protocol {
            PROTOCOL_TCP => {
                let segment = super::tcp::parse(&arrival)?;
                let path = self.path_back(&arrival, &segment);
                if let Some(conn) = self.table.find(&path.tuple) {
                    self.latest = Latest::of(bytes, &arrival, conn);
                    let from_mac = arrival.from_mac;
                    self.receive_known(now, frames, conn, from_mac, segment.segment);
                    return Ok(Received::Done);
                }
                self.receive_unknown(now, frames, path, segment.segment)
            }
            PROTOCOL_UDP => {
                let datagram = super::udp::parse(&arrival)?;
                self.receive_datagram(frames, &datagram)
            }
            PROTOCOL_ICMP => {
                let message = arrival.ip.payload.to_vec();
                let ends = (arrival.from_mac, arrival.ip.from, arrival.ip.to);
                self.receive_icmp(frames, now, ends, &message)
            }
            PROTOCOL_ICMPV6 => {
                let message = arrival.ip.payload.to_vec();
                let ends = (arrival.from_mac, arrival.ip.from, arrival.ip.to);
                let from_link = arrival.ip.hop_limit == 255;
                self.receive_icmp_v6(frames, now, ends, from_link, &message)
            }
            _ => Err(Drop::Protocol),
        }
    }

    /// Parses Ethernet and IP headers; `None` for ARP.
    pub(super) fn parse<'a>(
        &self,
        bytes: &'a [u8],
        off: u64,
        arrival_ns: u64,
    ) -> Result<Option<Arrival<'a>>, Drop> {
        let frame = EthernetFrame::new_checked(bytes).map_err(|_| Drop::Malformed)?;
        if !frame.src_addr().is_unicast() {
            return Err(Drop::Malformed);
        }
        let ip = match frame.ethertype() {
            EthernetProtocol::Ipv4 => parse_v4(&bytes[ETHERNET_HEADER..])?,
            EthernetProtocol::Ipv6 => parse_v6(&bytes[ETHERNET_HEADER..])?,
            EthernetProtocol::Arp => return Ok(None),
            _ => return Err(Drop::Protocol),
        };
        // No other host has these addresses (RFC 1122, 3.2.1.3): an answer would go to this host itself.
        if self.config.addresses.contains(&ip.from) {
            return Err(Drop::Malformed);
        }
        // Only neighbour discovery accepts groups of the link (RFC 1122, 3.3.6) or of IP (RFC 9293, 3.9.2.3).
        let alone = frame.dst_addr().is_unicast() && self.config.addresses.contains(&ip.to);
        let discovery = ip.protocol == PROTOCOL_ICMPV6 && self.is_ours(ip.to);
        if !alone && !discovery {
            return Err(Drop::NotOurs);
        }
        let off = off + (ETHERNET_HEADER + ip.payload_at) as u64;
        Ok(Some(Arrival { from_mac: frame.src_addr().0, ip, off, arrival_ns }))
    }

    fn is_ours(&self, address: IpAddr) -> bool {
        self.config.addresses.contains(&address) || self.is_solicited_group(address)
    }

    /// True for the multicast group in which neighbours ask for one of the IPv6 addresses of this host (RFC 4291,
    /// 2.7.1).
    fn is_solicited_group(&self, address: IpAddr) -> bool {
        let IpAddr::V6(group) = address else { return false };
        let group = group.octets();
        if group[..13] != [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff] {
            return false;
        }
        self.config.addresses.iter().any(|ours| match ours {
            IpAddr::V6(ours) => ours.octets()[13..] == group[13..],
            IpAddr::V4(_) => false,
        })
    }
}
