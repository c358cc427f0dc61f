//! A mount: calls of programs, by path, on files in a simulated region.

use super::call::{Bytes, Call, Errno, Persist};
use super::view::{Body, Seen, View, join, name_inodes};
use crate::violation::{Violation, ensure};
use landfall_fs::{
    Attributes, ExtendedName, FilePart, FileType, Files, FilesRecovery, FsError, InodeNumber, Mode, Name,
    OpenFiles, Operation, Position, Publisher, Stat, TreeError, check_tree,
};
use landfall_heap::{CompactGoal, Compactor, HeapError, NewRegion, Region, RegionCheck, Tenant, create};
use landfall_media::sim::{CrashImage, SimMedia, SimOptions};
use landfall_media::{Extent, Media, RUN_SIZE};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const RUNS: u64 = 32;
const FRAME: u64 = 4096;
const OPTIONS: OpenFiles =
    OpenFiles { now_ns: 1, identity: [5; 16], mode: 0o755, uid: 0, gid: 0, log_writer: 0, publish_writer: 1 };
/// Inodes that stay in memory: few, so that most are read again.
const NODES_MAX: usize = 4;
/// Most bytes that the compactor moves at once.
const COMPACT_BUDGET: u64 = 1 << 20;
/// Most rounds of compaction.
const COMPACT_ROUNDS_MAX: usize = 200;

/// What a program sees of an inode besides its contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attribution {
    mode: Mode,
    uid: u32,
    gid: u32,
    mtime_ns: i64,
    ctime_ns: i64,
    blocks: u64,
}

/// All that programs can ask about a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    /// The tree.
    pub view: View,
    /// Times, permissions and space of each path.
    pub attributions: BTreeMap<String, Attribution>,
}

/// Files on a simulated medium, and what works in the background.
pub struct Mount {
    /// The medium.
    pub media: Arc<SimMedia>,
    files: Arc<Files>,
    publisher: Publisher,
    compactor: Compactor,
    /// Where the next bytes land; 0: in a new run.
    landing: u64,
    now_ns: i64,
    /// Calls that ask for durability do nothing: the fault that a checker must detect.
    forgets_syncs: bool,
}

/// A region with an empty tree.
pub fn new_region() -> Result<CrashImage, Violation> {
    let media = SimMedia::new(RUNS * RUN_SIZE, SimOptions::default());
    create(&*media, &NewRegion { salt: [1; 16], hash_seed: 2, created_ms: 3 })?;
    let mount = Mount::open(media)?;
    Ok(mount.media.crash_state().durable())
}

/// Checks a region as `landfall check` does. Returns the number of inodes of the published tree.
///
/// # Errors
/// Whatever is wrong with a record or with the tree.
pub fn check(media: Arc<SimMedia>) -> Result<u64, Violation> {
    let files = Arc::new(FilesRecovery::default());
    let tenants = vec![Arc::clone(&files) as Arc<dyn Tenant>];
    let check = RegionCheck::complete(media as Arc<dyn Media>, tenants)?;
    let report = check.report();
    // A crash may tear one copy of the superblock or of a word of the run table.
    let is_clean = report.findings_count == 0 && report.correctable.is_empty();
    ensure!(is_clean, "the check of the region: {report:?}");
    let tree = check_tree(&files.settled(), &check)?;
    ensure!(tree.findings.is_empty(), "the check of the tree: {:?}", tree.findings);
    Ok(tree.inodes)
}

/// Repairs a region as `landfall check --repair` does where a check has found something. Returns what was changed.
pub(super) fn repair(media: Arc<SimMedia>) -> Result<Vec<String>, Violation> {
    let recovery = Arc::new(FilesRecovery::default());
    let tenants = vec![Arc::clone(&recovery) as Arc<dyn Tenant>];
    let (heap, _) = Region::run(media as Arc<dyn Media>, tenants)?;
    Ok(recovery.repair(&heap, &OPTIONS, &BTreeSet::new(), &[])?)
}

