//! io_uring: the operations that a transport queues, and its waits.

use super::buffers::BufferId;
use super::buffers::{Buffers, GROUP};
use super::file;
use super::message::Message;
use super::region::Region;
use crate::error::TransportError;
use io_uring::squeue::{Entry, Flags};
use io_uring::types::{CancelBuilder, Fd, SubmitArgs, Timespec};
use io_uring::{EnterFlags, IoUring, cqueue, opcode};
use landfall_media::{Extent, FileWrite};
use std::collections::VecDeque;
use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

/// Operations submitted by one system call, at most; more operations take several calls.
const SUBMISSIONS: u32 = 1024;
/// Completions that the ring stores. Further ones are stored in the kernel's own memory, and end multishot operations,
/// which are then started again.
const COMPLETIONS: u32 = 8192;
/// Entries of the ring for [`SideRing::write_durably`], which writes this many ranges at once.
const SIDE_ENTRIES: u32 = 64;
/// Length of a two-step wait without a time limit: the kernel requires a limit.
const WAIT_MAX: Duration = Duration::from_secs(3600);
/// `IORING_ENTER_NO_IOWAIT` of `linux/io_uring.h`, Linux 6.15: waiting for clients is idle time, and must not be
/// counted as waiting for a disk.
const ENTER_NO_IOWAIT: u32 = 1 << 7;

/// One operation's outcome.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Completion {
    /// The token that the operation was queued with.
    pub(crate) token: u64,
    /// The result of the system call.
    pub(crate) result: i32,
    /// True if further completions of the operation follow; false if it has ended.
    pub(crate) more: bool,
    /// The buffer that was received into, and whether it stays posted.
    pub(crate) buffer: Option<(BufferId, bool)>,
}

/// A worker's io_uring and its one group of provided buffers.
pub(crate) struct Ring {
    // Dropped before `buffers`: the kernel releases the buffers' page when the ring is closed.
    ring: IoUring,
    buffers: Buffers,
    /// Entries that the submission queue had no room for. Their number is bounded by the operations that can be in
    /// flight (three per connection, one per listener).
    backlog: VecDeque<Entry>,
    in_flight: usize,
    enter_flags: u32,
}

impl Ring {
    /// Opens a ring with every feature that the transport requires; these need Linux 6.12.
    pub(crate) fn open() -> Result<Self, TransportError> {
        let ring = open_ring(SUBMISSIONS, COMPLETIONS).map_err(TransportError::sort_setup)?;
        let buffers = Buffers::new().map_err(|e| TransportError::sort("mapping the buffer ring", e))?;
        buffers.register(&ring.submitter()).map_err(sort_register)?;
        if !ring.params().is_feature_min_timeout() {
            return Err(TransportError::MissingFeature { feature: "IORING_FEAT_MIN_TIMEOUT", since: "6.12" });
        }
        let idle = if ring.params().is_feature_no_iowait() { ENTER_NO_IOWAIT } else { 0 };
        let enter_flags = (EnterFlags::GETEVENTS | EnterFlags::EXT_ARG).bits() | idle;
        Ok(Self { ring, buffers, backlog: VecDeque::new(), in_flight: 0, enter_flags })
    }

    /// Operations queued or submitted whose last completion was not taken yet.
    pub(crate) const fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Posts memory for the kernel to receive into. The caller has fewer than [`super::BUFFERS_MAX`] buffers posted.
    pub(crate) fn post(&mut self, region: Region, space: Extent, id: BufferId) {
        self.buffers.post(region, space, id);
    }

    /// Withdraws all posted buffers: the kernel does not write to them any more. All receives must have ended.
    pub(crate) fn withdraw_buffers(&mut self) -> io::Result<()> {
        self.ring.submitter().unregister_buf_ring(GROUP)
    }

    /// Accepts every connection, as blocking sockets. No system call blocks on them, because the ring itself waits. A
    /// send that the ring passes to a worker thread, after some retries, would fail with `EAGAIN` on a non-blocking
    /// socket (`docs/results/decisions.md`).
    pub(crate) fn accept(&mut self, listener: RawFd, token: u64) {
        let flags = libc::SOCK_CLOEXEC;
        self.queue(opcode::AcceptMulti::new(Fd(listener)).flags(flags).build(), token);
    }

