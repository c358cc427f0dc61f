//! The three stages of the pipeline for one packet: ingress, PM access, egress.

use super::arrival::{Arrival, Verdict};
use super::joint::AckAction;
use super::state::{ACTIONS_MAX, Action, Device, acknowledgement};
use super::table::{self, Access, Egress, Ingress, Row, Side};
use crate::dialect::Dialect;
use crate::identity::{Flow, Identity};
use crate::log::{Logged, NotLogged, Standing, Stored};
use crate::wire::{Body, FIRST_BYPASS, Header, Packet, Refusal, Role};
use landfall_net::Instant;

/// Most updates that are sent again for one request of a server.
const ANSWERS_MAX: usize = 4096;

/// Result of the PM-access stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    /// Nothing was searched for, or not everything was found.
    Missed,
    /// Everything was found.
    All,
    /// The update is already durable.
    Durable(Identity),
    /// The packet must not be forwarded now.
    Withheld,
}

impl Device {
    /// Processes a packet that has arrived.
    pub fn handle(&mut self, arrival: &Arrival<'_>, now: Instant) -> Verdict {
        self.stats.packets += 1;
        let Ok(packet) = Packet::parse(arrival.payload) else {
            self.stats.malformed += 1;
            return Verdict::Forward;
        };
        let row = table::matching(packet.header.kind);
        if !row.ingress.counts_from(arrival.side) {
            self.stats.wrong_side += 1;
            return Verdict::Forward;
        }
        let flow = ingress(row, arrival);
        if self.holds((row, flow), &packet, arrival, now) {
            return Verdict::Taken;
        }
        let verdict = self.pass((row, flow), &packet, arrival, now);
        self.release_held(now);
        verdict
    }

    /// Runs the second and the third stage.
    pub(super) fn pass(
        &mut self,
        (row, flow): (&Row, Flow),
        packet: &Packet<'_>,
        arrival: &Arrival<'_>,
        now: Instant,
    ) -> Verdict {
        if let Some(order) = &mut self.order {
            order.server_packet(flow, packet, now);
        }
        let found = self.access(row, flow, packet, arrival, now);
        self.egress(row, found, packet, arrival)
    }

    fn access(
        &mut self,
        row: &Row,
        flow: Flow,
        packet: &Packet<'_>,
        arrival: &Arrival<'_>,
        now: Instant,
    ) -> Found {
        let (session, seq) = (packet.header.session, packet.header.seq);
        let asks = matches!(row.access, Access::Log | Access::ReadCache);
        if asks && self.config.dialect.begins(&packet.header) && !self.begin_foreign(flow, session) {
            return Found::Withheld;
        }
        match row.access {
            Access::None => Found::Missed,
            Access::Log if self.refused.contains(flow, session) => {
                self.stats.refused += 1;
                self.pass_unlogged(&Identity { flow, session, seq }, arrival)
            }
            Access::Log if !self.may_log(flow, &packet.header) => {
                *self.stats.not_logged.entry(NotLogged::Unknown).or_default() += 1;
                self.pass_unlogged(&Identity { flow, session, seq }, arrival)
            }
            Access::Log => self.log_update(Identity { flow, session, seq }, arrival, now),
            Access::RemoveUpTo => {
                self.stats.server_acks += 1;
                self.remove_upto(flow, session, seq, now);
                Found::Missed
            }
            Access::RemoveOne => {
                self.handle_response(Identity { flow, session, seq }, packet, arrival, now);
                Found::Missed
            }
            Access::Join => self.join(Identity { flow, session, seq }, packet, now),
            Access::LookUpMissing => {
                let Body::Retransmit { count } = packet.body else { return Found::Missed };
                self.send_missing(flow, session, seq, count)
            }
            Access::LookUpAfter if packet.body == (Body::Recover { incarnation: 0 }) => {
                self.send_exactly(Identity { flow, session, seq })
            }
            Access::LookUpAfter => {
                self.stats.recoveries += 1;
                let seqs = self.log.seqs(flow, session, seq.saturating_add(1), ANSWERS_MAX);
                self.resend.replay(seqs.into_iter().map(|seq| Identity { flow, session, seq }).collect());
                Found::Missed
            }
            Access::CountHeld => {
                self.report_held(Identity { flow, session, seq }, packet);
                Found::Missed
            }
            Access::TellCache => {
                if let Some(reads) = &mut self.reads {
                    reads.server_packet(flow, packet, arrival);
                }
                Found::Missed
            }
            Access::Started => {
                self.log.raise(flow, session, Standing::Started);
                if let Some(reads) = &mut self.reads {
                    reads.server_packet(flow, packet, arrival);
                }
                Found::Missed
            }
            Access::Refused => self.handle_refusal(Identity { flow, session, seq }, packet),
            Access::ReadCache => {
                self.stats.bypasses += 1;
                let hit = self.reads.as_mut().and_then(|reads| reads.bypass(flow, packet, now));
                hit.map_or(Found::Missed, |hit| {
                    self.stats.cache_hits += 1;
                    self.datagram(Side::Clients, (flow.server, flow.client), hit.to_bytes(session, seq));
                    if hit.is_forwarded() { Found::Missed } else { Found::All }
                })
            }
        }
    }

