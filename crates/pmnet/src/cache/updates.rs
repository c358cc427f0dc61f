//! Updates: they pass, become durable here, and are applied there.

use smallvec::SmallVec;

use super::codec::Effect;
use super::values::Weight;
use super::{Cache, Id, KEYS_MAX, Key, Whole};

/// An update that has passed and is not known to be applied.
#[derive(Clone, Debug)]
pub(super) struct Flight<V> {
    pub(super) keys: SmallVec<[Key; 1]>,
    /// Whether its keys are those of a whole that it begins.
    pub(super) begins: Option<Whole>,
    /// Whether it sets its only key to a value that we may get.
    sets: bool,
    durable: bool,
    /// What it sets, from when it is in the log until it serves. It lives no longer than what it belongs to, whatever
    /// becomes of the log entry, and counts among the values that wait.
    value: Option<V>,
}

/// What a packet may change.
#[derive(Clone, Debug)]
pub(super) struct Change {
    /// `None`: any key.
    pub(super) keys: Option<SmallVec<[Key; 1]>>,
    /// Whether it sets its only key to a value that we may get.
    pub(super) sets: bool,
    /// Whether the keys are those of a whole that it begins.
    pub(super) begins: Option<Whole>,
}

impl Change {
    fn of(request: &[u8], effect: &Effect) -> Self {
        let keys = keys_of(request, effect);
        Self { sets: matches!(effect, Effect::Sets { .. }) && keys.is_some(), keys, begins: None }
    }
}

/// The keys of a request that an effect or a query names; `None` if any key may change.
pub(super) fn keys_at(request: &[u8], ranges: &[std::ops::Range<usize>]) -> Option<SmallVec<[Key; 1]>> {
    if ranges.len() > KEYS_MAX {
        return None;
    }
    let mut keys: SmallVec<[Key; 1]> = SmallVec::new();
    for range in ranges {
        let key = request.get(range.clone())?;
        if !keys.iter().any(|known| **known == *key) {
            keys.push(Key::from(key));
        }
    }
    Some(keys)
}

fn keys_of(request: &[u8], effect: &Effect) -> Option<SmallVec<[Key; 1]>> {
    match effect {
        Effect::None => Some(SmallVec::new()),
        Effect::Sets { key, .. } => keys_at(request, std::slice::from_ref(key)),
        Effect::Touches(keys) => keys_at(request, keys),
        Effect::TouchesAll => None,
    }
}

impl<S: Copy + Ord, V: Weight> Cache<S, V> {
    /// A session that begins: the server has taken it, and none of its updates and bypasses, which are numbered from
    /// these on, has been sent yet. Without this a session's updates are followed, but serve only later.
    pub fn session_started(&mut self, session: S, first_update: u32, first_bypass: u32) {
        if self.open {
            self.sessions.start(session, first_update, first_bypass);
        }
    }

    /// An update passes towards the server. `effect` is what the codec says about `request`.
    ///
    /// From now on its keys miss, until it may serve itself. One that is known already changes nothing. Whether it goes
    /// into the log does not matter: one that does not is never reported durable.
    pub fn update_seen(&mut self, id: Id<S>, request: &[u8], effect: &Effect) {
        self.see(id, Change::of(request, effect));
    }

    pub(super) fn see(&mut self, id: Id<S>, change: Change) {
        let Some(row) = self.sessions.row(id.session) else { return self.clear() };
        if row.covers(id.seq) || self.flights.contains_key(&id) {
            return;
        }
        if self.flights.len() >= self.limits.updates_max {
            return self.may_change_all(id);
        }
        row.in_flight += 1;
        let fresh = row.is_fresh(id.seq);
        let Change { keys, sets, begins } = change;
        if keys.is_none() {
            self.may_change_all(id);
        }
        let writer = (sets && fresh && self.serves()).then_some(id);
        let keys = keys.unwrap_or_default();
        keys.iter().for_each(|key| self.begin_update(key, writer));
        self.flights.insert(id, Flight { keys, begins, sets, durable: false, value: None });
    }

    fn begin_update(&mut self, key: &Key, writer: Option<Id<S>>) {
        self.values.remove(key);
        if let Some(before) = self.busy.decides(key) {
            self.drop_waiting(before);
        }
        self.reads.forget_key(key);
        self.busy.add_update(key, writer);
    }

    /// What this update sets will never serve.
    fn drop_waiting(&mut self, id: Id<S>) {
        let Some(flight) = self.flights.get_mut(&id) else { return };
        if let (Some(value), Some(key)) = (flight.value.take(), flight.keys.first()) {
            self.values.end_waiting(key, &value);
        }
    }

    /// An update that passes, or one too many to remember, may change any key until it is applied.
    fn may_change_all(&mut self, id: Id<S>) {
        let began = self.sessions.get_mut(id.session).is_some_and(|row| row.blind_until(id.seq));
        self.blind += usize::from(began);
        self.drop_all();
    }

    /// An update passes whose identity is that of one in flight, but whose bytes are others. Which of them the server
    /// takes is not known: the keys of both stay stale until one is applied.
    pub fn update_conflicts(&mut self, id: Id<S>, request: &[u8], effect: &Effect) {
        self.see_conflict(id, Change::of(request, effect));
    }

