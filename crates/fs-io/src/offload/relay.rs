//! Passes the kernel's requests on to a server on another machine, and its replies back:
//! `docs/format/fs-network.md`.

use super::changes::Changes;
use super::channel::Channel;
use super::message::ServerLife;
use landfall_fuse::{
    Device, Errno, HEAD_BYTES, Negotiated, Op, REPLY_HEADER_BYTES, Ready, Received, Reply, Request, Sent,
};
use parking_lot::{Condvar, Mutex};
use smallvec::{SmallVec, smallvec};
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// Bytes of the longest reply: what the kernel reads at once, with a header.
const REPLY_BYTES_MAX: usize = (1 << 20) + 4096;

/// What threads that pass requests on have in common.
pub(super) struct Relay {
    state: Mutex<State>,
    changed: Condvar,
    pub(super) changes: Mutex<Changes>,
}

#[derive(Default)]
struct State {
    link: Option<Arc<Link>>,
    /// Programs do not wait for a server any longer.
    refuses: bool,
}

/// A server that serves the mount.
pub(super) struct Link {
    pub(super) life: ServerLife,
    pub(super) control: Arc<Channel>,
    /// A queue for each thread.
    pub(super) lines: Vec<TcpStream>,
}

impl Link {
    /// Ends all connections: whoever waits for a reply gets none.
    fn end(&self) {
        self.control.close();
        (0..self.lines.len()).for_each(|index| self.end_line(index));
    }

    fn end_line(&self, index: usize) {
        // One that has ended already is as well.
        let _ = self.lines[index].shutdown(Shutdown::Both);
    }
}

/// A request, as it was received.
struct Pending<'a> {
    head: [u8; HEAD_BYTES],
    room: &'a [u8],
    len: usize,
}

impl Pending<'_> {
    fn send(&self, mut line: &TcpStream) -> io::Result<()> {
        let body = self.len.saturating_sub(HEAD_BYTES);
        let mut parts =
            [IoSlice::new(&self.head[..self.len.min(HEAD_BYTES)]), IoSlice::new(&self.room[..body])];
        let mut parts = &mut parts[..];
        IoSlice::advance_slices(&mut parts, 0);
        while !parts.is_empty() {
            match line.write_vectored(parts) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(bytes) => IoSlice::advance_slices(&mut parts, bytes),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl Relay {
    /// Passes on what comes from `queues`, each by a thread of its own, until the mount ends or `stop` is readable.
    ///
    /// # Errors
    /// No thread can be started.
    pub(super) fn start(queues: &[Device], negotiated: Negotiated, stop: &OwnedFd) -> io::Result<Arc<Self>> {
        let (state, changes) = (Mutex::default(), Mutex::default());
        let relay = Arc::new(Self { state, changed: Condvar::new(), changes });
        for (index, queue) in queues.iter().enumerate() {
            let (relay, device, stop) = (Arc::clone(&relay), queue.clone_queue()?, stop.try_clone()?);
            let pass = move || {
                if let Err(error) = relay.pass_all(index, &device, negotiated, &stop) {
                    tracing::error!(%error, "requests of the kernel are not passed on: the mount ends");
                }
                relay.end(index);
            };
            std::thread::Builder::new().name(format!("fuse-{index}")).spawn(pass)?;
        }
        Ok(relay)
    }

    /// A server has accepted the mount.
    pub(super) fn link(&self, link: Link) {
        let lost = self.changes.lock().serve(link.life);
        if lost > 0 {
            tracing::warn!(
                inodes = lost,
                "another server: what the one before had not made durable may be lost"
            );
        }
        *self.state.lock() = State { link: Some(Arc::new(link)), refuses: false };
        self.changed.notify_all();
    }

    /// There is no server any more.
    pub(super) fn unlink(&self) {
        let link = self.state.lock().link.take();
        link.iter().for_each(|link| link.end());
    }

    /// Programs do not wait any longer until there is a server.
    pub(super) fn refuse(&self) {
        self.state.lock().refuses = true;
        self.changed.notify_all();
    }

    /// The mount has ended: the server is told by the end of its queues, and has the last word. Other threads may wait for
    /// a reply still.
    fn end(&self, index: usize) {
        self.state.lock().link.iter().for_each(|link| link.end_line(index));
        self.refuse();
    }

    /// The server, as soon as there is one. `None` if nobody waits for it.
    fn linked(&self) -> Option<Arc<Link>> {
        let mut state = self.state.lock();
        loop {
            if let Some(link) = &state.link {
                return Some(Arc::clone(link));
            }
            if state.refuses {
                return None;
            }
            self.changed.wait(&mut state);
        }
    }

    fn pass_all(
        &self,
        index: usize,
        device: &Device,
        negotiated: Negotiated,
        stop: &OwnedFd,
    ) -> io::Result<()> {
        let waiter = device.waiter(stop.as_fd())?;
        let (decoder, mut room) = (negotiated.decoder(), vec![0; negotiated.frame_bytes()]);
        let (mut joined, mut reply) = (Vec::new(), Vec::new());
        loop {
            let mut head = [0; HEAD_BYTES];
            let len = match device.receive(&mut head, &mut [IoSliceMut::new(&mut room)])? {
                Received::Request { len } => len,
                Received::Retry if waiter.wait()? == Ready::Device => continue,
                Received::Retry | Received::Ended => return Ok(()),
            };
            let pending = Pending { head, room: &room, len };
            let sent = match decoder.decode(&head, &[&room[..]], len, &mut joined) {
                Ok(request) if request.op.wants_reply() => {
                    self.answer(index, device, (&request, &pending), &mut reply)?
                }
                Ok(_) => {
                    self.tell(index, &pending);
                    Sent::Done
                }
                Err(malformed) => {
                    tracing::error!(error = %malformed, "the kernel sends a malformed request");
                    let refused =
                        malformed.unique.map(|unique| device.reply(&Reply::error(unique, Errno::IO)));
                    refused.transpose()?.unwrap_or(Sent::Done)
                }
            };
            if sent == Sent::Ended {
                return Ok(());
            }
        }
    }

    /// Sends what has no reply. If there is no server, it means nothing to the next one.
    fn tell(&self, index: usize, pending: &Pending<'_>) {
        let link = self.state.lock().link.clone();
        if let Some(link) = link
            && pending.send(&link.lines[index]).is_err()
        {
            link.end();
        }
    }

    /// Has the server answer a request, and passes the answer on.
    fn answer(
        &self,
        index: usize,
        device: &Device,
        (request, pending): (&Request<'_>, &Pending<'_>),
        reply: &mut Vec<u8>,
    ) -> io::Result<Sent> {
        loop {
            let Some(link) = self.linked() else { break };
            let inode = request.node.0;
            let is_sync = matches!(request.op, Op::Fsync { .. } | Op::FsyncDir { .. });
            let begun = self.changes.lock().begin_sync();
            if is_sync && self.changes.lock().take_lost(inode) {
                break;
            }
            match exchange(&link.lines[index], pending, reply) {
                Ok(()) => {
                    let mut changes = self.changes.lock();
                    if is_sync && is_success(reply) {
                        changes.end_sync(link.life, inode, begun);
                    }
                    changed_by(request, reply).into_iter().for_each(|inode| changes.note(link.life, inode));
                    drop(changes);
                    return device.send(&[IoSlice::new(reply)]);
                }
                Err(error) => {
                    tracing::debug!(%error, "a queue to the server has ended");
                    link.end();
                    self.forget(&link);
                    if !may_repeat(&request.op) {
                        break;
                    }
                }
            }
        }
        device.reply(&Reply::error(request.unique, Errno::IO))
    }

    /// A server does not answer any more: whoever has a request waits for the next one.
    fn forget(&self, link: &Arc<Link>) {
        let mut state = self.state.lock();
        if state.link.as_ref().is_some_and(|linked| Arc::ptr_eq(linked, link)) {
            state.link = None;
        }
    }
}

/// Sends a request, and receives the reply.
fn exchange(mut line: &TcpStream, pending: &Pending<'_>, reply: &mut Vec<u8>) -> io::Result<()> {
    pending.send(line)?;
    reply.resize(REPLY_HEADER_BYTES, 0);
    line.read_exact(reply)?;
    let len = reply.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes) as usize);
    // Both repeat the id at offset 8.
    let is_answer = reply[8..16] == pending.head[8..16];
    if !is_answer || !(REPLY_HEADER_BYTES..=REPLY_BYTES_MAX).contains(&len) {
        return Err(io::ErrorKind::InvalidData.into());
    }
    reply.resize(len, 0);
    line.read_exact(&mut reply[REPLY_HEADER_BYTES..])
}

