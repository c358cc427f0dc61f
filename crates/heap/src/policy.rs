//! How landed values are certified and placed.

use landfall_media::Extent;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// What certifies the values that land.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Integrity {
    /// A CRC-32C of each value, computed when the value is stored. Costs one fence a batch.
    #[default]
    Crc32c,
    /// The sums derived from the checksums of the packets that carried the value, if they are known. No checksum is
    /// computed. A torn write could match 16 bits by chance, so the data of each record are made durable before the
    /// record is written. Costs one more fence for each record.
    Tcp,
}

/// The settings for landed values. They may change while writers append.
#[derive(Debug, Default)]
pub(crate) struct ValuePolicy {
    /// True with [`Integrity::Tcp`].
    trusts_sums: AtomicBool,
    /// Landed values of up to this many bytes are copied next to each other.
    consolidated_max: AtomicU32,
}

impl ValuePolicy {
    pub(crate) fn set_integrity(&self, integrity: Integrity) {
        self.trusts_sums.store(integrity == Integrity::Tcp, Ordering::Release);
    }

    /// True with [`Integrity::Tcp`].
    pub(crate) fn trusts_sums(&self) -> bool {
        self.trusts_sums.load(Ordering::Acquire)
    }

    /// True if the sums of these extents certify them.
    pub(crate) fn trusts_sums_of(&self, extents: &[Extent]) -> bool {
        self.trusts_sums() && extents.iter().all(|extent| extent.sum().is_some())
    }

    pub(crate) fn consolidate_up_to(&self, bytes: u32) {
        self.consolidated_max.store(bytes, Ordering::Relaxed);
    }

    /// Bytes up to which landed values are copied next to each other.
    pub(crate) fn consolidated_max(&self) -> u64 {
        u64::from(self.consolidated_max.load(Ordering::Relaxed))
    }
}
