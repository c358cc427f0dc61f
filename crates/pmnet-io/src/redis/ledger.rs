//! The ledger: keys of the server's side-car in the real server, beside those of the users. It holds a row for each
//! session, and the key that leads to the rows. `docs/pmnet-commands.md` lists the keys.
//!
//! Rows are in numbered slots. Loading them takes a few `MGET` commands, and needs neither a scan of all keys nor data
//! types that some servers do not have.

use super::resp;
use super::upstream::{Upstream, UpstreamError, refuse_errors};
use crate::runtime::Saved;
use landfall_pmnet::{SessionKey, SessionRow, Work};
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

/// Most slots; a larger number in the real server is refused.
pub(super) const SLOTS_MAX: u32 = 1 << 20;
/// Most keys that one command fetches.
pub(super) const MGET_MAX: u32 = 1000;
const VERSION: &str = "1";
/// Command that writes a row and returns the previous value.
pub(super) const REPLACE: &[u8] = b"GETSET";
/// Command that writes rows if the key of the ledger is missing.
pub(super) const RESTORE: &[u8] = b"EVAL";
/// The script of [`RESTORE`]. Its keys are that of the ledger and those of rows, its arguments are the rows.
const RESTORE_SCRIPT: &[u8] = b"if redis.call('EXISTS',KEYS[1])==0 then \
    for i=2,#KEYS do redis.call('SET',KEYS[i],ARGV[i-1]) end end";

/// The value of `PREFIX:meta`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Meta {
    /// A number that each connection draws, which tells two side-cars apart.
    pub(super) generation: u64,
    pub(super) floor: u32,
    /// Number of slots; those in use are below it.
    pub(super) slots: u32,
    /// Number of the next rejected command.
    pub(super) rejected: u64,
}

impl Meta {
    pub(super) fn fetch(upstream: &mut Upstream, prefix: &str) -> Result<Option<Self>, UpstreamError> {
        let key = Ledger::meta_key(prefix);
        upstream.push(&[b"GET", key.as_bytes()]);
        let reply = upstream.call(None)?;
        refuse_errors(&reply, "to return the key of the ledger")?;
        let parse = |text| Self::from_text(text).ok_or(UpstreamError::Foreign { key });
        resp::bulk(&reply).map(parse).transpose()
    }

    pub(super) fn to_text(self) -> String {
        let Self { generation, floor, slots, rejected } = self;
        format!("{VERSION} {generation:016x} {floor} {slots} {rejected}")
    }

    pub(super) fn from_text(text: &[u8]) -> Option<Self> {
        let mut words = std::str::from_utf8(text).ok()?.split(' ');
        words.next().filter(|version| *version == VERSION)?;
        let meta = Self {
            generation: u64::from_str_radix(words.next()?, 16).ok()?,
            floor: words.next()?.parse().ok()?,
            slots: words.next()?.parse().ok().filter(|slots| *slots <= SLOTS_MAX)?,
            rejected: words.next()?.parse().ok()?,
        };
        words.next().is_none().then_some(meta)
    }
}

/// Whether the commands of a transaction remove all keys, and with them the rows of all sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Flush {
    /// They do not.
    #[default]
    No,
    /// They may: a script is among them, and only the server knows what it does.
    Possible,
    /// They do.
    Certain,
}

/// The committed rows and their slots, as a copy in memory.
#[derive(Clone, Debug, Default)]
pub(super) struct Ledger {
    prefix: String,
    pub(super) meta: Meta,
    rows: BTreeMap<SessionKey, (u32, SessionRow)>,
    free: Vec<u32>,
    /// When each row was written, Unix seconds. Only a ledger that was fetched for reading has these times.
    written: BTreeMap<SessionKey, u64>,
    keeps_times: bool,
}

/// Changes that a transaction is to make.
#[derive(Clone, Debug, Default)]
pub(super) struct Staged {
    puts: Vec<(u32, SessionRow)>,
    drops: Vec<(u32, SessionKey)>,
    meta: Meta,
    /// Whether every row is written, because the transaction removes or may remove all of them.
    flush: Flush,
}

/// A command of the ledger that is to be part of a transaction.
pub(super) type Command = Vec<Vec<u8>>;

impl Ledger {
    pub(super) fn new(prefix: &str, meta: Meta) -> Self {
        Self { prefix: prefix.to_owned(), meta, ..Self::default() }
    }

    pub(super) fn meta_key(prefix: &str) -> String {
        format!("{prefix}:meta")
    }

    pub(super) fn row_key(prefix: &str, slot: u32) -> String {
        format!("{prefix}:row:{slot}")
    }

