//! The node of a client: a real [`Client`] with a workload, or driven by a test.

use super::datagram::{Datagram, Way};
use super::fabric::{Fabric, Happening};
use super::fault::Broken;
use super::foreign::{self, ForeignClient, Machine};
use super::history::{End, History, Told};
use super::request::{Answer, Request};
use crate::violation::{Violation, ensure};
use landfall_pmnet::auth::{Ends, Guard};
use landfall_pmnet::client::{Client, ClientConfig, ClientError, Event};
use landfall_pmnet::device::Side;
use landfall_pmnet::wire::{Refusal, kind};
use landfall_pmnet::{Instant, SessionKey};
use std::net::SocketAddr;

/// Number of session numbers that are drawn from first: few, so that several clients and lives use the same number.
const NUMBERS: u64 = 12;
/// Length of *session started* without a lease, bytes.
const WITHOUT_LEASE: usize = 40;
/// Distance of the ports of two consecutive sessions of a foreign client. Clients of one host use different ports.
const FOREIGN_PORTS: u16 = 2;
/// Most draws of a session's number before a client gives up.
const DRAWS_MAX: u64 = 40;

/// The workload of a client.
#[derive(Clone, Debug)]
pub struct Workload {
    /// Number of requests over all sessions.
    pub requests: u64,
    /// Most requests of one session.
    pub session_requests: u64,
    /// Longest pause between two requests, microseconds.
    pub pause_us: u64,
    /// Number of registers, and of counters.
    pub keys: u64,
    /// Share of bypasses among requests, percent.
    pub bypasses: u64,
    /// Share of reads of a register among bypasses, percent.
    pub gets: u64,
    /// Share of updates that are longer than a packet, percent.
    pub long: u64,
    /// Longest padding, bytes.
    pub pad_max: u64,
    /// The client is one of the authors' release. If it gets no answer, it crashes, and another one starts at another
    /// port.
    pub foreign: bool,
}

impl Workload {
    /// No requests: the client is driven by a test.
    pub const NONE: Self = Self {
        requests: 0,
        session_requests: 0,
        pause_us: 1,
        keys: 1,
        bypasses: 0,
        gets: 0,
        long: 0,
        pad_max: 0,
        foreign: false,
    };
}

/// A client, its session, and its workload.
#[derive(Debug)]
pub(super) struct ClientNode {
    number: usize,
    pub(super) address: SocketAddr,
    server: SocketAddr,
    guard: Guard,
    broken: Option<Broken>,
    config: ClientConfig,
    workload: Workload,
    /// `None` once the client has finished.
    client: Option<Machine>,
    /// Number and nonce of the session.
    name: (u16, u64),
    /// Index of the session in the history.
    pub(super) session: usize,
    /// Number of requests of this session.
    given: u64,
    /// Number of draws of a session number for this session.
    draws: u64,
    ending: bool,
    draining: bool,
    life: u64,
    /// Sessions that failed.
    pub(super) gave_up: u64,
    /// Sessions that the client learnt to have ended by a silence.
    pub(super) told_gone: u64,
}

impl ClientNode {
    pub(super) fn new(
        number: usize,
        (address, server): (SocketAddr, SocketAddr),
        (guard, broken): (Guard, Option<Broken>),
        config: ClientConfig,
        workload: Workload,
    ) -> Self {
        Self {
            number,
            address,
            server,
            guard,
            broken,
            config,
            workload,
            client: None,
            name: (0, 0),
            session: 0,
            given: 0,
            draws: 0,
            ending: false,
            draining: false,
            life: 0,
            gave_up: 0,
            told_gone: 0,
        }
    }

    /// Starts a session.
    pub(super) fn start(&mut self, fabric: &mut Fabric, history: &mut History) -> Result<(), Violation> {
        self.session = history.open();
        (self.given, self.draws, self.ending) = (0, 0, false);
        self.life += 1;
        if self.workload.foreign {
            self.name = (foreign::SESSION, 0);
            self.address.set_port(self.address.port() + FOREIGN_PORTS);
            self.client = Some(Machine::Theirs(ForeignClient::new()));
        } else {
            self.draw(fabric);
            let client = Client::new(self.config.clone(), self.name.0, self.name.1, fabric.now);
            self.client = Some(Machine::Ours(Box::new(client)));
        }
        self.act_later(fabric);
        self.pump(fabric, history)
    }

    fn draw(&mut self, fabric: &mut Fabric) {
        let range = NUMBERS << (self.draws / 4).min(12);
        self.draws += 1;
        self.name = (fabric.rng.below(range.min(1 << 16)) as u16, fabric.rng.draw());
    }

    fn act_later(&mut self, fabric: &mut Fabric) {
        if self.workload.requests > 0 {
            let delay = fabric.pause(1, self.workload.pause_us);
            fabric.after(delay, Happening::Act { client: self.number, life: self.life });
        }
    }

