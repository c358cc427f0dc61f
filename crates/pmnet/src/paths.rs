//! A relay's paths: which clients get a port towards the server, and when it is given back.
//!
//! A path begins with a session start, or with an update, and ends when it is no more of use: some time after its last session has ended, or when
//! nothing has been heard for long. One whose updates are in the log stays. A path that the server has not spoken for gives way to others.
//! What a removed path means for the log: `docs/format/pmnet.md`.

use crate::Instant;
use crate::wire::{FIRST_BYPASS, Header, Packet, kind};
use core::net::SocketAddr;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Most paths that are considered where one is to give way.
const CANDIDATES_MAX: usize = 64;

/// When paths are given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathLimits {
    /// After the last session has ended, or if none begins: longer than a packet is under way.
    pub linger: Duration,
    /// While there are sessions, or may be, and nothing is heard.
    pub idle: Duration,
    /// The same where no port is left for another client.
    pub pressed: Duration,
    /// A path that the server has not spoken for gives way to another client once its own has been silent for so long: longer than
    /// a packet is under way to the server, but for an unusual one.
    pub settle: Duration,
}

impl Default for PathLimits {
    fn default() -> Self {
        Self {
            linger: Duration::from_secs(10),
            idle: Duration::from_secs(86_400),
            pressed: Duration::from_secs(3600),
            settle: Duration::from_secs(1),
        }
    }
}

/// By what a client gets a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening {
    /// A session start.
    SessionStart,
    /// An update, or the first bypass of a client that sends no session start. A relay that takes the place of a lost one gets updates
    /// that other devices of its chain have acknowledged, of sessions that it has not seen begin; anybody else may send them, too.
    Request,
}

/// What becomes of a packet of a client that has no path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// The client gets a path, if there is one for it: [`Paths::has_room`].
    Opens(Opening),
    /// It belongs to a session that began elsewhere, if at all: the client is told that there is none.
    Refused {
        /// The session.
        session: u16,
        /// The packet's number.
        seq: u32,
    },
    /// It is dropped.
    Dropped,
}

/// What becomes of a packet of a client that has no path. Clients without a session start begin with number 0 or 1.
pub fn admission(payload: &[u8]) -> Admission {
    let Ok(Packet { header, .. }) = Packet::parse(payload) else { return Admission::Dropped };
    let Header { session, seq, .. } = header;
    match header.kind {
        kind::SESSION_START => Admission::Opens(Opening::SessionStart),
        kind::UPDATE | kind::UPDATE_FRAGMENT if seq < FIRST_BYPASS => Admission::Opens(Opening::Request),
        kind::BYPASS if seq <= 1 => Admission::Opens(Opening::Request),
        kind::SESSION_END if seq < FIRST_BYPASS => Admission::Refused { session, seq },
        kind::BYPASS | kind::ORDERED_BYPASS | kind::BYPASS_FRAGMENT => Admission::Refused { session, seq },
        _ => Admission::Dropped,
    }
}

/// Who vouches for a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// Nobody yet: it was opened by this.
    Opened(Opening),
    /// The server has taken a session or an update of it; or it is from before a restart, of which that is not known.
    Confirmed,
}

/// What is known of a path.
#[derive(Debug)]
struct Use {
    standing: Standing,
    opened: Instant,
    heard: Instant,
    /// When it is looked at: not later than it ends.
    due: Instant,
    /// Sessions that are open; `None` for a path from before a restart, of which that is not known.
    sessions: Option<BTreeSet<u16>>,
}

/// All paths of a relay, by client.
#[derive(Debug)]
pub struct Paths {
    limits: PathLimits,
    ports: usize,
    known: BTreeMap<SocketAddr, Use>,
    due: BTreeSet<(Instant, SocketAddr)>,
    /// Those that the server has not spoken for, by when they were opened.
    unconfirmed: BTreeSet<(Instant, SocketAddr)>,
    /// Of these, those that a request has opened.
    requests: usize,
}