    /// Key of the note of commands in doubt: updates of the latest transaction of which only the reply shows whether
    /// they were rejected.
    pub(super) fn doubt_key(prefix: &str) -> String {
        format!("{prefix}:doubt")
    }

    /// Key of the list of sessions of which confirmed updates are lost.
    pub(super) fn behind_key(prefix: &str) -> String {
        format!("{prefix}:behind")
    }

    pub(super) fn rejected_key(prefix: &str, number: u64) -> String {
        format!("{prefix}:rejected:{number}")
    }

    /// Adds a slot that was loaded: its row, or an empty slot.
    pub(super) fn found(&mut self, slot: u32, value: Option<&[u8]>) -> Result<(), UpstreamError> {
        let Some(value) = value else {
            self.free.push(slot);
            return Ok(());
        };
        let foreign = || UpstreamError::Foreign { key: Self::row_key(&self.prefix, slot) };
        let (row, written) = unstamp(value).ok_or_else(foreign)?;
        if self.keeps_times {
            written.map(|written| self.written.insert(row.key, written));
        }
        // A session has two slots if it was evicted and a new session has the same identity. The newer one counts.
        if let Some((other, _)) = self.rows.insert(row.key, (slot, row)) {
            self.free.push(other);
        }
        Ok(())
    }

    /// Fetches the ledger for reading. Side-cars may change it at any time.
    pub(super) fn fetch(upstream: &mut Upstream, prefix: &str) -> Result<Self, UpstreamError> {
        let meta = Meta::fetch(upstream, prefix)?.unwrap_or_default();
        let mut ledger = Self { keeps_times: true, ..Self::new(prefix, meta) };
        let mut slot = 0;
        for words in Self::reads(prefix, meta.slots) {
            upstream.push(&words.iter().map(String::as_bytes).collect::<Vec<_>>());
            let values = upstream.call(None)?;
            refuse_errors(&values, "the rows of sessions")?;
            for value in resp::elements_of(&values).unwrap_or_default() {
                ledger.found(slot, resp::bulk(value))?;
                slot += 1;
            }
        }
        Ok(ledger)
    }

    /// The commands that read every slot.
    pub(super) fn reads(prefix: &str, slots: u32) -> impl Iterator<Item = Vec<String>> {
        let slots = slots.min(SLOTS_MAX);
        (0..slots.div_ceil(MGET_MAX)).map(move |chunk| {
            let slots = chunk * MGET_MAX..slots.min((chunk + 1) * MGET_MAX);
            std::iter::once("MGET".to_owned()).chain(slots.map(|slot| Self::row_key(prefix, slot))).collect()
        })
    }

