//! Notifications: what the kernel keeps of the file system is out of date.

use crate::abi::{self, notify};
use crate::types::Node;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use zerocopy::IntoBytes;

/// What happens to a name that the kernel keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entries {
    /// It is forgotten, and with it what is mounted below it.
    Forget,
    /// It is looked up again when it is used next; needs the feature `HasExpireOnly`.
    Expire,
}

/// An encoded notification, to be sent by [`crate::Device::notify`] from a thread of its own, which answers no requests and
/// holds no lock that answering a request needs:
///
/// - [`Self::inval_inode`] writes dirty pages back first where there is a write-back cache, and waits for the replies to
///   these WRITEs. It also waits for pages that a READ in flight has locked.
/// - [`Self::inval_entry`] and [`Self::delete`] take the lock of the parent directory, which the kernel holds while it
///   waits for the reply to an operation on that directory (LOOKUP, CREATE, UNLINK, RENAME, ...). Within such an operation
///   they wait for themselves.
#[derive(Clone, Debug)]
pub struct Notification {
    bytes: Vec<u8>,
}

impl Notification {
    /// Attributes of a node, and cached data from byte `offset` on, are out of date. `len` 0: to the end; a negative
    /// `offset`: attributes only.
    pub fn inval_inode(node: Node, offset: i64, len: i64) -> Self {
        let raw = abi::InvalInodeOut { node: node.0, offset, len };
        Self::new(notify::INVAL_INODE, raw.as_bytes(), None)
    }

    /// A name of a directory is out of date.
    pub fn inval_entry(parent: Node, name: &OsStr, entries: Entries) -> Self {
        let flags = if entries == Entries::Expire { abi::EXPIRE_ONLY } else { 0 };
        let raw = abi::InvalEntryOut { parent: parent.0, name_len: name_len(name), flags };
        Self::new(notify::INVAL_ENTRY, raw.as_bytes(), Some(name))
    }

    /// A name was removed, if it still stands for `child`: watchers of the directory learn of it.
    pub fn delete(parent: Node, child: Node, name: &OsStr) -> Self {
        let raw = abi::DeleteOut {
            parent: parent.0,
            child: child.0,
            name_len: name_len(name),
            ..Default::default()
        };
        Self::new(notify::DELETE, raw.as_bytes(), Some(name))
    }

    /// Requests that were received from any queue of the mount, and not answered, are delivered again, before all others.
    /// Their ids say so ([`crate::Unique::is_resent`]). Needs the feature `HasResend`. Any thread may send it.
    pub fn resend() -> Self {
        Self::new(notify::RESEND, &[], None)
    }

    /// All names that the kernel keeps are looked up again when they are used next. Needs the protocol's minor version
    /// [`crate::EPOCH_MINOR`] (Linux 6.16). Any thread may send it.
    pub fn expire_names() -> Self {
        Self::new(notify::INC_EPOCH, &[], None)
    }

    /// The encoded bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn new(code: i32, body: &[u8], name: Option<&OsStr>) -> Self {
        let name_bytes = name.map_or(0, |name| name.len() + 1);
        let len = size_of::<abi::OutHeader>() + body.len() + name_bytes;
        let header = abi::OutHeader { len: u32::try_from(len).unwrap_or(u32::MAX), error: code, unique: 0 };
        let mut bytes = Vec::with_capacity(len);
        bytes.extend_from_slice(header.as_bytes());
        bytes.extend_from_slice(body);
        bytes.extend_from_slice(name.map_or(&[], OsStr::as_bytes));
        // The terminating NUL is not counted in the name's length.
        bytes.resize(len, 0);
        Self { bytes }
    }
}

fn name_len(name: &OsStr) -> u32 {
    u32::try_from(name.len()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notifications_have_their_code_for_an_error_and_no_id() {
        let inode = Notification::inval_inode(Node(3), -1, 0);
        let head = [40, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(inode.as_bytes(), [&head[..], &[0xFF; 8], &[0; 8]].concat());
    }

    #[test]
    fn notifications_about_the_whole_mount_are_a_header() {
        assert_eq!(Notification::resend().as_bytes(), [16, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(Notification::expire_names().as_bytes()[..8], [16, 0, 0, 0, 8, 0, 0, 0]);
    }

    #[test]
    fn names_end_with_a_nul_that_is_not_counted() {
        let entry = Notification::inval_entry(Node(3), OsStr::new("ab"), Entries::Expire);
        let head = [35, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(entry.as_bytes(), [&head[..], &[2, 0, 0, 0, 1, 0, 0, 0], b"ab\0"].concat());
        let forget = Notification::inval_entry(Node(3), OsStr::new("ab"), Entries::Forget);
        assert_eq!(forget.as_bytes()[28..32], [0; 4]);
        let delete = Notification::delete(Node(3), Node(4), OsStr::new("ab"));
        let head = [43, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0];
        let child = [4, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(delete.as_bytes(), [&head[..], &child, b"ab\0"].concat());
    }
}
