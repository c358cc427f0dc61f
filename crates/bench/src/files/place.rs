//! Where a load runs: a folder on an ordinary file system, or a mount.

use crate::common::error::BenchError;
use crate::common::measure::cpu::CpuTime;
use crate::common::measure::proc::{storage_bytes_written, warm_memory};
use crate::common::peers::{not_ready, spawn};
use crate::common::progress::check_stop;
use crate::files::args::{FsArgs, LoadChoice, TransportChoice};
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The name of the mount in reports.
pub(crate) const MOUNT: &str = "landfall mount";
/// The name of a mount with which the kernel keeps written data.
pub(crate) const WRITEBACK: &str = "landfall mount, writeback";
/// The name of a mount whose requests come over io_uring.
pub(crate) const URING: &str = "landfall mount, io_uring";
/// The name of a mount whose files a program reads and writes in its own process, by the library.
pub(crate) const LIBRARY: &str = "landfall library";
/// The name of a folder that is mounted once more by FUSE, by a program that passes all calls on to the folder.
pub(crate) const PASSTHROUGH: &str = "bindfs";
/// The name of a server of keys, with which starts are compared.
pub(crate) const SERVER: &str = "landfall serve";
/// Memory that is touched before each run, bytes: most loads write less than this.
const WARM_BYTES: u64 = 2 << 30;
/// Bytes of the region for each small file.
const SMALL_FILE_BYTES: u64 = 4 << 10;
/// Bytes of the region beyond what the loads write.
const REGION_SPARE: u64 = 4 << 30;

/// How long a program may take to mount or to end.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often it is looked whether it has.
const STEP: Duration = Duration::from_millis(10);

/// The file system in memory, as the kernel names it.
pub(crate) const TMPFS: &str = "tmpfs";

/// A kind of place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Folder,
    Mount,
    /// A mount with `-o writeback`.
    Writeback,
    /// A mount with `--transport uring`.
    Uring,
    /// A mount, and a load that loads the library.
    Library,
    /// The folder through bindfs.
    Passthrough,
}

impl Kind {
    /// The places to compare. The library answers in the process only where the region's memory can be shared. What each
    /// request of FUSE costs by itself is seen best with small files.
    pub(crate) fn of(load: LoadChoice, transports: &[TransportChoice], folder: &str) -> Vec<Self> {
        let mut all = vec![Self::Folder];
        for transport in transports {
            all.extend_from_slice(match transport {
                TransportChoice::Dev => &[Self::Mount, Self::Writeback],
                TransportChoice::Uring => &[Self::Uring],
            });
        }
        all.extend((folder == TMPFS).then_some(Self::Library));
        all.extend((load == LoadChoice::Small).then_some(Self::Passthrough));
        all
    }

    /// The name in reports; `folder` is the folder's.
    pub(crate) fn name(self, folder: &str) -> &str {
        match self {
            Self::Folder => folder,
            Self::Mount => MOUNT,
            Self::Writeback => WRITEBACK,
            Self::Uring => URING,
            Self::Library => LIBRARY,
            Self::Passthrough => PASSTHROUGH,
        }
    }
}

/// A place for one run. It is empty, and removed with everything in it when this is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    /// The server of a mount. It ends before its folder is removed: fields drop in order.
    server: Option<Mounted>,
    files: PathBuf,
    kind: Kind,
    scratch: TempDir,
}

impl Place {
    pub(crate) fn new(kind: Kind, args: &FsArgs) -> Result<Self, BenchError> {
        warm(args);
        let scratch = tempfile::Builder::new().prefix("landfall-bench-").tempdir_in(&args.dir);
        let scratch = scratch.map_err(BenchError::file(&args.dir))?;
        let files = scratch.path().join("files");
        fs::create_dir(&files).map_err(BenchError::file(&files))?;
        let server = Mounted::of(kind, scratch.path(), &files, args)?;
        Ok(Self { server, files, kind, scratch })
    }

    /// Empties all caches: those of the kernel, and the memory of a mount's server, which is started anew. A quick run
    /// leaves the kernel's alone, as others use them, too.
    pub(crate) fn cool(&mut self, args: &FsArgs) -> Result<(), BenchError> {
        if let Some(server) = self.server.take() {
            server.end()?;
        }
        if !args.quick {
            drop_caches()?;
        }
        self.server = Mounted::of(self.kind, self.scratch.path(), &self.files, args)?;
        Ok(())
    }

    /// Kills a mount's server, which empties its memory, and starts it anew.
    pub(crate) fn kill_and_start(&mut self, args: &FsArgs) -> Result<(), BenchError> {
        if let Some(mut server) = self.server.take() {
            // It may have ended already.
            let _ = server.child.kill();
            let _ = server.child.wait();
        }
        self.server = Mounted::of(self.kind, self.scratch.path(), &self.files, args)?;
        Ok(())
    }

