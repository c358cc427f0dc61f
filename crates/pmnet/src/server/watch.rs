//! The state of a session's silence.

use super::context::Context;
use super::pause::Pause;
use landfall_net::Instant;
use std::collections::BTreeSet;

/// A session's state of silence.
#[derive(Debug)]
pub(super) struct Watch {
    /// When the last packet of the client, or of a device on its behalf, arrived.
    pub(super) last_packet: Instant,
    /// When the silence is checked again.
    pub(super) due: Option<Instant>,
    pub(super) asking: Option<Asking>,
}

/// A running query of the devices.
#[derive(Debug)]
pub(super) struct Asking {
    pub(super) nonce: u64,
    pub(super) pause: Pause,
    /// Numbers of the devices that hold no updates of the session.
    pub(super) empty: BTreeSet<u8>,
}

impl Watch {
    /// For a session that begins or is restored now.
    pub(super) fn new(lease: u16, ctx: &Context) -> Self {
        let silence = ctx.config.silence.filter(|_| lease > 0);
        let due = silence.map(|silence| ctx.now + silence.span(lease, false));
        Self { last_packet: ctx.now, due, asking: None }
    }

    /// Ends the silence: a packet has arrived.
    pub(super) fn note_packet(&mut self, now: Instant) {
        self.last_packet = now;
        self.asking = None;
    }

    /// When the silence must be checked.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }
}
