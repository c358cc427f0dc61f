//! A library in this virtual machine, and its connection to the server.

use super::written::Written;
use crate::offload::changes::Changes;
use crate::offload::message::ServerLife;
use landfall_fs_link::Reply;
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{SendFlags, send, shutdown};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// A library.
pub(super) struct Library {
    /// To the program.
    pub(super) socket: OwnedFd,
    /// To the server.
    pub(super) stream: TcpStream,
    /// Readable when the program has ended.
    pub(super) process: OwnedFd,
    pub(super) written: Mutex<Written>,
    /// This side says nothing more. It knows still whether that side has closed the socket.
    is_closed: AtomicBool,
}

impl Library {
    pub(super) fn new(socket: OwnedFd, stream: TcpStream, process: OwnedFd) -> Self {
        Self { socket, stream, process, written: Mutex::default(), is_closed: AtomicBool::new(false) }
    }

    /// True if its program has ended, or has closed its socket, as one does that becomes another program.
    pub(super) fn has_gone(&self) -> bool {
        let is = |file: &OwnedFd, flags| {
            let mut polled = [PollFd::from_borrowed_fd(file.as_fd(), flags)];
            let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
            // Whoever cannot be asked is gone.
            poll(&mut polled, Some(&at_once)).is_err() || !polled[0].revents().is_empty()
        };
        is(&self.socket, PollFlags::RDHUP) || is(&self.process, PollFlags::IN)
    }

    /// Ends both connections. Whoever waits at one of them goes on.
    pub(super) fn close(&self) {
        self.close_to_program();
        // One that has ended is closed.
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    /// Its server has ended in good order: all that it has done is durable. It is told so, as the last word.
    pub(super) fn settle(&self) {
        self.written.lock().settle();
        // One that does not hear it takes for lost what is not.
        let _ = send(&self.socket, &Reply::Settled.encode(), SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
        self.close();
    }

    /// The program learns that nobody answers it any more.
    pub(super) fn close_to_program(&self) {
        self.is_closed.store(true, Ordering::Release);
        // As above.
        let _ = shutdown(&self.socket, rustix::net::Shutdown::Write);
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// What it may have changed counts as changed by the kernel with the server of this life, and may be lost with it. It is
    /// noted once.
    pub(super) fn note_changes(&self, changes: &Mutex<Changes>, life: ServerLife) {
        // Nobody finds it settled before it is noted.
        let mut written = self.written.lock();
        let mut changes = changes.lock();
        written.settle().into_iter().for_each(|inode| changes.note(life, inode));
    }
}
