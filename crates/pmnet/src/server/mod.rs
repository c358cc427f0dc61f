//! A server's sessions: every update is applied once, in order; what is committed is acknowledged.
//!
//! What a server does: `docs/format/pmnet.md`, "The server". A [`Server`] is told the time and what arrives, and asked for
//! what the application is to do and what is to be sent:
//!
//! 1. [`Server::handle_datagram`] for all that has arrived, or [`Server::handle_timeout`];
//! 2. [`Server::poll_work`] until it returns `None`, or as many as one commit shall cover; once they are committed,
//!    [`Server::committed`] and [`Server::respond`] for each, and ask for work again;
//! 3. [`Server::poll_transmit`] until it returns `None`;
//! 4. then wait, no longer than until [`Server::next_timeout`].
//!
//! After a crash the rows that are committed, and the floor, are all that a new [`Server`] needs.

mod behind;
mod bypasses;
mod config;
mod context;
mod foreign;
mod long;
mod order;
mod pause;
mod receive;
mod row;
mod session;
mod silence;
mod table;

pub use behind::Trouble;
pub use config::{ResponseTooLong, ServerConfig, ServerStats, Ticket, Work};
pub use row::SessionRow;
pub use silence::Silence;

use crate::identity::SessionKey;
use crate::wire::Body;
use context::Context;
use core::net::SocketAddr;
use landfall_net::Instant;
use session::{Life, Session};
use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;
use table::Table;

/// Sessions that are asked to recover at once, per millisecond, after a restart.
const RECOVERS_PER_MS: u64 = 256;

/// All sessions of a server. See the [module](self) for how to drive it.
#[derive(Debug)]
pub struct Server {
    ctx: Context,
    table: Table,
    /// Sessions with work for the application, in turns.
    ready: VecDeque<SessionKey>,
    /// Sessions whose server-ACK is due.
    acks: VecDeque<SessionKey>,
    timers: BTreeSet<(Instant, SessionKey)>,
    /// When a session found no room, last.
    pressed_at: Option<Instant>,
    /// When that was told, last.
    told_no_room: Option<Instant>,
}

impl Server {
    /// A new incarnation, with the rows and the floor that those before it have committed; none and 0 for the first. The
    /// number is the caller's random draw.
    ///
    /// An application with replicas gives only rows that all of them have: a row is confirmed to devices, which then give up
    /// their copies.
    pub fn new(
        config: ServerConfig,
        incarnation: u64,
        rows: impl IntoIterator<Item = SessionRow>,
        floor: u32,
        now: Instant,
    ) -> Self {
        let mut server = Self {
            ctx: Context::new(config, incarnation, now),
            table: Table::new(floor),
            ready: VecDeque::new(),
            acks: VecDeque::new(),
            timers: BTreeSet::new(),
            pressed_at: None,
            told_no_room: None,
        };
        for (at, row) in (0..).zip(rows) {
            server.restore(row, now + Duration::from_millis(at / RECOVERS_PER_MS));
        }
        server
    }

    fn restore(&mut self, row: SessionRow, recover: Instant) {
        self.ctx.touched = self.ctx.touched.max(row.touched);
        if row.ended {
            self.table.keep(row);
        } else {
            let session = Session::restore(row, recover, &self.ctx);
            self.table.live.insert(row.key, Box::new(session));
            self.with(row.key, |_, _| ());
        }
    }

