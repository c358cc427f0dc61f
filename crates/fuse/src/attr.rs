//! What replies say of a node.

use crate::abi;
use crate::types::{Handle, Node, Time};
use std::time::Duration;

/// Attributes of a node (`fuse_attr`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attr {
    /// Inode number as `stat` shows it.
    pub ino: u64,
    /// Length in bytes.
    pub size: u64,
    /// Units of 512 bytes that are allocated.
    pub blocks: u64,
    /// Time of the last access.
    pub atime: Time,
    /// Time of the last change of the data.
    pub mtime: Time,
    /// Time of the last change of the attributes.
    pub ctime: Time,
    /// Kind (`S_IFMT`) and permissions.
    pub mode: u32,
    /// Number of names.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Number of the device, for devices.
    pub rdev: u32,
    /// Preferred bytes of a transfer; 0: the kernel's choice.
    pub block_size: u32,
}

impl Attr {
    pub(crate) fn to_abi(self) -> abi::Attr {
        abi::Attr {
            ino: self.ino,
            size: self.size,
            blocks: self.blocks,
            atime: self.atime.seconds.cast_unsigned(),
            mtime: self.mtime.seconds.cast_unsigned(),
            ctime: self.ctime.seconds.cast_unsigned(),
            atime_nanos: self.atime.nanos,
            mtime_nanos: self.mtime.nanos,
            ctime_nanos: self.ctime.nanos,
            mode: self.mode,
            nlink: self.nlink,
            uid: self.uid,
            gid: self.gid,
            rdev: self.rdev,
            block_size: self.block_size,
            flags: 0,
        }
    }
}

/// A name that was found or made, and its node (`fuse_entry_out`). A reply with it counts one lookup of the node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// The node; never 0.
    pub node: Node,
    /// Tells apart nodes that reuse a number: node and generation are unique over the file system's life.
    pub generation: u64,
    /// How long the kernel may keep the name.
    pub entry_valid: Duration,
    /// How long the kernel may keep the attributes.
    pub attr_valid: Duration,
    /// The node's attributes.
    pub attr: Attr,
}

impl Entry {
    pub(crate) fn to_abi(self) -> abi::EntryOut {
        abi::EntryOut {
            node: self.node.0,
            generation: self.generation,
            entry_valid: self.entry_valid.as_secs(),
            attr_valid: self.attr_valid.as_secs(),
            entry_valid_nanos: self.entry_valid.subsec_nanos(),
            attr_valid_nanos: self.attr_valid.subsec_nanos(),
            attr: self.attr.to_abi(),
        }
    }
}

/// How the kernel treats an open file or directory: a set of `FOPEN_*`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenFlags(u32);

impl OpenFlags {
    /// Nothing special: data are cached, and dropped at each open.
    pub const NONE: Self = Self(0);
    /// Reads and writes bypass the kernel's cache.
    pub const DIRECT_IO: Self = Self(1);
    /// What is cached of the file stays at this open.
    pub const KEEP_CACHE: Self = Self(1 << 1);
    /// The file cannot seek.
    pub const NON_SEEKABLE: Self = Self(1 << 2);
    /// The directory's entries may be cached.
    pub const CACHE_DIR: Self = Self(1 << 3);
    /// The file has no position.
    pub const STREAM: Self = Self(1 << 4);
    /// No FLUSH at close, unless there is a write-back cache.
    pub const NO_FLUSH: Self = Self(1 << 5);
    /// Direct writes within the file's length may go on at once.
    pub const PARALLEL_DIRECT_WRITES: Self = Self(1 << 6);

    /// Both sets.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// The reply to an open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Opened {
    /// The file system's name for what was opened.
    pub fh: Handle,
    /// How the kernel treats it.
    pub flags: OpenFlags,
}

impl Opened {
    pub(crate) fn to_abi(self) -> abi::OpenOut {
        abi::OpenOut { fh: self.fh.0, flags: self.flags.0, ..abi::OpenOut::default() }
    }
}

/// The numbers of `statfs`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatFs {
    /// Bytes of a block; the unit of the next three.
    pub block_size: u32,
    /// Blocks in all.
    pub blocks: u64,
    /// Free blocks.
    pub blocks_free: u64,
    /// Free blocks that users other than root may take.
    pub blocks_available: u64,
    /// Inodes in all.
    pub files: u64,
    /// Free inodes.
    pub files_free: u64,
    /// Bytes that a name may have.
    pub name_len: u32,
}

impl StatFs {
    pub(crate) fn to_abi(self) -> abi::StatFsOut {
        abi::StatFsOut {
            blocks: self.blocks,
            blocks_free: self.blocks_free,
            blocks_available: self.blocks_available,
            files: self.files,
            files_free: self.files_free,
            block_size: self.block_size,
            name_len: self.name_len,
            fragment_size: self.block_size,
            ..abi::StatFsOut::default()
        }
    }
}

/// The reply to STATX: attributes and the time of birth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statx {
    /// How long the kernel may keep them.
    pub valid: Duration,
    /// `STATX_*`: which fields are true.
    pub mask: u32,
    /// Attributes as GETATTR gives them.
    pub attr: Attr,
    /// Time of birth.
    pub btime: Time,
}

impl Statx {
    pub(crate) fn to_abi(self) -> abi::StatxOut {
        let time =
            |time: Time| abi::StatxTime { seconds: time.seconds, nanos: time.nanos, ..Default::default() };
        let attr = self.attr;
        // Kind and permissions have 16 bits.
        let mode = u16::try_from(attr.mode & 0xFFFF).unwrap_or_default();
        abi::StatxOut {
            valid: self.valid.as_secs(),
            valid_nanos: self.valid.subsec_nanos(),
            mask: self.mask,
            block_size: attr.block_size,
            nlink: attr.nlink,
            uid: attr.uid,
            gid: attr.gid,
            mode,
            ino: attr.ino,
            size: attr.size,
            blocks: attr.blocks,
            atime: time(attr.atime),
            btime: time(self.btime),
            ctime: time(attr.ctime),
            mtime: time(attr.mtime),
            // The protocol packs a device as the kernel's `new_encode_dev` does.
            rdev_major: (attr.rdev >> 8) & 0xFFF,
            rdev_minor: (attr.rdev & 0xFF) | ((attr.rdev >> 12) & 0xF_FF00),
            ..abi::StatxOut::default()
        }
    }
}
