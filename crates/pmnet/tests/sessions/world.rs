//! A simulated path with clients, devices and a server that crashes.

use super::application::{Application, Ask, Name, count_bytes, filler, parse, request};
use super::network::{Datagram, Device, Faults, Network, Rng};
use landfall_pmnet::client::{CompletedBy, Event, RequestId};
use landfall_pmnet::wire::{Body, Packet};
use landfall_pmnet::{Client, ClientConfig, Instant, Server, ServerConfig, SessionKey, Work};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

/// The path MTU. It is small, so that many requests are in pieces.
const MTU: u16 = 120;
/// Most steps of a run. A run with more steps does not progress.
const STEPS_MAX: u64 = 1_000_000;

#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub clients: usize,
    pub devices: u8,
    pub sessions: u32,
    pub requests: u32,
    pub faults: Faults,
    /// Percentage of the application's turns in which the server crashes, or work fails.
    pub crashes: u64,
    pub failures: u64,
    pub declines: u64,
    /// Whether the last device is lost for good, with its log.
    pub loses_device: bool,
    pub reorder_max: u32,
}

/// A client, and its requests in the session.
struct User {
    client: Client,
    name: Name,
    address: SocketAddr,
    sessions_left: u32,
    requests_left: u32,
    appended: Vec<u32>,
    marks: Vec<u32>,
    /// Updates that are not reported as complete.
    open: VecDeque<(RequestId, u32)>,
    /// The bypasses, and the count that each must see.
    asked: VecDeque<(RequestId, Ask, u32)>,
    ended: bool,
    pause_until: Instant,
}

pub struct World {
    plan: Plan,
    rng: Rng,
    now: Instant,
    network: Network,
    users: Vec<User>,
    devices: Vec<Device>,
    server: Option<Server>,
    app: Application,
    pending: VecDeque<Work>,
    handed: BTreeSet<(Name, Ask)>,
    next_turn: Instant,
    next_resend: Instant,
    down_until: Instant,
    expected: BTreeMap<Name, (Vec<u32>, Vec<u32>)>,
    complete: BTreeSet<(Name, u32)>,
    numbers: u32,
    pub crashes: u32,
    pub lost: u32,
    pub evicted: u32,
}

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

impl World {
    pub fn new(seed: u64, plan: Plan) -> Self {
        let mut rng = Rng::new(seed);
        let now = Instant::from_nanos(1);
        let users = (0..plan.clients).map(|at| User::new(at, &plan, &mut rng, now)).collect();
        let device = |_| Device { declines: plan.declines, ..Device::default() };
        let mut world = Self {
            plan,
            rng,
            now,
            network: Network::new(plan.faults),
            users,
            devices: (0..plan.devices).map(device).collect(),
            server: None,
            app: Application::default(),
            pending: VecDeque::new(),
            handed: BTreeSet::new(),
            next_turn: now,
            next_resend: now + ms(200),
            down_until: now,
            expected: BTreeMap::new(),
            complete: BTreeSet::new(),
            numbers: 0,
            crashes: 0,
            lost: 0,
            evicted: 0,
        };
        world.start_server();
        world
    }

    /// Runs until every session has ended and every log is empty.
    pub fn run(&mut self) {
        for _ in 0..STEPS_MAX {
            self.drive_users();
            if self.users.iter().all(|user| user.sessions_left == 0) && self.logs_are_empty() {
                return self.check_end();
            }
            self.step();
        }
        let stuck: Vec<_> = self.users.iter().map(|user| (user.name, user.client.stats())).collect();
        panic!("stuck at {:?}: {stuck:?}, {:?}", self.now, self.server.as_ref().map(Server::stats));
    }

    fn logs_are_empty(&self) -> bool {
        self.devices.iter().all(|device| device.log.is_empty())
    }

    fn step(&mut self) {
        let clients = self.users.iter().filter_map(|user| user.client.next_timeout());
        let server = self.server.as_ref().and_then(Server::next_timeout);
        let others = [self.next_turn, self.next_resend];
        let next = clients.chain(server).chain(self.network.next_at()).chain(others).min().unwrap();
        self.now = self.now.max(next);
        while let Some(datagram) = self.network.pop(self.now) {
            self.deliver(datagram);
        }
        for at in 0..self.users.len() {
            self.users[at].client.handle_timeout(self.now);
            self.flush_user(at);
        }
        if let Some(server) = &mut self.server {
            server.handle_timeout(self.now);
        }
        if self.next_resend <= self.now {
            self.resend();
        }
        if self.next_turn <= self.now {
            self.turn();
        }
        self.flush_server();
    }

