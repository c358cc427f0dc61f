//! How programs survive crashes: LevelDB by a log and by renaming over, SQLite by a journal and by a write-ahead log,
//! editors by renaming over. Each program is written out as the calls that it makes, crashed behind operations of the
//! medium all over them, and opens what is left as it does: nothing that it has committed is lost, and nothing is there in
//! part.

use landfall_sim::Violation;
use landfall_sim::files::{Bytes, Call, Explorer, Fault, Persist, Points, Step, View, bytes_of};

const PAGE: usize = 4096;
/// Points at which a program is crashed.
const POINTS: usize = 90;

/// The calls of a program, and what it has promised to its users.
#[derive(Default)]
struct Program {
    steps: Vec<Step>,
    /// How far the program's state is promised to be once so many steps have returned.
    promises: Vec<(usize, usize)>,
}

impl Program {
    fn call(&mut self, call: Call) {
        self.steps.push(Step::Call(call));
    }

    fn create(&mut self, path: &str) {
        self.call(Call::Create { path: path.into() });
    }

    fn mkdir(&mut self, path: &str) {
        self.call(Call::Mkdir { path: path.into() });
    }

    fn write(&mut self, path: &str, offset: usize, bytes: Vec<u8>) {
        self.call(Call::Write { path: path.into(), offset: offset as u64, bytes: bytes.into() });
    }

    fn truncate(&mut self, path: &str) {
        self.call(Call::Truncate { path: path.into(), size: 0 });
    }

    fn rename(&mut self, from: &str, to: &str) {
        self.call(Call::Rename { from: from.into(), to: to.into() });
    }

    fn unlink(&mut self, path: &str) {
        self.call(Call::Unlink { path: path.into() });
    }

    fn fsync(&mut self, path: &str) {
        self.steps.push(Step::Persist(Persist::Fsync(path.into())));
    }

    fn fdatasync(&mut self, path: &str) {
        self.steps.push(Step::Persist(Persist::Fdatasync(path.into())));
    }

    fn publish(&mut self) {
        self.steps.push(Step::Publish);
    }

    /// The program tells its user that its state is at least `state`.
    fn promise(&mut self, state: usize) {
        self.promises.push((self.steps.len(), state));
    }

    /// Crashes the program at many points. `open` yields the state that the program finds, or why it cannot open.
    fn survives(&self, open: impl Fn(&View) -> Result<usize, String>) {
        let mut explorer = Explorer::new(Fault::default()).expect("a region");
        let mut program = |view: &View, returned| self.judge(&open, view, returned);
        let judged = explorer.check_program(&self.steps, Points::Some(POINTS), &mut program);
        judged.unwrap_or_else(|violation| panic!("{violation}"));
        assert!(explorer.explored.images > POINTS as u64 / 2, "there are points");
    }

    fn judge(
        &self,
        open: &impl Fn(&View) -> Result<usize, String>,
        view: &View,
        returned: usize,
    ) -> Result<(), Violation> {
        let promised = self.promises.iter().filter(|(steps, _)| *steps <= returned).map(|(_, state)| *state);
        let (promised, last) =
            (promised.max().unwrap_or(0), self.promises.iter().map(|(_, state)| *state).max());
        let state = open(view).map_err(|why| Violation(format!("the program does not open: {why}")))?;
        if state < promised || Some(state) > last {
            return Err(Violation(format!(
                "the program finds state {state}, after it has promised {promised}"
            )));
        }
        Ok(())
    }
}

fn page(number: usize, state: usize) -> Vec<u8> {
    Bytes::pattern(PAGE as u64, (number * 100 + state) as u64).0.to_vec()
}

fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(7, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)))
}

/// A record that tells whether all of it is there: its length, its sum, its bytes.
fn record(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u64).to_le_bytes()[..], &sum(bytes).to_le_bytes(), bytes].concat()
}

/// The records of a log up to the first one that is not whole.
fn records(log: &[u8]) -> Vec<&[u8]> {
    let (mut records, mut rest) = (Vec::new(), log);
    while let Some((head, tail)) = rest.split_at_checked(16) {
        let number = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("8 bytes"));
        let Some((bytes, tail)) = tail.split_at_checked(number(0) as usize) else { break };
        if bytes.is_empty() || sum(bytes) != number(8) {
            break;
        }
        records.push(bytes);
        rest = tail;
    }
    records
}

fn file<'v>(view: &'v View, path: &str) -> Result<&'v [u8], String> {
    bytes_of(view, path).ok_or_else(|| format!("{path} is missing"))
}

// ---- LevelDB ----

/// A database of numbers, put in order. The manifest's newest edit names the log and the tables.
#[derive(Default)]
struct LevelDb {
    program: Program,
    next_file: usize,
    manifest: String,
    manifest_len: usize,
    log: String,
    log_len: usize,
    tables: Vec<String>,
    puts: usize,
    /// The first number in the log.
    logged_from: usize,
}

