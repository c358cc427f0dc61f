//! Segmentation offload: sends a sequence of segments as one long packet, which the kernel or its device cuts. AF_XDP
//! has no such offload.
//!
//! In copy mode the kernel allocates a buffer for each packet that is sent, and passes each packet through its layers
//! alone. A long packet costs that once, and its payload is still copied once, from the region into the kernel's
//! buffers. All other packets go out over AF_XDP.

use crate::sys::{SegmentSocket, cut_header};
use landfall_net::{Cut, Packet, Piece};
use landfall_sockets::Frames;
use std::io::{self, IoSlice};

/// Segmentation offload of one queue.
#[derive(Debug)]
pub(crate) struct Offload {
    socket: SegmentSocket,
    /// Why this kernel or device does not accept long packets.
    refused: Option<io::Error>,
    sent: u64,
    lost: u64,
}

impl Offload {
    pub(crate) fn open(interface: u32) -> io::Result<Self> {
        Ok(Self { socket: SegmentSocket::open(interface)?, refused: None, sent: 0, lost: 0 })
    }

    /// Sends a long packet, which is cut as `cut` says. A packet that cannot be sent is lost, and TCP retransmits it.
    pub(crate) fn send(&mut self, packet: &Packet, cut: Cut, frames: &dyn Frames) {
        match self.send_now(packet, cut, frames) {
            Ok(()) => self.sent += 1,
            Err(error) if is_passing(&error) => self.lost += 1,
            Err(error) => self.refused = Some(error),
        }
    }

    fn send_now(&self, packet: &Packet, cut: Cut, frames: &dyn Frames) -> io::Result<()> {
        let header = cut_header(cut);
        let mut parts = Vec::with_capacity(packet.pieces.len() + 1);
        parts.push(IoSlice::new(&header));
        parts.extend(packet.pieces.iter().map(|piece| {
            IoSlice::new(match *piece {
                Piece::Bytes { start, end } => &packet.bytes[usize::from(start)..usize::from(end)],
                Piece::Stored(extent) => frames.bytes(extent),
            })
        }));
        self.socket.send(&parts)
    }

    /// The error that ended the use of long packets, if any.
    pub(crate) fn refused(&self) -> Option<&io::Error> {
        self.refused.as_ref()
    }

    /// Counters for `INFO` and `/metrics`.
    pub(crate) fn counters(this: Option<&Self>) -> [(&'static str, u64); 2] {
        let (sent, lost) = this.map_or((0, 0), |this| (this.sent, this.lost));
        [("offloaded_bursts", sent), ("offloaded_bursts_lost", lost)]
    }
}

/// True for errors that mean "try again later": there is no room, or the link is down, which the next kick reports.
fn is_passing(error: &io::Error) -> bool {
    let passing = [libc::EAGAIN, libc::ENOBUFS, libc::ENOMEM, libc::EINTR, libc::ENETDOWN];
    error.raw_os_error().is_some_and(|code| passing.contains(&code))
}
