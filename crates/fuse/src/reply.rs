//! Replies of fixed size, and the header of replies that carry data.

use crate::abi;
use crate::attr::{Attr, Entry, Opened, StatFs, Statx};
use crate::errno::Errno;
use crate::request::CopyCount;
use crate::types::{Lock, LockKind, Unique};
use std::time::Duration;
use zerocopy::{Immutable, IntoBytes};

/// Bytes of `fuse_out_header`.
pub const REPLY_HEADER_BYTES: usize = 16;
/// Bytes of the longest reply of fixed size: STATX.
const REPLY_BYTES_MAX: usize = REPLY_HEADER_BYTES + 288;

/// An encoded reply of fixed size, to be sent by [`crate::Device::reply`].
#[derive(Clone, Copy, Debug)]
pub struct Reply {
    bytes: [u8; REPLY_BYTES_MAX],
    len: usize,
}

impl Reply {
    /// The operation failed.
    pub fn error(unique: Unique, errno: Errno) -> Self {
        Self::new(unique, -errno.raw())
    }

    /// The operation succeeded, and there is nothing to say.
    pub fn ok(unique: Unique) -> Self {
        Self::new(unique, 0)
    }

    /// Answers LOOKUP, MKNOD, MKDIR, SYMLINK, LINK.
    pub fn entry(unique: Unique, entry: &Entry) -> Self {
        Self::of(unique, &entry.to_abi())
    }

    /// Answers LOOKUP: there is no such name, and the kernel may remember that for `valid`.
    pub fn no_entry(unique: Unique, valid: Duration) -> Self {
        Self::entry(unique, &Entry { entry_valid: valid, ..Entry::default() })
    }

    /// Answers GETATTR, SETATTR; the kernel may keep the attributes for `valid`.
    pub fn attr(unique: Unique, attr: &Attr, valid: Duration) -> Self {
        let raw = abi::AttrOut {
            valid: valid.as_secs(),
            valid_nanos: valid.subsec_nanos(),
            attr: attr.to_abi(),
            ..abi::AttrOut::default()
        };
        Self::of(unique, &raw)
    }

    /// Answers STATX.
    pub fn statx(unique: Unique, statx: &Statx) -> Self {
        Self::of(unique, &statx.to_abi())
    }

    /// Answers OPEN, OPENDIR.
    pub fn opened(unique: Unique, opened: Opened) -> Self {
        Self::of(unique, &opened.to_abi())
    }

    /// Answers CREATE, TMPFILE.
    pub fn created(unique: Unique, entry: &Entry, opened: Opened) -> Self {
        Self::of(unique, &entry.to_abi()).and(&opened.to_abi())
    }

    /// Answers WRITE: so many bytes were written.
    pub fn written(unique: Unique, bytes: u32) -> Self {
        Self::of(unique, &abi::WriteOut { size: bytes, ..abi::WriteOut::default() })
    }

    /// Answers COPY_FILE_RANGE and its form with 64 bits: so many bytes were copied.
    pub fn copied(unique: Unique, bytes: u64, count: CopyCount) -> Self {
        match count {
            CopyCount::Bits64 => Self::of(unique, &bytes),
            CopyCount::Bits32 => Self::written(unique, u32::try_from(bytes).unwrap_or(u32::MAX)),
        }
    }

    /// Answers STATFS.
    pub fn statfs(unique: Unique, statfs: &StatFs) -> Self {
        Self::of(unique, &statfs.to_abi())
    }

    /// Answers GETXATTR and LISTXATTR of size 0: room for so many bytes is needed.
    pub fn xattr_size(unique: Unique, bytes: u32) -> Self {
        Self::written(unique, bytes)
    }

    /// Answers GETLK: the lock that is in the way, or `None`.
    pub fn lock(unique: Unique, lock: Option<Lock>) -> Self {
        let none = Lock { start: 0, end: 0, kind: LockKind::Unlock, pid: 0 };
        Self::of(unique, &lock.unwrap_or(none).to_abi())
    }

    /// Answers LSEEK: the offset that was found.
    pub fn seek(unique: Unique, offset: u64) -> Self {
        Self::of(unique, &offset)
    }

    /// Answers BMAP: the index of the block on the device.
    pub fn block(unique: Unique, block: u64) -> Self {
        Self::of(unique, &block)
    }

    /// Answers POLL: `POLL*` that are true.
    pub fn poll(unique: Unique, events: u32) -> Self {
        Self::of(unique, &abi::PollOut { events, ..abi::PollOut::default() })
    }