impl LevelDb {
    fn open() -> Self {
        let mut db = Self::default();
        db.program.mkdir("db");
        db.log = db.new_file("log");
        db.new_manifest();
        db
    }

    fn new_file(&mut self, suffix: &str) -> String {
        self.next_file += 1;
        let path = format!("db/{:06}.{suffix}", self.next_file);
        self.program.create(&path);
        path
    }

    fn edit(&self) -> Vec<u8> {
        let files: Vec<&str> = [&self.log].into_iter().chain(&self.tables).map(String::as_str).collect();
        record(files.join(",").as_bytes())
    }

    fn append_edit(&mut self) {
        let (edit, manifest) = (self.edit(), self.manifest.clone());
        self.program.write(&manifest, self.manifest_len, edit.clone());
        self.manifest_len += edit.len();
        self.program.fsync("db");
        self.program.fdatasync(&manifest);
    }

    /// A new manifest, to which `CURRENT` is switched by renaming over it.
    fn new_manifest(&mut self) {
        let old = std::mem::take(&mut self.manifest);
        (self.manifest, self.manifest_len) = (self.new_file("MANIFEST"), 0);
        self.append_edit();
        let temporary = self.new_file("dbtmp");
        self.program.write(&temporary, 0, format!("{}\n", self.manifest).into_bytes());
        self.program.fdatasync(&temporary);
        self.program.rename(&temporary, "db/CURRENT");
        if !old.is_empty() {
            self.program.unlink(&old);
        }
    }

    fn put(&mut self, sync: bool) {
        self.puts += 1;
        let (put, log) = (record(format!("{:>5000}", self.puts).as_bytes()), self.log.clone());
        self.program.write(&log, self.log_len, put.clone());
        self.log_len += put.len();
        if sync {
            self.program.fdatasync(&log);
            self.program.promise(self.puts);
        }
    }

    /// What is in the log becomes a table, and a new log begins.
    fn compact(&mut self) {
        let log = self.new_file("log");
        let old = std::mem::replace(&mut self.log, log);
        self.log_len = 0;
        let table = self.new_file("ldb");
        let numbers: Vec<String> = (self.logged_from + 1..=self.puts).map(|put| put.to_string()).collect();
        self.program.write(&table, 0, record(numbers.join(",").as_bytes()));
        self.program.fdatasync(&table);
        self.tables.push(table);
        self.logged_from = self.puts;
        self.append_edit();
        self.program.promise(self.puts);
        self.program.unlink(&old);
    }

    /// The number of puts, all of which are there.
    fn recover(view: &View) -> Result<usize, String> {
        let Some(current) = bytes_of(view, "db/CURRENT") else { return Ok(0) };
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).map_err(|error| error.to_string());
        let current = text(current)?;
        let manifest = file(view, current.strip_suffix('\n').ok_or("CURRENT is not whole")?)?;
        let edit = text(records(manifest).last().ok_or("the manifest has no edit")?)?;
        let (log, tables) = edit.split_once(',').unwrap_or((&edit, ""));
        let mut found: Vec<String> = Vec::new();
        for table in tables.split(',').filter(|table| !table.is_empty()) {
            let table = records(file(view, table)?).first().copied().ok_or("a table is not whole")?;
            found.extend(text(table)?.split(',').map(str::to_owned));
        }
        for put in records(file(view, log)?) {
            found.push(text(put)?.trim_start().to_owned());
        }
        let expected: Vec<String> = (1..=found.len()).map(|put| put.to_string()).collect();
        if found == expected { Ok(found.len()) } else { Err(format!("the database has {found:?}")) }
    }
}

#[test]
fn leveldb_opens_after_a_crash_at_any_point_and_has_every_put_that_was_synced() {
    let mut db = LevelDb::open();
    db.put(true);
    db.put(false);
    db.put(true);
    db.compact();
    db.program.publish();
    db.put(false);
    db.put(true);
    db.new_manifest();
    db.put(true);
    db.compact();
    db.put(false);
    db.put(true);
    db.program.survives(LevelDb::recover);
}

// ---- SQLite ----

/// How a rollback journal ends, which is what commits.
#[derive(Clone, Copy)]
enum Ends {
    Deleted,
    Truncated,
}

const PAGES: usize = 3;
/// Pages that a transaction changes.
const CHANGED: [usize; 2] = [0, 2];

/// What the pages of the database are in a state.
fn pages(state: usize) -> Vec<u8> {
    (0..PAGES).flat_map(|number| page(number, if CHANGED.contains(&number) { state } else { 0 })).collect()
}

fn state_of(database: &[u8], last: usize) -> Result<usize, String> {
    (0..=last).find(|state| pages(*state) == database).ok_or_else(|| "pages of several states".to_owned())
}

const TRANSACTIONS: usize = 3;