fn errno_of(error: FsError) -> Result<Errno, Violation> {
    let FsError::Tree(error) = error else { return Err(error.into()) };
    Ok(match error {
        TreeError::NotFound => Errno::NotFound,
        TreeError::Exists => Errno::Exists,
        TreeError::NotADirectory => Errno::NotADirectory,
        TreeError::IsADirectory => Errno::IsADirectory,
        TreeError::NotEmpty => Errno::NotEmpty,
        TreeError::Invalid => Errno::Invalid,
        TreeError::NotPermitted => Errno::NotPermitted,
        TreeError::NoAttribute => Errno::NoAttribute,
        other => return Err(FsError::Tree(other).into()),
    })
}

fn name(name: &str) -> Result<Name<'_>, FsError> {
    Name::new(name.as_bytes()).map_err(|_| TreeError::Invalid.into())
}

fn extended_name(name: &str) -> Result<ExtendedName<'_>, FsError> {
    ExtendedName::new(name.as_bytes()).map_err(|_| TreeError::Invalid.into())
}

impl Mount {
    /// Recovers a region.
    ///
    /// # Errors
    /// Damage: there is none that a crash may leave.
    pub fn open(media: Arc<SimMedia>) -> Result<Self, Violation> {
        let recovery = Arc::new(FilesRecovery::default());
        let tenants = vec![Arc::clone(&recovery) as Arc<dyn Tenant>];
        let (heap, found) = Region::run(Arc::clone(&media) as Arc<dyn Media>, tenants)?;
        ensure!(found.damaged.is_empty() && found.damaged_values == 0, "recovery finds damage: {found:?}");
        let (files, publisher, found) = recovery.open(&heap, &OPTIONS)?;
        ensure!(found.damaged == 0, "recovery finds damage: {found:?}");
        files.set_nodes_max(NODES_MAX);
        let compactor = Compactor::new(heap);
        Ok(Self { media, files, publisher, compactor, landing: 0, now_ns: 10, forgets_syncs: false })
    }

    /// From now on calls that ask for durability return at once.
    pub fn forget_syncs(&mut self) {
        self.forgets_syncs = true;
    }

    /// Executes a call of a program. The inner result is what the program gets.
    ///
    /// # Errors
    /// An error that no program may get here.
    pub fn call(&mut self, call: &Call) -> Result<Result<(), Errno>, Violation> {
        self.now_ns += 1;
        match self.try_call(call) {
            Ok(()) => Ok(Ok(())),
            Err(error) => errno_of(error).map(Err),
        }
    }

    fn try_call(&mut self, call: &Call) -> Result<(), FsError> {
        match call {
            Call::Create { path } => self.create(path, FileType::File),
            Call::Mkdir { path } => self.create(path, FileType::Directory),
            Call::Symlink { target, path } => {
                let (parent, of_path) = self.place(path)?;
                let (name, target) = (name(of_path)?, target.as_bytes());
                let number = self.files.take_number();
                self.execute(&Operation::Symlink { parent, name, number, uid: 0, gid: 0, target })
            }
            Call::Link { from, to } => {
                let number = self.find(from)?.number;
                let (parent, to) = self.place(to)?;
                self.execute(&Operation::Link { parent, name: name(to)?, number, replaces: false })
            }
            Call::Unlink { path } => self.unlink(path, false),
            Call::Rmdir { path } => self.unlink(path, true),
            Call::Rename { from, to } => self.rename(from, to),
            Call::Write { path, offset, bytes } => {
                let number = self.find(path)?.number;
                self.write(number, *offset, &bytes.0)
            }
            Call::Truncate { path, size } => {
                let attributes = Attributes { size: Some(*size), ..Attributes::default() };
                let number = self.find(path)?.number;
                self.execute(&Operation::SetAttributes { number, attributes })
            }
            Call::Allocate { path, mode, offset, len } => {
                let (number, mode) = (self.find(path)?.number, *mode);
                self.execute(&Operation::Allocate { number, mode, offset: *offset, len: *len })
            }
            Call::SetExtended { path, name, value } => {
                let (number, name) = (self.find(path)?.number, extended_name(name)?);
                self.execute(&Operation::SetExtended { number, name, value: &value.0 })
            }
            Call::RemoveExtended { path, name } => {
                let (number, name) = (self.find(path)?.number, extended_name(name)?);
                self.execute(&Operation::RemoveExtended { number, name })
            }
        }
    }

