//! Progress on standard error, and the interruption by the user.

use super::error::BenchError;
use super::sys;

/// A line of progress.
#[expect(clippy::print_stderr, reason = "progress of a command")]
pub(crate) fn say(line: std::fmt::Arguments<'_>) {
    eprintln!("{line}");
}

/// Stops a loop once the user has pressed Ctrl-C; guards then end servers and remove folders.
pub(crate) fn check_stop() -> Result<(), BenchError> {
    if sys::stop_asked() { Err(BenchError::Interrupted) } else { Ok(()) }
}
