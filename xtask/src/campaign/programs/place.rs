//! A mount for one program, with a region of its own.

use crate::error::Error;
use crate::process::{self, Keep};
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The region.
const SIZE: &str = "1GiB";
/// How long the server may take to end, and a region to be checked.
const END_LIMIT: Duration = Duration::from_secs(60);
const CHECK_LIMIT: Duration = Duration::from_secs(300);
/// How long a script may take to acknowledge something, and how often that is looked for.
const ACKNOWLEDGED_LIMIT: Duration = Duration::from_secs(10);
const ACKNOWLEDGED_POLL: Duration = Duration::from_micros(200);
/// How long it may take to say its counters.
const PROBE_LIMIT: Duration = Duration::from_secs(20);

/// How the program reaches its files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum With {
    /// Through the mount. The region is on a file.
    Mount,
    /// As `Mount`, and the kernel keeps what is written until a file is closed or synced.
    Writeback,
    /// As `Mount`, with requests over io_uring.
    Ring,
    /// With the library of files in its process. The region is in memory, which processes can share.
    Library,
    /// Through a mount that a server of its own serves. The region is in memory: programs go on with the next server.
    Server,
    /// As `Server`, with the region on a file: what no `fsync` had made durable is lost with a server.
    Disk,
    /// As `Server`, and the process that has made the mount is killed, not the server: the mount ends.
    Holder,
}

/// All ways.
pub(super) const WAYS: [With; 7] =
    [With::Mount, With::Writeback, With::Ring, With::Library, With::Server, With::Disk, With::Holder];

impl With {
    /// As in `--with`, and in what scripts are told.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Mount => "mount",
            Self::Writeback => "writeback",
            Self::Ring => "uring",
            Self::Library => "library",
            Self::Server => "server",
            Self::Disk => "disk",
            Self::Holder => "holder",
        }
    }

    /// Whether the region is in memory, which outlives its server.
    pub(super) fn is_in_memory(self) -> bool {
        matches!(self, Self::Library | Self::Server | Self::Holder)
    }

    /// Whether one process mounts and another one serves.
    pub(super) fn has_holder(self) -> bool {
        matches!(self, Self::Server | Self::Disk | Self::Holder)
    }
}

/// A mountpoint, a region, and the server if it is mounted. It is unmounted when this is dropped.
pub(super) struct Place {
    pub(super) binary: PathBuf,
    /// What is kept outside of the mount.
    pub(super) beside: PathBuf,
    pub(super) point: PathBuf,
    pub(super) with: With,
    region: PathBuf,
    server: Option<Child>,
    /// The process that has made the mount, if that is not the server.
    holder: Option<Child>,
    /// Operations that the servers have adopted from libraries: of those before, and of this one.
    adopted: [u64; 2],
}

/// The counter of operations that a server has adopted from libraries.
const ADOPTED: &str = "library_operations_total";

impl Place {
    /// A place in the folder `beside`, not yet mounted.
    ///
    /// # Errors
    /// [`Error::Environment`].
    pub(super) fn new(binary: &Path, beside: &Path, region: PathBuf, with: With) -> Result<Self, Error> {
        let point = beside.join("mount");
        std::fs::create_dir_all(&point).map_err(|source| Error::file("create", &point, source))?;
        let (binary, beside) = (binary.to_owned(), beside.to_owned());
        Ok(Self { binary, beside, point, with, region, server: None, holder: None, adopted: [0; 2] })
    }

    /// Mounts the region. A mount that has lost its server goes on with the one that is started now, and a server that has
    /// lost its mount with the next one.
    ///
    /// # Errors
    /// [`Error::Found`] where nothing is mounted, [`Error::Environment`] where the server cannot be started.
    pub(super) fn mount(&mut self) -> Result<(), Error> {
        self.adopted = [self.adopted(), 0];
        let ready = if self.with.has_holder() { "serving:" } else { "mounted:" };
        if self.server.is_none() {
            self.server = Some(self.start(self.server_command(), ready)?);
        }
        if self.with.has_holder() && self.holder.is_none() {
            let mut command = Command::new(&self.binary);
            command.args(["fs", "mount"]).arg(&self.point).args(["-o", "allow_other", "--offload"]);
            command.arg(self.region.join("offload.sock"));
            self.holder = Some(self.start(command, "mounted:")?);
        }
        Ok(())
    }