    /// Receives into the posted buffers, multishot.
    pub(crate) fn receive(&mut self, socket: RawFd, token: u64) {
        self.queue(opcode::RecvMulti::new(Fd(socket), GROUP).build(), token);
    }

    /// Receives up to `len_max` bytes, once, into the posted buffers.
    pub(crate) fn receive_once(&mut self, socket: RawFd, len_max: u32, token: u64) {
        // The length limits the operation; the kernel selects the buffer.
        let entry = opcode::Recv::new(Fd(socket), std::ptr::null_mut(), len_max).buf_group(GROUP).build();
        self.queue(entry.flags(Flags::BUFFER_SELECT), token);
    }

    /// Sends the pieces that [`Message::prepare`] gathered. The message is in flight until its completion is taken and
    /// [`Message::completed`] is called.
    pub(crate) fn send(&mut self, socket: RawFd, message: &mut Message, token: u64) {
        // With MSG_WAITALL the kernel itself continues after a partial send.
        let flags = libc::MSG_NOSIGNAL | libc::MSG_WAITALL;
        message.begin();
        let entry = match message.single_piece() {
            Some((start, len)) => opcode::Send::new(Fd(socket), start, len).flags(flags).build(),
            None => opcode::SendMsg::new(Fd(socket), message.header()).flags(flags.cast_unsigned()).build(),
        };
        self.queue(entry, token);
    }

    /// Cancels the operation that was queued with the token `target`.
    pub(crate) fn cancel(&mut self, target: u64, token: u64) {
        self.queue(opcode::AsyncCancel::new(target).build(), token);
    }

    /// Cancels every operation.
    pub(crate) fn cancel_all(&mut self, token: u64) {
        self.queue(opcode::AsyncCancel2::new(CancelBuilder::any()).build(), token);
    }

    /// Reports whenever more can be read from a descriptor, such as each signal of an eventfd.
    pub(crate) fn watch_edges(&mut self, descriptor: RawFd, token: u64) {
        let readable = i32::from(libc::POLLIN).cast_unsigned();
        self.queue(opcode::PollAdd::new(Fd(descriptor), readable).multi(true).build(), token);
    }

    /// Submits what is queued and waits for `want` completions (zero: does not wait): first for no longer than
    /// `patience`, then for any single completion until `timeout`.
    pub(crate) fn enter(
        &mut self,
        want: u32,
        patience: Duration,
        timeout: Option<Duration>,
    ) -> io::Result<()> {
        self.queue_backlog();
        let limit = timeout.unwrap_or(WAIT_MAX).min(WAIT_MAX);
        let limit = Timespec::new().sec(limit.as_secs()).nsec(limit.subsec_nanos());
        let patience_us = u32::try_from(patience.as_micros()).unwrap_or(u32::MAX);
        let mut args = SubmitArgs::new();
        if timeout.is_some() || patience_us > 0 {
            args = args.timespec(&limit).min_wait_usec(patience_us);
        }
        let queued = queued(&mut self.ring);
        // SAFETY: with EXT_ARG the argument is an io_uring_getevents_arg, which SubmitArgs is; it and the
        // timespec live until the call returns.
        match unsafe { self.ring.submitter().enter(queued, want, self.enter_flags, Some(&args)) } {
            Err(error) if is_passing(&error) => Ok(()),
            result => result.map(drop),
        }
    }

    /// Moves all completions into `into`.
    pub(crate) fn drain(&mut self, into: &mut Vec<Completion>) {
        into.extend(self.ring.completion().map(|entry| Completion::from_entry(&entry)));
        self.in_flight -= into.iter().filter(|completion| !completion.more).count();
    }

    fn queue(&mut self, entry: Entry, token: u64) {
        self.in_flight += 1;
        self.backlog.push_back(entry.user_data(token));
        self.queue_backlog();
    }

