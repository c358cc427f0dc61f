//! A script in a process namespace of its own: the kernel ends whatever it has started when its first process is killed.

use super::list::{COMMON, Program};
use super::place::{Place, With};
use crate::error::Error;
use crate::process::{self, Keep};
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How long the namespace may take to be there, and to end.
const LIMIT: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(5);
/// How much of what it said is shown, in bytes.
const SAID_MAX: usize = 8000;

/// One function of a program's script that runs. It is killed when this is dropped.
pub(super) struct Job {
    /// Waits for the first process of the namespace, and ends as it does.
    child: Child,
    log: PathBuf,
}

impl Job {
    /// Starts `function` of the program's script.
    ///
    /// # Errors
    /// [`Error::Environment`].
    pub(super) fn start(
        place: &Place,
        program: &Program,
        source: &Path,
        function: &str,
        seed: u64,
    ) -> Result<Self, Error> {
        let log = place.beside.join(format!("{function}.log"));
        let out = File::create(&log).map_err(|error| Error::file("create", &log, error))?;
        let errors = out.try_clone().map_err(|error| Error::file("open", &log, error))?;
        let mut command = Command::new("unshare");
        command.args(["--pid", "--ipc", "--fork", "--kill-child=KILL", "--"]);
        if place.with == With::Library {
            command.arg(&place.binary).args(["fs", "run", "--"]);
        }
        command.args(["sh", "-eu", "-c", &format!("{COMMON}\n{}\n{function}\n", program.script)]);
        command.env("FILES", &place.point).env("BESIDE", &place.beside).env("SOURCE", source);
        command.env("NAME", program.name).env("WITH", place.with.name()).env("SEED", seed.to_string());
        command.current_dir(&place.beside).stdin(Stdio::null()).stdout(out).stderr(errors).process_group(0);
        let child = command.spawn().map_err(|error| Error::file("start", Path::new("unshare"), error))?;
        Ok(Self { child, log })
    }

    /// How it has ended; `None` if it has not yet.
    ///
    /// # Errors
    /// [`Error::Environment`].
    pub(super) fn ended_within(&mut self, limit: Duration) -> Result<Option<ExitStatus>, Error> {
        let until = Instant::now() + limit;
        loop {
            let status = self.child.try_wait();
            let status = status.map_err(|error| Error::file("wait for", Path::new("unshare"), error))?;
            if status.is_some() || Instant::now() >= until {
                return Ok(status);
            }
            std::thread::sleep(POLL);
        }
    }

    /// Kills all its processes, and waits until they have ended.
    ///
    /// # Errors
    /// [`Error::Found`] where they do not end.
    pub(super) fn kill(mut self) -> Result<(), Error> {
        if self.kill_all()? {
            return Ok(());
        }
        Err(Error::Found(format!("processes do not end when they are killed:\n{}", self.said())))
    }

    /// Sends the signal, and does not wait.
    ///
    /// # Errors
    /// [`Error::Environment`].
    pub(super) fn strike(&self) -> Result<(), Error> {
        let Some(first) = self.first() else { return Ok(()) };
        // An error means that it has ended meanwhile.
        process::run(Command::new("kill").args(["-KILL", &first]), Keep::Both, LIMIT).map(|_| ())
    }

    /// Whether all have ended.
    fn kill_all(&mut self) -> Result<bool, Error> {
        let until = Instant::now() + LIMIT;
        while self.ended_within(POLL)?.is_none() && Instant::now() < until {
            // The first process may not be there yet.
            self.strike()?;
        }
        Ok(self.ended_within(Duration::ZERO)?.is_some())
    }

    /// The id of the first process of the namespace, once it is there.
    fn first(&self) -> Option<String> {
        let id = self.child.id();
        let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).ok()?;
        children.split_whitespace().next().map(str::to_owned)
    }

    /// What it said, or the end of that.
    pub(super) fn said(&self) -> String {
        let bytes = std::fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(SAID_MAX)..]).into_owned()
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        // What cannot be killed was reported.
        let _ = self.kill_all();
    }
}
