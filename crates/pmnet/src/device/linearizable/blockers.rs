//! The updates of the log that later packets of other sessions must wait for. A client may have been told that such
//! an update is durable, while the server may not have applied it.

use crate::cache::{Effect, KeyCodec, Query};
use crate::device::codec::Codec;
use crate::identity::{Flow, Identity};
use crate::wire::Body;
use core::ops::Range;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Most sessions without updates in the log whose applied numbers are stored.
const SESSIONS_MAX: usize = 1 << 16;

type Key = Arc<[u8]>;

/// The keys that a request concerns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    /// These keys. Empty for a request that changes nothing.
    Keys(SmallVec<[Key; 1]>),
    /// Any key, because the keys are not known.
    All,
}

impl Scope {
    /// The keys that an update may change. In an update of several packets, the first packet names them and the
    /// others name none.
    pub(super) fn of_update(codec: Codec, body: &Body<'_>) -> Self {
        let request = match body {
            Body::Update(request) => request,
            Body::UpdateFragment(place, start) if place.index == 0 => {
                let keys = codec.keys_of_start(start, place.total as usize);
                return keys.map_or(Self::All, |keys| Self::at(start, &keys));
            }
            _ => return Self::All,
        };
        match codec.update(request) {
            Effect::None => Self::Keys(SmallVec::new()),
            Effect::Sets { key, .. } => Self::at(request, &[key]),
            Effect::Touches(keys) => Self::at(request, &keys),
            Effect::TouchesAll => Self::All,
        }
    }

    /// The keys on which the result of a bypass may depend.
    pub(super) fn of_bypass(codec: Codec, body: &Body<'_>) -> Self {
        let Body::Bypass { request, .. } = body else { return Self::All };
        match codec.bypass(request) {
            Query::Reads { key } => Self::at(request, &[key]),
            _ => Self::All,
        }
    }

    fn at(request: &[u8], ranges: &[Range<usize>]) -> Self {
        let keys: Option<_> = ranges.iter().map(|range| request.get(range.clone()).map(Key::from)).collect();
        keys.map_or(Self::All, Self::Keys)
    }
}

/// Position of a blocker in the order in which updates began to block.
pub(super) type Place = u64;

/// Position of an update packet in its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    /// Index of the packet, from 0 on.
    pub(super) index: u32,
    /// Number of packets of the request.
    pub(super) count: u32,
}

impl Piece {
    pub(super) const WHOLE: Self = Self { index: 0, count: 1 };

    pub(super) fn of(body: &Body<'_>) -> Self {
        match body {
            Body::UpdateFragment(place, _) => Self { index: place.index.into(), count: place.count.into() },
            _ => Self::WHOLE,
        }
    }
}

#[derive(Debug)]
struct Entry {
    scope: Scope,
    piece: Piece,
    durable: bool,
    /// The blocker's position while the update blocks.
    place: Option<Place>,
}

/// One session's updates in the log.
#[derive(Debug, Default)]
struct Session {
    entries: BTreeMap<u32, Entry>,
    /// The server is known to have applied every update below this number.
    covered: Option<u32>,
    /// The lowest number that the server has requested, while `covered` is not known.
    asked: Option<u32>,
    /// Durable entries below this number block. At this number there is a request that is neither applied nor
    /// completely durable here. So no client was told that it, or any request behind it, is durable.
    end: u32,
    /// Whether the server has lost confirmed updates of the session, so that nothing of the session blocks.
    suspended: bool,
}

impl Session {
    fn base(&self) -> Option<u32> {
        self.covered.or(self.asked)
    }

    /// The numbers of an entry's request, if the whole request is durable here. If it is not, no client was told of
    /// it; or it was applied, and only a part of it was found after a restart.
    fn whole(&self, seq: u32) -> Option<Range<u32>> {
        let Piece { index, count } = self.entries.get(&seq)?.piece;
        let first = seq.checked_sub(index)?;
        let request = first..first.checked_add(count)?;
        let is_durable = |seq: u32| self.entries.get(&seq).is_some_and(|entry| entry.durable);
        // The last piece usually arrives last.
        request.clone().rev().all(is_durable).then_some(request)
    }

