//! Programs that serve until they are ended.

use crate::error::Error;
use crate::process::{self, Keep};
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a program may take to end.
const END_LIMIT: Duration = Duration::from_secs(60);
/// Interval at which it is looked whether it has ended.
const POLL: Duration = Duration::from_millis(5);
/// Lines that a program prints until it serves, at most.
const LINES_MAX: usize = 64;

/// A program that serves until it is ended. It is killed when this is dropped.
pub(crate) struct Service {
    child: Child,
    said: Vec<String>,
}

impl Service {
    /// Starts `command`, whose errors are appended to `log`.
    ///
    /// # Errors
    /// [`Error::Environment`] where it cannot be started.
    pub(crate) fn spawn(command: &mut Command, log: &Path) -> Result<Self, Error> {
        let file = OpenOptions::new().create(true).append(true).open(log);
        let file = file.map_err(|source| Error::file("open", log, source))?;
        let spawned = command.stdout(Stdio::piped()).stderr(file).spawn();
        let child =
            spawned.map_err(|source| Error::file("start", Path::new(command.get_program()), source))?;
        Ok(Self { child, said: Vec::new() })
    }

    /// Starts `command`, and waits until it prints a line that begins with `ready`.
    ///
    /// # Errors
    /// [`Error::Environment`] where it cannot be started; [`Error::Found`], with what is in `log`, where it ends without
    /// that line.
    pub(crate) fn start(command: &mut Command, log: &Path, ready: &str) -> Result<Self, Error> {
        let mut service = Self::spawn(command, log)?;
        if let Some(out) = service.child.stdout.take() {
            for line in BufReader::new(out).lines().map_while(Result::ok).take(LINES_MAX) {
                let is_ready = line.starts_with(ready);
                service.said.push(line);
                if is_ready {
                    return Ok(service);
                }
            }
        }
        // It has closed its output: it has ended, or is of no use.
        let line = process::line(command);
        drop(service);
        let said = std::fs::read_to_string(log).unwrap_or_default();
        Err(Error::Found(format!("`{line}` did not come to `{ready}`:\n{said}")))
    }

    /// What follows `label` on a line that it has printed until it was ready.
    pub(crate) fn said(&self, label: &str) -> Option<&str> {
        self.said.iter().find_map(|line| line.strip_prefix(label)).map(str::trim)
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Kills it, and does not wait for that.
    pub(crate) fn kill_now(&mut self) {
        // An error means that it has ended.
        let _ = self.child.kill();
    }

    /// Kills it. `what` it is stands in the messages.
    ///
    /// # Errors
    /// [`Error::Found`] where it was dead already, or does not end.
    pub(crate) fn kill(mut self, what: &str) -> Result<(), Error> {
        let by_itself = self.child.try_wait().ok().flatten();
        self.kill_now();
        let is_gone = self.ends().is_some();
        match by_itself {
            Some(status) => Err(Error::Found(format!("the {what} ended by itself with {status}"))),
            None if is_gone => Ok(()),
            None => Err(Error::Found(format!("the {what} does not end when it is killed"))),
        }
    }

    /// Tells it to end.
    ///
    /// # Errors
    /// [`Error::Found`] where it does not end, or not with success; [`Error::Program`] where it cannot be told.
    pub(crate) fn stop(mut self, what: &str) -> Result<(), Error> {
        let id = self.id().to_string();
        process::must(Command::new("kill").args(["-TERM", &id]), Keep::Nothing, END_LIMIT)?;
        match self.ends() {
            Some(true) => Ok(()),
            _ => Err(Error::Found(format!("the {what} did not end in good order when it was told to"))),
        }
    }

    /// Whether it succeeded; `None` if it does not end.
    fn ends(&mut self) -> Option<bool> {
        let until = Instant::now() + END_LIMIT;
        while Instant::now() < until {
            match self.child.try_wait() {
                Ok(Some(status)) => return Some(status.success()),
                Ok(None) => std::thread::sleep(POLL),
                Err(_) => return None,
            }
        }
        None
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.kill_now();
        self.ends();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn what_it_says_until_it_is_ready_is_kept() {
        let mut command = shell("echo 'at: here'; echo ready; exec sleep 60");
        let service = Service::start(&mut command, Path::new("/dev/null"), "ready").unwrap();
        assert_eq!((service.said("at:"), service.said("to:")), (Some("here"), None));
        service.kill("shell").unwrap();
    }

    #[test]
    fn one_that_ends_is_reported_and_one_that_ends_badly_too() {
        let null = Path::new("/dev/null");
        let refused = Service::start(&mut shell("echo no"), null, "ready").map(drop).unwrap_err().to_string();
        assert!(refused.contains("did not come to `ready`"), "{refused}");
        let service = Service::start(&mut shell("echo ready; exec sleep 60"), null, "ready").unwrap();
        assert!(
            service.stop("shell").unwrap_err().to_string().contains("the shell did not end in good order")
        );
        let mut service = Service::start(&mut shell("echo ready"), null, "ready").unwrap();
        assert_eq!(service.ends(), Some(true));
        assert!(service.kill("shell").unwrap_err().to_string().contains("ended by itself"));
    }
}
