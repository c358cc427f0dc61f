//! A folder in memory, for regions that are NVDIMMs.

use crate::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

/// Where files in memory are.
const MEMORY: &str = "/dev/shm";

/// A folder. It is removed when this is dropped: memory that is not given back is found by whoever looks for it.
pub(super) struct Memory(PathBuf);

impl Memory {
    /// A new one.
    ///
    /// # Errors
    /// [`Error::Environment`] where there is no memory.
    pub(super) fn new() -> Result<Self, Error> {
        let folder = Path::new(MEMORY).join(format!("landfall-vm-{}", std::process::id()));
        fs::create_dir_all(&folder).map_err(|source| Error::file("create", &folder, source))?;
        Ok(Self(folder))
    }

    pub(super) fn folder(&self) -> &PathBuf {
        &self.0
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // As above.
        let _ = fs::remove_dir_all(&self.0);
    }
}
