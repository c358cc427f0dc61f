//! Requests over io_uring: FUSE_OVER_IO_URING of Linux 6.14.
//!
//! A mount has a queue for each possible CPU, to which the kernel brings the requests of programs on that CPU. A queue has
//! entries, each with memory for one request and its reply. Reply and wait for the next request are one system call. An
//! entry stays with its request until that is answered.

use crate::device::{Device, Sent};
use crate::init::Negotiated;
use crate::reply::{REPLY_HEADER_BYTES, Reply};
use crate::request::{DecodeError, Decoder, Request};
use crate::sys::{Commands, Completion};
use crate::types::Unique;
use std::collections::VecDeque;
use std::fs;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};

/// Whether the kernel lets FUSE use io_uring: `Y` or `N`.
const PARAMETER: &str = "/sys/module/fuse/parameters/enable_uring";
/// The CPUs that there can be, those that are absent or offline included.
const POSSIBLE_CPUS: &str = "/sys/devices/system/cpu/possible";

/// Why requests do not come over io_uring.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RingError {
    /// Environment: an older kernel, or one that was built without it.
    #[error(
        "this kernel has no FUSE over io_uring: use Linux 6.14 or newer (CONFIG_FUSE_IO_URING), or the transport `dev`"
    )]
    NotInKernel,
    /// Environment: root has not allowed it.
    #[error(
        "FUSE over io_uring is switched off: as root, run `echo Y > {PARAMETER}` and mount again, or use the transport \
         `dev`"
    )]
    Disabled,
    /// Environment: io_uring itself, or memory.
    #[error(
        "io_uring cannot be used ({0}): see `sysctl kernel.io_uring_disabled`, or use the transport `dev`"
    )]
    Io(#[from] io::Error),
}

/// Checks that mounts which are made from now on can use io_uring.
///
/// # Errors
/// They cannot: it says what to do.
pub fn check_ring() -> Result<(), RingError> {
    match fs::read_to_string(PARAMETER) {
        Ok(value) if value.trim() == "Y" => Ok(()),
        Ok(_) => Err(RingError::Disabled),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(RingError::NotInKernel),
        Err(error) => Err(error.into()),
    }
}

/// The number of queues that each mount has.
///
/// # Errors
/// The kernel does not say it.
pub fn queue_count() -> io::Result<u16> {
    let list = fs::read_to_string(POSSIBLE_CPUS)?;
    count_of(&list)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("{POSSIBLE_CPUS}: {list}")))
}

/// The number of CPUs in a list such as `0-3,8`.
fn count_of(list: &str) -> Option<u16> {
    let mut count = 0_u16;
    for part in list.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
        count = count.checked_add(last.checked_sub(first)?.checked_add(1)?)?;
    }
    Some(count)
}

/// What of a mount's queues one ring serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// The queues' numbers, below [`queue_count`].
    pub queues: Vec<u16>,
    /// Entries of each queue: requests of one queue that are in flight at most. Others wait in the kernel.
    pub depth: usize,
}

/// An entry of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EntryId(usize);

/// What [`Ring::receive`] has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrived {
    /// A request, which stays in the entry until it is answered.
    Request(EntryId),
    /// The waker of this index was raised.
    Woken(usize),
    /// The mount has ended. Nothing comes any more.
    Ended,
}

/// The io_uring of one thread, which serves some queues of a mount.
pub struct Ring {
    commands: Commands,
    share: Share,
    /// Completions that were taken and not looked at.
    early: VecDeque<Completion>,
}

