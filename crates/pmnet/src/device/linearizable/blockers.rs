//! Updates of the log that what arrives later must wait for: those of which a client may have been told that they are
//! durable, while the server may not have applied them.

use crate::cache::{Effect, KeyCodec, Query};
use crate::device::Codec;
use crate::wire::Body;
use crate::{Flow, Identity};
use core::ops::Range;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Sessions without an update in the log of which it is remembered what the server has applied.
const SESSIONS_MAX: usize = 1 << 16;

type Key = Arc<[u8]>;

/// Which keys a request is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    /// These; none for a request that changes nothing.
    Keys(SmallVec<[Key; 1]>),
    /// Any, for all that is known.
    All,
}

impl Scope {
    /// What an update may change; of one of several packets, what its first one tells. The others tell nothing.
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

    /// What the outcome of a bypass may depend on.
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

/// The place of a blocker in the order in which they came to block.
pub(super) type Place = u64;

/// Which packet of its request an update is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    /// Counted from 0.
    pub(super) index: u32,
    /// Of so many.
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
    /// Set while it blocks.
    place: Option<Place>,
}

/// One session's updates in the log.
#[derive(Debug, Default)]
struct Session {
    entries: BTreeMap<u32, Entry>,
    /// The server has said that it has applied everything below.
    covered: Option<u32>,
    /// The lowest number that the server has asked for, while `covered` is not known.
    asked: Option<u32>,
    /// Durable entries below block. From here on is a request that is neither applied nor durable here as a whole, so that no
    /// client was told of it or of anything behind it.
    end: u32,
    /// The server has lost what it confirmed of the session.
    excused: bool,
}

impl Session {
    fn base(&self) -> Option<u32> {
        self.covered.or(self.asked)
    }

    /// The numbers of an entry's request, if all of it is durable here. Of what is not, no client was told; or it was applied, and
    /// found again after a restart in part.
    fn whole(&self, seq: u32) -> Option<Range<u32>> {
        let Piece { index, count } = self.entries.get(&seq)?.piece;
        let first = seq.checked_sub(index)?;
        let request = first..first.checked_add(count)?;
        let is_durable = |seq: u32| self.entries.get(&seq).is_some_and(|entry| entry.durable);
        // The last piece mostly comes last.
        request.clone().rev().all(is_durable).then_some(request)
    }

    /// What an entry's request may change, as its first packet tells, if that is here.
    fn scope_of(&self, seq: u32, piece: Piece) -> Option<&Scope> {
        let first = self.entries.get(&seq.checked_sub(piece.index)?)?;
        (first.piece == Piece { index: 0, ..piece }).then_some(&first.scope)
    }

    /// Whether an entry is to block.
    fn blocks(&self, seq: u32) -> bool {
        !self.excused && self.whole(seq).is_some_and(|request| request.end <= self.end)
    }

    /// What [`Self::end`] is by all that is known.
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

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Blockers {
    sessions: BTreeMap<(Flow, u16), Session>,
    by_key: BTreeMap<Key, BTreeMap<Place, Identity>>,
    /// Those that may change any key.
    unscoped: BTreeMap<Place, Identity>,
    all: BTreeMap<Place, Identity>,
    next: Place,
    /// Those that have ceased to block, until [`Self::take_ended`].
    ended: Vec<Identity>,
}

impl Blockers {
    /// What blocks now has lower places than what will.
    pub(super) fn now(&self) -> Place {
        self.next
    }

    /// The first update of another session than `own`, of those with places below `before`, that what is about `scope` must
    /// wait for.
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

    /// What an update's request may change, if its first packet is in the log.
    pub(super) fn scope_of(&self, identity: &Identity, piece: Piece) -> Option<&Scope> {
        self.sessions.get(&(identity.flow, identity.session))?.scope_of(identity.seq, piece)
    }

    /// Those that have ceased to block since the last call.
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

