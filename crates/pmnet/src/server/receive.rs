//! How a server handles the packets that it receives.

use super::bypasses::Request;
use super::row::SessionRow;
use super::session::Session;
use super::state::Server;
use crate::identity::SessionKey;
use crate::wire::{Body, FIRST_BYPASS, Fragment, Packet, RESUMED, Refusal, Role, Start};
use core::net::SocketAddr;
use landfall_net::Instant;

impl Server {
    /// Handles the payload of a datagram. A datagram that is malformed or not meant for a server is only counted.
    pub fn handle_datagram(&mut self, from: SocketAddr, bytes: &[u8], now: Instant) {
        self.advance_clock(now);
        match Packet::parse(bytes) {
            Ok(packet) => self.handle(from, &packet),
            Err(_) => self.ctx.stats.ignored += 1,
        }
    }

    fn handle(&mut self, from: SocketAddr, packet: &Packet<'_>) {
        // Scope and flow label of an IPv6 address say where to send, but do not identify the client.
        let client = SocketAddr::new(from.ip().to_canonical(), from.port());
        let (seq, key) = (packet.header.seq, SessionKey { client, session: packet.header.session });
        // The sender of a bypass may not yet know that the server has restarted, and has not answered *recover*.
        let answers = !matches!(packet.body, Body::Bypass { .. } | Body::BypassFragment { .. });
        self.with(key, |session, ctx| {
            let is_alive = session.is_from_client(&packet.body);
            session.note_packet(from, answers && is_alive, is_alive.then_some(ctx.now));
        });
        if self.ctx.config.foreign && packet.header.is_foreign() && self.handle_foreign(from, key, packet) {
            return;
        }
        match packet.body {
            Body::Update(bytes) => self.update((from, key), seq, None, bytes),
            Body::UpdateFragment(place, bytes) => self.update((from, key), seq, Some(place), bytes),
            Body::Bypass { after, request } => self.bypass((from, key), (seq, after), None, request),
            Body::BypassFragment { fragment, after, request } => {
                let after = (after > 0).then_some(after);
                self.bypass((from, key), (seq, after), Some(fragment), request);
            }
            Body::ResponseRequest(wanted) => self.response_wanted(key, seq, wanted),
            Body::Confirmed => self.confirmed(key, seq),
            // The nonce 0 marks the rows of foreign sessions.
            Body::SessionStart { nonce: 0, .. } => self.ctx.stats.ignored += 1,
            Body::SessionStart { nonce, asks } => self.start(from, key, (nonce, asks)),
            Body::Held { nonce, number, count } => {
                self.with(key, |session, ctx| session.held(nonce, number, count, ctx));
            }
            Body::SessionEnd => self.end(from, key, seq),
            Body::Heartbeat { nonce, .. } => {
                let incarnation = self.ctx.incarnation;
                let body = Body::HeartbeatReply {
                    nonce,
                    role: Role::Server,
                    number: 0,
                    declines: false,
                    incarnation,
                };
                self.ctx.send(from, key.session, seq, body);
            }
            Body::Other(_) => self.absent(key, packet),
            _ => self.ctx.stats.ignored += 1,
        }
    }

    fn update(&mut self, who: (SocketAddr, SessionKey), seq: u32, place: Option<Fragment>, bytes: &[u8]) {
        if seq >= FIRST_BYPASS {
            self.ctx.stats.ignored += 1;
            return;
        }
        let (from, key) = who;
        if self.with(key, |session, ctx| session.update(seq, place, bytes, ctx)).is_some() {
            return;
        }
        let applied = match self.table.ended(&key) {
            Some(row) => seq <= row.update,
            None => (1..=self.table.floor()).contains(&seq),
        };
        if applied {
            self.ctx.stats.duplicates += 1;
            self.ctx.stats.make_up_acks += 1;
            self.ctx.stats.server_acks += 1;
            self.ctx.send(from, key.session, seq, Body::ServerAck);
        } else {
            self.refuse(who, seq, Refusal::Unknown);
        }
    }

