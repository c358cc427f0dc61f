//! Asks for the hardware addresses of neighbours, and answers those who ask: ARP (RFC 826), and what neighbour
//! discovery (RFC 4861) shares with it.

use super::host::Stack;
use crate::config::Mac;
use crate::event::Ended;
use crate::frames::Frames;
use crate::stats::Drop;
use crate::time::Instant;
use core::net::IpAddr;
use smoltcp::wire::{
    ArpOperation, ArpPacket, ArpRepr, EthernetAddress, EthernetFrame, EthernetProtocol, EthernetRepr,
};
use std::time::Duration;

/// Time between two requests, and their number (RFC 4861, 10).
const RETRY: Duration = Duration::from_secs(1);
const TRIES: u32 = 3;
const BROADCAST: Mac = [0xff; 6];

impl Stack {
    /// Handles an ARP packet.
    pub(super) fn receive_arp(&mut self, now: Instant, bytes: &[u8]) -> Result<(), Drop> {
        let packet = ArpPacket::new_checked(bytes).map_err(|_| Drop::Malformed)?;
        let ArpRepr::EthernetIpv4 {
            operation,
            source_hardware_addr: mac,
            source_protocol_addr: from,
            target_protocol_addr: target,
            ..
        } = ArpRepr::parse(&packet).map_err(|_| Drop::Malformed)?
        else {
            return Err(Drop::Protocol);
        };
        if !self.config.owns_addresses || !self.config.addresses.contains(&target.into()) {
            return Err(Drop::NotOurs);
        }
        if !mac.is_unicast() {
            return Err(Drop::Malformed);
        }
        if self.asks_for(from.into()) {
            self.resolved(now, from.into(), mac.0);
        }
        if operation == ArpOperation::Request {
            self.send_arp(ArpOperation::Reply, target, mac.0, from);
        }
        Ok(())
    }

    fn send_arp(
        &mut self,
        operation: ArpOperation,
        ours: core::net::Ipv4Addr,
        to: Mac,
        target: core::net::Ipv4Addr,
    ) {
        let asks = operation == ArpOperation::Request;
        let arp = ArpRepr::EthernetIpv4 {
            operation,
            source_hardware_addr: EthernetAddress(self.config.mac),
            source_protocol_addr: ours,
            target_hardware_addr: EthernetAddress(if asks { [0; 6] } else { to }),
            target_protocol_addr: target,
        };
        let mut bytes = vec![0; 14 + arp.buffer_len()];
        let ethernet = EthernetRepr {
            src_addr: EthernetAddress(self.config.mac),
            dst_addr: EthernetAddress(to),
            ethertype: EthernetProtocol::Arp,
        };
        let mut frame = EthernetFrame::new_unchecked(&mut bytes[..]);
        ethernet.emit(&mut frame);
        arp.emit(&mut ArpPacket::new_unchecked(frame.payload_mut()));
        self.send_raw(bytes);
    }

    /// A neighbour's hardware address is now known: connections that waited for it continue.
    pub(super) fn resolved(&mut self, now: Instant, address: IpAddr, mac: Mac) {
        self.neighbours.learn(now, address, mac);
        let Some(asked) = self.neighbours.asked.remove(&address) else { return };
        for id in asked.waiting {
            if let Some(tcb) = self.table.get_mut(id) {
                tcb.path.remote_mac = mac;
                tcb.unresolved = false;
                self.make_ready(id);
            }
        }
    }

    /// Asks for a neighbour's hardware address.
    pub(super) fn solicit(&mut self, now: Instant, address: IpAddr) {
        if let Some(asked) = self.neighbours.asked.get_mut(&address) {
            asked.again = now + RETRY;
            asked.tries += 1;
        }
        let ours = self.config.addresses.iter().find(|ours| ours.is_ipv4() == address.is_ipv4()).copied();
        match (ours, address) {
            (Some(IpAddr::V4(ours)), IpAddr::V4(address)) => {
                self.send_arp(ArpOperation::Request, ours, BROADCAST, address);
            }
            (Some(IpAddr::V6(ours)), IpAddr::V6(address)) => self.send_solicitation(ours, address),
            _ => {}
        }
    }

    /// Repeats requests that were not answered, and gives up after [`TRIES`] requests.
    pub(super) fn solicit_again(&mut self, now: Instant, frames: &mut dyn Frames) {
        let due = self.neighbours.asked.iter().filter(|(_, asked)| asked.again <= now);
        let due: Vec<_> = due.map(|(address, asked)| (*address, asked.tries)).collect();
        for (address, tries) in due {
            if tries < TRIES {
                self.solicit(now, address);
            } else if let Some(asked) = self.neighbours.asked.remove(&address) {
                // The peer does not answer: what was queued for it is released.
                for id in asked.waiting {
                    self.with(now, frames, id, |tcb, _| tcb.end(Ended::TimedOut));
                }
            }
        }
    }

    /// True if the stack waits for an answer about `address`. Other packets are ignored, whether they claim to be an
    /// answer, a request or an announcement: otherwise any host could divert what the stack sends (RFC 826 and RFC
    /// 4861, 7.2.3 would accept them).
    pub(super) fn asks_for(&self, address: IpAddr) -> bool {
        self.neighbours.asked.contains_key(&address)
    }
}
