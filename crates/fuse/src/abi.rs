//! The structures and numbers of `include/uapi/linux/fuse.h`, protocol 7.45. The kernel's bytes are those of its host, so
//! that fields are plain integers. Sizes are checked against the header's.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The protocol's major version; it has not changed since 2005.
pub(crate) const MAJOR: u32 = 7;
/// The latest minor version that this crate knows.
pub(crate) const MINOR: u32 = 45;

/// Declares a structure of the protocol with its size in bytes.
macro_rules! wire {
    ($(#[$doc:meta])* $name:ident, $bytes:literal { $($field:ident: $kind:ty),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
        #[repr(C)]
        pub(crate) struct $name { $(pub(crate) $field: $kind),* }
        const _: () = assert!(size_of::<$name>() == $bytes);
    };
}

wire! {
    /// Before each request: `fuse_in_header`.
    InHeader, 40 {
        len: u32, opcode: u32, unique: u64, node: u64, uid: u32, gid: u32, pid: u32, extension_words: u16,
        _padding: u16,
    }
}
wire! {
    /// Before each reply and notification: `fuse_out_header`.
    OutHeader, 16 {
        len: u32, error: i32, unique: u64,
    }
}
wire! {
    /// `fuse_attr`.
    Attr, 88 {
        ino: u64, size: u64, blocks: u64, atime: u64, mtime: u64, ctime: u64, atime_nanos: u32,
        mtime_nanos: u32, ctime_nanos: u32, mode: u32, nlink: u32, uid: u32, gid: u32, rdev: u32,
        block_size: u32, flags: u32,
    }
}
wire! {
    /// `fuse_entry_out`.
    EntryOut, 128 {
        node: u64, generation: u64, entry_valid: u64, attr_valid: u64, entry_valid_nanos: u32,
        attr_valid_nanos: u32, attr: Attr,
    }
}
wire! {
    /// `fuse_attr_out`.
    AttrOut, 104 {
        valid: u64, valid_nanos: u32, _padding: u32, attr: Attr,
    }
}
wire! {
    /// `fuse_open_out`; the last word was padding before passthrough.
    OpenOut, 16 {
        fh: u64, flags: u32, _backing: u32,
    }
}
wire! {
    /// `fuse_write_out` and `fuse_getxattr_out`.
    WriteOut, 8 {
        size: u32, _padding: u32,
    }
}
wire! {
    /// `fuse_statfs_out`.
    StatFsOut, 80 {
        blocks: u64, blocks_free: u64, blocks_available: u64, files: u64, files_free: u64,
        block_size: u32, name_len: u32, fragment_size: u32, _padding: u32, _spare: [u32; 6],
    }
}
wire! {
    /// `fuse_file_lock`.
    FileLock, 24 {
        start: u64, end: u64, kind: u32, pid: u32,
    }
}
wire! {
    /// `fuse_ioctl_out`.
    IoctlOut, 16 {
        result: i32, flags: u32, in_iovs: u32, out_iovs: u32,
    }
}
wire! {
    /// `fuse_poll_out`.
    PollOut, 8 {
        events: u32, _padding: u32,
    }
}
wire! {
    /// `fuse_sx_time`.
    StatxTime, 16 {
        seconds: i64, nanos: u32, _reserved: i32,
    }
}
wire! {
    /// `fuse_statx_out` with its `fuse_statx`.
    StatxOut, 288 {
        valid: u64, valid_nanos: u32, _flags: u32, _spare: [u64; 2], mask: u32, block_size: u32,
        attributes: u64, nlink: u32, uid: u32, gid: u32, mode: u16, _spare0: u16, ino: u64, size: u64,
        blocks: u64, attributes_mask: u64, atime: StatxTime, btime: StatxTime, ctime: StatxTime,
        mtime: StatxTime, rdev_major: u32, rdev_minor: u32, dev_major: u32, dev_minor: u32,
        _spare2: [u64; 14],
    }
}
wire! {
    /// `fuse_init_out`.
    InitOut, 64 {
        major: u32, minor: u32, max_readahead: u32, flags: u32, max_background: u16,
        congestion_threshold: u16, max_write: u32, time_gran: u32, max_pages: u16, _map_alignment: u16,
        flags2: u32, _max_stack_depth: u32, _request_timeout: u16, _unused: [u16; 11],
    }
}
wire! {
    /// `fuse_dirent` before its name.
    DirEntryOut, 24 {
        ino: u64, next_offset: u64, name_len: u32, kind: u32,
    }
}
wire! {
    /// `fuse_notify_inval_inode_out`.
    InvalInodeOut, 24 {
        node: u64, offset: i64, len: i64,
    }
}
wire! {
    /// `fuse_notify_inval_entry_out`.
    InvalEntryOut, 16 {
        parent: u64, name_len: u32, flags: u32,
    }
}
wire! {
    /// `fuse_notify_delete_out`.
    DeleteOut, 24 {
        parent: u64, child: u64, name_len: u32, _padding: u32,
    }
}
wire! {
    /// `fuse_forget_one`.
    ForgetOne, 16 {
        node: u64, lookups: u64,
    }
}
wire! {
    /// `fuse_batch_forget_in`.
    BatchForgetIn, 8 {
        count: u32, _padding: u32,
    }
}
wire! {
    /// `fuse_getattr_in`.
    GetAttrIn, 16 {
        flags: u32, _padding: u32, fh: u64,
    }
}
wire! {
    /// `fuse_setattr_in`.
    SetAttrIn, 88 {
        valid: u32, _padding: u32, fh: u64, size: u64, lock_owner: u64, atime: u64, mtime: u64,
        ctime: u64, atime_nanos: u32, mtime_nanos: u32, ctime_nanos: u32, mode: u32, _unused4: u32,
        uid: u32, gid: u32, _unused5: u32,
    }
}
wire! {
    /// `fuse_mknod_in`.
    MkNodIn, 16 {
        mode: u32, rdev: u32, umask: u32, _padding: u32,
    }
}
wire! {
    /// `fuse_mkdir_in`.
    MkDirIn, 8 {
        mode: u32, umask: u32,
    }
}
wire! {
    /// `fuse_rename2_in`.
    Rename2In, 16 {
        new_parent: u64, flags: u32, _padding: u32,
    }
}
wire! {
    /// `fuse_open_in`.
    OpenIn, 8 {
        flags: u32, open_flags: u32,
    }
}
wire! {
    /// `fuse_create_in`.
    CreateIn, 16 {
        flags: u32, mode: u32, umask: u32, open_flags: u32,
    }
}
wire! {
    /// `fuse_release_in`.
    ReleaseIn, 24 {
        fh: u64, flags: u32, release_flags: u32, lock_owner: u64,
    }
}
wire! {
    /// `fuse_flush_in`.
    FlushIn, 24 {
        fh: u64, _unused: u32, _padding: u32, lock_owner: u64,
    }
}
wire! {
    /// `fuse_read_in` and `fuse_write_in`.
    TransferIn, 40 {
        fh: u64, offset: u64, size: u32, transfer_flags: u32, lock_owner: u64, flags: u32, _padding: u32,
    }
}
wire! {
    /// `fuse_fsync_in`.
    FsyncIn, 16 {
        fh: u64, flags: u32, _padding: u32,
    }
}
wire! {
    /// `fuse_setxattr_in` up to `FUSE_COMPAT_SETXATTR_IN_SIZE`.
    SetXattrIn, 8 {
        size: u32, flags: u32,
    }
}
wire! {
    /// What `FUSE_SETXATTR_EXT` adds to `fuse_setxattr_in`.
    SetXattrExt, 8 {
        flags: u32, _padding: u32,
    }
}
wire! {
    /// `fuse_getxattr_in`.
    GetXattrIn, 8 {
        size: u32, _padding: u32,
    }
}
wire! {
    /// `fuse_lk_in`.
    LockIn, 48 {
        fh: u64, owner: u64, lock: FileLock, flags: u32, _padding: u32,
    }
}
wire! {
    /// `fuse_access_in`.
    AccessIn, 8 {
        mask: u32, _padding: u32,
    }
}
wire! {
    /// `fuse_init_in` up to protocol 7.35; `flags2` follows from 7.36 on.
    InitIn, 16 {
        major: u32, minor: u32, max_readahead: u32, flags: u32,
    }
}
wire! {
    /// `fuse_bmap_in`.
    BmapIn, 16 {
        block: u64, block_size: u32, _padding: u32,
    }
}
wire! {
    /// `fuse_ioctl_in`.
    IoctlIn, 32 {
        fh: u64, flags: u32, cmd: u32, arg: u64, in_size: u32, out_size: u32,
    }
}
wire! {
    /// `fuse_poll_in`.
    PollIn, 24 {
        fh: u64, kh: u64, flags: u32, events: u32,
    }
}
wire! {
    /// `fuse_fallocate_in`.
    FallocateIn, 32 {
        fh: u64, offset: u64, length: u64, mode: u32, _padding: u32,
    }
}
wire! {
    /// `fuse_lseek_in`.
    LseekIn, 24 {
        fh: u64, offset: u64, whence: u32, _padding: u32,
    }
}
wire! {
    /// `fuse_copy_file_range_in`.
    CopyFileRangeIn, 56 {
        fh_in: u64, offset_in: u64, node_out: u64, fh_out: u64, offset_out: u64, len: u64, flags: u64,
    }
}
wire! {
    /// `fuse_statx_in`.
    StatxIn, 24 {
        getattr_flags: u32, _reserved: u32, fh: u64, flags: u32, mask: u32,
    }
}
wire! {
    /// `fuse_ext_header`.
    ExtensionHeader, 8 {
        size: u32, kind: u32,
    }
}

wire! {
    /// `fuse_uring_ent_in_out`.
    RingEntryInOut, 32 {
        flags: u64, commit_id: u64, payload_bytes: u32, _padding: u32, _reserved: u64,
    }
}
wire! {
    /// `fuse_uring_cmd_req`, in a submission from byte 48 on.
    RingCommand, 24 {
        flags: u64, commit_id: u64, queue: u16, _padding: [u8; 6],
    }
}

/// `fuse_uring_req_header`: what an entry of a ring has besides its payload.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct RingHeader {
    /// `fuse_in_header` of a request, `fuse_out_header` of its reply.
    pub(crate) in_out: [u8; 128],
    /// The first structure of a request, if it has one.
    pub(crate) op_in: [u8; 128],
    pub(crate) entry: RingEntryInOut,
}
const _: () = assert!(size_of::<RingHeader>() == 288);
const _: () = assert!(std::mem::offset_of!(RingHeader, op_in) == 128);
const _: () = assert!(std::mem::offset_of!(RingHeader, entry) == 256);

