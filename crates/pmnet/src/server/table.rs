//! All sessions of a server: the live sessions, and the rows of ended ones.

use super::row::SessionRow;
use super::session::Session;
use crate::identity::SessionKey;
use landfall_net::Instant;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Most rows that are evicted for one new session. One is enough, unless the limit was lowered.
const EVICTED_MAX: usize = 64;

/// Sessions by key.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) live: BTreeMap<SessionKey, Box<Session>>,
    ended: BTreeMap<SessionKey, SessionRow>,
    /// Ended sessions whose rows may be evicted, oldest first.
    order: BTreeSet<(u64, SessionKey)>,
    floor: u32,
}

impl Table {
    pub(super) fn new(floor: u32) -> Self {
        Self { live: BTreeMap::new(), ended: BTreeMap::new(), order: BTreeSet::new(), floor }
    }

    pub(super) fn len(&self) -> usize {
        self.live.len() + self.ended.len()
    }

    /// New sessions begin above this number, in updates and in bypasses.
    pub(super) fn floor(&self) -> u32 {
        self.floor
    }

    pub(super) fn ended(&self, key: &SessionKey) -> Option<&SessionRow> {
        self.ended.get(key)
    }

    pub(super) fn is_known(&self, key: &SessionKey) -> bool {
        self.live.contains_key(key) || self.ended.contains_key(key)
    }

    /// Adds the row of a session that has ended.
    pub(super) fn keep(&mut self, row: SessionRow) {
        if row.is_evictable() {
            self.order.insert((row.touched, row.key));
        }
        self.ended.insert(row.key, row);
    }

    /// Makes room for a session by evicting the oldest ended sessions. The floor rises. `None` if there is no room.
    pub(super) fn make_room(&mut self, max: usize) -> Option<Vec<SessionRow>> {
        let mut evicted = Vec::new();
        while self.len() >= max && evicted.len() < EVICTED_MAX {
            let Some((_, key)) = self.order.pop_first() else { break };
            let row = self.ended.remove(&key).expect("a session in order has ended");
            self.floor = self.floor.max(row.height());
            evicted.push(row);
        }
        (self.len() < max || !evicted.is_empty()).then_some(evicted)
    }

    /// Removes the row of an ended session, because another session with this key begins. That must be possible: a
    /// client with one address has at most 65536 keys. The floor rises above the old session's numbers, so that no
    /// late packet of the old session is taken for one of the new session. `None` if the row cannot be removed.
    pub(super) fn retire(&mut self, key: &SessionKey) -> Option<SessionRow> {
        let row = *self.ended.get(key).filter(|row| row.is_evictable())?;
        self.order.remove(&(row.touched, row.key));
        self.ended.remove(key);
        self.floor = self.floor.max(row.height() + 1);
        Some(row)
    }

    /// The foreign session whose last packet is oldest, if it is at least `span` old. Foreign clients announce no
    /// end.
    pub(super) fn silent_foreign(&self, now: Instant, span: Duration) -> Option<SessionKey> {
        let silent = self.live.iter().filter_map(|(key, session)| Some((session.foreign_since()?, *key)));
        silent.min().filter(|(since, _)| *since + span <= now).map(|(_, key)| key)
    }

    /// Adds evicted rows again, because their eviction was not committed. The floor stays raised, which does no
    /// harm.
    pub(super) fn put_back(&mut self, evicted: Vec<SessionRow>) {
        for row in evicted {
            if !self.is_known(&row.key) {
                self.keep(row);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::row::FLOOR_MAX;
    use crate::wire::FIRST_BYPASS;

    fn row(session: u16, update: u32, bypasses: u32) -> SessionRow {
        let key = SessionKey { client: "10.0.0.1:1".parse().unwrap(), session };
        let bypass = FIRST_BYPASS - 1 + bypasses;
        SessionRow { key, nonce: 1, update, bypass, ended: true, touched: u64::from(session), lease: 0 }
    }

    #[test]
    fn the_oldest_are_evicted_and_the_floor_rises_to_their_highest_number() {
        let mut table = Table::new(2);
        [row(3, 50, 0), row(1, 7, 9), row(2, 5, 1)].into_iter().for_each(|row| table.keep(row));
        assert_eq!(table.make_room(4), Some(vec![]));
        assert_eq!(table.make_room(3), Some(vec![row(1, 7, 9)]));
        assert_eq!(table.floor(), 9);
        assert_eq!(table.make_room(1), Some(vec![row(2, 5, 1), row(3, 50, 0)]));
        assert_eq!(table.floor(), 50);
    }

    #[test]
    fn rows_with_high_numbers_are_not_evicted() {
        let mut table = Table::new(0);
        table.keep(row(1, FLOOR_MAX + 1, 0));
        table.keep(row(2, 1, FLOOR_MAX + 1));
        assert_eq!(table.make_room(2), None);
        assert_eq!((table.len(), table.floor()), (2, 0));
    }

    #[test]
    fn rows_whose_eviction_failed_are_restored() {
        let mut table = Table::new(0);
        table.keep(row(1, 7, 0));
        let evicted = table.make_room(1).unwrap();
        table.put_back(evicted);
        assert!(table.is_known(&row(1, 7, 0).key));
        assert_eq!(table.make_room(1), Some(vec![row(1, 7, 0)]));
    }
}
