//! Responses beyond one window: kept, within a bound for all sessions, until their clients have fetched them.
//!
//! How they travel: `docs/format/pmnet.md`, "Long responses".

use super::Server;
use super::bypasses::Bypasses;
use super::context::Context;
use super::session::Session;
use crate::identity::SessionKey;
use crate::pieces::Response;
use crate::wire::{FIRST_BYPASS, Wanted};
use landfall_net::Instant;

/// A response, or that there is no room for it.
#[derive(Debug)]
pub(super) enum Reserved {
    /// To be sent, and kept.
    Kept(Response),
    /// The client will repeat the bypass.
    Postponed,
}

impl Reserved {
    /// Bytes of a response beyond one window; 0 for a shorter one.
    pub(super) fn long_bytes(&self, ctx: &Context) -> usize {
        match self {
            Self::Kept(response) if response.bytes.len() > ctx.sizes.response_window() => {
                response.bytes.len()
            }
            _ => 0,
        }
    }
}

/// The long response of a session: its newest one, as a client has one bypass at a time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Long {
    pub(super) number: u32,
    pub(super) bytes: usize,
    /// Whether the bypass may be executed again.
    pub(super) changed: bool,
    /// When the client was heard of it last.
    pub(super) asked: Instant,
}

impl Server {
    /// Makes room for a response, if it is long: those that nobody asks about any more go.
    pub(super) fn reserve(&mut self, key: SessionKey, response: Vec<u8>) -> Reserved {
        let (len, max) = (response.len(), self.ctx.config.responses_long_bytes_max);
        if len > self.ctx.sizes.response_window() {
            let own = self.table.live.get(&key).map_or(0, |session| session.listed.long);
            if self.ctx.long_bytes - own + len > max {
                self.drop_idle_responses();
            }
            let others =
                self.ctx.long_bytes - self.table.live.get(&key).map_or(0, |session| session.listed.long);
            // The only one is kept whatever the bound: its client would never get it.
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

    /// A client asks for a window of a response, or has it.
    pub(super) fn response_wanted(&mut self, key: SessionKey, seq: u32, wanted: Wanted) {
        self.ctx.stats.response_requests += 1;
        self.with(key, |session, ctx| session.response_wanted(seq, wanted, ctx));
    }
}

impl Session {
    /// Sends what a client asks for of a response that is still kept. One that is not is asked for by its bypass.
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
    /// Notes a long response.
    pub(super) fn note_long(&mut self, long: Long) {
        self.long = Some(long);
    }

    /// The client has all of a response, or wants no more of it: its bypass is not executed again.
    fn fetched(&mut self, number: u32, check: u32) {
        let is_it = |kept: &(u32, Response)| kept.0 == number && kept.1.check == check;
        if self.long.is_some_and(|long| long.number == number) && self.kept.iter().any(is_it) {
            self.forget_long();
        }
    }

    /// The response that is meant, long or not.
    fn window_of(&mut self, number: u32, check: u32, now: Instant) -> Option<&Response> {
        let (_, response) =
            self.kept.iter().find(|(kept, response)| *kept == number && response.check == check)?;
        if let Some(long) = self.long.as_mut().filter(|long| long.number == number) {
            long.asked = now;
        }
        Some(response)
    }

    /// The client has moved on, or has all of it.
    pub(super) fn forget_long(&mut self) {
        if let Some(long) = self.long.take() {
            self.remove_kept(long.number);
        }
    }

    /// The long response goes though its client may want it: the bypass is executed again, or its response is lost.
    pub(super) fn drop_long(&mut self) {
        if let Some(long) = self.long {
            self.forget_long();
            self.postpone(long.number, long.changed);
        }
    }

    /// There is no response to a bypass that was executed.
    pub(super) fn postpone(&mut self, number: u32, changed: bool) {
        self.busy.remove(&number);
        if changed {
            (self.before, self.answered) = (self.before.max(number), self.answered.max(number));
        } else {
            self.answered = self.answered.min(number - 1);
        }
    }
}
