//! The view in a file.

use crate::error::NodeError;
use landfall_chain::View;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

/// Reads the view of a chain.
///
/// # Errors
/// [`NodeError::File`], [`NodeError::View`].
pub fn read_view(path: &Path) -> Result<View, NodeError> {
    let text = fs::read_to_string(path).map_err(|source| NodeError::File { path: path.into(), source })?;
    View::parse(&text).map_err(|source| NodeError::View { path: path.into(), source })
}

/// Writes the view of a chain: readers see the old one or this one.
///
/// # Errors
/// [`NodeError::File`].
pub fn write_view(path: &Path, view: &View) -> Result<(), NodeError> {
    replace(path, &view.to_text()).map_err(|source| NodeError::File { path: path.into(), source })
}

/// Replaces a file durably: after a crash it has the old text or the new one.
pub(crate) fn replace(path: &Path, text: &str) -> io::Result<()> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let mut file = File::create(&new)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}
