//! A server's sessions. Each update is applied once and in order, and is acknowledged when it is committed.
//!
//! What a server does: `docs/format/pmnet.md`, "The server". The caller passes the time and each datagram to a
//! [`Server`], and asks it for work and for datagrams to send:
//!
//! 1. [`Server::handle_datagram`] for each datagram that has arrived, or [`Server::handle_timeout`].
//! 2. [`Server::poll_work`] until it returns `None`, or until there is enough work for one commit. After the commit,
//!    [`Server::committed`] or [`Server::respond`] for each piece of work; then ask for work again.
//! 3. [`Server::poll_transmit`] until it returns `None`.
//! 4. Wait, at most until [`Server::next_timeout`].
//!
//! After a crash a new [`Server`] needs only the committed rows and the floor.

mod behind;
mod bypasses;
mod config;
mod context;
mod foreign;
mod long;
mod order;
mod pause;
mod receive;
mod responses;
mod row;
mod session;
mod silence;
mod state;
mod table;
mod trouble;
mod watch;

pub use config::{ResponseTooLong, ServerConfig, ServerStats, Silence, Ticket, Work};
pub use row::{FLOOR_MAX, SessionRow};
pub use state::Server;
pub use trouble::Trouble;

use crate::wire::Body;
use context::Context;
use core::net::SocketAddr;
use landfall_net::Instant;
use session::Session;
use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;
use table::Table;

/// Sessions per millisecond that are asked to recover after a restart.
const RECOVERS_PER_MS: u64 = 256;

impl Server {
    /// A new incarnation, with the rows and the floor that earlier incarnations have committed. The first
    /// incarnation has no rows and the floor 0. The caller draws `incarnation` at random.
    ///
    /// An application with replicas passes only rows that all replicas have: the server confirms a row to devices,
    /// which then delete their copies.
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
            reported_no_room: None,
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

    /// Advances the time and runs the timers that are due.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.advance_clock(now);
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

    /// The next piece of work for the application. Work may be committed in the order in which it is handed out.
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

    /// Fills in the floor, also in rows that do not raise it: the stored floor may only rise.
    fn with_floor(&self, mut work: Work) -> Work {
        if let Work::Row { floor, .. } = &mut work {
            *floor = self.table.floor();
        }
        work
    }

    /// Reports that an update or a row is committed, in every way that the application requires.
    pub fn committed(&mut self, ticket: Ticket, now: Instant) {
        self.advance_clock(now);
        self.with(ticket.key, |session, ctx| session.committed(ticket.number, ctx));
    }

    /// Reports that a bypass is executed and, if it has `changed` something, committed with its row. The response is
    /// sent when all earlier work of the session is committed.
    ///
    /// # Errors
    /// [`ResponseTooLong`]: nothing was changed, and the application must respond otherwise. A response is never
    /// truncated.
    pub fn respond(
        &mut self,
        ticket: Ticket,
        response: impl Into<Vec<u8>>,
        changed: bool,
        now: Instant,
    ) -> Result<(), ResponseTooLong> {
        self.advance_clock(now);
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

    /// Most bytes of a response that the server accepts.
    pub fn response_max(&self) -> usize {
        self.ctx.config.response_bytes_max as usize
    }

    /// Reports that nothing of the work was applied, and that nothing will be. It is handed out again under another
    /// ticket. Work of the session that was handed out after it must not be applied either, and must be reported as
    /// failed; the session waits for that.
    pub fn failed(&mut self, ticket: Ticket) {
        self.with(ticket.key, |session, ctx| session.failed(ticket.number, ctx));
    }

    /// The next datagram and its destination. Server-ACKs come last: one for all updates that a session has
    /// committed.
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

    /// The server's counters.
    pub fn stats(&self) -> ServerStats {
        ServerStats { sessions: self.table.len() as u64, ..self.ctx.stats }
    }
}
