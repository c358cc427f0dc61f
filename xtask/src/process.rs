//! Running programs under a deadline, with their output kept or shown.

use crate::error::Error;
use std::io::{IsTerminal, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

/// Maximum number of bytes kept of each stream. A test program that prints more is broken.
const OUTPUT_BYTES_MAX: usize = 64 << 20;
/// Blocks of output in flight between the readers and the waiting thread.
const BLOCKS_MAX: usize = 256;
/// Interval at which a silent program is checked.
const POLL: Duration = Duration::from_millis(50);
/// How long output may stay open after the program has ended. A longer time means that it left child processes.
const GRACE: Duration = Duration::from_secs(5);

/// Which streams are kept for parsing. The others go directly to the terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keep {
    /// Both streams are shown.
    Nothing,
    /// Standard output is kept, errors are shown.
    Stdout,
    /// Both streams are kept.
    Both,
}

/// A program that has ended.
#[derive(Debug)]
pub(crate) struct Finished {
    /// Whether it exited with 0, in time, and left no processes.
    pub(crate) success: bool,
    /// How it ended, as text.
    pub(crate) ending: String,
    /// Its standard output, where kept.
    pub(crate) stdout: String,
    /// Its standard error, where kept.
    pub(crate) stderr: String,
    /// Wall time.
    pub(crate) took: Duration,
}

/// Runs `command` until it ends. After `limit`, kills it and the processes that it started.
///
/// # Errors
/// [`Error::Environment`] where it cannot be started.
pub(crate) fn run(command: &mut Command, keep: Keep, limit: Duration) -> Result<Finished, Error> {
    let start = Instant::now();
    let mut running = Running::spawn(command, keep)?;
    let end = running.wait(start + limit)?;
    Ok(Finished {
        success: matches!(end, End::Exited(status) if status.success()),
        ending: end.describe(limit),
        stdout: String::from_utf8_lossy(&running.kept[0]).into_owned(),
        stderr: String::from_utf8_lossy(&running.kept[1]).into_owned(),
        took: start.elapsed(),
    })
}

/// Runs `command` like [`run`] and requires that it succeeds.
///
/// # Errors
/// [`Error::Program`] where it fails, [`Error::Environment`] where it cannot be started.
pub(crate) fn must(command: &mut Command, keep: Keep, limit: Duration) -> Result<Finished, Error> {
    let finished = run(command, keep, limit)?;
    if finished.success {
        return Ok(finished);
    }
    eprint!("{}", finished.stderr);
    Err(Error::Program { line: line(command), ending: finished.ending })
}

/// How programs are built that are built once, and all of them: a crate as one unit takes half of the processor's time that
/// sixteen units of it take, what would make the next build faster is not written, and nobody needs the lines of a
/// backtrace: a panic says its own. Crates are built side by side.
const BUILDS: [(&str, &str); 3] =
    [("CARGO_INCREMENTAL", "0"), ("CARGO_PROFILE_DEV_CODEGEN_UNITS", "1"), ("CARGO_PROFILE_DEV_DEBUG", "0")];

/// The cargo that runs this program, without the variables that it set for this package only.
pub(crate) fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.envs(BUILDS);
    for (name, _) in std::env::vars_os() {
        let ours =
            name.to_str().is_some_and(|n| n.starts_with("CARGO_PKG_") || n.starts_with("CARGO_MANIFEST"));
        if ours {
            cargo.env_remove(name);
        }
    }
    cargo
}

/// The same command, for when there is nothing more urgent to do.
pub(crate) fn nicely(command: &Command) -> Command {
    let mut nice = Command::new("nice");
    nice.args(["-n", "15"]).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => nice.env(name, value),
            None => nice.env_remove(name),
        };
    }
    command.get_current_dir().into_iter().for_each(|folder| _ = nice.current_dir(folder));
    nice
}

