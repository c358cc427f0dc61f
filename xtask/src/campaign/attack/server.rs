//! The server under attack: a release build with a password on its own region.

use crate::campaign::folder::Folder;
use crate::error::Error;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The password of the server.
pub(super) const PASSWORD: &str = "campaign";

/// The directory of the region in a folder.
pub(super) fn data_of(folder: &Folder) -> PathBuf {
    folder.path().join("data")
}

/// A running server, killed when it is dropped.
pub(super) struct Server {
    child: Child,
    pub(super) resp: SocketAddr,
    pub(super) http: SocketAddr,
    /// The transport, as reported by the server.
    pub(super) transport: String,
}

impl Server {
    /// Starts the server on the data of a folder, with additional flags.
    ///
    /// # Errors
    /// [`Error::Environment`], [`Error::Found`] where it does not become ready.
    pub(super) fn start(binary: &Path, folder: &Folder, flags: &[&str]) -> Result<Self, Error> {
        let (password, log) = (folder.path().join("password"), folder.path().join("log"));
        std::fs::write(&password, PASSWORD).map_err(|source| Error::file("write", &password, source))?;
        let log = File::create(&log).map_err(|source| Error::file("create", &log, source))?;
        let mut command = Command::new(binary);
        command.arg("serve").arg("--dir").arg(data_of(folder)).arg("--password-file").arg(&password);
        command.args(["--resp", "127.0.0.1:0", "--http", "127.0.0.1:0"]).args(flags);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
        let child = command.spawn().map_err(|source| Error::file("start", binary, source))?;
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut server = Self { child, resp: nowhere, http: nowhere, transport: String::new() };
        server.wait_until_ready(folder)?;
        Ok(server)
    }

    fn wait_until_ready(&mut self, folder: &Folder) -> Result<(), Error> {
        let out = self.child.stdout.take().into_iter().flat_map(|out| BufReader::new(out).lines());
        for line in out.map_while(Result::ok) {
            if let Some(address) = line.strip_prefix("resp: ").and_then(|text| text.parse().ok()) {
                self.resp = address;
            } else if let Some(address) = line.strip_prefix("http: ").and_then(|text| text.parse().ok()) {
                self.http = address;
            } else if let Some(text) = line.strip_prefix("transport: ") {
                self.transport = text.split(';').next().unwrap_or_default().to_owned();
            } else if line == "ready" {
                return Ok(());
            }
        }
        let log = std::fs::read_to_string(folder.path().join("log")).unwrap_or_default();
        Err(Error::Found(format!("the server did not start: {log}")))
    }

    /// Sends SIGKILL, and waits until the process has ended.
    pub(super) fn kill(self) {
        drop(self);
    }

    /// Requests termination, and waits until the process has ended, at most until `until`.
    ///
    /// # Errors
    /// What the server did instead.
    pub(super) fn stop(mut self, until: Instant) -> Result<(), String> {
        if let Ok(Some(status)) = self.child.try_wait() {
            return Err(format!("the server ended with {status} before it was stopped"));
        }
        let asked = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status();
        asked.map_err(|error| format!("kill: {error}"))?;
        while Instant::now() < until {
            match self.child.try_wait() {
                Ok(Some(status)) if status.success() => return Ok(()),
                Ok(Some(status)) => return Err(format!("the server ended with {status}")),
                Ok(None) => std::thread::sleep(Duration::from_millis(20)),
                Err(error) => return Err(format!("the server cannot be waited for: {error}")),
            }
        }
        Err("the server does not end after the signal".to_owned())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // An error means that the process has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
