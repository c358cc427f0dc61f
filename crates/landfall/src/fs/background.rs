//! A mount in the background: `landfall fs mount` as a process of its own, which is waited for until it has mounted.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// File with the log, in the directory of the region.
const LOG_FILE: &str = "mount.log";
/// Bytes of the log that are shown when nothing is mounted.
const LOG_BYTES_SHOWN: u64 = 4096;

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
