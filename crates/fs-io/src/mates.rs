//! What one mount tells the others of its server.
//!
//! The kernel of a shared mount looks at every name again, and keeps no data. But it keeps inodes that names led to, and an
//! inode that a kernel keeps is not deleted. So the other mounts learn which names are gone. Nobody waits for that: what is
//! not said costs space until the kernel forgets the inode by itself.

use crate::lives::MountNumber;
use landfall_fs::InodeNumber;
use landfall_fuse::{Device, Entries, Node, Notification, Sent};
use parking_lot::Mutex;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// Why a name does not lead to its inode any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    Removed,
    Renamed,
}

/// A name that is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Gone {
    pub(crate) why: Why,
    pub(crate) parent: InodeNumber,
    pub(crate) inode: InodeNumber,
    pub(crate) name: Vec<u8>,
}

impl Gone {
    /// Tells a kernel. It waits for requests on the directory that it has sent to the server.
    pub(crate) fn tell(&self, device: &Device) {
        let (parent, name) = (Node(self.parent.0), OsStr::from_bytes(&self.name));
        let notification = match self.why {
            Why::Removed => Notification::delete(parent, Node(self.inode.0), name),
            Why::Renamed => Notification::inval_entry(parent, name, Entries::Forget),
        };
        // The kernel may know nothing of it, which is well.
        let _ = device.notify(&notification);
    }
}

/// Sends what is gone to the holder of a mount, if that does not have to wait.
pub(crate) type Tell = Box<dyn Fn(&Gone) + Send>;

/// Where the kernel of a mount is.
pub(crate) enum KernelAt {
    /// On this machine.
    Here(Device),
    /// There, and it cannot be asked: there were too few descriptors. It counts as knowing everything.
    Silent,
    /// On another machine.
    Elsewhere,
}

struct Mate {
    mount: MountNumber,
    kernel: KernelAt,
    tell: Tell,
}

impl std::fmt::Debug for Mate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mate").field("mount", &self.mount).finish_non_exhaustive()
    }
}

/// The mounts of a server.
#[derive(Debug, Default)]
pub(crate) struct Mates {
    all: Mutex<Vec<Mate>>,
}

impl Mates {
    pub(crate) fn add(&self, mount: MountNumber, kernel: KernelAt, tell: Tell) {
        self.all.lock().push(Mate { mount, kernel, tell });
    }

    pub(crate) fn remove(&self, mount: MountNumber) {
        self.all.lock().retain(|mate| mate.mount != mount);
    }

    /// A name of a mount is gone: tells the others.
    pub(crate) fn tell_others(&self, mount: MountNumber, gone: &Gone) {
        self.all.lock().iter().filter(|mate| mate.mount != mount).for_each(|mate| (mate.tell)(gone));
    }

    /// True if the kernel of a mount knows an inode. It looks at the inode's attributes again.
    pub(crate) fn knows(&self, mount: MountNumber, inode: InodeNumber) -> bool {
        // Attributes alone are dropped without waiting for any request.
        let attributes = Notification::inval_inode(Node(inode.0), -1, 0);
        let is_known = |mate: &Mate| match &mate.kernel {
            KernelAt::Here(device) => !matches!(device.notify(&attributes), Ok(Sent::Unwanted | Sent::Ended)),
            KernelAt::Silent => true,
            KernelAt::Elsewhere => false,
        };
        self.all.lock().iter().any(|mate| mate.mount == mount && is_known(mate))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_that_cannot_be_asked_knows_everything() {
        let (mates, tell) = (Mates::default(), || Box::new(|_: &Gone| ()));
        mates.add(MountNumber(1), KernelAt::Silent, tell());
        mates.add(MountNumber(2), KernelAt::Elsewhere, tell());
        assert!(mates.knows(MountNumber(1), InodeNumber(7)));
        assert!(!mates.knows(MountNumber(2), InodeNumber(7)) && !mates.knows(MountNumber(3), InodeNumber(7)));
    }
}
