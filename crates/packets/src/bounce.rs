//! Bounce buffers, for media whose memory the kernel cannot pin (fs-DAX). Packets land in a zone beside the region and
//! are copied into the region once, whole, as they arrive. Packets to send are gathered in the zone. The layers above
//! see no difference.

use crate::sys::Zone;
use crate::transmit::Outlet;
use landfall_media::Extent;
use landfall_net::{Packet, Piece};
use landfall_sockets::Frames;
use landfall_xdp::{Socket, XDP_HEADROOM, XdpError};
use std::ops::Range;
use std::sync::Arc;

/// Bytes of the zone for each socket: one half to receive into, the other half to send from.
pub(crate) const BYTES_PER_SOCKET: u64 = 16 << 20;

/// Where packets of a worker's sockets land.
#[derive(Debug)]
pub(crate) struct Inbound {
    zone: Arc<Zone>,
    /// Free chunks to fill into the interface's ring.
    to_receive: Vec<u64>,
    scratch: Vec<u8>,
}

impl Inbound {
    /// Uses the parts of the zone that belong to these sockets.
    pub(crate) fn new(zone: Arc<Zone>, sockets: Range<usize>, chunk: u64) -> Self {
        let to_receive = sockets.flat_map(|socket| halves(socket)[0].clone().step_by(chunk as usize));
        Self { zone, to_receive: to_receive.collect(), scratch: Vec::new() }
    }

    /// Fills free chunks into the interface's ring.
    pub(crate) fn refill(&mut self, socket: &mut Socket) {
        let keep = self.to_receive.len().saturating_sub(socket.fill_room() as usize);
        let lent = self.to_receive.split_off(keep);
        socket.fill(lent.into_iter());
    }

    /// Copies a packet from the zone's `chunk` into the region's chunk `to`; returns where it is then. `None`: the
    /// medium refused.
    pub(crate) fn land(
        &mut self,
        (addr, len): (u64, u32),
        to: u64,
        frames: &mut dyn Frames,
    ) -> Option<Extent> {
        let packet = Extent::new(to + u64::from(XDP_HEADROOM), len);
        self.scratch.clear();
        self.zone.read(addr, len as usize, &mut self.scratch);
        frames.write(packet.off, &self.scratch).then_some(packet)
    }

    /// Makes a chunk of the zone free again: its packet is no longer needed there.
    pub(crate) fn give_back(&mut self, chunk: u64) {
        self.to_receive.push(chunk);
    }
}

/// Where one socket sends from.
#[derive(Debug)]
pub(crate) struct Outbound {
    zone: Arc<Zone>,
    /// Free chunks to send from.
    to_send: Vec<u64>,
    scratch: Vec<u8>,
}

impl Outbound {
    pub(crate) fn new(zone: Arc<Zone>, socket: usize, chunk: u64) -> Self {
        let to_send = halves(socket)[1].clone().step_by(chunk as usize).collect();
        Self { zone, to_send, scratch: Vec::new() }
    }

    /// Sends the gathered bytes; false if they were not queued.
    fn send_scratch(&mut self, socket: &mut Socket) -> bool {
        let Some(addr) = self.to_send.pop() else { return false };
        self.zone.write(addr, &self.scratch);
        let piece = landfall_xdp::Piece { addr, len: self.scratch.len() as u32 };
        let taken = socket.transmit(&[piece]).is_ok();
        if !taken {
            self.to_send.push(addr);
        }
        taken
    }
}

/// A socket's two parts of the zone: to receive into, and to send from.
fn halves(socket: usize) -> [Range<u64>; 2] {
    let start = socket as u64 * BYTES_PER_SOCKET;
    let half = BYTES_PER_SOCKET / 2;
    [start..start + half, start + half..start + 2 * half]
}

impl Outlet for Outbound {
    fn has_room(&mut self, socket: &mut Socket, frames: &mut dyn Frames) -> Result<bool, XdpError> {
        let room = |this: &Self, socket: &mut Socket| !this.to_send.is_empty() && socket.transmit_room() > 0;
        if !room(self, socket) {
            self.kick(socket, frames)?;
        }
        Ok(room(self, socket))
    }

    fn send(&mut self, packet: &Packet, socket: &mut Socket, frames: &mut dyn Frames) {
        self.scratch.clear();
        for piece in &packet.pieces {
            match *piece {
                Piece::Bytes { start, end } => {
                    self.scratch.extend_from_slice(&packet.bytes[usize::from(start)..usize::from(end)]);
                }
                Piece::Stored(extent) => self.scratch.extend_from_slice(frames.bytes(extent)),
            }
        }
        self.send_scratch(socket);
    }

    fn send_stored(&mut self, frame: Extent, socket: &mut Socket, frames: &mut dyn Frames) -> bool {
        self.scratch.clear();
        self.scratch.extend_from_slice(frames.bytes(frame));
        self.send_scratch(socket)
    }

    fn send_bytes(&mut self, frame: &[u8], socket: &mut Socket, _frames: &mut dyn Frames) -> bool {
        self.scratch.clear();
        self.scratch.extend_from_slice(frame);
        self.send_scratch(socket)
    }

    fn kick(&mut self, socket: &mut Socket, _frames: &mut dyn Frames) -> Result<(), XdpError> {
        if socket.transmit_pending() > 0 {
            socket.kick()?;
        }
        socket.completed(|addr| self.to_send.push(addr));
        Ok(())
    }

    fn clear(&mut self, _frames: &mut dyn Frames) {}
}