fn sqlite_with_a_journal(ends: Ends) -> Program {
    let mut program = Program::default();
    program.create("db");
    program.write("db", 0, pages(0));
    program.fsync("db");
    program.fsync("");
    program.promise(0);
    for state in 1..=TRANSACTIONS {
        if matches!(ends, Ends::Deleted) || state == 1 {
            program.create("db-journal");
        }
        let mut journal = Vec::new();
        for number in CHANGED {
            journal.extend(record(&[&[number as u8][..], &page(number, state - 1)].concat()));
        }
        program.write("db-journal", 0, journal);
        program.fsync("db-journal");
        program.fsync("");
        for number in CHANGED {
            program.write("db", number * PAGE, page(number, state));
        }
        program.fsync("db");
        match ends {
            Ends::Deleted => {
                program.unlink("db-journal");
                program.fsync("");
            }
            Ends::Truncated => {
                program.truncate("db-journal");
                program.fsync("db-journal");
            }
        }
        program.promise(state);
        if state == 2 {
            program.publish();
        }
    }
    program
}

/// A journal that is there is played back.
fn rolled_back(view: &View) -> Result<usize, String> {
    let Some(database) = bytes_of(view, "db").filter(|database| !database.is_empty()) else { return Ok(0) };
    let mut database = database.to_vec();
    for original in records(bytes_of(view, "db-journal").unwrap_or_default()) {
        let at = usize::from(original[0]) * PAGE;
        database[at..at + PAGE].copy_from_slice(&original[1..]);
    }
    state_of(&database, TRANSACTIONS)
}

#[test]
fn sqlite_with_a_journal_that_is_deleted_finds_one_state_and_every_commit() {
    sqlite_with_a_journal(Ends::Deleted).survives(rolled_back);
}

#[test]
fn sqlite_with_a_journal_that_is_truncated_finds_one_state_and_every_commit() {
    sqlite_with_a_journal(Ends::Truncated).survives(rolled_back);
}

#[test]
fn sqlite_with_a_write_ahead_log_finds_one_state_and_every_commit() {
    let mut program = Program::default();
    program.create("db");
    program.write("db", 0, pages(0));
    program.create("db-wal");
    program.fsync("db");
    program.fsync("");
    let (mut wal_len, checkpoint) = (0, 2);
    for state in 1..=TRANSACTIONS {
        for number in CHANGED {
            // The last frame of a transaction says so.
            let is_last = u8::from(CHANGED.last() == Some(&number));
            let frame = record(&[&[number as u8, is_last][..], &page(number, state)].concat());
            program.write("db-wal", wal_len, frame.clone());
            wal_len += frame.len();
        }
        program.fdatasync("db-wal");
        program.promise(state);
        if state == checkpoint {
            for number in CHANGED {
                program.write("db", number * PAGE, page(number, state));
            }
            program.fdatasync("db");
            program.truncate("db-wal");
            wal_len = 0;
            program.publish();
        }
    }
    program.survives(|view| {
        let Some(database) = bytes_of(view, "db").filter(|database| !database.is_empty()) else {
            return Ok(0);
        };
        let (mut database, mut transaction) = (database.to_vec(), Vec::new());
        for frame in records(bytes_of(view, "db-wal").unwrap_or_default()) {
            transaction.push(frame);
            if frame[1] == 1 {
                for frame in transaction.drain(..) {
                    let at = usize::from(frame[0]) * PAGE;
                    database[at..at + PAGE].copy_from_slice(&frame[2..]);
                }
            }
        }
        state_of(&database, TRANSACTIONS)
    });
}

// ---- editors ----

/// Saves a text of several blocks again and again.
fn editor(with_fsync: bool) -> Program {
    let mut program = Program::default();
    program.mkdir("home");
    for state in 1..=3 {
        program.create("home/.text.swp");
        for number in 0..3 {
            program.write("home/.text.swp", number * PAGE, page(number, state));
        }
        if with_fsync {
            program.fsync("home/.text.swp");
        }
        program.rename("home/.text.swp", "home/text");
        if with_fsync {
            program.fsync("home");
            program.promise(state);
        }
        if state == 2 {
            program.publish();
        }
    }
    // What is not promised may be there as well.
    program.steps.push(Step::Persist(Persist::Sync));
    program.promise(3);
    program
}

fn text(view: &View) -> Result<usize, String> {
    let Some(text) = bytes_of(view, "home/text") else { return Ok(0) };
    let whole = |state: usize| (0..3).flat_map(|number| page(number, state)).collect::<Vec<u8>>();
    (1..=3).find(|state| whole(*state) == text).ok_or_else(|| format!("{} bytes of no text", text.len()))
}

#[test]
fn an_editor_that_renames_over_a_file_leaves_the_old_or_the_new_text_and_what_it_has_saved() {
    editor(true).survives(text);
}

#[test]
fn an_editor_that_syncs_nothing_leaves_the_old_or_the_new_text() {
    editor(false).survives(text);
}

/// The judge of programs can fail.
#[test]
#[should_panic(expected = "after it has promised 3")]
fn a_program_that_promises_too_early_is_caught() {
    let mut program = editor(false);
    let begin = program.steps.len() - 1;
    program.promises = vec![(begin, 3)];
    program.survives(text);
}