    fn execute(&self, operation: &Operation<'_>) -> Result<(), FsError> {
        self.files.execute(self.now_ns, operation)
    }

    fn find(&self, path: &str) -> Result<Stat, FsError> {
        let components = path.split('/').filter(|name| !name.is_empty());
        let mut stat = self.files.stat(InodeNumber::ROOT)?;
        for component in components {
            stat = self.files.lookup(stat.number, name(component)?)?;
        }
        Ok(stat)
    }

    /// The directory of a path, and the name in it.
    fn place<'p>(&self, path: &'p str) -> Result<(InodeNumber, &'p str), FsError> {
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        let parent = self.find(parent)?;
        if parent.inode.mode.file_type() != FileType::Directory {
            return Err(TreeError::NotADirectory.into());
        }
        Ok((parent.number, name))
    }

    fn create(&self, path: &str, file_type: FileType) -> Result<(), FsError> {
        let (parent, of_path) = self.place(path)?;
        let (number, mode) = (self.files.take_number(), Mode::new(file_type, 0o750));
        let place = Some((parent, name(of_path)?));
        self.execute(&Operation::Create { place, number, mode, uid: 1, gid: 2, rdev: 0 })
    }

    fn unlink(&self, path: &str, is_directory: bool) -> Result<(), FsError> {
        let (parent, of_path) = self.place(path)?;
        let number = self.find(path)?.number;
        self.execute(&Operation::Unlink { parent, name: name(of_path)?, is_directory })?;
        self.release_unnamed(number)
    }

    /// Nobody has the file open: without a name it is gone.
    fn release_unnamed(&self, number: InodeNumber) -> Result<(), FsError> {
        match self.files.stat(number)?.inode.nlink {
            0 => self.execute(&Operation::Release { number }),
            _ => Ok(()),
        }
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), FsError> {
        let ((parent, of_from), (new_parent, of_to)) = (self.place(from)?, self.place(to)?);
        let replaced = self.find(to).ok().map(|stat| stat.number);
        let (name, new_name) = (name(of_from)?, name(of_to)?);
        let (no_replace, exchange) = (false, false);
        self.execute(&Operation::Rename { parent, name, new_parent, new_name, no_replace, exchange })?;
        replaced.map_or(Ok(()), |number| self.release_unnamed(number))
    }

    /// Lands bytes in frames, as a mount does, and writes them.
    fn write(&mut self, file: InodeNumber, offset: u64, bytes: &[u8]) -> Result<(), FsError> {
        let heap = Arc::clone(self.files.heap());
        let len = bytes.len() as u64;
        if self.landing == 0 || self.landing % RUN_SIZE + len > RUN_SIZE {
            let used = std::mem::replace(&mut self.landing, heap.take_landing_run().ok_or(HeapError::Full)?);
            if used > 0 {
                heap.retire_landing_run(used / RUN_SIZE * RUN_SIZE);
            }
        }
        let extent = Extent::new(self.landing, bytes.len() as u32);
        heap.media().store(extent.off, bytes)?;
        heap.runs().hold(extent);
        let done = self.files.write(file, offset, &[extent], self.now_ns);
        heap.runs().release(extent);
        self.landing = extent.end().next_multiple_of(FRAME);
        if self.landing.is_multiple_of(RUN_SIZE) {
            heap.retire_landing_run(self.landing - RUN_SIZE);
            self.landing = 0;
        }
        done
    }

    /// Returns once what a program asks for is durable. The inner result is what the program gets.
    ///
    /// # Errors
    /// An error that no program may get here.
    pub fn persist(&self, persist: &Persist) -> Result<Result<(), Errno>, Violation> {
        match self.try_persist(persist) {
            Ok(()) => Ok(Ok(())),
            Err(error) => errno_of(error).map(Err),
        }
    }

    fn try_persist(&self, persist: &Persist) -> Result<(), FsError> {
        let number = match persist {
            Persist::Sync => None,
            Persist::Fsync(path) | Persist::Fdatasync(path) => Some(self.find(path)?.number),
        };
        match number {
            _ if self.forgets_syncs => Ok(()),
            None => self.files.sync_all(),
            Some(number) => self.files.sync(number),
        }
    }

    /// Publishes what the log has.
    ///
    /// # Errors
    /// Any.
    pub fn publish(&mut self) -> Result<(), Violation> {
        Ok(self.publisher.step().map(drop)?)
    }

    /// Makes data and slabs dense.
    ///
    /// # Errors
    /// Any, and that there is no end.
    pub fn compact(&mut self) -> Result<(), Violation> {
        for goal in [CompactGoal::DENSE_DATA, CompactGoal::DENSE_SLABS] {
            let mut rounds = 0;
            while !self.compactor.step(&*self.files, goal, COMPACT_BUDGET)?.is_idle {
                rounds += 1;
                ensure!(rounds < COMPACT_ROUNDS_MAX, "compaction finds no end");
            }
        }
        Ok(())
    }

    /// Number of inodes, those without a name included.
    pub fn inode_count(&self) -> usize {
        self.files.inode_count()
    }

    /// Lists and reads everything.
    ///
    /// # Errors
    /// What cannot be listed or read, and what contradicts itself.
    pub fn observe(&self) -> Result<Observed, Violation> {
        let dangling = self.files.dangling();
        ensure!(dangling.is_empty(), "blocks of {dangling:?} are in records that are not current");
        let mut observed = Observed { view: View::new(), attributions: BTreeMap::new() };
        let mut inodes = BTreeMap::new();
        self.look(InodeNumber::ROOT, "", &mut observed, &mut inodes)
            .map_err(|violation| violation.during("listing"))?;
        name_inodes(&mut observed.view, &inodes);
        Ok(observed)
    }

    fn look(
        &self,
        number: InodeNumber,
        path: &str,
        observed: &mut Observed,
        inodes: &mut BTreeMap<String, InodeNumber>,
    ) -> Result<(), Violation> {
        let Stat { inode, mtime_ns, ctime_ns, blocks, .. } = self.files.stat(number)?;
        let mut entries = Vec::new();
        let body = match inode.mode.file_type() {
            FileType::Directory => {
                self.files.entries(number, Position(0), &mut |entry| {
                    entries.push((String::from_utf8_lossy(entry.name()).into_owned(), entry.number));
                    true
                })?;
                ensure!(entries.len() as u64 == inode.size, "/{path} has another number of entries");
                Body::Directory
            }
            FileType::Link => {
                Body::Link(String::from_utf8_lossy(&self.files.link_target(number)?).into_owned())
            }
            _ => Body::File(self.bytes(number)?.into()),
        };
        if let Body::File(Bytes(bytes)) = &body {
            ensure!(bytes.len() as u64 == inode.size, "/{path} has another size than it has bytes");
        }
        let extended = self.extended(number)?;
        let seen = Seen { first: String::new(), nlink: inode.nlink, body, extended };
        let (mode, uid, gid) = (inode.mode, inode.uid, inode.gid);
        let attribution = Attribution { mode, uid, gid, mtime_ns, ctime_ns, blocks };
        observed.view.insert(path.to_owned(), seen);
        observed.attributions.insert(path.to_owned(), attribution);
        inodes.insert(path.to_owned(), number);
        for (name, child) in entries {
            self.look(child, &join(path, &name), observed, inodes)?;
        }
        Ok(())
    }

    fn extended(&self, number: InodeNumber) -> Result<BTreeMap<String, Bytes>, Violation> {
        let names = self.files.extended_names(number)?;
        let values = names.into_iter().map(|name| {
            let value = self.files.extended(number, &name)?;
            Ok((String::from_utf8_lossy(&name).into_owned(), value.to_vec().into()))
        });
        values.collect()
    }

    fn bytes(&self, number: InodeNumber) -> Result<Vec<u8>, Violation> {
        let mut bytes = Vec::new();
        for part in self.files.read(number, 0..u64::MAX)? {
            match part {
                FilePart::Zeroes(len) => bytes.resize(bytes.len() + len as usize, 0),
                FilePart::Stored(part) => {
                    ensure!(part.item().verify()?, "bytes of {number:?} fail their checksum");
                    bytes.extend(part.to_vec(self.files.heap())?);
                }
            }
        }
        Ok(bytes)
    }
}

impl From<FsError> for Violation {
    fn from(error: FsError) -> Self {
        Self(format!("an unexpected error: {error:?}"))
    }
}