    pub(super) fn see_conflict(&mut self, id: Id<S>, change: Change) {
        self.see(id, change.clone());
        self.drop_waiting(id);
        let Some(flight) = self.flights.get_mut(&id) else { return };
        (flight.sets, flight.begins) = (false, None);
        for key in &flight.keys {
            self.values.remove(key);
            self.busy.lose_order(key);
        }
        let Some(mut keys) = change.keys else { return self.may_change_all(id) };
        keys.retain(|key| !flight.keys.contains(key));
        flight.keys.extend(keys.iter().cloned());
        keys.iter().for_each(|key| self.begin_update(key, None));
    }

    /// Whether what an update sets is worth holding: it may serve once the log entry is fenced.
    pub fn wants_value(&self, id: Id<S>) -> bool {
        let Some(flight) = self.flights.get(&id) else { return false };
        let is_open = flight.sets && !flight.durable && flight.value.is_none();
        is_open && flight.keys.iter().any(|key| self.busy.ends_with(key, id))
    }

    /// An update is in the log, and sets its key to `value`. Nothing of that is kept but for [`Self::wants_value`], or
    /// if there is no room for it.
    pub fn update_logged(&mut self, id: Id<S>, value: V) {
        if !self.wants_value(id) {
            return;
        }
        let Some(flight) = self.flights.get_mut(&id) else { return };
        let Some(key) = flight.keys.first() else { return };
        if self.values.begin_waiting(key, &value) {
            flight.value = Some(value);
        }
    }

    /// The log entry of an update is fenced.
    ///
    /// What it sets serves from when all updates of its session before it are durable, too: before that the server might
    /// never apply it (T1, T3). An update that is unknown, or known to be applied, changes nothing.
    pub fn update_durable(&mut self, id: Id<S>) {
        let Some(flight) = self.flights.get_mut(&id).filter(|flight| !flight.durable) else { return };
        flight.durable = true;
        self.advance(id.session);
    }

    /// Gives up the values of which this is true.
    pub fn give_up(&mut self, goes: impl Fn(&V) -> bool) {
        self.values.remove_if(&goes);
        for flight in self.flights.values_mut() {
            if let (Some(value), Some(key)) = (flight.value.take_if(|value| goes(value)), flight.keys.first())
            {
                self.values.end_waiting(key, &value);
            }
        }
    }

    /// Moves the end of what is durable without gaps, and lets the updates below it serve.
    fn advance(&mut self, session: S) {
        let Some(row) = self.sessions.get_mut(session) else { return };
        loop {
            let Ok(seq) = u32::try_from(row.durable) else { return };
            let id = Id { session, seq };
            let Some(flight) = self.flights.get_mut(&id).filter(|flight| flight.durable) else { return };
            row.durable += 1;
            let Some(value) = flight.value.take() else { continue };
            let Some(key) = flight.keys.first() else { continue };
            self.values.end_waiting(key, &value);
            if self.busy.ends_with(key, id) {
                self.values.insert(Key::clone(key), value);
            }
        }
    }

    /// A server-ACK passes: every update of the session up to `seq` is applied (T2, T6).
    ///
    /// If it covers updates that have not passed here since the cache began, these have changed keys unseen, and
    /// everything that was kept is dropped.
    pub fn server_ack(&mut self, session: S, seq: u32) {
        let end = u64::from(seq) + 1;
        let fresh_from = self.open.then(|| self.sessions.fresh_after(end));
        let Some(row) = self.sessions.row(session) else { return self.drop_all() };
        let covered = row.covered();
        if covered.is_some_and(|covered| end <= covered) {
            return;
        }
        let ended = row.cover(end, fresh_from);
        self.blind -= usize::from(ended);
        let landed = self.land(session, seq);
        if covered.is_none_or(|covered| u64::from(landed) != end - covered) {
            self.drop_all();
        }
        self.advance(session);
    }

    /// Gives up a session. The caller vouches that none of its updates that are not applied ever will be: its client
    /// is gone, and no log has them.
    pub fn session_gone(&mut self, session: S) {
        let Some(row) = self.sessions.get_mut(session) else { return };
        let ended = row.see_again();
        self.blind -= usize::from(ended);
        self.land(session, u32::MAX);
        self.drop_all();
    }

    /// Gives up sessions with all that is known of them, as others with these names may begin. The caller vouches as for
    /// [`Self::session_gone`].
    pub fn forget_sessions(&mut self, names: std::ops::RangeInclusive<S>) {
        for session in self.sessions.names(names) {
            let reads: Vec<Id<S>> = self.reads.of(session);
            reads.into_iter().for_each(|id| drop(self.reads.remove(id)));
            let all = Id { session, seq: 0 }..=Id { session, seq: u32::MAX };
            let touching: Vec<Id<S>> = self.touching.range(all).map(|(id, _)| *id).collect();
            touching.into_iter().for_each(|id| self.forget_touching(id));
            if self.sessions.get(session).is_some_and(|row| !row.may_go()) {
                self.session_gone(session);
            }
            self.sessions.remove(session);
        }
    }

    /// Ends the flights of a session up to a number; returns how many there were.
    fn land(&mut self, session: S, last: u32) -> u32 {
        let range = Id { session, seq: 0 }..=Id { session, seq: last };
        let mut landed = 0;
        while let Some((&id, _)) = self.flights.range(range.clone()).next() {
            self.drop_waiting(id);
            let flight = self.flights.remove(&id).expect("it was found");
            flight.keys.iter().for_each(|key| self.busy.remove_update(key));
            landed += 1;
        }
        if let Some(row) = self.sessions.get_mut(session) {
            row.in_flight -= landed;
        }
        landed
    }
}
