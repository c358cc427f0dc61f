//! What requests and replies have in common: ids, times, locks, kinds of files.

use crate::abi;

/// A node of the file system: what LOOKUP has given out and FORGET takes back. The root is [`Node::ROOT`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Node(pub u64);

impl Node {
    /// The root (`FUSE_ROOT_ID`), which nobody looks up.
    pub const ROOT: Self = Self(1);
}

/// An open file or directory, as the file system has named it in its reply to OPEN, OPENDIR, CREATE or TMPFILE.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Handle(pub u64);

/// The bit of [`Unique::marked`].
const MARK: u64 = 1 << 62;

/// The id of a request; its reply repeats it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Unique(pub u64);

impl Unique {
    /// True for a request that the kernel delivers again ([`crate::Notification::resend`]). The reply repeats the id as it
    /// is.
    pub fn is_resent(self) -> bool {
        self.0 & abi::UNIQUE_RESEND != 0
    }

    /// The id of the request when it is delivered again.
    #[must_use]
    pub fn resent(self) -> Self {
        Self(self.0 | abi::UNIQUE_RESEND)
    }

    /// The id that the request had when it was delivered first.
    #[must_use]
    pub fn first(self) -> Self {
        Self(self.0 & !abi::UNIQUE_RESEND)
    }

    /// The id with bit 62, which no kernel sets. Who passes requests on and who answers them may agree on what it means; the
    /// kernel does not know such an id.
    #[must_use]
    pub fn marked(self) -> Self {
        Self(self.0 | MARK)
    }

    /// True for an id with bit 62.
    pub fn is_marked(self) -> bool {
        self.0 & MARK != 0
    }

    /// The id without bit 62.
    #[must_use]
    pub fn unmarked(self) -> Self {
        Self(self.0 & !MARK)
    }
}

/// A point in time since the epoch; seconds may be negative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time {
    /// Seconds since 1970, rounded down.
    pub seconds: i64,
    /// Nanoseconds after that, below 1,000,000,000.
    pub nanos: u32,
}

/// What a lock on a range of a file does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockKind {
    /// Shared (`F_RDLCK`).
    Read,
    /// Exclusive (`F_WRLCK`).
    Write,
    /// None: SETLK with it unlocks, and a reply to GETLK with it says that nothing is in the way (`F_UNLCK`).
    Unlock,
}

/// A lock on a range of bytes (`fuse_file_lock`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lock {
    /// First byte.
    pub start: u64,
    /// Last byte, inclusive; `i64::MAX` stands for the end of the file, wherever it is.
    pub end: u64,
    /// What it does.
    pub kind: LockKind,
    /// The process (thread group) that holds it, 0 where unknown.
    pub pid: u32,
}

impl Lock {
    /// Decodes a lock; `None`: its kind is unknown.
    pub(crate) fn from_abi(lock: abi::FileLock) -> Option<Self> {
        let kind = match lock.kind {
            0 => LockKind::Read,
            1 => LockKind::Write,
            2 => LockKind::Unlock,
            _ => return None,
        };
        Some(Self { start: lock.start, end: lock.end, kind, pid: lock.pid })
    }

    pub(crate) fn to_abi(self) -> abi::FileLock {
        let kind = match self.kind {
            LockKind::Read => 0,
            LockKind::Write => 1,
            LockKind::Unlock => 2,
        };
        abi::FileLock { start: self.start, end: self.end, kind, pid: self.pid }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_of_a_request_that_is_sent_again_names_the_first_delivery() {
        let (first, again) = (Unique(6), Unique(6 | 1 << 63));
        assert!(!first.is_resent() && again.is_resent());
        assert_eq!((again.first(), first.first(), first.resent()), (first, first, again));
    }
}
