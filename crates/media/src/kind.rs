//! The kinds of media.

/// What kind of medium holds the region. The kernel is asked; the path's name is not considered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MediaKind {
    /// A device-DAX character device.
    DeviceDax,
    /// A file on a DAX file system, mapped with `MAP_SYNC`.
    FsDax,
    /// A file on any other file system: image in memory, batches written with direct I/O.
    File,
    /// tmpfs, hugetlbfs, ramfs or a memfd: survives the end of the process, not a power loss.
    Volatile,
    /// The crash simulator.
    Simulated,
}

impl MediaKind {
    /// The name used in flags, logs, `INFO` and `/metrics`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::DeviceDax => "device-dax",
            Self::FsDax => "fs-dax",
            Self::File => "file",
            Self::Volatile => "volatile",
            Self::Simulated => "simulated",
        }
    }

    /// True when a flush writes back mapped memory immediately, so that a fence costs well under a microsecond.
    pub const fn is_byte_addressable(self) -> bool {
        !matches!(self, Self::File)
    }
}
