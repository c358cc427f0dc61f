//! The second step of recovery: decide which records are current, once every record has been read. The rules are in
//! `docs/format/wal.md`.

use super::found::{BoundFound, BoundsFound, EntryFound, Recovered, tombstone};
use crate::bounds::is_end;
use crate::format::{Cut, Head, Settings, parse_entry_key, parse_position_key};
use crate::log::Position;
use crate::tombstones::Tombstones;
use landfall_heap::{Damage, DamagedSlot, NoInlineCounts, SlotId, StaleCounts, spaces};
use std::collections::{BTreeMap, BTreeSet};

/// A log that recovery has found.
#[derive(Debug)]
pub(super) struct LogFound {
    pub(super) number: u32,
    pub(super) name: String,
    pub(super) head: SlotId,
    pub(super) first: u64,
    pub(super) settings: Settings,
    pub(super) cut: Cut,
    pub(super) life: u64,
    /// Entries from this offset on were never acknowledged, and the head on the medium does not say so yet.
    pub(super) cut_at: Option<u64>,
    /// Slot and length in bytes of each entry.
    pub(super) slots: Vec<(SlotId, u32)>,
    pub(super) unreadable: BTreeMap<u64, SlotId>,
    pub(super) positions: BTreeMap<Box<str>, Position>,
    pub(super) damaged: Option<Damage>,
    /// Heads that cannot be read.
    pub(super) unreadable_heads: Vec<SlotId>,
}

/// All records that are current.
#[derive(Debug, Default)]
pub(super) struct Settled {
    pub(super) logs: Vec<LogFound>,
    pub(super) stale: StaleCounts,
    pub(super) tombstones: Tombstones,
    /// Slots of current records.
    pub(super) current: Vec<SlotId>,
    pub(super) number_max: u32,
    pub(super) report: Recovered,
}

/// Slots that cannot be read, by what is known of them.
#[derive(Debug, Default)]
struct Unreadable {
    /// Entries, by log number and offset.
    entries: BTreeMap<(u32, u64), SlotId>,
    /// Heads, by the name of their log.
    heads: BTreeMap<String, Vec<(SlotId, Damage)>>,
    /// Positions, by log number and consumer.
    positions: BTreeMap<(u32, String), Vec<(SlotId, Damage)>>,
    /// Number of slots of which nothing is known. Each may have been an entry.
    unnamed: u64,
}

impl Unreadable {
    fn new(damaged: &[DamagedSlot]) -> Self {
        let mut unreadable = Self::default();
        for slot in damaged {
            match &slot.named {
                None => unreadable.unnamed += 1,
                Some((spaces::LOG, key, _)) => match (parse_entry_key(key), std::str::from_utf8(key)) {
                    (Some(entry), _) if is_binary(key) => {
                        unreadable.entries.insert(entry, slot.slot);
                    }
                    (_, Ok(name)) => {
                        unreadable.heads.entry(name.to_owned()).or_default().push((slot.slot, slot.what));
                    }
                    _ => unreadable.unnamed += 1,
                },
                Some((spaces::LOG_POSITION, key, _)) => {
                    if let Some((number, consumer)) = parse_position_key(key) {
                        let found = unreadable.positions.entry((number, consumer.to_owned())).or_default();
                        found.push((slot.slot, slot.what));
                    }
                }
                Some(_) => {}
            }
        }
        unreadable
    }
}

/// True for a key that is not the name of a log.
fn is_binary(key: &[u8]) -> bool {
    crate::format::check_log_name(key).is_err()
}

