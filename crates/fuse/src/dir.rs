//! Entries of a directory, for READDIR and READDIRPLUS.

use crate::abi;
use crate::attr::Entry;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use zerocopy::IntoBytes;

/// Bytes that the kernel accepts in a name (`FUSE_NAME_MAX`).
pub const NAME_BYTES_MAX: usize = 1024;

/// An entry of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirEntry<'a> {
    /// Inode number as `readdir` shows it.
    pub ino: u64,
    /// Where a later READDIR goes on behind this entry; never 0.
    pub next_offset: u64,
    /// The kind, as `S_IFMT` of a mode; other bits are ignored.
    pub mode: u32,
    /// The name.
    pub name: &'a OsStr,
}

/// Entries encoded one behind the other, up to the number of bytes that the request has room for.
#[derive(Debug, Default)]
pub struct DirBuffer {
    bytes: Vec<u8>,
    limit: usize,
}

impl DirBuffer {
    /// Room for `limit` bytes, the request's `size`.
    pub fn new(limit: u32) -> Self {
        let mut buffer = Self::default();
        buffer.reset(limit);
        buffer
    }

    /// Empties the buffer for another request; its memory stays.
    pub fn reset(&mut self, limit: u32) {
        self.bytes.clear();
        self.limit = usize::try_from(limit).unwrap_or(usize::MAX);
    }

    /// Adds an entry of READDIR. False: there is no room, and the buffer is to be sent as it is.
    #[must_use]
    pub fn push(&mut self, entry: &DirEntry<'_>) -> bool {
        self.add(None, entry)
    }

    /// Adds an entry of READDIRPLUS. Each one that was added with a node counts one lookup of it, but `.` and `..`: pass
    /// `None` for them. False: there is no room, and nothing was counted.
    #[must_use]
    pub fn push_plus(&mut self, entry: &DirEntry<'_>, node: Option<&Entry>) -> bool {
        self.add(Some(node.map(|node| node.to_abi()).unwrap_or_default()), entry)
    }

    fn add(&mut self, node: Option<abi::EntryOut>, entry: &DirEntry<'_>) -> bool {
        let name = entry.name.as_bytes();
        let node = node.as_ref().map_or(&[][..], |node| node.as_bytes());
        let raw = abi::DirEntryOut {
            ino: entry.ino,
            next_offset: entry.next_offset,
            name_len: u32::try_from(name.len()).unwrap_or(u32::MAX),
            kind: (entry.mode & libc::S_IFMT) >> 12,
        };
        let needed = (node.len() + raw.as_bytes().len() + name.len()).next_multiple_of(8);
        if self.bytes.len() + needed > self.limit {
            return false;
        }
        let end = self.bytes.len() + needed;
        self.bytes.extend_from_slice(node);
        self.bytes.extend_from_slice(raw.as_bytes());
        self.bytes.extend_from_slice(name);
        self.bytes.resize(end, 0);
        true
    }

    /// The encoded entries, for [`crate::Device::reply_data`].
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// True if no entry was added: the end of the directory, or an entry that is longer than the request has room for.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Node;

    fn entry(name: &str) -> DirEntry<'_> {
        DirEntry { ino: 5, next_offset: 6, mode: 0o040_755, name: OsStr::new(name) }
    }

    #[test]
    fn entries_are_padded_to_eight_bytes() {
        let mut buffer = DirBuffer::new(4096);
        assert!(buffer.push(&entry("ab")));
        let one = [5, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 4, 0, 0, 0];
        assert_eq!(buffer.as_bytes(), [&one[..], b"ab\0\0\0\0\0\0"].concat());
        assert!(buffer.push(&entry("12345678")));
        assert_eq!(buffer.as_bytes().len(), 64, "a name of eight bytes has no padding");
    }

    #[test]
    fn entries_with_a_node_begin_with_it() {
        let mut buffer = DirBuffer::new(4096);
        let node = Entry { node: Node(9), ..Entry::default() };
        assert!(buffer.push_plus(&entry("ab"), Some(&node)) && buffer.push_plus(&entry(".."), None));
        let bytes = buffer.as_bytes();
        assert_eq!((bytes.len(), bytes[0], bytes[128], bytes[160]), (320, 9, 5, 0));
        assert_eq!(&bytes[128 + 24..128 + 26], b"ab");
    }

    #[test]
    fn the_limit_is_kept_to_the_byte() {
        let mut buffer = DirBuffer::new(63);
        assert!(buffer.push(&entry("a")));
        assert!(!buffer.push(&entry("b")), "64 bytes are too many");
        assert_eq!(buffer.as_bytes().len(), 32);
        buffer.reset(64);
        assert!(buffer.is_empty() && buffer.push(&entry("a")) && buffer.push(&entry("b")));
        assert!(!buffer.push(&entry("c")));
        buffer.reset(152);
        assert!(!buffer.push_plus(&entry("a"), None) && buffer.is_empty());
    }
}