fn is_success(reply: &[u8]) -> bool {
    reply[4..8] == [0; 4]
}

/// Whether a request may be executed twice.
fn may_repeat(op: &Op<'_>) -> bool {
    match op {
        Op::Create { .. }
        | Op::MkNod { .. }
        | Op::MkDir { .. }
        | Op::Symlink { .. }
        | Op::TmpFile { .. }
        | Op::Link { .. }
        | Op::Unlink { .. }
        | Op::RmDir { .. }
        | Op::Rename { .. }
        | Op::RemoveXattr { .. } => false,
        Op::Write(write) => write.flags & libc::O_APPEND.cast_unsigned() == 0,
        Op::SetXattr { flags, .. } => *flags == 0,
        _ => true,
    }
}

/// The inodes that a request has changed, if its reply says that it was executed.
fn changed_by(request: &Request<'_>, reply: &[u8]) -> SmallVec<[u64; 2]> {
    let node = request.node.0;
    if !is_success(reply) {
        return SmallVec::new();
    }
    // A reply that tells of a new inode begins with its number.
    let made = || reply[REPLY_HEADER_BYTES..].first_chunk().map_or(node, |bytes| u64::from_le_bytes(*bytes));
    match request.op {
        Op::Write(_)
        | Op::SetAttr(_)
        | Op::Fallocate { .. }
        | Op::SetXattr { .. }
        | Op::RemoveXattr { .. }
        | Op::Unlink { .. }
        | Op::RmDir { .. } => smallvec![node],
        Op::CopyFileRange(copy) => smallvec![copy.node_out.0],
        Op::Rename { new_parent, .. } => smallvec![node, new_parent.0],
        Op::Create { .. }
        | Op::MkNod { .. }
        | Op::MkDir { .. }
        | Op::Symlink { .. }
        | Op::TmpFile { .. }
        | Op::Link { .. } => smallvec![node, made()],
        _ => SmallVec::new(),
    }
}
