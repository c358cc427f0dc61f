//! A host: a stack, its memory, and an application that collects what it receives.

use super::arena::{Arena, FRAME};
use super::cut::cut;
use landfall_media::Sum;
use landfall_net::{
    BYTES_MAX, Config, ConnId, DESCRIPTORS_MAX, Event, Frames, Instant, Packet, Piece, Received, Stack,
};
use std::collections::{BTreeMap, VecDeque};

pub struct Host {
    pub stack: Stack,
    pub arena: Arena,
    packet: Packet,
    /// Segments of a long packet that were not sent yet.
    segments: VecDeque<Vec<u8>>,
    /// Long packets sent.
    pub long_packets: u64,
    /// Bytes that each connection has delivered.
    pub received: BTreeMap<ConnId, Vec<u8>>,
    pub eof: Vec<ConnId>,
    pub ended: Vec<(ConnId, landfall_net::Ended)>,
    /// Number of frames sent, and the beginning of the last one, which a router quotes.
    pub sent: u64,
    pub last: Vec<u8>,
}

impl Host {
    pub fn new(config: Config, seed: u64) -> Self {
        let key = [seed ^ u64::from(config.mac[5]) << 32, !seed];
        Self {
            stack: Stack::new(config, key),
            arena: Arena::new(8192),
            packet: Packet::default(),
            segments: VecDeque::new(),
            long_packets: 0,
            received: BTreeMap::new(),
            eof: Vec::new(),
            ended: Vec::new(),
            sent: 0,
            last: Vec::new(),
        }
    }

    /// The next frame to send.
    pub fn transmit(&mut self, now: Instant) -> Option<Vec<u8>> {
        if self.segments.is_empty() {
            self.poll(now)?;
        }
        let frame = self.segments.pop_front()?;
        assert!(frame.len() <= usize::from(self.stack.config().mtu) + 14, "{} bytes do not fit", frame.len());
        self.sent += 1;
        self.last.clear();
        self.last.extend_from_slice(&frame[..frame.len().min(62)]);
        Some(frame)
    }

    /// Polls the stack for a packet, and cuts it if it is a long one.
    fn poll(&mut self, now: Instant) -> Option<()> {
        if !self.stack.poll_transmit(now, &mut self.arena, &mut self.packet) {
            return None;
        }
        let mut frame = Vec::with_capacity(self.packet.len());
        for piece in &self.packet.pieces {
            match piece {
                Piece::Bytes { start, end } => {
                    frame.extend_from_slice(&self.packet.bytes[usize::from(*start)..usize::from(*end)]);
                }
                Piece::Stored(extent) => frame.extend_from_slice(self.arena.bytes(*extent)),
            }
        }
        assert_eq!(frame.len(), self.packet.len());
        let Some(how) = self.packet.cut else {
            let beside = self.packet.bytes.len();
            assert!(beside <= BYTES_MAX, "{beside} bytes beside frames");
            assert!(self.descriptors() <= DESCRIPTORS_MAX, "{:?}", self.packet.pieces);
            self.segments.push_back(frame);
            return Some(());
        };
        assert!(self.stack.config().long_packets && self.packet.conn.is_some());
        self.long_packets += 1;
        self.segments = cut(&frame, how);
        assert_eq!(self.segments.len(), self.packet.segments());
        Some(())
    }

    /// Descriptors that the latest packet needs.
    fn descriptors(&self) -> usize {
        let of = |piece: &Piece| match piece {
            Piece::Bytes { .. } => 1,
            Piece::Stored(extent) => ((extent.end() - 1) / FRAME - extent.off / FRAME + 1) as usize,
        };
        self.packet.pieces.iter().map(of).sum()
    }

    /// Delivers a frame to the stack.
    pub fn deliver(&mut self, now: Instant, frame: &[u8]) {
        if frame.is_empty() {
            return;
        }
        // As with AF_XDP, 256 bytes are free in front of the packet.
        let Some(landed) = self.arena.store(256, frame) else { return };
        let outcome = self.stack.receive(now, &mut self.arena, landed, now.nanos());
        assert_eq!(outcome, Received::Done);
        self.arena.release(landed);
    }

    /// Handles an event as an application does.
    pub fn take(&mut self, event: &Event) {
        match *event {
            Event::Received { conn, extent, sum, .. } => {
                let bytes = self.arena.bytes(extent);
                assert_eq!(sum, Sum::of(bytes), "the sum that was derived is that of the bytes");
                self.received.entry(conn).or_default().extend_from_slice(bytes);
                self.arena.release(extent);
            }
            Event::Eof { conn } => self.eof.push(conn),
            Event::Ended { conn, how } => self.ended.push((conn, how)),
            _ => {}
        }
    }

    /// Sends bytes by reference, in pieces of `piece` bytes, as stored values are sent.
    pub fn send(&mut self, conn: ConnId, bytes: &[u8], piece: usize, know_sums: bool) -> bool {
        for (index, part) in bytes.chunks(piece).enumerate() {
            let Some(extent) = self.arena.store((index as u64 * 7) % 64, part) else { return false };
            let sum = know_sums.then(|| Sum::of(part));
            if self.stack.send_stored(&mut self.arena, conn, extent, sum).is_err() {
                return false;
            }
        }
        true
    }
}