pub(super) fn settle(bounds: BoundsFound, mut entries: Vec<EntryFound>, damaged: &[DamagedSlot]) -> Settled {
    let mut unreadable = Unreadable::new(damaged);
    // The log of an unreadable entry, or position, may be gone: a new one with its number would get that.
    let numbers = entries.iter().map(|entry| entry.number).chain(unreadable.entries.keys().map(|key| key.0));
    let number_max =
        numbers.chain(unreadable.positions.keys().map(|key| key.0)).fold(bounds.number_max, u32::max);
    let mut settled = Settled { number_max, stale: bounds.stale, ..Settled::default() };
    let mut positions = settled.take_bounds(bounds.newest, &unreadable);
    entries.sort_unstable_by_key(|entry| (entry.number, entry.offset, entry.seq));
    settled.add_lost(&entries, &unreadable, &bounds.firsts);
    let of_number: BTreeMap<u32, &[EntryFound]> =
        entries.chunk_by(|a, b| a.number == b.number).map(|some| (some[0].number, some)).collect();
    for log in &mut settled.logs {
        let entries = of_number.get(&log.number).copied().unwrap_or_default();
        let void = log.take_entries(entries, &mut unreadable);
        log.positions = positions.remove(&log.number).unwrap_or_default();
        settled.report.notes.extend(log.take_unreadable_positions(&unreadable));
        settled.report.logs += 1;
        settled.report.entries += log.slots.len() as u64;
        settled.report.damaged += log.unreadable.len() as u64;
        settled.report.unacknowledged += void;
        settled.current.extend(log.slots.iter().map(|(slot, _)| *slot).filter(|slot| *slot != SlotId::NONE));
        settled.current.extend(Some(log.head).filter(|head| *head != SlotId::NONE));
        settled.current.extend(log.positions.values().filter_map(Position::readable));
    }
    settled.current.extend(settled.tombstones.values().map(|tombstone| tombstone.slot));
    // Sorted by slot, because consecutive records are read fastest.
    settled.current.sort_unstable();
    settled
}

impl Settled {
    /// Sorts bounds into heads, positions and tombstones. Returns the positions, by the number of their log.
    fn take_bounds(
        &mut self,
        newest: BTreeMap<u64, BoundFound>,
        unreadable: &Unreadable,
    ) -> BTreeMap<u32, BTreeMap<Box<str>, Position>> {
        let is_live = |bound: &BoundFound| bound.space == spaces::LOG && !is_end(bound.mark);
        let live: BTreeSet<u32> = newest.values().filter(|b| is_live(b)).map(|b| b.number).collect();
        let mut positions: BTreeMap<u32, BTreeMap<Box<str>, Position>> = BTreeMap::new();
        for (hash, bound) in newest {
            if is_live(&bound) {
                self.add_log(&bound);
                continue;
            }
            if bound.space == spaces::LOG_POSITION && !live.contains(&bound.number) {
                // The position's log is deleted: neither this record nor an older one counts.
                self.stale.forget(hash);
                continue;
            }
            if !is_end(bound.mark) {
                if let Some((number, consumer)) = parse_position_key(&bound.key) {
                    let position = Position::new(bound.slot, bound.mark);
                    positions.entry(number).or_default().insert(consumer.into(), position);
                }
                continue;
            }
            match tombstone(&bound, self.stale.has(hash, &NoInlineCounts)) {
                Some(tombstone) => {
                    self.tombstones.insert(hash, tombstone);
                }
                // No stale record needs the tombstone any more. Its own record is still on the medium.
                None => self.stale.add(hash, &mut NoInlineCounts),
            }
        }
        for (name, records) in &unreadable.heads {
            let Some((_, what)) = records.first() else { continue };
            let found = self.logs.iter().position(|log| log.name == *name);
            let at = found.unwrap_or_else(|| {
                self.number_max = self.number_max.saturating_add(1);
                self.logs.push(LogFound::new(self.number_max, name.clone()));
                self.logs.len() - 1
            });
            // An older head must not stand in for one that cannot be read: trimmed entries would come back.
            self.logs[at].damaged = Some(*what);
            self.logs[at].unreadable_heads = records.iter().map(|(slot, _)| *slot).collect();
            self.report.notes.push(format!("log {name}: its head is damaged ({what}); it is not served"));
        }
        positions
    }

    fn add_log(&mut self, bound: &BoundFound) {
        let name = String::from_utf8_lossy(&bound.key).into_owned();
        let head = bound.value.as_deref().map_or(Err(Damage::ValueChecksum), Head::decode);
        if let Err(what) = head {
            self.report.notes.push(format!("log {name}: its head is damaged ({what}); it is not served"));
        }
        let Head { settings, cut, life } = head.unwrap_or_default();
        self.logs.push(LogFound {
            head: bound.slot,
            first: bound.mark,
            settings,
            cut,
            life,
            damaged: head.err(),
            ..LogFound::new(bound.number, name)
        });
    }

