//! The server under attack: a release build on a region of its own, with a password.

use crate::error::Error;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// What clients must give.
pub(super) const PASSWORD: &str = "campaign";

/// A running server and its folder, which go when it is dropped.
pub(super) struct Server {
    child: Child,
    folder: PathBuf,
    pub(super) resp: SocketAddr,
    pub(super) http: SocketAddr,
}

impl Server {
    /// Starts it on 64 MiB, on shared memory where there is some.
    ///
    /// # Errors
    /// [`Error::Environment`], [`Error::Found`] where it does not get ready.
    pub(super) fn start(binary: &Path) -> Result<Self, Error> {
        let folder = fresh_folder()?;
        let password = folder.join("password");
        std::fs::write(&password, PASSWORD).map_err(|source| Error::file("write", &password, source))?;
        let log = folder.join("log");
        let log = File::create(&log).map_err(|source| Error::file("create", &log, source))?;
        let mut command = Command::new(binary);
        command.arg("serve").arg("--dir").arg(folder.join("data")).arg("--password-file").arg(&password);
        command.args([
            "--capacity",
            "64MiB",
            "--workers",
            "1",
            "--resp",
            "127.0.0.1:0",
            "--http",
            "127.0.0.1:0",
        ]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
        let child = command.spawn().map_err(|source| Error::file("start", binary, source))?;
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut server = Self { child, folder, resp: nowhere, http: nowhere };
        server.wait_until_ready()?;
        Ok(server)
    }

    fn wait_until_ready(&mut self) -> Result<(), Error> {
        let out = self.child.stdout.take().into_iter().flat_map(|out| BufReader::new(out).lines());
        for line in out.map_while(Result::ok) {
            if let Some(address) = line.strip_prefix("resp: ").and_then(|text| text.parse().ok()) {
                self.resp = address;
            } else if let Some(address) = line.strip_prefix("http: ").and_then(|text| text.parse().ok()) {
                self.http = address;
            } else if line == "ready" {
                return Ok(());
            }
        }
        let log = std::fs::read_to_string(self.folder.join("log")).unwrap_or_default();
        Err(Error::Found(format!("the server did not start: {log}")))
    }

    /// Asks it to end, which it must do by then, as it would have done without any attack.
    ///
    /// # Errors
    /// What it did instead.
    pub(super) fn stop(mut self, until: Instant) -> Result<(), String> {
        if let Ok(Some(status)) = self.child.try_wait() {
            return Err(format!("the server has ended by itself with {status}"));
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
        Err("the server does not end when asked".to_owned())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Already gone is fine.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn fresh_folder() -> Result<PathBuf, Error> {
    let shared = Path::new("/dev/shm");
    let parent = if shared.is_dir() { shared.to_owned() } else { std::env::temp_dir() };
    let number = super::super::fresh_seed();
    let folder = parent.join(format!("landfall-attack-{}-{number:x}", std::process::id()));
    std::fs::create_dir(&folder).map_err(|source| Error::file("create", &folder, source))?;
    Ok(folder)
}
