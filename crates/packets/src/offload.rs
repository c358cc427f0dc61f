//! Sending runs of segments as one long packet each, which the kernel or its device cuts: segmentation offload,
//! which AF_XDP has not.
//!
//! In copy mode the kernel makes a packet of its own from each one that is sent, and passes each through its
//! layers alone. A long packet costs that once; its payload goes from the region into the kernel's buffers in the
//! same one copy. Everything else goes out over AF_XDP.

use crate::sys::{SegmentSocket, cut_header};
use crate::transmit::Outlet;
use landfall_net::{Burst, Cut, Packet, Piece};
use landfall_sockets::Frames;
use landfall_xdp::{Socket, XdpError};
use std::io::{self, IoSlice};

/// One queue's runs of segments.
#[derive(Debug)]
pub(crate) struct Offload {
    socket: SegmentSocket,
    burst: Burst,
    /// The burst was not sent yet.
    held: bool,
    /// The packet before the burst is of the same connection and went out over AF_XDP.
    follows_single: bool,
    /// Why this kernel or device does not take long packets.
    refused: Option<io::Error>,
    sent: u64,
    lost: u64,
}

impl Offload {
    pub(crate) fn open(interface: u32) -> io::Result<Self> {
        Ok(Self {
            socket: SegmentSocket::open(interface)?,
            burst: Burst::default(),
            held: false,
            follows_single: false,
            refused: None,
            sent: 0,
            lost: 0,
        })
    }

    /// Takes a packet in exchange for an empty one; sends what it does not continue.
    pub(crate) fn take(
        &mut self,
        packet: &mut Packet,
        outlet: &mut dyn Outlet,
        socket: &mut Socket,
        frames: &mut dyn Frames,
    ) -> Result<(), XdpError> {
        if self.held && self.burst.add(packet) {
            return Ok(());
        }
        self.finish(outlet, socket, frames)?;
        self.follows_single = self.burst.segments() == 1 && self.burst.is_of_flow(packet);
        self.burst.begin(packet);
        self.held = true;
        // What nothing continues may lie in memory that is lent for this moment only.
        if self.burst.is_open() { Ok(()) } else { self.finish(outlet, socket, frames) }
    }

    /// Sends what was gathered.
    pub(crate) fn finish(
        &mut self,
        outlet: &mut dyn Outlet,
        socket: &mut Socket,
        frames: &mut dyn Frames,
    ) -> Result<(), XdpError> {
        if !std::mem::take(&mut self.held) {
            return Ok(());
        }
        let Some(cut) = self.burst.seal() else {
            outlet.send(self.burst.packet(), socket, frames);
            return Ok(());
        };
        if self.follows_single {
            outlet.kick(socket, frames)?;
        }
        match self.send(cut, frames) {
            Ok(()) => self.sent += 1,
            // TCP sends it again.
            Err(error) if is_passing(&error) => self.lost += 1,
            Err(error) => self.refused = Some(error),
        }
        Ok(())
    }

    fn send(&self, cut: Cut, frames: &dyn Frames) -> io::Result<()> {
        let (packet, header) = (self.burst.packet(), cut_header(cut));
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

    /// Why nothing more can be sent this way.
    pub(crate) fn refused(&self) -> Option<&io::Error> {
        self.refused.as_ref()
    }

    /// What `INFO` and `/metrics` show.
    pub(crate) fn counters(this: Option<&Self>) -> [(&'static str, u64); 2] {
        let (sent, lost) = this.map_or((0, 0), |this| (this.sent, this.lost));
        [("offloaded_bursts", sent), ("offloaded_bursts_lost", lost)]
    }
}

/// Errors that say "not now": no room, or a link that is down, which the next kick tells.
fn is_passing(error: &io::Error) -> bool {
    let passing = [libc::EAGAIN, libc::ENOBUFS, libc::ENOMEM, libc::EINTR, libc::ENETDOWN];
    error.raw_os_error().is_some_and(|code| passing.contains(&code))
}
