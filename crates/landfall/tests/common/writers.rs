//! Programs that write files on a mount, and note what was acknowledged (`programs/writer.c`).

use super::mounts::{END_LIMIT, Site};
use super::{Place, binary};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

const RECORD_BYTES: usize = 256;
const SLOT_BYTES: usize = 4096;

/// How a writer writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    /// With the library, which asks for a lease of a file after so many writes.
    Library(u32),
    /// Through the mount.
    Mount,
}

/// When a writer takes something for acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Acknowledged {
    /// When the call has returned.
    Returned,
    /// When it is synced.
    Synced,
}

/// The programs of a test.
pub(crate) struct Programs {
    writer: PathBuf,
    library: PathBuf,
}

impl Programs {
    /// `None` without a C compiler. Says SKIP then.
    pub(crate) fn build(place: &Place) -> Option<Self> {
        if !super::has_program("cc", &["--version"]) {
            return None;
        }
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/writer.c");
        let writer = place.path().join("writer");
        let built =
            Command::new("cc").args(["-std=gnu11", "-O1", "-Wall", "-o"]).arg(&writer).arg(source).status();
        assert!(built.unwrap().success());
        // Cargo builds it for tests that depend on it.
        let library = std::env::current_exe().unwrap().with_file_name("liblandfall_files.so");
        assert!(library.exists(), "{}", library.display());
        Some(Self { writer, library })
    }

    /// A program with the library, which asks for a lease of a file after so many writes, and says what it has answered.
    pub(crate) fn with_library(&self, program: &Path, lease_after: u32) -> Command {
        let mut command = Command::new(binary());
        command.args(["fs", "run", "--"]).arg(program);
        command.env("LANDFALL_FS_LIB", &self.library).env("LANDFALL_FS_STATS", "1");
        command.env("LANDFALL_FS_LEASE_AFTER", lease_after.to_string());
        command
    }
}

/// How many calls were answered in a program's process, by what the library has said there.
fn answered(said: &str) -> u64 {
    let line = said.lines().find(|line| line.contains("calls answered in the process"));
    line.map_or(0, |line| line.split(' ').nth(1).unwrap().parse().unwrap())
}

/// A program that writes files in a directory of its own.
pub(crate) struct Writer {
    child: Child,
    directory: PathBuf,
    notes: PathBuf,
    seed: u64,
}

/// What was acknowledged: records of the log, newest numbers of slots and of names.
#[derive(Debug, Default)]
struct Notes {
    records: u64,
    slots: BTreeMap<u64, u64>,
    names: BTreeMap<u64, u64>,
}

impl Writer {
    pub(crate) fn start(site: &Site, programs: &Programs, by: By, what: Acknowledged, seed: u64) -> Self {
        Self::start_on((site, site.point.path()), programs, by, what, seed)
    }

    /// Starts it on one of several mounts of a site.
    pub(crate) fn start_on(
        (site, point): (&Site, &Path),
        programs: &Programs,
        by: By,
        what: Acknowledged,
        seed: u64,
    ) -> Self {
        Self::start_in((site.place.path(), point), programs, by, what, seed)
    }

    /// Starts it on a mount. What it notes is in another directory.
    pub(crate) fn start_in(
        (notes, point): (&Path, &Path),
        programs: &Programs,
        by: By,
        what: Acknowledged,
        seed: u64,
    ) -> Self {
        let directory = point.join(format!("writer {seed}"));
        let notes = notes.join(format!("notes {seed}"));
        fs::create_dir(&directory).unwrap();
        // Its name is there, too, whatever is killed.
        File::open(point).unwrap().sync_all().unwrap();
        let mut command = match by {
            By::Library(after) => programs.with_library(&programs.writer, after),
            By::Mount => Command::new(&programs.writer),
        };
        let when = if what == Acknowledged::Returned { "returned" } else { "synced" };
        command.arg(&directory).arg(&notes).arg(seed.to_string()).arg(when);
        let errors = File::create(notes.with_extension("errors")).unwrap();
        let child = command.stdin(Stdio::null()).stderr(errors).spawn().unwrap();
        Self { child, directory, notes, seed }
    }

    /// What it has said.
    pub(crate) fn said(&self) -> String {
        fs::read_to_string(self.notes.with_extension("errors")).unwrap()
    }

