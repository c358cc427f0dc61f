//! Tests of a relay's paths against a model that examines all paths each time: which client gets or loses a port, and
//! when.

use landfall_pmnet::Instant;
use landfall_pmnet::paths::{Opening, PathLimits, Paths};
use landfall_pmnet::wire::{Body, FIRST_BYPASS, Packet, Refusal};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

const CLIENTS: u8 = 9;
const PORTS: usize = 5;
const LIMITS: PathLimits = PathLimits {
    linger: Duration::from_secs(10),
    idle: Duration::from_secs(200),
    pressed: Duration::from_secs(60),
    settle: Duration::from_secs(3),
};

fn address(client: u8) -> SocketAddr {
    ([10, 0, 0, 1], 40_000 + u16::from(client)).into()
}

/// The packets of the server.
#[derive(Clone, Copy, Debug)]
enum Says {
    Started,
    Ack,
    Ended,
    Refused,
}

#[derive(Clone, Copy, Debug)]
enum Op {
    /// A packet of a client arrives.
    ClientSends(u8, Opening),
    /// A packet of the server, for a session of a client.
    Says(u8, u16, Says),
    /// Whether an update of a client is in the log.
    Logged(u8, bool),
    /// Seconds pass.
    Wait(u64),
    /// The relay restarts. The log has its paths.
    Restart,
}

fn op() -> impl Strategy<Value = Op> {
    let opening = prop_oneof![Just(Opening::SessionStart), Just(Opening::Request)];
    let says = prop_oneof![Just(Says::Started), Just(Says::Ack), Just(Says::Ended), Just(Says::Refused)];
    prop_oneof![
        8 => (0..CLIENTS, opening).prop_map(|(client, opening)| Op::ClientSends(client, opening)),
        6 => (0..CLIENTS, 0_u16..3, says).prop_map(|(client, session, says)| Op::Says(client, session, says)),
        2 => (0..CLIENTS, any::<bool>()).prop_map(|(client, there)| Op::Logged(client, there)),
        4 => prop_oneof![0_u64..5, 8_u64..12, 50_u64..70, 190_u64..210].prop_map(Op::Wait),
        1 => Just(Op::Restart),
    ]
}

/// A path in the model.
#[derive(Clone, Debug)]
struct Known {
    /// Order and time of the opening.
    opened: (Instant, SocketAddr),
    heard: Instant,
    /// The packet that opened it, until the server has confirmed it.
    unconfirmed: Option<Opening>,
    /// `None` for a path from before a restart.
    sessions: Option<BTreeSet<u16>>,
    ended: BTreeSet<u16>,
    port: usize,
}

impl Known {
    fn ends(&self) -> Instant {
        let is_unused = self.sessions.as_ref().is_some_and(BTreeSet::is_empty);
        self.heard + if is_unused { LIMITS.linger } else { LIMITS.idle }
    }
}

/// A relay that works like `crates/switch/src/relay`, and the model.
struct Relay {
    paths: Paths,
    model: BTreeMap<u8, Known>,
    logged: BTreeSet<u8>,
    now: Instant,
}

impl Relay {
    fn new() -> Self {
        let now = Instant::from_nanos(1_000_000_000);
        Self { paths: Paths::new(LIMITS, PORTS), model: BTreeMap::new(), logged: BTreeSet::new(), now }
    }

    fn is_needed(logged: &BTreeSet<u8>) -> impl Fn(&SocketAddr) -> bool {
        let needed: BTreeSet<SocketAddr> = logged.iter().map(|client| address(*client)).collect();
        move |client| needed.contains(client)
    }

    /// The path to evict: the oldest unconfirmed one, otherwise the one without packets for the longest time.
    fn victim(&self, pressed: bool) -> Option<u8> {
        let idle = |span: Duration| {
            move |(client, known): &(&u8, &Known)| {
                known.heard + span <= self.now && !self.logged.contains(client)
            }
        };
        match pressed {
            false => {
                let silent = self.model.iter().filter(|(_, known)| known.unconfirmed.is_some());
                silent
                    .filter(idle(LIMITS.settle))
                    .min_by_key(|(_, known)| known.opened)
                    .map(|(client, _)| *client)
            }
            true => {
                let silent = self.model.iter().filter(idle(LIMITS.pressed));
                let heard = |(client, known): &(&u8, &Known)| (known.heard, address(**client));
                silent.min_by_key(heard).map(|(client, _)| *client)
            }
        }
    }

    fn evict(&mut self, pressed: bool) -> Result<bool, TestCaseError> {
        let expected = self.victim(pressed);
        let is_needed = Self::is_needed(&self.logged);
        let gone = match pressed {
            false => self.paths.evict_unconfirmed(self.now, is_needed),
            true => self.paths.evict_idle(self.now, is_needed).map(|gone| gone.client),
        };
        prop_assert_eq!(gone, expected.map(address));
        expected.map(|client| self.model.remove(&client));
        Ok(expected.is_some())
    }

