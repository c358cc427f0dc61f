//! The read cache in the pipeline (§IV-D): passes the relevant part of each packet on to the cache of its server.

use super::arrival::Arrival;
use super::codec::Codec;
use super::landed::{Frames, Origin, Value};
use crate::cache::{Cache, Effect, Id, KeyCodec, Limits, Piece, Query, Whole};
use crate::dialect::Dialect;
use crate::identity::{Flow, Identity, SessionKey};
use crate::wire::{Body, FIRST_BYPASS, Fragment, Packet};
use core::net::SocketAddr;
use landfall_heap::Heap;
use landfall_net::Instant;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// The shortest [`CacheConfig::packet_life`].
const PACKET_LIFE_MIN: Duration = Duration::from_millis(1);

/// Configuration of a device's read cache.
#[derive(Clone, Copy, Debug)]
pub struct CacheConfig {
    /// The protocol in which requests are written.
    pub codec: Codec,
    /// Limits of the cache of each server.
    pub limits: Limits,
    /// Longest life of a packet in the network, at least 1 ms. A device that has restarted serves no reads for this
    /// time.
    pub packet_life: Duration,
    /// Shortest time after each start in which the device serves no reads. Zero if the device is the first in its
    /// place. A device that replaces a lost one waits until the other devices of its chain have brought their
    /// updates to the server. These updates may have been reported as durable, and this device does not know which
    /// keys they change.
    pub replacement_wait: Duration,
}

impl CacheConfig {
    /// A configuration with default limits.
    pub fn new(codec: Codec) -> Self {
        Self {
            codec,
            limits: Limits::default(),
            packet_life: Duration::from_secs(2),
            replacement_wait: Duration::ZERO,
        }
    }
}

/// The read caches of a device, one for each server.
#[derive(Debug)]
pub(super) struct Reads {
    config: CacheConfig,
    dialect: Dialect,
    servers_max: usize,
    frames: Frames,
    caches: BTreeMap<SocketAddr, Cache<SessionKey, Value>>,
    /// When the caches begin to serve; `None` once they do.
    opens_at: Option<Instant>,
    /// Marks of bypasses. The caches stop waiting for the responses to bypasses before a mark.
    marked: Option<(Instant, BTreeMap<SocketAddr, u64>)>,
}

impl Reads {
    /// `restarted`: packets from before the start may be in the network.
    pub(super) fn new(
        mut config: CacheConfig,
        dialect: Dialect,
        servers_max: usize,
        (heap, restarted): (&Arc<Heap>, bool),
        now: Instant,
    ) -> Self {
        // A timer that is always due would keep its caller from ever waiting.
        config.packet_life = config.packet_life.max(PACKET_LIFE_MIN);
        let packet_life = if restarted { config.packet_life } else { Duration::ZERO };
        let wait = packet_life.max(config.replacement_wait);
        Self {
            opens_at: (!wait.is_zero()).then(|| now + wait),
            config,
            dialect,
            servers_max,
            frames: Frames::new(Arc::clone(heap)),
            caches: BTreeMap::new(),
            marked: None,
        }
    }

    /// The cache of a server; `None` if there are already caches for `servers_max` servers.
    fn cache(&mut self, server: SocketAddr) -> Option<&mut Cache<SessionKey, Value>> {
        if !self.caches.contains_key(&server) {
            if self.caches.len() >= self.servers_max {
                return None;
            }
            let mut cache = Cache::new(self.config.limits);
            if self.opens_at.is_none() {
                cache.open();
            }
            self.caches.insert(server, cache);
        }
        self.caches.get_mut(&server)
    }

    /// Handles an update that passes, or that was found in the log after a restart. Returns the range of the payload
    /// that contains the value that it sets.
    pub(super) fn update(
        &mut self,
        identity: &Identity,
        payload: &[u8],
        is_conflict: bool,
    ) -> Option<Range<usize>> {
        let packet = Packet::parse(payload).ok()?;
        let (request, effect) = match packet.body {
            Body::Update(request) => (request, self.config.codec.update(request)),
            Body::UpdateFragment(place, bytes) => {
                self.piece(identity, place, bytes, is_conflict);
                return None;
            }
            _ => (payload, Effect::TouchesAll),
        };
        let cache = self.cache(identity.flow.server)?;
        match is_conflict {
            false => cache.update_seen(id(identity), request, &effect),
            true => cache.update_conflicts(id(identity), request, &effect),
        }
        let Effect::Sets { value, .. } = effect else { return None };
        Some(within(payload, request, value))
    }

    /// Handles a piece of an update that passes.
    fn piece(&mut self, identity: &Identity, place: Fragment, bytes: &[u8], is_conflict: bool) {
        let piece = match place.index {
            0 => Piece::First {
                start: bytes,
                keys: self.config.codec.keys_of_start(bytes, place.total as usize),
            },
            index => Piece::Later { index: index.into() },
        };
        let whole = Whole { count: place.count.into(), total: place.total };
        let Some(cache) = self.cache(identity.flow.server) else { return };
        match is_conflict {
            false => cache.piece_seen(id(identity), whole, &piece),
            true => cache.piece_conflicts(id(identity), whole, &piece),
        }
    }

