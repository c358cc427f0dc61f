//! Packets that wait for updates of other sessions, in the pipeline.

use super::blockers::Scope;
use super::holds::{self, Held, Name};
use crate::device::arrival::{Arrival, Verdict};
use crate::device::state::{ACTIONS_MAX, Action, Device};
use crate::device::table::{self, Access, Row, Side};
use crate::identity::{Flow, Identity};
use crate::wire::Packet;
use landfall_net::Instant;
use std::sync::Arc;

impl Device {
    /// Whether a packet must wait for updates of other sessions. If it must, it is held, or dropped if there is no
    /// room.
    pub(in crate::device) fn holds(
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
    pub(in crate::device) fn release_held(&mut self, now: Instant) {
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
