//! Silent sessions. The server asks devices whether they hold updates of such a session, and ends it if they do not.
//!
//! The three steps, and why they lose no update and apply none twice: `docs/format/pmnet.md`, "Sessions that fall
//! silent".

use super::context::Context;
use super::pause::Pause;
use super::row::SessionRow;
use super::session::Session;
use super::state::Server;
use super::trouble::Trouble;
use super::watch::Asking;
use crate::identity::SessionKey;
use crate::wire::{Body, Role};
use std::collections::BTreeSet;
use std::time::Duration;

/// First and longest pause between two held requests about a session.
const ASK_FIRST: Duration = Duration::from_secs(1);
const ASK_MAX: Duration = Duration::from_secs(3600);
/// Pause before a silent session that still has work is checked again.
const CHECK_AGAIN: Duration = Duration::from_secs(1);
/// Pause between two reports that there is no room.
const TELL_EVERY: Duration = Duration::from_secs(60);
/// Pause between two checks of all sessions while there is no room for another one.
const PRESSED_EVERY: Duration = Duration::from_secs(1);

impl Session {
    /// Whether a packet comes from the session's client, or from a device that forwards or repeats the client's
    /// packets. A packet that a device sends for itself does not count; nor does the session start of another client
    /// that has drawn this session's number.
    pub(super) fn is_from_client(&self, body: &Body<'_>) -> bool {
        match body {
            Body::Held { .. } | Body::Heartbeat { role: Role::Device, .. } => false,
            Body::SessionStart { nonce, .. } => *nonce == self.row().nonce,
            _ => true,
        }
    }

    /// Checks the silence if the check is due.
    pub(super) fn watch_silence(&mut self, ctx: &mut Context) {
        if self.watch.due.is_some_and(|due| due <= ctx.now) {
            self.ask_if_silent(false, ctx);
        }
    }

    /// Asks devices whether they hold updates of the session, if it has been silent for long.
    fn ask_if_silent(&mut self, pressed: bool, ctx: &mut Context) {
        let lease = self.row().lease;
        let Some(silence) = ctx.config.silence.filter(|_| lease > 0) else {
            self.watch.due = None;
            return;
        };
        let was_asking = self.watch.asking.is_some();
        let end = self.watch.last_packet + silence.span(lease, pressed || was_asking);
        if end > ctx.now || !self.is_idle() {
            // A check for lack of room does not move the regular check.
            if !pressed {
                self.watch.due = Some(if end > ctx.now { end } else { ctx.now + CHECK_AGAIN });
            }
            return;
        }
        if silence.devices == 0 {
            self.watch.due = Some(ctx.now + CHECK_AGAIN);
            return self.end_by_silence(ctx);
        }
        self.ask(ctx);
    }

    fn ask(&mut self, ctx: &mut Context) {
        let fresh = || Asking {
            nonce: ctx.incarnation.rotate_left(7).wrapping_add(ctx.now.nanos()),
            pause: Pause::start(ctx.now, ASK_FIRST / 2),
            empty: BTreeSet::new(),
        };
        let asking = self.watch.asking.get_or_insert_with(fresh);
        if asking.pause.fires(ctx.now, ASK_MAX) {
            ctx.stats.held_requests += 1;
            let body = Body::HeldRequest { nonce: asking.nonce };
            ctx.send(self.address(), self.row().key.session, self.row().update, body);
        }
        self.watch.due = self.watch.asking.as_ref().and_then(|asking| asking.pause.at());
    }

    /// Handles a device's report of how many updates of the session it holds.
    pub(super) fn held(&mut self, nonce: u64, number: u8, count: u32, ctx: &mut Context) {
        let Some(silence) = ctx.config.silence else { return };
        let Some(asking) = self.watch.asking.as_mut().filter(|asking| asking.nonce == nonce) else { return };
        if count > 0 {
            ctx.stats.held_by_devices += 1;
            asking.empty.remove(&number);
            return;
        }
        asking.empty.insert(number);
        if asking.empty.len() >= usize::from(silence.devices) && self.is_idle() {
            self.watch.asking = None;
            self.watch.due = Some(ctx.now + CHECK_AGAIN);
            self.end_by_silence(ctx);
        }
    }
}

impl Server {
    /// Handles the lack of room for another session: reports it from time to time, and checks for sessions that have
    /// been silent for half the usual time. Checks all sessions, at most once a second.
    pub(super) fn handle_no_room(&mut self, refused: SessionKey) {
        let now = self.ctx.now;
        if self.reported_no_room.is_none_or(|at| now.since(at) >= TELL_EVERY) {
            self.reported_no_room = Some(now);
            self.ctx.report(Trouble::NoRoom { key: refused, sessions: self.table.len() });
        }
        if self.ctx.config.silence.is_none()
            || self.pressed_at.is_some_and(|at| now.since(at) < PRESSED_EVERY)
        {
            return;
        }
        self.pressed_at = Some(now);
        for key in self.table.live.keys().copied().collect::<Vec<_>>() {
            self.with(key, |session, ctx| {
                if session.watch.asking.is_none() {
                    session.ask_if_silent(true, ctx);
                }
            });
        }
    }
}

impl Context {
    /// Reports that a session has ended because of its silence.
    pub(super) fn report_silent(&mut self, row: &SessionRow) {
        self.stats.ended_by_silence += 1;
        self.report(Trouble::Silent { key: row.key, applied: row.update });
    }
}
