//! The second step of recovery: decide which records are current, once every record has been read. The rules are in
//! `docs/format/fs.md`, "Recovery".

use super::found::{BoundFound, BoundsFound, OperationFound, RecordFound, RecordKey, TreeFound};
use super::logs::newest;
use super::settled::{DamagedRecord, HeaderFound, LeftFound, LogDamage, LogFound, OperationSlot, Settled};
use super::unreadable::Unreadable;
use crate::clients::FIRST_CLIENT_AGAIN;
use crate::header::LOG_ENDED;
use crate::kept::Tombstone;
use crate::key::InodeNumber;
use crate::left::LeftLog;
use crate::names::Position;
use landfall_heap::{Damage, Heap, NoInlineCounts, SlotId, spaces};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Most notes about damaged records. Further ones are only counted.
const NOTES_MAX: usize = 100;

pub(super) fn settle(
    heap: &Heap,
    tree: &TreeFound,
    header: Option<HeaderFound>,
    bounds: &BoundsFound,
    mut operations: Vec<OperationFound>,
    unreadable: &Unreadable,
    left: &[Arc<LeftLog>],
) -> Settled {
    let mut settling = Settling { heap, unreadable, settled: Settled::default() };
    tree.take_sorted(|records| {
        records.chunk_by(|a, b| a.key.number == b.key.number).for_each(|some| settling.settle_number(some));
    });
    operations.sort_unstable_by_key(|operation| (operation.client, operation.index, operation.version));
    let of_left = operations.split_off(operations.partition_point(|found| found.client < FIRST_CLIENT_AGAIN));
    settling.settled.left = left.iter().map(|log| left_of(log, &of_left)).collect();
    settling.settled.header = header;
    settling.settled.has_nameless = unreadable.unnamed > 0;
    settling.settle_logs(bounds, &operations);
    settling.name_damage();
    settling.settled.end();
    settling.settled
}

/// The operations of a log that is left, from its first one on, without gaps.
fn left_of(log: &Arc<LeftLog>, operations: &[OperationFound]) -> LeftFound {
    let of_client: Vec<OperationFound> =
        operations.iter().filter(|found| found.client == log.client()).copied().collect();
    let follows = |(found, index): &(OperationSlot, u64)| found.index == *index;
    let found = newest(&of_client).map(OperationSlot::from).zip(log.first()..).take_while(follows);
    LeftFound { log: Arc::clone(log), operations: found.map(|(found, _)| found).collect() }
}

struct Settling<'s> {
    heap: &'s Heap,
    unreadable: &'s Unreadable,
    settled: Settled,
}

