//! Updates in the read cache: they pass, become durable in the log, and are applied by the server.

use super::codec::Effect;
use super::flight::{Change, Flight};
use super::key::{Id, Key};
use super::state::Cache;
use super::values::Weight;

impl<S: Copy + Ord, V: Weight> Cache<S, V> {
    /// Adds a session that begins. The server has accepted it, and none of its updates and bypasses has been sent
    /// yet; they are numbered from these numbers on. Updates of a session without this call are followed too, but
    /// serve only later.
    pub fn session_started(&mut self, session: S, first_update: u32, first_bypass: u32) {
        if self.open {
            self.sessions.start(session, first_update, first_bypass);
        }
    }

    /// Handles an update that passes towards the server. `effect` is the codec's result for `request`.
    ///
    /// From now on the update's keys miss until its value may be served. An update that is already known changes
    /// nothing. It does not matter whether the update is logged: if it is not, it is never reported as durable.
    pub fn update_seen(&mut self, id: Id<S>, request: &[u8], effect: &Effect) {
        self.observe(id, Change::of(request, effect));
    }

    pub(super) fn observe(&mut self, id: Id<S>, change: Change) {
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
        if let Some(before) = self.busy.deciding_update(key) {
            self.drop_waiting(before);
        }
        self.reads.remove_key(key);
        self.busy.add_update(key, writer);
    }

    /// Drops the waiting value of an update, because it will never be served.
    fn drop_waiting(&mut self, id: Id<S>) {
        let Some(flight) = self.flights.get_mut(&id) else { return };
        if let (Some(value), Some(key)) = (flight.value.take(), flight.keys.first()) {
            self.values.end_waiting(key, &value);
        }
    }

    /// Notes that an update may change any key until it is applied, because of its request or because too many are
    /// in flight.
    fn may_change_all(&mut self, id: Id<S>) {
        let began = self.sessions.get_mut(id.session).is_some_and(|row| row.blind_until(id.seq));
        self.blind += usize::from(began);
        self.drop_all();
    }

    /// Handles an update that has the identity of one in flight but other bytes. It is not known which of them the
    /// server applies, so the keys of both are stale until one is applied.
    pub fn update_conflicts(&mut self, id: Id<S>, request: &[u8], effect: &Effect) {
        self.observe_conflict(id, Change::of(request, effect));
    }

    pub(super) fn observe_conflict(&mut self, id: Id<S>, change: Change) {
        self.observe(id, change.clone());
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

    /// Whether the cache wants the update's value, because it may serve it once the log entry is fenced.
    pub fn wants_value(&self, id: Id<S>) -> bool {
        let Some(flight) = self.flights.get(&id) else { return false };
        let is_open = flight.sets && !flight.durable && flight.value.is_none();
        is_open && flight.keys.iter().any(|key| self.busy.ends_with(key, id))
    }

    /// Notes that an update is in the log and sets its key to `value`. The value is stored only if
    /// [`Self::wants_value`], and if there is room for it.
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

    /// Notes that the log entry of an update is fenced.
    ///
    /// The value is served when all earlier updates of the session are durable, too. Before that the server might
    /// never apply the update (T1, T3). An update that is unknown, or known to be applied, changes nothing.
    pub fn update_durable(&mut self, id: Id<S>) {
        let Some(flight) = self.flights.get_mut(&id).filter(|flight| !flight.durable) else { return };
        flight.durable = true;
        self.advance(id.session);
    }

    /// Drops the values that satisfy `condition`.
    pub fn drop_values(&mut self, condition: impl Fn(&V) -> bool) {
        self.values.remove_if(&condition);
        for flight in self.flights.values_mut() {
            if let (Some(value), Some(key)) =
                (flight.value.take_if(|value| condition(value)), flight.keys.first())
            {
                self.values.end_waiting(key, &value);
            }
        }
    }

    /// Advances the end of the durable updates without a gap, and lets the updates below it serve.
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

    /// Handles a server-ACK that passes: every update of the session up to `seq` is applied (T2, T6).
    ///
    /// If it covers updates that have not passed here since the cache began, these have changed keys unseen, so all
    /// values are dropped.
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
        let landed = self.end_flights(session, seq);
        if covered.is_none_or(|covered| u64::from(landed) != end - covered) {
            self.drop_all();
        }
        self.advance(session);
    }

    /// Removes a session's updates in flight. The caller guarantees that those that are not applied never will be,
    /// because the client is gone and no log has them.
    pub fn session_gone(&mut self, session: S) {
        let Some(row) = self.sessions.get_mut(session) else { return };
        let ended = row.end_blind();
        self.blind -= usize::from(ended);
        self.end_flights(session, u32::MAX);
        self.drop_all();
    }

    /// Removes sessions and everything about them, because other sessions with their names may begin. The caller
    /// gives the guarantee of [`Self::session_gone`].
    pub fn remove_sessions(&mut self, names: std::ops::RangeInclusive<S>) {
        for session in self.sessions.names(names) {
            let reads: Vec<Id<S>> = self.reads.of(session);
            reads.into_iter().for_each(|id| drop(self.reads.remove(id)));
            let all = Id { session, seq: 0 }..=Id { session, seq: u32::MAX };
            let touching: Vec<Id<S>> = self.touching.range(all).map(|(id, _)| *id).collect();
            touching.into_iter().for_each(|id| self.remove_touching(id));
            if self.sessions.get(session).is_some_and(|row| !row.is_removable()) {
                self.session_gone(session);
            }
            self.sessions.remove(session);
        }
    }

    /// Ends the flights of a session up to a number, and returns how many there were.
    fn end_flights(&mut self, session: S, last: u32) -> u32 {
        let range = Id { session, seq: 0 }..=Id { session, seq: last };
        let mut landed = 0;
        while let Some((&id, _)) = self.flights.range(range.clone()).next() {
            self.drop_waiting(id);
            let flight = self.flights.remove(&id).expect("the flight was found");
            flight.keys.iter().for_each(|key| self.busy.remove_update(key));
            landed += 1;
        }
        if let Some(row) = self.sessions.get_mut(session) {
            row.in_flight -= landed;
        }
        landed
    }
}
