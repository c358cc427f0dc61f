//! The commands of FUSE over io_uring (`IORING_OP_URING_CMD` with submissions of 128 bytes).

use super::memory::Memory;
use crate::abi::{RingCommand, RingHeader, ring_command};
use io_uring::squeue::Entry128;
use io_uring::types::Fd;
use io_uring::{IoUring, opcode};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use zerocopy::{Immutable, IntoBytes};

/// Vectors that a registration points at: header and payload.
const VECTORS: u32 = 2;
/// In the token of a completion: a watched descriptor, not an entry.
const WATCHED: u64 = 1 << 63;
/// `IOSQE_FIXED_FILE`: the descriptor is an index of those that are registered.
const FIXED_FILE: u8 = 1;
/// The index of the device among the registered descriptors.
const DEVICE: i32 = 0;

/// `struct io_uring_sqe` of 128 bytes for a command. The crate's own builder cannot set `len`.
#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct Submission {
    opcode: u8,
    flags: u8,
    priority: u16,
    file: i32,
    command: u32,
    padding: u32,
    address: u64,
    len: u32,
    command_flags: u32,
    token: u64,
    buffer: u16,
    personality: u16,
    file_index: u32,
    request: RingCommand,
    unused: [u8; 56],
}
const _: () = assert!(size_of::<Submission>() == 128);
const _: () = assert!(std::mem::offset_of!(Submission, request) == 48);

impl Submission {
    fn new(command: u32, token: u64, request: RingCommand) -> Self {
        Self {
            opcode: opcode::UringCmd80::CODE,
            flags: FIXED_FILE,
            priority: 0,
            file: DEVICE,
            command,
            padding: 0,
            address: 0,
            len: 0,
            command_flags: 0,
            token,
            buffer: 0,
            personality: 0,
            file_index: 0,
            request,
            unused: [0; 56],
        }
    }

    fn into_entry(self) -> Entry128 {
        // SAFETY: both are structures in C's layout of 128 bytes that consist of integers, so that any bytes are a value.
        unsafe { std::mem::transmute::<Self, Entry128>(self) }
    }
}

/// Who may use an entry's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum User {
    /// This process.
    Us,
    /// The kernel, from a command's submission to its completion.
    Kernel,
}

/// What has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Completion {
    /// An entry has a request, or the error (a negative number) of its command.
    Entry {
        /// Its index.
        entry: usize,
        /// 0 or the error.
        result: i32,
    },
    /// The watched descriptor of this index is readable.
    Watched(usize),
}

/// The io_uring of one thread, and the memory of its entries.
pub(crate) struct Commands {
    // Dropped before `memory`: a ring whose completions are deferred to its thread (DEFER_TASKRUN) copies to memory only
    // within that thread's system calls on it, and to nothing once it is closed.
    ring: IoUring<Entry128>,
    memory: Memory,
    /// What registrations point at; the kernel reads it when they are submitted.
    vectors: Vec<[libc::iovec; 2]>,
    users: Vec<User>,
    watched: Vec<OwnedFd>,
}

impl Commands {
    /// A ring on a device for so many entries, which only the calling thread may use.
    ///
    /// # Errors
    /// An error of the kernel.
    pub(crate) fn new(device: BorrowedFd<'_>, entries: usize, payload_bytes: usize) -> io::Result<Self> {
        let memory = Memory::new(entries, payload_bytes)?;
        // Each entry has one command under way, each watched descriptor one poll.
        let submissions = u32::try_from(2 * entries).unwrap_or(u32::MAX);
        let ring = IoUring::<Entry128>::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_submit_all()
            .dontfork()
            .build(submissions)?;
        ring.submitter().register_files(&[device.as_raw_fd()])?;
        let vectors = (0..entries).map(|entry| memory.vectors(entry)).collect();
        Ok(Self { ring, memory, vectors, users: vec![User::Us; entries], watched: Vec::new() })
    }

    /// Queues an entry's registration with a queue of the mount.
    pub(crate) fn register(&mut self, entry: usize, queue: u16) {
        let request = RingCommand { queue, ..RingCommand::default() };
        let mut submission = Submission::new(ring_command::REGISTER, entry as u64, request);
        submission.address = self.vectors[entry].as_ptr().expose_provenance() as u64;
        submission.len = VECTORS;
        self.lend(entry, submission);
    }

    /// Queues the reply that is in an entry's memory; the entry is free for the next request then.
    pub(crate) fn commit(&mut self, entry: usize, queue: u16) {
        let commit_id = self.parts(entry).0.entry.commit_id;
        let request = RingCommand { commit_id, queue, ..RingCommand::default() };
        self.lend(entry, Submission::new(ring_command::COMMIT_AND_FETCH, entry as u64, request));
    }

    fn lend(&mut self, entry: usize, submission: Submission) {
        assert_eq!(self.users[entry], User::Us, "the kernel has entry {entry}");
        self.users[entry] = User::Kernel;
        self.push(&submission.into_entry());
    }

