//! The device: where requests come from and replies go to.

use crate::notify::Notification;
use crate::reply::Reply;
use crate::request::HEAD_BYTES;
use crate::sys;
use crate::types::Unique;
use rustix::event::{PollFd, PollFlags, epoll};
use rustix::io::Errno as OsErrno;
use smallvec::SmallVec;
use std::fs::OpenOptions;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

/// Where the kernel offers FUSE.
pub(crate) const DEVICE_PATH: &str = "/dev/fuse";
/// Slices of one message that need no allocation.
const SLICES_INLINE: usize = 17;

/// One queue of a mount. Several threads may receive from one device; with a device of its own ([`Self::clone_queue`])
/// each avoids the others' locks. A reply goes to the device that its request came from.
#[derive(Debug)]
pub struct Device {
    fd: OwnedFd,
}

/// What [`Device::receive`] has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// A request of so many bytes, head included.
    Request {
        /// Bytes of head and frames that it takes.
        len: usize,
    },
    /// No request, for now: [`Device::wait`], and receive again.
    Retry,
    /// The mount has ended. Nothing comes any more.
    Ended,
}

/// What became of a message to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// The kernel has it.
    Done,
    /// Nobody waits for it: the request was interrupted, or the kernel keeps nothing of what a notification is about.
    Unwanted,
    /// The mount has ended.
    Ended,
}

/// Why [`Device::wait`] or [`Waiter::wait`] has returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ready {
    /// The device: a request, or the end of the mount.
    Device,
    /// The waker.
    Woken,
}

