//! A relay's paths: which clients get a port towards the server, and when the port is released.
//!
//! A path begins with a session start or with an update. It ends some time after its client's last session has
//! ended, or when nothing has been received for a long time. A path whose client has updates in the log stays. A
//! path that the server has not confirmed can be evicted. What a removed path means for the log:
//! `docs/format/pmnet.md`.

use crate::wire::{Body, FIRST_BYPASS, Header, Packet, Refusal, kind};
use core::net::SocketAddr;
use landfall_net::Instant;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Unbounded};
use std::time::Duration;

/// Most paths that an eviction examines.
const CANDIDATES_MAX: usize = 64;
/// Most sessions of a path that are known to have ended.
const ENDED_MAX: usize = 1024;

/// When paths are released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathLimits {
    /// Lifetime after the last session has ended, or if none begins. Longer than a packet is in the network.
    pub linger: Duration,
    /// Lifetime without any packet while the client has sessions, or may have some.
    pub idle: Duration,
    /// Lifetime without any packet while the client has sessions, if no port is left for another client.
    pub pressed: Duration,
    /// An unconfirmed path can be evicted when its client has been silent for this time. Nearly every packet reaches
    /// the server faster.
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

/// The kind of packet for which a client gets a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening {
    /// A session start.
    SessionStart,
    /// An update, or the first bypass of a client that sends no session start. A relay that replaces a lost one
    /// receives updates of sessions whose start it has not seen, and which other devices of its chain may have
    /// acknowledged. But anybody else may send such packets, too.
    Request,
}

fn is_in_use(payload: &[u8]) -> bool {
    Packet::parse(payload).is_ok_and(|packet| packet.body == Body::SessionRefused(Refusal::InUse))
}

/// The header of an update whose client began its session with a session start.
fn native_update(payload: &[u8]) -> Option<Header> {
    let header = Packet::parse(payload).ok()?.header;
    let is_update = matches!(header.kind, kind::UPDATE | kind::UPDATE_FRAGMENT) && header.seq < FIRST_BYPASS;
    Some(header).filter(|header| is_update && !header.is_foreign())
}

/// What the relay does with a packet of a client that has no path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// The client gets a path, if [`Paths::has_room`].
    Opens(Opening),
    /// The packet belongs to a session that began elsewhere, or never. The client is told that there is no such
    /// session.
    Refused {
        /// The session.
        session: u16,
        /// The packet's number.
        seq: u32,
    },
    /// The packet is dropped.
    Dropped,
}

/// Decides what happens to a packet of a client that has no path. Clients without a session start begin with number
/// 0 or 1.
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

/// A path that has been removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone {
    /// Its client.
    pub client: SocketAddr,
    /// The server may have sessions of the client, which it knows by the path's port.
    pub may_have_sessions: bool,
}

/// Whether the server has confirmed a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// Not yet. The path was opened for this kind of packet.
    Opened(Opening),
    /// The server has accepted a session or an update of the path. Paths from before a restart count as confirmed,
    /// because it is not known.
    Confirmed,
}

/// The sessions of a path's client, as the server's packets tell.
#[derive(Debug, Default)]
struct Sessions {
    open: BTreeSet<u16>,
    /// Sessions that have ended, and when. Copies of their updates may still come, and the server acknowledges them.
    ended: BTreeMap<u16, Instant>,
}

impl Sessions {
    fn end(&mut self, session: u16, now: Instant, linger: Duration) {
        self.open.remove(&session);
        if self.ended.len() >= ENDED_MAX {
            self.ended.retain(|_, at| *at + linger > now);
        }
        if self.ended.len() < ENDED_MAX {
            self.ended.insert(session, now);
        }
    }

    fn begin_or_continue(&mut self, session: u16) {
        self.ended.remove(&session);
        self.open.insert(session);
    }

    /// Whether the server's packet answers a late copy, or comes late itself: its session has ended. Only a *session
    /// started* begins another one with that name, or a *response* to an update: such sessions have no start.
    fn is_late(&self, header: &Header) -> bool {
        let may_be_late = match header.kind {
            kind::SERVER_ACK => true,
            kind::RESPONSE => header.seq >= FIRST_BYPASS,
            _ => false,
        };
        may_be_late && self.ended.contains_key(&header.session)
    }
}

/// The state of a path.
#[derive(Debug)]
struct Use {
    standing: Standing,
    opened: Instant,
    heard: Instant,
    /// When the path is checked for its end. It does not end later without a packet.
    due: Instant,
    /// The client's sessions; `None` for a path from before a restart, of which they are not known.
    sessions: Option<Sessions>,
}

