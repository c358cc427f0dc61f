//! The bounded enumeration of workloads of ACE (Mohan and others: "Finding Crash-Consistency Bugs with Bounded Black-Box
//! Crash Testing", OSDI 2018): every sequence of a few operations over a small tree, and a call that asks for durability
//! behind each of them.
//!
//! What an operation needs is made before it, not durably: directories, the file, bytes in it, an attribute to remove. What
//! is in the way is removed. Where ACE has several calls that are one at this level, there is one here: `remove` is `unlink`
//! or `rmdir`, and a direct or mapped write is a write of whole blocks.

use super::call::{Bytes, Call, Persist, Step, falloc};
use super::posix::Posix;
use super::view::join;
use crate::rng::Rng;
use std::collections::BTreeSet;

/// Bytes of a write at the end of a file.
const APPEND_BYTES: u64 = 32_768;
/// Bytes of a write that is not of whole blocks, and of one that is.
const UNALIGNED_BYTES: u64 = 5000;
const ALIGNED_BYTES: u64 = 8192;
/// How far before the end of the file a write begins that makes the file longer.
const BEFORE_END_BYTES: u64 = 2000;
/// Bytes that stay when a file is cut off within a block.
const CUT_BYTES: u64 = 2500;
const ATTRIBUTE: &str = "user.ace";

/// Where in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names are ACE's")]
pub enum Place {
    Append,
    OverlapUnalignedStart,
    OverlapUnalignedEnd,
    OverlapExtend,
    OverlapStart,
    OverlapEnd,
}

impl Place {
    const ALL: [Self; 6] = [
        Self::Append,
        Self::OverlapUnalignedStart,
        Self::OverlapUnalignedEnd,
        Self::OverlapExtend,
        Self::OverlapStart,
        Self::OverlapEnd,
    ];
    /// ACE reserves and punches in these.
    const OF_FALLOC: [Self; 4] =
        [Self::Append, Self::OverlapUnalignedStart, Self::OverlapUnalignedEnd, Self::OverlapExtend];

    /// Offset and length in a file of `size` bytes.
    fn range(self, size: u64) -> (u64, u64) {
        match self {
            Self::Append => (size, APPEND_BYTES),
            Self::OverlapUnalignedStart => (0, UNALIGNED_BYTES),
            Self::OverlapUnalignedEnd => (size.saturating_sub(UNALIGNED_BYTES), UNALIGNED_BYTES),
            Self::OverlapExtend => (size.saturating_sub(BEFORE_END_BYTES), UNALIGNED_BYTES),
            Self::OverlapStart => (0, ALIGNED_BYTES),
            Self::OverlapEnd => (size.saturating_sub(ALIGNED_BYTES), ALIGNED_BYTES),
        }
    }
}