    /// The keys that an entry's request may change, if its first packet is in the log.
    fn scope_of(&self, seq: u32, piece: Piece) -> Option<&Scope> {
        let first = self.entries.get(&seq.checked_sub(piece.index)?)?;
        (first.piece == Piece { index: 0, ..piece }).then_some(&first.scope)
    }

    /// Whether an entry should block.
    fn blocks(&self, seq: u32) -> bool {
        !self.suspended && self.whole(seq).is_some_and(|request| request.end <= self.end)
    }

    /// Computes [`Self::end`] from the other fields.
    fn find_end(&self) -> u32 {
        self.base().map_or(u32::MAX, |base| self.end_from(base))
    }

    fn end_from(&self, mut end: u32) -> u32 {
        while let Some(request) = self.whole(end) {
            end = request.end;
        }
        end
    }
}

/// The blockers of all sessions.
#[derive(Debug, Default)]
pub(super) struct Blockers {
    sessions: BTreeMap<(Flow, u16), Session>,
    by_key: BTreeMap<Key, BTreeMap<Place, Identity>>,
    /// Blockers that may change any key.
    unscoped: BTreeMap<Place, Identity>,
    all: BTreeMap<Place, Identity>,
    next: Place,
    /// Updates that no longer block. [`Self::take_ended`] takes them.
    ended: Vec<Identity>,
}

impl Blockers {
    /// The next position: every current blocker has a lower one.
    pub(super) fn now(&self) -> Place {
        self.next
    }

    /// The first blocker that a packet about `scope` must wait for: an update of another session than `own`, at a
    /// position below `before`.
    pub(super) fn first(&self, scope: &Scope, own: (Flow, u16), before: Place) -> Option<Identity> {
        let others = |blockers: &BTreeMap<Place, Identity>| {
            let mut earlier = blockers.range(..before).map(|(_, identity)| *identity);
            earlier.find(|identity| (identity.flow, identity.session) != own)
        };
        match scope {
            Scope::All => others(&self.all),
            Scope::Keys(keys) if keys.is_empty() => None,
            Scope::Keys(keys) => {
                let of_key = |key| self.by_key.get(key).and_then(others);
                keys.iter().find_map(of_key).or_else(|| others(&self.unscoped))
            }
        }
    }

    /// The keys that an update's request may change, if its first packet is in the log.
    pub(super) fn scope_of(&self, identity: &Identity, piece: Piece) -> Option<&Scope> {
        self.sessions.get(&(identity.flow, identity.session))?.scope_of(identity.seq, piece)
    }

    /// Takes the updates that have ceased to block since the last call.
    pub(super) fn take_ended(&mut self) -> Vec<Identity> {
        std::mem::take(&mut self.ended)
    }

    fn session(&mut self, flow: Flow, session: u16) -> &mut Session {
        if self.sessions.len() >= SESSIONS_MAX && !self.sessions.contains_key(&(flow, session)) {
            self.sessions.retain(|_, state| !state.entries.is_empty());
        }
        let unknown = || Session { end: u32::MAX, ..Session::default() };
        self.sessions.entry((flow, session)).or_insert_with(unknown)
    }

    /// Adds an update that has been logged.
    pub(super) fn logged(&mut self, identity: Identity, scope: Scope, piece: Piece) {
        let entry = Entry { scope, piece, durable: false, place: None };
        let entries = &mut self.session(identity.flow, identity.session).entries;
        entries.entry(identity.seq).or_insert(entry);
    }

    /// Notes that a fence has made an update durable.
    pub(super) fn durable(&mut self, identity: &Identity) {
        let state = self.session(identity.flow, identity.session);
        let Some(entry) = state.entries.get_mut(&identity.seq) else { return };
        entry.durable = true;
        let end = state.end;
        // The number that the server has requested may be in the middle of a request.
        let Some(request) = state.whole(identity.seq.min(end)).filter(|_| !state.suspended) else { return };
        let mut last = request.end;
        if last > end {
            state.end = state.end_from(end);
            last = state.end;
        }
        (request.start..last).for_each(|seq| self.block(&Identity { seq, ..*identity }));
    }

