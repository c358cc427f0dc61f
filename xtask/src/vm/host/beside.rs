//! Another machine's mount of the same files: a program writes there, whatever happens to the host.

use crate::error::Error;
use crate::process::{self, Keep};
use crate::service::Service;
use std::fs::{self, File};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Bytes of each file.
const FILE_BYTES: usize = 16 << 10;
/// Files of the program: the oldest one is written over.
const FILES: u64 = 200;
/// What the program waits between two files.
const PAUSE: Duration = Duration::from_millis(5);
/// The error of a sync of which something was lost.
const EIO: i32 = 5;
/// How long servers may take until they are in step, and how often that is tried.
const IN_STEP_LIMIT: Duration = Duration::from_secs(60);
const RETRY: Duration = Duration::from_millis(500);
/// How long a mount may take to be removed.
const DETACH_LIMIT: Duration = Duration::from_secs(30);

/// The mount, and the program that writes there.
pub(super) struct Beside {
    point: PathBuf,
    mount: Option<Service>,
    writer: Option<JoinHandle<io::Result<()>>>,
    progress: Arc<Progress>,
}

/// What the program has done.
#[derive(Default)]
struct Progress {
    /// Files that are durable.
    files: AtomicU64,
    /// The times from one to the next one.
    gaps: Mutex<Vec<Duration>>,
    /// How often a sync has said that something was lost with a server.
    lost: AtomicU64,
    over: AtomicBool,
}

/// Times from one durable file to the next one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Gaps {
    /// That of 99 in 100, and the longest one.
    pub(super) p99: Duration,
    pub(super) longest: Duration,
}

impl Gaps {
    fn of(mut gaps: Vec<Duration>) -> Self {
        gaps.sort_unstable();
        let at = |index: usize| gaps.get(index).copied().unwrap_or_default();
        Self { p99: at(gaps.len() * 99 / 100), longest: at(gaps.len().saturating_sub(1)) }
    }
}

/// What file `number` has in it: its number, over and over.
fn contents(number: u64) -> Vec<u8> {
    let line = format!("{number}\n").into_bytes();
    line.iter().copied().cycle().take(FILE_BYTES).collect()
}

impl Beside {
    /// Mounts the files of these servers, and begins to write.
    ///
    /// # Errors
    /// [`Error::Found`] where they cannot be mounted, [`Error::Environment`] where nothing can be written.
    pub(super) fn start(binary: &Path, folder: &Path, servers: &[SocketAddr]) -> Result<Self, Error> {
        let point = folder.join("beside");
        fs::create_dir_all(&point).map_err(|source| Error::file("create", &point, source))?;
        let servers: Vec<String> = servers.iter().map(ToString::to_string).collect();
        let mut command = Command::new(binary);
        command.args(["fs", "mount", "--server", &servers.join(",")]).arg(&point);
        let (log, until) = (folder.join("beside.log"), Instant::now() + IN_STEP_LIMIT);
        let mount = loop {
            match Service::start(&mut command, &log, "mounted: ") {
                // The servers of the chain have yet to find each other.
                Err(Error::Found(_)) if Instant::now() < until => std::thread::sleep(RETRY),
                started => break Some(started?),
            }
        };
        let mut beside = Self { point, mount, writer: None, progress: Arc::default() };
        let (folder, progress) = (beside.point.join("beside"), Arc::clone(&beside.progress));
        fs::create_dir_all(&folder).map_err(|source| Error::file("create", &folder, source))?;
        // The host looks there as soon as it has mounted.
        save_count(&folder, 0).map_err(|source| Error::file("write", &folder, source))?;
        beside.writer = Some(std::thread::spawn(move || write_files(&folder, &progress)));
        Ok(beside)
    }

    /// Where it mounts.
    pub(super) fn point(&self) -> &Path {
        &self.point
    }

    /// Files that are durable.
    pub(super) fn files(&self) -> u64 {
        self.progress.files.load(Ordering::Acquire)
    }

    /// How often a sync has said that something was lost with a server.
    pub(super) fn lost(&self) -> u64 {
        self.progress.lost.load(Ordering::Acquire)
    }

    /// The times from one durable file to the next one since this was asked last.
    pub(super) fn take_gaps(&self) -> Gaps {
        Gaps::of(std::mem::take(&mut self.progress.gaps.lock().expect("nobody panics with it")))
    }

