//! Responses longer than one window. They are stored, within a limit for all sessions, until their clients have
//! fetched them.
//!
//! How they are transferred: `docs/format/pmnet.md`, "Long responses".

use super::bypasses::Bypasses;
use super::context::Context;
use super::long::{Long, Reserved};
use super::session::Session;
use super::state::Server;
use crate::identity::SessionKey;
use crate::pieces::Response;
use crate::wire::{FIRST_BYPASS, Wanted};
use landfall_net::Instant;

impl Server {
    /// Makes room for a long response by dropping long responses whose clients no longer request parts.
    pub(super) fn reserve(&mut self, key: SessionKey, response: Vec<u8>) -> Reserved {
        let (len, max) = (response.len(), self.ctx.config.responses_long_bytes_max);
        if len > self.ctx.sizes.response_window() {
            let own = self.table.live.get(&key).map_or(0, |session| session.listed.long);
            if self.ctx.long_bytes - own + len > max {
                self.drop_idle_responses();
            }
            let others =
                self.ctx.long_bytes - self.table.live.get(&key).map_or(0, |session| session.listed.long);
            // If it is the only long response it is stored beyond the limit, because its client would otherwise
            // never get it.
            if others > 0 && others + len > max {
                self.ctx.stats.responses_postponed += 1;
                return Reserved::Postponed;
            }
        }
        Reserved::Kept(self.ctx.sizes.response(response))
    }

    fn drop_idle_responses(&mut self) {
        let (now, idle) = (self.ctx.now, self.ctx.config.response_idle);
        let is_idle = |session: &Session| session.long().is_some_and(|long| long.asked + idle <= now);
        let live = self.table.live.iter().filter(|(_, session)| is_idle(session));
        for key in live.map(|(key, _)| *key).collect::<Vec<_>>() {
            self.with(key, |session, _| session.drop_long());
        }
    }

    /// Handles a client's request for a range of a response, or its message that it needs no more.
    pub(super) fn response_wanted(&mut self, key: SessionKey, seq: u32, wanted: Wanted) {
        self.ctx.stats.response_requests += 1;
        self.with(key, |session, ctx| session.response_wanted(seq, wanted, ctx));
    }
}

impl Session {
    /// Sends the requested range of a response, if the response is still stored. Otherwise the client repeats its
    /// bypass.
    fn response_wanted(&mut self, seq: u32, wanted: Wanted, ctx: &mut Context) {
        let number = seq | FIRST_BYPASS;
        if wanted.len == 0 {
            return self.bypasses().fetched(number, wanted.check);
        }
        let (to, session) = (self.address(), self.row().key.session);
        let Some(response) = self.bypasses().window_of(number, wanted.check, ctx.now) else { return };
        let range = wanted.offset as usize..wanted.offset as usize + wanted.len as usize;
        for bytes in ctx.sizes.parts(session, seq, response, range) {
            ctx.send_bytes(to, bytes);
        }
    }
}

impl Bypasses {
    /// Registers a long response.
    pub(super) fn note_long(&mut self, long: Long) {
        self.long = Some(long);
    }

    /// The client needs no more of a response. Its bypass is not executed again.
    fn fetched(&mut self, number: u32, check: u32) {
        let is_requested = |kept: &(u32, Response)| kept.0 == number && kept.1.check == check;
        if self.long.is_some_and(|long| long.number == number) && self.kept.iter().any(is_requested) {
            self.drop_fetched_long();
        }
    }

    /// The stored response with this number and check. Notes the request if it is the long one.
    fn window_of(&mut self, number: u32, check: u32, now: Instant) -> Option<&Response> {
        let (_, response) =
            self.kept.iter().find(|(kept, response)| *kept == number && response.check == check)?;
        if let Some(long) = self.long.as_mut().filter(|long| long.number == number) {
            long.asked = now;
        }
        Some(response)
    }

    /// Drops the long response, because the client has fetched it or has sent a later bypass.
    pub(super) fn drop_fetched_long(&mut self) {
        if let Some(long) = self.long.take() {
            self.remove_kept(long.number);
        }
    }

    /// Drops the long response although the client may still want it. The bypass is executed again or, if it has
    /// changed something, its response is lost.
    pub(super) fn drop_long(&mut self) {
        if let Some(long) = self.long {
            self.drop_fetched_long();
            self.postpone(long.number, long.changed);
        }
    }

    /// Marks a bypass that was executed as one without a stored response.
    pub(super) fn postpone(&mut self, number: u32, changed: bool) {
        self.busy.remove(&number);
        if changed {
            (self.lost, self.answered) = (number..=number, self.answered.max(number));
        } else {
            self.answered = self.answered.min(number - 1);
        }
    }
}
