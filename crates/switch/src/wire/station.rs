//! How a device on the wire handles one packet, from whichever queue it came.

use super::frame::{self, ETHERNET_BYTES, Frame, Mac, Unfit};
use super::lane::{Lane, SERVER, at};
use super::neighbours::Neighbours;
use crate::engine::{Clock, Engine};
use crate::error::SwitchError;
use crate::frames::HeapFrames;
use landfall_media::Extent;
use landfall_pmnet::Identity;
use landfall_pmnet::auth::Ends;
use landfall_pmnet::device::{Side, Verdict, table};
use landfall_pmnet::log::Stored;
use landfall_sockets::Frames;
use landfall_xdp::Received;
use std::net::SocketAddr;

/// A packet in its chunk.
#[derive(Clone, Copy)]
pub(super) struct Landed {
    at: Extent,
    /// The packet has been forwarded.
    sent: bool,
}

/// The part of a device that all lanes share.
pub(super) struct Station {
    pub(super) engine: Engine,
    pub(super) frames: HeapFrames,
    neighbours: Neighbours,
    /// Wrong checksums have been reported.
    warned: bool,
}

impl Station {
    pub(super) fn new(engine: Engine, frames: HeapFrames) -> Self {
        Self { engine, frames, neighbours: Neighbours::default(), warned: false }
    }

    /// Takes a packet that has arrived into landing memory. `None` if it was dropped.
    pub(super) fn land(&mut self, lane: &mut Lane, packet: &Received) -> Option<Landed> {
        let at = if packet.is_part {
            // The packet is longer than a chunk, which the interfaces' MTU does not allow.
            lane.landing.discard(packet, &mut self.frames);
            None
        } else {
            lane.landing.land(packet, &mut self.frames)
        };
        if at.is_none() {
            self.engine.status.dropped(1);
        }
        at.map(|at| Landed { at, sent: false })
    }

    /// Forwards the updates among the packets of clients before they are handled.
    pub(super) fn forward_updates(
        &mut self,
        lane: &mut Lane,
        landed: &mut [Landed],
    ) -> Result<(), SwitchError> {
        let frames = self.frames.clone();
        for Landed { at, sent } in landed {
            *sent =
                Frame::parse(frames.bytes(*at)).is_ok_and(|frame| table::is_always_forwarded(frame.payload));
            if *sent {
                self.forward(lane, *at, Side::Server)?;
            }
        }
        Ok(lane.departures[SERVER].kick(&mut lane.sockets[SERVER], &mut self.frames)?)
    }

    /// Handles a packet that arrived on `side`, and forwards it unless the device keeps it or it has been forwarded.
    pub(super) fn pass(&mut self, lane: &mut Lane, landed: Landed, side: Side) -> Result<(), SwitchError> {
        let Landed { at, sent } = landed;
        if self.handle(at, side) == Verdict::Forward && !sent {
            self.forward(lane, at, side.across())?;
        }
        lane.landing.done(at.off, &mut self.frames);
        Ok(())
    }

    fn handle(&mut self, at: Extent, side: Side) -> Verdict {
        let verdict = handle_frame(&mut self.engine, &mut self.neighbours, &self.frames, at, side);
        verdict.unwrap_or_else(|| {
            self.warn_checksums();
            Verdict::Taken
        })
    }

    fn warn_checksums(&mut self) {
        if !std::mem::replace(&mut self.warned, true) {
            tracing::warn!(
                "packets with wrong checksums are dropped; virtual interfaces do not compute them for each other: switch checksum offload off at both ends (ethtool -K INTERFACE tx off)"
            );
        }
    }

    /// Forwards a frame of the region. A frame for which there is no room is dropped and counted.
    fn forward(&mut self, lane: &mut Lane, frame: Extent, towards: Side) -> Result<(), SwitchError> {
        let (departures, socket) = (&mut lane.departures[at(towards)], &mut lane.sockets[at(towards)]);
        if !departures.has_room(socket, &mut self.frames)?
            || !departures.send_stored(frame, socket, &mut self.frames)
        {
            self.engine.status.dropped(1);
        }
        Ok(())
    }