    /// Removes an update that has left the log.
    pub(super) fn removed(&mut self, identity: &Identity) {
        let Some(state) = self.sessions.get_mut(&(identity.flow, identity.session)) else { return };
        if let Some(entry) = state.entries.remove(&identity.seq) {
            self.remove_blocker(identity, &entry.scope, entry.place);
        }
    }

    /// Removes every update of a session up to `seq`, because the server has applied them. Only with `is_news` do
    /// the numbers behind `seq` count as not applied. A late packet carries too low a number, so numbers that seem
    /// to be missing may have been applied and removed.
    pub(super) fn applied(&mut self, flow: Flow, session: u16, seq: u32, is_news: bool) {
        let state = self.session(flow, session);
        let remaining = state.entries.split_off(&seq.saturating_add(1));
        let removed = std::mem::replace(&mut state.entries, remaining);
        for (seq, entry) in removed {
            self.remove_blocker(&Identity { flow, session, seq }, &entry.scope, entry.place);
        }
        if is_news {
            self.covers(flow, session, seq.saturating_add(1));
        }
    }

    /// Notes that the server has applied every update of a session below `next`.
    pub(super) fn covers(&mut self, flow: Flow, session: u16, next: u32) {
        let state = self.session(flow, session);
        state.asked = None;
        let was_known = state.covered.is_some();
        state.covered = state.covered.max(Some(next));
        if !was_known || state.end < next {
            self.settle(flow, session);
        }
    }

    /// Notes that the server requests `seq`, which has not arrived there.
    pub(super) fn misses(&mut self, flow: Flow, session: u16, seq: u32) {
        let state = self.session(flow, session);
        if state.covered.is_none() && state.asked.is_none_or(|asked| seq < asked) {
            state.asked = Some(seq);
            self.settle(flow, session);
        }
    }

    /// Suspends the blockers of a session whose server has lost confirmed updates, or lets them block again.
    pub(super) fn set_suspended(&mut self, flow: Flow, session: u16, suspended: bool) {
        let state = self.session(flow, session);
        if state.suspended != suspended {
            state.suspended = suspended;
            self.settle(flow, session);
        }
    }

    /// Removes everything about a client's sessions. None of its updates is in the log.
    pub(super) fn remove_client(&mut self, flow: Flow) {
        let all = (flow, 0)..=(flow, u16::MAX);
        let sessions: Vec<_> = self.sessions.range(all).map(|(key, _)| *key).collect();
        for key in sessions {
            self.sessions.remove(&key);
        }
    }

    /// Blocks and unblocks the updates of a session so that exactly those block that should.
    fn settle(&mut self, flow: Flow, session: u16) {
        let state = self.session(flow, session);
        state.end = state.find_end();
        let changes = |(seq, entry): (&u32, &Entry)| {
            let blocks = state.blocks(*seq);
            (blocks != entry.place.is_some()).then_some((*seq, blocks))
        };
        let changed: Vec<(u32, bool)> = state.entries.iter().filter_map(changes).collect();
        for (seq, blocks) in changed {
            let identity = Identity { flow, session, seq };
            if blocks {
                self.block(&identity);
            } else {
                self.unblock(&identity);
            }
        }
    }

    /// Lets an update block from now on.
    fn block(&mut self, identity: &Identity) {
        let place = self.next;
        let Some(state) = self.sessions.get_mut(&(identity.flow, identity.session)) else { return };
        // The whole request is here, including its first packet.
        let piece = state.entries.get(&identity.seq).map(|entry| entry.piece);
        let scope = piece.and_then(|piece| state.scope_of(identity.seq, piece)).cloned();
        let entry = state.entries.get_mut(&identity.seq).filter(|entry| entry.place.is_none());
        let Some(entry) = entry else { return };
        self.next += 1;
        entry.place = Some(place);
        entry.scope = scope.unwrap_or(Scope::All);
        self.all.insert(place, *identity);
        match &entry.scope {
            Scope::All => drop(self.unscoped.insert(place, *identity)),
            Scope::Keys(keys) => keys.iter().for_each(|key| {
                self.by_key.entry(Key::clone(key)).or_default().insert(place, *identity);
            }),
        }
    }

