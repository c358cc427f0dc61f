//! For media whose memory the kernel cannot pin (fs-DAX): packets land in a zone beside the region and are copied into
//! it once, whole, as they arrive; replies are gathered into the zone. Everything above is the same.

use crate::sys::Zone;
use crate::transmit::Outlet;
use landfall_media::Extent;
use landfall_net::{Packet, Piece};
use landfall_sockets::Frames;
use landfall_xdp::{Socket, XDP_HEADROOM, XdpError};
use std::sync::Arc;

/// Bytes of the zone for each worker: half to receive into, half to send from.
pub(crate) const BYTES_PER_WORKER: u64 = 16 << 20;

/// One worker's part of the zone.
#[derive(Debug)]
pub(crate) struct Bounce {
    zone: Arc<Zone>,
    /// Chunks to lend to the interface.
    to_receive: Vec<u64>,
    /// Chunks to send from.
    to_send: Vec<u64>,
    scratch: Vec<u8>,
}

impl Bounce {
    pub(crate) fn new(zone: Arc<Zone>, worker: usize, chunk: u64) -> Self {
        let start = worker as u64 * BYTES_PER_WORKER;
        let half = BYTES_PER_WORKER / 2;
        let chunks = |from: u64| (from..from + half).step_by(chunk as usize).collect();
        Self { zone, to_receive: chunks(start), to_send: chunks(start + half), scratch: Vec::new() }
    }

    /// Lends chunks to the interface.
    pub(crate) fn refill(&mut self, socket: &mut Socket) {
        let keep = self.to_receive.len().saturating_sub(socket.fill_room() as usize);
        let lent = self.to_receive.split_off(keep);
        socket.fill(lent.into_iter());
    }

    /// Copies a packet from the zone into the region's chunk `to`, and gives its chunk back; where it is then.
    pub(crate) fn land(
        &mut self,
        addr: u64,
        len: u32,
        chunk: u64,
        to: Option<u64>,
        frames: &mut dyn Frames,
    ) -> Option<Extent> {
        self.to_receive.push(addr & !(chunk - 1));
        let packet = Extent::new(to? + u64::from(XDP_HEADROOM), len);
        self.scratch.clear();
        self.zone.read(addr, len as usize, &mut self.scratch);
        frames.write(packet.off, &self.scratch).then_some(packet)
    }
}

impl Outlet for Bounce {
    fn has_room(&mut self, socket: &mut Socket, frames: &mut dyn Frames) -> Result<bool, XdpError> {
        let room = |this: &Self, socket: &mut Socket| !this.to_send.is_empty() && socket.transmit_room() > 0;
        if !room(self, socket) {
            self.kick(socket, frames)?;
        }
        Ok(room(self, socket))
    }

    fn send(&mut self, packet: &Packet, socket: &mut Socket, frames: &mut dyn Frames) {
        let Some(addr) = self.to_send.pop() else { return };
        self.scratch.clear();
        for piece in &packet.pieces {
            match *piece {
                Piece::Bytes { start, end } => {
                    self.scratch.extend_from_slice(&packet.bytes[usize::from(start)..usize::from(end)]);
                }
                Piece::Stored(extent) => self.scratch.extend_from_slice(frames.bytes(extent)),
            }
        }
        self.zone.write(addr, &self.scratch);
        if socket.transmit(&[landfall_xdp::Piece { addr, len: self.scratch.len() as u32 }]).is_err() {
            self.to_send.push(addr);
        }
    }

    fn kick(&mut self, socket: &mut Socket, _frames: &mut dyn Frames) -> Result<(), XdpError> {
        if socket.transmit_pending() > 0 {
            socket.kick()?;
        }
        socket.completed(|addr| self.to_send.push(addr));
        Ok(())
    }
}