    fn client_sends(&mut self, client: u8, opening: Opening) -> Result<(), TestCaseError> {
        if let Some(known) = self.model.get_mut(&client) {
            known.heard = self.now;
            self.paths.client_sent(&address(client), self.now);
            return Ok(());
        }
        let requests =
            self.model.values().filter(|known| known.unconfirmed == Some(Opening::Request)).count();
        let has_room = opening == Opening::SessionStart || requests < PORTS - self.model.len();
        prop_assert_eq!(self.paths.has_room(opening), has_room);
        if !has_room && !self.evict(false)? {
            return Ok(());
        }
        let free = |model: &BTreeMap<u8, Known>| {
            (0..PORTS).find(|port| model.values().all(|known| known.port != *port))
        };
        let mut port = free(&self.model);
        if port.is_none() && (self.evict(false)? || (opening == Opening::SessionStart && self.evict(true)?)) {
            port = free(&self.model);
        }
        let Some(port) = port else {
            let confirmed = self.model.values().filter(|known| known.unconfirmed.is_none()).count();
            prop_assert!(
                opening == Opening::Request || confirmed + requests_that_stay(self) == PORTS,
                "{:?}",
                self.model
            );
            return Ok(());
        };
        self.paths.opened(address(client), opening, self.now);
        let known = Known {
            opened: (self.now, address(client)),
            heard: self.now,
            unconfirmed: Some(opening),
            sessions: Some(BTreeSet::new()),
            ended: BTreeSet::new(),
            port,
        };
        self.model.insert(client, known);
        Ok(())
    }

    fn says(&mut self, client: u8, session: u16, says: Says) {
        let body = match says {
            Says::Started => Body::SessionStarted {
                nonce: 1,
                first_update: 1,
                first_bypass: FIRST_BYPASS,
                incarnation: 1,
                lease: 0,
            },
            Says::Ack => Body::ServerAck,
            Says::Ended => Body::SessionEnded,
            Says::Refused => Body::SessionRefused(Refusal::Unknown),
        };
        self.paths.server_sent(&address(client), &Packet::new(session, 0, body).to_bytes(), self.now);
        let Some(known) = self.model.get_mut(&client) else { return };
        known.heard = self.now;
        let Some(sessions) = &mut known.sessions else { return };
        match says {
            // An acknowledgement of a session that has ended comes late.
            Says::Ack if known.ended.contains(&session) => {}
            Says::Started | Says::Ack => {
                known.ended.remove(&session);
                sessions.insert(session);
                known.unconfirmed = None;
            }
            Says::Ended => {
                known.ended.insert(session);
                sessions.remove(&session);
            }
            Says::Refused => {
                sessions.remove(&session);
            }
        }
    }

    /// Checks that exactly the paths that have ended are removed.
    fn expire(&mut self) -> Result<(), TestCaseError> {
        while let Some(gone) = self.paths.expired(self.now, Self::is_needed(&self.logged)) {
            let client = (0..CLIENTS).find(|client| address(*client) == gone.client).unwrap();
            let known = self.model.remove(&client);
            let known = known.ok_or_else(|| TestCaseError::fail(format!("{gone:?} had no path")))?;
            let may_have_sessions = known.sessions.as_ref().is_none_or(|sessions| !sessions.is_empty());
            prop_assert_eq!(gone.may_have_sessions, may_have_sessions);
            prop_assert!(known.ends() <= self.now && !self.logged.contains(&client), "{known:?}");
        }
        // A path that was needed when it was checked is checked again later.
        let forgotten = |known: &Known| known.ends() + LIMITS.linger <= self.now;
        let late =
            self.model.iter().find(|(client, known)| forgotten(known) && !self.logged.contains(client));
        if late.is_some() {
            prop_assert!(
                self.paths.next_timeout().is_some_and(|at| at <= self.now + LIMITS.linger),
                "{late:?}"
            );
        }
        prop_assert_eq!(self.paths.len(), self.model.len());
        Ok(())
    }

    fn restart(&mut self) {
        self.paths = Paths::new(LIMITS, PORTS);
        for (client, known) in &mut self.model {
            self.paths.restored(address(*client), self.now);
            *known = Known { heard: self.now, unconfirmed: None, sessions: None, ..known.clone() };
        }
    }

    fn play(&mut self, op: Op) -> Result<(), TestCaseError> {
        match op {
            Op::ClientSends(client, opening) => self.client_sends(client, opening)?,
            Op::Says(client, session, says) => self.says(client, session, says),
            Op::Logged(client, there) => {
                if there && self.model.contains_key(&client) {
                    self.logged.insert(client);
                } else {
                    self.logged.remove(&client);
                }
            }
            Op::Wait(seconds) => self.now = self.now + Duration::from_secs(seconds),
            Op::Restart => self.restart(),
        }
        self.expire()
    }
}

/// Number of unconfirmed paths that cannot be evicted: their clients have just sent, or have updates in the log.
fn requests_that_stay(relay: &Relay) -> usize {
    let stays = |(client, known): &(&u8, &Known)| {
        known.unconfirmed.is_some()
            && (known.heard + LIMITS.settle > relay.now || relay.logged.contains(client))
    };
    relay.model.iter().filter(stays).count()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    /// Ports are assigned, confirmed, released and assigned again, through restarts: each to one client at a time, as
    /// in the model.
    #[test]
    fn ports_are_assigned_and_released_as_in_the_model(ops in prop::collection::vec(op(), 1..120)) {
        let mut relay = Relay::new();
        for op in ops {
            relay.play(op)?;
        }
        // In the end no packet arrives, the log is empty, and every port is released.
        relay.logged.clear();
        for _ in 0..3 {
            relay.play(Op::Wait(LIMITS.idle.as_secs()))?;
        }
        prop_assert!(relay.paths.is_empty() && relay.paths.next_timeout().is_none());
        prop_assert!(relay.paths.has_room(Opening::Request));
    }
}