    /// Notes that an update is in the log. `value` is the range of the payload with its value.
    pub(super) fn logged(&mut self, identity: &Identity, arrival: &Arrival<'_>, value: Range<usize>) {
        if self.frames.must_release() {
            self.caches.values_mut().for_each(|cache| cache.drop_values(Value::is_landed));
        }
        let Some(cache) = self.caches.get_mut(&identity.flow.server) else { return };
        if cache.wants_value(id(identity)) {
            cache.update_logged(id(identity), self.frames.value(arrival, value));
        }
    }

    /// Notes that the log entry of an update is fenced.
    pub(super) fn durable(&mut self, identity: &Identity) {
        if let Some(cache) = self.cache(identity.flow.server) {
            cache.update_durable(id(identity));
        }
    }

    /// Notes that every update of a session up to `seq` is applied.
    pub(super) fn applied(&mut self, flow: Flow, session: u16, seq: u32) {
        if let Some(cache) = self.cache(flow.server) {
            cache.server_ack(SessionKey { client: flow.client, session }, seq);
        }
    }

    /// Notes that a foreign session begins. It may replace an older session of the same name.
    pub(super) fn begin_foreign(&mut self, flow: Flow, session: u16) {
        if let Some(cache) = self.cache(flow.server) {
            cache.foreign_session_started(SessionKey { client: flow.client, session }, 0, FIRST_BYPASS);
        }
    }

    /// Handles a bypass of a foreign session. Its number belongs to the same numbering as updates. So it is recorded
    /// as an update that changes nothing, and as a bypass. It is forwarded even after a hit, so that the server sees
    /// no gap in the numbers.
    ///
    /// The release looks values up by the hash, and its clients recognise a response by the number of the update
    /// that has set the value. So the cache serves a value that an update with the bypass's hash has set. It does
    /// not serve one whose update has the bypass's own number: a client takes that for an answer of another type to
    /// the bypass itself, and exits.
    fn foreign_bypass(
        &mut self,
        session: SessionKey,
        server: SocketAddr,
        packet: &Packet<'_>,
    ) -> Option<Hit> {
        let (codec, seq, hash) = (self.config.codec, packet.header.seq, packet.header.hash);
        let (request, query) = match packet.body {
            Body::Bypass { request, .. } => (request, codec.bypass(request)),
            _ => (&[][..], Query::TouchesAll),
        };
        let cache = self.cache(server)?;
        let mut hit = None;
        if let Query::Reads { key } = &query {
            let after = seq.checked_sub(1).map(|seq| Id { session, seq });
            let value = cache.lookup(&request[key.clone()], after);
            let fits = |origin: &Origin| origin.hash == hash && origin.seq != seq;
            let of = value.and_then(Value::origin).filter(fits);
            if let (Some(origin), Some(value)) = (of, value.and_then(Value::bytes)) {
                hit = Some(Hit::new(codec, &value, Some(origin)));
            }
        }
        let id = Id { session, seq };
        cache.update_seen(id, request, &Effect::None);
        cache.update_durable(id);
        cache.bypass_seen(Id { session, seq: seq | FIRST_BYPASS }, request, &query);
        hit
    }

    /// Whether the cache would answer a bypass.
    pub(super) fn has(&mut self, flow: Flow, packet: &Packet<'_>, now: Instant) -> bool {
        self.open_if_due(now);
        let Body::Bypass { request, after } = packet.body else { return false };
        let Query::Reads { key } = self.config.codec.bypass(request) else { return false };
        let session = SessionKey { client: flow.client, session: packet.header.session };
        let after = after.map(|seq| Id { session, seq });
        self.cache(flow.server).is_some_and(|cache| cache.lookup(&request[key], after).is_some())
    }

    /// Handles a bypass that passes. Returns the response if there is a hit.
    pub(super) fn bypass(&mut self, flow: Flow, packet: &Packet<'_>, now: Instant) -> Option<Hit> {
        self.open_if_due(now);
        let session = SessionKey { client: flow.client, session: packet.header.session };
        if self.dialect.numbers_together(&packet.header) {
            return self.foreign_bypass(session, flow.server, packet);
        }
        let id = Id { session, seq: packet.header.seq };
        let codec = self.config.codec;
        let (request, after) = match packet.body {
            Body::Bypass { request, after } => (request, after),
            _ => {
                self.cache(flow.server)?.bypass_seen(id, &[], &Query::TouchesAll);
                return None;
            }
        };
        let query = codec.bypass(request);
        let cache = self.cache(flow.server)?;
        if let Query::Reads { key } = &query {
            let after = after.map(|seq| Id { session, seq });
            if let Some(value) = cache.lookup(&request[key.clone()], after).and_then(Value::bytes) {
                return Some(Hit::new(codec, &value, None));
            }
        }
        cache.bypass_seen(id, request, &query);
        None
    }

