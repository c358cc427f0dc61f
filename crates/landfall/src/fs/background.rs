//! A mount in the background, and the helper of `mount(8)` for `/etc/fstab`: both start `landfall fs mount` as a process
//! of its own, and return when it has mounted.

use clap::{ArgAction, Parser};
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

/// Name under which `mount(8)` starts this program for the type `fuse.landfall`.
pub(crate) const HELPER_NAME: &str = "mount.fuse.landfall";
/// File with the log, in the directory of the region.
const LOG_FILE: &str = "mount.log";
/// Bytes of the log that are shown when nothing is mounted.
const LOG_BYTES_SHOWN: u64 = 4096;

/// What `mount(8)` passes to its helpers.
#[derive(Debug, Parser)]
#[command(name = HELPER_NAME, about = "Mounts files of a region: the helper of mount(8) for the type fuse.landfall")]
struct HelperArgs {
    /// Directory of the region, or a DAX device
    source: PathBuf,
    /// Directory to mount on
    mountpoint: PathBuf,
    /// Options of `landfall fs mount -o`
    #[arg(short = 'o', value_name = "OPTIONS")]
    options: Vec<String>,
    /// Do everything but mount
    #[arg(short = 'f', action = ArgAction::SetTrue)]
    fake: bool,
    /// Of no meaning here
    #[arg(short = 's', action = ArgAction::SetTrue)]
    sloppy: bool,
    /// Of no meaning here
    #[arg(short = 'n', action = ArgAction::SetTrue)]
    no_mtab: bool,
    /// Of no meaning here
    #[arg(short = 'v', action = ArgAction::Count)]
    verbose: u8,
    /// Of no meaning here
    #[arg(short = 't', value_name = "TYPE")]
    file_system: Option<String>,
}

/// Why nothing runs in the background.
#[derive(Debug, thiserror::Error)]
pub(super) enum BackgroundError {
    #[error("{}: the log cannot be written: {source}", path.display())]
    Log { path: PathBuf, source: io::Error },
    #[error("this program cannot be started again: {0}")]
    Start(io::Error),
    #[error("nothing was mounted: {said}\n(the log is {})", log.display())]
    Ended { said: String, log: PathBuf },
}

/// Runs as the helper of `mount(8)`.
pub(crate) fn help_mount() -> ExitCode {
    let args = HelperArgs::parse();
    if args.fake {
        return ExitCode::SUCCESS;
    }
    let mut mount = vec!["fs".into(), "mount".into(), args.mountpoint.into_os_string(), "--dir".into()];
    mount.push(args.source.clone().into_os_string());
    args.options.into_iter().for_each(|options| mount.extend(["-o".into(), options.into()]));
    match start(&mount, &args.source, None) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => crate::output::fail(&error),
    }
}

/// Starts this program with `args`, which mount a region in `dir`, and returns when it has mounted.
pub(super) fn start(args: &[OsString], dir: &Path, log: Option<&Path>) -> Result<(), BackgroundError> {
    let (path, mut log) = open_log(dir, log)?;
    let fail = |source| BackgroundError::Log { path: path.clone(), source };
    let begin = log.seek(SeekFrom::End(0)).map_err(fail)?;
    let mut command = Command::new(std::env::current_exe().map_err(BackgroundError::Start)?);
    // A group of its own: Ctrl-C in the terminal is not for it.
    command.args(args).process_group(0).stdin(Stdio::null()).stdout(Stdio::piped());
    command.stderr(log.try_clone().map_err(fail)?);
    let mut child = command.spawn().map_err(BackgroundError::Start)?;
    let mut line = String::new();
    if let Some(out) = child.stdout.take() {
        // An error means the same as an end: nothing is mounted.
        let _ = BufReader::new(out).read_line(&mut line);
    }
    if line.starts_with("mounted:") {
        return Ok(());
    }
    let _ = child.wait();
    Err(BackgroundError::Ended { said: said_since(&path, begin), log: path })
}

/// The log: in the directory of the region where that is one.
fn open_log(dir: &Path, log: Option<&Path>) -> Result<(PathBuf, File), BackgroundError> {
    let path = match log {
        Some(path) => path.to_owned(),
        None if is_device(dir) => PathBuf::from("/dev/null"),
        None => dir.join(LOG_FILE),
    };
    let open = || {
        if log.is_none() && !is_device(dir) {
            std::fs::create_dir_all(dir)?;
        }
        OpenOptions::new().create(true).append(true).open(&path)
    };
    match open() {
        Ok(file) => Ok((path, file)),
        Err(source) => Err(BackgroundError::Log { path, source }),
    }
}

fn is_device(dir: &Path) -> bool {
    dir.exists() && !dir.is_dir()
}

/// The end of what was logged since `begin`.
fn said_since(path: &Path, begin: u64) -> String {
    let read = || -> io::Result<String> {
        let mut log = File::open(path)?;
        let end = log.seek(SeekFrom::End(0))?;
        log.seek(SeekFrom::Start(begin.max(end.saturating_sub(LOG_BYTES_SHOWN))))?;
        let mut said = Vec::new();
        log.take(LOG_BYTES_SHOWN).read_to_end(&mut said)?;
        Ok(String::from_utf8_lossy(&said).trim().to_owned())
    };
    read().unwrap_or_default()
}