    /// The folder for the load's files.
    pub(crate) fn files(&self) -> &Path {
        &self.files
    }

    /// Bytes that the mount's server has written to the device so far.
    pub(crate) fn device_bytes(&self) -> Option<u64> {
        storage_bytes_written(self.server.as_ref()?.child.id())
    }

    /// CPU time of the mount's server.
    pub(crate) fn server_cpu(&self) -> CpuTime {
        self.server.as_ref().map(|server| CpuTime::of(server.child.id())).unwrap_or_default()
    }
}

/// Touches memory before a run, but not before a quick one.
pub(crate) fn warm(args: &FsArgs) {
    if !args.quick {
        warm_memory(WARM_BYTES);
    }
}

/// Waits until a program has mounted something on a folder. `dir` is where its log lies.
pub(crate) fn wait_until_mounted(point: &Path, program: &str, dir: &Path) -> Result<(), BenchError> {
    let device = |path: &Path| fs::metadata(path).map(|found| found.dev()).map_err(BenchError::file(path));
    let began = Instant::now();
    while device(point)? == device(point.parent().unwrap_or(point))? {
        check_stop()?;
        if began.elapsed() > PATIENCE {
            return Err(not_ready(program, dir));
        }
        std::thread::sleep(STEP);
    }
    Ok(())
}

/// Bytes of the region of a mount.
fn region_bytes(args: &FsArgs) -> u64 {
    let small = u64::from(args.small_files) * SMALL_FILE_BYTES;
    (args.file_mib << 20) * 2 + u64::from(args.files) * (256 << 10) + small + REGION_SPARE
}

/// Drops what the kernel keeps of files; the loads' have been synced.
fn drop_caches() -> Result<(), BenchError> {
    let file = Path::new("/proc/sys/vm/drop_caches");
    fs::write(file, "3").map_err(|error| match error.kind() {
        std::io::ErrorKind::PermissionDenied => {
            BenchError::Missing("only root can empty the kernel's caches: cold reads are not measured".into())
        }
        _ => BenchError::File { path: file.into(), source: error },
    })
}

/// A program that serves a mount: `landfall fs mount`, or bindfs.
#[derive(Debug)]
struct Mounted {
    child: Child,
    point: PathBuf,
}

impl Mounted {
    /// The server of a kind of place; `None` for one without.
    fn of(kind: Kind, scratch: &Path, point: &Path, args: &FsArgs) -> Result<Option<Self>, BenchError> {
        match kind {
            Kind::Folder => return Ok(None),
            Kind::Mount | Kind::Library => Self::start(scratch, point, args, &[]),
            Kind::Writeback => Self::start(scratch, point, args, &["-o", "writeback"]),
            Kind::Uring => Self::start(scratch, point, args, &["--transport", "uring"]),
            Kind::Passthrough => Self::pass_through(scratch, point),
        }
        .map(Some)
    }

    /// bindfs over a folder of its own.
    fn pass_through(scratch: &Path, point: &Path) -> Result<Self, BenchError> {
        if Command::new(PASSTHROUGH).arg("--version").output().is_err() {
            return Err(BenchError::Missing(format!(
                "{PASSTHROUGH} is not installed (Debian: {PASSTHROUGH})"
            )));
        }
        let below = scratch.join("below");
        fs::create_dir_all(&below).map_err(BenchError::file(&below))?;
        let mut command = Command::new(PASSTHROUGH);
        command.arg("-f").arg(&below).arg(point);
        let child = spawn(command, &below, Stdio::null())?;
        let mounted = Self { child, point: point.into() };
        wait_until_mounted(point, PASSTHROUGH, &below)?;
        Ok(mounted)
    }

    /// Unmounts in good order, and waits until the server has ended.
    fn end(mut self) -> Result<(), BenchError> {
        let unmounted = landfall_fuse::unmount(&self.point, landfall_fuse::Unmount::WhenIdle);
        unmounted.map_err(|error| BenchError::Store(error.to_string()))?;
        let began = Instant::now();
        while self.child.try_wait().map_err(BenchError::file(&self.point))?.is_none() {
            if began.elapsed() > PATIENCE {
                let what = "unmounting".into();
                return Err(BenchError::TooLong { what, seconds: PATIENCE.as_secs() });
            }
            std::thread::sleep(STEP);
        }
        Ok(())
    }

    fn start(scratch: &Path, point: &Path, args: &FsArgs, options: &[&str]) -> Result<Self, BenchError> {
        let program = std::env::current_exe().map_err(BenchError::file(Path::new("this program")))?;
        let data = scratch.join("data");
        let size = region_bytes(args);
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