impl Settling<'_> {
    /// Decides about the records of one number, which are sorted.
    fn settle_number(&mut self, records: &[RecordFound]) {
        let number = records[0].key.number;
        self.settled.number_max = self.settled.number_max.max(Some(number).filter(|number| number.0 > 0));
        let mut lives = self.may_be_unreadable(number);
        for versions in records.chunk_by(|a, b| a.key == b.key) {
            let key = versions[0].key;
            // Neither current nor counted: without its inode the record means nothing.
            if key.inode().is_some() && !lives {
                self.settled.dead.add(number);
                continue;
            }
            let current = self.settle_key(key, versions);
            if key.space == spaces::FILES_INODE {
                lives = current.is_some();
            }
            if let Some(newest) = current {
                self.settled.add(key, newest.slot);
                self.settled.orphans.extend(newest.is_orphan.then_some(number));
            }
        }
    }

    /// True if the record of the inode may be on the medium, and cannot be read.
    fn may_be_unreadable(&self, number: InodeNumber) -> bool {
        let inode = RecordKey { number, space: spaces::FILES_INODE, place: 0 };
        self.unreadable.unnamed > 0 || self.unreadable.tree.contains_key(&inode)
    }

    /// Decides about the records of one key, which are in order. Returns the current one, unless that is a tombstone.
    fn settle_key<'r>(&mut self, key: RecordKey, versions: &'r [RecordFound]) -> Option<&'r RecordFound> {
        let newest = versions.last()?;
        // An unreadable record is still on the medium, and may be read one day.
        let stale = versions.len() - 1 + self.unreadable.tree.get(&key).map_or(0, Vec::len);
        if stale > 0 || newest.is_tombstone {
            let hash = key.hash(self.heap);
            let tombstone = Tombstone { slot: newest.slot, space: key.space, number: key.number };
            self.count((key.space, hash), stale as u64, newest.is_tombstone.then_some(tombstone));
        }
        (!newest.is_tombstone).then_some(newest)
    }

    /// Counts the stale records of a key. Its tombstone is kept if there are any.
    fn count(&mut self, (space, hash): (u8, u64), stale: u64, tombstone: Option<Tombstone>) {
        let of_tree = space != spaces::FILES_LOG;
        let kept = if of_tree { &mut self.settled.kept } else { &mut self.settled.kept_bounds };
        (0..stale).for_each(|_| kept.stale.add(hash, &mut NoInlineCounts));
        match tombstone {
            Some(tombstone) if stale > 0 => kept.add_tombstone(hash, tombstone),
            // No stale record needs the tombstone. Its own record is still on the medium.
            Some(_) => kept.stale.add(hash, &mut NoInlineCounts),
            None => {}
        }
    }

    fn settle_logs(&mut self, bounds: &BoundsFound, operations: &[OperationFound]) {
        let of_client: BTreeMap<u32, &[OperationFound]> =
            operations.chunk_by(|a, b| a.client == b.client).map(|some| (some[0].client, some)).collect();
        let known = of_client.keys().chain(bounds.newest.keys()).chain(self.unreadable.bounds.keys());
        self.settled.client_max = known.max().copied();
        let of = |client: u32| of_client.get(&client).copied().unwrap_or_default();
        for (client, bound) in &bounds.newest {
            let older = bounds.older.get(client).copied().unwrap_or(0);
            let unreadable = u64::from(self.unreadable.bounds.contains_key(client));
            let hash = self.heap.hash(spaces::FILES_LOG, &client.to_le_bytes());
            let has_ended = bound.mark == LOG_ENDED;
            let number = InodeNumber(0);
            let tombstone = Tombstone { slot: bound.slot, space: spaces::FILES_LOG, number };
            self.count((spaces::FILES_LOG, hash), older + unreadable, has_ended.then_some(tombstone));
            if !has_ended {
                self.add_log(*client, bound, of(*client));
            }
        }
        let has_bound = |client: &u32| bounds.newest.contains_key(client);
        let clients: BTreeSet<u32> = of_client.keys().chain(self.unreadable.bounds.keys()).copied().collect();
        for client in clients.into_iter().filter(|client| !has_bound(client)) {
            self.add_lost_log(client, of(client));
        }
    }

    fn add_log(&mut self, client: u32, bound: &BoundFound, operations: &[OperationFound]) {
        let failed = self.unreadable.bounds.get(&client).copied();
        let (log, unacknowledged) = match (failed, bound.fields) {
            // An older bound must not stand in for one that cannot be read: it would publish operations again.
            (Some((slot, what)), _) => {
                let damage = LogDamage { slot: Some(slot), index: None, what };
                (LogFound { bound: Some(bound.slot), ..LogFound::without_bound(operations, damage) }, 0)
            }
            (None, Err(what)) => {
                let damage = LogDamage { slot: Some(bound.slot), index: None, what };
                (LogFound { bound: Some(bound.slot), ..LogFound::without_bound(operations, damage) }, 0)
            }
            (None, Ok(fields)) => LogFound::new(client, bound, fields, operations, self.unreadable),
        };
        self.settled.report.unacknowledged += unacknowledged;
        self.settled.logs.insert(client, log);
    }

    /// Operations without a bound are those of a client that has ended, unless a bound may be lost.
    fn add_lost_log(&mut self, client: u32, operations: &[OperationFound]) {
        let failed = self.unreadable.bounds.get(&client).copied();
        if failed.is_none() && self.unreadable.unnamed == 0 {
            return;
        }
        let what = failed.map_or(Damage::Lost, |(_, what)| what);
        let damage = LogDamage { slot: failed.map(|(slot, _)| slot), index: None, what };
        self.settled.logs.insert(client, LogFound::without_bound(operations, damage));
    }

    /// Lists what cannot be read of inodes that exist, and of logs.
    fn name_damage(&mut self) {
        for (key, failed) in &self.unreadable.tree {
            let inode = RecordKey { space: spaces::FILES_INODE, place: 0, ..*key };
            let is_known = self.settled.inodes.contains_key(&key.number);
            let has_ended = || self.settled.kept.tombstones.contains_key(&inode.hash(self.heap));
            let lives = is_known || self.may_be_unreadable(key.number) && !has_ended();
            if key.number.0 > 0 && !lives {
                continue;
            }
            let failed = failed.iter().map(|(slot, what)| DamagedRecord {
                slot: *slot,
                space: key.space,
                place: key.place,
                what: *what,
            });
            self.settled.damaged.entry(key.number).or_default().extend(failed);
            self.settled.number_max =
                self.settled.number_max.max(Some(key.number).filter(|number| number.0 > 0));
        }
        self.settled.note_damage();
    }
}