/// The command as typed in a shell, without the folder of the program.
pub(crate) fn line(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let words = program.file_name().into_iter().chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

enum End {
    Exited(ExitStatus),
    TimedOut,
    LeftChildren,
    TooMuchOutput,
}

impl End {
    fn describe(&self, limit: Duration) -> String {
        match self {
            Self::Exited(status) => format!("ended with {status}"),
            Self::TimedOut => format!("was killed after {} s", limit.as_secs()),
            Self::LeftChildren => "left processes behind that hold its output".to_owned(),
            Self::TooMuchOutput => format!("printed more than {OUTPUT_BYTES_MAX} bytes"),
        }
    }
}

struct Running {
    child: Child,
    grouped: bool,
    blocks: Receiver<(usize, Vec<u8>)>,
    kept: [Vec<u8>; 2],
}

impl Running {
    fn spawn(command: &mut Command, keep: Keep) -> Result<Self, Error> {
        let pipe = |piped: bool| if piped { Stdio::piped() } else { Stdio::inherit() };
        command.stdin(Stdio::null()).stdout(pipe(keep != Keep::Nothing)).stderr(pipe(keep == Keep::Both));
        // In its own process group, the program and all its children can be killed together. At a terminal it stays in
        // the terminal's group, so that the interrupt key reaches it.
        let grouped = !std::io::stdin().is_terminal();
        if grouped {
            command.process_group(0);
        }
        let spawned = command.spawn();
        let refused = |source| Error::Environment { attempt: format!("start `{}`", line(command)), source };
        let mut child = spawned.map_err(refused)?;
        let (sender, blocks) = sync_channel(BLOCKS_MAX);
        read_in_background(0, child.stdout.take(), &sender);
        read_in_background(1, child.stderr.take(), &sender);
        Ok(Self { child, grouped, blocks, kept: [Vec::new(), Vec::new()] })
    }

    fn wait(&mut self, deadline: Instant) -> Result<End, Error> {
        let mut exited: Option<(ExitStatus, Instant)> = None;
        loop {
            let open = self.receive();
            if exited.is_none() {
                exited = self.status()?.map(|status| (status, Instant::now()));
            }
            match exited {
                Some((status, _)) if !open => return Ok(End::Exited(status)),
                Some((_, at)) if at.elapsed() > GRACE => return Ok(self.kill(End::LeftChildren)),
                _ if self.kept.iter().any(|k| k.len() > OUTPUT_BYTES_MAX) => {
                    return Ok(self.kill(End::TooMuchOutput));
                }
                None if Instant::now() > deadline => return Ok(self.kill(End::TimedOut)),
                _ => {}
            }
        }
    }

    /// Receives one block of output, with a short timeout. False once all streams are closed.
    fn receive(&mut self) -> bool {
        match self.blocks.recv_timeout(POLL) {
            Ok((stream, block)) => self.kept[stream].extend_from_slice(&block),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                // No more output can come: poll for the exit with a pause.
                std::thread::sleep(Duration::from_millis(2));
                return false;
            }
        }
        true
    }

    fn status(&mut self) -> Result<Option<ExitStatus>, Error> {
        let refused = |source| Error::Environment { attempt: "wait for a program".to_owned(), source };
        self.child.try_wait().map_err(refused)
    }

    /// Kills the program, and its process group where it leads one. An error means that it has ended.
    fn kill(&mut self, why: End) -> End {
        if self.grouped {
            let group = format!("-{}", self.child.id());
            let _gone = Command::new("kill").args(["-KILL", "--", &group]).stderr(Stdio::null()).status();
        }
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
        why
    }
}

fn read_in_background(
    stream: usize,
    from: Option<impl Read + Send + 'static>,
    to: &SyncSender<(usize, Vec<u8>)>,
) {
    let Some(mut from) = from else { return };
    let to = to.clone();
    std::thread::spawn(move || {
        let mut block = vec![0; 64 << 10];
        while let Ok(n @ 1..) = from.read(&mut block) {
            if to.send((stream, block[..n].to_vec())).is_err() {
                return;
            }
        }
    });
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
    fn both_streams_and_the_exit_status_are_kept() {
        let finished =
            run(&mut shell("echo out; echo err >&2; exit 3"), Keep::Both, Duration::from_secs(20)).unwrap();
        assert_eq!((finished.stdout.as_str(), finished.stderr.as_str()), ("out\n", "err\n"));
        assert!(!finished.success && finished.ending.contains('3'), "{}", finished.ending);
    }

    #[test]
    fn program_that_outlives_its_limit_is_killed() {
        let finished = run(&mut shell("sleep 60"), Keep::Both, Duration::from_millis(200)).unwrap();
        assert!(!finished.success && finished.ending.contains("killed"), "{}", finished.ending);
        assert!(finished.took < Duration::from_secs(20));
    }

    #[test]
    fn missing_program_is_an_environment_error() {
        let refused = must(&mut Command::new("no-such-program"), Keep::Both, POLL).unwrap_err();
        assert!(matches!(refused, Error::Environment { .. }), "{refused}");
    }
}