    /// Crashes the client with its session, and starts another one in its place.
    pub(super) fn crash(&mut self, fabric: &mut Fabric, history: &mut History) -> Result<(), Violation> {
        if self.client.take().is_some() {
            history.sessions[self.session].end = End::Abandoned;
        }
        self.next(fabric, history)
    }

    /// Removes the client permanently.
    pub(super) fn leave(&mut self, history: &mut History) {
        if self.client.take().is_some() {
            history.sessions[self.session].end = End::Abandoned;
        }
        self.life += 1;
    }

    /// Stops the workload. The session ends once all its requests are complete.
    pub(super) fn drain(&mut self, fabric: &mut Fabric, history: &mut History) -> Result<(), Violation> {
        self.draining = true;
        self.end(fabric, history)
    }

    /// Ends the session once all its requests are complete.
    pub(super) fn end(&mut self, fabric: &mut Fabric, history: &mut History) -> Result<(), Violation> {
        if let Some(client) = &mut self.client {
            self.ending = true;
            client.end(fabric.now);
        }
        self.pump(fabric, history)
    }

    /// The number of the client's session.
    pub(super) fn number(&self) -> u16 {
        self.name.0
    }

    pub(super) fn is_done(&self) -> bool {
        self.client.is_none()
    }

    /// The client's state machine.
    pub(super) fn client(&self) -> Option<&Client> {
        self.client.as_ref().and_then(Machine::ours)
    }

    /// Sets the number of devices of the chain.
    pub(super) fn set_devices(&mut self, devices: u8, fabric: &mut Fabric) {
        self.config.devices = devices;
        if let Some(client) = self.client.as_mut().and_then(Machine::ours_mut) {
            client.set_devices(devices, fabric.now);
        }
    }

    // ---- events ----

    pub(super) fn next_timeout(&self) -> Option<Instant> {
        self.client.as_ref()?.next_timeout()
    }

    pub(super) fn handle_timeout(
        &mut self,
        fabric: &mut Fabric,
        history: &mut History,
    ) -> Result<(), Violation> {
        if let Some(client) = &mut self.client {
            client.handle_timeout(fabric.now);
        }
        self.pump(fabric, history)
    }

    pub(super) fn handle(
        &mut self,
        datagram: &Datagram,
        fabric: &mut Fabric,
        history: &mut History,
    ) -> Result<(), Violation> {
        if let Some(client) = self.client.as_mut().filter(|_| datagram.is_sound()) {
            let ends = Ends::of(Side::Clients, datagram.from, datagram.to);
            if let Ok(mut packet) = self.guard.open(ends, fabric.now.nanos(), &datagram.payload) {
                if self.broken == Some(Broken::LeaseIgnored) && packet.first() == Some(&kind::SESSION_STARTED)
                {
                    packet = &packet[..packet.len().min(WITHOUT_LEASE)];
                }
                client.handle_datagram(packet, fabric.now)?;
            }
        }
        self.pump(fabric, history)
    }

    /// Executes the next step of the workload.
    pub(super) fn act(
        &mut self,
        life: u64,
        fabric: &mut Fabric,
        history: &mut History,
    ) -> Result<(), Violation> {
        if life != self.life || self.client.is_none() || self.ending {
            return Ok(());
        }
        if self.workload.requests == 0 || self.given >= self.workload.session_requests {
            return self.end(fabric, history);
        }
        let request = self.choose(fabric, history);
        if self.give(request, fabric, history)?.is_some() {
            self.given += 1;
            self.workload.requests -= 1;
        }
        let delay = fabric.pause(1, self.workload.pause_us);
        fabric.after(delay, Happening::Act { client: self.number, life: self.life });
        Ok(())
    }

    fn choose(&self, fabric: &mut Fabric, history: &mut History) -> Request {
        let key = fabric.rng.below(self.workload.keys) as u8;
        if fabric.chance(self.workload.bypasses) {
            return match fabric.rng.below(3) {
                _ if fabric.chance(self.workload.gets) => Request::Get { key },
                0 => Request::Count { key },
                _ => Request::Add { key, id: history.id() },
            };
        }
        Request::Set { key, id: history.id(), pad: self.pad(fabric) }
    }

    fn pad(&self, fabric: &mut Fabric) -> u32 {
        let long = fabric.chance(self.workload.long);
        fabric.rng.below(if long { self.workload.pad_max.max(1) } else { 40 }) as u32
    }

