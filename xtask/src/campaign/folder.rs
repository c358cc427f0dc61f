//! Folders of campaigns.

use crate::error::Error;
use crate::seed::fresh_seed;
use std::path::{Path, PathBuf};

/// A folder in which a campaign keeps its data. It is deleted when it is dropped.
pub(super) struct Folder(PathBuf);

impl Folder {
    /// Creates a folder, on shared memory where there is some.
    ///
    /// # Errors
    /// [`Error::Environment`].
    pub(super) fn in_memory() -> Result<Self, Error> {
        let shared = Path::new("/dev/shm");
        Self::within(if shared.is_dir() { shared.to_owned() } else { std::env::temp_dir() })
    }

    /// Creates a folder within `parent`, which is created if it is missing.
    ///
    /// # Errors
    /// [`Error::Environment`].
    pub(super) fn within(parent: PathBuf) -> Result<Self, Error> {
        std::fs::create_dir_all(&parent).map_err(|source| Error::file("create", &parent, source))?;
        let number = fresh_seed();
        let folder = parent.join(format!("landfall-campaign-{}-{number:x}", std::process::id()));
        std::fs::create_dir(&folder).map_err(|source| Error::file("create", &folder, source))?;
        Ok(Self(folder))
    }

    /// Leaves it where it is, for whoever wants to see what went wrong.
    pub(super) fn keep(mut self) -> PathBuf {
        std::mem::take(&mut self.0)
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !self.0.as_os_str().is_empty() {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
}
