//! Makes the kernel drop what it keeps of a file.
//!
//! It waits for requests on the file's pages that it has sent to the server, and nothing interrupts that. A server that did
//! this itself could not be killed before it has answered them, so that nobody could start the next one. Where another
//! process holds the mount, that process does it (`docs/format/fs-offload.md`, "What the kernel keeps").

use landfall_fs::InodeNumber;
use landfall_fuse::{Device, Node, Notification};
use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Sends a question with a number. False if that would have to wait, or if the holder is gone.
pub(crate) type Ask = Box<dyn Fn(u64, InodeNumber) -> bool + Send>;

/// How soon a question is sent again that could not be sent.
const ASK_AGAIN: Duration = Duration::from_millis(5);

/// Who tells the kernel.
pub(crate) enum Forgetting {
    /// This process, which has made the mount.
    This(Device),
    /// The process that holds the mount.
    Holder(std::sync::Arc<Questions>),
}

impl Forgetting {
    /// Makes the kernel drop what it keeps of an inode. False if the mount ends meanwhile.
    pub(crate) fn forget(&self, inode: InodeNumber) -> bool {
        match self {
            Self::This(device) => {
                tell(device, inode);
                true
            }
            Self::Holder(questions) => questions.ask(inode),
        }
    }

    /// The mount ends: nobody waits any more.
    pub(crate) fn close(&self) {
        if let Self::Holder(questions) = self {
            questions.close();
        }
    }
}

/// Makes the kernel drop what it keeps, at once or soon.
pub(crate) struct Forgetter {
    forgetting: Forgetting,
    soon: Mutex<Soon>,
    changed: Condvar,
    /// Inodes of which the kernel has dropped what it kept, soon.
    dropped: AtomicU64,
}

/// Inodes of which the kernel is to drop what it keeps.
#[derive(Default)]
struct Soon {
    inodes: Vec<InodeNumber>,
    is_closed: bool,
}

impl Forgetter {
    pub(crate) fn new(forgetting: Forgetting) -> Self {
        Self { forgetting, soon: Mutex::default(), changed: Condvar::new(), dropped: AtomicU64::new(0) }
    }

    /// As [`Forgetting::forget`].
    pub(crate) fn forget(&self, inode: InodeNumber) -> bool {
        self.forgetting.forget(inode)
    }

    /// The thread in [`Self::run`] makes the kernel drop what it keeps of an inode. For threads that answer requests: the
    /// kernel waits for those that are being answered.
    pub(crate) fn forget_soon(&self, inode: InodeNumber) {
        self.forget_all_soon([inode]);
    }

    /// As [`Self::forget_soon`], of several inodes.
    pub(crate) fn forget_all_soon(&self, inodes: impl IntoIterator<Item = InodeNumber>) {
        self.soon.lock().inodes.extend(inodes);
        self.changed.notify_one();
    }

    /// Inodes of which the kernel has yet to drop soon what it keeps.
    #[cfg(test)]
    pub(crate) fn awaited(&self) -> Vec<InodeNumber> {
        self.soon.lock().inodes.clone()
    }

