//! Starts and kills the server under test: this executable with `serve`, or a program that starts a server elsewhere
//! (in a virtual machine). Both are killed by process id.
//!
//! Such a program gets the flags of `landfall serve` that the demonstration chooses. The region and the addresses are
//! its own choice. It becomes the process whose death is the crash, and prints the lines of `landfall serve`, with
//! addresses at which this host reaches the server. It also prints `starting` just before the server starts, and the
//! result of each offline check of the region: `check: clean`, or `check:` and the damage. A check runs before every
//! start except the first, and after an orderly stop.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

/// Time limit for a server to become ready.
const READY_MAX: Duration = Duration::from_secs(60);
/// Time limit for a server to stop after the request.
const STOP_MAX: Duration = Duration::from_secs(20);
/// Unread lines of start-up output, at most.
const LINES_MAX: usize = 64;
/// Attempts to start a program that ends without output: emulators occasionally crash while a kernel boots.
const SILENT_STARTS_MAX: u32 = 3;
/// The result of a check without damage.
const CLEAN: &str = "clean";

/// What to start as the server.
#[derive(Clone, Debug)]
pub(crate) enum Program {
    /// This executable.
    Own,
    /// A program that starts a server elsewhere.
    Elsewhere(PathBuf),
}

impl Program {
    fn command(&self) -> io::Result<Command> {
        Ok(match self {
            Self::Own => {
                let mut own = Command::new(std::env::current_exe()?);
                own.arg("serve");
                own
            }
            Self::Elsewhere(path) => Command::new(path),
        })
    }
}

/// Why a server did not start or stop.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum ChildError {
    /// Environment: the program or its log cannot be opened.
    #[error("cannot start the server: {0}")]
    Start(#[from] io::Error),
    /// The server ended, or printed nothing, before it was ready.
    #[error("the server was not ready after {waited:?} ({ending}); its log is {log}")]
    NotReady {
        /// How long the demonstration waited.
        waited: Duration,
        /// How the server ended, if it did.
        ending: String,
        /// The server's log.
        log: String,
    },
    /// The server did not stop when asked, or reported an error.
    #[error("the server did not stop cleanly when asked: {ending}")]
    Stop {
        /// How the server ended, if it did.
        ending: String,
    },
}

/// A running server. Dropping it kills the server.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    lines: Receiver<String>,
    /// RESP address.
    pub(crate) resp: SocketAddr,
    /// HTTP address.
    pub(crate) http: SocketAddr,
    /// First line of output: the medium.
    pub(crate) medium: String,
    /// Time from start to ready.
    pub(crate) took: Duration,
    /// Results of offline checks before this start.
    pub(crate) checks: Checks,
    /// Earlier attempts that ended without output, before there was a server.
    pub(crate) silent_starts: u32,
}

/// Results of offline checks by a server's program.
#[derive(Debug, Default)]
pub(crate) struct Checks {
    /// Number of checks without damage.
    pub(crate) clean: u64,
    /// Damage that the other checks reported.
    pub(crate) damage: Vec<String>,
}

impl Checks {
    fn take_line(&mut self, line: &str) {
        match line.strip_prefix("check: ") {
            Some(CLEAN) => self.clean += 1,
            Some(damage) if self.damage.len() < LINES_MAX => self.damage.push(damage.to_owned()),
            _ => {}
        }
    }
}

impl Server {
    /// Starts a server and waits until it is ready.
    pub(crate) fn start(program: &Program, arguments: &[OsString], log: &Path) -> Result<Self, ChildError> {
        let begun = Instant::now();
        let mut server = Self::start_only(program, arguments, log)?;
        server.wait_for("ready", begun, log)?;
        server.took = begun.elapsed();
        Ok(server)
    }

    /// Starts a server and waits until it is about to open its region.
    pub(crate) fn start_only(
        program: &Program,
        arguments: &[OsString],
        log: &Path,
    ) -> Result<Self, ChildError> {
        let mut silent_starts = 0;
        loop {
            let mut server = Self::spawn(program, arguments, log)?;
            server.silent_starts = silent_starts;
            let begun = Instant::now();
            match program {
                Program::Own => return Ok(server),
                Program::Elsewhere(_) => match server.wait_for("starting", begun, log) {
                    Ok(()) => return Ok(server),
                    Err(_) if server.ended_without_output() && silent_starts + 1 < SILENT_STARTS_MAX => {}
                    Err(error) => return Err(error),
                },
            }
            silent_starts += 1;
        }
    }

    fn ended_without_output(&mut self) -> bool {
        let said = self.checks.clean > 0 || !self.checks.damage.is_empty();
        !said && matches!(self.child.try_wait(), Ok(Some(_)))
    }

    fn spawn(program: &Program, arguments: &[OsString], log: &Path) -> Result<Self, ChildError> {
        let log = File::options().create(true).append(true).open(log)?;
        let mut command = program.command()?;
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
        let mut child = command.spawn()?;
        let stdout = child.stdout.take();
        let (send, lines) = sync_channel(LINES_MAX);
        std::thread::spawn(move || {
            for line in stdout.into_iter().flat_map(|out| BufReader::new(out).lines()).map_while(Result::ok) {
                // The receiver is dropped once the server is ready.
                let _ = send.try_send(line);
            }
        });
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
        Ok(Self {
            child,
            lines,
            resp: nowhere,
            http: nowhere,
            medium: String::new(),
            took: Duration::ZERO,
            checks: Checks::default(),
            silent_starts: 0,
        })
    }