    /// Lets an update that stays in the log no longer block.
    fn unblock(&mut self, identity: &Identity) {
        let key = (identity.flow, identity.session);
        let Some(entry) = self.sessions.get_mut(&key).and_then(|state| state.entries.get_mut(&identity.seq))
        else {
            return;
        };
        let (scope, place) = (entry.scope.clone(), entry.place.take());
        self.remove_blocker(identity, &scope, place);
    }

    fn remove_blocker(&mut self, identity: &Identity, scope: &Scope, place: Option<Place>) {
        let Some(place) = place else { return };
        self.all.remove(&place);
        match scope {
            Scope::All => drop(self.unscoped.remove(&place)),
            Scope::Keys(keys) => keys.iter().for_each(|key| {
                if let Some(of_key) = self.by_key.get_mut(key) {
                    of_key.remove(&place);
                    if of_key.is_empty() {
                        self.by_key.remove(key);
                    }
                }
            }),
        }
        self.ended.push(*identity);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(client: u8) -> Flow {
        Flow {
            client: ([10, 0, 0, client], 40000).into(),
            server: "10.0.0.100:51000".parse().expect("an address"),
        }
    }

    fn identity(client: u8, seq: u32) -> Identity {
        Identity { flow: flow(client), session: 1, seq }
    }

    fn about(key: &str) -> Scope {
        Scope::Keys(SmallVec::from_iter([Key::from(key.as_bytes())]))
    }

    fn log(blockers: &mut Blockers, client: u8, seq: u32, scope: Scope) {
        blockers.logged(identity(client, seq), scope, Piece::WHOLE);
        blockers.durable(&identity(client, seq));
    }

    fn first(blockers: &Blockers, scope: &Scope) -> Option<u32> {
        blockers.first(scope, (flow(9), 1), blockers.now()).map(|identity| identity.seq)
    }

    #[test]
    fn an_update_blocks_its_key_from_its_fence_until_it_is_applied() {
        let mut blockers = Blockers::default();
        blockers.covers(flow(1), 1, 1);
        blockers.logged(identity(1, 1), about("a"), Piece::WHOLE);
        assert_eq!(first(&blockers, &about("a")), None);
        blockers.durable(&identity(1, 1));
        assert_eq!(first(&blockers, &about("a")), Some(1));
        assert_eq!(first(&blockers, &Scope::All), Some(1));
        assert_eq!(first(&blockers, &about("b")), None);
        let own = blockers.first(&Scope::All, (flow(1), 1), blockers.now());
        assert_eq!(own, None, "a session's own updates are ordered by its bypasses");
        blockers.applied(flow(1), 1, 1, true);
        assert_eq!((first(&blockers, &Scope::All), blockers.take_ended()), (None, vec![identity(1, 1)]));
    }

    #[test]
    fn an_update_that_may_change_any_key_blocks_all_keys() {
        let mut blockers = Blockers::default();
        log(&mut blockers, 1, 1, Scope::All);
        assert_eq!(first(&blockers, &about("a")), Some(1));
        assert_eq!(first(&blockers, &Scope::Keys(SmallVec::new())), None);
    }

    #[test]
    fn updates_behind_a_gap_do_not_block_until_the_gap_is_filled() {
        let mut blockers = Blockers::default();
        blockers.covers(flow(1), 1, 1);
        log(&mut blockers, 1, 2, about("a"));
        log(&mut blockers, 1, 3, about("a"));
        assert_eq!(first(&blockers, &about("a")), None);
        let before = blockers.now();
        log(&mut blockers, 1, 1, about("b"));
        assert_eq!(first(&blockers, &about("a")), Some(2));
        assert_eq!(
            blockers.first(&Scope::All, (flow(9), 1), before),
            None,
            "a packet from before does not wait"
        );
    }

    #[test]
    fn pieces_block_once_all_of_their_request_is_durable() {
        let mut blockers = Blockers::default();
        blockers.covers(flow(1), 1, 1);
        for seq in [1, 3] {
            blockers.logged(identity(1, seq), Scope::All, Piece { index: seq - 1, count: 3 });
            blockers.durable(&identity(1, seq));
            assert_eq!(first(&blockers, &Scope::All), None, "no client is told of a part");
        }
        blockers.logged(identity(1, 2), Scope::All, Piece { index: 1, count: 3 });
        blockers.durable(&identity(1, 2));
        assert_eq!(first(&blockers, &Scope::All), Some(1));
        blockers.removed(&identity(1, 1));
        assert_eq!(first(&blockers, &Scope::All), Some(2));
    }

    #[test]
    fn a_request_of_several_packets_blocks_the_keys_that_its_first_packet_names() {
        let mut blockers = Blockers::default();
        blockers.covers(flow(1), 1, 1);
        for (seq, scope) in [(3, Scope::All), (1, about("a")), (2, Scope::All)] {
            blockers.logged(identity(1, seq), scope, Piece { index: seq - 1, count: 3 });
            blockers.durable(&identity(1, seq));
        }
        assert_eq!((first(&blockers, &about("a")), first(&blockers, &about("b"))), (Some(1), None));
        blockers.removed(&identity(1, 1));
        assert_eq!((first(&blockers, &about("a")), first(&blockers, &about("b"))), (Some(2), None));
        blockers.applied(flow(1), 1, 3, true);
        assert_eq!((first(&blockers, &Scope::All), blockers.by_key.len()), (None, 0));
        // Both claim to be the last of two, so their keys are not known.
        for seq in [4, 5] {
            blockers.logged(identity(2, seq), about("a"), Piece { index: 1, count: 2 });
            blockers.durable(&identity(2, seq));
        }
        assert_eq!(first(&blockers, &about("b")), Some(4));
    }

    #[test]
    fn a_request_of_which_the_server_misses_a_part_does_not_block() {
        let mut blockers = Blockers::default();
        let piece = |blockers: &mut Blockers, seq: u32| {
            blockers.logged(identity(1, seq), Scope::All, Piece { index: seq - 5, count: 3 });
            blockers.durable(&identity(1, seq));
        };
        (5..7).for_each(|seq| piece(&mut blockers, seq));
        assert_eq!(first(&blockers, &Scope::All), None, "it was applied, or no client was told of it");
        blockers.misses(flow(1), 1, 7);
        log(&mut blockers, 1, 8, Scope::All);
        assert_eq!(first(&blockers, &Scope::All), None);
        piece(&mut blockers, 7);
        assert_eq!(blockers.all.values().map(|blocker| blocker.seq).collect::<Vec<_>>(), [5, 6, 7, 8]);
    }

    #[test]
    fn while_nothing_is_known_of_a_session_all_its_updates_block() {
        let mut blockers = Blockers::default();
        log(&mut blockers, 1, 7, about("a"));
        log(&mut blockers, 1, 9, about("b"));
        assert_eq!(first(&blockers, &about("b")), Some(9));
        // A late packet removes updates, but says nothing about gaps.
        blockers.applied(flow(1), 1, 3, false);
        assert_eq!(first(&blockers, &about("b")), Some(9));
        blockers.misses(flow(1), 1, 8);
        assert_eq!((first(&blockers, &about("a")), first(&blockers, &about("b"))), (Some(7), None));
        assert_eq!(blockers.take_ended(), [identity(1, 9)]);
        blockers.misses(flow(1), 1, 6);
        assert_eq!(first(&blockers, &about("a")), None, "an earlier update is missing");
    }

    #[test]
    fn sessions_that_the_server_has_lost_do_not_block() {
        let mut blockers = Blockers::default();
        log(&mut blockers, 1, 1, about("a"));
        blockers.set_suspended(flow(1), 1, true);
        assert_eq!(first(&blockers, &about("a")), None);
        log(&mut blockers, 1, 2, about("a"));
        assert_eq!(first(&blockers, &about("a")), None);
        blockers.set_suspended(flow(1), 1, false);
        assert_eq!(first(&blockers, &about("a")), Some(1));
    }
}
