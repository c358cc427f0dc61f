//! What DRAM knows of the log: where each update is, by session.

use super::{SessionEntries, Standing};
use crate::{Flow, Identity};
use landfall_heap::SlotId;
use std::collections::BTreeMap;

/// Where an update is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Indexed {
    pub(super) slot: SlotId,
    pub(super) len: u32,
    /// A fence has covered it.
    pub(super) durable: bool,
}

#[derive(Debug, Default)]
struct Session {
    entries: BTreeMap<u32, Indexed>,
    /// The server has confirmed everything up to here, if it has confirmed anything.
    applied: Option<u32>,
    standing: Standing,
}

#[derive(Clone, Copy, Debug)]
struct Path {
    port: u16,
    slot: SlotId,
}

/// Updates by session and number; ordered, so that what is sent again is sent in order.
#[derive(Debug, Default)]
pub(super) struct Index {
    sessions: BTreeMap<(Flow, u16), Session>,
    entries: usize,
    bytes: u64,
    paths: BTreeMap<Flow, Path>,
    /// Entries of sessions of unknown standing, by client.
    unknown: BTreeMap<Flow, usize>,
    unknown_in_all: usize,
}

impl Index {
    pub(super) fn len(&self) -> usize {
        self.entries
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    fn session(&self, identity: &Identity) -> Option<&Session> {
        self.sessions.get(&(identity.flow, identity.session))
    }

    pub(super) fn get(&self, identity: &Identity) -> Option<&Indexed> {
        self.session(identity)?.entries.get(&identity.seq)
    }

    pub(super) fn session_len(&self, identity: &Identity) -> usize {
        self.session(identity).map_or(0, |session| session.entries.len())
    }

    pub(super) fn is_applied(&self, identity: &Identity) -> bool {
        self.session(identity).is_some_and(|session| Some(identity.seq) <= session.applied)
    }

    pub(super) fn standing(&self, identity: &Identity) -> Standing {
        self.session(identity).map_or(Standing::Unknown, |session| session.standing)
    }

    /// Entries of a client's sessions of unknown standing, and of all such sessions.
    pub(super) fn unknown(&self, flow: &Flow) -> (usize, usize) {
        (self.unknown.get(flow).copied().unwrap_or(0), self.unknown_in_all)
    }

    /// A session's standing is this, or higher: remembered for as long as there is room for it.
    pub(super) fn raise(&mut self, flow: Flow, session: u16, to: Standing, sessions_max: usize) {
        if self.sessions.len() >= sessions_max {
            self.sessions.retain(|_, session| !session.entries.is_empty());
        }
        let state = self.sessions.entry((flow, session)).or_default();
        let was_unknown = state.standing == Standing::Unknown;
        state.standing = state.standing.max(to);
        if was_unknown && to > Standing::Unknown {
            let count = state.entries.len();
            self.fewer_unknown(flow, count);
        }
    }

    fn fewer_unknown(&mut self, flow: Flow, count: usize) {
        self.unknown_in_all -= count;
        if let Some(of_client) = self.unknown.get_mut(&flow) {
            *of_client -= count;
            if *of_client == 0 {
                self.unknown.remove(&flow);
            }
        }
    }

    /// An update that was not there.
    pub(super) fn insert(&mut self, identity: Identity, slot: SlotId, len: u32) {
        let session = self.sessions.entry((identity.flow, identity.session)).or_default();
        session.entries.insert(identity.seq, Indexed { slot, len, durable: false });
        if session.standing == Standing::Unknown {
            *self.unknown.entry(identity.flow).or_default() += 1;
            self.unknown_in_all += 1;
        }
        self.entries += 1;
        self.bytes += u64::from(len);
    }

    /// Another session has begun under the name of one without entries: what is known of that one says nothing of it.
    pub(super) fn begin(&mut self, identity: &Identity) -> bool {
        let name = (identity.flow, identity.session);
        let is_free = self.sessions.get(&name).is_none_or(|session| session.entries.is_empty());
        if is_free {
            self.sessions.remove(&name);
        }
        is_free
    }

    /// True if the update is still there, in this slot.
    pub(super) fn mark_durable(&mut self, identity: &Identity, slot: SlotId) -> bool {
        let session = self.sessions.get_mut(&(identity.flow, identity.session));
        let entry = session.and_then(|session| session.entries.get_mut(&identity.seq));
        match entry.filter(|entry| entry.slot == slot) {
            Some(entry) => {
                entry.durable = true;
                true
            }
            None => false,
        }
    }

    pub(super) fn remove(&mut self, identity: &Identity) -> Option<Indexed> {
        let session = self.sessions.get_mut(&(identity.flow, identity.session))?;
        let entry = session.entries.remove(&identity.seq)?;
        let is_unknown = session.standing == Standing::Unknown;
        self.entries -= 1;
        self.bytes -= u64::from(entry.len);
        if is_unknown {
            self.fewer_unknown(identity.flow, 1);
        }
        Some(entry)
    }

    /// Removes everything up to `seq`, and remembers that it was applied for as long as there is room for it.
    pub(super) fn remove_upto(
        &mut self,
        flow: Flow,
        session: u16,
        seq: u32,
        sessions_max: usize,
        mut removed: impl FnMut(u32, Indexed),
    ) {
        self.raise(flow, session, Standing::Heard, sessions_max);
        let state = self.sessions.entry((flow, session)).or_default();
        state.applied = state.applied.max(Some(seq));
        while let Some(first) = state.entries.first_entry().filter(|first| *first.key() <= seq) {
            let (seq, entry) = first.remove_entry();
            self.entries -= 1;
            self.bytes -= u64::from(entry.len);
            removed(seq, entry);
        }
    }

    pub(super) fn seqs(&self, flow: Flow, session: u16, from: u32, max: usize) -> Vec<u32> {
        let session = self.sessions.get(&(flow, session));
        let entries = session.into_iter().flat_map(|session| session.entries.range(from..));
        entries.map(|(seq, _)| *seq).take(max).collect()
    }

    pub(super) fn identities(&self, wanted: &mut dyn FnMut(&Flow) -> bool) -> Vec<Identity> {
        let mut all = Vec::new();
        for ((flow, session), state) in &self.sessions {
            if wanted(flow) {
                let of_seq = |seq: &u32| Identity { flow: *flow, session: *session, seq: *seq };
                all.extend(state.entries.keys().map(of_seq));
            }
        }
        all
    }

    pub(super) fn sessions(&self) -> Vec<SessionEntries> {
        let of = |((flow, session), state): (&(Flow, u16), &Session)| {
            let ((first, _), (last, _)) =
                state.entries.first_key_value().zip(state.entries.last_key_value())?;
            let bytes = state.entries.values().map(|entry| u64::from(entry.len)).sum();
            let count = state.entries.len() as u64;
            let (first, last, standing) = (*first, *last, state.standing);
            Some(SessionEntries { flow: *flow, session: *session, first, last, count, bytes, standing })
        };
        self.sessions.iter().filter_map(of).collect()
    }

    /// The record in `old` has moved to `new`; false if it is not current.
    pub(super) fn moved(&mut self, identity: &Identity, old: SlotId, new: SlotId) -> bool {
        let session = self.sessions.get_mut(&(identity.flow, identity.session));
        let entry = session.and_then(|session| session.entries.get_mut(&identity.seq));
        entry.filter(|entry| entry.slot == old).map(|entry| entry.slot = new).is_some()
    }

    pub(super) fn path(&self, flow: &Flow) -> Option<u16> {
        self.paths.get(flow).map(|path| path.port)
    }

    pub(super) fn path_slot(&self, flow: &Flow) -> Option<SlotId> {
        self.paths.get(flow).map(|path| path.slot)
    }

    pub(super) fn paths(&self) -> Vec<(Flow, u16)> {
        self.paths.iter().map(|(flow, path)| (*flow, path.port)).collect()
    }

    /// True if updates of a client are there.
    pub(super) fn has_entries(&self, flow: &Flow) -> bool {
        let all = (*flow, 0)..=(*flow, u16::MAX);
        self.sessions.range(all).any(|(_, session)| !session.entries.is_empty())
    }

    /// The path is forgotten, with what is known of the client's sessions. `None` if there is none, or updates are there.
    pub(super) fn remove_path(&mut self, flow: &Flow) -> Option<SlotId> {
        if self.has_entries(flow) {
            return None;
        }
        let path = self.paths.remove(flow)?;
        for session in
            self.sessions.range((*flow, 0)..=(*flow, u16::MAX)).map(|(key, _)| *key).collect::<Vec<_>>()
        {
            self.sessions.remove(&session);
        }
        Some(path.slot)
    }

    pub(super) fn path_count(&self) -> usize {
        self.paths.len()
    }

    /// Returns the slot of the record that this one replaces.
    pub(super) fn set_path(&mut self, flow: Flow, port: u16, slot: SlotId) -> Option<SlotId> {
        self.paths.insert(flow, Path { port, slot }).map(|old| old.slot)
    }

    /// The path's record in `old` has moved to `new`; false if it is not current.
    pub(super) fn path_moved(&mut self, flow: &Flow, old: SlotId, new: SlotId) -> bool {
        let path = self.paths.get_mut(flow).filter(|path| path.slot == old);
        path.map(|path| path.slot = new).is_some()
    }
}