    /// Starts a server and kills it, whatever it has come to: most often it recovers the region. Checks what it leaves.
    ///
    /// # Errors
    /// As [`Place::kill`] and [`Place::check`].
    pub(super) fn mount_and_kill(&mut self, after: Duration) -> Result<(), Error> {
        let child = self.spawn(self.server_command())?;
        std::thread::sleep(after);
        self.server = Some(child);
        self.kill()?;
        if !self.with.has_holder() {
            self.detach();
        }
        self.check()
    }

    fn server_command(&self) -> Command {
        let mut command = Command::new(&self.binary);
        if self.with.has_holder() {
            command.args(["fs", "serve", "--size", SIZE, "--dir"]).arg(&self.region);
        } else {
            command.args(["fs", "mount"]).arg(&self.point).arg("--dir").arg(&self.region);
            let options = match self.with {
                With::Writeback => "allow_other,writeback",
                With::Ring => "allow_other,transport=uring",
                _ => "allow_other",
            };
            command.args(["--size", SIZE, "-o", options]);
        }
        command
    }

    fn spawn(&self, mut command: Command) -> Result<Child, Error> {
        let log = self.log();
        let file = OpenOptions::new().create(true).append(true).open(&log);
        let file = file.map_err(|source| Error::file("open", &log, source))?;
        let spawned = command.stdout(Stdio::piped()).stderr(file).spawn();
        spawned.map_err(|source| Error::file("start", &self.binary, source))
    }

    fn log(&self) -> PathBuf {
        self.beside.join("mount.log")
    }

    /// Starts a process that says so on a line that begins with `ready`.
    fn start(&self, command: Command, ready: &str) -> Result<Child, Error> {
        let mut child = self.spawn(command)?;
        let mut line = String::new();
        if let Some(out) = child.stdout.take() {
            // An error means the same as an end: nothing is mounted.
            let _ = BufReader::new(out).read_line(&mut line);
        }
        if line.starts_with(ready) {
            return Ok(child);
        }
        // It has closed its output: it has ended, or is of no use.
        let _ = child.kill();
        ends(&mut child);
        let said = std::fs::read_to_string(self.log()).unwrap_or_default();
        Err(Error::Found(format!("nothing is mounted:\n{said}")))
    }

    /// Kills the server. The mount stays: until programs have ended they must not find what is below it.
    ///
    /// # Errors
    /// [`Error::Found`] where the server was dead already, or does not end.
    pub(super) fn kill(&mut self) -> Result<(), Error> {
        self.server.take().map_or(Ok(()), |server| kill(server, "server"))
    }

    /// Kills the process that has made the mount, which ends with it.
    ///
    /// # Errors
    /// As [`Place::kill`].
    pub(super) fn kill_holder(&mut self) -> Result<(), Error> {
        self.holder.take().map_or(Ok(()), |holder| kill(holder, "mount's process"))
    }

    /// Ends the mount in good order.
    ///
    /// # Errors
    /// [`Error::Found`] where a process ends in another way.
    pub(super) fn stop(&mut self) -> Result<(), Error> {
        for mut child in [self.holder.take(), self.server.take()].into_iter().flatten() {
            let id = child.id().to_string();
            process::must(Command::new("kill").args(["-TERM", &id]), Keep::Nothing, END_LIMIT)?;
            let ended = ends(&mut child);
            if ended != Some(true) {
                let _ = child.kill();
                self.detach();
                return Err(Error::Found(
                    "the mount did not end in good order when it was told to".to_owned(),
                ));
            }
        }
        Ok(())
    }

    /// Syncs everything once, where a dead server may have lost something: the next `fsync` of that says so, and another
    /// program would take it for a fault of its own.
    ///
    /// # Errors
    /// [`Error::Environment`].
    pub(super) fn take_losses(&self) -> Result<(), Error> {
        if self.with != With::Disk {
            return Ok(());
        }
        let mut sync = Command::new("find");
        // What was lost is an error of `sync`, and expected.
        process::run(sync.arg(&self.point).args(["-exec", "sync", "{}", "+"]), Keep::Both, CHECK_LIMIT)
            .map(drop)
    }

