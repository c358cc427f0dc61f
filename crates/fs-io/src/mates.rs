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

/// Asks the holder of a mount on another machine which of these inodes its kernel does not know, if that does not have to wait.
/// False if it does, or if the holder is gone.
pub(crate) type AskKnown = Box<dyn Fn(&[InodeNumber]) -> bool + Send>;

/// Inodes of one question.
const ASKED_MAX: usize = 512;

/// What the holder of a mount on another machine is asked.
pub(crate) struct Asking {
    ask: AskKnown,
    /// Inodes about which it could not be asked so far. Each of them is there as long as it is not answered.
    waiting: Vec<InodeNumber>,
}

impl Asking {
    pub(crate) fn by(ask: AskKnown) -> Self {
        Self { ask, waiting: Vec::new() }
    }

    /// Asks about what waits, as far as there is room for questions.
    fn go_on(&mut self) {
        while !self.waiting.is_empty() {
            let left = self.waiting.len().saturating_sub(ASKED_MAX);
            if !(self.ask)(&self.waiting[left..]) {
                return;
            }
            self.waiting.truncate(left);
        }
    }
}

/// Where the kernel of a mount is.
pub(crate) enum KernelAt {
    /// On this machine.
    Here(Device),
    /// There, and it cannot be asked: there were too few descriptors. It counts as knowing everything.
    Silent,
    /// On another machine. Its holder says which inodes it does not know.
    Elsewhere(Asking),
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
    /// A mount is there, or its holder has connected anew.
    pub(crate) fn add(&self, mount: MountNumber, kernel: KernelAt, tell: Tell) {
        let mut all = self.all.lock();
        all.retain(|mate| mate.mount != mount);
        all.push(Mate { mount, kernel, tell });
    }

    pub(crate) fn remove(&self, mount: MountNumber) {
        self.all.lock().retain(|mate| mate.mount != mount);
    }

    /// A name of a mount is gone: tells the others.
    pub(crate) fn tell_others(&self, mount: MountNumber, gone: &Gone) {
        self.all.lock().iter().filter(|mate| mate.mount != mount).for_each(|mate| (mate.tell)(gone));
    }

    /// Holders on other machines that could not be asked are asked again.
    pub(crate) fn ask_again(&self) {
        for mate in self.all.lock().iter_mut() {
            if let KernelAt::Elsewhere(asking) = &mut mate.kernel {
                asking.go_on();
            }
        }
    }

    /// True if the kernel of a mount knows an inode. It looks at the inode's attributes again. One on another machine may know it:
    /// its holder is asked, and says so later if not.
    pub(crate) fn knows(&self, mount: MountNumber, inode: InodeNumber) -> bool {
        // Attributes alone are dropped without waiting for any request.
        let attributes = Notification::inval_inode(Node(inode.0), -1, 0);
        let mut all = self.all.lock();
        let Some(mate) = all.iter_mut().find(|mate| mate.mount == mount) else { return false };
        match &mut mate.kernel {
            KernelAt::Here(device) => !matches!(device.notify(&attributes), Ok(Sent::Unwanted | Sent::Ended)),
            KernelAt::Silent => true,
            KernelAt::Elsewhere(asking) => {
                asking.waiting.push(inode);
                asking.go_on();
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_kernel_that_cannot_be_asked_knows_everything() {
        let (mates, tell) = (Mates::default(), || Box::new(|_: &Gone| ()));
        mates.add(MountNumber(1), KernelAt::Silent, tell());
        assert!(mates.knows(MountNumber(1), InodeNumber(7)));
        assert!(!mates.knows(MountNumber(2), InodeNumber(7)), "there is no such mount");
    }

    #[test]
    fn a_kernel_elsewhere_may_know_everything_and_its_holder_is_asked_until_it_hears() {
        let (mates, asked) = (Mates::default(), Arc::<Mutex<Vec<Vec<u64>>>>::default());
        let (hears, is_full) = (Arc::clone(&asked), Arc::<Mutex<bool>>::default());
        let full = Arc::clone(&is_full);
        let ask = move |inodes: &[InodeNumber]| {
            let is_heard = !*full.lock();
            if is_heard {
                hears.lock().push(inodes.iter().map(|inode| inode.0).collect());
            }
            is_heard
        };
        mates.add(MountNumber(2), KernelAt::Elsewhere(Asking::by(Box::new(ask))), Box::new(|_: &Gone| ()));
        let knows = |number| mates.knows(MountNumber(2), InodeNumber(number));
        assert!(knows(7));
        assert_eq!(std::mem::take(&mut *asked.lock()), [[7]]);
        *is_full.lock() = true;
        let all = ASKED_MAX as u64 + 2;
        assert!((0..all).all(knows));
        mates.ask_again();
        assert!(asked.lock().is_empty());
        *is_full.lock() = false;
        mates.ask_again();
        let mut heard: Vec<u64> = std::mem::take(&mut *asked.lock()).concat();
        heard.sort_unstable();
        assert_eq!(heard, (0..all).collect::<Vec<u64>>());
        mates.ask_again();
        assert!(asked.lock().is_empty(), "each is asked about once");
    }
}