/// `enum fuse_uring_cmd`.
pub(crate) mod ring_command {
    pub(crate) const REGISTER: u32 = 1;
    pub(crate) const COMMIT_AND_FETCH: u32 = 2;
}

/// `enum fuse_opcode`, without what concerns DAX windows and character devices.
pub(crate) mod opcode {
    pub(crate) const LOOKUP: u32 = 1;
    pub(crate) const FORGET: u32 = 2;
    pub(crate) const GETATTR: u32 = 3;
    pub(crate) const SETATTR: u32 = 4;
    pub(crate) const READLINK: u32 = 5;
    pub(crate) const SYMLINK: u32 = 6;
    pub(crate) const MKNOD: u32 = 8;
    pub(crate) const MKDIR: u32 = 9;
    pub(crate) const UNLINK: u32 = 10;
    pub(crate) const RMDIR: u32 = 11;
    pub(crate) const RENAME: u32 = 12;
    pub(crate) const LINK: u32 = 13;
    pub(crate) const OPEN: u32 = 14;
    pub(crate) const READ: u32 = 15;
    pub(crate) const WRITE: u32 = 16;
    pub(crate) const STATFS: u32 = 17;
    pub(crate) const RELEASE: u32 = 18;
    pub(crate) const FSYNC: u32 = 20;
    pub(crate) const SETXATTR: u32 = 21;
    pub(crate) const GETXATTR: u32 = 22;
    pub(crate) const LISTXATTR: u32 = 23;
    pub(crate) const REMOVEXATTR: u32 = 24;
    pub(crate) const FLUSH: u32 = 25;
    pub(crate) const INIT: u32 = 26;
    pub(crate) const OPENDIR: u32 = 27;
    pub(crate) const READDIR: u32 = 28;
    pub(crate) const RELEASEDIR: u32 = 29;
    pub(crate) const FSYNCDIR: u32 = 30;
    pub(crate) const GETLK: u32 = 31;
    pub(crate) const SETLK: u32 = 32;
    pub(crate) const SETLKW: u32 = 33;
    pub(crate) const ACCESS: u32 = 34;
    pub(crate) const CREATE: u32 = 35;
    pub(crate) const INTERRUPT: u32 = 36;
    pub(crate) const BMAP: u32 = 37;
    pub(crate) const DESTROY: u32 = 38;
    pub(crate) const IOCTL: u32 = 39;
    pub(crate) const POLL: u32 = 40;
    pub(crate) const BATCH_FORGET: u32 = 42;
    pub(crate) const FALLOCATE: u32 = 43;
    pub(crate) const READDIRPLUS: u32 = 44;
    pub(crate) const RENAME2: u32 = 45;
    pub(crate) const LSEEK: u32 = 46;
    pub(crate) const COPY_FILE_RANGE: u32 = 47;
    pub(crate) const SYNCFS: u32 = 50;
    pub(crate) const TMPFILE: u32 = 51;
    pub(crate) const STATX: u32 = 52;
    pub(crate) const COPY_FILE_RANGE_64: u32 = 53;
}