    /// Does what is to be done soon, until the mount ends.
    pub(crate) fn run(&self) {
        while let Some(inodes) = self.next() {
            for inode in inodes {
                // Where the mount has ended, the kernel keeps nothing.
                let _ = self.forgetting.forget(inode);
                self.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// How often the kernel has dropped soon what it kept of an inode.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    fn next(&self) -> Option<Vec<InodeNumber>> {
        let mut soon = self.soon.lock();
        while soon.inodes.is_empty() && !soon.is_closed {
            self.changed.wait(&mut soon);
        }
        (!soon.is_closed).then(|| std::mem::take(&mut soon.inodes))
    }

    /// The mount ends: nobody waits for the kernel any more.
    pub(crate) fn close(&self) {
        self.forgetting.close();
        self.soon.lock().is_closed = true;
        self.changed.notify_all();
    }
}

/// Tells the kernel itself.
pub(crate) fn tell(device: &Device, inode: InodeNumber) {
    // The kernel may know nothing of the inode, or the mount may have ended, which is well.
    if let Err(error) = device.notify(&Notification::inval_inode(Node(inode.0), 0, 0)) {
        tracing::warn!(%error, inode = inode.0, "the kernel may keep what is out of date");
    }
}

/// Questions to the holder of a mount, which it answers in order.
#[derive(Default)]
pub(crate) struct Questions {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// How to ask, once the mount is accepted.
    send: Option<Ask>,
    is_closed: bool,
    asked: u64,
    answered: u64,
}

impl Questions {
    /// The mount is accepted: the holder listens.
    pub(crate) fn open(&self, send: Ask) {
        self.state.lock().send = Some(send);
        self.changed.notify_all();
    }

    /// The holder has answered the questions up to this one.
    pub(crate) fn note_answered(&self, question: u64) {
        let mut state = self.state.lock();
        state.answered = state.answered.max(question);
        self.changed.notify_all();
    }

    fn ask(&self, inode: InodeNumber) -> bool {
        let mut state = self.state.lock();
        let question = loop {
            while state.send.is_none() && !state.is_closed {
                self.changed.wait(&mut state);
            }
            let question = state.asked + 1;
            match &state.send {
                Some(send) if !state.is_closed && send(question, inode) => break question,
                _ if state.is_closed => return false,
                // Nobody waits for a holder with the lock held: who closes needs it.
                _ => _ = self.changed.wait_for(&mut state, ASK_AGAIN),
            }
        };
        state.asked = question;
        while state.answered < question && !state.is_closed {
            self.changed.wait(&mut state);
        }
        state.answered >= question
    }

    fn close(&self) {
        self.state.lock().is_closed = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use std::sync::Arc;
    use std::sync::mpsc::sync_channel;

    /// A device that has ended, and each refusal of the kernel, is passed over: the mount goes on.
    #[test]
    fn what_is_to_be_dropped_soon_is_asked_of_the_kernel_whatever_it_says() {
        let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
        let (kernel, ours) = pair.expect("sockets");
        let device = Device::from_fd(ours).expect("a descriptor");
        let forgetter = Arc::new(Forgetter::new(Forgetting::This(device)));
        let dropping = Arc::clone(&forgetter);
        let thread = std::thread::spawn(move || dropping.run());
        forgetter.forget_all_soon([7, 8].map(InodeNumber));
        for number in [7_u64, 8] {
            let mut message = [0; 64];
            rustix::io::read(&kernel, &mut message).expect("a notification");
            assert_eq!(message[16..24], number.to_le_bytes());
        }
        drop(kernel);
        forgetter.forget_all_soon([InodeNumber(9)]);
        while forgetter.dropped() < 3 {
            std::thread::yield_now();
        }
        forgetter.close();
        thread.join().expect("it ends");
    }

    #[test]
    fn a_question_waits_for_its_answer_or_for_the_end_of_the_mount() {
        let (asked, questions) = sync_channel(8);
        let (to_holder, holder) = (asked, Arc::<Questions>::default());
        let ask = |inode| {
            let holder = Arc::clone(&holder);
            std::thread::spawn(move || Forgetting::Holder(holder).forget(InodeNumber(inode)))
        };
        let early = ask(7);
        holder.open(Box::new(move |question, inode| to_holder.send((question, inode.0)).is_ok()));
        assert_eq!(questions.recv(), Ok((1, 7)), "it is asked when the mount is accepted");
        let second = ask(8);
        assert_eq!(questions.recv(), Ok((2, 8)));
        holder.note_answered(1);
        assert!(early.join().unwrap());
        assert!(!second.is_finished());
        Forgetting::Holder(Arc::clone(&holder)).close();
        assert!(!second.join().unwrap());
        assert!(!ask(9).join().unwrap() && questions.try_recv().is_err());
    }
}
