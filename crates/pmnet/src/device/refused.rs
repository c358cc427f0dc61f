//! Sessions whose server has lost confirmed updates. The device does not acknowledge their updates.

use crate::identity::Flow;
use crate::wire::{Body, Packet, Refusal};
use std::collections::{BTreeSet, VecDeque};

/// Most sessions that are stored. Beyond it the oldest are deleted; their server will refuse them again.
const REFUSED_MAX: usize = 4096;

/// The sessions that their servers refuse.
#[derive(Debug, Default)]
pub(super) struct Refused {
    sessions: BTreeSet<(Flow, u16)>,
    oldest: VecDeque<(Flow, u16)>,
}

impl Refused {
    /// Handles a server's refusal. The session is stored if the server knows it but cannot continue it.
    pub(super) fn server_refused(&mut self, flow: Flow, packet: &Packet<'_>) {
        let session = (flow, packet.header.session);
        if packet.body == Body::SessionRefused(Refusal::Behind) && self.sessions.insert(session) {
            self.oldest.push_back(session);
            if self.oldest.len() > REFUSED_MAX {
                self.oldest.pop_front().map(|oldest| self.sessions.remove(&oldest));
            }
        }
    }

    /// Whether the updates of a session are neither logged nor acknowledged.
    pub(super) fn contains(&self, flow: Flow, session: u16) -> bool {
        !self.sessions.is_empty() && self.sessions.contains(&(flow, session))
    }

    /// Removes a session, because the server confirms updates of it again.
    pub(super) fn server_continues(&mut self, flow: Flow, session: u16) {
        if !self.sessions.is_empty() && self.sessions.remove(&(flow, session)) {
            self.oldest.retain(|known| *known != (flow, session));
        }
    }
}