    /// Answers a server that asks how many updates of a session above a number are in the log. Updates that are not
    /// yet fenced count.
    fn report_held(&mut self, last: Identity, packet: &Packet<'_>) {
        let Body::HeldRequest { nonce } = packet.body else { return };
        let Identity { flow, session, seq } = last;
        let count = self.log.seqs(flow, session, seq.saturating_add(1), ANSWERS_MAX).len();
        self.stats.held_requests += 1;
        let number = self.config.number.unwrap_or(0);
        let body = Body::Held { nonce, number, count: u32::try_from(count).unwrap_or(u32::MAX) };
        self.datagram(Side::Server, (flow.client, flow.server), Packet::new(session, seq, body).to_bytes());
    }

    /// True if an update may be logged, and so be acknowledged before its server has it.
    fn may_log(&self, flow: Flow, header: &Header) -> bool {
        let standing = || self.log.standing(flow, header.session);
        let is_sure =
            || header.is_foreign() || !self.unsure.contains(&flow) || standing() > Standing::Unknown;
        self.config.dialect.logs(header, standing) && is_sure()
    }

    /// Begins a foreign session. False while the log has updates of an older session with its name: a server that
    /// began the new session would apply them to it.
    fn begin_foreign(&mut self, flow: Flow, session: u16) -> bool {
        if !self.log.begin(flow, session) {
            self.stats.withheld += 1;
            return false;
        }
        if let Some(reads) = &mut self.reads {
            reads.begin_foreign(flow, session);
        }
        true
    }

    fn handle_response(
        &mut self,
        identity: Identity,
        packet: &Packet<'_>,
        arrival: &Arrival<'_>,
        now: Instant,
    ) {
        let Identity { flow, session, seq } = identity;
        if let Some(reads) = &mut self.reads {
            reads.response(flow, packet, arrival);
        }
        if self.config.dialect.response_confirms_all(seq) {
            self.log.raise(flow, session, Standing::Started);
            return self.remove_upto(flow, session, seq, now);
        }
        if seq < FIRST_BYPASS {
            self.log.raise(flow, session, Standing::Heard);
        }
        if self.log.remove(&identity) {
            self.stats.removed += 1;
            self.removed(&identity);
        }
    }

    /// Handles a refused session. If the server does not know it, the update is removed from the log. If the server
    /// has lost confirmed updates, the session's updates are no longer acknowledged.
    fn handle_refusal(&mut self, identity: Identity, packet: &Packet<'_>) -> Found {
        self.refused.server_refused(identity.flow, packet);
        if let (Some(order), Body::SessionRefused(Refusal::Behind)) = (&mut self.order, packet.body) {
            order.suspend(identity.flow, identity.session);
        }
        let is_unknown = packet.body == Body::SessionRefused(Refusal::Unknown);
        if is_unknown && self.log.refused(&identity) {
            self.stats.removed_refused += 1;
            self.removed(&identity);
        }
        Found::Missed
    }

    /// Updates the other tables after an update has left the log.
    fn removed(&mut self, identity: &Identity) {
        self.resend.removed(identity);
        self.joint.removed(identity);
        if let Some(order) = &mut self.order {
            order.removed(identity);
        }
    }

