//! Sessions whose application has lost confirmed updates, and updates that stay missing.
//!
//! What a server does in these cases: `docs/format/pmnet.md`, "A server that has gone back".

use super::context::Context;
use super::session::Session;
use super::state::Server;
use super::trouble::Trouble;
use crate::identity::SessionKey;
use crate::wire::{Body, FIRST_BYPASS, Refusal};

impl Server {
    /// Reports that the application has lost updates of a session, up to and including the update `confirmed`.
    pub fn fall_behind(&mut self, key: SessionKey, confirmed: u32) {
        self.with(key, |session, ctx| session.fall_behind(confirmed, ctx));
    }

    /// The next problem to report to the operator.
    pub fn poll_trouble(&mut self) -> Option<Trouble> {
        self.ctx.troubles.pop_front()
    }

    /// Handles a client's statement that every update up to `seq` was confirmed.
    pub(super) fn confirmed(&mut self, key: SessionKey, seq: u32) {
        self.with(key, |session, ctx| {
            if (session.uncommitted()..FIRST_BYPASS).contains(&seq) {
                session.fall_behind(seq, ctx);
            }
        });
    }
}

impl Session {
    fn fall_behind(&mut self, confirmed: u32, ctx: &mut Context) {
        if self.behind.replace(confirmed.max(self.behind.unwrap_or(0))).is_none() {
            let (key, applied) = (self.row().key, self.row().update);
            ctx.report(Trouble::Behind { key, applied, confirmed });
            self.refuse_behind(applied, ctx);
        }
    }

    /// Whether the session's packets are refused. Only lost updates that were confirmed are still accepted, because
    /// they close the gap.
    pub(super) fn is_behind(&mut self) -> bool {
        let next = self.uncommitted();
        self.behind = self.behind.filter(|confirmed| *confirmed >= next);
        self.behind.is_some()
    }

    /// Sends the refusal to the client and the devices. It carries `seq`, the number of one of the session's
    /// packets.
    pub(super) fn refuse_behind(&self, seq: u32, ctx: &mut Context) {
        ctx.stats.refused += 1;
        ctx.send(self.address(), self.row().key.session, seq, Body::SessionRefused(Refusal::Behind));
    }

    /// Reports that updates have been missing for long, once for each gap.
    pub(super) fn report_missing(&mut self, first: u32, ctx: &mut Context) {
        if self.reported_missing.replace(first) != Some(first) {
            ctx.report(Trouble::Missing { key: self.row().key, first });
        }
    }
}
