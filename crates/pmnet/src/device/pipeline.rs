//! The three stages, for one packet.

use super::joint::Heard;
use super::table::{self, Access, Egress, Ingress, Row, Side};
use super::{ACTIONS_MAX, Action, Arrival, Device, Verdict, acknowledgement};
use crate::log::{Logged, NotLogged, Standing, Stored};
use crate::wire::{Body, FIRST_BYPASS, Header, Packet, Refusal, Role};
use crate::{Dialect, Flow, Identity, Instant};

/// Updates that one request of a server has sent again at once.
const ANSWERS_MAX: usize = 4096;

/// What the PM-access stage found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    /// Nothing was looked for, or something is missing.
    Missed,
    /// Everything was there.
    All,
    /// The update is durable already.
    Durable(Identity),
    /// It must not reach the server now.
    Withheld,
}

impl Device {
    /// A packet has arrived.
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

    /// The second and the third stage.
    pub(super) fn pass(
        &mut self,
        (row, flow): (&Row, Flow),
        packet: &Packet<'_>,
        arrival: &Arrival<'_>,
        now: Instant,
    ) -> Verdict {
        if let Some(order) = &mut self.order {
            order.hear(flow, packet, now);
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
                self.pass_reads(&Identity { flow, session, seq }, arrival)
            }
            Access::Log if !self.may_log(flow, &packet.header) => {
                *self.stats.not_logged.entry(NotLogged::Unknown).or_default() += 1;
                self.pass_reads(&Identity { flow, session, seq }, arrival)
            }
            Access::Log => self.log_update(Identity { flow, session, seq }, arrival, now),
            Access::RemoveUpTo => {
                self.stats.server_acks += 1;
                self.remove_upto(flow, session, seq, now);
                Found::Missed
            }
            Access::RemoveOne => {
                self.hear_response(Identity { flow, session, seq }, packet, arrival, now);
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
                self.tell_held(Identity { flow, session, seq }, packet);
                Found::Missed
            }
            Access::TellCache => {
                if let Some(reads) = &mut self.reads {
                    reads.told(flow, packet, arrival);
                }
                Found::Missed
            }
            Access::Started => {
                self.log.raise(flow, session, Standing::Started);
                if let Some(reads) = &mut self.reads {
                    reads.told(flow, packet, arrival);
                }
                Found::Missed
            }
            Access::Refused => self.hear_refusal(Identity { flow, session, seq }, packet),
            Access::ReadCache => {
                self.stats.bypasses += 1;
                let hit = self.reads.as_mut().and_then(|reads| reads.bypass(flow, packet, now));
                hit.map_or(Found::Missed, |hit| {
                    self.stats.cache_hits += 1;
                    self.datagram(Side::Clients, (flow.server, flow.client), hit.to_bytes(session, seq));
                    if hit.goes_on() { Found::Missed } else { Found::All }
                })
            }
        }
    }

    /// A server asks how many updates of a session above a number are here, fenced or not.
    fn tell_held(&mut self, last: Identity, packet: &Packet<'_>) {
        let Body::HeldRequest { nonce } = packet.body else { return };
        let Identity { flow, session, seq } = last;
        let count = self.log.seqs(flow, session, seq.saturating_add(1), ANSWERS_MAX).len();
        self.stats.held_requests += 1;
        let number = self.config.number.unwrap_or(0);
        let body = Body::Held { nonce, number, count: u32::try_from(count).unwrap_or(u32::MAX) };
        self.datagram(Side::Server, (flow.client, flow.server), Packet::new(session, seq, body).to_bytes());
    }

    fn may_log(&self, flow: Flow, header: &Header) -> bool {
        self.config.dialect.logs(header, || self.log.standing(flow, header.session))
    }

    /// A foreign session begins. False while updates of another one with its name are in the log: a server that began it anew would
    /// take those for its own.
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

    fn hear_response(
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

    /// A server refuses a session: an update of one that it does not know leaves the log, and one that has fallen behind is
    /// acknowledged no more.
    fn hear_refusal(&mut self, identity: Identity, packet: &Packet<'_>) -> Found {
        self.refused.hear(identity.flow, packet);
        if let (Some(order), Body::SessionRefused(Refusal::Behind)) = (&mut self.order, packet.body) {
            order.excuse(identity.flow, identity.session);
        }
        let is_unknown = packet.body == Body::SessionRefused(Refusal::Unknown);
        if is_unknown && self.log.refused(&identity) {
            self.stats.removed_refused += 1;
            self.removed(&identity);
        }
        Found::Missed
    }

    /// An update has left the log.
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
                self.tell_reads(&identity, arrival);
                self.resend.watch(identity, now);
                self.joint.logged(identity, now);
                Found::Missed
            }
            Ok(Logged::Known { durable }) => {
                self.stats.repeated += 1;
                self.tell_reads(&identity, arrival);
                if !durable {
                    return Found::Missed;
                }
                Found::Durable(identity)
            }
            Ok(Logged::Not(why)) => {
                self.tell_reads_of_unlogged(&identity, arrival, why == NotLogged::Collision);
                *self.stats.not_logged.entry(why).or_default() += 1;
                Found::Missed
            }
            Err(_) => {
                self.tell_reads_of_unlogged(&identity, arrival, false);
                self.stats.media_errors += 1;
                Found::Missed
            }
        }
    }

    /// Tells the read cache of an update of the log, before any packet that comes later is looked at.
    fn tell_reads(&mut self, identity: &Identity, arrival: &Arrival<'_>) {
        if let Some(reads) = &mut self.reads
            && let Some(value) = reads.update(identity, arrival.payload, false)
        {
            reads.logged(identity, arrival, value);
        }
    }

    /// Tells it of one that is not in the log: nothing of it will serve.
    fn tell_reads_of_unlogged(&mut self, identity: &Identity, arrival: &Arrival<'_>, is_conflict: bool) {
        if let Some(reads) = &mut self.reads {
            reads.update(identity, arrival.payload, is_conflict);
        }
    }

    /// An update that is not logged may change what the read cache holds.
    fn pass_reads(&mut self, identity: &Identity, arrival: &Arrival<'_>) -> Found {
        self.tell_reads_of_unlogged(identity, arrival, false);
        Found::Missed
    }

    fn remove_upto(&mut self, flow: Flow, session: u16, seq: u32, now: Instant) {
        self.refused.forget(flow, session);
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

    /// Other devices acknowledge an update. What waits for a fence here, or goes on together with this device's own
    /// acknowledgement, is taken.
    fn join(&mut self, identity: Identity, packet: &Packet<'_>, now: Instant) -> Found {
        let Some(own) = self.config.number else { return Found::Missed };
        let from = [&[packet.header.ack_count], packet.body.bytes()].concat();
        // What a medium that has failed has not taken will never be durable.
        let durable = self.log.durable(&identity);
        let durable = durable.filter(|durable| *durable || self.log.heap().media().closed().is_none());
        match self.joint.hears(identity, from, (own, durable), now) {
            Heard::Passes => Found::Missed,
            Heard::Waits => Found::All,
            Heard::Joined(others) => {
                self.stats.joined += 1;
                let hash = packet.header.hash;
                self.actions.push_back(acknowledgement(&self.config, &identity, hash, &others));
                Found::All
            }
        }
    }

    /// Sends one update of the log to the server that asks for it.
    ///
    /// A server that takes foreign sessions learns if no log has it: a number of theirs that was a bypass's never comes. The device
    /// next to the clients tells: those behind it have looked, or the request would not have come so far.
    fn send_exactly(&mut self, identity: Identity) -> Found {
        self.stats.recoveries += 1;
        if self.log.contains(&identity) {
            return if self.send_logged(identity) { Found::All } else { Found::Missed };
        }
        let is_first = self.config.number.is_none_or(|number| number == 0);
        if !(is_first && self.config.dialect.tells_absence()) {
            return Found::Missed;
        }
        let bytes = Packet::new(identity.session, identity.seq, Body::Other(&[])).to_bytes();
        self.datagram(Side::Server, (identity.flow.client, identity.flow.server), bytes);
        Found::All
    }

    /// Sends what the server misses of a session and is there.
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

    /// Has an update of the log sent to its server; false if it is not there, or too much waits to be sent.
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

    /// Sends what was found as it is, or says in it that it comes from a log.
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
            (Egress::ForwardIfForeign, _) => match self.take_reply(packet, arrival.from) {
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

/// Who is the client and who the server.
fn ingress(row: &Row, arrival: &Arrival<'_>) -> Flow {
    match row.ingress {
        Ingress::FromServer => Flow { client: arrival.to, server: arrival.from },
        Ingress::FromClient | Ingress::Any => Flow { client: arrival.from, server: arrival.to },
    }
}
