//! What servers have the kernel of a mount drop: a thread asks it, one thing after the other. The kernel may wait, perhaps until
//! there is the next server: the mount must be handed to that meanwhile.

use super::channel::Channel;
use super::message::Message;
use crate::forget;
use crate::mates::Gone;
use landfall_fs::InodeNumber;
use landfall_fuse::Device;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};

/// Most questions that wait.
const QUESTIONS_MAX: usize = 1024;
/// Names among them. Servers wait for answers to the others, for which there must be room.
const NAMES_MAX: usize = QUESTIONS_MAX / 2;

/// What the kernel of a mount is to drop.
pub(super) enum Question {
    /// What it keeps of an inode: the server waits for it.
    Forget { number: u64, inode: InodeNumber, channel: Arc<Channel> },
    /// A name.
    Gone(Gone),
}

impl Question {
    fn ask(self, device: &Device) {
        match self {
            Self::Gone(gone) => gone.tell(device),
            Self::Forget { number, inode, channel } => {
                forget::tell(device, inode);
                // A server that is gone needs no answer.
                let _ = channel.send(&Message::Forgotten { question: number }, &[]);
            }
        }
    }
}

/// Questions that wait for the kernel.
pub(super) struct Questions {
    sender: mpsc::SyncSender<Question>,
    /// Names among those that wait.
    names: Arc<AtomicUsize>,
}

impl Questions {
    /// Starts the thread that asks the kernel.
    ///
    /// # Errors
    /// There can be no such thread, or no descriptor for it.
    pub(super) fn start(device: &Device) -> io::Result<Self> {
        let device = device.clone_queue()?;
        Self::start_with(move |question| question.ask(&device))
    }

    fn start_with(mut ask: impl FnMut(Question) + Send + 'static) -> io::Result<Self> {
        let (sender, questions) = mpsc::sync_channel::<Question>(QUESTIONS_MAX);
        let names = Arc::<AtomicUsize>::default();
        let waiting = Arc::clone(&names);
        let answer = move || {
            for question in questions {
                let is_name = matches!(question, Question::Gone(_));
                ask(question);
                waiting.fetch_sub(usize::from(is_name), Ordering::Relaxed);
            }
        };
        std::thread::Builder::new().name("forget".into()).spawn(answer)?;
        Ok(Self { sender, names })
    }

    /// Has the kernel drop what it keeps of an inode, and tells the server.
    pub(super) fn forget(&self, number: u64, inode: InodeNumber, channel: Arc<Channel>) {
        // Only questions of servers that have died fill the queue.
        let _ = self.sender.try_send(Question::Forget { number, inode, channel });
    }

    /// Has the kernel drop a name. Beyond so many that wait, names stay with the kernel until it needs the memory.
    pub(super) fn drop_name(&self, gone: Gone) {
        if self.names.fetch_add(1, Ordering::Relaxed) >= NAMES_MAX
            || self.sender.try_send(Question::Gone(gone)).is_err()
        {
            self.names.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mates::Why;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use std::time::Duration;

    #[test]
    fn names_leave_room_for_questions_that_servers_wait_for() {
        let (go_on, until) = mpsc::sync_channel::<()>(0);
        let (asked, heard) = mpsc::sync_channel(4 * QUESTIONS_MAX);
        let ask = move |question: Question| {
            // The kernel waits at the first name.
            let _ = until.recv();
            let _ = asked.send(matches!(question, Question::Forget { number: 7, .. }));
        };
        let questions = Questions::start_with(ask).expect("a thread");
        let gone =
            Gone { parent: InodeNumber(1), name: b"name".to_vec(), inode: InodeNumber(2), why: Why::Removed };
        (0..2 * QUESTIONS_MAX).for_each(|_| questions.drop_name(gone.clone()));
        let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
        let channel = Arc::new(Channel::new(pair.expect("sockets").0).expect("a socket"));
        questions.forget(7, InodeNumber(3), channel);
        drop(go_on);
        let limit = Duration::from_secs(20);
        assert!(
            std::iter::from_fn(|| heard.recv_timeout(limit).ok()).take(2 * QUESTIONS_MAX).any(|is_it| is_it)
        );
        questions.drop_name(gone);
        assert!(!heard.recv_timeout(limit).expect("there is room for names again"));
    }
}