    /// Sends a datagram that the device has built.
    pub(super) fn send(
        &mut self,
        lane: &mut Lane,
        towards: Side,
        (from, to): (SocketAddr, SocketAddr),
        payload: Vec<u8>,
    ) -> Result<(), SwitchError> {
        let payload = self.engine.seal(Ends::of(towards, from, to), payload);
        let source = self.neighbours.find(towards.across(), &from.ip());
        let ends = source.zip(self.neighbours.find(towards, &to.ip()));
        match ends.and_then(|ends| frame::make(ends, from, to, &payload)) {
            Some(bytes) => self.send_bytes(lane, &bytes, towards),
            None => {
                self.engine.status.dropped(1);
                Ok(())
            }
        }
    }

    fn send_bytes(&mut self, lane: &mut Lane, bytes: &[u8], towards: Side) -> Result<(), SwitchError> {
        let (departures, socket) = (&mut lane.departures[at(towards)], &mut lane.sockets[at(towards)]);
        if !departures.has_room(socket, &mut self.frames)?
            || !departures.send_bytes(bytes, socket, &mut self.frames)
        {
            self.engine.status.dropped(1);
        }
        Ok(())
    }

    /// Sends the frame of a logged update to its server again.
    pub(super) fn send_again(
        &mut self,
        lane: &mut Lane,
        identity: &Identity,
        stored: &Stored,
    ) -> Result<(), SwitchError> {
        let Some(StoredFrame { bytes, macs, is_whole }) = stored_frame(&mut self.engine, identity, stored)
        else {
            self.engine.status.dropped(1);
            return Ok(());
        };
        self.neighbours.recall(identity.flow, macs);
        match stored.extents.as_slice() {
            [one] if is_whole => self.forward(lane, *one, Side::Server),
            _ => self.send_bytes(lane, &bytes, Side::Server),
        }
    }
}

/// The frame of a logged update.
pub(super) struct StoredFrame {
    /// The frame to send.
    pub(super) bytes: Vec<u8>,
    macs: (Mac, Mac),
    /// The bytes are the frame as it was received.
    is_whole: bool,
}

/// The frame of a logged update. It is built anew if the frame was stored without its seal, or needs one. `None` for an
/// update that a relay has logged, because it has no headers.
pub(super) fn stored_frame(engine: &mut Engine, identity: &Identity, stored: &Stored) -> Option<StoredFrame> {
    let bytes = engine.device.log().bytes_of(stored).ok()?;
    let (destination, tail) = bytes.split_first_chunk::<6>()?;
    let macs = (*tail.first_chunk::<6>()?, *destination);
    if !engine.guard.is_keyed() && Frame::parse(&bytes).is_ok() {
        return Some(StoredFrame { bytes, macs, is_whole: true });
    }
    let payload = bytes.get(stored.header_at..).filter(|_| stored.header_at > ETHERNET_BYTES)?;
    let (from, to) = (identity.flow.client, identity.flow.server);
    let payload = engine.seal(Ends::of(Side::Server, from, to), payload);
    Some(StoredFrame { bytes: frame::make(macs, from, to, &payload)?, macs, is_whole: false })
}

/// Passes the packet in `at`, which arrived on `side`, to the device. `None` if a checksum is wrong: the packet is
/// dropped and counted.
pub(super) fn handle_frame(
    engine: &mut Engine,
    neighbours: &mut Neighbours,
    frames: &HeapFrames,
    at: Extent,
    side: Side,
) -> Option<Verdict> {
    let frame = match Frame::parse(frames.bytes(at)) {
        Ok(frame) => frame,
        Err(Unfit::Foreign) => return Some(Verdict::Forward),
        Err(Unfit::Checksum) => {
            engine.status.dropped(1);
            return None;
        }
    };
    neighbours.learn(&frame, side);
    Some(handle_datagram(engine, &frame, Some(at), side))
}

