//! Files on a simulated medium, and a model of them: plain names and bytes.
#![allow(dead_code, unreachable_pub, reason = "each test program uses its part")]

pub mod model;

use landfall_fs::{
    Attributes, Call, ExtendedName, FilePart, FileType, Files, FilesRecovery, FsError, InodeNumber, Mode,
    Name, OpenFiles, Operation, Orphans, Position, Publisher, TreeChecked, Witness, check_tree,
};
use landfall_heap::{CompactGoal, Compactor, NewRegion, Region, RegionCheck, Tenant, Until, create};
use landfall_media::sim::{CrashImage, SimMedia, SimOptions};
use landfall_media::{CommitMode, Extent, Media, RUN_SIZE};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

pub const RUNS: u64 = 32;
pub const ROOT: InodeNumber = InodeNumber::ROOT;
pub const OPTIONS: OpenFiles =
    OpenFiles { now_ns: 1, identity: [5; 16], mode: 0o755, uid: 0, gid: 0, log_writer: 0, publish_writer: 1 };

/// Bytes of a paged region that may be in memory: so few that each run taken makes others leave.
const MEMORY: u64 = 4 * RUN_SIZE;

/// How the medium of a region behaves.
#[derive(Clone, Copy, Debug, Default)]
pub struct Medium {
    /// Fences are device I/O.
    pub deferred: bool,
    /// Bytes that may be in memory; all of them without.
    pub memory: Option<u64>,
}

impl Medium {
    pub const ALL: [Self; 4] = [
        Self { deferred: false, memory: None },
        Self { deferred: true, memory: None },
        Self { deferred: false, memory: Some(MEMORY) },
        Self { deferred: true, memory: Some(MEMORY) },
    ];

    /// That of a region.
    pub fn of(media: &Arc<SimMedia>) -> Self {
        let memory = Media::pages(Arc::clone(media)).map(|pages| pages.limit());
        Self { deferred: media.commit_mode() == CommitMode::Deferred, memory }
    }

    fn options(self) -> SimOptions {
        SimOptions { deferred: self.deferred }
    }

    /// A new region.
    pub fn region(self) -> Arc<SimMedia> {
        let media = self.paged(SimMedia::new(RUNS * RUN_SIZE, self.options()));
        create(&*media, &NewRegion { salt: [1; 16], hash_seed: 2, created_ms: 3 }).expect("a new region");
        media
    }

    /// What a process finds when it restarts after a crash.
    pub fn restart(self, image: &CrashImage) -> Arc<SimMedia> {
        self.paged(SimMedia::restart(image, self.options()))
    }

    fn paged(self, media: Arc<SimMedia>) -> Arc<SimMedia> {
        self.memory.into_iter().for_each(|limit| media.page(limit));
        media
    }
}

pub fn region() -> Arc<SimMedia> {
    Medium::default().region()
}

/// Checks a region of files as `landfall check` does: neither a record nor the tree has anything wrong.
pub fn check(media: Arc<SimMedia>) -> TreeChecked {
    check_beside(media, Vec::new())
}

/// As [`check`], where other systems have records beside the files.
pub fn check_beside(media: Arc<SimMedia>, mut tenants: Vec<Arc<dyn Tenant>>) -> TreeChecked {
    let files = Arc::new(FilesRecovery::default());
    tenants.push(Arc::clone(&files) as Arc<dyn Tenant>);
    let check = RegionCheck::complete(media as Arc<dyn Media>, tenants).expect("a region that can be read");
    let report = check.report();
    // A crash may tear one copy of the superblock or of a word of the run table.
    assert!(report.findings_count == 0 && report.correctable.is_empty(), "{report:?}");
    let tree = check_tree(&files.settled(), &check).expect("reads");
    assert_eq!(tree.findings, Vec::<String>::new());
    tree
}

/// An inode as a user sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    pub number: InodeNumber,
    pub nlink: u32,
    pub content: Content,
    pub extended: BTreeMap<Vec<u8>, Vec<u8>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    File(Vec<u8>),
    Directory,
    Link(Vec<u8>),
}