    /// Every row, with the time when it was written. A time that the system cannot express is left out: another program
    /// may have changed the value.
    pub(super) fn into_listed(self) -> impl Iterator<Item = (SessionRow, Option<SystemTime>)> {
        let Self { rows, written, .. } = self;
        let time = |seconds: &u64| SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(*seconds));
        rows.into_iter().map(move |(key, (_, row))| (row, written.get(&key).and_then(time)))
    }

    /// The highest `touched` number of all rows.
    pub(super) fn last_touched(&self) -> u64 {
        self.rows.values().map(|(_, row)| row.touched).max().unwrap_or(0)
    }

    /// Stages the deletion of a row, and a higher floor.
    pub(super) fn stage_drop(&self, key: &SessionKey, floor: u32, staged: &mut Staged) {
        staged.drops.extend(self.rows.get(key).map(|(slot, _)| (*slot, *key)));
        staged.meta.floor = staged.meta.floor.max(floor);
    }

    /// Watches the key with our own generation. False if another program has flushed the keys: the rows are gone, too. An
    /// error if another generation has replaced it.
    pub(super) fn watch(&self, upstream: &mut Upstream) -> Result<bool, UpstreamError> {
        upstream.push(&[b"WATCH", Self::meta_key(&self.prefix).as_bytes()]);
        refuse_errors(&upstream.call(None)?, "to watch a key")?;
        match Meta::fetch(upstream, &self.prefix)? {
            Some(meta) if meta == self.meta => Ok(true),
            Some(_) => Err(UpstreamError::Fenced),
            None => Ok(false),
        }
    }

    /// Writes staged changes in a transaction of their own, with other commands. Returns the reply to `EXEC`.
    pub(super) fn write(
        &self,
        upstream: &mut Upstream,
        staged: &Staged,
        others: &[Command],
    ) -> Result<Vec<u8>, UpstreamError> {
        upstream.push(&[b"MULTI"]);
        let commands = self.commands(staged);
        for command in commands.iter().chain(others) {
            upstream.push(&command.iter().map(Vec::as_slice).collect::<Vec<_>>());
        }
        upstream.push(&[b"EXEC"]);
        upstream.send()?;
        let mut last = Vec::new();
        for _ in 0..commands.len() + others.len() + 2 {
            last = upstream.reply(None)?;
            refuse_errors(&last, "to write the rows of sessions")?;
        }
        Ok(last)
    }

    /// Writes staged changes after [`Redis::take_over`](super::state::Redis::take_over). An error if another side-car
    /// has taken over since, or if the keys were flushed.
    pub(super) fn write_alone(
        &self,
        upstream: &mut Upstream,
        staged: &Staged,
        others: &[Command],
    ) -> Result<(), UpstreamError> {
        if !self.watch(upstream)? {
            return Err(UpstreamError::flushed("to keep the rows of sessions"));
        }
        let last = self.write(upstream, staged, others)?;
        if resp::is_null(&last) { Err(UpstreamError::Fenced) } else { Ok(()) }
    }

    /// True if two ledgers have the same rows. Any transaction with updates changes rows.
    pub(super) fn has_rows_of(&self, other: &Self) -> bool {
        self.rows == other.rows
    }

    pub(super) fn saved(&self) -> Saved {
        let rows = self.rows.values().map(|(_, row)| *row).collect();
        Saved { rows, floor: self.meta.floor, ..Saved::default() }
    }

    pub(super) fn row(&self, key: &SessionKey) -> Option<&SessionRow> {
        self.rows.get(key).map(|(_, row)| row)
    }

    /// Every row.
    pub(super) fn into_rows(self) -> BTreeMap<SessionKey, SessionRow> {
        self.rows.into_iter().map(|(key, (_, row))| (key, row)).collect()
    }

    /// Stages rows.
    pub(super) fn stage_rows(&self, rows: impl Iterator<Item = SessionRow>) -> Staged {
        let mut staged = Staged { meta: self.meta, ..Staged::default() };
        self.place(&rows.map(|row| (row.key, row)).collect(), &mut staged);
        staged
    }

    /// Stages the rows of pieces of work, all of which make changes.
    pub(super) fn stage<'w>(
        &self,
        work: impl Iterator<Item = &'w Work>,
        rejected: u64,
        flush: Flush,
    ) -> Staged {
        let mut latest = BTreeMap::new();
        let mut staged = Staged { meta: self.meta, flush, ..Staged::default() };
        staged.meta.rejected += rejected;
        for work in work {
            match work {
                Work::Update { row, .. } | Work::Bypass { row, .. } => drop(latest.insert(row.key, *row)),
                Work::Row { row, evicted, floor, .. } => {
                    staged.meta.floor = staged.meta.floor.max(*floor);
                    for key in evicted {
                        latest.remove(key);
                        staged.drops.extend(self.rows.get(key).map(|(slot, _)| (*slot, *key)));
                    }
                    latest.insert(row.key, *row);
                }
            }
        }
        self.place(&latest, &mut staged);
        staged
    }

    fn place(&self, latest: &BTreeMap<SessionKey, SessionRow>, staged: &mut Staged) {
        let mut free = self.free.iter().rev();
        for (key, row) in latest {
            // A key that was evicted and returns in the same batch keeps its slot.
            staged.drops.retain(|(_, dropped)| dropped != key);
            let slot = self.rows.get(key).map(|(slot, _)| *slot).or_else(|| free.next().copied());
            let slot = slot.unwrap_or_else(|| {
                staged.meta.slots += 1;
                staged.meta.slots - 1
            });
            staged.puts.push((slot, *row));
        }
    }

    /// The commands that write staged changes, for a transaction.
    pub(super) fn commands(&self, staged: &Staged) -> Vec<Command> {
        let mut commands = Vec::new();
        let put = |set: &[u8], slot: u32, row: &SessionRow| {
            vec![set.to_vec(), Self::row_key(&self.prefix, slot).into_bytes(), stamp(row)]
        };
        match staged.flush {
            Flush::No => {}
            Flush::Possible => self.push_restores(staged, &mut commands),
            Flush::Certain => {
                commands.extend(self.kept(staged).map(|(slot, row)| put(b"SET", *slot, row)));
            }
        }
        for (slot, _) in &staged.drops {
            commands.push(vec![b"DEL".to_vec(), Self::row_key(&self.prefix, *slot).into_bytes()]);
        }
        commands.extend(staged.puts.iter().map(|(slot, row)| put(REPLACE, *slot, row)));
        if staged.flush != Flush::No || staged.meta != self.meta {
            let text = staged.meta.to_text().into_bytes();
            commands.push(vec![b"SET".to_vec(), Self::meta_key(&self.prefix).into_bytes(), text]);
        }
        commands
    }

    /// The rows that a transaction does not drop, with their slots.
    fn kept<'l>(&'l self, staged: &'l Staged) -> impl Iterator<Item = &'l (u32, SessionRow)> {
        let rows = self.rows.values();
        rows.filter(move |(slot, _)| staged.drops.iter().all(|(dropped, _)| dropped != slot))
    }

    /// Appends the commands that write every row if the key of the ledger is missing: nothing is written, and nothing
    /// goes to the server's log and replicas, unless the transaction has removed all keys.
    fn push_restores(&self, staged: &Staged, commands: &mut Vec<Command>) {
        let meta = Self::meta_key(&self.prefix);
        let kept: Vec<&(u32, SessionRow)> = self.kept(staged).collect();
        for rows in kept.chunks(MGET_MAX as usize) {
            let count = (rows.len() + 1).to_string().into_bytes();
            let mut command =
                vec![RESTORE.to_vec(), RESTORE_SCRIPT.to_vec(), count, meta.clone().into_bytes()];
            command.extend(rows.iter().map(|(slot, _)| Self::row_key(&self.prefix, *slot).into_bytes()));
            command.extend(rows.iter().map(|(_, row)| stamp(row)));
            commands.push(command);
        }
    }

    /// The rows that a transaction replaces, in the order of its commands; `None` for new rows.
    pub(super) fn replaced(&self, staged: &Staged) -> Vec<Option<SessionRow>> {
        let known = |slot: &u32, row: &SessionRow| {
            self.rows.get(&row.key).filter(|(known, _)| known == slot).map(|(_, row)| *row)
        };
        staged.puts.iter().map(|(slot, row)| known(slot, row)).collect()
    }

    /// Applies staged changes whose transaction is committed.
    pub(super) fn apply(&mut self, staged: &Staged) {
        for (slot, key) in &staged.drops {
            self.rows.remove(key);
            self.free.push(*slot);
        }
        for (slot, row) in &staged.puts {
            if let Some(at) = self.free.iter().rposition(|free| free == slot) {
                self.free.swap_remove(at);
            }
            self.rows.insert(row.key, (*slot, *row));
        }
        self.meta = staged.meta;
    }

    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }
}