    /// Waits until so many records of its log are acknowledged.
    pub(crate) fn wait_for_records(&mut self, count: u64) {
        let until = Instant::now() + END_LIMIT;
        while self.notes().records < count {
            assert!(self.is_running(), "it has ended: {}", self.said());
            assert!(Instant::now() < until, "{} of {count} records", self.notes().records);
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Records that are acknowledged.
    pub(crate) fn records(&self) -> u64 {
        self.notes().records
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    pub(crate) fn kill(&mut self) {
        self.kill_now();
        self.wait();
    }

    /// Kills it. It may be in the middle of a call that ends with the next server.
    pub(crate) fn kill_now(&mut self) {
        self.child.kill().unwrap();
    }

    /// Waits until it has ended.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        super::wait_until(END_LIMIT, || self.child.try_wait().unwrap()).expect("it ends")
    }

    /// Tells it to end. Returns how many calls were answered in its process.
    pub(crate) fn stop(&mut self) -> u64 {
        File::create(self.stop_file()).unwrap();
        let status = self.wait();
        let said = self.said();
        assert!(status.success(), "writer {}: {status}: {said}", self.seed);
        answered(&said)
    }

    fn stop_file(&self) -> PathBuf {
        let mut name = self.notes.clone().into_os_string();
        name.push(".stop");
        name.into()
    }

    fn notes(&self) -> Notes {
        let (text, mut notes) = (fs::read_to_string(&self.notes).unwrap_or_default(), Notes::default());
        // The last line may be in the middle of being written.
        for line in text.rsplit_once('\n').map_or("", |(whole, _)| whole).lines() {
            let mut words = line.split(' ');
            let kind = words.next().unwrap();
            let numbers: Vec<u64> = words.map(|word| word.parse().unwrap()).collect();
            match (kind, &numbers[..]) {
                ("L", [records]) => notes.records = *records,
                ("S", [slot, number]) => drop(notes.slots.insert(*slot, *number)),
                ("R", [name, number]) => drop(notes.names.insert(*name, *number)),
                _ => panic!("{line}"),
            }
        }
        notes
    }

    /// Everything that was acknowledged is there, nothing is there in parts, and nothing twice.
    pub(crate) fn check(&self) {
        self.check_in(&self.directory);
    }

    /// As [`Self::check`], at another mount of the files.
    pub(crate) fn check_at(&self, point: &Path) {
        self.check_in(&point.join(format!("writer {}", self.seed)));
    }

    fn check_in(&self, directory: &Path) {
        let (notes, who) = (self.notes(), format!("writer {}", self.seed));
        let log = fs::read(directory.join("log")).unwrap_or_default();
        let records = (log.len() / RECORD_BYTES) as u64;
        assert!(records >= notes.records, "{who}: {records} of {} records", notes.records);
        for (index, record) in log.chunks(RECORD_BYTES).enumerate() {
            let number = self
                .number_of(record)
                .unwrap_or_else(|| panic!("{who}: record {index} of {records} is torn"));
            assert_eq!(number, index as u64, "{who}: a record of {records} is missing, or there twice");
        }
        let slots = fs::read(directory.join("slots")).unwrap_or_default();
        let mut found = BTreeMap::new();
        for (slot, bytes) in (0..).zip(slots.chunks(SLOT_BYTES)) {
            if bytes.iter().any(|byte| *byte != 0) {
                let number = self.number_of(bytes).unwrap_or_else(|| panic!("{who}: slot {slot} is torn"));
                found.insert(slot, number);
            }
        }
        for (slot, number) in &notes.slots {
            assert!(
                found.get(slot) >= Some(number),
                "{who}: slot {slot}: {:?}, not {number}",
                found.get(slot)
            );
        }
        for (name, number) in &notes.names {
            let path = directory.join(format!("name {name}"));
            let bytes = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            let found = self.number_of(&bytes).unwrap_or_else(|| panic!("{who}: name {name} is torn"));
            assert!(found >= *number, "{who}: name {name}: {found}, not {number}");
        }
    }

    /// The number of bytes that are as they were written.
    fn number_of(&self, bytes: &[u8]) -> Option<u64> {
        let word = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        let (number, sum_at) = (word(0)?, bytes.len().checked_sub(8)?);
        let step = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        let sum = bytes[..sum_at].iter().fold(0xcbf2_9ce4_8422_2325, step);
        let is_whole = word(8)? == self.seed && word(16)? == bytes.len() as u64 && word(sum_at)? == sum;
        is_whole.then_some(number)
    }

    /// Removes its files.
    pub(crate) fn remove(self) {
        fs::remove_dir_all(&self.directory).unwrap();
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = (self.child.kill(), self.child.wait());
    }
}