    /// An update is in the log.
    pub(super) fn logged(&mut self, identity: Identity, scope: Scope, piece: Piece) {
        let entry = Entry { scope, piece, durable: false, place: None };
        let entries = &mut self.session(identity.flow, identity.session).entries;
        entries.entry(identity.seq).or_insert(entry);
    }

    /// A fence has covered it.
    pub(super) fn durable(&mut self, identity: &Identity) {
        let state = self.session(identity.flow, identity.session);
        let Some(entry) = state.entries.get_mut(&identity.seq) else { return };
        entry.durable = true;
        let end = state.end;
        // What the server has asked for may be in the middle of a request.
        let Some(request) = state.whole(identity.seq.min(end)).filter(|_| !state.excused) else { return };
        let mut last = request.end;
        if last > end {
            state.end = state.end_from(end);
            last = state.end;
        }
        (request.start..last).for_each(|seq| self.begin(&Identity { seq, ..*identity }));
    }

    /// An update has left the log.
    pub(super) fn removed(&mut self, identity: &Identity) {
        let Some(state) = self.sessions.get_mut(&(identity.flow, identity.session)) else { return };
        if let Some(entry) = state.entries.remove(&identity.seq) {
            self.end(identity, &entry.scope, entry.place);
        }
    }

    /// The server has applied all of a session up to `seq`. Only where `is_news` does that tell what the numbers behind are:
    /// a late packet says less than is so, and a number that seems to be missing may have been applied and removed.
    pub(super) fn applied(&mut self, flow: Flow, session: u16, seq: u32, is_news: bool) {
        let state = self.session(flow, session);
        let rest = state.entries.split_off(&seq.saturating_add(1));
        let gone = std::mem::replace(&mut state.entries, rest);
        for (seq, entry) in gone {
            self.end(&Identity { flow, session, seq }, &entry.scope, entry.place);
        }
        if is_news {
            self.covers(flow, session, seq.saturating_add(1));
        }
    }

    /// The server has applied everything of a session below `next`.
    pub(super) fn covers(&mut self, flow: Flow, session: u16, next: u32) {
        let state = self.session(flow, session);
        state.asked = None;
        let was_known = state.covered.is_some();
        state.covered = state.covered.max(Some(next));
        if !was_known || state.end < next {
            self.settle(flow, session);
        }
    }

    /// The server misses `seq` of a session.
    pub(super) fn misses(&mut self, flow: Flow, session: u16, seq: u32) {
        let state = self.session(flow, session);
        if state.covered.is_none() && state.asked.is_none_or(|asked| seq < asked) {
            state.asked = Some(seq);
            self.settle(flow, session);
        }
    }

    /// The server has lost what it confirmed of a session, or goes on with it. While it does not, nothing of the session blocks.
    pub(super) fn excuse(&mut self, flow: Flow, session: u16, excused: bool) {
        let state = self.session(flow, session);
        if state.excused != excused {
            state.excused = excused;
            self.settle(flow, session);
        }
    }

    /// A client's sessions are forgotten; none of its updates is in the log.
    pub(super) fn forget_client(&mut self, flow: Flow) {
        let all = (flow, 0)..=(flow, u16::MAX);
        let sessions: Vec<_> = self.sessions.range(all).map(|(key, _)| *key).collect();
        for key in sessions {
            self.sessions.remove(&key);
        }
    }

