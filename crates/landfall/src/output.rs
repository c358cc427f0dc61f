//! What commands print: the only way to standard output and standard error.
//!
//! A reader that has seen enough closes the pipe, as `head` does. That is no error: the command ends with the code that
//! it would have ended with, and says nothing more.

use std::fmt::Display;
use std::io::{self, Write};
use std::process::ExitCode;

/// Why a text has not been read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OutputError {
    /// Whoever read it has seen enough.
    #[error("standard output is closed")]
    Closed,
    /// Environment: it cannot be written.
    #[error("standard output: {0}")]
    Failed(io::Error),
}

impl From<io::Error> for OutputError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::Closed,
            _ => Self::Failed(error),
        }
    }
}

/// Prints bytes as they are, at once.
///
/// # Errors
/// [`OutputError`]: a command that would print more ends ([`ended`]).
pub(crate) fn print(bytes: &[u8]) -> Result<(), OutputError> {
    let mut out = io::stdout().lock();
    Ok(out.write_all(bytes).and_then(|()| out.flush())?)
}

/// Prints bytes and a line end.
///
/// # Errors
/// As [`print()`].
pub(crate) fn print_line(line: &[u8]) -> Result<(), OutputError> {
    print(&[line, b"\n"].concat())
}

/// Prints all that a command has to say, and ends the command with `code`.
pub(crate) fn report(text: &str, code: ExitCode) -> ExitCode {
    match print(text.as_bytes()) {
        Ok(()) | Err(OutputError::Closed) => code,
        Err(error) => fail(&error),
    }
}

/// As [`report`], of lines without their ends.
pub(crate) fn report_lines(lines: impl IntoIterator<Item = impl Display>, code: ExitCode) -> ExitCode {
    let text: String = lines.into_iter().map(|line| format!("{line}\n")).collect();
    report(&text, code)
}

/// The end of a command that could print no more.
pub(crate) fn ended(error: &OutputError) -> ExitCode {
    match error {
        OutputError::Closed => ExitCode::SUCCESS,
        OutputError::Failed(_) => fail(error),
    }
}

/// Prints the lines with which a server starts. It serves whether they are read or not.
pub(crate) fn announce(lines: &[String]) {
    if let Err(OutputError::Failed(error)) = print(format!("{}\n", lines.join("\n")).as_bytes()) {
        tracing::warn!(%error, "the start-up lines could not be printed");
    }
}

/// Prints an error the way every command does.
pub fn fail(error: &dyn std::error::Error) -> ExitCode {
    complain(error);
    ExitCode::FAILURE
}

/// Prints an error.
pub(crate) fn complain(error: &dyn std::error::Error) {
    note(&format!("landfall: {error}"));
}

/// Prints a line for people, on standard error. Where that is closed, nobody is left to tell.
pub(crate) fn note(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}