    /// Handles a response that passes, or a piece of one.
    pub(super) fn response(&mut self, flow: Flow, packet: &Packet<'_>, arrival: &Arrival<'_>) {
        let session = SessionKey { client: flow.client, session: packet.header.session };
        // A bypass of a foreign session may have any number. It is recorded under a number in the range of bypasses.
        let seq = packet.header.seq;
        let id = Id {
            session,
            seq: if self.dialect.response_confirms_all(seq) { seq | FIRST_BYPASS } else { seq },
        };
        let codec = self.config.codec;
        let Some(cache) = self.caches.get_mut(&flow.server) else { return };
        let value = match (cache.awaited(id), packet.body) {
            (Some(key), Body::Response(response)) => codec
                .response_value(key, response)
                .map(|value| self.frames.value(arrival, within(arrival.payload, response, value))),
            _ => None,
        };
        cache.response_seen(id, value);
    }

    /// Handles another packet of a server that concerns its cache.
    pub(super) fn server_packet(&mut self, flow: Flow, packet: &Packet<'_>, arrival: &Arrival<'_>) {
        let session = SessionKey { client: flow.client, session: packet.header.session };
        match packet.body {
            // A session that continues may have updates in flight, which are not new.
            Body::SessionStarted { first_update, first_bypass, .. } if packet.header.seq == 0 => {
                if let Some(cache) = self.cache(flow.server) {
                    cache.session_started(session, first_update, first_bypass);
                }
            }
            Body::SessionEnded => self.applied(flow, session.session, packet.header.seq),
            Body::ResponseFragment(..) | Body::ResponsePart(..) => self.response(flow, packet, arrival),
            _ => {}
        }
    }

    /// Removes everything about a client's sessions. A session that it begins later is a different one, whatever its
    /// number.
    pub(super) fn remove_client(&mut self, flow: Flow) {
        let Some(cache) = self.caches.get_mut(&flow.server) else { return };
        let of = |session| SessionKey { client: flow.client, session };
        cache.remove_sessions(of(0)..=of(u16::MAX));
    }

    fn open_if_due(&mut self, now: Instant) {
        if self.opens_at.is_some_and(|due| due <= now) {
            self.opens_at = None;
            self.caches.values_mut().for_each(Cache::open);
        }
    }

    /// When [`Self::handle_timeout`] is due.
    pub(super) fn next_timeout(&self) -> Option<Instant> {
        let marked = self.marked.as_ref().map(|(since, _)| *since + self.config.packet_life);
        marked.into_iter().chain(self.opens_at).min()
    }

    /// Stops waiting for responses to bypasses that are older than a packet can live.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        self.open_if_due(now);
        if self.marked.as_ref().is_some_and(|(since, _)| *since + self.config.packet_life > now) {
            return;
        }
        if let Some((_, marks)) = self.marked.take() {
            for (server, mark) in marks {
                if let Some(cache) = self.caches.get_mut(&server) {
                    cache.drop_before(mark);
                }
            }
        }
        let marks = self.caches.iter_mut().map(|(server, cache)| (*server, cache.mark()));
        self.marked = Some((now, marks.collect()));
    }

    /// Number of values in the caches, and the bytes of values and keys.
    pub(super) fn held(&self) -> (usize, usize) {
        let each = self.caches.values().map(Cache::held);
        each.fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1))
    }
}

/// A response from the cache.
#[derive(Debug)]
pub(super) struct Hit {
    response: Vec<u8>,
    /// The update that has set the value, in a response to a foreign client.
    origin: Option<Origin>,
}

impl Hit {
    fn new(codec: Codec, value: &[u8], origin: Option<Origin>) -> Self {
        let mut response = Vec::with_capacity(value.len() + 16);
        codec.render(value, &mut response);
        Self { response, origin }
    }

    /// Whether the bypass is also forwarded to the server.
    pub(super) fn is_forwarded(&self) -> bool {
        self.origin.is_some()
    }

    /// The packet that answers the bypass `seq`. For a foreign client it carries number and hash of the update.
    pub(super) fn to_bytes(&self, session: u16, seq: u32) -> Vec<u8> {
        let mut packet = Packet::new(session, seq, Body::CacheResponse(&self.response));
        if let Some(Origin { seq, hash }) = self.origin {
            (packet.header.seq, packet.header.hash) = (seq, hash);
        }
        packet.to_bytes()
    }
}

/// Converts a range of a payload's last bytes, `end`, into a range of the payload.
fn within(payload: &[u8], end: &[u8], part: Range<usize>) -> Range<usize> {
    let before = payload.len().saturating_sub(end.len());
    before + part.start..before + part.end
}

fn id(identity: &Identity) -> Id<SessionKey> {
    let session = SessionKey { client: identity.flow.client, session: identity.session };
    Id { session, seq: identity.seq }
}