impl Device {
    /// Opens a device that belongs to no mount yet.
    pub(crate) fn open() -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(libc::O_NONBLOCK);
        Ok(Self { fd: options.open(DEVICE_PATH)?.into() })
    }

    /// Takes over the device of a mount that somebody else has made.
    ///
    /// # Errors
    /// The descriptor cannot be made non-blocking.
    pub fn from_fd(fd: OwnedFd) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&fd, true)?;
        Ok(Self { fd })
    }

    /// Another queue of the same mount (`FUSE_DEV_IOC_CLONE`).
    ///
    /// # Errors
    /// No descriptor is free, or the device belongs to no mount.
    pub fn clone_queue(&self) -> io::Result<Self> {
        let other = Self::open()?;
        sys::clone_device(other.as_fd(), self.as_fd())?;
        Ok(other)
    }

    /// Receives one request: its first [`HEAD_BYTES`] into `head`, what follows into `frames`, in order. Data of a WRITE
    /// begin at the first byte of the first frame. Does not wait.
    ///
    /// The frames must have [`crate::Negotiated::frame_bytes`] together, and be at most 1,023.
    ///
    /// # Errors
    /// `EINVAL`: the frames are too small. Other errors of the kernel.
    pub fn receive(
        &self,
        head: &mut [u8; HEAD_BYTES],
        frames: &mut [IoSliceMut<'_>],
    ) -> io::Result<Received> {
        let mut parts: SmallVec<[IoSliceMut<'_>; SLICES_INLINE]> = SmallVec::with_capacity(frames.len() + 1);
        parts.push(IoSliceMut::new(head));
        parts.extend(frames.iter_mut().map(|frame| IoSliceMut::new(frame)));
        match rustix::io::readv(&self.fd, &mut parts) {
            // A clean end of file is the end of the mount, too.
            Ok(0) | Err(OsErrno::NODEV | OsErrno::CONNABORTED) => Ok(Received::Ended),
            Ok(len) => Ok(Received::Request { len }),
            // NOENT: the request was interrupted while it was received.
            Err(OsErrno::INTR | OsErrno::AGAIN | OsErrno::NOENT) => Ok(Received::Retry),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits for a request, the end of the mount, or until `waker` (an eventfd, for one) is readable. `waker` is not read.
    ///
    /// # Errors
    /// An error of the kernel.
    pub fn wait(&self, waker: BorrowedFd<'_>) -> io::Result<Ready> {
        let mut fds = [PollFd::new(&self.fd, PollFlags::IN), PollFd::from_borrowed_fd(waker, PollFlags::IN)];
        loop {
            match rustix::event::poll(&mut fds, None) {
                Ok(_) if !fds[1].revents().is_empty() => return Ok(Ready::Woken),
                Ok(_) => return Ok(Ready::Device),
                Err(OsErrno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// What one of several workers waits with: the kernel wakes one of them for a request, where it would wake all of those
    /// that [`Self::wait`].
    ///
    /// # Errors
    /// No descriptor is free.
    pub fn waiter(&self, waker: BorrowedFd<'_>) -> io::Result<Waiter> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let device = epoll::EventFlags::IN | epoll::EventFlags::EXCLUSIVE;
        epoll::add(&epoll, &self.fd, epoll::EventData::new_u64(DEVICE), device)?;
        epoll::add(&epoll, waker, epoll::EventData::new_u64(WAKER), epoll::EventFlags::IN)?;
        Ok(Waiter { epoll })
    }

    /// Sends one message, head and data, as one.
    ///
    /// # Errors
    /// `EINVAL`: the message is malformed, or longer than its request has room for. Other errors of the kernel.
    pub fn send(&self, parts: &[IoSlice<'_>]) -> io::Result<Sent> {
        loop {
            match rustix::io::writev(&self.fd, parts) {
                Ok(_) => return Ok(Sent::Done),
                Err(OsErrno::INTR) => {}
                Err(OsErrno::NOENT) => return Ok(Sent::Unwanted),
                Err(OsErrno::NODEV | OsErrno::NOTCONN | OsErrno::CONNABORTED) => return Ok(Sent::Ended),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Sends a reply of fixed size.
    ///
    /// # Errors
    /// As for [`Self::send`].
    pub fn reply(&self, reply: &Reply) -> io::Result<Sent> {
        self.send(&[IoSlice::new(reply.as_bytes())])
    }

    /// Sends a reply that consists of these slices, where they are. There may be 1,023 of them.
    ///
    /// # Errors
    /// As for [`Self::send`].
    pub fn reply_data(&self, unique: Unique, data: &[IoSlice<'_>]) -> io::Result<Sent> {
        let head = Reply::data(unique, data.iter().map(|slice| slice.len()).sum());
        let mut parts: SmallVec<[IoSlice<'_>; SLICES_INLINE]> = SmallVec::with_capacity(data.len() + 1);
        parts.push(IoSlice::new(head.as_bytes()));
        parts.extend_from_slice(data);
        self.send(&parts)
    }

    /// Sends a notification. See [`Notification`] for the threads that may. It can block.
    ///
    /// # Errors
    /// As for [`Self::send`].
    pub fn notify(&self, notification: &Notification) -> io::Result<Sent> {
        self.send(&[IoSlice::new(notification.as_bytes())])
    }
}

/// Events of a [`Waiter`].
const DEVICE: u64 = 0;
const WAKER: u64 = 1;

/// Waits for requests of a device ([`Device::waiter`]). The end of the mount wakes all waiters, as does the waker.
#[derive(Debug)]
pub struct Waiter {
    epoll: OwnedFd,
}

impl Waiter {
    /// As [`Device::wait`]. The device may have no request after all: another worker was quicker.
    ///
    /// # Errors
    /// An error of the kernel.
    pub fn wait(&self) -> io::Result<Ready> {
        let mut events: [MaybeUninit<epoll::Event>; 2] = [const { MaybeUninit::uninit() }; 2];
        loop {
            match epoll::wait(&self.epoll, &mut events, None) {
                Ok((ready, _)) if ready.iter().any(|event| event.data.u64() == WAKER) => {
                    return Ok(Ready::Woken);
                }
                Ok((ready, _)) if !ready.is_empty() => return Ok(Ready::Device),
                Ok(_) | Err(OsErrno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
