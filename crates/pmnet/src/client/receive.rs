//! How a client handles the packets that it receives.

use super::config::Event;
use super::control::Control;
use super::incoming::Place;
use super::state::{Client, ENOUGH, HEARTBEATS_MAX, Phase};
use super::updates::Updates;
use crate::wire::{Body, FIRST_BYPASS, Packet, RESUMED, Refusal, Role};
use landfall_net::Instant;

/// True for what a device says by itself.
fn is_of_device(body: &Body<'_>) -> bool {
    match body {
        Body::PmnetAck | Body::JointAck(_) => true,
        Body::HeartbeatReply { role, .. } => *role != Role::Server,
        _ => false,
    }
}

impl Client {
    /// Handles the payload of a datagram from the server's address. A datagram that is malformed, of another
    /// session, or not needed is only counted.
    pub fn handle_datagram(&mut self, bytes: &[u8], now: Instant) {
        self.advance_clock(now);
        let packet = Packet::parse(bytes).ok().filter(|packet| packet.header.session == self.session);
        let acks = self.stats.acks;
        let needed = packet.filter(|packet| self.phase != Phase::Over && self.handle(packet));
        let Some(packet) = needed else {
            self.stats.ignored += 1;
            return;
        };
        if self.config.waits_for_devices || !is_of_device(&packet.body) || self.stats.acks > acks {
            self.quiet_since = self.now;
        }
        self.report();
    }

    /// False if the packet is not needed.
    fn handle(&mut self, packet: &Packet<'_>) -> bool {
        let seq = packet.header.seq;
        let is_valid_when_lapsed = matches!(
            packet.body,
            Body::SessionStarted { .. } | Body::SessionRefused(_) | Body::HeartbeatReply { .. }
        );
        if self.is_lapsed() && !is_valid_when_lapsed {
            return false;
        }
        match packet.body {
            Body::SessionStarted { nonce, first_update, first_bypass, incarnation, lease } => match seq {
                0 => self.started(nonce, (first_update, first_bypass), incarnation, lease),
                _ => self.resumed((nonce, seq), incarnation, lease),
            },
            Body::HeldRequest { .. } => {
                self.send_confirmed(true);
                true
            }
            Body::SessionRefused(refusal) => self.refused(refusal, seq),
            Body::SessionEnded => self.ended(seq),
            Body::PmnetAck => self.device_acks(seq, packet.header.ack_count, &[]),
            Body::JointAck(others) => self.device_acks(seq, packet.header.ack_count, others),
            Body::ServerAck => self.server_ack(seq),
            Body::Retransmit { count } => self.retransmit(seq, count),
            Body::Recover { incarnation } => self.recover(seq, incarnation),
            Body::Response(bytes) => self.response(seq, bytes.to_vec(), false),
            Body::CacheResponse(bytes) => self.response(seq, bytes.to_vec(), true),
            Body::ResponseFragment(place, bytes) => {
                self.piece(seq, Place::of_fragment(place, packet.header.hash, bytes.len()), bytes)
            }
            Body::ResponsePart(part, bytes) => {
                self.piece(seq, Some(Place::of_part(part, packet.header.hash)), bytes)
            }
            Body::HeartbeatReply { nonce, role, number, declines, incarnation } => {
                self.alive(nonce, Event::Alive { role, number, declines, incarnation })
            }
            _ => false,
        }
    }

    fn started(&mut self, nonce: u64, first: (u32, u32), incarnation: u64, lease: u16) -> bool {
        let (first_update, first_bypass) = first;
        let sound = (1..=ENOUGH + 1).contains(&first_update)
            && (FIRST_BYPASS..=FIRST_BYPASS + ENOUGH).contains(&first_bypass);
        if self.phase != Phase::Starting || nonce != self.nonce || !sound {
            return false;
        }
        self.phase = Phase::Open;
        self.set_lease(lease);
        self.incarnation = Some(incarnation);
        self.updates = Updates::new(first_update, self.chain, self.config.window);
        self.next_bypass = first_bypass;
        self.events.push_back(Event::Started);
        true
    }

    /// Handles the confirmation that the session still exists and continues.
    fn resumed(&mut self, (nonce, seq): (u64, u32), incarnation: u64, lease: u16) -> bool {
        let is_answer = seq == RESUMED && nonce == self.nonce && self.has_asked_to_resume();
        if is_answer {
            self.note_incarnation(incarnation);
            self.set_lease(lease);
        }
        is_answer
    }

