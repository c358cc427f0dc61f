//! UDP (RFC 768).

use super::ingress::Arrival;
use super::{Received, SendError, Stack, UNCONNECTED_MAX};
use crate::address::{ETHERNET_HEADER, PROTOCOL_UDP, Path, Tuple, pseudo_sum};
use crate::config::Mac;
use crate::event::Event;
use crate::frames::Frames;
use crate::ip;
use crate::packet::{BYTES_MAX, Packet, PacketBuilder};
use crate::stats::Drop;
use core::net::{IpAddr, SocketAddr};
use landfall_media::{Extent, Sum};
use smoltcp::wire::UdpPacket;

/// Length of a UDP header, bytes.
const HEADER_LEN: usize = 8;

/// A received datagram, checked.
pub(super) struct Datagram {
    mac: Mac,
    to: SocketAddr,
    from: SocketAddr,
    extent: Extent,
    sum: Sum,
    arrival_ns: u64,
}

/// A datagram to send.
#[derive(Debug)]
pub(super) struct Outgoing {
    path: Path,
    bytes: Vec<u8>,
    stored: Option<(Extent, Sum)>,
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

impl Outgoing {
    /// Fills a packet with the datagram. Returns the stored bytes that must be held until the packet is sent.
    pub(super) fn emit(self, packet: &mut Packet) -> Option<Extent> {
        let path = &self.path;
        let mut builder = PacketBuilder::new(packet, path.header_len() + HEADER_LEN);
        builder.add_bytes(&self.bytes);
        if let Some((extent, sum)) = self.stored {
            builder.add_stored(extent, || sum);
        }
        let (payload_sum, len) = (builder.sum(), HEADER_LEN + builder.payload_len());
        let (from, to) = (path.tuple.local.ip(), path.tuple.remote.ip());
        let (link, header) = builder.header().split_at_mut(path.header_len());
        let header = &mut header[..HEADER_LEN];
        let mut udp = UdpPacket::new_unchecked(&mut *header);
        udp.set_src_port(path.tuple.local.port());
        udp.set_dst_port(path.tuple.remote.port());
        udp.set_len(len as u16);
        udp.set_checksum(0);
        let sum = pseudo_sum(from, to, PROTOCOL_UDP, len).plus(Sum::of(header)).plus(payload_sum);
        UdpPacket::new_unchecked(header).set_checksum(sum.checksum());
        ip::write_ethernet(&mut link[..ETHERNET_HEADER], path.local_mac, path.remote_mac, from);
        ip::write(&mut link[ETHERNET_HEADER..], from, to, PROTOCOL_UDP, len, false);
        self.stored.map(|(extent, _)| extent)
    }

    pub(super) fn release(self, frames: &mut dyn Frames) {
        if let Some((extent, _)) = self.stored {
            frames.release(extent);
        }
    }
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
