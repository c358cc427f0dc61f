//! The operations of protocol 7.45.

use crate::abi;
use crate::types::{Handle, Lock, Node, Time, Unique};
use std::ffi::OsStr;
use zerocopy::FromBytes;

/// What a request asks for. Its subject is [`super::Request::node`]. Names are bytes of any kind but NUL and slash.
///
/// `mode`, `flags` of files, `whence`, `mask` and the like are the numbers of Linux (`O_*`, `S_*`, `SEEK_*`, `R_OK`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Op<'a> {
    /// The first request. Answer: [`crate::Negotiated::reply`].
    Init(Init),
    /// The last request of a mount that ends in good order. Answer: [`crate::Reply::ok`].
    Destroy,
    /// Finds a name in a directory. Answer: an entry, which counts one lookup of the node.
    Lookup {
        /// The name.
        name: &'a OsStr,
    },
    /// The kernel drops so many lookups of the node. No answer.
    Forget {
        /// How many.
        lookups: u64,
    },
    /// The kernel drops lookups of several nodes. No answer.
    BatchForget(Forgets<'a>),
    /// Answer: attributes.
    GetAttr {
        /// An open file of the node, if the caller used one.
        fh: Option<Handle>,
    },
    /// Changes attributes. Answer: attributes.
    SetAttr(SetAttr),
    /// Answer: `statx`.
    Statx {
        /// An open file of the node, if the caller used one.
        fh: Option<Handle>,
        /// `AT_STATX_*`.
        flags: u32,
        /// `STATX_*`: which fields are asked for.
        mask: u32,
    },
    /// Reads a symbolic link. Answer: its target as data.
    ReadLink,
    /// Makes a symbolic link. Answer: an entry.
    Symlink {
        /// The name.
        name: &'a OsStr,
        /// The target.
        target: &'a OsStr,
    },
    /// Makes a file of any kind but directories and links. Answer: an entry.
    MkNod {
        /// The name.
        name: &'a OsStr,
        /// Kind and permissions; the umask is applied unless `DontMask` was negotiated.
        mode: u32,
        /// Number of the device, for devices.
        rdev: u32,
        /// The caller's umask.
        umask: u32,
    },
    /// Makes a directory. Answer: an entry.
    MkDir {
        /// The name.
        name: &'a OsStr,
        /// Permissions; the umask is applied unless `DontMask` was negotiated.
        mode: u32,
        /// The caller's umask.
        umask: u32,
    },
    /// Removes a name of a file. Answer: none but success.
    Unlink {
        /// The name.
        name: &'a OsStr,
    },
    /// Removes an empty directory. Answer: none but success.
    RmDir {
        /// The name.
        name: &'a OsStr,
    },
    /// RENAME and RENAME2. Answer: none but success.
    Rename {
        /// The old name, in the request's node.
        name: &'a OsStr,
        /// The new directory.
        new_parent: Node,
        /// The new name.
        new_name: &'a OsStr,
        /// `RENAME_*` of `renameat2`; 0 for RENAME.
        flags: u32,
    },
    /// Adds a name, in the request's node, to a file. Answer: an entry.
    Link {
        /// The file.
        target: Node,
        /// The new name.
        name: &'a OsStr,
    },
    /// Opens a file. Answer: [`crate::Opened`].
    Open(Open),
    /// Opens a directory. Answer: [`crate::Opened`].
    OpenDir(Open),
    /// Makes and opens a file. Answer: an entry and [`crate::Opened`].
    Create {
        /// The name.
        name: &'a OsStr,
        /// Permissions; the umask is applied unless `DontMask` was negotiated.
        mode: u32,
        /// The caller's umask.
        umask: u32,
        /// How it is opened.
        open: Open,
    },
    /// Makes and opens a file without a name (`O_TMPFILE`) in the request's node. Answer: an entry and [`crate::Opened`].
    TmpFile {
        /// Permissions; the umask is applied unless `DontMask` was negotiated.
        mode: u32,
        /// The caller's umask.
        umask: u32,
        /// How it is opened.
        open: Open,
    },
    /// Answer: at most `size` bytes as data; fewer mean the end of the file.
    Read(Read),
    /// The data are in the frames that were given to [`crate::Device::receive`], from their first byte on. Answer:
    /// [`crate::Reply::written`].
    Write(Write),
    /// Answer: [`crate::StatFs`].
    StatFs,
    /// An open file is closed for good. Answer: none but success.
    Release(Release),
    /// An open directory is closed for good. Answer: none but success.
    ReleaseDir(Release),
    /// `fsync` and `fdatasync` of a file. Answer: none but success.
    Fsync {
        /// The open file.
        fh: Handle,
        /// `fdatasync`.
        data_only: bool,
    },
    /// `fsync` and `fdatasync` of a directory. Answer: none but success.
    FsyncDir {
        /// The open directory.
        fh: Handle,
        /// `fdatasync`.
        data_only: bool,
    },
    /// `syncfs`. Answer: none but success.
    SyncFs,
    /// A descriptor of an open file is closed. Answer: none but success.
    Flush {
        /// The open file.
        fh: Handle,
        /// The owner of POSIX locks that end with it.
        lock_owner: u64,
    },
    /// Answer: none but success.
    SetXattr {
        /// The attribute's name.
        name: &'a OsStr,
        /// Its value.
        value: &'a [u8],
        /// `XATTR_CREATE`, `XATTR_REPLACE`.
        flags: u32,
        /// The set-group-ID bit is to be cleared with it (`FUSE_SETXATTR_ACL_KILL_SGID`).
        clear_sgid: bool,
    },
    /// Answer: the value as data; where `size` is 0, its length ([`crate::Reply::xattr_size`]); where it is too small, `ERANGE`.
    GetXattr {
        /// The attribute's name.
        name: &'a OsStr,
        /// Bytes that the caller has room for.
        size: u32,
    },
    /// Answer: names that each end with a NUL, as data; the same rules as for [`Op::GetXattr`].
    ListXattr {
        /// Bytes that the caller has room for.
        size: u32,
    },
    /// Answer: none but success.
    RemoveXattr {
        /// The attribute's name.
        name: &'a OsStr,
    },
    /// Answer: a [`crate::DirBuffer`].
    ReadDir(ReadDir),
    /// Answer: a [`crate::DirBuffer`] of entries with their attributes; each counts one lookup.
    ReadDirPlus(ReadDir),
    /// Who is in the way of a lock? Answer: [`crate::Reply::lock`].
    GetLock(LockRequest),
    /// Locks or unlocks without waiting: `EAGAIN` where something is in the way. Answer: none but success.
    SetLock(LockRequest),
    /// Locks or unlocks, and waits. Answer, when it is granted: none but success; `EINTR` after an interrupt.
    SetLockWait(LockRequest),
    /// `access`, where the kernel does not check permissions. Answer: none but success.
    Access {
        /// `R_OK`, `W_OK`, `X_OK`.
        mask: u32,
    },
    /// The caller of another request has been interrupted. No answer; the other one may be answered with `EINTR`.
    Interrupt {
        /// The other request.
        unique: Unique,
    },
    /// Answer: [`crate::Reply::block`].
    Bmap {
        /// Index of a block of the file.
        block: u64,
        /// Bytes of a block.
        block_size: u32,
    },
    /// Answer: [`crate::Reply::ioctl`], with output as data behind it.
    Ioctl {
        /// The open file.
        fh: Handle,
        /// `FUSE_IOCTL_*`.
        flags: u32,
        /// The command.
        cmd: u32,
        /// Its argument.
        arg: u64,
        /// Bytes from the caller.
        input: &'a [u8],
        /// Bytes of output that the caller has room for.
        out_size: u32,
    },
    /// Answer: [`crate::Reply::poll`].
    Poll {
        /// The open file.
        fh: Handle,
        /// The kernel's id of the waiter.
        kh: u64,
        /// `POLL*` that are waited for.
        events: u32,
        /// The waiter wants to be notified.
        schedule_notify: bool,
    },
    /// Answer: none but success.
    Fallocate {
        /// The open file.
        fh: Handle,
        /// First byte.
        offset: u64,
        /// Number of bytes.
        length: u64,
        /// `FALLOC_FL_*`.
        mode: u32,
    },
    /// `SEEK_DATA` and `SEEK_HOLE`. Answer: [`crate::Reply::seek`].
    Lseek {
        /// The open file.
        fh: Handle,
        /// Where the search begins.
        offset: u64,
        /// `SEEK_*`.
        whence: u32,
    },
    /// Copies from the request's node to another one. Answer: [`crate::Reply::copied`].
    CopyFileRange(CopyFileRange),
    /// Anything else. Answer: `ENOSYS`, after which the kernel does without, where it can.
    Unknown,
}

