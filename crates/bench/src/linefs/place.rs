//! Where a load runs: a folder, or the files of one server, of a chain or of GlusterFS.

use crate::common::error::BenchError;
use crate::common::measure::cpu::CpuTime;
use crate::common::peers::{Programs, Server};
use crate::files::{FsArgs, LoadChoice, Loaded, TMPFS, check_library, run_by_library, run_here, warm};
use crate::linefs::args::LinefsLoad;
use crate::linefs::gluster::Gluster;
use crate::linefs::servers::{Served, Servers, Setting};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

/// The name in reports of three servers in a chain.
pub(super) const CHAIN: &str = "landfall, chain of three";
/// The name of such a chain whose view is in etcd.
pub(super) const CHAIN_IN_ETCD: &str = "landfall, chain of three in etcd";
/// The name of such a chain whose files a program reads and writes in its own process, by the library.
pub(super) const LIBRARY: &str = "landfall, chain of three, library";
/// The name of a chain that sends chunk by chunk.
pub(super) const NOT_PARALLEL: &str = "landfall, NotParallel";
/// The name of such a chain that sends files when `fsync` asks for them.
pub(super) const ASSISE: &str = "landfall, Assise's way";
/// The name of a server without a chain.
pub(super) const ALONE: &str = "landfall, one server";
/// The name of such a server that publishes by copying.
const COPYING: &str = "copying, a chunk at once";
/// The name of such a server that makes each copy durable by itself.
const COPYING_EACH: &str = "copying, record by record";
/// The name of GlusterFS with three copies.
pub(super) const GLUSTER: &str = "GlusterFS, replica 3";

/// A kind of place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A folder on the file system below.
    Folder,
    /// `landfall serve --files`.
    Alone,
    /// The same, and it publishes by copying, not by relinking.
    Copying,
    /// The same, and each copy becomes durable by itself.
    CopyingEach,
    /// Three servers in a chain.
    Chain,
    /// The same, and the load has loaded the library.
    Library,
    /// Such a chain that sends one chunk at a time.
    NotParallel,
    /// Such a chain that sends files when `fsync` asks for them.
    Assise,
    /// GlusterFS with three copies.
    Gluster,
}

impl Kind {
    /// Where a load runs, in the order of the turns, on a file system of this kind. The library answers in the process only
    /// where the region's memory can be shared.
    pub(super) fn of(load: LinefsLoad, folder: &str) -> Vec<Self> {
        let mut all = vec![Self::Folder, Self::Alone, Self::Chain];
        all.extend((folder == TMPFS).then_some(Self::Library));
        all.extend(match load {
            LinefsLoad::Write => Some(Self::NotParallel),
            LinefsLoad::Varmail | LinefsLoad::Fileserver | LinefsLoad::Leveldb => Some(Self::Assise),
            _ => None,
        });
        all.push(Self::Gluster);
        all
    }

    /// Flags of the servers.
    fn flags(self) -> &'static [&'static str] {
        match self {
            Self::NotParallel => &["--chain-send", "one-at-a-time"],
            Self::Assise => &["--chain-send", "at-fsync"],
            Self::Copying => &["--files-publish", "copy"],
            Self::CopyingEach => &["--files-publish", "copy-each"],
            Self::Folder | Self::Alone | Self::Chain | Self::Library | Self::Gluster => &[],
        }
    }

    /// The name in reports; `folder` is the folder's.
    pub(super) fn name(self, folder: &str) -> &str {
        match self {
            Self::Folder => folder,
            Self::Alone => ALONE,
            Self::Copying => COPYING,
            Self::CopyingEach => COPYING_EACH,
            Self::Chain => CHAIN,
            Self::Library => LIBRARY,
            Self::NotParallel => NOT_PARALLEL,
            Self::Assise => ASSISE,
            Self::Gluster => GLUSTER,
        }
    }
}

/// A place for one run. It is empty, and removed with everything in it when this is dropped.
#[derive(Debug)]
pub(super) struct Place {
    /// What serves the files, if anything does. It ends before its folder is removed: fields drop in order.
    system: Option<System>,
    kind: Kind,
    files: PathBuf,
    _scratch: TempDir,
}