/// All paths of a relay, by client.
#[derive(Debug)]
pub struct Paths {
    limits: PathLimits,
    ports: usize,
    known: BTreeMap<SocketAddr, Use>,
    due: BTreeSet<(Instant, SocketAddr)>,
    /// Unconfirmed paths, by the time when they were opened.
    unconfirmed: BTreeSet<(Instant, SocketAddr)>,
    /// Number of unconfirmed paths that requests have opened.
    requests: usize,
    /// The last path that an eviction has examined in vain. The next one begins behind it.
    examined: Option<(Instant, SocketAddr)>,
    /// A path was removed whose client may have had sessions.
    has_forgotten: bool,
}

impl Paths {
    /// No paths yet, for a relay with this number of ports.
    pub fn new(limits: PathLimits, ports: usize) -> Self {
        Self {
            limits,
            ports,
            known: BTreeMap::new(),
            due: BTreeSet::new(),
            unconfirmed: BTreeSet::new(),
            requests: 0,
            examined: None,
            has_forgotten: false,
        }
    }

    /// A path was removed whose client may have had sessions ([`Gone::may_have_sessions`]). From another port the server
    /// knows nothing of them: their updates must not be acknowledged. The relay knows this durably before it removes the
    /// path for good.
    pub fn set_forgotten(&mut self) {
        self.has_forgotten = true;
    }

    /// What the relay does with a packet of a client that has no path. As [`admission`], but a relay that has forgotten
    /// sessions takes an update for one of these.
    pub fn admission(&self, payload: &[u8]) -> Admission {
        match native_update(payload).filter(|_| self.has_forgotten) {
            Some(Header { session, seq, .. }) => Admission::Refused { session, seq },
            None => admission(payload),
        }
    }

    /// Session and number of an update of a session that may have begun on an earlier path of the client: the server has
    /// not spoken of it here. The client is told that there is no such session.
    pub fn forgotten_session(&self, client: &SocketAddr, payload: &[u8]) -> Option<(u16, u32)> {
        let sessions = self.known.get(client).filter(|_| self.has_forgotten)?.sessions.as_ref()?;
        let Header { session, seq, .. } = native_update(payload)?;
        (!sessions.open.contains(&session)).then_some((session, seq))
    }

    /// Number of paths.
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// True if there are no paths.
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// Whether a client may get a path, provided that a port is free. Unconfirmed paths that requests have opened
    /// may be at most as many as free ports remain. So bogus requests always leave ports for clients that begin a
    /// session.
    pub fn has_room(&self, opening: Opening) -> bool {
        opening == Opening::SessionStart || self.requests < self.ports.saturating_sub(self.known.len())
    }

    /// Adds the path of a client.
    pub fn opened(&mut self, client: SocketAddr, opening: Opening, now: Instant) {
        self.insert(client, Standing::Opened(opening), Some(Sessions::default()), now);
    }

    /// Adds the path of a client from before a restart.
    pub fn restored(&mut self, client: SocketAddr, now: Instant) {
        self.insert(client, Standing::Confirmed, None, now);
    }