    fn refused(&mut self, refusal: Refusal, seq: u32) -> bool {
        let is_own =
            seq < self.updates.next() || self.bypass.as_ref().is_some_and(|bypass| bypass.seq == seq);
        match (self.phase, refusal) {
            (Phase::Starting, Refusal::InUse | Refusal::NoRoom) => {
                self.phase = Phase::Refused;
                self.events.push_back(Event::Refused(refusal));
                true
            }
            (Phase::Open | Phase::Ending, Refusal::Unknown | Refusal::Behind) if is_own => {
                self.finish(Event::Refused(refusal));
                true
            }
            _ => false,
        }
    }

    /// Handles the end of the session: every update is applied.
    fn ended(&mut self, seq: u32) -> bool {
        if self.phase != Phase::Ending || seq != self.updates.next() - 1 {
            return false;
        }
        self.finish(Event::Ended);
        true
    }

    fn device_acks(&mut self, seq: u32, nearest: u8, others: &[u8]) -> bool {
        for number in [nearest].iter().chain(others) {
            let acked = self.updates.ack(seq, *number);
            if let Some(sent_at) = acked.sent_at {
                self.trips.sample(self.now.since(sent_at));
            }
            self.stats.acks += u64::from(acked.news);
            self.stats.acks_again += u64::from(!acked.news);
        }
        true
    }

    fn server_ack(&mut self, seq: u32) -> bool {
        let acked = self.updates.server_ack(seq);
        if let Some(sent_at) = acked.sent_at {
            self.trips.sample(self.now.since(sent_at));
        }
        if acked.news {
            self.probe = None;
            self.stats.server_acks += 1;
        }
        true
    }

    fn retransmit(&mut self, first: u32, count: u32) -> bool {
        self.stats.retransmit_requests += 1;
        self.updates.send_range_again(first, count);
        self.send_confirmed(first <= self.updates.confirmed());
        true
    }

    /// Tells the server what it has confirmed. It is due if the server requests updates that it has confirmed, which
    /// nobody has any more, or if there is nothing else to answer.
    fn send_confirmed(&mut self, due: bool) {
        let confirmed = self.updates.confirmed();
        if self.phase == Phase::Open && due {
            self.queue_packet(Packet::new(self.session, confirmed, Body::Confirmed).to_bytes());
        }
    }

    /// Handles a request of a new server incarnation. It has only what is committed, so it needs every later update
    /// and the bypass again.
    fn recover(&mut self, seq: u32, incarnation: u64) -> bool {
        self.stats.recovers += 1;
        self.note_incarnation(incarnation);
        self.updates.send_range_again(seq.saturating_add(1), u32::MAX);
        self.send_confirmed(seq < self.updates.confirmed() || self.updates.newest().is_none());
        true
    }

    fn note_incarnation(&mut self, incarnation: u64) {
        let before = self.incarnation.replace(incarnation);
        if before.is_none_or(|before| before == incarnation) {
            return;
        }
        // At most one restart is queued between other events, so that the queue is bounded.
        if let Some(Event::ServerRestarted { .. }) = self.events.back() {
            self.events.pop_back();
        }
        self.events.push_back(Event::ServerRestarted { incarnation });
        if let Some(bypass) = &mut self.bypass {
            bypass.again();
        }
        if self.phase == Phase::Ending {
            self.control = Control::due();
        }
    }

    pub(super) fn response(&mut self, seq: u32, bytes: Vec<u8>, from_cache: bool) -> bool {
        let Some(mut bypass) = self.bypass.take_if(|bypass| bypass.seq == seq) else { return false };
        if let Some(sent_at) = bypass.sent_once_at() {
            self.bypass_trips.sample(self.now.since(sent_at));
        }
        self.stats.responses += 1;
        self.events.push_back(Event::Response { id: bypass.id, bytes, from_cache });
        true
    }

    fn alive(&mut self, nonce: u64, event: Event) -> bool {
        if let Event::Alive { role, incarnation, .. } = event
            && self.lease_reply(nonce, role).is_some()
        {
            if role == Role::Server {
                self.note_incarnation(incarnation);
            }
            return true;
        }
        if !self.asked.contains(&nonce) {
            return false;
        }
        if let Event::Alive { role: Role::Server, incarnation, .. } = event {
            self.note_incarnation(incarnation);
        }
        if self.alive_events < HEARTBEATS_MAX {
            self.alive_events += 1;
            self.events.push_back(event);
        }
        true
    }

    /// Reports the updates that are now complete, and continues what waited for them.
    fn report(&mut self) {
        while let Some((id, by)) = self.updates.take_complete() {
            self.stats.complete += 1;
            self.events.push_back(Event::Complete { id, by });
        }
        self.end_if_idle();
        self.set_probe();
    }
}