    fn deliver(&mut self, datagram: Datagram) {
        let last = usize::from(self.plan.devices) + 1;
        if datagram.to == 0 {
            self.users[datagram.client].client.handle_datagram(&datagram.bytes, self.now);
            self.flush_user(datagram.client);
        } else if datagram.to == last {
            if let Some(server) = &mut self.server {
                server.handle_datagram(self.users[datagram.client].address, &datagram.bytes, self.now);
            }
        } else {
            let number = datagram.to - 1;
            let sent = self.devices[number].handle(number as u8, &datagram, &mut self.rng);
            for (up, bytes) in sent {
                self.send(datagram.client, datagram.to, up, bytes);
            }
        }
    }

    fn send(&mut self, client: usize, from: usize, up: bool, bytes: Vec<u8>) {
        let to = if up { from + 1 } else { from - 1 };
        self.network.send(Datagram { client, to, up, bytes }, self.now, &mut self.rng);
    }

    /// Devices send updates again that stay in their logs.
    fn resend(&mut self) {
        self.next_resend = self.now + ms(200);
        for at in 0..self.devices.len() {
            let entries: Vec<_> =
                self.devices[at].log.iter().map(|(key, bytes)| (key.0, bytes.clone())).collect();
            for (client, bytes) in entries {
                self.send(client, at + 1, true, bytes);
            }
        }
        if self.plan.loses_device && self.rng.percent(10) {
            self.lose_device();
        }
    }

    fn lose_device(&mut self) {
        self.plan.loses_device = false;
        let device = self.devices.last_mut().unwrap();
        device.is_gone = true;
        device.log.clear();
        for user in &mut self.users {
            user.client.set_devices(self.plan.devices - 1, self.now);
        }
    }

    fn start_server(&mut self) {
        let config = ServerConfig {
            mtu: MTU,
            sessions_max: 4 + self.plan.clients,
            reorder_max: self.plan.reorder_max,
            ..ServerConfig::default()
        };
        let rows: Vec<_> = self.app.rows.values().copied().collect();
        self.server = Some(Server::new(config, self.rng.next(), rows, self.app.floor, self.now));
    }

    /// The application takes work, commits it, fails or crashes.
    fn turn(&mut self) {
        self.next_turn = self.now + Duration::from_micros(50 + self.rng.below(2000));
        if self.server.is_none() {
            if self.down_until <= self.now {
                self.start_server();
            }
            return;
        }
        for _ in 0..self.rng.below(8) {
            self.take_work();
        }
        if self.rng.percent(self.plan.failures) {
            self.fail();
        }
        let all = self.pending.len() as u64;
        for _ in 0..self.rng.below(all + 1) {
            if self.rng.percent(self.plan.crashes) {
                return self.crash();
            }
            self.commit();
        }
    }

    fn take_work(&mut self) {
        let Some(work) = self.server.as_mut().unwrap().poll_work() else { return };
        if let Some(once) = once(&work) {
            assert!(self.handed.insert(once), "handed out twice in one incarnation: {once:?}");
        }
        self.pending.push_back(work);
    }

    fn commit(&mut self) {
        let Some(work) = self.pending.pop_front() else { return };
        if let Work::Row { evicted, .. } = &work {
            self.evicted += evicted.len() as u32;
        }
        self.lost += u32::from(matches!(work, Work::Bypass { lost: true, .. }));
        let answer = self.app.apply(&work);
        if self.rng.percent(self.plan.crashes) {
            // The work is committed, but the server is not told.
            return self.crash();
        }
        let server = self.server.as_mut().unwrap();
        match answer {
            Some((response, changed)) => server.respond(work.ticket(), response, changed, self.now).unwrap(),
            None => server.committed(work.ticket(), self.now),
        }
    }

