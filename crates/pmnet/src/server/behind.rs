//! Sessions whose application has lost what it had confirmed, and updates that nobody brings.
//!
//! What a server does then: `docs/format/pmnet.md`, "A server that has gone back".

use super::Server;
use super::context::Context;
use super::session::Session;
use crate::identity::SessionKey;
use crate::wire::{Body, FIRST_BYPASS, Refusal};

/// Most troubles that wait to be told; more are found again.
const TROUBLES_MAX: usize = 1024;

/// What an operator must know about a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Trouble {
    /// The application has lost updates that it had confirmed. The session is refused.
    Behind {
        /// Whose.
        key: SessionKey,
        /// The last update that the application has.
        applied: u32,
        /// The last one that was confirmed.
        confirmed: u32,
    },
    /// Updates have been asked for again and again, and nobody brings them.
    Missing {
        /// Whose.
        key: SessionKey,
        /// The first of them.
        first: u32,
    },
    /// A session was silent for long, no device held anything of it, and it was ended. No fault: told so that it can be looked up.
    Silent {
        /// Whose.
        key: SessionKey,
        /// The last update that was applied.
        applied: u32,
    },
    /// There is no room for the row of another session, and no row that may go.
    NoRoom {
        /// Who asked for it.
        key: SessionKey,
        /// Rows that there are.
        sessions: usize,
    },
}

impl Server {
    /// The application has lost updates of a session, up to and including one that it had confirmed.
    pub fn fall_behind(&mut self, key: SessionKey, confirmed: u32) {
        self.with(key, |session, ctx| session.fall_behind(confirmed, ctx));
    }

    /// The next thing to tell an operator.
    pub fn poll_trouble(&mut self) -> Option<Trouble> {
        self.ctx.troubles.pop_front()
    }

    /// A client knows that everything up to a number was confirmed.
    pub(super) fn confirmed(&mut self, key: SessionKey, seq: u32) {
        self.with(key, |session, ctx| {
            if (session.uncommitted()..FIRST_BYPASS).contains(&seq) {
                session.fall_behind(seq, ctx);
            }
        });
    }
}

impl Context {
    pub(super) fn tell(&mut self, trouble: Trouble) {
        if self.troubles.len() < TROUBLES_MAX {
            self.troubles.push_back(trouble);
        }
    }
}

impl Session {
    fn fall_behind(&mut self, confirmed: u32, ctx: &mut Context) {
        if self.behind.replace(confirmed.max(self.behind.unwrap_or(0))).is_none() {
            let (key, applied) = (self.row().key, self.row().update);
            ctx.tell(Trouble::Behind { key, applied, confirmed });
            self.refuse_behind(applied, ctx);
        }
    }

    /// Whether packets of the session are refused but for the updates that were confirmed: those would close the gap.
    pub(super) fn is_behind(&mut self) -> bool {
        let next = self.uncommitted();
        self.behind = self.behind.filter(|confirmed| *confirmed >= next);
        self.behind.is_some()
    }

    /// Tells client and devices, under the number of one of the session's packets.
    pub(super) fn refuse_behind(&self, seq: u32, ctx: &mut Context) {
        ctx.stats.refused += 1;
        ctx.send(self.address(), self.row().key.session, seq, Body::SessionRefused(Refusal::Behind));
    }

    /// Updates are missing for long; told once for each gap.
    pub(super) fn tell_missing(&mut self, first: u32, ctx: &mut Context) {
        if self.told_missing.replace(first) != Some(first) {
            ctx.tell(Trouble::Missing { key: self.row().key, first });
        }
    }
}