impl Op<'_> {
    /// False for the operations that must not be answered.
    pub fn wants_reply(&self) -> bool {
        !matches!(self, Op::Forget { .. } | Op::BatchForget(_) | Op::Interrupt { .. })
    }
}

/// What the kernel says of itself in INIT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Init {
    /// Major version of its protocol.
    pub major: u32,
    /// Minor version of its protocol.
    pub minor: u32,
    /// Bytes that it may read ahead.
    pub max_readahead: u32,
    /// `FUSE_*` flags that it offers, both words.
    pub flags: u64,
}

/// The lookups that a BATCH_FORGET drops, node by node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forgets<'a> {
    /// Whole `fuse_forget_one`s.
    pub(super) bytes: &'a [u8],
}

impl Iterator for Forgets<'_> {
    /// A node, and how many of its lookups are dropped.
    type Item = (Node, u64);

    fn next(&mut self) -> Option<Self::Item> {
        let (one, left) = abi::ForgetOne::read_from_prefix(self.bytes).ok()?;
        self.bytes = left;
        Some((Node(one.node), one.lookups))
    }
}

/// The attributes to change; `None`: stays as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttr {
    /// An open file of the node, if the caller used one.
    pub fh: Option<Handle>,
    /// Permissions.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Length in bytes.
    pub size: Option<u64>,
    /// Time of the last access.
    pub atime: Option<SetTime>,
    /// Time of the last change of the data.
    pub mtime: Option<SetTime>,
    /// Time of the last change of the attributes; sent where the kernel keeps it (write-back cache).
    pub ctime: Option<Time>,
    /// The owner of locks, of a truncate.
    pub lock_owner: Option<u64>,
    /// The set-user-ID and set-group-ID bits are to be cleared (`FATTR_KILL_SUIDGID`).
    pub kill_suid_gid: bool,
}