impl Ring {
    /// A ring for some queues of the device's mount. The calling thread alone may use it. Requests arrive once all queues of
    /// the mount have a ring. `wakers` (eventfds) end a wait each time that they are raised; they are not read.
    ///
    /// # Errors
    /// [`RingError`] says what to do. The mount cannot be used then.
    pub fn open(
        device: &Device,
        share: Share,
        negotiated: &Negotiated,
        wakers: &[BorrowedFd<'_>],
    ) -> Result<Self, RingError> {
        let entries = share.queues.len() * share.depth;
        let mut commands = Commands::new(device.as_fd(), entries, negotiated.payload_bytes())?;
        wakers.iter().try_for_each(|waker| commands.watch(*waker))?;
        let mut ring = Self { commands, share, early: VecDeque::new() };
        for entry in 0..entries {
            ring.commands.register(entry, ring.queue_of(entry));
        }
        ring.commands.submit()?;
        // What is refused is refused at once.
        while let Some(completion) = ring.commands.next() {
            match completion {
                Completion::Entry { result, .. } if result == -libc::EOPNOTSUPP => {
                    return Err(RingError::Disabled);
                }
                Completion::Entry { result, .. } if result < 0 => {
                    return Err(io::Error::from_raw_os_error(result.saturating_neg()).into());
                }
                completion => ring.early.push_back(completion),
            }
        }
        Ok(ring)
    }

    /// Waits for a request, a raised waker, or the end of the mount. Replies that are queued go out first.
    ///
    /// # Errors
    /// An error of the kernel.
    pub fn receive(&mut self) -> io::Result<Arrived> {
        loop {
            let Some(completion) = self.early.pop_front().or_else(|| self.commands.next()) else {
                self.commands.submit_and_wait()?;
                continue;
            };
            // Whoever waits for the last reply need not wait for the next one.
            self.commands.submit()?;
            return match completion {
                Completion::Watched(waker) => Ok(Arrived::Woken(waker)),
                Completion::Entry { entry, result: 0 } => Ok(Arrived::Request(EntryId(entry))),
                Completion::Entry { result, .. } => ended(result),
            };
        }
    }

    /// Decodes the request of an entry; all of its body but the data of a WRITE is copied into `joined`.
    ///
    /// # Errors
    /// As for [`Decoder::decode`]. The request's id is known in any case.
    pub fn request<'a>(
        &self,
        entry: EntryId,
        decoder: &Decoder,
        joined: &'a mut Vec<u8>,
    ) -> Result<Request<'a>, DecodeError> {
        let header = self.commands.parts(entry.0).0;
        decoder.decode_parts(&header.in_out, &header.op_in, self.payload(entry), joined)
    }

    /// What the request of an entry has behind its first structure: the data, if it is a WRITE.
    pub fn payload(&self, entry: EntryId) -> &[u8] {
        let (header, payload) = self.commands.parts(entry.0);
        let len = usize::try_from(header.entry.payload_bytes).unwrap_or(usize::MAX);
        &payload[..len.min(payload.len())]
    }

    /// Queues a reply of fixed size; it goes out with the next [`Self::receive`] or [`Self::flush`].
    ///
    /// # Errors
    /// `InvalidInput`: it is longer than any request has room for.
    pub fn reply(&mut self, entry: EntryId, reply: &Reply) -> io::Result<Sent> {
        self.answer(entry, reply, &[])
    }

    /// As [`Self::reply`], with a reply that consists of these slices. They are copied.
    ///
    /// # Errors
    /// As for [`Self::reply`].
    pub fn reply_data(&mut self, entry: EntryId, unique: Unique, data: &[IoSlice<'_>]) -> io::Result<Sent> {
        let head = Reply::data(unique, data.iter().map(|slice| slice.len()).sum());
        self.answer(entry, &head, data)
    }

    fn answer(&mut self, entry: EntryId, reply: &Reply, data: &[IoSlice<'_>]) -> io::Result<Sent> {
        let (header, payload) = self.commands.parts_mut(entry.0);
        let (head, body) = reply.as_bytes().split_at(REPLY_HEADER_BYTES);
        header.in_out[..REPLY_HEADER_BYTES].copy_from_slice(head);
        let mut len = 0;
        for part in std::iter::once(body).chain(data.iter().map(|slice| &slice[..])) {
            let room = payload.get_mut(len..len + part.len()).ok_or(io::ErrorKind::InvalidInput)?;
            room.copy_from_slice(part);
            len += part.len();
        }
        header.entry.payload_bytes = u32::try_from(len).map_err(|_| io::ErrorKind::InvalidInput)?;
        self.commands.commit(entry.0, self.queue_of(entry.0));
        Ok(Sent::Done)
    }

    /// Sends the replies that are queued, without waiting for anything.
    ///
    /// # Errors
    /// An error of the kernel.
    pub fn flush(&mut self) -> io::Result<()> {
        self.commands.submit()
    }

    fn queue_of(&self, entry: usize) -> u16 {
        self.share.queues[entry / self.share.depth]
    }
}

/// What a command's error means.
fn ended(result: i32) -> io::Result<Arrived> {
    match result.saturating_neg() {
        libc::ENOTCONN | libc::ECONNABORTED | libc::ENODEV | libc::ECANCELED => Ok(Arrived::Ended),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_are_counted_in_lists_of_cpus() {
        for (list, count) in [("0\n", 1), ("0-1\n", 2), ("0-3,8,10-11", 7), ("0-1023", 1024)] {
            assert_eq!(count_of(list), Some(count), "{list}");
        }
        for list in ["", "a", "1-0", "0-", "0-65535"] {
            assert_eq!(count_of(list), None, "{list}");
        }
    }

    #[test]
    fn refusals_say_what_to_do() {
        assert!(
            RingError::Disabled.to_string().contains("`echo Y > /sys/module/fuse/parameters/enable_uring`")
        );
        assert!(RingError::NotInKernel.to_string().contains("Linux 6.14"));
    }

    #[test]
    fn the_end_of_a_mount_is_no_error() {
        for errno in [libc::ENOTCONN, libc::ECONNABORTED, libc::ECANCELED] {
            assert_eq!(ended(-errno).expect("the end"), Arrived::Ended);
        }
        assert_eq!(ended(-libc::EINVAL).expect_err("an error").raw_os_error(), Some(libc::EINVAL));
    }
}