    fn log_update(&mut self, identity: Identity, arrival: &Arrival<'_>, now: Instant) -> Found {
        self.stats.updates += 1;
        self.servers.note(&self.config, identity.flow, now);
        match self.log.append(identity, arrival.packet, arrival.header_at, arrival.arrival_ns) {
            Ok(Logged::New) => {
                self.stats.logged += 1;
                if let Some(order) = &mut self.order {
                    order.logged(&identity, arrival.payload);
                }
                self.cache_logged(&identity, arrival);
                self.resend.watch(identity, now);
                self.joint.logged(identity, now);
                Found::Missed
            }
            Ok(Logged::Known { durable }) => {
                self.stats.repeated += 1;
                self.cache_logged(&identity, arrival);
                if !durable {
                    return Found::Missed;
                }
                Found::Durable(identity)
            }
            Ok(Logged::Not(why)) => {
                self.cache_unlogged(&identity, arrival, why == NotLogged::Collision);
                *self.stats.not_logged.entry(why).or_default() += 1;
                Found::Missed
            }
            Err(_) => {
                self.cache_unlogged(&identity, arrival, false);
                self.stats.media_errors += 1;
                Found::Missed
            }
        }
    }

    /// Reports an update in the log to the read cache, before any later packet is processed.
    fn cache_logged(&mut self, identity: &Identity, arrival: &Arrival<'_>) {
        if let Some(reads) = &mut self.reads
            && let Some(value) = reads.update(identity, arrival.payload, false)
        {
            reads.logged(identity, arrival, value);
        }
    }

    /// Reports an update that is not in the log to the read cache. Its value will not be served.
    fn cache_unlogged(&mut self, identity: &Identity, arrival: &Arrival<'_>, is_conflict: bool) {
        if let Some(reads) = &mut self.reads {
            reads.update(identity, arrival.payload, is_conflict);
        }
    }

    /// Reports an update that is not logged to the read cache, whose values it may change.
    fn pass_unlogged(&mut self, identity: &Identity, arrival: &Arrival<'_>) -> Found {
        self.cache_unlogged(identity, arrival, false);
        Found::Missed
    }

    fn remove_upto(&mut self, flow: Flow, session: u16, seq: u32, now: Instant) {
        self.refused.server_continues(flow, session);
        if let Some(reads) = &mut self.reads {
            reads.applied(flow, session, seq);
        }
        if let Some(order) = &mut self.order {
            order.applied(flow, session, seq, now);
        }
        let Self { log, stats, resend, joint, .. } = self;
        log.remove_upto(flow, session, seq, |seq| {
            stats.removed += 1;
            let identity = Identity { flow, session, seq };
            resend.removed(&identity);
            joint.removed(&identity);
        });
    }

    /// Handles an acknowledgement of other devices. It is not forwarded if it waits for this device's fence, or is
    /// sent together with this device's acknowledgement.
    fn join(&mut self, identity: Identity, packet: &Packet<'_>, now: Instant) -> Found {
        let Some(own) = self.config.number else { return Found::Missed };
        let from = [&[packet.header.ack_count], packet.body.bytes()].concat();
        // After the medium has failed, an update that is not yet durable will never be.
        let durable = self.log.durable(&identity);
        let durable = durable.filter(|durable| *durable || self.log.heap().media().closed().is_none());
        match self.joint.receive_ack(identity, from, (own, durable), now) {
            AckAction::Forward => Found::Missed,
            AckAction::Delay => Found::All,
            AckAction::Join(others) => {
                self.stats.joined += 1;
                let hash = packet.header.hash;
                self.actions.push_back(acknowledgement(&self.config, &identity, hash, &others));
                Found::All
            }
        }
    }

    /// Sends one update of the log to the server that asks for it.
    ///
    /// A server with foreign sessions is told if no log has the update: a number that belonged to a bypass never
    /// arrives. The device next to the clients tells it. The devices behind that one do not have the update, or they
    /// would not have forwarded the request.
    fn send_exactly(&mut self, identity: Identity) -> Found {
        self.stats.recoveries += 1;
        if self.log.contains(&identity) {
            return if self.send_logged(identity) { Found::All } else { Found::Missed };
        }
        let is_first = self.config.number.is_none_or(|number| number == 0);
        if !(is_first && self.config.dialect.reports_absence()) {
            return Found::Missed;
        }
        let bytes = Packet::new(identity.session, identity.seq, Body::Other(&[])).to_bytes();
        self.datagram(Side::Server, (identity.flow.client, identity.flow.server), bytes);
        Found::All
    }

