//! A datagram to send.

use crate::address::{ETHERNET_HEADER, PROTOCOL_UDP, Path, pseudo_sum};
use crate::frames::Frames;
use crate::ip;
use crate::packet::{Packet, PacketBuilder};
use landfall_media::{Extent, Sum};
use smoltcp::wire::UdpPacket;

/// Length of a UDP header, bytes.
pub(super) const HEADER_LEN: usize = 8;

/// A datagram to send.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) path: Path,
    pub(super) bytes: Vec<u8>,
    pub(super) stored: Option<(Extent, Sum)>,
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
