//! UDP (RFC 768).

use super::arrival::Arrival;
use super::datagram::{HEADER_LEN, Outgoing};
use super::host::{Received, SendError, Stack};
use crate::address::{ETHERNET_HEADER, PROTOCOL_UDP, Path, Tuple, pseudo_sum};
use crate::config::{Mac, UNCONNECTED_MAX};
use crate::event::Event;
use crate::frames::Frames;
use crate::packet::BYTES_MAX;
use crate::stats::Drop;
use core::net::{IpAddr, SocketAddr};
use landfall_media::{Extent, Sum};
use smoltcp::wire::UdpPacket;

/// A received datagram, checked.
pub(super) struct Datagram {
    mac: Mac,
    to: SocketAddr,
    from: SocketAddr,
    extent: Extent,
    sum: Sum,
    arrival_ns: u64,
}

pub(super) fn parse(arrival: &Arrival<'_>) -> Result<Datagram, Drop> {
    let ip = &arrival.ip;
    let packet = UdpPacket::new_checked(ip.payload).map_err(|_| Drop::Malformed)?;
    let len = usize::from(packet.len());
    let (header, payload) = ip.payload[..len].split_at(HEADER_LEN);
    let sum = Sum::of(payload);
    let total = pseudo_sum(ip.from, ip.to, PROTOCOL_UDP, len).plus(Sum::of(header)).plus(sum);
    // RFC 768: zero means no checksum; RFC 8200, 8.1: IPv6 does not allow that.
    let none = packet.checksum() == 0 && ip.from.is_ipv4();
    if !none && !total.is_zero() {
        let pseudo = pseudo_sum(ip.from, ip.to, PROTOCOL_UDP, len);
        let partial = Sum::of_word(packet.checksum()) == pseudo;
        return Err(if partial { Drop::PartialChecksum } else { Drop::Checksum });
    }
    Ok(Datagram {
        mac: arrival.from_mac,
        to: SocketAddr::new(ip.to, packet.dst_port()),
        from: SocketAddr::new(ip.from, packet.src_port()),
        extent: Extent::new(arrival.off + HEADER_LEN as u64, payload.len() as u32),
        sum,
        arrival_ns: arrival.arrival_ns,
    })
}

impl Stack {
    pub(super) fn receive_datagram(
        &mut self,
        frames: &mut dyn Frames,
        datagram: &Datagram,
    ) -> Result<Received, Drop> {
        if !self.udp_ports.contains(&datagram.to.port()) {
            return Err(Drop::NoListener);
        }
        self.neighbours.note_sender(datagram.from.ip(), datagram.mac);
        frames.hold(datagram.extent);
        self.events.push_back(Event::Datagram {
            port: datagram.to.port(),
            remote: datagram.from,
            extent: datagram.extent,
            sum: datagram.sum,
            arrival_ns: datagram.arrival_ns,
        });
        Ok(Received::Done)
    }

    /// Queues a datagram from a local port: bytes, then stored bytes by reference. The hold of the stored bytes passes
    /// to the stack, also when this fails.
    ///
    /// # Errors
    /// [`SendError`].
    pub fn send_datagram(
        &mut self,
        frames: &mut dyn Frames,
        port: u16,
        remote: SocketAddr,
        bytes: &[u8],
        stored: Option<(Extent, Option<Sum>)>,
    ) -> Result<(), SendError> {
        match self.datagram(frames, port, remote, bytes, stored) {
            Ok(datagram) => {
                self.datagrams.push_back(datagram);
                Ok(())
            }
            Err(error) => {
                stored.iter().for_each(|(extent, _)| frames.release(*extent));
                Err(error)
            }
        }
    }

    fn datagram(
        &self,
        frames: &dyn Frames,
        port: u16,
        remote: SocketAddr,
        bytes: &[u8],
        stored: Option<(Extent, Option<Sum>)>,
    ) -> Result<Outgoing, SendError> {
        let family = |ours: &&IpAddr| ours.is_ipv4() == remote.is_ipv4();
        let local = *self.config.addresses.iter().find(family).ok_or(SendError::Unresolved)?;
        let remote_mac = self.neighbours.get(remote.ip()).ok_or(SendError::Unresolved)?;
        let stored_len = stored.map_or(0, |(extent, _)| extent.len() as usize);
        let headers = crate::address::ip_header_len(local) + HEADER_LEN;
        let in_buffer = ETHERNET_HEADER + headers + bytes.len();
        if headers + bytes.len() + stored_len > usize::from(self.config.mtu) || in_buffer > BYTES_MAX {
            return Err(SendError::TooLong);
        }
        if self.datagrams.len() >= UNCONNECTED_MAX {
            return Err(SendError::Full);
        }
        let tuple = Tuple { local: SocketAddr::new(local, port), remote };
        let path = Path { tuple, local_mac: self.config.mac, remote_mac };
        let sum_of = |extent| Sum::of(frames.bytes(extent));
        let stored = stored.map(|(extent, sum)| (extent, sum.unwrap_or_else(|| sum_of(extent))));
        Ok(Outgoing { path, bytes: bytes.to_vec(), stored })
    }
}
