//! What a server makes of what arrives.

use super::Server;
use super::bypasses::Request;
use super::row::SessionRow;
use super::session::Session;
use crate::identity::SessionKey;
use crate::wire::{Body, FIRST_BYPASS, Fragment, Packet, RESUMED, Refusal, Role, Start};
use core::net::SocketAddr;
use landfall_net::Instant;

impl Server {
    /// Takes the payload of a datagram. What is malformed or not for a server is counted and changes nothing.
    pub fn handle_datagram(&mut self, from: SocketAddr, bytes: &[u8], now: Instant) {
        self.tell(now);
        match Packet::parse(bytes) {
            Ok(packet) => self.handle(from, &packet),
            Err(_) => self.ctx.stats.ignored += 1,
        }
    }

    fn handle(&mut self, from: SocketAddr, packet: &Packet<'_>) {
        // Scope and flow of an IPv6 address say where to send, not who it is.
        let client = SocketAddr::new(from.ip().to_canonical(), from.port());
        let (seq, key) = (packet.header.seq, SessionKey { client, session: packet.header.session });
        // Who reads may not know yet that the server is another incarnation, and has not said what was confirmed.
        let answers = !matches!(packet.body, Body::Bypass { .. } | Body::BypassFragment { .. });
        self.with(key, |session, ctx| {
            let speaks = session.is_spoken_for_by(&packet.body);
            session.heard(from, answers && speaks, speaks.then_some(ctx.now));
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
            // The rows of foreign sessions have none.
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
        if seq < FIRST_BYPASS {
            self.ctx.stats.ignored += 1;
            return;
        }
        let request = Request { number: seq, seq, after, bytes: bytes.to_vec() };
        if self.with(who.1, |session, ctx| session.bypass(request, place, ctx)).is_some() {
            return;
        }
        // A repetition that comes after the session's end is of no use to anybody.
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
        let may_go = row.ended && row.nonce != nonce;
        if may_go && let Some(old) = self.table.retire(&key) {
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

    /// A client whose lease has run out asks whether its session is still there. Nothing is said of one that is ending.
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

    /// `old` is the row of a session with this key that has ended, and went.
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
            self.press(key);
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
