//! The log's volatile index: the slot of each update, by session and number.

use super::session::{SessionEntries, Standing};
use crate::identity::{Flow, Identity};
use landfall_heap::SlotId;
use std::collections::BTreeMap;

/// Position and state of an update in the log.
#[derive(Clone, Copy, Debug)]
pub(super) struct Indexed {
    pub(super) slot: SlotId,
    pub(super) len: u32,
    /// Whether a fence has made the update durable.
    pub(super) durable: bool,
}

#[derive(Debug, Default)]
struct Session {
    entries: BTreeMap<u32, Indexed>,
    /// The server has confirmed every update up to this one. `None` before its first confirmation.
    applied: Option<u32>,
    standing: Standing,
}

#[derive(Clone, Copy, Debug)]
struct Path {
    port: u16,
    slot: SlotId,
}

/// Updates by session and number. The order is that in which updates are sent again.
#[derive(Debug, Default)]
pub(super) struct Index {
    sessions: BTreeMap<(Flow, u16), Session>,
    entries: usize,
    bytes: u64,
    paths: BTreeMap<Flow, Path>,
    /// Number of entries in sessions of unknown standing, for each client.
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

    /// Number of entries in the client's sessions of unknown standing, and in all such sessions.
    pub(super) fn unknown(&self, flow: &Flow) -> (usize, usize) {
        (self.unknown.get(flow).copied().unwrap_or(0), self.unknown_in_all)
    }

    /// Raises a session's standing to at least `to`. The session stays in the index while there is room for it.
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

    /// Inserts an update that is not in the index.
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

    /// Removes a session without entries, because another session has begun under its name. What was known of the
    /// old session does not apply to the new one. False if the old session has entries.
    pub(super) fn begin(&mut self, identity: &Identity) -> bool {
        let name = (identity.flow, identity.session);
        let is_free = self.sessions.get(&name).is_none_or(|session| session.entries.is_empty());
        if is_free {
            self.sessions.remove(&name);
        }
        is_free
    }

    /// Marks an update as durable. False if the update is no longer in this slot.
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

    /// Removes every update up to `seq`. Stores that they were applied, while there is room for the session.
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

    /// Updates the index after compaction has moved the record in `old` to `new`. False if `old` is not the current
    /// slot.
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

    /// True if the log has updates of the client.
    pub(super) fn has_entries(&self, flow: &Flow) -> bool {
        let all = (*flow, 0)..=(*flow, u16::MAX);
        self.sessions.range(all).any(|(_, session)| !session.entries.is_empty())
    }

    /// Removes the client's path and all that is known of the client's sessions. `None` if the client has no path,
    /// or updates in the log.
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

    /// Sets a client's path. Returns the slot of the record that the new one replaces.
    pub(super) fn set_path(&mut self, flow: Flow, port: u16, slot: SlotId) -> Option<SlotId> {
        self.paths.insert(flow, Path { port, slot }).map(|old| old.slot)
    }

    /// Updates the index after compaction has moved the path's record in `old` to `new`. False if `old` is not the
    /// current slot.
    pub(super) fn path_moved(&mut self, flow: &Flow, old: SlotId, new: SlotId) -> bool {
        let path = self.paths.get_mut(flow).filter(|path| path.slot == old);
        path.map(|path| path.slot = new).is_some()
    }
}
