//! Linearizable keys: a packet waits for updates of other sessions that a client may have been told are durable.
//!
//! Which packets wait for which updates, and why this makes every key linearizable: `docs/format/pmnet.md`,
//! "Linearizable keys".

mod blockers;
mod holds;
mod waiting;

use super::codec::Codec;
use crate::identity::{Flow, Identity};
use crate::log::Log;
use crate::wire::{Body, Packet};
use blockers::{Blockers, Piece, Scope};
use holds::Holds;
use landfall_net::Instant;
use std::time::Duration;

/// Configuration of linearizable keys.
#[derive(Clone, Copy, Debug)]
pub struct LinearizableConfig {
    /// The protocol in which requests are written. A request that the codec does not understand may concern any key.
    pub codec: Codec,
    /// Longest time for which a packet is held. It is then dropped, and its client sends it again.
    pub hold_max: Duration,
    /// Longest life of a packet in the network. For this time after a start, packets that a server sent before the
    /// start may arrive.
    pub packet_life: Duration,
}

impl LinearizableConfig {
    /// A configuration with default limits.
    pub fn new(codec: Codec) -> Self {
        Self { codec, hold_max: Duration::from_millis(250), packet_life: Duration::from_secs(2) }
    }
}

/// A device's state of linearizable keys.
#[derive(Debug)]
pub(super) struct Linearizable {
    codec: Codec,
    /// From this time on, packets of servers are known to have been sent after the start.
    news_from: Instant,
    blockers: Blockers,
    holds: Holds,
}

impl Linearizable {
    /// Adds all updates of the log, which are durable after a restart.
    pub(super) fn new(config: LinearizableConfig, log: &Log, now: Instant) -> Self {
        let mut order = Self {
            codec: config.codec,
            news_from: now + config.packet_life,
            blockers: Blockers::default(),
            holds: Holds::new(config.hold_max),
        };
        for identity in log.identities(|_| true) {
            let (scope, piece) = order.read(log, &identity);
            order.blockers.logged(identity, scope, piece);
            order.blockers.durable(&identity);
        }
        order
    }

    /// The keys that an update of the log may change, and its position in its request.
    fn read(&self, log: &Log, identity: &Identity) -> (Scope, Piece) {
        let Ok(Some(stored)) = log.hold(identity) else { return (Scope::All, Piece::WHOLE) };
        let bytes = log.bytes_of(&stored).unwrap_or_default();
        log.release(&stored);
        self.read_payload(bytes.get(stored.header_at..).unwrap_or_default())
    }

    fn read_payload(&self, payload: &[u8]) -> (Scope, Piece) {
        let Ok(packet) = Packet::parse(payload) else { return (Scope::All, Piece::WHOLE) };
        (Scope::of_update(self.codec, &packet.body), Piece::of(&packet.body))
    }

    /// The keys of an update that arrives. A later piece has the keys of the first piece of its request, if that is
    /// in the log or waits.
    fn scope_of(&self, identity: &Identity, body: &Body<'_>) -> Scope {
        let piece = Piece::of(body);
        if piece.index == 0 {
            return Scope::of_update(self.codec, body);
        }
        let waiting = || {
            let seq = identity.seq.checked_sub(piece.index)?;
            self.holds.scope_of(Identity { seq, ..*identity })
        };
        let known = self.blockers.scope_of(identity, piece).or_else(waiting);
        known.cloned().unwrap_or(Scope::All)
    }

    /// Adds an update that is being logged.
    pub(super) fn logged(&mut self, identity: &Identity, payload: &[u8]) {
        let (scope, piece) = self.read_payload(payload);
        self.blockers.logged(*identity, scope, piece);
    }

    /// Notes that an update is durable.
    pub(super) fn durable(&mut self, identity: &Identity) {
        self.blockers.durable(identity);
    }

    /// Removes an update that has left the log.
    pub(super) fn removed(&mut self, identity: &Identity) {
        self.blockers.removed(identity);
    }

    /// Notes that the server has applied every update of a session up to `seq`.
    pub(super) fn applied(&mut self, flow: Flow, session: u16, seq: u32, now: Instant) {
        self.blockers.set_suspended(flow, session, false);
        self.blockers.applied(flow, session, seq, self.news_from <= now);
    }

    /// Notes that the server has lost confirmed updates of a session.
    pub(super) fn suspend(&mut self, flow: Flow, session: u16) {
        self.blockers.set_suspended(flow, session, true);
    }

    /// Handles other packets of a server that show which of a session's updates it has.
    pub(super) fn server_packet(&mut self, flow: Flow, packet: &Packet<'_>, now: Instant) {
        if now < self.news_from {
            return;
        }
        let (session, seq) = (packet.header.session, packet.header.seq);
        match packet.body {
            Body::SessionStarted { first_update, .. } => self.blockers.covers(flow, session, first_update),
            Body::Recover { .. } => self.blockers.covers(flow, session, seq.saturating_add(1)),
            Body::Retransmit { .. } => self.blockers.misses(flow, session, seq),
            _ => {}
        }
    }

    /// Removes everything about a client's sessions.
    pub(super) fn remove_client(&mut self, flow: Flow) {
        self.blockers.remove_client(flow);
    }

    pub(super) fn next_timeout(&self) -> Option<Instant> {
        self.holds.next_timeout()
    }
}
