//! Programs that run to their end.

use super::error::BenchError;
use super::sys;
use std::process::{Command, Stdio};

/// Runs a program that is to succeed. Returns what it has printed.
pub(crate) fn succeed(command: &mut Command, name: &'static str) -> Result<String, BenchError> {
    sys::end_with_parent(command);
    let output = command.stdin(Stdio::null()).output().map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => BenchError::Missing(format!("{name} is not installed")),
        _ => BenchError::Spawn { program: name.into(), source: error },
    })?;
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(printed);
    }
    let output_text = printed + &String::from_utf8_lossy(&output.stderr);
    Err(BenchError::Client { program: name, status: output.status.to_string(), output: output_text })
}
