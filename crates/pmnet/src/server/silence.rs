//! Sessions that fall silent: devices are asked what they hold of them, and those of which nothing is held end.
//!
//! The three steps, and why nothing is lost or applied twice by them: `docs/format/pmnet.md`, "Sessions that fall silent".

use super::Server;
use super::behind::Trouble;
use super::context::Context;
use super::pause::Pause;
use super::session::Session;
use crate::identity::SessionKey;
use crate::wire::{Body, Role};
use landfall_net::Instant;
use std::collections::BTreeSet;
use std::time::Duration;

/// First and longest pause between two times that devices are asked about a session.
const ASK_FIRST: Duration = Duration::from_secs(1);
const ASK_MAX: Duration = Duration::from_secs(3600);
/// A silent session that has work under way is checked again after this.
const CHECK_AGAIN: Duration = Duration::from_secs(1);
/// Pause between two times that it is told that there is no room.
const TELL_EVERY: Duration = Duration::from_secs(60);
/// Pause between two checks of all sessions, where one finds no room.
const PRESSED_EVERY: Duration = Duration::from_secs(1);

/// When sessions that fall silent end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Silence {
    /// Devices that must have said that they hold nothing of a session.
    pub devices: u8,
    /// How long a session is silent before they are asked: four seconds at least.
    pub after: Duration,
}

impl Silence {
    /// What clients are told, in seconds: at least one.
    pub fn lease(&self) -> u16 {
        u16::try_from(self.after.as_secs() / 4).unwrap_or(u16::MAX).max(1)
    }

    /// How long a session with a lease must have been silent; `pressed`: where there is no room for another.
    fn span(&self, lease: u16, pressed: bool) -> Duration {
        let configured = if pressed { self.after / 2 } else { self.after };
        configured.max(Duration::from_secs(2 * u64::from(lease)))
    }
}

/// What a session knows of its silence.
#[derive(Debug)]
pub(super) struct Watch {
    /// When the client, or a device in its place, was heard last.
    heard: Instant,
    /// When it is checked again.
    due: Option<Instant>,
    asking: Option<Asking>,
}

/// Devices are being asked.
#[derive(Debug)]
struct Asking {
    nonce: u64,
    pause: Pause,
    /// Numbers of those that hold nothing.
    empty: BTreeSet<u8>,
}

impl Watch {
    /// Of a session that begins, or is restored, now.
    pub(super) fn new(lease: u16, ctx: &Context) -> Self {
        let silence = ctx.config.silence.filter(|_| lease > 0);
        let due = silence.map(|silence| ctx.now + silence.span(lease, false));
        Self { heard: ctx.now, due, asking: None }
    }

    /// Something was heard.
    pub(super) fn heard(&mut self, now: Instant) {
        self.heard = now;
        self.asking = None;
    }

    /// When it is to be checked.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }
}

impl Session {
    /// Whether a packet is from the session's client, or from a device in its place. What a device says for itself is neither, nor is a
    /// session start of another client that has drawn the same number.
    pub(super) fn is_spoken_for_by(&self, body: &Body<'_>) -> bool {
        match body {
            Body::Held { .. } | Body::Heartbeat { role: Role::Device, .. } => false,
            Body::SessionStart { nonce, .. } => *nonce == self.row().nonce,
            _ => true,
        }
    }

    /// Takes note that it is later.
    pub(super) fn watch_silence(&mut self, ctx: &mut Context) {
        if self.watch.due.is_some_and(|due| due <= ctx.now) {
            self.ask_if_silent(false, ctx);
        }
    }

    /// Asks devices what they hold, if the session has been silent for long.
    fn ask_if_silent(&mut self, pressed: bool, ctx: &mut Context) {
        let lease = self.row().lease;
        let Some(silence) = ctx.config.silence.filter(|_| lease > 0) else {
            self.watch.due = None;
            return;
        };
        let was_asking = self.watch.asking.is_some();
        let end = self.watch.heard + silence.span(lease, pressed || was_asking);
        if end > ctx.now || !self.is_at_rest() {
            // Where there is no room it is checked besides.
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

    /// A device has said how much of the session it holds.
    pub(super) fn held(&mut self, nonce: u64, number: u8, count: u32, ctx: &mut Context) {
        let Some(silence) = ctx.config.silence else { return };
        let Some(asking) = self.watch.asking.as_mut().filter(|asking| asking.nonce == nonce) else { return };
        if count > 0 {
            ctx.stats.held_by_devices += 1;
            asking.empty.remove(&number);
            return;
        }
        asking.empty.insert(number);
        if asking.empty.len() >= usize::from(silence.devices) && self.is_at_rest() {
            self.watch.asking = None;
            self.watch.due = Some(ctx.now + CHECK_AGAIN);
            self.end_by_silence(ctx);
        }
    }
}

impl Server {
    /// There is no room for a session, which is told now and then: those that have been silent for half as long as usual may go. Checks
    /// all of them, at most once a second.
    pub(super) fn press(&mut self, refused: SessionKey) {
        let now = self.ctx.now;
        if self.told_no_room.is_none_or(|at| now.since(at) >= TELL_EVERY) {
            self.told_no_room = Some(now);
            self.ctx.tell(Trouble::NoRoom { key: refused, sessions: self.table.len() });
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
    /// A session has ended by its silence.
    pub(super) fn tell_silent(&mut self, row: &super::row::SessionRow) {
        self.stats.ended_by_silence += 1;
        self.tell(Trouble::Silent { key: row.key, applied: row.update });
    }
}