impl Paths {
    /// None yet, of a relay with so many ports.
    pub fn new(limits: PathLimits, ports: usize) -> Self {
        Self {
            limits,
            ports,
            known: BTreeMap::new(),
            due: BTreeSet::new(),
            unconfirmed: BTreeSet::new(),
            requests: 0,
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// True without any.
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// Whether a client may get a path, where there is a port. Those that requests have opened, and that the server has not spoken for,
    /// may be as many as ports are free beside them: so junk always leaves ports for clients that begin a session.
    pub fn has_room(&self, opening: Opening) -> bool {
        opening == Opening::SessionStart || self.requests < self.ports.saturating_sub(self.known.len())
    }

    /// A client has got one.
    pub fn opened(&mut self, client: SocketAddr, opening: Opening, now: Instant) {
        self.insert(client, Standing::Opened(opening), Some(BTreeSet::new()), now);
    }

    /// A client has one from before a restart.
    pub fn restored(&mut self, client: SocketAddr, now: Instant) {
        self.insert(client, Standing::Confirmed, None, now);
    }

    fn insert(
        &mut self,
        client: SocketAddr,
        standing: Standing,
        sessions: Option<BTreeSet<u16>>,
        now: Instant,
    ) {
        self.remove(&client);
        let due = now + self.span(sessions.as_ref());
        self.known.insert(client, Use { standing, opened: now, heard: now, due, sessions });
        self.due.insert((due, client));
        if let Standing::Opened(opening) = standing {
            self.unconfirmed.insert((now, client));
            self.requests += usize::from(opening == Opening::Request);
        }
    }

    fn remove(&mut self, client: &SocketAddr) {
        self.confirm(client);
        if let Some(used) = self.known.remove(client) {
            self.due.remove(&(used.due, *client));
        }
    }

    fn confirm(&mut self, client: &SocketAddr) {
        let Some(used) = self.known.get_mut(client) else { return };
        if let Standing::Opened(opening) = std::mem::replace(&mut used.standing, Standing::Confirmed) {
            self.unconfirmed.remove(&(used.opened, *client));
            self.requests -= usize::from(opening == Opening::Request);
        }
    }

    /// For how long a path stays when nothing is heard.
    fn span(&self, sessions: Option<&BTreeSet<u16>>) -> Duration {
        match sessions {
            Some(sessions) if sessions.is_empty() => self.limits.linger,
            _ => self.limits.idle,
        }
    }

    /// A client has sent something.
    pub fn heard(&mut self, client: &SocketAddr, now: Instant) {
        if let Some(used) = self.known.get_mut(client) {
            used.heard = now;
        }
    }

    /// The server has sent a client something.
    pub fn told(&mut self, client: &SocketAddr, payload: &[u8], now: Instant) {
        let Some(used) = self.known.get_mut(client) else { return };
        used.heard = now;
        let (Ok(header), Some(sessions)) = (Header::parse(payload), &mut used.sessions) else { return };
        match header.kind {
            kind::SESSION_ENDED | kind::SESSION_REFUSED => {
                sessions.remove(&header.session);
                self.look_sooner(client);
            }
            kind::SESSION_STARTED | kind::SERVER_ACK | kind::RESPONSE => {
                sessions.insert(header.session);
                self.confirm(client);
            }
            _ => {}
        }
    }

    /// A path may end sooner than it was to be looked at.
    fn look_sooner(&mut self, client: &SocketAddr) {
        let Some(used) = self.known.get(client) else { return };
        let ends = used.heard + self.span(used.sessions.as_ref());
        if ends < used.due {
            self.look_at(*client, ends);
        }
    }

    fn look_at(&mut self, client: SocketAddr, at: Instant) {
        let Some(used) = self.known.get_mut(&client) else { return };
        self.due.remove(&(used.due, client));
        used.due = at;
        self.due.insert((at, client));
    }

    /// No port is left for another client, or no room: a path that the server has not spoken for ends, and is forgotten: the oldest one
    /// whose client is silent. `is_needed` as in [`Self::expired`].
    pub fn give_way(&mut self, now: Instant, is_needed: impl Fn(&SocketAddr) -> bool) -> Option<SocketAddr> {
        let settled = |client: &SocketAddr| {
            self.known.get(client).is_some_and(|used| used.heard + self.limits.settle <= now)
        };
        let oldest = self.unconfirmed.iter().take(CANDIDATES_MAX).map(|(_, client)| *client);
        let client = oldest.filter(settled).find(|client| !is_needed(client))?;
        self.remove(&client);
        Some(client)
    }

    /// No port is left for a client that begins a session: the path of which nothing was heard for longest ends, and is forgotten, if
    /// that is long enough, whoever has spoken for it. Looks at all of them. `is_needed` as in [`Self::expired`].
    pub fn give_up(&mut self, now: Instant, is_needed: impl Fn(&SocketAddr) -> bool) -> Option<SocketAddr> {
        let silent = self.known.iter().filter(|(_, used)| used.heard + self.limits.pressed <= now);
        let (_, client) = silent
            .map(|(client, used)| (used.heard, *client))
            .filter(|(_, client)| !is_needed(client))
            .min()?;
        self.remove(&client);
        Some(client)
    }

    /// When [`Self::expired`] may have something.
    pub fn next_timeout(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }

    /// A path that has ended, and is forgotten. `is_needed` says whether something of a client is in the log.
    pub fn expired(&mut self, now: Instant, is_needed: impl Fn(&SocketAddr) -> bool) -> Option<SocketAddr> {
        while let Some((_, client)) = self.due.first().filter(|(at, _)| *at <= now).copied() {
            let used = self.known.get(&client)?;
            let ends = used.heard + self.span(used.sessions.as_ref());
            if ends > now {
                self.look_at(client, ends);
            } else if is_needed(&client) {
                self.look_at(client, now + self.limits.linger);
            } else {
                self.remove(&client);
                return Some(client);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Body, Fragment, Refusal, Start};

    const SECOND: Duration = Duration::from_secs(1);

    fn client(number: u16) -> SocketAddr {
        ([10, 0, 0, 1], number).into()
    }

    fn packet(session: u16, seq: u32, body: Body<'_>) -> Vec<u8> {
        Packet::new(session, seq, body).to_bytes()
    }

    fn started(session: u16) -> Vec<u8> {
        let (first_update, first_bypass) = (1, FIRST_BYPASS);
        packet(
            session,
            0,
            Body::SessionStarted { nonce: 1, first_update, first_bypass, incarnation: 1, lease: 0 },
        )
    }

    fn at(seconds: u64) -> Instant {
        Instant::default() + SECOND * seconds as u32
    }

    #[test]
    fn session_starts_and_updates_open_a_path() {
        let refused = |session, seq| Admission::Refused { session, seq };
        let (start, request) = (Admission::Opens(Opening::SessionStart), Admission::Opens(Opening::Request));
        let fragment = Fragment { index: 1, count: 3, total: 9 };
        for (bytes, expected) in [
            (packet(7, 0, Body::SessionStart { nonce: 1, asks: Start::Plain }), start),
            (packet(7, 0, Body::Update(b"first")), request),
            (packet(7, 2, Body::Update(b"of a session that a lost relay has seen begin")), request),
            (packet(7, 2, Body::UpdateFragment(fragment, b"xyz")), request),
            (packet(7, FIRST_BYPASS, Body::Update(b"no number of an update")), Admission::Dropped),
            (packet(7, 0, Body::Bypass { after: None, request: b"" }), request),
            (packet(7, FIRST_BYPASS, Body::Bypass { after: None, request: b"" }), refused(7, FIRST_BYPASS)),
            (packet(7, 3, Body::SessionEnd), refused(7, 3)),
            (packet(7, 3, Body::ServerAck), Admission::Dropped),
            (vec![kind::SESSION_START; 20], Admission::Dropped),
            (b"junk".to_vec(), Admission::Dropped),
        ] {
            assert_eq!(admission(&bytes), expected, "{bytes:?}");
        }
    }

    #[test]
    fn a_path_ends_some_time_after_its_last_session() {
        let mut paths = Paths::new(PathLimits::default(), 100);
        paths.opened(client(1), Opening::SessionStart, at(0));
        paths.told(&client(1), &started(7), at(1));
        paths.told(&client(1), &started(8), at(1));
        paths.told(&client(1), &packet(7, 0, Body::SessionEnded), at(2));
        assert_eq!(paths.expired(at(3000), |_| false), None, "session 8 is open");
        paths.told(&client(1), &packet(8, 0, Body::SessionRefused(Refusal::Unknown)), at(3000));
        assert_eq!(paths.expired(at(3009), |_| false), None);
        assert_eq!(paths.expired(at(3010), |_| true), None, "its updates are in the log");
        assert_eq!(paths.expired(at(3020), |_| false), Some(client(1)));
        assert!(paths.is_empty() && paths.next_timeout().is_none());
    }

    #[test]
    fn one_that_no_session_uses_ends_soon_and_one_that_is_silent_late() {
        let mut paths = Paths::new(PathLimits::default(), 100);
        paths.opened(client(1), Opening::SessionStart, at(0));
        paths.opened(client(2), Opening::SessionStart, at(0));
        paths.restored(client(3), at(0));
        paths.told(&client(2), &started(7), at(5));
        paths.heard(&client(1), at(9));
        assert_eq!(paths.expired(at(18), |_| false), None);
        assert_eq!(paths.expired(at(19), |_| false), Some(client(1)));
        assert_eq!(paths.expired(at(86_399), |_| false), None);
        assert_eq!(paths.expired(at(86_405), |_| false), Some(client(3)));
        assert_eq!(paths.expired(at(86_405), |_| false), Some(client(2)));
    }

    #[test]
    fn where_no_port_is_left_the_one_that_is_silent_for_longest_gives_its_own() {
        let mut paths = Paths::new(PathLimits::default(), 100);
        (1..=3).for_each(|number| paths.restored(client(number), at(0)));
        paths.heard(&client(1), at(5));
        paths.heard(&client(3), at(10));
        assert_eq!(paths.give_up(at(3599), |_| false), None);
        assert_eq!(paths.give_up(at(3607), |needed| *needed == client(2)), Some(client(1)));
        assert_eq!(paths.give_up(at(3607), |needed| *needed == client(2)), None);
        assert_eq!(paths.len(), 2);
    }

    #[test]
    fn requests_that_no_server_has_spoken_for_leave_half_of_the_ports() {
        let mut paths = Paths::new(PathLimits::default(), 10);
        let mut opened = 0;
        while paths.has_room(Opening::Request) {
            opened += 1;
            paths.opened(client(opened), Opening::Request, at(0));
        }
        assert_eq!((opened, paths.has_room(Opening::SessionStart)), (5, true));
        // One that the server has spoken for makes room for another.
        paths.told(&client(1), &packet(7, 1, Body::ServerAck), at(0));
        assert!(paths.has_room(Opening::Request));
        // A refusal does not speak for anybody.
        paths.told(&client(2), &packet(7, 1, Body::SessionRefused(Refusal::Unknown)), at(0));
        paths.opened(client(6), Opening::Request, at(0));
        assert!(!paths.has_room(Opening::Request));
    }

    #[test]
    fn paths_that_no_server_has_spoken_for_give_way_the_oldest_first() {
        let mut paths = Paths::new(PathLimits::default(), 4);
        (1..=4).for_each(|number| paths.opened(client(number), Opening::Request, at(u64::from(number))));
        paths.told(&client(1), &started(7), at(5));
        paths.heard(&client(2), at(9));
        assert_eq!(paths.give_way(at(9), |needed| *needed == client(3)), Some(client(4)));
        assert_eq!(paths.give_way(at(9), |needed| *needed == client(3)), None, "2 was heard just now");
        assert_eq!(paths.give_way(at(10), |_| false), Some(client(2)));
        assert_eq!(paths.give_way(at(10), |_| false), Some(client(3)));
        assert_eq!(paths.give_way(at(3000), |_| false), None, "the server has spoken for 1");
        assert_eq!(paths.expired(at(90_000), |_| false), Some(client(1)));
        assert!(paths.has_room(Opening::Request) && paths.is_empty());
    }
}
