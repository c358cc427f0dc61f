//! Sends packets: headers from a run of the transport, stored bytes from their frames.

use crate::units::FRAME_SIZE;
use landfall_media::{Extent, RUN_SIZE};
use landfall_net::{Packet, Piece};
use landfall_sockets::Frames;
use landfall_xdp::{PIECES_MAX, Socket, XdpError};

/// A way to send single packets.
pub(crate) trait Outlet: std::fmt::Debug {
    /// True if a packet can be sent, after making room if necessary.
    fn has_room(&mut self, socket: &mut Socket, frames: &mut dyn Frames) -> Result<bool, XdpError>;
    /// Queues a packet; [`Self::has_room`] has returned true.
    fn send(&mut self, packet: &Packet, socket: &mut Socket, frames: &mut dyn Frames);
    /// Queues a frame that lies in the region; [`Self::has_room`] has returned true. False: it was not queued.
    fn send_stored(&mut self, frame: Extent, socket: &mut Socket, frames: &mut dyn Frames) -> bool;
    /// Queues a frame made of these bytes; [`Self::has_room`] has returned true. False: it was not queued.
    fn send_bytes(&mut self, frame: &[u8], socket: &mut Socket, frames: &mut dyn Frames) -> bool;
    /// Makes the kernel send what was queued, and releases what it has sent.
    fn kick(&mut self, socket: &mut Socket, frames: &mut dyn Frames) -> Result<(), XdpError>;
    /// Returns runs to the heap; the interface sends nothing any more.
    fn clear(&mut self, frames: &mut dyn Frames);
}

/// The sending side of one queue.
#[derive(Debug)]
pub(crate) struct Transmitter {
    chunk: u64,
    /// The run that headers are written to.
    run: Option<u64>,
    free: Vec<u64>,
    /// Descriptors in flight, for each header chunk.
    in_flight: Vec<u8>,
    pieces: Vec<landfall_xdp::Piece>,
    /// Packets were queued since the last kick.
    unkicked: bool,
}

impl Transmitter {
    pub(crate) fn new(chunk: u64) -> Self {
        Self {
            chunk,
            run: None,
            free: Vec::new(),
            in_flight: Vec::new(),
            pieces: Vec::new(),
            unkicked: false,
        }
    }

    fn take_run(&mut self, frames: &mut dyn Frames) -> bool {
        let Some(run) = frames.take_run() else { return false };
        let count = RUN_SIZE / self.chunk;
        self.run = Some(run);
        self.free = (0..count).rev().map(|index| run + index * self.chunk).collect();
        self.in_flight = vec![0; count as usize];
        true
    }

    /// A descriptor lies in one frame, because its completion reports only an address, and that address tells what to
    /// release.
    fn add_stored(&mut self, extent: Extent) {
        let (mut addr, end) = (extent.off, extent.end());
        while addr < end {
            let len = (FRAME_SIZE - addr % FRAME_SIZE).min(end - addr) as u32;
            self.pieces.push(landfall_xdp::Piece { addr, len });
            addr += u64::from(len);
        }
    }

    fn complete(&mut self, socket: &mut Socket, frames: &mut dyn Frames) {
        let Some(run) = self.run else { return };
        let (free, in_flight, chunk) = (&mut self.free, &mut self.in_flight, self.chunk);
        socket.completed(|addr| {
            if addr / RUN_SIZE * RUN_SIZE != run {
                return frames.release(Extent::new(addr, 1));
            }
            let index = (addr - run) / chunk;
            let left = &mut in_flight[index as usize];
            *left -= 1;
            if *left == 0 {
                free.push(run + index * chunk);
            }
        });
    }

    /// Queues the pieces, which do not change until they are sent. False: they were not queued.
    fn queue(&mut self, socket: &mut Socket, frames: &mut dyn Frames) -> bool {
        if let Err(error) = socket.transmit(&self.pieces) {
            // The peer counts the packet as lost, and it is retransmitted.
            tracing::debug!(%error, "a packet was not taken");
            return false;
        }
        self.unkicked = true;
        let Some(run) = self.run else { return true };
        for piece in &self.pieces {
            if piece.addr / RUN_SIZE * RUN_SIZE == run {
                self.in_flight[((piece.addr - run) / self.chunk) as usize] += 1;
            } else {
                frames.hold(Extent::new(piece.addr, piece.len));
            }
        }
        true
    }

    /// A header chunk that contains these bytes.
    fn written(&mut self, bytes: &[u8], frames: &mut dyn Frames) -> Option<u64> {
        let header = self.free.pop()?;
        if bytes.len() as u64 <= self.chunk && frames.write(header, bytes) {
            return Some(header);
        }
        self.free.push(header);
        None
    }
}

impl Outlet for Transmitter {
    fn has_room(&mut self, socket: &mut Socket, frames: &mut dyn Frames) -> Result<bool, XdpError> {
        if self.run.is_none() && !self.take_run(frames) {
            return Ok(false);
        }
        let room = |this: &Self, socket: &mut Socket| {
            !this.free.is_empty() && socket.transmit_room() as usize >= PIECES_MAX
        };
        if !room(self, socket) {
            self.kick(socket, frames)?;
        }
        Ok(room(self, socket))
    }

    fn send(&mut self, packet: &Packet, socket: &mut Socket, frames: &mut dyn Frames) {
        let Some(header) = self.written(&packet.bytes, frames) else { return };
        self.pieces.clear();
        for piece in &packet.pieces {
            match *piece {
                Piece::Bytes { start, end } => {
                    let (addr, len) = (header + u64::from(start), u32::from(end - start));
                    self.pieces.push(landfall_xdp::Piece { addr, len });
                }
                Piece::Stored(extent) => self.add_stored(extent),
            }
        }
        if !self.queue(socket, frames) {
            self.free.push(header);
        }
    }

    fn send_stored(&mut self, frame: Extent, socket: &mut Socket, frames: &mut dyn Frames) -> bool {
        self.pieces.clear();
        self.add_stored(frame);
        self.queue(socket, frames)
    }

    fn send_bytes(&mut self, frame: &[u8], socket: &mut Socket, frames: &mut dyn Frames) -> bool {
        let Some(addr) = self.written(frame, frames) else { return false };
        self.pieces.clear();
        self.pieces.push(landfall_xdp::Piece { addr, len: frame.len() as u32 });
        let taken = self.queue(socket, frames);
        if !taken {
            self.free.push(addr);
        }
        taken
    }

    fn kick(&mut self, socket: &mut Socket, frames: &mut dyn Frames) -> Result<(), XdpError> {
        if self.unkicked {
            socket.kick()?;
            self.unkicked = socket.transmit_pending() > 0;
        }
        self.complete(socket, frames);
        Ok(())
    }

    fn clear(&mut self, frames: &mut dyn Frames) {
        if let Some(run) = self.run.take() {
            frames.retire_run(run);
        }
        self.free.clear();
    }
}