    /// Answers IOCTL with its result. `output_bytes` of output follow as data.
    pub fn ioctl(unique: Unique, result: i32, output_bytes: usize) -> Self {
        let raw = abi::IoctlOut { result, ..abi::IoctlOut::default() };
        let mut reply = Self::of(unique, &raw);
        reply.set_len(reply.len + output_bytes);
        reply
    }

    /// The head of a reply with `data_bytes` of data behind it: READ, READLINK, READDIR, GETXATTR, LISTXATTR.
    pub fn data(unique: Unique, data_bytes: usize) -> Self {
        let mut reply = Self::ok(unique);
        reply.set_len(REPLY_HEADER_BYTES + data_bytes);
        reply
    }

    /// Answers INIT.
    pub(crate) fn init(unique: Unique, raw: &abi::InitOut) -> Self {
        Self::of(unique, raw)
    }

    /// The same reply, to the request's id with a mark ([`Unique::marked`]).
    #[must_use]
    pub fn marked(mut self) -> Self {
        let (header, _) = self.bytes.split_at_mut(REPLY_HEADER_BYTES);
        let id = u64::from_le_bytes(*header.last_chunk().expect("it ends with the id"));
        header[8..].copy_from_slice(&Unique(id).marked().0.to_le_bytes());
        self
    }

    /// True for a reply to an id with a mark.
    pub fn is_marked(&self) -> bool {
        let id = self.bytes[..REPLY_HEADER_BYTES].last_chunk().expect("it ends with the id");
        Unique(u64::from_le_bytes(*id)).is_marked()
    }

