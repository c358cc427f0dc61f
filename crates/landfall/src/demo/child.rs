//! The server under test: this executable, started with `serve`, killed by its own process id.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

/// Longest that a server may take until it is ready.
const READY_MAX: Duration = Duration::from_secs(60);
/// Longest that a server may take to stop when asked.
const STOP_MAX: Duration = Duration::from_secs(20);
/// Lines of start-up output that wait to be read.
const LINES_MAX: usize = 64;

/// Why a server did not start, or did not stop.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum ChildError {
    /// Environment: the program or its log cannot be opened.
    #[error("cannot start the server: {0}")]
    Start(#[from] io::Error),
    /// The server ended, or said nothing, before it was ready.
    #[error("the server was not ready after {waited:?} ({ending}); its log is {log}")]
    NotReady {
        /// How long it was waited for.
        waited: Duration,
        /// How it ended, if it did.
        ending: String,
        /// What it had logged.
        log: String,
    },
    /// The server did not stop when asked, or not well.
    #[error("the server did not stop well when asked: {ending}")]
    Stop {
        /// How it ended, if it did.
        ending: String,
    },
}

/// A running server. Killed when dropped.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    lines: Receiver<String>,
    /// Where RESP is served.
    pub(crate) resp: SocketAddr,
    /// Where HTTP is served.
    pub(crate) http: SocketAddr,
    /// First line: the medium.
    pub(crate) medium: String,
    /// From start to ready.
    pub(crate) took: Duration,
}

impl Server {
    /// Starts a server and waits until it is ready.
    pub(crate) fn start(arguments: &[OsString], log: &Path) -> Result<Self, ChildError> {
        let begun = Instant::now();
        let mut server = Self::spawn(arguments, log)?;
        loop {
            let left = READY_MAX.saturating_sub(begun.elapsed());
            match server.lines.recv_timeout(left) {
                Ok(line) if line == "ready" => break,
                Ok(line) => server.take_line(&line),
                Err(why) => return Err(server.not_ready(begun, why, log)),
            }
        }
        server.took = begun.elapsed();
        Ok(server)
    }

    /// Starts a server and waits for nothing.
    pub(crate) fn spawn(arguments: &[OsString], log: &Path) -> Result<Self, ChildError> {
        let log = File::options().create(true).append(true).open(log)?;
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("serve").args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
        let mut child = command.spawn()?;
        let stdout = child.stdout.take();
        let (send, lines) = sync_channel(LINES_MAX);
        std::thread::spawn(move || {
            for line in stdout.into_iter().flat_map(|out| BufReader::new(out).lines()).map_while(Result::ok) {
                // Nobody listens once it is ready.
                let _ = send.try_send(line);
            }
        });
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
        Ok(Self { child, lines, resp: nowhere, http: nowhere, medium: String::new(), took: Duration::ZERO })
    }

    fn take_line(&mut self, line: &str) {
        let address = |text: &str| text.parse().ok();
        if let Some(resp) = line.strip_prefix("resp: ").and_then(address) {
            self.resp = resp;
        } else if let Some(http) = line.strip_prefix("http: ").and_then(address) {
            self.http = http;
        } else if let Some((_, medium)) = line.split_once(" on ").filter(|_| line.starts_with("landfall ")) {
            self.medium = medium.to_owned();
        }
    }

    fn not_ready(&mut self, begun: Instant, why: RecvTimeoutError, log: &Path) -> ChildError {
        let ending = match (why, self.child.try_wait()) {
            (RecvTimeoutError::Timeout, _) => "still running".into(),
            (_, Ok(Some(status))) => status.to_string(),
            _ => match self.child.wait() {
                Ok(status) => status.to_string(),
                Err(error) => error.to_string(),
            },
        };
        let log = std::fs::read_to_string(log).unwrap_or_default();
        let tail: Vec<&str> = log.lines().rev().take(5).collect();
        ChildError::NotReady { waited: begun.elapsed(), ending, log: format!("{tail:?}") }
    }

    /// SIGKILL, and waits until it is gone. An end before that is an error: it must not die by itself.
    pub(crate) fn kill(mut self) -> Result<(), ChildError> {
        let early = self.child.try_wait()?;
        self.child.kill()?;
        self.child.wait()?;
        early.map_or(Ok(()), |status| Err(ChildError::Stop { ending: format!("ended by itself: {status}") }))
    }

    /// Waits for the end of a server that was asked to stop.
    pub(crate) fn wait(mut self) -> Result<(), ChildError> {
        let until = Instant::now() + STOP_MAX;
        while Instant::now() < until {
            match self.child.try_wait()? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => return Err(ChildError::Stop { ending: status.to_string() }),
                None => std::thread::sleep(Duration::from_millis(10)),
            }
        }
        Err(ChildError::Stop { ending: "still running".into() })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Already gone is fine.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