/// `FATTR_*`: which fields of `fuse_setattr_in` hold a value.
pub(crate) mod fattr {
    pub(crate) const MODE: u32 = 1 << 0;
    pub(crate) const UID: u32 = 1 << 1;
    pub(crate) const GID: u32 = 1 << 2;
    pub(crate) const SIZE: u32 = 1 << 3;
    pub(crate) const ATIME: u32 = 1 << 4;
    pub(crate) const MTIME: u32 = 1 << 5;
    pub(crate) const FH: u32 = 1 << 6;
    pub(crate) const ATIME_NOW: u32 = 1 << 7;
    pub(crate) const MTIME_NOW: u32 = 1 << 8;
    pub(crate) const LOCKOWNER: u32 = 1 << 9;
    pub(crate) const CTIME: u32 = 1 << 10;
    pub(crate) const KILL_SUIDGID: u32 = 1 << 11;
}

/// `FUSE_GETATTR_FH`: the request names an open file.
pub(crate) const GETATTR_FH: u32 = 1;
/// `FUSE_OPEN_KILL_SUIDGID`.
pub(crate) const OPEN_KILL_SUIDGID: u32 = 1;
/// `FUSE_READ_LOCKOWNER` and `FUSE_WRITE_LOCKOWNER`: `lock_owner` holds a value.
pub(crate) const TRANSFER_LOCKOWNER: u32 = 1 << 1;
/// `FUSE_WRITE_CACHE`: the kernel writes back pages of its cache, and has guessed the handle.
pub(crate) const WRITE_CACHE: u32 = 1;
/// `FUSE_WRITE_KILL_SUIDGID`.
pub(crate) const WRITE_KILL_SUIDGID: u32 = 1 << 2;
/// `FUSE_RELEASE_FLUSH`: `lock_owner` holds a value.
pub(crate) const RELEASE_FLUSH: u32 = 1;
/// `FUSE_RELEASE_FLOCK_UNLOCK`.
pub(crate) const RELEASE_FLOCK_UNLOCK: u32 = 1 << 1;
/// `FUSE_FSYNC_FDATASYNC`.
pub(crate) const FSYNC_FDATASYNC: u32 = 1;
/// `FUSE_LK_FLOCK`.
pub(crate) const LK_FLOCK: u32 = 1;
/// `FUSE_SETXATTR_ACL_KILL_SGID`.
pub(crate) const SETXATTR_ACL_KILL_SGID: u32 = 1;
/// `FUSE_POLL_SCHEDULE_NOTIFY`.
pub(crate) const POLL_SCHEDULE_NOTIFY: u32 = 1;
/// `FUSE_EXPIRE_ONLY`.
pub(crate) const EXPIRE_ONLY: u32 = 1;
/// `FUSE_EXT_GROUPS`: an extension that holds supplementary groups.
pub(crate) const EXT_GROUPS: u32 = 32;

/// `FUSE_UNIQUE_RESEND`: in the id of a request that is delivered again.
pub(crate) const UNIQUE_RESEND: u64 = 1 << 63;

/// `enum fuse_notify_code`.
pub(crate) mod notify {
    pub(crate) const INVAL_INODE: i32 = 2;
    pub(crate) const INVAL_ENTRY: i32 = 3;
    pub(crate) const DELETE: i32 = 6;
    pub(crate) const RESEND: i32 = 7;
    pub(crate) const INC_EPOCH: i32 = 8;
}