    fn insert(&mut self, client: SocketAddr, standing: Standing, sessions: Option<Sessions>, now: Instant) {
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

    /// How long a path lives without any packet.
    fn span(&self, sessions: Option<&Sessions>) -> Duration {
        match sessions {
            Some(sessions) if sessions.open.is_empty() => self.limits.linger,
            _ => self.limits.idle,
        }
    }

    /// Notes that a client has sent a packet.
    pub fn client_sent(&mut self, client: &SocketAddr, now: Instant) {
        if let Some(used) = self.known.get_mut(client) {
            used.heard = now;
        }
    }

    /// Notes that the server has sent a packet to a client.
    pub fn server_sent(&mut self, client: &SocketAddr, payload: &[u8], now: Instant) {
        let Some(used) = self.known.get_mut(client) else { return };
        used.heard = now;
        let (Ok(header), Some(sessions)) = (Header::parse(payload), &mut used.sessions) else { return };
        match header.kind {
            // The number is that of a session that goes on.
            kind::SESSION_REFUSED if is_in_use(payload) => {}
            kind::SESSION_ENDED => {
                sessions.end(header.session, now, self.limits.linger);
                self.check_sooner(client);
            }
            // One that is refused because the server has lost updates of it may continue.
            kind::SESSION_REFUSED => {
                sessions.open.remove(&header.session);
                self.check_sooner(client);
            }
            _ if sessions.is_late(&header) => {}
            kind::SESSION_STARTED | kind::SERVER_ACK | kind::RESPONSE => {
                sessions.begin_or_continue(header.session);
                self.confirm(client);
            }
            _ => {}
        }
    }

    /// Checks a path earlier than planned if it now ends earlier.
    fn check_sooner(&mut self, client: &SocketAddr) {
        let Some(used) = self.known.get(client) else { return };
        let ends = used.heard + self.span(used.sessions.as_ref());
        if ends < used.due {
            self.check_at(*client, ends);
        }
    }

    fn check_at(&mut self, client: SocketAddr, at: Instant) {
        let Some(used) = self.known.get_mut(&client) else { return };
        self.due.remove(&(used.due, client));
        used.due = at;
        self.due.insert((at, client));
    }

    /// Removes the oldest unconfirmed path whose client is silent, because another client needs its port or its
    /// place. `is_needed` as in [`Self::expired`].
    ///
    /// A call examines 64 paths at most. If it finds none to remove, the next call continues behind them, so that
    /// old paths that must stay do not keep younger ones from being removed.
    pub fn evict_unconfirmed(
        &mut self,
        now: Instant,
        is_needed: impl Fn(&SocketAddr) -> bool,
    ) -> Option<SocketAddr> {
        let settled = |client: &SocketAddr| {
            self.known.get(client).is_some_and(|used| used.heard + self.limits.settle <= now)
        };
        let from = self.examined.filter(|_| self.unconfirmed.len() > CANDIDATES_MAX);
        let behind = (from.map_or(Unbounded, Excluded), Unbounded);
        let before = from.into_iter().flat_map(|from| self.unconfirmed.range(..=from));
        let mut examined = self.unconfirmed.range(behind).chain(before).take(CANDIDATES_MAX).copied();
        let mut last = None;
        let found = examined.by_ref().inspect(|path| last = Some(*path));
        let found = found.map(|(_, client)| client).find(|client| settled(client) && !is_needed(client));
        match found {
            Some(client) => self.remove(&client),
            None => self.examined = last,
        }
        found
    }

    /// Removes the path without packets for the longest time, confirmed or not, because a client that begins a
    /// session needs a port. `None` if no path has been silent for [`PathLimits::pressed`]. Examines all paths.
    /// `is_needed` as in [`Self::expired`].
    pub fn evict_idle(&mut self, now: Instant, is_needed: impl Fn(&SocketAddr) -> bool) -> Option<Gone> {
        let silent = self.known.iter().filter(|(_, used)| used.heard + self.limits.pressed <= now);
        let (_, client) = silent
            .map(|(client, used)| (used.heard, *client))
            .filter(|(_, client)| !is_needed(client))
            .min()?;
        self.remove_known(client)
    }

    fn remove_known(&mut self, client: SocketAddr) -> Option<Gone> {
        let sessions = self.known.get(&client)?.sessions.as_ref();
        let may_have_sessions = sessions.is_none_or(|sessions| !sessions.open.is_empty());
        self.remove(&client);
        Some(Gone { client, may_have_sessions })
    }

    /// When [`Self::expired`] may next return a path.
    pub fn next_timeout(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Removes a path that has ended and returns its client. `is_needed` says whether the log has updates of a
    /// client.
    pub fn expired(&mut self, now: Instant, is_needed: impl Fn(&SocketAddr) -> bool) -> Option<Gone> {
        while let Some((_, client)) = self.due.first().filter(|(at, _)| *at <= now).copied() {
            let used = self.known.get(&client)?;
            let ends = used.heard + self.span(used.sessions.as_ref());
            if ends > now {
                self.check_at(client, ends);
            } else if is_needed(&client) {
                self.check_at(client, now + self.limits.linger);
            } else {
                return self.remove_known(client);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Fragment, Start};

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

    fn expired(
        paths: &mut Paths,
        now: Instant,
        is_needed: impl Fn(&SocketAddr) -> bool,
    ) -> Option<SocketAddr> {
        paths.expired(now, is_needed).map(|gone| gone.client)
    }

    fn evict_idle(
        paths: &mut Paths,
        now: Instant,
        is_needed: impl Fn(&SocketAddr) -> bool,
    ) -> Option<SocketAddr> {
        paths.evict_idle(now, is_needed).map(|gone| gone.client)
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
    fn a_relay_that_has_forgotten_sessions_takes_no_update_for_one_that_it_has_not_seen_begin() {
        let mut paths = Paths::new(PathLimits::default(), 100);
        let update = |session| packet(session, 5, Body::Update(b"x"));
        for (number, has_sessions) in [(1, false), (2, true)] {
            paths.opened(client(number), Opening::SessionStart, at(0));
            paths.server_sent(&client(number), &started(7), at(0));
            if !has_sessions {
                paths.server_sent(&client(number), &packet(7, 0, Body::SessionEnded), at(0));
            }
        }
        let gone = |number, may_have_sessions| Some(Gone { client: client(number), may_have_sessions });
        assert_eq!(paths.expired(at(10), |_| false), gone(1, false));
        assert_eq!(paths.admission(&update(7)), Admission::Opens(Opening::Request));
        assert_eq!(paths.expired(at(90_000), |_| false), gone(2, true));
        paths.set_forgotten();
        assert_eq!(paths.admission(&update(7)), Admission::Refused { session: 7, seq: 5 });
        let begin = packet(8, 0, Body::SessionStart { nonce: 1, asks: Start::Plain });
        assert_eq!(paths.admission(&begin), Admission::Opens(Opening::SessionStart));
        paths.opened(client(2), Opening::SessionStart, at(90_000));
        paths.server_sent(&client(2), &started(8), at(90_000));
        assert_eq!(paths.forgotten_session(&client(2), &update(7)), Some((7, 5)));
        assert_eq!(paths.forgotten_session(&client(2), &update(8)), None);
        paths.restored(client(3), at(90_000));
        assert_eq!(paths.forgotten_session(&client(3), &update(7)), None, "nobody knows its sessions");
    }

    #[test]
    fn a_path_ends_some_time_after_its_last_session() {
        let mut paths = Paths::new(PathLimits::default(), 100);
        paths.opened(client(1), Opening::SessionStart, at(0));
        paths.server_sent(&client(1), &started(7), at(1));
        paths.server_sent(&client(1), &started(8), at(1));
        paths.server_sent(&client(1), &packet(7, 0, Body::SessionEnded), at(2));
        assert_eq!(expired(&mut paths, at(3000), |_| false), None, "session 8 is open");
        paths.server_sent(&client(1), &packet(8, 0, Body::SessionRefused(Refusal::Unknown)), at(3000));
        assert_eq!(expired(&mut paths, at(3009), |_| false), None);
        assert_eq!(expired(&mut paths, at(3010), |_| true), None, "its updates are in the log");
        assert_eq!(expired(&mut paths, at(3020), |_| false), Some(client(1)));
        assert!(paths.is_empty() && paths.next_timeout().is_none());
    }

    #[test]
    fn what_the_server_says_of_a_session_behind_its_end_does_not_keep_the_path() {
        let mut paths = Paths::new(PathLimits::default(), 100);
        for (number, late) in
            [(1, packet(7, 4, Body::ServerAck)), (2, packet(7, FIRST_BYPASS, Body::Response(b"late")))]
        {
            paths.opened(client(number), Opening::SessionStart, at(0));
            paths.server_sent(&client(number), &started(7), at(1));
            paths.server_sent(&client(number), &packet(7, 4, Body::SessionEnded), at(2));
            paths.server_sent(&client(number), &late, at(3));
            assert_eq!(expired(&mut paths, at(12), |_| false), None);
            let gone = Some(Gone { client: client(number), may_have_sessions: false });
            assert_eq!(paths.expired(at(13), |_| false), gone, "{late:?}");
        }
        // Other sessions have the number: one that begins with a session start, and one that does not.
        let response = packet(7, 0, Body::Response(b""));
        for (number, begins) in [(3, started(7)), (4, response)] {
            paths.opened(client(number), Opening::SessionStart, at(20));
            paths.server_sent(&client(number), &packet(7, 4, Body::SessionEnded), at(20));
            paths.server_sent(&client(number), &begins, at(21));
            paths.server_sent(&client(number), &packet(7, 5, Body::ServerAck), at(22));
        }
        assert_eq!(paths.expired(at(3000), |_| false), None);
    }

    #[test]
    fn what_is_known_of_sessions_that_have_ended_is_bounded() {
        let mut paths = Paths::new(PathLimits::default(), 100);
        paths.opened(client(1), Opening::SessionStart, at(0));
        for session in 0..5000 {
            let now = at(u64::from(session) / 100);
            paths.server_sent(&client(1), &started(session), now);
            paths.server_sent(&client(1), &packet(session, 4, Body::SessionEnded), now);
            let ended = &paths.known[&client(1)].sessions.as_ref().unwrap().ended;
            assert!(ended.len() <= ENDED_MAX && ended.contains_key(&session), "{session}");
        }
        assert_eq!(expired(&mut paths, at(60), |_| false), Some(client(1)));
    }

    #[test]
    fn a_path_without_sessions_ends_soon_and_a_silent_one_late() {
        let mut paths = Paths::new(PathLimits::default(), 100);
        paths.opened(client(1), Opening::SessionStart, at(0));
        paths.opened(client(2), Opening::SessionStart, at(0));
        paths.restored(client(3), at(0));
        paths.server_sent(&client(2), &started(7), at(5));
        paths.client_sent(&client(1), at(9));
        assert_eq!(expired(&mut paths, at(18), |_| false), None);
        assert_eq!(expired(&mut paths, at(19), |_| false), Some(client(1)));
        assert_eq!(expired(&mut paths, at(86_399), |_| false), None);
        assert_eq!(expired(&mut paths, at(86_405), |_| false), Some(client(3)));
        assert_eq!(expired(&mut paths, at(86_405), |_| false), Some(client(2)));
    }

    #[test]
    fn without_free_ports_the_path_that_is_silent_for_longest_is_evicted() {
        let mut paths = Paths::new(PathLimits::default(), 100);
        (1..=3).for_each(|number| paths.restored(client(number), at(0)));
        paths.client_sent(&client(1), at(5));
        paths.client_sent(&client(3), at(10));
        assert_eq!(evict_idle(&mut paths, at(3599), |_| false), None);
        assert_eq!(evict_idle(&mut paths, at(3607), |needed| *needed == client(2)), Some(client(1)));
        assert_eq!(evict_idle(&mut paths, at(3607), |needed| *needed == client(2)), None);
        assert_eq!(paths.len(), 2);
    }

    #[test]
    fn unconfirmed_requests_leave_half_of_the_ports() {
        let mut paths = Paths::new(PathLimits::default(), 10);
        let mut opened = 0;
        while paths.has_room(Opening::Request) {
            opened += 1;
            paths.opened(client(opened), Opening::Request, at(0));
        }
        assert_eq!((opened, paths.has_room(Opening::SessionStart)), (5, true));
        // A confirmed path makes room for another.
        paths.server_sent(&client(1), &packet(7, 1, Body::ServerAck), at(0));
        assert!(paths.has_room(Opening::Request));
        // A refusal confirms no path.
        paths.server_sent(&client(2), &packet(7, 1, Body::SessionRefused(Refusal::Unknown)), at(0));
        paths.opened(client(6), Opening::Request, at(0));
        assert!(!paths.has_room(Opening::Request));
    }

    #[test]
    fn unconfirmed_paths_are_evicted_oldest_first() {
        let mut paths = Paths::new(PathLimits::default(), 4);
        (1..=4).for_each(|number| paths.opened(client(number), Opening::Request, at(u64::from(number))));
        paths.server_sent(&client(1), &started(7), at(5));
        paths.client_sent(&client(2), at(9));
        assert_eq!(paths.evict_unconfirmed(at(9), |needed| *needed == client(3)), Some(client(4)));
        assert_eq!(paths.evict_unconfirmed(at(9), |needed| *needed == client(3)), None, "2 has just sent");
        assert_eq!(paths.evict_unconfirmed(at(10), |_| false), Some(client(2)));
        assert_eq!(paths.evict_unconfirmed(at(10), |_| false), Some(client(3)));
        assert_eq!(paths.evict_unconfirmed(at(3000), |_| false), None, "1 is confirmed");
        assert_eq!(expired(&mut paths, at(90_000), |_| false), Some(client(1)));
        assert!(paths.has_room(Opening::Request) && paths.is_empty());
    }

    #[test]
    fn paths_that_must_stay_do_not_protect_younger_ones_from_eviction() {
        let stay = 2 * CANDIDATES_MAX as u16;
        let mut paths = Paths::new(PathLimits::default(), 1000);
        let opened = |number| at(if number <= stay { 1 } else { u64::from(number) });
        (1..=stay + 2).for_each(|number| paths.opened(client(number), Opening::SessionStart, opened(number)));
        let now = at(500);
        let mut evict = || (0..4).find_map(|_| paths.evict_unconfirmed(now, |needed| needed.port() <= stay));
        assert_eq!(evict(), Some(client(stay + 1)), "two calls find only paths that stay");
        assert_eq!(evict(), Some(client(stay + 2)));
        assert_eq!(evict(), None);
        let first = (0..4).find_map(|_| paths.evict_unconfirmed(now, |needed| *needed != client(1)));
        assert_eq!(first, Some(client(1)), "the search begins again");
    }
}