    /// Keeps entries whose log has no head under the name `lost:NUMBER`, if a head cannot be read. If all heads can be
    /// read, entries without a head were never acknowledged or their log was deleted, and they are not kept.
    fn add_lost(&mut self, entries: &[EntryFound], unreadable: &Unreadable, heads: &BTreeMap<u32, u64>) {
        if unreadable.heads.is_empty() {
            return;
        }
        for some in entries.chunk_by(|a, b| a.number == b.number) {
            let (number, first) = (some[0].number, some[0].offset);
            if heads.contains_key(&number) {
                continue;
            }
            let name = format!("lost:{number}");
            self.report.notes.push(format!("entries whose log has lost its head are kept as log {name}"));
            self.logs.push(LogFound { first, ..LogFound::new(number, name) });
        }
    }
}

impl LogFound {
    /// A log of which only number and name are known.
    fn new(number: u32, name: String) -> Self {
        Self {
            number,
            name,
            head: SlotId::NONE,
            first: 0,
            settings: Settings::default(),
            cut: Cut::default(),
            life: 0,
            cut_at: None,
            slots: Vec::new(),
            unreadable: BTreeMap::new(),
            positions: BTreeMap::new(),
            damaged: None,
            unreadable_heads: Vec::new(),
        }
    }

    /// Takes the entries that count: those from the first offset up to the first gap. Returns how many entries are
    /// behind a gap and were therefore never acknowledged.
    fn take_entries(&mut self, entries: &[EntryFound], unreadable: &mut Unreadable) -> u64 {
        let from = entries.partition_point(|entry| entry.offset < self.first);
        let counts = |entry: &&EntryFound| entry.offset < self.cut.offset || entry.seq >= self.cut.seq;
        let known: Vec<EntryFound> = entries[from..].iter().filter(counts).copied().collect();
        let mut void = 0;
        for versions in known.chunk_by(|a, b| a.offset == b.offset) {
            let offset = versions[0].offset;
            if self.cut_at.is_some() || !self.fill_gap(offset, unreadable) {
                self.cut_at.get_or_insert(self.first + self.slots.len() as u64);
                void += 1;
                continue;
            }
            let entry = newest(versions);
            if entry.lost {
                self.unreadable.insert(offset, entry.slot);
            }
            self.slots.push((if entry.lost { SlotId::NONE } else { entry.slot }, entry.len));
        }
        // Unreadable entries at the end of the log may have been acknowledged, so they count.
        while self.cut_at.is_none() && self.take_unreadable(unreadable) {}
        void
    }

    /// Returns what to tell of each.
    fn take_unreadable_positions(&mut self, unreadable: &Unreadable) -> Vec<String> {
        let own = (self.number, String::new())..=(self.number, char::MAX.to_string());
        let mut notes = Vec::new();
        for ((_, consumer), records) in unreadable.positions.range(own) {
            let none = || Position::new(SlotId::NONE, 0);
            let position = self.positions.entry(consumer.as_str().into()).or_insert_with(none);
            position.unreadable.clone_from(records);
            notes.extend(position.known(consumer).err().map(|error| format!("log {}: {error}", self.name)));
        }
        notes
    }

    fn next(&self) -> u64 {
        self.first + self.slots.len() as u64
    }

    /// Fills the gap before `offset` with entries that cannot be read. False if entries are missing all the same.
    fn fill_gap(&mut self, offset: u64, unreadable: &mut Unreadable) -> bool {
        while self.next() < offset {
            if self.take_unreadable(unreadable) {
                continue;
            }
            // An unreadable slot of which nothing is known may have been this entry.
            if offset - self.next() > unreadable.unnamed {
                return false;
            }
            unreadable.unnamed -= 1;
            self.slots.push((SlotId::NONE, 0));
        }
        true
    }

    /// Takes the next entry if its slot cannot be read. False if the next entry is not such a slot.
    fn take_unreadable(&mut self, unreadable: &mut Unreadable) -> bool {
        let next = self.next();
        let Some(slot) = unreadable.entries.remove(&(self.number, next)) else { return false };
        self.unreadable.insert(next, slot);
        self.slots.push((SlotId::NONE, 0));
        true
    }
}

/// Of several records of one entry, the one with the highest version and revision.
fn newest(versions: &[EntryFound]) -> EntryFound {
    let newest = versions.iter().max_by_key(|entry| (entry.seq, entry.rev));
    *newest.expect("a chunk is not empty")
}