    /// Gives the client a request. Returns the index of the request in the session, or `None` if the client accepts no
    /// more.
    pub(super) fn give(
        &mut self,
        request: Request,
        fabric: &mut Fabric,
        history: &mut History,
    ) -> Result<Option<usize>, Violation> {
        let Some(client) = &mut self.client else { return Ok(None) };
        let bytes = request.to_bytes();
        let given = match request.is_update() {
            true => client.update(&bytes, fabric.now),
            false => client.bypass(&bytes, fabric.now),
        };
        let id = match given {
            Ok(id) => id,
            Err(ClientError::Full | ClientError::Ended) => return Ok(None),
            Err(error) => return Err(Violation(format!("a client refuses {request:?}: {error}"))),
        };
        let place = history.begin(self.session, request);
        ensure!(id.0 == place as u64, "request {place} of a session got the number {id:?}");
        self.pump(fabric, history)?;
        Ok(Some(place))
    }

    /// Handles the client's events, and sends its packets.
    fn pump(&mut self, fabric: &mut Fabric, history: &mut History) -> Result<(), Violation> {
        while let Some(event) = self.client.as_mut().and_then(Machine::poll_event) {
            self.learn(event, fabric, history)?;
        }
        let Some(client) = &mut self.client else { return Ok(()) };
        while let Some(mut bytes) = client.poll_transmit() {
            let ends = Ends::to_server(self.address, self.server.port());
            self.guard.seal(ends, fabric.now.nanos(), &mut bytes);
            fabric.send(0, Way::Up, Datagram::new(self.address, self.server, bytes));
        }
        Ok(())
    }

    fn learn(&mut self, event: Event, fabric: &mut Fabric, history: &mut History) -> Result<(), Violation> {
        let at = history.tick();
        let answer = match &event {
            Event::Response { id, bytes, .. } => {
                let request = history.sessions[self.session].calls[id.0 as usize].request;
                Some(answer_in(bytes, request, history)?)
            }
            _ => None,
        };
        let session = &mut history.sessions[self.session];
        match event {
            Event::Started => {
                let key = SessionKey { client: self.address, session: self.name.0 };
                session.name = Some((key, self.name.1));
            }
            Event::Complete { id, by } => {
                tell(&mut session.calls[id.0 as usize].told, Told::Complete { at, by })?;
            }
            Event::Response { id, from_cache, .. } => {
                let told = match answer {
                    Some(Answer::Value(value)) => Told::Value { at, value, from_cache },
                    _ => Told::Lost { at },
                };
                tell(&mut session.calls[id.0 as usize].told, told)?;
            }
            Event::Ended => {
                // The end of a foreign client's session is never confirmed.
                session.end = if self.workload.foreign { End::Abandoned } else { End::Ended { at } };
                self.client = None;
                return self.next(fabric, history);
            }
            // The lease had expired, and the server may have ended the session.
            Event::Refused(Refusal::Unknown)
                if self
                    .client
                    .as_ref()
                    .and_then(Machine::ours)
                    .is_some_and(|client| client.stats().lapses > 0) =>
            {
                session.end = End::Abandoned;
                self.told_gone += 1;
                self.client = None;
                return self.next(fabric, history);
            }
            Event::Refused(Refusal::Unknown) => {
                return Err(Violation(format!("the server has lost {:?}", session.name)));
            }
            Event::Refused(Refusal::Behind) => {
                session.end = End::Behind;
                self.client = None;
            }
            Event::Refused(_) => return self.draw_again(fabric, history),
            Event::Failed(_) => {
                self.gave_up += 1;
                return self.crash(fabric, history);
            }
            _ => {}
        }
        Ok(())
    }

    fn draw_again(&mut self, fabric: &mut Fabric, history: &mut History) -> Result<(), Violation> {
        if self.draws >= DRAWS_MAX {
            self.leave(history);
            return Ok(());
        }
        self.draw(fabric);
        let (session, nonce) = self.name;
        if let Some(client) = self.client.as_mut().and_then(Machine::ours_mut) {
            client.restart(session, nonce, fabric.now);
        }
        Ok(())
    }

    /// Starts the next session if the workload has more requests.
    fn next(&mut self, fabric: &mut Fabric, history: &mut History) -> Result<(), Violation> {
        self.life += 1;
        if self.draining || self.workload.requests == 0 {
            return Ok(());
        }
        self.start(fabric, history)
    }
}

/// Parses an answer. It must equal the server's answer byte for byte, whichever node has sent it: a value has the
/// padding that it was set with.
fn answer_in(bytes: &[u8], request: Request, history: &History) -> Result<Answer, Violation> {
    let answer = Answer::from_bytes(bytes);
    let pad = match (request, answer) {
        (Request::Get { .. }, Some(Answer::Value(value))) => history.pad_of(value),
        _ => 0,
    };
    let whole = answer.filter(|answer| answer.to_bytes(pad) == bytes);
    whole.ok_or_else(|| Violation(format!("an answer of {} bytes is malformed: {answer:?}", bytes.len())))
}

/// Notes the result of a request. A request must not get two results.
fn tell(known: &mut Told, told: Told) -> Result<(), Violation> {
    ensure!(*known == Told::Nothing, "a request got the result {told:?} after {known:?}");
    *known = told;
    Ok(())
}
