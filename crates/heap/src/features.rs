//! The must-know features of a region, and the superblock that lists them.

use crate::superblock::Geometry;
use landfall_media::{Media, MediaError};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

/// The must-know features of an open region.
#[derive(Debug)]
pub(crate) struct Features {
    /// The superblock as it was last written.
    superblock: Mutex<Geometry>,
    /// Must-know features in the superblock, so that a test of a feature takes no lock.
    required: AtomicU32,
}

impl Features {
    pub(crate) fn new(superblock: Geometry) -> Self {
        Self { superblock: Mutex::new(superblock), required: AtomicU32::new(superblock.features) }
    }

    /// The features in the superblock.
    #[inline]
    pub(crate) fn all(&self) -> u32 {
        self.required.load(Ordering::Acquire)
    }

    /// True if the superblock has all of `features`.
    #[inline]
    pub(crate) fn has(&self, features: u32) -> bool {
        self.all() & features == features
    }

    /// Adds features to the superblock, durably.
    pub(crate) fn require(&self, media: &dyn Media, features: u32) -> Result<(), MediaError> {
        if self.has(features) {
            return Ok(());
        }
        let mut superblock = self.superblock.lock();
        let next = Geometry {
            features: superblock.features | features,
            generation: superblock.generation + 1,
            ..*superblock
        };
        next.write(media)?;
        *superblock = next;
        self.required.store(next.features, Ordering::Release);
        Ok(())
    }
}
