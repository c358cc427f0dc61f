//! Reading evicted bytes without blocking: a caller that needs them submits a request to a loader and retries when the
//! loader is done.

use landfall_media::{Extent, MediaError};
use std::sync::{Arc, OnceLock, Weak};

/// A request for bytes that are not in memory. Numbers are never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LoadId(pub u64);

/// What reads bytes into memory, on threads of its own.
pub trait Loader: Send + Sync {
    /// Accepts extents that the caller has held for the loader, which reads them by [`crate::Heap::load`]. The loader
    /// releases the extents some time after it has read them, so that the caller finds them in memory when it retries.
    /// Returns `None` if the loader stops: the caller must read the extents itself. The caller then releases the extents, as it
    /// does after an error.
    ///
    /// # Errors
    /// The error of a recent read of one of them. They are not read again at once: a bad disk may take seconds to say so, and the
    /// caller may be a thread that must not block.
    fn submit(&self, extents: &[Extent]) -> Result<Option<LoadId>, MediaError>;

    /// The error of a recent read of one of these extents.
    fn failed(&self, extents: &[Extent]) -> Option<MediaError> {
        let _ = extents;
        None
    }

    /// True when every extent of the request has been read, or its read has failed.
    fn is_done(&self, load: LoadId) -> bool;

    /// Blocks until the request is done, or the loader stops: the caller retries then. False, at once, if the calling thread
    /// is one of those that start reads and may not block.
    fn wait(&self, load: LoadId) -> bool;
}

/// The loader of a heap, if it has one.
#[derive(Default)]
pub(crate) struct LoaderPlace(OnceLock<Weak<dyn Loader>>);

impl LoaderPlace {
    /// Sets the loader. Later calls have no effect.
    pub(crate) fn set(&self, loader: Weak<dyn Loader>) {
        let _ = self.0.set(loader);
    }

    pub(crate) fn get(&self) -> Option<Arc<dyn Loader>> {
        self.0.get()?.upgrade()
    }

    /// True when every extent of the request has been read, or its read has failed.
    pub(crate) fn is_done(&self, load: LoadId) -> bool {
        self.get().is_none_or(|loader| loader.is_done(load))
    }

    /// Blocks until the request is done, or the loader stops. False if the calling thread may not.
    pub(crate) fn wait(&self, load: LoadId) -> bool {
        self.get().is_none_or(|loader| loader.wait(load))
    }
}