    /// Asks the server how much it has adopted. It adopts from libraries only.
    pub(super) fn count_adopted(&mut self) {
        if self.with == With::Library && self.server.is_some() {
            let mut top = Command::new(&self.binary);
            top.args(["fs", "top", "--count", "1"]).arg(&self.point);
            let counters = process::run(&mut top, Keep::Both, PROBE_LIMIT);
            self.adopted[1] = counters.map_or(0, |finished| counter(&finished.stdout, ADOPTED));
        }
    }

    /// Operations of libraries that were adopted, when they were counted.
    pub(super) fn adopted(&self) -> u64 {
        self.adopted.iter().sum()
    }

    /// Waits until a script acknowledges something, for a time. Whether it did.
    pub(super) fn wait_for_acknowledgement(&self) -> bool {
        let path = self.beside.join("acknowledged");
        let len = || std::fs::metadata(&path).map_or(0, |metadata| metadata.len());
        let (before, until) = (len(), Instant::now() + ACKNOWLEDGED_LIMIT);
        while len() == before && Instant::now() < until {
            std::thread::sleep(ACKNOWLEDGED_POLL);
        }
        len() != before
    }

    /// Checks the region, which is not mounted.
    ///
    /// # Errors
    /// [`Error::Found`] with what the check says.
    pub(super) fn check(&self) -> Result<(), Error> {
        let mut check = Command::new(&self.binary);
        let finished = process::run(check.arg("check").arg(&self.region), Keep::Both, CHECK_LIMIT)?;
        if finished.success {
            return Ok(());
        }
        let said = finished.stdout + &finished.stderr;
        Err(Error::Found(format!("`landfall check` {}:\n{said}", finished.ending)))
    }

    /// Removes a mount that nobody serves. An error means that nothing is mounted there.
    pub(super) fn detach(&self) {
        let mut command = Command::new("umount");
        let _ = process::run(command.args(["-f", "-l"]).arg(&self.point), Keep::Both, END_LIMIT);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut left: Vec<Child> = [self.server.take(), self.holder.take()].into_iter().flatten().collect();
        for child in &mut left {
            // An error means that it has ended.
            let _ = child.kill();
        }
        self.detach();
        for child in &mut left {
            ends(child);
        }
    }
}

/// The value of a counter, from lines of names and values; 0 if it is not there.
fn counter(printed: &str, name: &str) -> u64 {
    let line = printed.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

fn kill(mut child: Child, what: &str) -> Result<(), Error> {
    let by_itself = child.try_wait().ok().flatten();
    // An error means that it has ended.
    let _ = child.kill();
    let is_gone = ends(&mut child).is_some();
    match by_itself {
        Some(status) => Err(Error::Found(format!("the {what} ended by itself with {status}"))),
        None if is_gone => Ok(()),
        None => Err(Error::Found(format!("the {what} does not end when it is killed"))),
    }
}

/// Whether it succeeded; `None` if it does not end.
fn ends(server: &mut Child) -> Option<bool> {
    let until = Instant::now() + END_LIMIT;
    while Instant::now() < until {
        match server.try_wait() {
            Ok(Some(status)) => return Some(status.success()),
            Ok(None) => std::thread::sleep(Duration::from_millis(5)),
            Err(_) => return None,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::campaign::folder::Folder;

    #[test]
    fn a_counter_is_found_by_its_whole_name() {
        let printed = "counter  now  per second\nlibrary_operations_total   42   0\nlibrary_bytes_total  7\n";
        assert_eq!(counter(printed, ADOPTED), 42);
        assert_eq!(counter("library_operations_total_more 4\n", ADOPTED), 0);
        assert_eq!(counter("", ADOPTED), 0);
    }

    #[test]
    fn a_server_that_mounts_nothing_is_reported_with_what_it_says() {
        let folder = Folder::within(std::env::temp_dir()).unwrap();
        let region = folder.path().join("region");
        let mut place = Place::new(Path::new("ls"), folder.path(), region, With::Mount).unwrap();
        let refused = place.mount().unwrap_err().to_string();
        assert!(refused.contains("nothing is mounted") && refused.contains("ls: "), "{refused}");
    }
}