/// All paths, with what they name.
pub type View = BTreeMap<String, Seen>;

/// A mount on another machine: what is executed next is the call that it has.
#[derive(Debug, Default)]
pub struct Caller(Mutex<Option<Call>>);

impl Caller {
    /// From now on what is executed is what this call does.
    pub fn begin(&self, call: Call) {
        *self.0.lock() = Some(call);
    }

    /// True if nothing was executed for it.
    pub fn give_up(&self) -> bool {
        self.0.lock().take().is_some()
    }
}

impl Witness for Caller {
    fn call(&self) -> Option<Call> {
        *self.0.lock()
    }

    fn appending(&self, _: Option<u64>) {}

    fn executed(&self, _: u64, _: &[InodeNumber]) {
        *self.0.lock() = None;
    }

    fn adopted(&self, _: u64, _: &[InodeNumber]) {}
}

/// Files on a simulated medium, with what works in the background.
pub struct World {
    pub media: Arc<SimMedia>,
    pub files: Arc<Files>,
    pub publisher: Publisher,
    pub compactor: Compactor,
    pub caller: Arc<Caller>,
    landing: u64,
    pub now_ns: i64,
}

impl World {
    pub fn open(media: Arc<SimMedia>) -> Self {
        Self::open_as(media, Orphans::Delete)
    }

    pub fn open_as(media: Arc<SimMedia>, unnamed: Orphans) -> Self {
        let recovery = Arc::new(FilesRecovery::default());
        let tenants = vec![Arc::clone(&recovery) as Arc<dyn Tenant>];
        let (heap, found) = Region::run(Arc::clone(&media) as Arc<dyn Media>, tenants).expect("opens");
        assert!(found.damaged.is_empty() && found.damaged_values == 0, "{found:?}");
        let (files, publisher, found) = recovery.open_with(&heap, &OPTIONS, unnamed).expect("opens");
        assert_eq!(found.damaged, 0, "{found:?}");
        // Few, so that most are read again.
        files.set_nodes_max(4);
        let compactor = Compactor::new(heap);
        let caller = Arc::<Caller>::default();
        files.set_witness(Some(Arc::clone(&caller) as Arc<dyn Witness>));
        Self { media, files, publisher, compactor, caller, landing: 0, now_ns: 10 }
    }

    pub fn reopened(self) -> Self {
        let Self { media, files, publisher, compactor, .. } = self;
        drop((files, publisher, compactor));
        let left = media.crash_state().durable();
        Self::open(Medium::of(&media).restart(&left))
    }

    pub fn run(&mut self, operation: &Operation<'_>) {
        self.now_ns += 1;
        self.files.execute(self.now_ns, operation).unwrap_or_else(|error| panic!("{operation:?}: {error}"));
    }

    pub fn create(&mut self, parent: InodeNumber, name: &str, file_type: FileType) -> InodeNumber {
        let number = self.files.take_number();
        let place = Some((parent, Name::new(name.as_bytes()).expect("a good name")));
        let mode = Mode::new(file_type, 0o755);
        self.run(&Operation::Create { place, number, mode, uid: 0, gid: 0, rdev: 0 });
        number
    }

    pub fn write(&mut self, file: InodeNumber, offset: u64, bytes: &[u8]) {
        // As a mount does, which makes room in the log's slab.
        while let Err(error) = self.try_write(file, offset, bytes) {
            assert!(matches!(error, FsError::Wait(Until::Commit)), "{error}");
            self.files.sync_all().expect("syncs");
        }
    }