    /// Moves entries into the submission queue, and submits it when it is full. Entries that a kernel short of memory
    /// does not accept stay here for the next call.
    fn queue_backlog(&mut self) {
        while let Some(entry) = self.backlog.front() {
            // SAFETY: all entries are built in this module. They point into the region, which is mapped as long as the
            // transport lives (it ends every operation before it is dropped), or to a message, which neither moves nor
            // changes while it is in flight.
            let pushed = unsafe { self.ring.submission().push(entry) };
            if pushed.is_ok() {
                self.backlog.pop_front();
            } else if !matches!(self.ring.submit(), Ok(1..)) {
                return;
            }
        }
    }
}

/// A separate ring for blocking writes, so that waiting for them takes no completions of other operations.
pub(crate) struct SideRing(IoUring);

impl SideRing {
    pub(crate) fn open() -> io::Result<Self> {
        open_ring(SIDE_ENTRIES, 2 * SIDE_ENTRIES).map(Self)
    }

    /// Writes all of `writes` concurrently, then syncs once.
    ///
    /// # Errors
    /// The first error; a short write is one. The ring must not be used again after an error.
    pub(crate) fn write_durably(&mut self, file: RawFd, writes: &[FileWrite]) -> io::Result<()> {
        for some in writes.chunks(SIDE_ENTRIES as usize) {
            self.write_some(file, some)?;
        }
        file::data_sync(file)
    }

    fn write_some(&mut self, file: RawFd, writes: &[FileWrite]) -> io::Result<()> {
        for (index, write) in writes.iter().enumerate() {
            let entry = write_entry(file, write).user_data(index as u64);
            // SAFETY: the image stays mapped, and this function waits for every write it queues.
            unsafe { self.0.submission().push(&entry) }.expect("no more writes than entries are queued");
        }
        let mut outcome = Ok(());
        let mut left = writes.len();
        while left > 0 {
            // One wait for all writes: waking this thread for each of them costs more than a small write.
            match self.0.submit_and_wait(left) {
                Err(error) if !is_passing(&error) => return Err(error),
                _ => {}
            }
            for entry in self.0.completion() {
                left -= 1;
                outcome = outcome.and(written(&entry, writes));
            }
        }
        outcome
    }
}

impl Completion {
    fn from_entry(entry: &cqueue::Entry) -> Self {
        let flags = entry.flags();
        let id = cqueue::buffer_select(flags).map(BufferId);
        Self {
            token: entry.user_data(),
            result: entry.result(),
            more: cqueue::more(flags),
            buffer: id.map(|id| (id, cqueue::buffer_more(flags))),
        }
    }

    /// The result as a count, or the error.
    pub(crate) fn outcome(&self) -> io::Result<u32> {
        u32::try_from(self.result).map_err(|_| io::Error::from_raw_os_error(self.result.saturating_neg()))
    }
}

/// One worker submits and waits, so completions are processed only when it waits. Submission continues after an entry
/// that fails. All flags are older than the buffer ring, which the transport requires anyway, so there is no fallback
/// to fewer flags.
fn open_ring(submissions: u32, completions: u32) -> io::Result<IoUring> {
    IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_submit_all()
        .setup_no_sqarray()
        .setup_cqsize(completions)
        .dontfork()
        .build(submissions)
}

fn sort_register(source: io::Error) -> TransportError {
    match source.raw_os_error() {
        Some(libc::EINVAL) => TransportError::MissingFeature { feature: "IOU_PBUF_RING_INC", since: "6.12" },
        _ => TransportError::sort("registering the buffer ring", source),
    }
}

fn queued(ring: &mut IoUring) -> u32 {
    u32::try_from(ring.submission().len()).expect("no more than SUBMISSIONS are queued")
}

/// True if the wait ended without a failure: the time is over, a signal arrived, or the kernel first needs completions
/// taken or memory freed. The caller calls again.
fn is_passing(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN))
}

fn write_entry(file: RawFd, write: &FileWrite) -> Entry {
    let source = std::ptr::with_exposed_provenance(write.addr);
    opcode::Write::new(Fd(file), source, write.extent.len()).offset(write.extent.off).build()
}

fn written(entry: &cqueue::Entry, writes: &[FileWrite]) -> io::Result<()> {
    let index = usize::try_from(entry.user_data()).expect("the index of a write");
    let bytes = Completion::from_entry(entry).outcome()?;
    file::whole(bytes as usize, &writes[index])
}
