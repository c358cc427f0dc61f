//! A mount for one program, with a region of its own.

use crate::error::Error;
use crate::process::{self, Keep};
use crate::service::Service;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// The region.
const SIZE: &str = "1GiB";
/// How long a mount may take to be removed, and a region to be checked.
const DETACH_LIMIT: Duration = Duration::from_secs(60);
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
    server: Option<Service>,
    /// The process that has made the mount, if that is not the server.
    holder: Option<Service>,
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
            self.server = Some(Service::start(&mut self.server_command(), &self.log(), ready)?);
        }
        if self.with.has_holder() && self.holder.is_none() {
            let mut command = Command::new(&self.binary);
            command.args(["fs", "mount"]).arg(&self.point).args(["-o", "allow_other", "--offload"]);
            command.arg(self.region.join("offload.sock"));
            self.holder = Some(Service::start(&mut command, &self.log(), "mounted:")?);
        }
        Ok(())
    }

    /// Starts a server and kills it, whatever it has come to: most often it recovers the region. Checks what it leaves.
    ///
    /// # Errors
    /// As [`Place::kill`] and [`Place::check`].
    pub(super) fn mount_and_kill(&mut self, after: Duration) -> Result<(), Error> {
        let server = Service::spawn(&mut self.server_command(), &self.log())?;
        std::thread::sleep(after);
        self.server = Some(server);
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

    fn log(&self) -> PathBuf {
        self.beside.join("mount.log")
    }

    /// Kills the server. The mount stays: until programs have ended they must not find what is below it.
    ///
    /// # Errors
    /// [`Error::Found`] where the server was dead already, or does not end.
    pub(super) fn kill(&mut self) -> Result<(), Error> {
        self.server.take().map_or(Ok(()), |server| server.kill("server"))
    }

    /// Kills the process that has made the mount, which ends with it.
    ///
    /// # Errors
    /// As [`Place::kill`].
    pub(super) fn kill_holder(&mut self) -> Result<(), Error> {
        self.holder.take().map_or(Ok(()), |holder| holder.kill("mount's process"))
    }

    /// Ends the mount in good order.
    ///
    /// # Errors
    /// [`Error::Found`] where a process ends in another way.
    pub(super) fn stop(&mut self) -> Result<(), Error> {
        for (service, what) in [(self.holder.take(), "mount"), (self.server.take(), "server")] {
            let stopped = service.map_or(Ok(()), |service| service.stop(what));
            stopped.inspect_err(|_| self.detach())?;
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
        let _ = process::run(command.args(["-f", "-l"]).arg(&self.point), Keep::Both, DETACH_LIMIT);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut left = [self.server.take(), self.holder.take()];
        left.iter_mut().flatten().for_each(Service::kill_now);
        // Who waits for the mount ends with it.
        self.detach();
    }
}

/// The value of a counter, from lines of names and values; 0 if it is not there.
fn counter(printed: &str, name: &str) -> u64 {
    let line = printed.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
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
        assert!(refused.contains("did not come to `mounted:`") && refused.contains("ls: "), "{refused}");
    }
}