#[derive(Debug)]
enum System {
    Landfall(Servers),
    Gluster(Gluster),
}

/// A folder for one run, made after memory has been touched.
pub(super) fn scratch_in(args: &FsArgs) -> Result<TempDir, BenchError> {
    warm(args);
    let dir = args.dir.canonicalize().map_err(BenchError::file(&args.dir))?;
    tempfile::Builder::new().prefix("landfall-bench-").tempdir_in(&dir).map_err(BenchError::file(&dir))
}

/// After so long what was removed is free: it is published each second.
const FREE_AFTER: Duration = Duration::from_secs(2);

/// Removes everything in a folder, durably, and waits until it is free.
pub(super) fn empty_and_wait(folder: &Path) -> Result<(), BenchError> {
    empty(folder)?;
    std::thread::sleep(FREE_AFTER);
    Ok(())
}

/// Removes everything in a folder, durably.
pub(super) fn empty(folder: &Path) -> Result<(), BenchError> {
    let remove_all = || -> io::Result<()> {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let is_folder = entry.file_type()?.is_dir();
            if is_folder { fs::remove_dir_all(entry.path()) } else { fs::remove_file(entry.path()) }?;
        }
        fs::File::open(folder)?.sync_all()
    };
    remove_all().map_err(BenchError::file(folder))
}

/// CPU time that some processes had used at some time.
pub(super) struct Used(Vec<(u32, CpuTime)>);

impl Place {
    /// A place for a load that needs regions of so many bytes.
    pub(super) fn new(
        kind: Kind,
        programs: &Programs,
        args: &FsArgs,
        bytes: u64,
    ) -> Result<Self, BenchError> {
        if kind == Kind::Library {
            check_library()?;
        }
        let scratch = scratch_in(args)?;
        let files = scratch.path().join("files");
        fs::create_dir(&files).map_err(BenchError::file(&files))?;
        let (scratch_path, flags) = (scratch.path(), kind.flags());
        let setting = Setting {
            programs,
            scratch: scratch_path,
            bytes,
            files: Served::Mounted(&files),
            etcd: None,
            flags,
        };
        let system = match kind {
            Kind::Folder => None,
            Kind::Alone | Kind::Copying | Kind::CopyingEach => {
                Some(System::Landfall(Servers::alone(setting)?))
            }
            Kind::Chain | Kind::Library | Kind::NotParallel | Kind::Assise => {
                Some(System::Landfall(Servers::in_chain(setting)?))
            }
            Kind::Gluster => Some(System::Gluster(Gluster::start(scratch.path(), &files)?)),
        };
        Ok(Self { system, kind, files, _scratch: scratch })
    }

    /// The folder for the load's files.
    pub(super) fn files(&self) -> &Path {
        &self.files
    }

    /// Runs a load on its files, in this process or in one with the library.
    pub(super) fn run(
        &self,
        load: LoadChoice,
        threads: u32,
        settings: &FsArgs,
    ) -> Result<Loaded, BenchError> {
        let run = if self.kind == Kind::Library { run_by_library } else { run_here };
        run(load, threads, self.files(), settings)
    }

    /// All servers, and the process of a mount.
    pub(super) fn pids(&self) -> Vec<u32> {
        match &self.system {
            None => Vec::new(),
            Some(System::Landfall(servers)) => servers.pids(),
            Some(System::Gluster(gluster)) => gluster.pids(),
        }
    }

    /// The servers of Landfall, the first one first.
    pub(super) fn servers(&self) -> &[Server] {
        match &self.system {
            Some(System::Landfall(servers)) => servers.all(),
            _ => &[],
        }
    }

    /// CPU time of all servers, and of a mount's process.
    pub(super) fn used(&self) -> Used {
        Used::by(self.pids())
    }
}

impl Used {
    /// As of now.
    pub(super) fn by(pids: Vec<u32>) -> Self {
        Self(pids.into_iter().map(|pid| (pid, CpuTime::of(pid))).collect())
    }

    /// Nanoseconds since then, of the processes that there were then.
    pub(super) fn ns_since(&self) -> u64 {
        self.0.iter().map(|(pid, then)| CpuTime::of(*pid).since_ns(*then)).sum()
    }
}
