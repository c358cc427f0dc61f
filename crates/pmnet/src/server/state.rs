//! The state of a server, and what its parts share.

use super::context::Context;
use super::row::SessionRow;
use super::session::{Life, Session};
use super::table::Table;
use crate::identity::SessionKey;
use landfall_net::Instant;
use std::collections::{BTreeSet, VecDeque};

/// All sessions of a server. The [module](super) describes how to drive it.
#[derive(Debug)]
pub struct Server {
    pub(super) ctx: Context,
    pub(super) table: Table,
    /// Sessions with work for the application, in round-robin order.
    pub(super) ready: VecDeque<SessionKey>,
    /// Sessions whose server-ACK is to be sent.
    pub(super) acks: VecDeque<SessionKey>,
    pub(super) timers: BTreeSet<(Instant, SessionKey)>,
    /// When the sessions were last checked because there was no room for another one.
    pub(super) pressed_at: Option<Instant>,
    /// When the lack of room was last reported.
    pub(super) reported_no_room: Option<Instant>,
}

impl Server {
    pub(super) fn advance_clock(&mut self, now: Instant) {
        self.ctx.now = self.ctx.now.max(now);
    }

    /// Runs `act` on a session that has not ended, and updates the server's lists and timers afterwards. `None` if
    /// there is no such session.
    pub(super) fn with<T>(
        &mut self,
        key: SessionKey,
        act: impl FnOnce(&mut Session, &mut Context) -> T,
    ) -> Option<T> {
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
        let (timer, is_over) = (session.listed.timer, session.life != Life::Live);
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
            self.retire_session(key);
        }
        Some(done)
    }

    pub(super) fn set_timer(&mut self, key: SessionKey, old: Option<Instant>, new: Option<Instant>) {
        if old != new {
            old.map(|at| self.timers.remove(&(at, key)));
            new.map(|at| self.timers.insert((at, key)));
        }
    }

    /// Moves a session that is over from the live sessions to the ended ones.
    pub(super) fn retire_session(&mut self, key: SessionKey) {
        let Some(session) = self.take_session(key) else { return };
        let row = *session.row();
        match session.life {
            Life::NeverBegan(evicted) => self.table.put_back(evicted),
            Life::Live | Life::Ended => self.table.keep(row),
        }
    }

    /// Removes a live session to make room for another one, and returns its row.
    pub(super) fn drop_session(&mut self, key: SessionKey) -> Option<SessionRow> {
        self.take_session(key).map(|session| *session.row())
    }

    pub(super) fn take_session(&mut self, key: SessionKey) -> Option<Box<Session>> {
        let session = self.table.live.remove(&key)?;
        self.set_timer(key, session.listed.timer, None);
        self.ctx.buffered -= session.listed.bytes;
        self.ctx.long_bytes -= session.listed.long;
        Some(session)
    }
}
