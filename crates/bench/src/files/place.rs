//! Where a load runs: a folder on an ordinary file system, or a mount.

use crate::common::error::BenchError;
use crate::common::measure::cpu::CpuTime;
use crate::common::measure::proc::warm_memory;
use crate::common::peers::{not_ready, spawn};
use crate::files::args::FsArgs;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// The name of the mount in reports.
pub(crate) const MOUNT: &str = "landfall mount";
/// The name of a mount with which the kernel keeps written data.
pub(crate) const WRITEBACK: &str = "landfall mount, writeback";
/// The name of a mount whose files a program reads and writes in its own process, by the library.
pub(crate) const LIBRARY: &str = "landfall library";
/// Memory that is touched before each run, bytes: most loads write less than this.
const WARM_BYTES: u64 = 2 << 30;
/// Bytes of the region beyond what the loads write.
const REGION_SPARE: u64 = 4 << 30;

/// The file system in memory, as the kernel names it.
const TMPFS: &str = "tmpfs";

/// A kind of place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Folder,
    Mount,
    /// A mount with `-o writeback`.
    Writeback,
    /// A mount, and a load that loads the library.
    Library,
}

impl Kind {
    /// The places to compare. The library answers in the process only where the region's memory can be shared.
    pub(crate) fn on(folder: &str) -> Vec<Self> {
        let mut all = vec![Self::Folder, Self::Mount, Self::Writeback];
        all.extend((folder == TMPFS).then_some(Self::Library));
        all
    }

    /// The name in reports; `folder` is the folder's.
    pub(crate) fn name(self, folder: &str) -> &str {
        match self {
            Self::Folder => folder,
            Self::Mount => MOUNT,
            Self::Writeback => WRITEBACK,
            Self::Library => LIBRARY,
        }
    }
}

/// A place for one run. It is empty, and removed with everything in it when this is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    /// The server of a mount. It ends before its folder is removed: fields drop in order.
    server: Option<Mounted>,
    files: PathBuf,
    _scratch: TempDir,
}

impl Place {
    pub(crate) fn new(kind: Kind, args: &FsArgs) -> Result<Self, BenchError> {
        if !args.quick {
            warm_memory(WARM_BYTES);
        }
        let scratch = tempfile::Builder::new().prefix("landfall-bench-").tempdir_in(&args.dir);
        let scratch = scratch.map_err(BenchError::file(&args.dir))?;
        let files = scratch.path().join("files");
        fs::create_dir(&files).map_err(BenchError::file(&files))?;
        let server = match kind {
            Kind::Folder => None,
            Kind::Mount | Kind::Library => Some(Mounted::start(scratch.path(), &files, args, &[])?),
            Kind::Writeback => Some(Mounted::start(scratch.path(), &files, args, &["-o", "writeback"])?),
        };
        Ok(Self { server, files, _scratch: scratch })
    }

    /// The folder for the load's files.
    pub(crate) fn files(&self) -> &Path {
        &self.files
    }

    /// CPU time of the mount's server.
    pub(crate) fn server_cpu(&self) -> CpuTime {
        self.server.as_ref().map(|server| CpuTime::of(server.child.id())).unwrap_or_default()
    }
}

/// `landfall fs mount`.
#[derive(Debug)]
struct Mounted {
    child: Child,
    point: PathBuf,
}

impl Mounted {
    fn start(scratch: &Path, point: &Path, args: &FsArgs, options: &[&str]) -> Result<Self, BenchError> {
        let program = std::env::current_exe().map_err(BenchError::file(Path::new("this program")))?;
        let data = scratch.join("data");
        let size = (args.file_mib << 20) * 2 + u64::from(args.files) * (256 << 10) + REGION_SPARE;
        let mut command = Command::new(program);
        command.args(["fs", "mount"]).arg(point).arg("--dir").arg(&data).arg("--size").arg(size.to_string());
        command.args(options);
        if let Some(workers) = args.workers {
            command.arg("--workers").arg(workers.to_string());
        }
        let mut child = spawn(command, &data, Stdio::piped())?;
        let stdout = child.stdout.take();
        // The guard first: whatever goes wrong from here on ends the child.
        let mounted = Self { child, point: point.into() };
        let mut lines = stdout.into_iter().flat_map(|stdout| BufReader::new(stdout).lines());
        match lines.find(|line| line.as_ref().is_ok_and(|line| line.starts_with("mounted"))) {
            Some(_) => Ok(mounted),
            None => Err(not_ready(MOUNT, &data)),
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // A mount that is still busy is detached; the server ends in both cases.
        let _ = landfall_fuse::unmount(&self.point, landfall_fuse::Unmount::Lazily);
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