    /// Sends the requested updates of a session that are in the log.
    fn send_missing(&mut self, flow: Flow, session: u16, seq: u32, count: u32) -> Found {
        self.stats.retransmissions += 1;
        let end = seq.saturating_add(count);
        let mut seqs = self.log.seqs(flow, session, seq, ANSWERS_MAX.min(count as usize));
        seqs.retain(|seq| *seq < end);
        let all = seqs.len() == count as usize;
        for seq in seqs {
            self.send_logged(Identity { flow, session, seq });
        }
        if all {
            self.stats.retransmissions_answered += 1;
            Found::All
        } else {
            Found::Missed
        }
    }

    /// Queues an update of the log to be sent to its server. False if it is not in the log, or if too many actions
    /// wait.
    pub(super) fn send_logged(&mut self, identity: Identity) -> bool {
        if self.actions.len() >= ACTIONS_MAX {
            return false;
        }
        match self.log.hold(&identity) {
            Ok(Some(stored)) => {
                self.stats.resent += 1;
                self.send_stored(identity, stored);
                true
            }
            Ok(None) => false,
            Err(_) => {
                self.stats.media_errors += 1;
                false
            }
        }
    }

    /// Sends a stored packet unchanged or, in a foreign session, with the mark of an update that a log sends.
    fn send_stored(&mut self, identity: Identity, stored: Stored) {
        let marked = match self.config.dialect {
            Dialect::ForeignClients => self.log.bytes_of(&stored).ok().and_then(|mut bytes| {
                let update = bytes.get_mut(stored.header_at..)?;
                self.config.dialect.mark(update).then(|| update.to_vec())
            }),
            Dialect::Landfall | Dialect::ForeignBoth => None,
        };
        let Some(bytes) = marked else {
            return self.actions.push_back(Action::Logged { identity, stored });
        };
        self.log.release(&stored);
        self.datagram(Side::Server, (identity.flow.client, identity.flow.server), bytes);
    }

    fn egress(&mut self, row: &Row, found: Found, packet: &Packet<'_>, arrival: &Arrival<'_>) -> Verdict {
        match (row.egress, found) {
            (_, Found::Withheld) => Verdict::Taken,
            (Egress::ForwardAndAck, Found::Durable(identity)) => {
                self.stats.acknowledged += 1;
                self.joint.repeated(&identity);
                let hash = packet.header.hash;
                self.actions.push_back(acknowledgement(&self.config, &identity, hash, &[]));
                Verdict::Forward
            }
            (Egress::ForwardIfMissed, Found::All) => Verdict::Taken,
            (Egress::ReplyAndForward, _) => {
                self.answer_heartbeat(packet, arrival);
                Verdict::Forward
            }
            (Egress::ForwardIfForeign, _) => match self.handle_heartbeat_reply(packet, arrival.from) {
                true => Verdict::Taken,
                false => Verdict::Forward,
            },
            _ => Verdict::Forward,
        }
    }

    fn answer_heartbeat(&mut self, packet: &Packet<'_>, arrival: &Arrival<'_>) {
        let Body::Heartbeat { nonce, .. } = packet.body else { return };
        let reply = Body::HeartbeatReply {
            nonce,
            role: Role::Device,
            number: self.config.number.unwrap_or(0),
            declines: self.log.heap().media().closed().is_some() || !self.log.heap().has_room(),
            incarnation: self.config.incarnation,
        };
        let bytes = Packet::new(packet.header.session, packet.header.seq, reply).to_bytes();
        self.datagram(arrival.side, (arrival.to, arrival.from), bytes);
    }
}

/// The client and the server of a packet.
fn ingress(row: &Row, arrival: &Arrival<'_>) -> Flow {
    match row.ingress {
        Ingress::FromServer => Flow { client: arrival.to, server: arrival.from },
        Ingress::FromClient | Ingress::Any => Flow { client: arrival.from, server: arrival.to },
    }
}