/// The time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The file system's present time.
    Now,
    /// This time.
    To(Time),
}

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Open {
    /// `O_*`.
    pub flags: u32,
    /// With `O_TRUNC`: the set-user-ID and set-group-ID bits are to be cleared.
    pub kill_suid_gid: bool,
}

/// READ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// The open file.
    pub fh: Handle,
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub size: u32,
    /// The owner of locks, where mandatory locks count.
    pub lock_owner: Option<u64>,
    /// `O_*` of the open file.
    pub flags: u32,
}

/// WRITE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write {
    /// The open file; with `from_cache` one that the kernel guessed.
    pub fh: Handle,
    /// First byte.
    pub offset: u64,
    /// Number of bytes: all of them are in the caller's frames.
    pub size: u32,
    /// Pages of the kernel's cache are written back, for nobody in particular (`FUSE_WRITE_CACHE`).
    pub from_cache: bool,
    /// The set-user-ID and set-group-ID bits are to be cleared.
    pub kill_suid_gid: bool,
    /// The owner of locks, where mandatory locks count.
    pub lock_owner: Option<u64>,
    /// `O_*` of the open file.
    pub flags: u32,
}

/// RELEASE and RELEASEDIR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Release {
    /// The open file or directory.
    pub fh: Handle,
    /// `O_*` of it.
    pub flags: u32,
    /// The owner of POSIX locks that end with it.
    pub lock_owner: Option<u64>,
    /// The owner whose `flock` ends with it (`FUSE_RELEASE_FLOCK_UNLOCK`).
    pub flock_owner: Option<u64>,
}

/// READDIR and READDIRPLUS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadDir {
    /// The open directory.
    pub fh: Handle,
    /// 0, or the `next_offset` of the entry that the caller has seen last.
    pub offset: u64,
    /// Bytes that the reply may hold: the limit of [`crate::DirBuffer`].
    pub size: u32,
}

/// GETLK, SETLK and SETLKW.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockRequest {
    /// The open file.
    pub fh: Handle,
    /// Whose lock it is.
    pub owner: u64,
    /// The lock.
    pub lock: Lock,
    /// It is a lock of `flock`, on the whole file.
    pub flock: bool,
}

/// COPY_FILE_RANGE and COPY_FILE_RANGE_64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyFileRange {
    /// The open source, of the request's node.
    pub fh_in: Handle,
    /// Its first byte.
    pub offset_in: u64,
    /// The target.
    pub node_out: Node,
    /// The open target.
    pub fh_out: Handle,
    /// Its first byte.
    pub offset_out: u64,
    /// Number of bytes.
    pub len: u64,
    /// Flags of `copy_file_range`, 0 so far.
    pub flags: u64,
    /// How the reply counts the bytes.
    pub count: CopyCount,
}

/// How the reply to a copy counts its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyCount {
    /// In 32 bits (COPY_FILE_RANGE): longer copies are cut.
    Bits32,
    /// In 64 bits (COPY_FILE_RANGE_64, from protocol 7.45 on).
    Bits64,
}