    /// Checks that each of these files of the host is as it was written.
    ///
    /// # Errors
    /// [`Error::Found`] for a file that is not.
    pub(super) fn check_host(&self, numbers: &[u64]) -> Result<(), Error> {
        self.check("host", numbers.iter().map(|number| (number.to_string(), *number)))
    }

    /// Checks that the last files of the program are as they were written. It has ended.
    ///
    /// # Errors
    /// [`Error::Found`] for a file that is not.
    pub(super) fn check_own(&self) -> Result<(), Error> {
        let files = self.files();
        let last = files.saturating_sub(FILES)..files;
        self.check("beside", last.map(|number| ((number % FILES).to_string(), number)))
    }

    fn check(&self, folder: &str, files: impl Iterator<Item = (String, u64)>) -> Result<(), Error> {
        let folder = self.point.join(folder);
        for (name, number) in files {
            let wrong = match fs::read(folder.join(&name)) {
                Ok(bytes) if bytes == contents(number) => continue,
                Ok(bytes) => format!("{} bytes that are not what was written", bytes.len()),
                Err(error) => error.to_string(),
            };
            let path = folder.join(name);
            return Err(Error::Found(format!("{} was durable, and is {wrong}", path.display())));
        }
        Ok(())
    }

    /// Ends the program.
    ///
    /// # Errors
    /// [`Error::Environment`] with the first call of it that failed.
    pub(super) fn end_writes(&mut self) -> Result<(), Error> {
        self.progress.over.store(true, Ordering::Release);
        let outcome = self.writer.take().map_or(Ok(()), |writer| writer.join().expect("it does not panic"));
        outcome.map_err(|source| Error::file("write beside the host in", &self.point, source))
    }

    /// Unmounts.
    ///
    /// # Errors
    /// [`Error::Found`] where the mount does not end in good order.
    pub(super) fn end(mut self) -> Result<(), Error> {
        self.mount.take().map_or(Ok(()), |mount| mount.stop("mount beside the host"))
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        self.progress.over.store(true, Ordering::Release);
        if let Some(mut mount) = self.mount.take() {
            mount.kill_now();
            let mut detach = Command::new("umount");
            // An error means that nothing is mounted there.
            let _ = process::run(detach.args(["-f", "-l"]).arg(&self.point), Keep::Both, DETACH_LIMIT);
        }
        // Its calls fail without the mount.
        let _ = self.writer.take().map(JoinHandle::join);
    }
}

impl Progress {
    /// Saves something durably. A server that is killed may lose what was not durable yet: it is saved again.
    fn until_kept(&self, save: impl Fn() -> io::Result<()>) -> io::Result<()> {
        loop {
            match save() {
                Err(error) if error.raw_os_error() == Some(EIO) => {
                    self.lost.fetch_add(1, Ordering::AcqRel);
                }
                saved => return saved,
            }
        }
    }
}

/// Saves a file durably.
fn save(folder: &Path, number: u64) -> io::Result<()> {
    let mut file = File::create(folder.join((number % FILES).to_string()))?;
    file.write_all(&contents(number))?;
    file.sync_all()
}

fn write_files(folder: &Path, progress: &Progress) -> io::Result<()> {
    let mut before = Instant::now();
    for number in 0_u64.. {
        if progress.over.load(Ordering::Acquire) {
            break;
        }
        progress.until_kept(|| save(folder, number))?;
        progress.until_kept(|| save_count(folder, number + 1))?;
        progress.gaps.lock().expect("nobody panics with it").push(before.elapsed());
        progress.files.store(number + 1, Ordering::Release);
        before = Instant::now();
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

/// Notes durably how many files there are.
fn save_count(folder: &Path, files: u64) -> io::Result<()> {
    let file = File::options().create(true).truncate(false).write(true).open(folder.join("count"))?;
    // Always of the same length, so that nobody reads half of it.
    file.write_all_at(format!("{files:020}\n").as_bytes(), 0)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_counted_from_the_shortest_one() {
        let gaps = (1..=200).rev().map(Duration::from_millis).collect();
        let [p99, longest] = [199, 200].map(Duration::from_millis);
        assert_eq!(Gaps::of(gaps), Gaps { p99, longest });
        assert_eq!(Gaps::of(Vec::new()), Gaps::default());
    }

    #[test]
    fn contents_are_those_of_the_guests_script() {
        let bytes = contents(7);
        assert_eq!((bytes.len(), &bytes[..4]), (FILE_BYTES, &b"7\n7\n"[..]));
        assert!(include_str!("../guest/host.sh").contains(&format!("bs={FILE_BYTES} count=1")));
    }
}
