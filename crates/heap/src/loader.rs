//! Reading what has left memory without waiting for it: whoever finds that bytes are missing asks a loader for them, and
//! tries again once they are there.

use crate::error::HeapError;
use crate::heap::Heap;
use landfall_media::Extent;
use std::sync::{OnceLock, Weak};

/// A request for bytes that are not in memory. Numbers are never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LoadId(pub u64);

/// What reads bytes into memory, on threads of its own.
pub trait Loader: Send + Sync {
    /// Takes on the reading of extents that the caller has held for it, by [`Heap::load`]. The loader releases them some time
    /// after it has read them, so that whoever asked finds them. `None` if they are to be read by the caller instead: they
    /// could not be read lately, and the caller is to see the error. They are then the caller's to release.
    fn submit(&self, extents: &[Extent]) -> Option<LoadId>;

    /// True once everything that was asked for has been read, or cannot be.
    fn is_done(&self, load: LoadId) -> bool;
}

/// The loader of a heap, if it has one.
#[derive(Default)]
pub(crate) struct LoaderPlace(OnceLock<Weak<dyn Loader>>);

impl LoaderPlace {
    fn get(&self) -> Option<std::sync::Arc<dyn Loader>> {
        self.0.get()?.upgrade()
    }
}

impl Heap {
    /// Has missing bytes read by a loader from now on, instead of by whoever needs them. The first one stays.
    pub fn set_loader(&self, loader: Weak<dyn Loader>) {
        let _ = self.loader.0.set(loader);
    }

    /// Asks for those of the extents that are not in memory; the caller holds them, or a record refers to them that stays
    /// current meanwhile. On success all can be used at once, if need be by a read that the caller waits for.
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

    /// True once what was asked for has been read, or cannot be.
    pub fn is_loaded(&self, load: LoadId) -> bool {
        self.loader.get().is_none_or(|loader| loader.is_done(load))
    }
}
