//! A model of a client of the authors' release, after its sources: it sends one request after the other, with one
//! numbering for all, and never retransmits. See `docs/pmnet-interoperability.md`, "What they do".

use super::request::OBJECT;
use crate::violation::{Violation, ensure};
use landfall_pmnet::client::{Client, ClientError, CompletedBy, Event, Failure, RequestId};
use landfall_pmnet::wire::{Header, Packet, kind};
use landfall_pmnet::{Instant, wire::Body};
use std::collections::VecDeque;
use std::time::Duration;

/// The session number that all clients of the release use.
pub(super) const SESSION: u16 = 50_000;
/// Once a client's number is so far ahead of the last response, it waits for the response to its newest update.
const WINDOW: u32 = 64;
/// Time without an answer after which the model crashes, and another client starts. Clients of the release wait without
/// a timeout.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(300);

/// A client of either kind.
#[derive(Debug)]
pub(super) enum Machine {
    Ours(Box<Client>),
    Theirs(ForeignClient),
}

/// The request under way.
#[derive(Clone, Copy, Debug)]
struct Asked {
    id: RequestId,
    hash: u32,
    is_update: bool,
    /// The request is complete, and only its response is still waited for, because of the window.
    drains: bool,
    since: Instant,
}

/// A client of the release.
#[derive(Debug)]
pub(super) struct ForeignClient {
    seq: u32,
    answered: u32,
    asked: Option<Asked>,
    requests: u64,
    ending: bool,
    events: VecDeque<Event>,
    out: VecDeque<Vec<u8>>,
}

impl ForeignClient {
    pub(super) fn new() -> Self {
        Self {
            seq: 0,
            answered: 0,
            asked: None,
            requests: 0,
            ending: false,
            events: VecDeque::from([Event::Started]),
            out: VecDeque::new(),
        }
    }

    fn ask(&mut self, kind: u8, request: &[u8], now: Instant) -> Result<RequestId, ClientError> {
        if self.ending {
            return Err(ClientError::Ended);
        }
        if self.asked.is_some() {
            return Err(ClientError::Full);
        }
        // Clients of the release hash a number. That of the object lets a cache match updates and reads of one object.
        let object = request[OBJECT].iter().fold(0, |number, byte| number << 8 | u32::from(*byte));
        let hash = 0x8000_0000 | object << 11;
        let header = Header { hash, ..Header::new(kind, SESSION, self.seq) };
        self.out.push_back([&header.to_bytes()[..], request].concat());
        let id = RequestId(self.requests);
        self.requests += 1;
        self.asked = Some(Asked { id, hash, is_update: kind == kind::UPDATE, drains: false, since: now });
        Ok(id)
    }

    fn handle_packet(&mut self, bytes: &[u8]) -> Result<(), Violation> {
        let Ok(packet) = Packet::parse(bytes) else { return Ok(()) };
        let Header { kind, seq, session, hash, .. } = packet.header;
        if kind == kind::RESPONSE {
            self.answered = self.answered.max(seq);
        }
        let Some(asked) = self.asked else { return Ok(()) };
        if session == SESSION && seq == self.seq {
            ensure!(
                matches!(kind, kind::PMNET_ACK | kind::RESPONSE),
                "a foreign client got a packet of type {kind:#x}, at which it ends"
            );
            ensure!(kind != kind::PMNET_ACK || hash == asked.hash, "an acknowledgement with another hash");
            self.answer(asked, packet.body);
        } else if kind == kind::CACHE_RESPONSE && hash == asked.hash && !asked.is_update {
            self.answer(asked, packet.body);
        }
        Ok(())
    }

    fn answer(&mut self, asked: Asked, body: Body<'_>) {
        let id = asked.id;
        if !asked.drains {
            self.events.push_back(match body {
                Body::PmnetAck => Event::Complete { id, by: CompletedBy::Devices },
                _ if asked.is_update => Event::Complete { id, by: CompletedBy::Server },
                Body::CacheResponse(bytes) => Event::Response { id, bytes: bytes.to_vec(), from_cache: true },
                body => Event::Response { id, bytes: body.bytes().to_vec(), from_cache: false },
            });
        }
        if asked.is_update && self.seq - self.answered >= WINDOW {
            self.asked = Some(Asked { drains: true, ..asked });
            return;
        }
        self.asked = None;
        self.seq += 1;
        self.end_if_idle();
    }

    fn end_if_idle(&mut self) {
        if self.ending && self.asked.is_none() {
            self.events.push_back(Event::Ended);
        }
    }

    fn gives_up_at(&self) -> Option<Instant> {
        self.asked.map(|asked| asked.since + ANSWER_TIMEOUT)
    }
}

impl Machine {
    pub(super) fn ours(&self) -> Option<&Client> {
        match self {
            Self::Ours(client) => Some(client),
            Self::Theirs(_) => None,
        }
    }

    pub(super) fn ours_mut(&mut self) -> Option<&mut Client> {
        match self {
            Self::Ours(client) => Some(client),
            Self::Theirs(_) => None,
        }
    }

    pub(super) fn update(&mut self, request: &[u8], now: Instant) -> Result<RequestId, ClientError> {
        match self {
            Self::Ours(client) => client.update(request, now),
            Self::Theirs(client) => client.ask(kind::UPDATE, request, now),
        }
    }

    pub(super) fn bypass(&mut self, request: &[u8], now: Instant) -> Result<RequestId, ClientError> {
        match self {
            Self::Ours(client) => client.bypass(request, now),
            Self::Theirs(client) => client.ask(kind::BYPASS, request, now),
        }
    }

    pub(super) fn end(&mut self, now: Instant) {
        match self {
            Self::Ours(client) => client.end(now),
            Self::Theirs(client) if client.ending => {}
            Self::Theirs(client) => {
                client.ending = true;
                client.end_if_idle();
            }
        }
    }

    pub(super) fn handle_datagram(&mut self, bytes: &[u8], now: Instant) -> Result<(), Violation> {
        match self {
            Self::Ours(client) => {
                client.handle_datagram(bytes, now);
                Ok(())
            }
            Self::Theirs(client) => client.handle_packet(bytes),
        }
    }

    pub(super) fn next_timeout(&self) -> Option<Instant> {
        match self {
            Self::Ours(client) => client.next_timeout(),
            Self::Theirs(client) => client.gives_up_at(),
        }
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) {
        match self {
            Self::Ours(client) => client.handle_timeout(now),
            Self::Theirs(client) => {
                if client.gives_up_at().is_some_and(|at| at <= now) {
                    client.asked = None;
                    client.ending = true;
                    client.events.push_back(Event::Failed(Failure::NoAnswer));
                }
            }
        }
    }

    pub(super) fn poll_event(&mut self) -> Option<Event> {
        match self {
            Self::Ours(client) => client.poll_event(),
            Self::Theirs(client) => client.events.pop_front(),
        }
    }

    pub(super) fn poll_transmit(&mut self) -> Option<Vec<u8>> {
        match self {
            Self::Ours(client) => client.poll_transmit(),
            Self::Theirs(client) => client.out.pop_front(),
        }
    }
}