    /// Reports each time that a file becomes readable, as [`Completion::Watched`].
    ///
    /// # Errors
    /// No descriptor is free.
    pub(crate) fn watch(&mut self, file: BorrowedFd<'_>) -> io::Result<()> {
        self.watched.push(file.try_clone_to_owned()?);
        self.poll(self.watched.len() - 1);
        Ok(())
    }

    fn poll(&mut self, index: usize) {
        let readable = i32::from(libc::POLLIN).cast_unsigned();
        let entry = opcode::PollAdd::new(Fd(self.watched[index].as_raw_fd()), readable).multi(true).build();
        self.push(&entry.user_data(WATCHED | index as u64).into());
    }

    fn push(&mut self, entry: &Entry128) {
        // SAFETY: the entry is made in this module. It points into `memory`, which outlives the ring, or to `vectors`, which
        // outlive its submission.
        let pushed = unsafe { self.ring.submission().push(entry) };
        pushed.expect("there are as many submissions as entries and watched descriptors");
    }

    /// Submits what is queued, without waiting.
    ///
    /// # Errors
    /// An error of the kernel.
    pub(crate) fn submit(&mut self) -> io::Result<()> {
        if self.ring.submission().is_empty() { Ok(()) } else { passing(self.ring.submit()) }
    }

    /// Submits what is queued, and waits for a completion. It may return without one.
    ///
    /// # Errors
    /// An error of the kernel.
    pub(crate) fn submit_and_wait(&mut self) -> io::Result<()> {
        passing(self.ring.submit_and_wait(1))
    }

    /// The next completion, if there is one.
    pub(crate) fn next(&mut self) -> Option<Completion> {
        let completion = self.ring.completion().next()?;
        let (token, result) = (completion.user_data(), completion.result());
        let index = usize::try_from(token & !WATCHED).expect("an index");
        if token & WATCHED == 0 {
            self.users[index] = User::Us;
            return Some(Completion::Entry { entry: index, result });
        }
        if !io_uring::cqueue::more(completion.flags()) {
            self.poll(index);
        }
        Some(Completion::Watched(index))
    }

    /// The header and the payload of an entry.
    ///
    /// # Panics
    /// If the kernel has it.
    pub(crate) fn parts(&self, entry: usize) -> (&RingHeader, &[u8]) {
        assert_eq!(self.users[entry], User::Us, "the kernel has entry {entry}");
        // SAFETY: the entry's command has completed, as was asserted.
        unsafe { self.memory.parts(entry) }
    }

    /// As [`Self::parts`], to store to.
    ///
    /// # Panics
    /// If the kernel has it.
    pub(crate) fn parts_mut(&mut self, entry: usize) -> (&mut RingHeader, &mut [u8]) {
        assert_eq!(self.users[entry], User::Us, "the kernel has entry {entry}");
        // SAFETY: as above.
        unsafe { self.memory.parts_mut(entry) }
    }
}

/// What ends a wait without a failure is none: a signal, or a kernel that first needs completions taken or memory freed.
fn passing(result: io::Result<usize>) -> io::Result<()> {
    match result {
        Err(error) if !matches!(error.raw_os_error(), Some(libc::EINTR | libc::EBUSY | libc::EAGAIN)) => {
            Err(error)
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn submissions_have_the_bytes_that_the_kernel_reads() {
        let request =
            RingCommand { commit_id: 0x0102_0304_0506_0708, queue: 0x090A, ..RingCommand::default() };
        let mut submission = Submission::new(ring_command::REGISTER, 5, request);
        (submission.address, submission.len) = (0x1122_3344_5566_7788, VECTORS);
        let mut bytes = [0_u8; 128];
        // IORING_OP_URING_CMD, IOSQE_FIXED_FILE; cmd_op; addr; len; user_data; cmd: flags, commit_id, qid.
        (bytes[0], bytes[1], bytes[8], bytes[24], bytes[32]) = (46, 1, 1, 2, 5);
        bytes[16..24].copy_from_slice(&[0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11]);
        bytes[56..66].copy_from_slice(&[8, 7, 6, 5, 4, 3, 2, 1, 0x0A, 9]);
        assert_eq!(submission.as_bytes(), bytes);
        assert_eq!(submission.into_entry().get_user_data(), 5);
    }

    #[test]
    fn an_entry_that_the_kernel_has_is_not_read() {
        let null = std::fs::File::open("/dev/null").expect("a device");
        let mut commands = match Commands::new(null.as_fd(), 2, 8192) {
            Ok(commands) => commands,
            Err(error) => {
                eprintln!("SKIP: io_uring: {error}");
                return;
            }
        };
        commands.register(0, 0);
        assert!(catch_unwind(AssertUnwindSafe(|| commands.parts(0).1.len())).is_err());
        assert_eq!(commands.parts(1).1.len(), 8192, "the other one is ours");
        // /dev/null takes all commands.
        commands.submit().expect("it is submitted");
        assert_eq!(commands.next(), Some(Completion::Entry { entry: 0, result: 0 }));
        assert_eq!(commands.parts(0).1.len(), 8192, "it has come back");
    }
}
