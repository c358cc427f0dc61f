//! What a device on the wire does with one packet, whichever queue it came from.

use super::frame::{self, ETHERNET_BYTES, Frame, Mac, Unfit};
use super::neighbours::Neighbours;
use super::{Lane, SERVER, at};
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
    /// It has been sent on.
    sent: bool,
}

/// What does not depend on the lane.
pub(super) struct Station {
    pub(super) engine: Engine,
    pub(super) frames: HeapFrames,
    neighbours: Neighbours,
    complained: bool,
}

impl Station {
    pub(super) fn new(engine: Engine, frames: HeapFrames) -> Self {
        Self { engine, frames, neighbours: Neighbours::default(), complained: false }
    }

    /// A packet has come in.
    pub(super) fn land(&mut self, lane: &mut Lane, packet: &Received) -> Option<Landed> {
        let at = if packet.is_part {
            // A part of a packet that is longer than a chunk: the interfaces' MTU forbids it.
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

    /// Sends the updates among what clients have sent on, before anything else is done with them.
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

    /// A packet that came in on `side` is looked at, and passed on or kept.
    pub(super) fn pass(&mut self, lane: &mut Lane, landed: Landed, side: Side) -> Result<(), SwitchError> {
        let Landed { at, sent } = landed;
        if self.look(at, side) == Verdict::Forward && !sent {
            self.forward(lane, at, side.across())?;
        }
        lane.landing.done(at.off, &mut self.frames);
        Ok(())
    }

    fn look(&mut self, at: Extent, side: Side) -> Verdict {
        let shown = show(&mut self.engine, &mut self.neighbours, &self.frames, at, side);
        shown.unwrap_or_else(|| {
            self.complain();
            Verdict::Taken
        })
    }

    fn complain(&mut self) {
        if !std::mem::replace(&mut self.complained, true) {
            tracing::warn!(
                "packets with wrong checksums are dropped; between virtual interfaces nobody fills them in: switch that off at the ends (ethtool -K INTERFACE tx off)"
            );
        }
    }

    /// Sends a frame of the region on.
    fn forward(&mut self, lane: &mut Lane, frame: Extent, towards: Side) -> Result<(), SwitchError> {
        let (departures, socket) = (&mut lane.departures[at(towards)], &mut lane.sockets[at(towards)]);
        if !departures.has_room(socket, &mut self.frames)?
            || !departures.send_stored(frame, socket, &mut self.frames)
        {
            self.engine.status.dropped(1);
        }
        Ok(())
    }

    /// Sends a datagram made here.
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

    /// Sends the frame of an update to its server again.
    pub(super) fn send_again(
        &mut self,
        lane: &mut Lane,
        identity: &Identity,
        stored: &Stored,
    ) -> Result<(), SwitchError> {
        let Some(Again { bytes, macs, is_whole }) = again(&mut self.engine, identity, stored) else {
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

/// An update of the log, as it is to be sent.
pub(super) struct Again {
    /// Its frame.
    pub(super) bytes: Vec<u8>,
    macs: (Mac, Mac),
    /// It is the frame that was received.
    is_whole: bool,
}

/// The frame of an update; made anew where it has been stored without its seal, or needs one. `None` for what a relay has logged,
/// without headers.
pub(super) fn again(engine: &mut Engine, identity: &Identity, stored: &Stored) -> Option<Again> {
    let bytes = engine.device.log().bytes_of(stored).ok()?;
    let (destination, rest) = bytes.split_first_chunk::<6>()?;
    let macs = (*rest.first_chunk::<6>()?, *destination);
    if !engine.guard.is_keyed() && Frame::parse(&bytes).is_ok() {
        return Some(Again { bytes, macs, is_whole: true });
    }
    let payload = bytes.get(stored.header_at..).filter(|_| stored.header_at > ETHERNET_BYTES)?;
    let (from, to) = (identity.flow.client, identity.flow.server);
    let payload = engine.seal(Ends::of(Side::Server, from, to), payload);
    Some(Again { bytes: frame::make(macs, from, to, &payload)?, macs, is_whole: false })
}

/// Shows a packet that lies in `at`, and came in on `side`, to the device. `None`: its checksum is wrong, so that it is dropped, and
/// counted.
pub(super) fn show(
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
    Some(take(engine, &frame, at, side))
}

/// Shows a datagram to the device, without its seal, if that fits. Otherwise it is sent on: it is for hosts to drop it, and other
/// services may use the ports.
pub(super) fn take(engine: &mut Engine, frame: &Frame<'_>, at: Extent, side: Side) -> Verdict {
    let ends = Ends::of(side.across(), frame.from, frame.to);
    let Ok(payload) = engine.guard.open(ends, Clock::unix_ns(), frame.payload) else {
        engine.device.count_unauthentic();
        return engine.device.unseen(side);
    };
    let packet = at.with_len((frame.payload_at + payload.len()) as u32);
    let frame = Frame { payload, ..*frame };
    engine.device.handle(&frame.arrival(side, packet), engine.clock.now())
}
