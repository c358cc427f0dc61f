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
    /// With the library of files in its process. The region is in memory, which processes can share.
    Library,
}

impl With {
    /// As in `--with`, and in what scripts are told.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Mount => "mount",
            Self::Library => "library",
        }
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
        Ok(Self { binary, beside, point, with, region, server: None, adopted: [0; 2] })
    }

    /// Mounts the region.
    ///
    /// # Errors
    /// [`Error::Found`] where nothing is mounted, [`Error::Environment`] where the server cannot be started.
    pub(super) fn mount(&mut self) -> Result<(), Error> {
        let log = self.beside.join("mount.log");
        let file = OpenOptions::new().create(true).append(true).open(&log);
        let file = file.map_err(|source| Error::file("open", &log, source))?;
        let mut command = Command::new(&self.binary);
        command.args(["fs", "mount"]).arg(&self.point).arg("--dir").arg(&self.region);
        command.args(["--size", SIZE, "-o", "allow_other"]).stdout(Stdio::piped()).stderr(file);
        let mut child = command.spawn().map_err(|source| Error::file("start", &self.binary, source))?;
        let mut line = String::new();
        if let Some(out) = child.stdout.take() {
            // An error means the same as an end: nothing is mounted.
            let _ = BufReader::new(out).read_line(&mut line);
        }
        self.server = Some(child);
        self.adopted = [self.adopted(), 0];
        if line.starts_with("mounted:") {
            return Ok(());
        }
        let said = std::fs::read_to_string(&log).unwrap_or_default();
        Err(Error::Found(format!("nothing is mounted:\n{said}")))
    }

    /// Kills the server, and removes the mount that nobody serves.
    ///
    /// # Errors
    /// [`Error::Found`] where the server was dead already, or does not end.
    pub(super) fn kill(&mut self) -> Result<(), Error> {
        let Some(mut server) = self.server.take() else { return Ok(()) };
        let by_itself = server.try_wait().ok().flatten();
        let _ = server.kill();
        let is_gone = ends(&mut server).is_some();
        self.detach();
        match by_itself {
            Some(status) => Err(Error::Found(format!("the server ended by itself with {status}"))),
            None if is_gone => Ok(()),
            None => Err(Error::Found("the server does not end when it is killed".to_owned())),
        }
    }

    /// Ends the mount in good order.
    ///
    /// # Errors
    /// [`Error::Found`] where the server ends in another way.
    pub(super) fn stop(&mut self) -> Result<(), Error> {
        let Some(mut server) = self.server.take() else { return Ok(()) };
        let id = server.id().to_string();
        process::must(Command::new("kill").args(["-TERM", &id]), Keep::Nothing, END_LIMIT)?;
        match ends(&mut server) {
            Some(true) => Ok(()),
            Some(false) => Err(Error::Found("the mount did not end in good order".to_owned())),
            None => {
                let _ = server.kill();
                self.detach();
                Err(Error::Found("the mount does not end when it is told to".to_owned()))
            }
        }
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

    /// Waits until a script acknowledges something, for a time.
    pub(super) fn wait_for_acknowledgement(&self) {
        let path = self.beside.join("acknowledged");
        let len = || std::fs::metadata(&path).map_or(0, |metadata| metadata.len());
        let (before, until) = (len(), Instant::now() + ACKNOWLEDGED_LIMIT);
        while len() == before && Instant::now() < until {
            std::thread::sleep(ACKNOWLEDGED_POLL);
        }
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

    /// Kills what is left and removes the mount.
    pub(super) fn abandon(&mut self) {
        if self.server.is_some() {
            // There is a fault already, which is reported.
            let _ = self.kill();
        }
    }

    /// An error means that nothing is mounted there.
    fn detach(&self) {
        let mut command = Command::new("umount");
        let _ = process::run(command.args(["-f", "-l"]).arg(&self.point), Keep::Both, END_LIMIT);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.abandon();
    }
}

/// The value of a counter, from lines of names and values; 0 if it is not there.
fn counter(printed: &str, name: &str) -> u64 {
    let line = printed.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
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
