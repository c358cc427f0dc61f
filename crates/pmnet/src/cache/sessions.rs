//! The state of each session: which of its updates are applied, which are durable, and which numbers are new.

use super::clock::Clock;

/// One session. Numbers are exclusive ends, so they need 64 bits: a `covered` of 5 means that 0 to 4 are applied.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Row {
    /// Whether `covered` is known, because the session's start or a server-ACK has passed.
    known: bool,
    covered: u64,
    /// Every update below this number is applied or in this device's log.
    pub(super) durable: u64,
    /// Updates from this number on had not been sent when the cache began to follow the session.
    fresh_from: Option<u64>,
    /// Bypasses from this number on have not passed yet.
    bypass_next: Option<u64>,
    /// Any key may change until every update below this number is applied.
    all_until: Option<u64>,
    /// Number of updates in flight, and of bypasses in flight that may change something.
    pub(super) in_flight: u32,
}

impl Row {
    /// Whether an update is known to be applied.
    pub(super) fn covers(&self, seq: u32) -> bool {
        self.known && u64::from(seq) < self.covered
    }

    /// Whether every update up to `seq` is applied or in the log.
    pub(super) fn holds(&self, seq: u32) -> bool {
        self.known && u64::from(seq) < self.durable
    }

    /// Whether an update that passes for the first time is certainly new. No copy of it can have passed before, so
    /// it is neither applied nor overwritten yet.
    pub(super) fn is_fresh(&self, seq: u32) -> bool {
        self.fresh_from.is_some_and(|from| u64::from(seq) >= from)
    }

    /// Notes that any key may change until `seq` is applied. True if no key was blind before.
    pub(super) fn blind_until(&mut self, seq: u32) -> bool {
        let was_none = self.all_until.is_none();
        self.all_until = self.all_until.max(Some(u64::from(seq) + 1));
        was_none
    }

    /// Notes that every update below `end` is applied. True if the session is no longer blind.
    pub(super) fn cover(&mut self, end: u64, fresh_from: Option<u64>) -> bool {
        if !self.known && fresh_from.is_some() {
            self.known = true;
            self.fresh_from = fresh_from;
        }
        self.covered = self.covered.max(end);
        self.durable = self.durable.max(end);
        self.all_until.take_if(|until| *until <= end).is_some()
    }

    /// The end of the updates that are known to be applied.
    pub(super) fn covered(&self) -> Option<u64> {
        self.known.then_some(self.covered)
    }

    /// Ends the session's blind time. True if it was blind.
    pub(super) fn end_blind(&mut self) -> bool {
        self.all_until.take().is_some()
    }

    /// Handles the start of a session that has the number of one that has ended. The numbers between the old
    /// session's last update and the new session's first one were never used. If there are no such numbers, the
    /// packet is a late copy of the one that began this session.
    fn restart(&mut self, first_update: u64, first_bypass: u64) {
        if self.known && self.is_removable() && self.covered < first_update {
            (self.covered, self.durable) = (first_update, first_update.max(self.durable));
            (self.fresh_from, self.bypass_next) = (Some(first_update), Some(first_bypass));
        }
    }

    pub(super) fn is_removable(&self) -> bool {
        self.in_flight == 0 && self.all_until.is_none()
    }
}

#[derive(Clone, Debug)]
pub(super) struct Sessions<S> {
    clock: Clock<S, Row>,
    max: usize,
    window: u32,
}

impl<S: Copy + Ord> Sessions<S> {
    pub(super) fn new(max: usize, window: u32) -> Self {
        Self { clock: Clock::new(), max, window }
    }

    pub(super) fn get(&self, session: S) -> Option<&Row> {
        self.clock.peek(&session)
    }

    pub(super) fn get_mut(&mut self, session: S) -> Option<&mut Row> {
        self.clock.get_mut(&session)
    }

    /// The row of a session, which is created if necessary. `None` if all rows are in use.
    pub(super) fn row(&mut self, session: S) -> Option<&mut Row> {
        if !self.clock.contains(&session) {
            self.insert(session, Row::default())?;
        }
        self.clock.get_mut(&session)
    }

    /// Adds a session of which every packet passes here from now on. A session that is already known is not new,
    /// unless its numbers begin above all that are applied.
    pub(super) fn start(&mut self, session: S, first_update: u32, first_bypass: u32) {
        if let Some(row) = self.clock.get_mut(&session) {
            return row.restart(first_update.into(), first_bypass.into());
        }
        let row = Row {
            known: true,
            covered: first_update.into(),
            durable: first_update.into(),
            fresh_from: Some(first_update.into()),
            bypass_next: Some(first_bypass.into()),
            ..Row::default()
        };
        self.insert(session, row);
    }

    /// The sessions of this range that are known.
    pub(super) fn names(&self, names: std::ops::RangeInclusive<S>) -> Vec<S> {
        self.clock.keys(names)
    }

    pub(super) fn remove(&mut self, session: S) {
        self.clock.remove(&session);
    }

    fn insert(&mut self, session: S, row: Row) -> Option<()> {
        if self.clock.len() >= self.max {
            self.clock.evict(Row::is_removable)?;
        }
        self.clock.insert(session, row);
        Some(())
    }

    /// The first fresh number of a session that is known only from a server-ACK up to `end`: no client is further
    /// ahead.
    pub(super) fn fresh_after(&self, end: u64) -> u64 {
        end + u64::from(self.window)
    }

    /// Notes a bypass. True if no copy of it can have passed before. If the numbers of the session's bypasses are
    /// not known, `learn` says whether to take them from this one.
    pub(super) fn first_sight(&mut self, session: S, seq: u32, learn: bool) -> bool {
        let (seq, window) = (u64::from(seq), u64::from(self.window));
        let Some(row) = self.clock.get_mut(&session) else { return false };
        let first = row.bypass_next.is_some_and(|next| seq >= next);
        match row.bypass_next {
            Some(next) => row.bypass_next = Some(next.max(seq + 1)),
            None => row.bypass_next = learn.then_some(seq + window),
        }
        first
    }
}
