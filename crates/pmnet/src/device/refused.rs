//! Sessions whose server has lost what it confirmed: their updates are not acknowledged early.

use crate::Flow;
use crate::wire::{Body, Packet, Refusal};
use std::collections::{BTreeSet, VecDeque};

/// Most sessions that are remembered; of more, the oldest are forgotten, until the server refuses them again.
const REFUSED_MAX: usize = 4096;

/// Sessions that their servers refuse.
#[derive(Debug, Default)]
pub(super) struct Refused {
    sessions: BTreeSet<(Flow, u16)>,
    oldest: VecDeque<(Flow, u16)>,
}

impl Refused {
    /// Takes note of a server's refusal, if the session is one that it has and cannot go on with.
    pub(super) fn hear(&mut self, flow: Flow, packet: &Packet<'_>) {
        let session = (flow, packet.header.session);
        if packet.body == Body::SessionRefused(Refusal::Behind) && self.sessions.insert(session) {
            self.oldest.push_back(session);
            if self.oldest.len() > REFUSED_MAX {
                self.oldest.pop_front().map(|oldest| self.sessions.remove(&oldest));
            }
        }
    }

    /// Whether updates of a session are neither logged nor acknowledged.
    pub(super) fn contains(&self, flow: Flow, session: u16) -> bool {
        !self.sessions.is_empty() && self.sessions.contains(&(flow, session))
    }

    /// The server confirms updates of the session: it goes on.
    pub(super) fn forget(&mut self, flow: Flow, session: u16) {
        if !self.sessions.is_empty() && self.sessions.remove(&(flow, session)) {
            self.oldest.retain(|known| *known != (flow, session));
        }
    }
}