impl Settled {
    /// Adds a current record.
    fn add(&mut self, key: RecordKey, slot: SlotId) {
        let number = key.number;
        match key.space {
            // Its value was read when it was found.
            spaces::FILES_HEADER => {}
            spaces::FILES_INODE => drop(self.inodes.insert(number, slot)),
            spaces::FILES_NAMES => drop(self.names.insert((number, Position(key.place)), slot)),
            spaces::FILES_DATA => drop(self.data.insert((number, key.place as u32), slot)),
            _ => drop(self.extended.insert(number, slot)),
        }
    }

    fn note_damage(&mut self) {
        let tree = self.damaged.iter().flat_map(|(number, all)| all.iter().map(|record| (*number, *record)));
        let mut notes: Vec<String> = tree
            .map(|(number, record)| {
                let key = RecordKey { number, space: record.space, place: record.place };
                format!("{}: {}", key.describe(), record.what)
            })
            .collect();
        self.report.damaged = notes.len() as u64;
        for (client, log) in &self.logs {
            let Some(damage) = log.damage else { continue };
            self.report.damaged += 1;
            let what = damage.index.map_or("its bound".into(), |index| format!("operation {index}"));
            let kept = log.behind.len();
            notes
                .push(format!("log of client {client}: {what}: {}; {kept} operations are kept", damage.what));
        }
        let more = notes.len().saturating_sub(NOTES_MAX);
        notes.truncate(NOTES_MAX);
        if more > 0 {
            notes.push(format!("and {more} more records of files that cannot be read"));
        }
        self.report.notes = notes;
    }

    /// Gathers the current records, and counts them.
    fn end(&mut self) {
        let mut current: Vec<SlotId> = self.inodes.values().copied().collect();
        current.extend(self.names.values().chain(self.data.values()).chain(self.extended.values()));
        current.extend(self.header.map(|header| header.slot));
        let tombstones = self.kept.tombstones.values().chain(self.kept_bounds.tombstones.values());
        current.extend(tombstones.map(|tombstone| tombstone.slot));
        for log in self.logs.values() {
            current.extend(log.bound);
            current.extend(log.operations.iter().chain(&log.behind).map(|operation| operation.slot));
            self.report.operations += log.operations.len() as u64;
        }
        current.extend(self.left.iter().flat_map(|left| &left.operations).map(|operation| operation.slot));
        current.sort_unstable();
        self.current = current;
        self.report.inodes = self.inodes.len() as u64;
        self.report.names = self.names.len() as u64;
        self.report.data = self.data.len() as u64;
    }
}
