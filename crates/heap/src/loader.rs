//! Reading evicted bytes without blocking: a caller that needs them submits a request to a loader and retries when the
//! loader is done.

use crate::error::HeapError;
use crate::heap::Heap;
use crate::load::{LoadId, Loader};
use landfall_media::Extent;
use std::sync::Weak;

impl Heap {
    /// Sets the loader that reads missing bytes from now on, instead of the threads that need them. Later calls have no
    /// effect.
    pub fn set_loader(&self, loader: Weak<dyn Loader>) {
        let _ = self.loader.0.set(loader);
    }

    /// Requests those of the extents that are not in memory. The caller holds them, or a record that stays current
    /// meanwhile refers to them. On success the caller can use all of them; without a loader a use of missing bytes
    /// blocks while they are read.
    ///
    /// # Errors
    /// [`HeapError::Loading`] while a loader reads them.
    pub fn fetch(&self, extents: &[Extent]) -> Result<(), HeapError> {
        if !self.is_paged() || extents.iter().all(|extent| self.is_resident(*extent)) {
            return Ok(());
        }
        let Some(loader) = self.loader.get() else { return Ok(()) };
        extents.iter().for_each(|extent| self.runs.hold(*extent));
        match loader.submit(extents) {
            Some(load) => Err(HeapError::Loading(load)),
            None => {
                extents.iter().for_each(|extent| self.runs.release(*extent));
                Ok(())
            }
        }
    }

    /// True when every extent of the request has been read, or its read has failed.
    pub fn is_loaded(&self, load: LoadId) -> bool {
        self.loader.get().is_none_or(|loader| loader.is_done(load))
    }
}
