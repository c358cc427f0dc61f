//! Files with a password.

use landfall_server::config::ConfigError;
use std::path::Path;

/// The first line of a file.
///
/// # Errors
/// The file cannot be read; the line is empty.
pub(crate) fn read_password(path: &Path) -> Result<String, ConfigError> {
    let file = |source| ConfigError::File { path: path.into(), source };
    let text = std::fs::read_to_string(path).map_err(file)?;
    match text.lines().next().filter(|line| !line.is_empty()) {
        Some(line) => Ok(line.to_owned()),
        None => Err(ConfigError::Syntax {
            path: path.into(),
            message: "the first line must hold the password".into(),
        }),
    }
}