    /// Lands bytes in frames, as a mount does, and writes them.
    pub fn try_write(&mut self, file: InodeNumber, offset: u64, bytes: &[u8]) -> Result<(), FsError> {
        let heap = Arc::clone(self.files.heap());
        let len = bytes.len() as u64;
        assert!(len <= RUN_SIZE, "a test writes at most one run");
        if self.landing == 0 || self.landing % RUN_SIZE + len > RUN_SIZE {
            let used = std::mem::replace(&mut self.landing, heap.take_landing_run().expect("a free run"));
            if used > 0 {
                heap.retire_landing_run((used - 1) / RUN_SIZE * RUN_SIZE);
            }
        }
        let extent = Extent::new(self.landing, bytes.len() as u32);
        heap.media().store(extent.off, bytes)?;
        heap.runs().hold(extent);
        self.now_ns += 1;
        let done = self.files.write(file, offset, &[extent], self.now_ns);
        heap.runs().release(extent);
        self.landing = (extent.end()).next_multiple_of(4096);
        if self.landing.is_multiple_of(RUN_SIZE) {
            heap.retire_landing_run(self.landing - RUN_SIZE);
            self.landing = 0;
        }
        done
    }

    pub fn bytes(&self, file: InodeNumber) -> Vec<u8> {
        let mut bytes = Vec::new();
        for part in self.files.read(file, 0..u64::MAX).expect("reads") {
            match part {
                FilePart::Zeroes(len) => bytes.resize(bytes.len() + len as usize, 0),
                FilePart::Stored(part) => {
                    assert!(part.item().verify().expect("reads"), "the checksum holds");
                    bytes.extend(part.to_vec(self.files.heap()).expect("reads"));
                }
            }
        }
        bytes
    }

    pub fn set_size(&mut self, number: InodeNumber, size: u64) {
        let attributes = Attributes { size: Some(size), ..Attributes::default() };
        self.run(&Operation::SetAttributes { number, attributes });
    }

    pub fn set_extended(&mut self, number: InodeNumber, name: &str, value: &[u8]) {
        let name = ExtendedName::new(name.as_bytes()).expect("a good name");
        self.run(&Operation::SetExtended { number, name, value });
    }

    pub fn publish(&mut self) {
        self.publisher.step().expect("there is room");
    }

    /// Has data leave the memory of a paged region, as if more than all of it were to come.
    pub fn evict(&self) -> u64 {
        self.files.heap().relieve_memory(RUNS * RUN_SIZE)
    }

    pub fn compact(&mut self, goal: CompactGoal) {
        for _ in 0..200 {
            let done = self.compactor.step(&*self.files, goal, 1 << 20).expect("there is room");
            if done.is_idle {
                return;
            }
        }
        panic!("compaction finds no end");
    }

    pub fn view(&self) -> View {
        assert_eq!(self.files.dangling(), [], "blocks of files are in records that are not current");
        let mut view = View::new();
        self.look(ROOT, "", &mut view);
        view
    }

    fn look(&self, number: InodeNumber, path: &str, view: &mut View) {
        let stat = self.files.stat(number).unwrap_or_else(|error| panic!("{path}: {error}"));
        let mut names = Vec::new();
        let content = match stat.inode.mode.file_type() {
            FileType::Directory => {
                let mut visit = |entry: &landfall_fs::NameEntry| {
                    names.push((String::from_utf8_lossy(entry.name()).into_owned(), entry.number));
                    true
                };
                self.files.entries(number, Position(0), &mut visit).expect("lists");
                assert_eq!(names.len() as u64, stat.inode.size, "{path}: the number of entries");
                Content::Directory
            }
            FileType::Link => Content::Link(self.files.link_target(number).expect("reads").into()),
            _ => Content::File(self.bytes(number)),
        };
        if let Content::File(bytes) = &content {
            assert_eq!(bytes.len() as u64, stat.inode.size, "{path}: the size");
        }
        let extended = self.files.extended_names(number).expect("lists").into_iter();
        let extended = extended
            .map(|name| (name.to_vec(), self.files.extended(number, &name).expect("reads").to_vec()))
            .collect();
        view.insert(path.to_owned(), Seen { number, nlink: stat.inode.nlink, content, extended });
        for (name, number) in names {
            self.look(number, &format!("{path}/{name}"), view);
        }
    }
}