    /// A piece of work fails, and all later work of its session.
    fn fail(&mut self) {
        if self.pending.is_empty() {
            return;
        }
        let first = self.rng.below(self.pending.len() as u64) as usize;
        let session = self.pending[first].ticket().session();
        let mut kept = VecDeque::new();
        for (at, work) in std::mem::take(&mut self.pending).into_iter().enumerate() {
            if at < first || work.ticket().session() != session {
                kept.push_back(work);
                continue;
            }
            self.server.as_mut().unwrap().failed(work.ticket());
            once(&work).map(|once| self.handed.remove(&once));
        }
        self.pending = kept;
    }

    fn crash(&mut self) {
        self.crashes += 1;
        self.server = None;
        self.pending.clear();
        self.handed.clear();
        self.down_until = self.now + ms(self.rng.below(300));
    }

    fn flush_server(&mut self) {
        let last = usize::from(self.plan.devices) + 1;
        while let Some((to, bytes)) = self.server.as_mut().and_then(Server::poll_transmit) {
            let client = self.users.iter().position(|user| user.address == to).unwrap();
            self.send(client, last, false, bytes);
        }
    }

    fn flush_user(&mut self, at: usize) {
        while let Some(bytes) = self.users[at].client.poll_transmit() {
            assert!(bytes.len() + 28 <= usize::from(MTU));
            self.send(at, 0, true, bytes);
        }
        while let Some(event) = self.users[at].client.poll_event() {
            self.handle_event(at, event);
        }
    }

    fn handle_event(&mut self, at: usize, event: Event) {
        let user = &mut self.users[at];
        match event {
            Event::Complete { id, by } => {
                let (first, number) = user.open.pop_front().expect("an update is open");
                assert_eq!(first, id, "updates complete in order");
                let name = user.name;
                self.complete.insert((name, number));
                self.check_durable(at, number, by);
            }
            Event::Response { id, bytes, from_cache } => {
                let (first, ask, count) = user.asked.pop_front().expect("a bypass is open");
                assert!(first == id && !from_cache);
                check_response(ask, count, &bytes);
            }
            Event::Ended => {
                assert!(user.open.is_empty() && user.asked.is_empty());
                let asked = (std::mem::take(&mut user.appended), std::mem::take(&mut user.marks));
                self.expected.insert(user.name, asked);
                user.ended = true;
                user.sessions_left -= 1;
            }
            Event::Refused(_) => user.pause_until = self.now + ms(self.rng.below(20)),
            Event::Started | Event::ServerRestarted { .. } => {}
            other => panic!("{other:?}"),
        }
    }

    /// Checks that a completed update is applied, or in the log of every remaining device.
    fn check_durable(&self, at: usize, number: u32, by: CompletedBy) {
        let name = self.users[at].name;
        let is_it = |bytes: &Vec<u8>| match Packet::parse(bytes).unwrap().body {
            Body::Update(request) => parse(request) == Ask::Append(number),
            // The first piece identifies the request.
            Body::UpdateFragment(place, piece) if place.index == 0 => piece[1..5] == number.to_le_bytes(),
            _ => false,
        };
        let logged = |device: &Device| device.is_gone || device.log.values().any(is_it);
        let applied = self.app.appended.get(&name).is_some_and(|numbers| numbers.contains(&number));
        let in_devices = !self.devices.is_empty() && self.devices.iter().all(logged);
        assert!(
            applied || (by == CompletedBy::Devices && in_devices),
            "{number} is not durable, although completed by {by:?}"
        );
    }

    fn drive_users(&mut self) {
        for at in 0..self.users.len() {
            let user = &mut self.users[at];
            if user.ended && user.sessions_left > 0 {
                user.start_session(&self.plan, self.devices.last(), &mut self.rng, self.now);
            }
            if user.pause_until > Instant::default() && user.pause_until <= self.now {
                user.redraw(&mut self.rng, self.now);
            }
            while user.requests_left > 0 && self.rng.percent(30) {
                self.numbers += 1;
                if !user.ask(self.numbers, &mut self.rng, self.now) {
                    break;
                }
            }
            if user.requests_left == 0 && !user.ended {
                user.client.end(self.now);
            }
            self.flush_user(at);
        }
    }

    fn check_end(&self) {
        for (name, (appended, marks)) in &self.expected {
            let empty = Vec::new();
            assert_eq!(
                self.app.appended.get(name).unwrap_or(&empty),
                appended,
                "{name:?}: each once, in order"
            );
            assert_eq!(self.app.marks.get(name).unwrap_or(&empty), marks, "{name:?}: once each, in order");
        }
        for (name, number) in &self.complete {
            assert!(self.app.appended[name].contains(number), "{number} was reported as complete");
        }
        assert_eq!(self.expected.len() as u32, self.plan.sessions * self.plan.clients as u32);
    }
}