    /// Has those of a session block that are to, and no others.
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
                self.begin(&identity);
            } else {
                self.cease(&identity);
            }
        }
    }

    /// An update blocks from now on.
    fn begin(&mut self, identity: &Identity) {
        let place = self.next;
        let Some(state) = self.sessions.get_mut(&(identity.flow, identity.session)) else { return };
        // All of its request is here, the first packet as well.
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

    /// An update that stays in the log blocks no more.
    fn cease(&mut self, identity: &Identity) {
        let key = (identity.flow, identity.session);
        let Some(entry) = self.sessions.get_mut(&key).and_then(|state| state.entries.get_mut(&identity.seq))
        else {
            return;
        };
        let (scope, place) = (entry.scope.clone(), entry.place.take());
        self.end(identity, &scope, place);
    }

    fn end(&mut self, identity: &Identity, scope: &Scope, place: Option<Place>) {
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
    fn what_may_change_any_key_blocks_all() {
        let mut blockers = Blockers::default();
        log(&mut blockers, 1, 1, Scope::All);
        assert_eq!(first(&blockers, &about("a")), Some(1));
        assert_eq!(first(&blockers, &Scope::Keys(SmallVec::new())), None);
    }

    #[test]
    fn what_is_behind_a_gap_blocks_nothing_until_the_gap_is_filled() {
        let mut blockers = Blockers::default();
        blockers.covers(flow(1), 1, 1);
        log(&mut blockers, 1, 2, about("a"));
        log(&mut blockers, 1, 3, about("a"));
        assert_eq!(first(&blockers, &about("a")), None);
        let before = blockers.now();
        log(&mut blockers, 1, 1, about("b"));
        assert_eq!(first(&blockers, &about("a")), Some(2));
        assert_eq!(blockers.first(&Scope::All, (flow(9), 1), before), None, "it began before they blocked");
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
    fn a_request_of_several_packets_blocks_what_its_first_one_names() {
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
        // Two of which each says that it is the last of two: what they are about is not known.
        for seq in [4, 5] {
            blockers.logged(identity(2, seq), about("a"), Piece { index: 1, count: 2 });
            blockers.durable(&identity(2, seq));
        }
        assert_eq!(first(&blockers, &about("b")), Some(4));
    }

    #[test]
    fn of_a_request_whose_rest_the_server_misses_nothing_blocks() {
        let mut blockers = Blockers::default();
        let piece = |blockers: &mut Blockers, seq: u32| {
            blockers.logged(identity(1, seq), Scope::All, Piece { index: seq - 5, count: 3 });
            blockers.durable(&identity(1, seq));
        };
        (5..7).for_each(|seq| piece(&mut blockers, seq));
        assert_eq!(first(&blockers, &Scope::All), None, "it was applied, or nobody was told of it");
        blockers.misses(flow(1), 1, 7);
        log(&mut blockers, 1, 8, Scope::All);
        assert_eq!(first(&blockers, &Scope::All), None);
        piece(&mut blockers, 7);
        assert_eq!(blockers.all.values().map(|blocker| blocker.seq).collect::<Vec<_>>(), [5, 6, 7, 8]);
    }

    #[test]
    fn while_nothing_is_known_of_a_session_all_of_it_blocks() {
        let mut blockers = Blockers::default();
        log(&mut blockers, 1, 7, about("a"));
        log(&mut blockers, 1, 9, about("b"));
        assert_eq!(first(&blockers, &about("b")), Some(9));
        // What is no news tells what is gone, and nothing about gaps.
        blockers.applied(flow(1), 1, 3, false);
        assert_eq!(first(&blockers, &about("b")), Some(9));
        blockers.misses(flow(1), 1, 8);
        assert_eq!((first(&blockers, &about("a")), first(&blockers, &about("b"))), (Some(7), None));
        assert_eq!(blockers.take_ended(), [identity(1, 9)]);
        blockers.misses(flow(1), 1, 6);
        assert_eq!(first(&blockers, &about("a")), None, "what comes first is missing");
    }

    #[test]
    fn sessions_that_the_server_has_lost_block_nothing() {
        let mut blockers = Blockers::default();
        log(&mut blockers, 1, 1, about("a"));
        blockers.excuse(flow(1), 1, true);
        assert_eq!(first(&blockers, &about("a")), None);
        log(&mut blockers, 1, 2, about("a"));
        assert_eq!(first(&blockers, &about("a")), None);
        blockers.excuse(flow(1), 1, false);
        assert_eq!(first(&blockers, &about("a")), Some(1));
    }
}
