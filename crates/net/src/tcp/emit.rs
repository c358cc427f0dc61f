//! Writes segments: headers in front of payload, and the checksum over both.

use super::sack::{BLOCKS_MAX, Block};
use super::segment::{Flags, Segment};
use super::seq::Seq;
use crate::address::{ETHERNET_HEADER, PROTOCOL_TCP, Path, pseudo_sum};
use crate::ip;
use crate::packet::{Cut, Packet, PacketBuilder};
use landfall_media::Sum;
use smoltcp::wire::{TcpOption, TcpPacket, TcpSeqNumber};

/// Length of a TCP header without options, bytes.
pub(crate) const HEADER_LEN: usize = 20;
/// Offset of the checksum in the TCP header (RFC 9293, 3.1).
const CHECKSUM_AT: u16 = 16;

/// Options to send.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OptionsOut {
    pub(crate) mss: Option<u16>,
    pub(crate) window_scale: Option<u8>,
    pub(crate) sack_permitted: bool,
    pub(crate) timestamps: Option<(u32, u32)>,
    pub(crate) sack: [Option<Block>; BLOCKS_MAX],
}

impl OptionsOut {
    fn list(&self) -> impl Iterator<Item = TcpOption<'static>> + '_ {
        let timestamps = self.timestamps.map(|(tsval, tsecr)| TcpOption::TimeStamp { tsval, tsecr });
        let ranges = self.sack.map(|block| block.map(|block| (block.start.0, block.end.0)));
        let sack = self.sack[0].map(|_| TcpOption::SackRange(ranges));
        let permitted = self.sack_permitted.then_some(TcpOption::SackPermitted);
        let mss = self.mss.map(TcpOption::MaxSegmentSize);
        let scale = self.window_scale.map(TcpOption::WindowScale);
        [mss, scale, permitted, timestamps, sack].into_iter().flatten()
    }

    /// Length of the options, padded to whole words, bytes.
    pub(crate) fn len(&self) -> usize {
        self.list().map(|option| option.buffer_len()).sum::<usize>().next_multiple_of(4)
    }

    fn emit(&self, mut buffer: &mut [u8]) {
        let padding = buffer.len() - self.list().map(|option| option.buffer_len()).sum::<usize>();
        // Padding comes first, as in RFC 7323, appendix A: the words of the options are then aligned.
        for _ in 0..padding {
            buffer = TcpOption::NoOperation.emit(buffer);
        }
        for option in self.list() {
            buffer = option.emit(buffer);
        }
    }
}

/// A header to send.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Header {
    pub(crate) seq: Seq,
    pub(crate) ack: Seq,
    pub(crate) flags: Flags,
    pub(crate) window: u16,
    pub(crate) options: OptionsOut,
    /// Routers may mark the packet instead of dropping it (RFC 3168).
    pub(crate) markable: bool,
}

impl Header {
    /// The reset that answers a segment of no connection (RFC 9293, 3.10.7.1); `None` if the segment is itself a reset.
    pub(crate) fn reset_for(segment: &Segment) -> Option<Self> {
        let rst = Flags { rst: true, ..Flags::default() };
        match segment.flags {
            Flags { rst: true, .. } => None,
            Flags { ack: true, .. } => Some(Self { seq: segment.ack, flags: rst, ..Self::default() }),
            _ => {
                let flags = Flags { ack: true, ..rst };
                Some(Self { ack: segment.seq + segment.len(), flags, ..Self::default() })
            }
        }
    }

    /// Starts a packet with room for all headers.
    pub(crate) fn begin<'a>(&self, path: &Path, packet: &'a mut Packet) -> PacketBuilder<'a> {
        PacketBuilder::new(packet, path.header_len() + HEADER_LEN + self.options.len())
    }

    /// Writes the headers.
    pub(crate) fn finish(&self, path: &Path, mut builder: PacketBuilder<'_>) {
        let (payload_sum, payload_len) = (builder.sum(), builder.payload_len());
        let header_len = HEADER_LEN + self.options.len();
        let cut = builder.segment_len().map(|segment_len| Cut {
            header_len: (path.header_len() + header_len) as u16,
            segment_len,
            tcp_at: path.header_len() as u16,
            checksum_at: CHECKSUM_AT,
            ipv4: path.tuple.local.is_ipv4(),
        });
        let (link, header) = builder.header().split_at_mut(path.header_len());
        let header = &mut header[..header_len];
        self.write(path, header);
        let (from, to) = (path.tuple.local.ip(), path.tuple.remote.ip());
        let len = header_len + payload_len;
        let pseudo = pseudo_sum(from, to, PROTOCOL_TCP, len);
        let checksum = match cut {
            // The sum itself rather than its complement: the device that cuts the packet continues the sum.
            Some(_) => !pseudo.checksum(),
            None => pseudo.plus(Sum::of(header)).plus(payload_sum).checksum(),
        };
        TcpPacket::new_unchecked(header).set_checksum(checksum);
        ip::write_ethernet(&mut link[..ETHERNET_HEADER], path.local_mac, path.remote_mac, from);
        ip::write(&mut link[ETHERNET_HEADER..], from, to, PROTOCOL_TCP, len, self.markable);
        cut.into_iter().for_each(|cut| builder.set_cut(cut));
    }

    /// Writes a segment without payload.
    pub(crate) fn emit_alone(&self, path: &Path, packet: &mut Packet) {
        let builder = self.begin(path, packet);
        self.finish(path, builder);
    }

    fn write(&self, path: &Path, header: &mut [u8]) {
        let len = header.len() as u8;
        let mut tcp = TcpPacket::new_unchecked(header);
        tcp.set_src_port(path.tuple.local.port());
        tcp.set_dst_port(path.tuple.remote.port());
        tcp.set_seq_number(TcpSeqNumber(self.seq.0.cast_signed()));
        tcp.set_ack_number(TcpSeqNumber(self.ack.0.cast_signed()));
        tcp.clear_flags();
        tcp.set_header_len(len);
        tcp.set_syn(self.flags.syn);
        tcp.set_ack(self.flags.ack);
        tcp.set_fin(self.flags.fin);
        tcp.set_rst(self.flags.rst);
        tcp.set_psh(self.flags.psh);
        tcp.set_ece(self.flags.ece);
        tcp.set_cwr(self.flags.cwr);
        tcp.set_window_len(self.window);
        tcp.set_urgent_at(0);
        tcp.set_checksum(0);
        self.options.emit(tcp.options_mut());
    }
}