    /// The encoded bytes, without data behind them.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    fn new(unique: Unique, error: i32) -> Self {
        let mut reply = Self { bytes: [0; REPLY_BYTES_MAX], len: 0 };
        let header = abi::OutHeader { error, unique: unique.0, ..abi::OutHeader::default() };
        reply.push(header.as_bytes());
        reply
    }

    fn of<T: IntoBytes + Immutable>(unique: Unique, body: &T) -> Self {
        Self::ok(unique).and(body)
    }

    fn and<T: IntoBytes + Immutable>(mut self, body: &T) -> Self {
        self.push(body.as_bytes());
        self
    }

    fn push(&mut self, bytes: &[u8]) {
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
        self.set_len(self.len);
    }

    /// Writes the length of the whole reply into its header.
    fn set_len(&mut self, bytes: usize) {
        // A reply has less than 4 GiB: sizes of requests have 32 bits. A longer one is refused by the kernel.
        let len = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.bytes[..4].copy_from_slice(len.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attr::OpenFlags;
    use crate::types::{Handle, Node, Time};

    /// Words of 4 bytes that a reply has behind its header, and the checked header.
    #[track_caller]
    fn words(reply: &Reply, error: i32) -> Vec<u32> {
        let word = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().unwrap());
        let words: Vec<u32> = reply.as_bytes().chunks(4).map(word).collect();
        let len = u32::try_from(reply.as_bytes().len()).unwrap();
        assert_eq!(words[..4], [len, error.cast_unsigned(), 7, 0]);
        words[4..].to_vec()
    }

    const U: Unique = Unique(7);

    fn attr() -> Attr {
        let time = |seconds, nanos| Time { seconds, nanos };
        Attr {
            ino: 1,
            size: 2,
            blocks: 3,
            atime: time(-4, 7),
            mtime: time(5, 8),
            ctime: time(6, 9),
            mode: 0o100_644,
            nlink: 11,
            uid: 12,
            gid: 13,
            rdev: 0x0010_0302,
            block_size: 4096,
        }
    }

    /// `attr` as the header lays it out.
    const ATTR: [u32; 22] = [
        1,
        0,
        2,
        0,
        3,
        0,
        u32::MAX - 3,
        u32::MAX,
        5,
        0,
        6,
        0,
        7,
        8,
        9,
        0o100_644,
        11,
        12,
        13,
        0x0010_0302,
        4096,
        0,
    ];
    const ENTRY: [u32; 10] = [21, 0, 22, 0, 1, 0, 2, 0, 500_000_000, 3];

    fn entry() -> Entry {
        let (entry_valid, attr_valid) = (Duration::from_millis(1500), Duration::new(2, 3));
        Entry { node: Node(21), generation: 22, entry_valid, attr_valid, attr: attr() }
    }

    #[test]
    fn results_without_a_body_are_encoded() {
        assert!(words(&Reply::ok(U), 0).is_empty());
        assert!(words(&Reply::error(U, Errno::NOENT), -2).is_empty());
        assert!(words(&Reply::error(U, Errno::from_raw(600)), -5).is_empty());
        assert!(words(&Reply::error(U, Errno::from_raw(0)), -5).is_empty());
        assert!(words(&Reply::error(U, Errno::from_raw(-2)), -5).is_empty());
    }

    #[test]
    fn entries_attributes_and_opens_are_encoded() {
        let entry_words = [&ENTRY[..], &ATTR].concat();
        assert_eq!(words(&Reply::entry(U, &entry()), 0), entry_words);
        let attr_words = [&[2, 0, 3, 0][..], &ATTR].concat();
        assert_eq!(words(&Reply::attr(U, &attr(), Duration::new(2, 3)), 0), attr_words);
        let opened =
            Opened { fh: Handle(5), flags: OpenFlags::DIRECT_IO.with(OpenFlags::PARALLEL_DIRECT_WRITES) };
        assert_eq!(words(&Reply::opened(U, opened), 0), [5, 0, 65, 0]);
        let created = [&entry_words[..], &[5, 0, 65, 0]].concat();
        assert_eq!(words(&Reply::created(U, &entry(), opened), 0), created);
        let none = words(&Reply::no_entry(U, Duration::from_secs(1)), 0);
        assert_eq!((none.len(), none[0], none[4], none.iter().sum::<u32>()), (32, 0, 1, 1));
    }

    #[test]
    fn numbers_are_encoded() {
        assert_eq!(words(&Reply::written(U, 4096), 0), [4096, 0]);
        assert_eq!(words(&Reply::xattr_size(U, 12), 0), [12, 0]);
        assert_eq!(words(&Reply::copied(U, 1 << 33, CopyCount::Bits64), 0), [0, 2]);
        assert_eq!(words(&Reply::copied(U, 1 << 33, CopyCount::Bits32), 0), [u32::MAX, 0]);
        assert_eq!(words(&Reply::seek(U, 1 << 33), 0), [0, 2]);
        assert_eq!(words(&Reply::block(U, 9), 0), [9, 0]);
        assert_eq!(words(&Reply::poll(U, 0x41), 0), [0x41, 0]);
        let lock = Lock { start: 1, end: 2, kind: LockKind::Write, pid: 3 };
        assert_eq!(words(&Reply::lock(U, Some(lock)), 0), [1, 0, 2, 0, 1, 3]);
        assert_eq!(words(&Reply::lock(U, None), 0), [0, 0, 0, 0, 2, 0]);
    }

    #[test]
    fn numbers_of_the_file_system_are_encoded() {
        let (blocks, blocks_free, blocks_available) = (100, 60, 50);
        let (block_size, files, files_free, name_len) = (4096, 10, 4, 255);
        let statfs =
            StatFs { block_size, blocks, blocks_free, blocks_available, files, files_free, name_len };
        let words = words(&Reply::statfs(U, &statfs), 0);
        assert_eq!(words[..13], [100, 0, 60, 0, 50, 0, 10, 0, 4, 0, 4096, 255, 4096]);
        assert_eq!(words.len(), 20);
    }

    #[test]
    fn statx_is_encoded() {
        let statx = Statx {
            valid: Duration::new(2, 3),
            mask: 0xFFF,
            attr: attr(),
            btime: Time { seconds: 14, nanos: 15 },
        };
        let words = words(&Reply::statx(U, &statx), 0);
        assert_eq!(words.len(), 72);
        assert_eq!(words[..4], [2, 0, 3, 0]);
        assert_eq!(words[8..16], [0xFFF, 4096, 0, 0, 11, 12, 13, 0o100_644]);
        assert_eq!(words[16..22], [1, 0, 2, 0, 3, 0]);
        assert_eq!(words[24..28], [u32::MAX - 3, u32::MAX, 7, 0], "atime");
        assert_eq!(words[28..32], [14, 0, 15, 0], "btime");
        assert_eq!(words[32..40], [6, 0, 9, 0, 5, 0, 8, 0], "ctime, mtime");
        assert_eq!(words[40..42], [3, 0x102], "device 3:258");
    }

    #[test]
    fn headers_count_the_data_behind_them() {
        let data = Reply::data(U, 4096);
        assert_eq!(data.as_bytes(), [0x10, 0x10, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0]);
        let ioctl = Reply::ioctl(U, -1, 8);
        assert_eq!(ioctl.as_bytes()[..4], [40, 0, 0, 0]);
        assert_eq!(ioctl.as_bytes()[16..20], [0xFF; 4]);
        assert_eq!(ioctl.as_bytes().len(), 32);
    }
}