    fn bypass(
        &mut self,
        who: (SocketAddr, SessionKey),
        (seq, after): (u32, Option<u32>),
        place: Option<Fragment>,
        bytes: &[u8],
    ) {
        // No session could begin behind the last number of all, which no client comes to.
        if seq < FIRST_BYPASS || seq == u32::MAX {
            self.ctx.stats.ignored += 1;
            return;
        }
        let request = Request { number: seq, seq, after, bytes: bytes.to_vec() };
        if self.with(who.1, |session, ctx| session.bypass(request, place, ctx)).is_some() {
            return;
        }
        // A bypass that is repeated after its session's end needs no answer.
        match self.table.ended(&who.1) {
            Some(_) => self.ctx.stats.duplicates += 1,
            None => self.refuse(who, seq, Refusal::Unknown),
        }
    }

    fn start(&mut self, from: SocketAddr, key: SessionKey, (nonce, asks): (u64, Start)) {
        if asks == Start::Resumes {
            return self.resume((from, key), nonce);
        }
        let known = self.table.live.get(&key).map(|session| session.row()).or(self.table.ended(&key));
        let Some(row) = known.copied() else { return self.begin(from, key, (nonce, asks), None) };
        let is_evictable = row.ended && row.nonce != nonce;
        if is_evictable && let Some(old) = self.table.retire(&key) {
            return self.begin(from, key, (nonce, asks), Some(old));
        }
        if row.nonce != nonce || row.ended {
            return self.refuse((from, key), 0, Refusal::InUse);
        }
        self.ctx.stats.duplicates += 1;
        self.with(key, |session, ctx| {
            if session.is_begun() {
                session.send_started(0, ctx);
            }
        });
    }

    /// Handles the question of a client whose lease has expired, whether its session still exists. A session that is
    /// ending is not confirmed.
    fn resume(&mut self, who: (SocketAddr, SessionKey), nonce: u64) {
        let is_there = self.with(who.1, |session, ctx| {
            let is_same = session.row().nonce == nonce;
            if is_same && session.is_begun() && !session.is_ending() {
                session.send_started(RESUMED, ctx);
            }
            is_same
        });
        if is_there != Some(true) {
            self.refuse(who, 0, Refusal::Unknown);
        }
    }

    /// Begins a session. `old` is the row of an ended session with this key, which has been removed for it.
    fn begin(
        &mut self,
        from: SocketAddr,
        key: SessionKey,
        (nonce, asks): (u64, Start),
        old: Option<SessionRow>,
    ) {
        let Some(mut evicted) = self.make_room() else {
            self.table.put_back(old.into_iter().collect());
            self.ctx.stats.no_room += 1;
            self.handle_no_room(key);
            return self.refuse((from, key), 0, Refusal::NoRoom);
        };
        evicted.extend(old);
        let floor = self.table.floor();
        let bypass = FIRST_BYPASS - 1 + floor;
        let silence = self.ctx.config.silence.filter(|_| asks == Start::Leased);
        let lease = silence.map_or(0, |silence| silence.lease());
        let row = SessionRow { key, nonce, update: floor, bypass, ended: false, touched: 0, lease };
        let session = Session::begin(from, row, evicted, &self.ctx);
        self.table.live.insert(key, Box::new(session));
        self.with(key, |_, _| ());
    }

    fn end(&mut self, from: SocketAddr, key: SessionKey, seq: u32) {
        if self.with(key, |session, ctx| session.end(seq, ctx)).is_some() {
            return;
        }
        let applied = self.table.ended(&key).map_or(self.table.floor(), |row| row.update);
        if seq <= applied {
            self.ctx.stats.duplicates += 1;
            self.ctx.send(from, key.session, seq, Body::SessionEnded);
        } else {
            self.refuse((from, key), seq, Refusal::Unknown);
        }
    }

    fn refuse(&mut self, (to, key): (SocketAddr, SessionKey), seq: u32, reason: Refusal) {
        self.ctx.stats.refused += 1;
        self.ctx.send(to, key.session, seq, Body::SessionRefused(reason));
    }
}