/// The name of work that must be executed at most once. A bypass that only reads may be executed again by another
/// incarnation, and a lost bypass is not executed.
fn once(work: &Work) -> Option<(Name, Ask)> {
    match work {
        Work::Update { request, row, .. } | Work::Bypass { request, row, lost: false, .. } => {
            Some(((row.key, row.nonce), parse(request)))
        }
        _ => None,
    }
}

/// Checks that the count is that of the earlier updates: later ones wait.
fn check_response(ask: Ask, count: u32, bytes: &[u8]) {
    if bytes == b"lost" {
        assert!(matches!(ask, Ask::Mark(_)));
        return;
    }
    assert_eq!(bytes[..4], count.to_le_bytes(), "{ask:?} does not see its session's updates");
    let rest = &bytes[4..];
    let wanted = if let Ask::Count(number) = ask { count_bytes(number) } else { 0 };
    assert_eq!(rest.len(), wanted);
    let one_execution = |salt| rest.iter().enumerate().all(|(at, byte)| *byte == filler(salt, at));
    assert!((0..=255).any(one_execution), "a response contains pieces of two executions");
}

impl User {
    fn new(at: usize, plan: &Plan, rng: &mut Rng, now: Instant) -> Self {
        let address = SocketAddr::from(([10, 0, 0, 1], 40_000 + at as u16));
        let key = SessionKey { client: address, session: 0 };
        let mut user = Self {
            client: Client::new(ClientConfig::default(), 0, 0, now),
            name: (key, 0),
            address,
            sessions_left: plan.sessions,
            requests_left: 0,
            appended: Vec::new(),
            marks: Vec::new(),
            open: VecDeque::new(),
            asked: VecDeque::new(),
            ended: false,
            pause_until: Instant::default(),
        };
        user.start_session(plan, None, rng, now);
        user
    }

    fn draw(&mut self, rng: &mut Rng) -> (u16, u64) {
        // There are few numbers, so that they are often in use.
        let (session, nonce) = (rng.below(12) as u16, rng.next());
        self.name = (SessionKey { client: self.address, session }, nonce);
        (session, nonce)
    }

    fn start_session(&mut self, plan: &Plan, last: Option<&Device>, rng: &mut Rng, now: Instant) {
        let (session, nonce) = self.draw(rng);
        let config = ClientConfig {
            devices: plan.devices - u8::from(last.is_some_and(|last| last.is_gone)),
            mtu: MTU,
            window: 1 + rng.below(20) as u16,
            requests_max: 1 + rng.below(30) as usize,
            give_up: Duration::from_secs(100_000),
            ..ClientConfig::default()
        };
        self.client = Client::new(config, session, nonce, now);
        self.requests_left = 1 + rng.below(u64::from(plan.requests)) as u32;
        self.ended = false;
    }

    fn redraw(&mut self, rng: &mut Rng, now: Instant) {
        let (session, nonce) = self.draw(rng);
        self.pause_until = Instant::default();
        self.client.restart(session, nonce, now);
    }

    /// False if the client accepts no more requests for now.
    fn ask(&mut self, number: u32, rng: &mut Rng, now: Instant) -> bool {
        let len = if rng.percent(20) { rng.below(600) } else { rng.below(40) } as usize;
        let count = self.appended.len() as u32;
        let asked = match rng.below(10) {
            0 => Ask::Mark(number),
            1 | 2 => Ask::Count(number),
            _ => Ask::Append(number),
        };
        let bytes = request(asked, len);
        let taken = match asked {
            Ask::Append(_) => self.client.update(&bytes, now).map(|id| self.open.push_back((id, number))),
            _ => self.client.bypass(&bytes, now).map(|id| self.asked.push_back((id, asked, count))),
        };
        if taken.is_err() {
            return false;
        }
        match asked {
            Ask::Append(_) => self.appended.push(number),
            Ask::Mark(_) => self.marks.push(number),
            Ask::Count(_) => {}
        }
        self.requests_left -= 1;
        true
    }
}
