//! Linearizable keys: a packet waits for updates of other sessions that a client may have been told are durable.
//!
//! Which packets wait for which updates, and why this makes every key linearizable: `docs/format/pmnet.md`,
//! "Linearizable keys".

mod blockers;
mod holds;

use super::reads::Codec;
use super::table::{self, Access, Row};
use super::{ACTIONS_MAX, Action, Arrival, Device, Side, Verdict};
use crate::identity::{Flow, Identity};
use crate::log::Log;
use crate::wire::{Body, Packet};
use blockers::{Blockers, Piece, Scope};
use holds::{Held, Holds, Name};
use landfall_net::Instant;
use std::sync::Arc;
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

impl Device {
    /// Whether a packet must wait for updates of other sessions. If it must, it is held, or dropped if there is no
    /// room.
    pub(super) fn holds(
        &mut self,
        (row, flow): (&Row, Flow),
        packet: &Packet<'_>,
        arrival: &Arrival<'_>,
        now: Instant,
    ) -> bool {
        let identity = Identity { flow, session: packet.header.session, seq: packet.header.seq };
        let Self { order: Some(order), log, reads, stats, .. } = self else { return false };
        let waits = match row.access {
            Access::Log => !log.contains(&identity) && !log.is_applied(&identity),
            Access::ReadCache => !reads.as_mut().is_some_and(|reads| reads.has(flow, packet, now)),
            _ => false,
        };
        if !waits {
            return false;
        }
        let scope = match row.access {
            Access::Log => order.scope_of(&identity, &packet.body),
            _ => Scope::of_bypass(order.codec, &packet.body),
        };
        let name = Name { identity, piece: packet.body.piece() };
        match order.holds.arrives(name, || scope, &order.blockers) {
            Held::Proceeds => return false,
            Held::Dropped => stats.held_dropped += 1,
            Held::Waits => {
                stats.held += 1;
                let stored = log.hold_packet(arrival.packet, arrival.header_at);
                let Arrival { from, to, arrival_ns, .. } = *arrival;
                order.holds.keep(name, holds::Packet { from, to, arrival_ns, stored }, now);
            }
        }
        true
    }

    /// Processes the packets that no longer have to wait, as if they arrived now, and drops those that were held for
    /// too long.
    pub(super) fn release_held(&mut self, now: Instant) {
        let Self { order: Some(order), log, stats, .. } = self else { return };
        for expired in order.holds.expire(now) {
            stats.held_dropped += 1;
            log.release(&expired.stored);
        }
        let ended = order.blockers.take_ended();
        for (name, packet) in order.holds.release(ended, &order.blockers) {
            self.process_held(name.identity, packet, now);
        }
    }

    fn process_held(&mut self, identity: Identity, held: holds::Packet, now: Instant) {
        let holds::Packet { from, to, arrival_ns, stored } = held;
        let heap = Arc::clone(self.log.heap());
        let landed = stored.extents.first().and_then(|extent| {
            let bytes = heap.media().bytes(*extent).ok()?;
            Some((*extent, bytes.get(stored.header_at..)?))
        });
        let verdict = landed.map_or(Verdict::Taken, |(packet, payload)| {
            let header_at = stored.header_at;
            let arrival = Arrival { side: Side::Clients, from, to, payload, packet, header_at, arrival_ns };
            let parsed = Packet::parse(payload);
            parsed.map_or(Verdict::Taken, |parsed| {
                let row = table::matching(parsed.header.kind);
                self.pass((row, identity.flow), &parsed, &arrival, now)
            })
        });
        if verdict == Verdict::Forward && self.actions.len() < ACTIONS_MAX {
            self.actions.push_back(Action::Logged { identity, stored });
        } else {
            self.log.release(&stored);
        }
    }
}