/// An operation under test.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the operations and their arguments are those of POSIX and Linux")]
pub enum Op {
    Creat(&'static str),
    Mkdir(&'static str),
    Falloc(&'static str, u32, Place),
    Write(&'static str, Place),
    Link(&'static str, &'static str),
    Symlink(&'static str, &'static str),
    Unlink(&'static str),
    Rmdir(&'static str),
    Rename(&'static str, &'static str),
    Truncate(&'static str, u64),
    Setxattr(&'static str),
    Removexattr(&'static str),
}

/// Which paths operations have.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    files: &'static [&'static str],
    /// Files that links and renames make.
    second_files: &'static [&'static str],
    directories: &'static [&'static str],
    /// What directories are renamed to.
    second_directories: &'static [&'static str],
}

impl Bounds {
    /// ACE's own: workloads that differ in names only are left out.
    pub const ACE: Self = Self {
        files: &["foo", "A/foo"],
        second_files: &["bar", "A/bar"],
        directories: &["A"],
        second_directories: &["B"],
    };
    /// All paths of ACE's tree.
    pub const ALL: Self = Self {
        files: &["foo", "bar", "A/foo", "A/bar", "B/foo", "B/bar"],
        second_files: &["foo", "bar", "A/foo", "A/bar", "B/foo", "B/bar"],
        directories: &["A", "B"],
        second_directories: &["A", "B"],
    };

    /// All operations.
    pub fn operations(&self) -> Vec<Op> {
        let mut all = Vec::new();
        for file in self.files {
            all.push(Op::Creat(file));
            all.extend(Place::ALL.map(|place| Op::Write(file, place)));
            all.extend(self.falloc(file));
            all.extend([Op::Truncate(file, 0), Op::Truncate(file, CUT_BYTES)]);
            all.extend([Op::Setxattr(file), Op::Removexattr(file)]);
        }
        all.extend(self.directories.iter().flat_map(|path| [Op::Mkdir(path), Op::Rmdir(path)]));
        let files: BTreeSet<&str> = self.files.iter().chain(self.second_files).copied().collect();
        all.extend(files.iter().map(|path| Op::Unlink(path)));
        for to in self.second_files {
            for from in files.iter().filter(|from| *from != to) {
                all.extend([Op::Link(from, to), Op::Symlink(from, to), Op::Rename(from, to)]);
            }
        }
        for to in self.second_directories {
            all.extend(self.directories.iter().filter(|from| *from != to).map(|from| Op::Rename(from, to)));
        }
        all
    }

    fn falloc(&self, file: &'static str) -> Vec<Op> {
        let in_any_place = [
            falloc::RESERVE,
            falloc::KEEP_SIZE,
            falloc::ZERO_RANGE,
            falloc::ZERO_RANGE | falloc::KEEP_SIZE,
            falloc::PUNCH_HOLE | falloc::KEEP_SIZE,
        ];
        let places = in_any_place.into_iter().flat_map(|mode| Place::OF_FALLOC.map(|place| (mode, place)));
        // These take whole blocks.
        let shifts = [falloc::COLLAPSE_RANGE, falloc::INSERT_RANGE].map(|mode| (mode, Place::OverlapStart));
        places.chain(shifts).map(|(mode, place)| Op::Falloc(file, mode, place)).collect()
    }
}

/// A workload, and the model of the tree that it makes.
#[derive(Clone, Debug, Default)]
pub struct Workload {
    /// What is done.
    pub steps: Vec<Step>,
    /// The step that is the newest operation under test, behind what it needs.
    pub tested: usize,
    posix: Posix,
    /// Paths of the operations under test.
    used: BTreeSet<String>,
}

fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}

fn is_directory(path: &str) -> bool {
    matches!(path, "" | "A" | "B")
}

/// The other file in the directory, or the other directory.
fn sibling(path: &str) -> String {
    let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
    let other = match name {
        "foo" => "bar",
        "bar" => "foo",
        "A" => "B",
        "B" => "A",
        root => root,
    };
    join(parent, other)
}

impl Workload {
    fn call(&mut self, call: Call) {
        // The mount refuses what the model refuses.
        let _ = self.posix.call(&call);
        self.steps.push(Step::Call(call));
    }

    fn make_directory(&mut self, path: &str) {
        if !self.posix.exists(path) {
            self.call(Call::Mkdir { path: path.to_owned() });
        }
    }

    fn make_file(&mut self, path: &str) {
        self.make_directory(parent(path));
        if !self.posix.exists(path) {
            self.call(Call::Create { path: path.to_owned() });
        }
    }

    fn make(&mut self, path: &str) {
        if is_directory(path) { self.make_directory(path) } else { self.make_file(path) }
    }

    /// The size of a file with bytes.
    fn make_bytes(&mut self, path: &str) -> u64 {
        self.make_file(path);
        if self.posix.size(path) == Some(0) {
            self.write(path, Place::Append);
        }
        self.posix.size(path).unwrap_or(0)
    }

    fn write(&mut self, path: &str, place: Place) {
        let (offset, len) = place.range(self.posix.size(path).unwrap_or(0));
        let bytes = Bytes::pattern(len, self.steps.len() as u64);
        self.call(Call::Write { path: path.to_owned(), offset, bytes });
    }

    fn remove_file(&mut self, path: &str) {
        if self.posix.exists(path) {
            self.call(Call::Unlink { path: path.to_owned() });
        }
    }

    fn empty(&mut self, directory: &str) {
        self.posix.entries(directory).into_iter().for_each(|path| self.call(Call::Unlink { path }));
    }

    /// Adds an operation, behind what it needs.
    #[must_use]
    pub fn then(mut self, op: &Op) -> Self {
        let owned = |path: &str| path.to_owned();
        match *op {
            Op::Creat(path) => {
                self.make_directory(parent(path));
                self.remove_file(path);
                self.call(Call::Create { path: owned(path) });
            }
            Op::Mkdir(path) => {
                if self.posix.exists(path) {
                    self.empty(path);
                    self.call(Call::Rmdir { path: owned(path) });
                }
                self.call(Call::Mkdir { path: owned(path) });
            }
            Op::Rmdir(path) => {
                self.make_directory(path);
                self.empty(path);
                self.call(Call::Rmdir { path: owned(path) });
            }
            Op::Unlink(path) => {
                self.make_file(path);
                self.call(Call::Unlink { path: owned(path) });
            }
            Op::Rename(from, to) => {
                self.make(from);
                self.make_directory(parent(to));
                if is_directory(to) {
                    self.empty(to);
                }
                self.call(Call::Rename { from: owned(from), to: owned(to) });
            }
            Op::Link(from, to) | Op::Symlink(from, to) => {
                self.make_file(from);
                self.make_directory(parent(to));
                self.remove_file(to);
                self.call(match op {
                    Op::Link(..) => Call::Link { from: owned(from), to: owned(to) },
                    _ => Call::Symlink { target: owned(from), path: owned(to) },
                });
            }
            _ => self.change_file(op),
        }
        self.tested = self.steps.len() - 1;
        self.use_paths(op);
        self
    }

    fn change_file(&mut self, op: &Op) {
        match *op {
            Op::Write(path, Place::Append) => {
                self.make_file(path);
                self.write(path, Place::Append);
            }
            Op::Write(path, place) => {
                self.make_bytes(path);
                self.write(path, place);
            }
            Op::Falloc(path, mode, place) => {
                let (offset, len) = place.range(self.make_bytes(path));
                self.call(Call::Allocate { path: path.to_owned(), mode, offset, len });
            }
            Op::Truncate(path, size) => {
                self.make_bytes(path);
                self.call(Call::Truncate { path: path.to_owned(), size });
            }
            Op::Setxattr(path) | Op::Removexattr(path) => {
                self.make_file(path);
                let (path, name) = (path.to_owned(), ATTRIBUTE.to_owned());
                let is_removed = matches!(op, Op::Removexattr(_));
                if !is_removed || !self.posix.has_extended(&path, &name) {
                    let value = Bytes::pattern(100, self.steps.len() as u64);
                    self.call(Call::SetExtended { path: path.clone(), name: name.clone(), value });
                }
                if is_removed {
                    self.call(Call::RemoveExtended { path, name });
                }
            }
            _ => unreachable!("{op:?} changes names"),
        }
    }

    fn use_paths(&mut self, op: &Op) {
        let paths = match *op {
            Op::Creat(path) | Op::Mkdir(path) | Op::Unlink(path) | Op::Rmdir(path) => vec![path],
            Op::Falloc(path, ..) | Op::Write(path, _) | Op::Truncate(path, _) => vec![path],
            Op::Setxattr(path) | Op::Removexattr(path) => vec![path],
            Op::Link(from, to) | Op::Symlink(from, to) | Op::Rename(from, to) => vec![from, to],
        };
        self.used.extend(paths.into_iter().map(str::to_owned));
    }

    /// Adds a call that asks for durability, behind what it needs.
    #[must_use]
    pub fn persisted(mut self, persist: &Persist) -> Self {
        if let Persist::Fsync(path) | Persist::Fdatasync(path) = persist {
            self.make(path);
        }
        self.steps.push(Step::Persist(persist.clone()));
        self
    }

    /// The calls that may ask for durability now: of what was used, of what is beside it, and of the directories with it.
    pub fn persists(&self) -> Vec<Persist> {
        let mut range = self.used.clone();
        range.extend(self.used.iter().flat_map(|path| [sibling(path), parent(path).to_owned()]));
        let files = self.used.iter().filter(|path| !is_directory(path));
        let of_files = files.cloned().map(Persist::Fdatasync);
        [Persist::Sync].into_iter().chain(range.into_iter().map(Persist::Fsync)).chain(of_files).collect()
    }

    /// With the log published at a place drawn from `rng`: behind an operation, and maybe before it is durable.
    #[must_use]
    pub fn published(mut self, rng: &mut Rng) -> Self {
        let at = rng.between(1, self.steps.len());
        self.steps.insert(at, Step::Publish);
        self
    }
}

/// All workloads that add `op` to another one and end with a call that asks for durability.
pub fn ended(before: &Workload, op: &Op) -> Vec<Workload> {
    let workload = before.clone().then(op);
    workload.persists().iter().map(|persist| workload.clone().persisted(persist)).collect()
}

/// All workloads that add `op` to another one, also those that ask for no durability behind it.
pub fn continued(before: &Workload, op: &Op) -> Vec<Workload> {
    let mut all = ended(before, op);
    all.push(before.clone().then(op));
    all
}

/// A workload of `count` operations.
pub fn drawn(rng: &mut Rng, operations: &[Op], count: usize) -> Workload {
    let one = |rng: &mut Rng, mut all: Vec<Workload>| all.swap_remove(rng.below(all.len() as u64) as usize);
    let mut workload = Workload::default();
    for at in 1..=count {
        let op = &operations[rng.below(operations.len() as u64) as usize];
        let all = if at < count { continued(&workload, op) } else { ended(&workload, op) };
        workload = one(rng, all);
    }
    workload
}