    /// Takes note that it is later.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.tell(now);
        while let Some((at, key)) = self.timers.first().copied()
            && at <= self.ctx.now
        {
            self.with(key, Session::handle_timeout);
        }
    }

    /// When [`Self::handle_timeout`] is due.
    pub fn next_timeout(&self) -> Option<Instant> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// The next piece of work for the application. The order in which work is handed out is one in which it may be
    /// committed.
    pub fn poll_work(&mut self) -> Option<Work> {
        while let Some(key) = self.ready.pop_front() {
            if let Some(session) = self.table.live.get_mut(&key) {
                session.listed.work = false;
            }
            if let Some(work) = self.with(key, Session::hand_out).flatten() {
                return Some(self.with_floor(work));
            }
        }
        None
    }

    /// The floor may only rise, also with rows that do not raise it.
    fn with_floor(&self, mut work: Work) -> Work {
        if let Work::Row { floor, .. } = &mut work {
            *floor = self.table.floor();
        }
        work
    }

    /// An update or a row, with all that the application requires of it, is committed.
    pub fn committed(&mut self, ticket: Ticket, now: Instant) {
        self.tell(now);
        self.with(ticket.key, |session, ctx| session.committed(ticket.number, ctx));
    }

    /// A bypass is executed, and committed with its row if it `changed` something. The response leaves once everything of
    /// the session in front of it is committed.
    ///
    /// # Errors
    /// [`ResponseTooLong`]: nothing is done, and the application responds otherwise. A client always gets a response whole.
    pub fn respond(
        &mut self,
        ticket: Ticket,
        response: impl Into<Vec<u8>>,
        changed: bool,
        now: Instant,
    ) -> Result<(), ResponseTooLong> {
        self.tell(now);
        let response: Vec<u8> = response.into();
        let (len, max) = (response.len(), self.response_max_of(&ticket.key));
        if len > max {
            self.ctx.stats.responses_too_long += 1;
            return Err(ResponseTooLong { len, max });
        }
        let reserved = self.reserve(ticket.key, response);
        self.with(ticket.key, |session, ctx| session.respond(ticket.number, reserved, changed, ctx));
        Ok(())
    }

    /// Most bytes of a response.
    pub fn response_max(&self) -> usize {
        self.ctx.config.response_bytes_max as usize
    }

    /// Nothing of the work was applied, nor will be: it will be handed out again under another ticket. What was handed out
    /// of the session behind it must not be applied either, and be reported as failed; until then the session waits.
    pub fn failed(&mut self, ticket: Ticket) {
        self.with(ticket.key, |session, ctx| session.failed(ticket.number, ctx));
    }

    /// The next datagram, and for whom. Server-ACKs come last, one for all that a session has committed.
    pub fn poll_transmit(&mut self) -> Option<(SocketAddr, Vec<u8>)> {
        loop {
            if let Some(datagram) = self.ctx.next_datagram() {
                return Some(datagram);
            }
            let key = self.acks.pop_front()?;
            let Some(session) = self.table.live.get_mut(&key) else { continue };
            session.listed.ack = false;
            if let Some(seq) = session.take_ack() {
                self.ctx.stats.server_acks += 1;
                self.ctx.send(session.address(), key.session, seq, Body::ServerAck);
            }
        }
    }

    /// What has been counted.
    pub fn stats(&self) -> ServerStats {
        ServerStats { sessions: self.table.len() as u64, ..self.ctx.stats }
    }

    fn tell(&mut self, now: Instant) {
        self.ctx.now = self.ctx.now.max(now);
    }

    /// Does something with a session that has not ended, and takes note of what it needs then. `None` without such a one.
    fn with<T>(&mut self, key: SessionKey, act: impl FnOnce(&mut Session, &mut Context) -> T) -> Option<T> {
        let session = self.table.live.get_mut(&key)?;
        let done = act(session, &mut self.ctx);
        let listed = &session.listed;
        let (was_listed, had_timer, had_bytes) = ((listed.work, listed.ack), listed.timer, listed.bytes);
        let had_long = listed.long;
        let (work, ack) = (session.has_work(), session.ack_due);
        session.listed.work |= work;
        session.listed.ack |= ack;
        (session.listed.timer, session.listed.bytes) = (session.deadline(), session.bytes());
        session.listed.long = session.long_bytes();
        let (timer, is_over) = (session.listed.timer, session.life != Life::Goes);
        self.ctx.buffered = self.ctx.buffered - had_bytes + session.listed.bytes;
        self.ctx.long_bytes = self.ctx.long_bytes - had_long + session.listed.long;
        if work && !was_listed.0 {
            self.ready.push_back(key);
        }
        if ack && !was_listed.1 {
            self.acks.push_back(key);
        }
        self.set_timer(key, had_timer, timer);
        if is_over {
            self.bury(key);
        }
        Some(done)
    }

    fn set_timer(&mut self, key: SessionKey, old: Option<Instant>, new: Option<Instant>) {
        if old != new {
            old.map(|at| self.timers.remove(&(at, key)));
            new.map(|at| self.timers.insert((at, key)));
        }
    }

    /// A session that is over leaves the live ones.
    fn bury(&mut self, key: SessionKey) {
        let Some(session) = self.take_session(key) else { return };
        let row = *session.row();
        match session.life {
            Life::NeverBegan(evicted) => self.table.put_back(evicted),
            Life::Goes | Life::Ended => self.table.keep(row),
        }
    }

    /// A session leaves the live ones, for another one to have its place: its row.
    fn drop_session(&mut self, key: SessionKey) -> Option<SessionRow> {
        self.take_session(key).map(|session| *session.row())
    }

    fn take_session(&mut self, key: SessionKey) -> Option<Box<Session>> {
        let session = self.table.live.remove(&key)?;
        self.set_timer(key, session.listed.timer, None);
        self.ctx.buffered -= session.listed.bytes;
        self.ctx.long_bytes -= session.listed.long;
        Some(session)
    }
}