/// The stored value of a row: the row and the time of writing, which is for the operator.
fn stamp(row: &SessionRow) -> Vec<u8> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    [&row.to_bytes()[..], &now.as_secs().to_le_bytes()].concat()
}

/// The row in a stored value, and the time of writing if the value has one.
pub(super) fn unstamp(value: &[u8]) -> Option<(SessionRow, Option<u64>)> {
    let (row, written) = value.split_at_checked(SessionRow::BYTES)?;
    let written = match written {
        [] => None,
        seconds => Some(u64::from_le_bytes(seconds.try_into().ok()?)),
    };
    Some((SessionRow::from_bytes(row)?, written))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(session: u16, update: u32) -> SessionRow {
        let key = SessionKey { client: "10.0.0.1:40000".parse().unwrap(), session };
        SessionRow { key, nonce: 1, update, bypass: 1 << 31, ended: false, touched: 0, lease: 0 }
    }

    /// A ledger over a store that is a map.
    #[derive(Default)]
    struct Store {
        ledger: Ledger,
        keys: BTreeMap<String, Vec<u8>>,
    }

    impl Store {
        fn commit(&mut self, puts: &[SessionRow], drops: &[u16], flush: Flush) {
            let staged = self.stage(puts, drops, flush);
            self.execute(&staged);
        }

        fn stage(&self, puts: &[SessionRow], drops: &[u16], flush: Flush) -> Staged {
            let latest = puts.iter().map(|row| (row.key, *row)).collect();
            let mut staged = Staged { meta: self.ledger.meta, flush, ..Staged::default() };
            for key in drops.iter().map(|session| row(*session, 0).key) {
                staged.drops.extend(self.ledger.rows.get(&key).map(|(slot, _)| (*slot, key)));
            }
            self.ledger.place(&latest, &mut staged);
            staged
        }

        fn execute(&mut self, staged: &Staged) {
            for command in self.ledger.commands(staged) {
                if command[0] == RESTORE {
                    self.restore(&command);
                    continue;
                }
                let key = String::from_utf8(command[1].clone()).unwrap();
                match command.get(2) {
                    Some(value) => drop(self.keys.insert(key, value.clone())),
                    None => drop(self.keys.remove(&key)),
                }
            }
            self.ledger.apply(staged);
        }

        /// Does what the script does.
        fn restore(&mut self, command: &Command) {
            let count: usize = std::str::from_utf8(&command[2]).unwrap().parse().unwrap();
            let (keys, rows) = command[3..].split_at(count);
            let text = |key: &Vec<u8>| String::from_utf8(key.clone()).unwrap();
            assert_eq!((keys.len(), text(&keys[0])), (rows.len() + 1, ":meta".to_owned()));
            if !self.keys.contains_key(":meta") {
                self.keys.extend(keys[1..].iter().map(text).zip(rows.iter().cloned()));
            }
        }

        fn loaded(&self) -> Vec<SessionRow> {
            let meta = Meta::from_text(&self.keys[":meta"]).unwrap();
            let mut ledger = Ledger::new("", meta);
            for slot in 0..meta.slots {
                ledger.found(slot, self.keys.get(&Ledger::row_key("", slot)).map(Vec::as_slice)).unwrap();
            }
            ledger.saved().rows
        }
    }

    #[test]
    fn committed_rows_are_loaded_and_slots_are_reused() {
        let mut store = Store::default();
        store.commit(&[row(1, 1), row(2, 1)], &[], Flush::No);
        store.commit(&[row(1, 2), row(3, 1)], &[2], Flush::No);
        assert_eq!(store.loaded(), [row(1, 2), row(3, 1)]);
        store.commit(&[row(4, 1)], &[], Flush::No);
        assert_eq!(store.loaded(), [row(1, 2), row(3, 1), row(4, 1)]);
        assert_eq!(store.ledger.meta.slots, 3, "the slot of 2 was reused");
    }

    #[test]
    fn a_flush_is_followed_by_every_row() {
        for flush in [Flush::Possible, Flush::Certain] {
            let mut store = Store::default();
            store.commit(&[row(1, 1), row(2, 1), row(3, 1)], &[], Flush::No);
            store.keys.clear();
            store.commit(&[row(2, 2), row(4, 1)], &[3], flush);
            assert_eq!(store.loaded(), [row(1, 1), row(2, 2), row(4, 1)], "{flush:?}");
        }
    }

    #[test]
    fn every_row_of_many_is_written_behind_a_flush_in_commands_of_bounded_length() {
        let rows: Vec<SessionRow> = (0..2500).map(|session| row(session, 1)).collect();
        let mut store = Store::default();
        store.commit(&rows, &[], Flush::No);
        let staged = store.stage(&[], &[], Flush::Possible);
        let commands = store.ledger.commands(&staged);
        let restores: Vec<&Command> = commands.iter().filter(|command| command[0] == RESTORE).collect();
        assert_eq!((restores.len(), commands.len()), (3, 4), "and the key of the ledger");
        assert!(restores.iter().all(|command| command.len() <= 4 + 2 * MGET_MAX as usize));
        store.keys.clear();
        store.execute(&staged);
        assert_eq!(store.loaded(), rows);
    }

    #[test]
    fn a_script_that_does_not_flush_makes_no_row_be_written_that_has_not_changed() {
        let mut store = Store::default();
        store.commit(&[row(1, 1), row(2, 1)], &[], Flush::No);
        store.keys.insert(":row:0".to_owned(), b"else".to_vec());
        store.commit(&[row(2, 2)], &[], Flush::Possible);
        assert_eq!(store.keys[":row:0"], b"else");
    }

    #[test]
    fn a_row_with_a_time_beyond_the_systems_is_listed_without_it() {
        let mut ledger = Ledger { keeps_times: true, ..Ledger::default() };
        for (session, seconds) in [(1_u16, 7_u64), (2, u64::MAX)] {
            let value = [&row(session, 1).to_bytes()[..], &seconds.to_le_bytes()].concat();
            ledger.found(session.into(), Some(value.as_slice())).unwrap();
        }
        let times: Vec<_> = ledger.into_listed().map(|(_, written)| written).collect();
        assert_eq!(times, [Some(SystemTime::UNIX_EPOCH + Duration::from_secs(7)), None]);
    }

    #[test]
    fn values_that_no_side_car_wrote_are_refused() {
        for text in
            ["", "1", "2 0 0 0 0", "1 0 0 0 0 0", "1 x 0 0 0", "1 0 0 9999999999 0", "1 0 0 1048577 0"]
        {
            assert_eq!(Meta::from_text(text.as_bytes()), None, "{text}");
        }
        let meta = Meta { generation: u64::MAX, floor: 7, slots: 8, rejected: 9 };
        assert_eq!(Meta::from_text(meta.to_text().as_bytes()), Some(meta));
        assert!(Ledger::new("p", meta).found(0, Some(b"else")).is_err());
    }
}