    /// Reads lines until `awaited` comes.
    fn wait_for(&mut self, awaited: &str, begun: Instant, log: &Path) -> Result<(), ChildError> {
        loop {
            let left = READY_MAX.saturating_sub(begun.elapsed());
            match self.lines.recv_timeout(left) {
                Ok(line) if line == awaited => return Ok(()),
                Ok(line) => self.take_line(&line),
                Err(why) => return Err(self.not_ready(begun, why, log)),
            }
        }
    }

    fn take_line(&mut self, line: &str) {
        let address = |text: &str| text.parse().ok();
        if let Some(resp) = line.strip_prefix("resp: ").and_then(address) {
            self.resp = resp;
        } else if let Some(http) = line.strip_prefix("http: ").and_then(address) {
            self.http = http;
        } else if let Some((_, medium)) = line.split_once(" on ").filter(|_| line.starts_with("landfall ")) {
            self.medium = medium.to_owned();
        } else {
            self.checks.take_line(line);
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
        let damage = self.checks.damage.iter().map(String::as_str);
        let tail: Vec<&str> = log.lines().rev().take(5).chain(damage).collect();
        ChildError::NotReady { waited: begun.elapsed(), ending, log: format!("{tail:?}") }
    }

    /// Sends SIGKILL and waits for the end. It is an error if the server ended before.
    pub(crate) fn kill(mut self) -> Result<(), ChildError> {
        let early = self.child.try_wait()?;
        self.child.kill()?;
        self.child.wait()?;
        early.map_or(Ok(()), |status| {
            Err(ChildError::Stop { ending: format!("ended before the kill: {status}") })
        })
    }

    /// Waits for the end of a server that was asked to stop; returns the results of checks after its end.
    pub(crate) fn wait(mut self) -> Result<Checks, ChildError> {
        let until = Instant::now() + STOP_MAX;
        while Instant::now() < until {
            match self.child.try_wait()? {
                Some(status) if status.success() => {
                    let mut checks = Checks::default();
                    self.lines.iter().for_each(|line| checks.take_line(&line));
                    return Ok(checks);
                }
                Some(status) => return Err(ChildError::Stop { ending: status.to_string() }),
                None => std::thread::sleep(Duration::from_millis(10)),
            }
        }
        Err(ChildError::Stop { ending: "still running".into() })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program that prints the lines of a server elsewhere, and sleeps.
    fn elsewhere(dir: &Path, lines: &[&str]) -> Program {
        let path = dir.join("elsewhere");
        let script = format!("#!/bin/sh\nprintf '%s\\n' '{}'\nexec sleep 60\n", lines.join("' '"));
        write_program(&path, &script);
        Program::Elsewhere(path)
    }

    /// Writes the file from a separate process: a child that another test starts at that time would inherit the open
    /// file, and a file that is open for writing cannot be executed.
    fn write_program(path: &Path, script: &str) {
        let write = r#"printf %s "$2" > "$1" && chmod 700 "$1""#;
        let status = Command::new("sh").args(["-c", write, "sh"]).arg(path).arg(script).status();
        assert!(status.unwrap().success());
    }

    #[test]
    fn lines_of_a_server_elsewhere_are_understood() {
        let dir = tempfile::tempdir().unwrap();
        let lines = [
            "check: clean",
            "check: run 7: torn",
            "starting",
            "landfall 0.1.0 on device-dax: survives",
            "resp: 127.1.2.3:45",
            "http: 127.1.2.3:46",
            "ready",
        ];
        let program = elsewhere(dir.path(), &lines);
        let server = Server::start(&program, &[], &dir.path().join("log")).unwrap();
        assert_eq!((server.resp.to_string().as_str(), server.http.port()), ("127.1.2.3:45", 46));
        assert_eq!(server.medium, "device-dax: survives");
        assert_eq!(
            (server.checks.clean, server.checks.damage.as_slice()),
            (1, &["run 7: torn".to_owned()][..])
        );
        server.kill().unwrap();
        let victim = Server::start_only(&program, &[], &dir.path().join("log")).unwrap();
        victim.kill().unwrap();
    }

    #[test]
    fn program_that_ends_without_output_is_started_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("elsewhere");
        let script =
            "#!/bin/sh\n[ -e $0.tried ] || { touch $0.tried; exit 0; }\necho starting\nexec sleep 60\n";
        write_program(&path, script);
        let server = Server::start_only(&Program::Elsewhere(path), &[], &dir.path().join("log")).unwrap();
        assert_eq!(server.silent_starts, 1);
        server.kill().unwrap();
    }

    #[test]
    fn server_elsewhere_that_ends_early_is_not_ready() {
        let dir = tempfile::tempdir().unwrap();
        let ended = Program::Elsewhere("/bin/false".into());
        let refused = Server::start(&ended, &[], &dir.path().join("log"));
        assert!(matches!(refused, Err(ChildError::NotReady { .. })));
    }
}