/// Verifies the seal of a datagram and passes the datagram without its seal to the device. A datagram with a wrong seal
/// is forwarded: hosts drop it, and other services may use the ports. `at` is where the frame has landed, if it has.
pub(super) fn handle_datagram(
    engine: &mut Engine,
    frame: &Frame<'_>,
    at: Option<Extent>,
    side: Side,
) -> Verdict {
    let ends = Ends::of(side.across(), frame.from, frame.to);
    let Ok(payload) = engine.guard.open(ends, Clock::unix_ns(), frame.payload) else {
        engine.device.count_unauthentic();
        return engine.device.unseen(side);
    };
    let len = (frame.payload_at + payload.len()) as u32;
    let packet = at.map_or_else(Extent::default, |at| at.with_len(len));
    let frame = Frame { payload, ..*frame };
    engine.device.handle(&frame.arrival(side, packet), engine.clock.now())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::RegionConfig;
    use landfall_media::{MediaRequest, RUN_SIZE};
    use landfall_pmnet::device::{Action, CacheConfig, Codec, DeviceConfig};
    use landfall_pmnet::log::Limits;
    use landfall_pmnet::wire::{Body, FIRST_BYPASS, Packet};
    use landfall_sockets::Waker;
    use std::path::Path;
    use std::time::Duration;

    fn engine(dir: &Path) -> Engine {
        let region =
            RegionConfig { dir: dir.into(), capacity: 64 * RUN_SIZE, media: MediaRequest::Auto, flush: None };
        let config = DeviceConfig {
            heartbeat_every: Duration::ZERO,
            cache: Some(CacheConfig::new(Codec::Plain)),
            ..DeviceConfig::default()
        };
        Engine::open(&region, Limits::default(), config, None, &Waker::new().unwrap()).unwrap()
    }

    /// Passes a packet that is not in the region, such as a copy of one that this host has sent.
    fn pass(engine: &mut Engine, side: Side, seq: u32, body: Body<'_>) -> Verdict {
        let ends: [SocketAddr; 2] = [([10, 0, 0, 1], 40_000).into(), ([10, 0, 0, 2], 51_000).into()];
        let (from, to) = match side {
            Side::Clients => (ends[0], ends[1]),
            Side::Server => (ends[1], ends[0]),
        };
        let payload = Packet::new(1, seq, body).to_bytes();
        let bytes = frame::make(([2; 6], [4; 6]), from, to, &payload).unwrap();
        handle_datagram(engine, &Frame::parse_own(&bytes).unwrap(), None, side)
    }

    #[test]
    fn a_response_that_is_not_in_the_region_is_cached_as_a_copy_whatever_its_length() {
        let dir = tempfile::tempdir().unwrap();
        let mut engine = engine(dir.path());
        let first_bypass = FIRST_BYPASS;
        let started =
            Body::SessionStarted { nonce: 1, first_update: 1, first_bypass, incarnation: 1, lease: 0 };
        pass(&mut engine, Side::Server, 0, started);
        // The codec's read of key `k`, and its answer.
        let read = Body::Bypass { after: None, request: b"G\x01\0k" };
        let response = [&b"V"[..], &[b'o'; 1300]].concat();
        assert_eq!(pass(&mut engine, Side::Clients, FIRST_BYPASS, read), Verdict::Forward);
        pass(&mut engine, Side::Server, FIRST_BYPASS, Body::Response(&response));
        assert_eq!(engine.device.cached(), (1, 1 + 1300), "the key and a copy of the value");
        assert_eq!(pass(&mut engine, Side::Clients, FIRST_BYPASS + 1, read), Verdict::Taken);
        let hit = Packet::new(1, FIRST_BYPASS + 1, Body::CacheResponse(&response)).to_bytes();
        let sent = engine.device.poll_action();
        assert!(matches!(sent, Some(Action::Datagram { payload, .. }) if payload == hit));
        engine.stop();
    }
}
