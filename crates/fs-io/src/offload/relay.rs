//! Passes the kernel's requests on to a server on another machine, and its replies back:
//! `docs/format/fs-network.md`.

use super::cache::{Begun, Cache, Heard};
use super::changes::Changes;
use super::channel::Channel;
use super::exchange::{Line, Pending, Unanswered, exchange, is_success, shorten};
use super::locks::{About, HeldLocks, Parked, Passage, errno_of};
use super::message::{Message, ServerLife};
use crate::clock::since_start;
use crate::effects::{Effects, Makes};
use crate::errors::{NO_LOCKS, TOO_SMALL};
use crate::inspect::LINK;
use crate::interrupts::Interrupts;
use crate::locking::WAITS;
use crate::random::random_bytes;
use crate::service::SyncMode;
use landfall_fs::{FileLock, InodeNumber};
use landfall_fuse::{
    Device, Errno, HEAD_BYTES, Negotiated, Op, REPLY_HEADER_BYTES, Ready, Received, Reply, Request, Sent,
    Unique,
};
use parking_lot::{Condvar, Mutex};
use smallvec::SmallVec;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// What threads that pass requests on have in common.
pub(super) struct Relay {
    state: Mutex<State>,
    changed: Condvar,
    pub(super) changes: Mutex<Changes>,
    pub(super) cache: Cache,
    /// Locked before `state`, where both are.
    pub(super) locks: Mutex<HeldLocks>,
    /// Where libraries connect, if they can.
    libraries: OnceLock<PathBuf>,
}

#[derive(Default)]
struct State {
    link: Option<Arc<Link>>,
    /// Number of servers so far.
    links: u64,
    /// What was called of servers from this number on, the last one knows.
    known_from: u64,
    /// What that has said of mounts whose calls it does not know.
    heard: u64,
    /// Programs do not wait for a server any longer.
    refuses: bool,
    /// The mount has ended.
    has_ended: bool,
    /// Requests that were interrupted: a server that is away, or dies, does not know of it.
    interrupted: Interrupts,
}

impl State {
    /// Numbers a server, and finds what it knows.
    fn number(&mut self, link: &mut Link) {
        self.links += 1;
        self.heard = link.forgotten;
        if !link.knows {
            self.known_from = self.links;
        }
        (link.number, link.known_from) = (self.links, self.known_from);
    }

    /// The server, if there is one.
    ///
    /// # Errors
    /// Nobody waits for one: `EIO`.
    fn server(&self) -> Result<Option<Arc<Link>>, Errno> {
        match self.link.as_ref().filter(|link| !link.has_left()) {
            None if self.refuses => Err(Errno::IO),
            link => Ok(link.cloned()),
        }
    }
}

/// A server that serves the mount.
pub(super) struct Link {
    pub(super) life: ServerLife,
    sync: SyncMode,
    /// It knows which calls of the mount were done, and of how many mounts it does not know that any more.
    knows: bool,
    forgotten: u64,
    /// Its number among those that have served the mount.
    number: u64,
    /// It knows which calls of those from this number on were done.
    known_from: u64,
    pub(super) control: Arc<Channel>,
    /// A queue for each thread.
    lines: Vec<Line>,
    /// It executes nothing any more, and has yet to end.
    has_left: AtomicBool,
}

impl Link {
    /// A server that has accepted the mount, and what it knows of calls.
    pub(super) fn new(
        (life, sync): (ServerLife, SyncMode),
        (knows, forgotten): (bool, u64),
        control: Arc<Channel>,
        streams: Vec<TcpStream>,
    ) -> Self {
        let lines = streams.into_iter().map(|stream| Line { stream, turn: Mutex::default() }).collect();
        let has_left = AtomicBool::new(false);
        Self { life, sync, knows, forgotten, number: 0, known_from: 0, control, lines, has_left }
    }

    /// The mount has ended: the server is told, and has the last word. It ends all queues, which means no more than that.
    fn leave(&self, index: usize) {
        // If the server does not hear it, it believes that the mount may come back.
        let _ = self.control.send(&Message::Ended(String::new()), &[]);
        self.control.finish();
        self.end_line(index);
    }

    /// Ends all connections: whoever waits for a reply gets none.
    fn end(&self) {
        self.control.close();
        (0..self.lines.len()).for_each(|index| self.end_line(index));
    }

    fn has_left(&self) -> bool {
        self.has_left.load(Ordering::Acquire)
    }

    fn end_line(&self, index: usize) {
        // One that has ended already is as well.
        let _ = self.lines[index].stream.shutdown(Shutdown::Both);
    }
}

/// A request for a lock.
struct Asked<'a> {
    unique: Unique,
    lock: (InodeNumber, FileLock),
    /// It waits until it gets the lock.
    may_wait: bool,
    pending: Pending<'a>,
    device: &'a Arc<Device>,
}

impl<'a> Asked<'a> {
    /// One that has waited already.
    fn of(parked: &'a Parked) -> Self {
        let Parked { unique, lock, bytes, device } = parked;
        Self { unique: *unique, lock: *lock, may_wait: true, pending: Pending::of(bytes), device }
    }

    fn parked(&self) -> Parked {
        let device = Arc::clone(self.device);
        Parked { unique: self.unique, lock: self.lock, bytes: self.pending.to_vec(), device }
    }
}

impl Relay {
    /// Passes on what comes from `queues`, each by a thread of its own, until the mount ends or `stop` is readable. So many bytes
    /// are for what the server's leases allow to keep.
    ///
    /// # Errors
    /// No thread can be started.
    pub(super) fn start(
        queues: &[Device],
        negotiated: Negotiated,
        stop: &OwnedFd,
        cache_bytes: usize,
    ) -> io::Result<Arc<Self>> {
        let (state, changes, locks) = (Mutex::default(), Mutex::default(), Mutex::default());
        let cache = Cache::new(cache_bytes, queues.len(), first_handle()?);
        let libraries = OnceLock::new();
        let relay = Arc::new(Self { state, changed: Condvar::new(), changes, cache, locks, libraries });
        for (index, queue) in queues.iter().enumerate() {
            let (relay, device, stop) =
                (Arc::clone(&relay), Arc::new(queue.clone_queue()?), stop.try_clone()?);
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

    /// From now on the files name this socket of libraries.
    pub(super) fn name_libraries(&self, socket: PathBuf) {
        // There is one for each mount.
        let _ = self.libraries.set(socket);
    }

    /// What the server that has accepted the mount last has said of mounts whose calls it does not know.
    pub(super) fn heard(&self) -> u64 {
        self.state.lock().heard
    }

    /// A server has accepted the mount.
    pub(super) fn link(self: &Arc<Self>, mut link: Link) {
        let lost = self.changes.lock().serve(link.life);
        if lost > 0 {
            tracing::warn!(
                inodes = lost,
                "another server: what the one before had not made durable may be lost"
            );
        }
        let waiting = {
            let mut locks = self.locks.lock();
            let mut state = self.state.lock();
            if state.has_ended {
                (0..link.lines.len()).for_each(|index| link.leave(index));
            }
            state.number(&mut link);
            self.cache.begin_server(link.number);
            (state.link, state.refuses) = (Some(Arc::new(link)), false);
            locks.take_waiting()
        };
        self.changed.notify_all();
        if waiting.is_empty() {
            return;
        }
        // Who says what the server asks must not wait for it.
        let (relay, waiting) = (Arc::clone(self), Arc::new(Mutex::new(waiting)));
        let parked = Arc::clone(&waiting);
        let ask = move || {
            for parked in std::mem::take(&mut *parked.lock()) {
                if let Err(error) = relay.ask(0, &Asked::of(&parked), &mut Vec::new()) {
                    tracing::error!(%error, "the kernel refuses a reply");
                }
            }
        };
        if let Err(error) = std::thread::Builder::new().name("locks".into()).spawn(ask) {
            tracing::error!(%error, "requests that wait for a lock are refused");
            let refused = std::mem::take(&mut *waiting.lock());
            refused.iter().for_each(|parked| reply_to(parked, Some(NO_LOCKS)));
        }
    }

    /// There is no server any more.
    pub(super) fn unlink(&self) {
        let link = self.state.lock().link.take();
        link.iter().for_each(|link| link.end());
        self.cache.end_server();
        self.end_interrupted();
    }

    /// There is no server that could say so to requests that wait for a lock and were interrupted: it may not have heard of
    /// it.
    fn end_interrupted(&self) {
        let mut locks = self.locks.lock();
        let state = self.state.lock();
        let ended = locks.take_waiting_if(|parked| state.interrupted.has(parked.unique));
        drop(state);
        ended.iter().for_each(|parked| reply_to(parked, Some(Errno::INTR)));
    }

    /// Programs do not wait any longer until there is a server.
    pub(super) fn refuse(&self) {
        self.state.lock().refuses = true;
        self.changed.notify_all();
        let waiting = self.locks.lock().take_waiting();
        waiting.into_iter().for_each(|parked| reply_to(&parked, Some(Errno::IO)));
    }

    /// The mount has ended. Other threads may wait for a reply still.
    fn end(&self, index: usize) {
        let mut state = self.state.lock();
        state.has_ended = true;
        state.link.iter().for_each(|link| link.leave(index));
        drop(state);
        self.refuse();
    }

    /// The server, as soon as there is one.
    ///
    /// # Errors
    /// Nobody waits for it: `EIO`.
    fn linked(&self) -> Result<Arc<Link>, Errno> {
        let mut state = self.state.lock();
        loop {
            if let Some(link) = state.server()? {
                return Ok(link);
            }
            self.changed.wait(&mut state);
        }
    }

    /// The server, for a request for a lock. `None`: there is none, and the request waits here for the next one. It occupies
    /// no thread meanwhile, so that interrupts are heard.
    ///
    /// # Errors
    /// Nobody waits for a server: `EIO`; the request was interrupted: `EINTR`.
    fn linked_or_parked(&self, asked: &Asked<'_>) -> Result<Option<Arc<Link>>, Errno> {
        if !asked.may_wait {
            return self.linked().map(Some);
        }
        let mut locks = self.locks.lock();
        let state = self.state.lock();
        if state.interrupted.has(asked.unique) {
            return Err(Errno::INTR);
        }
        let link = state.server()?;
        if link.is_none() {
            locks.park_for_server(asked.parked());
        }
        Ok(link)
    }

    fn pass_all(
        &self,
        index: usize,
        device: &Arc<Device>,
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
                Ok(request) => {
                    self.tell(index, &request, &pending);
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
    fn tell(&self, index: usize, request: &Request<'_>, pending: &Pending<'_>) {
        let op = &request.op;
        let (link, bytes) = {
            let mut state = self.state.lock();
            if let Op::Interrupt { unique } = op {
                state.interrupted.note(*unique);
            }
            let link = state.link.clone();
            // What one server has counted means nothing to the next one. None begins meanwhile: it may ask whether the kernel knows
            // an inode, and must hear when it does not any more.
            let server = link.as_ref().map_or(0, |link| link.number);
            let counted = |node, lookups| self.cache.forget(server, node, lookups);
            (link, pending.forgetting(request, counted))
        };
        let Some(bytes) = bytes else { return };
        match (link, op) {
            (Some(link), _) => {
                let pending = Pending::of(&bytes);
                let Line { stream, turn } = &link.lines[index];
                let _turn = turn.lock();
                // The next request that wants an answer finds out why.
                if let Err(error) = pending.send(stream) {
                    tracing::debug!(%error, "a queue to the server has ended");
                }
            }
            (None, Op::Interrupt { unique }) => {
                let parked = self.locks.lock().cancel(*unique);
                parked.iter().for_each(|parked| reply_to(parked, Some(Errno::INTR)));
            }
            (None, _) => {}
        }
    }

    /// Has the server answer a request, and passes the answer on.
    fn answer(
        &self,
        index: usize,
        device: &Arc<Device>,
        (request, pending): (&Request<'_>, &Pending<'_>),
        reply: &mut Vec<u8>,
    ) -> io::Result<Sent> {
        if let Op::GetXattr { name, size } = request.op
            && name.as_bytes() == LINK
            && let Some(socket) = self.libraries.get()
        {
            return tell(device, request.unique, socket.as_os_str().as_bytes(), size);
        }
        let about = About::of(request);
        // Not within the `match`: who loses the server asks for the locks, too.
        let passage = self.locks.lock().begin(InodeNumber(request.node.0), &about);
        match passage {
            Passage::ToServer => {}
            Passage::Hint => {
                self.hint(index, pending, reply);
                return device.reply(&Reply::ok(request.unique));
            }
            Passage::Done => return device.reply(&Reply::ok(request.unique)),
            Passage::Lost => return device.reply(&Reply::error(request.unique, Errno::IO)),
        }
        if let About::Lock(lock) = about {
            let may_wait = matches!(request.op, Op::SetLockWait(_));
            let (unique, lock) = (request.unique, (InodeNumber(request.node.0), lock));
            return self.ask(index, &Asked { unique, lock, may_wait, pending: *pending, device }, reply);
        }
        let read_bytes = match self.cache.begin(index, request, since_start()) {
            Begun::Answer(answer) => return answer.send(device),
            Begun::Ask { read_bytes } => read_bytes,
        };
        let asked = read_bytes.map_or(*pending, |bytes| pending.reading(bytes));
        match self.pass(index, &about, (request, &asked), reply) {
            Ok((is_marked, server)) => {
                self.cache.end(index, request, Some(Heard { reply: reply.as_slice(), is_marked, server }));
                if let Op::Read(read) = &request.op {
                    shorten(reply, read.size);
                }
                device.send(&[IoSlice::new(reply)])
            }
            Err(errno) => {
                self.cache.end(index, request, None);
                device.reply(&Reply::error(request.unique, errno))
            }
        }
    }

    /// Has the server execute a request, or the next one, if it was not executed. Returns whether the reply was marked, and the
    /// server's number.
    ///
    /// # Errors
    /// `EIO`: nobody waits for a server, or nobody knows whether it was executed.
    fn pass(
        &self,
        index: usize,
        about: &About,
        (request, pending): (&Request<'_>, &Pending<'_>),
        reply: &mut Vec<u8>,
    ) -> Result<(bool, u64), Errno> {
        let inode = request.node.0;
        let (mut sent, mut may_be_done_by) = (*pending, None);
        loop {
            let link = self.linked()?;
            // A server may know nothing of it any more.
            if may_be_done_by.is_some_and(|number| number < link.known_from) {
                return Err(Errno::IO);
            }
            // It may have waited for this server, which has refused the claim of its lock.
            if self.locks.lock().is_lost(about) {
                return Err(Errno::IO);
            }
            let is_sync = matches!(request.op, Op::Fsync { .. } | Op::FsyncDir { .. });
            let begun = self.changes.lock().begin_sync();
            if is_sync && self.changes.lock().take_lost(inode) {
                return Err(Errno::IO);
            }
            match exchange(&link.lines[index], &sent, reply) {
                Ok(is_marked) => {
                    reply[8..16].copy_from_slice(&pending.head[8..16]);
                    let mut changes = self.changes.lock();
                    if is_sync && is_success(reply) {
                        changes.end_sync(link.life, inode, begun);
                    }
                    if link.sync == SyncMode::Fsync {
                        let changed = changed_by(request, reply);
                        changed.into_iter().for_each(|inode| changes.note(link.life, inode));
                    }
                    return Ok((is_marked, link.number));
                }
                Err(unanswered) => {
                    self.lose(&link, &unanswered);
                    if matches!(unanswered, Unanswered::Perhaps(_)) && !may_repeat(&request.op) {
                        (sent, may_be_done_by) = (pending.again(request.unique), Some(link.number));
                    }
                }
            }
        }
    }

    /// Tells the server something, if there is one.
    fn hint(&self, index: usize, pending: &Pending<'_>, reply: &mut Vec<u8>) {
        let link = self.state.lock().link.clone();
        if let Some(link) = link
            && let Err(unanswered) = exchange(&link.lines[index], pending, reply)
        {
            self.lose(&link, &unanswered);
        }
    }

    /// Has the server answer a request for a lock. One that waits is answered when that is decided.
    fn ask(&self, index: usize, asked: &Asked<'_>, reply: &mut Vec<u8>) -> io::Result<Sent> {
        let refused = |errno| asked.device.reply(&Reply::error(asked.unique, errno));
        loop {
            let link = match self.linked_or_parked(asked) {
                Ok(Some(link)) => link,
                Ok(None) => return Ok(Sent::Done),
                Err(errno) => return refused(errno),
            };
            // It may have waited for this server, which has refused the claim of the open file's lock.
            if self.locks.lock().is_lost(&About::Lock(asked.lock.1)) {
                return refused(Errno::IO);
            }
            if let Err(unanswered) = exchange(&link.lines[index], &asked.pending, reply) {
                self.lose(&link, &unanswered);
                continue;
            }
            match self.locked(&link, asked, reply) {
                Locked::Replied => return Ok(Sent::Done),
                Locked::Reply => return asked.device.send(&[IoSlice::new(reply)]),
                Locked::Again => {}
            }
        }
    }

    /// Notes what a server has answered to a request for a lock.
    fn locked(&self, link: &Arc<Link>, asked: &Asked<'_>, reply: &[u8]) -> Locked {
        let mut locks = self.locks.lock();
        // What a server has granted that is away was not claimed of the next one.
        let is_linked = self.state.lock().link.as_ref().is_some_and(|linked| Arc::ptr_eq(linked, link));
        if !is_linked {
            return Locked::Again;
        }
        if is_success(reply) {
            locks.note(asked.lock);
        }
        if reply[4..8] != (-WAITS.raw()).to_le_bytes() {
            return Locked::Reply;
        }
        if let Some((parked, errno)) = locks.park(asked.parked()) {
            decided(&mut locks, &parked, errno);
        }
        Locked::Replied
    }

    /// The server has decided on a request that waits.
    pub(super) fn decide(&self, unique: u64, errno: u32) {
        let mut locks = self.locks.lock();
        if let Some(parked) = locks.decide(unique, errno) {
            decided(&mut locks, &parked, errno);
        }
    }

    /// A server does not answer any more: whoever has a request waits for the next one.
    fn lose(&self, link: &Arc<Link>, unanswered: &Unanswered) {
        self.end_cache(link);
        match unanswered {
            // What else it has to say comes over the control connection.
            Unanswered::NotExecuted => link.has_left.store(true, Ordering::Release),
            Unanswered::Perhaps(_) if link.has_left() => {}
            Unanswered::Perhaps(error) => {
                tracing::debug!(%error, "a queue to the server has ended");
                link.end();
                self.forget(link);
            }
        }
    }

    /// Nothing is answered without the server any more, unless there is another one by now.
    fn end_cache(&self, link: &Arc<Link>) {
        let state = self.state.lock();
        if state.link.as_ref().is_some_and(|linked| Arc::ptr_eq(linked, link)) {
            self.cache.end_server();
        }
    }

    fn forget(&self, link: &Arc<Link>) {
        let mut state = self.state.lock();
        if state.link.as_ref().is_some_and(|linked| Arc::ptr_eq(linked, link)) {
            state.link = None;
        }
        drop(state);
        self.end_interrupted();
    }
}

/// A number that is no other's, nor are those behind it.
fn first_handle() -> io::Result<u64> {
    let random = random_bytes()?;
    Ok(random.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes)))
}

/// What is done with the answer to a request for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Locked {
    /// It goes to the kernel.
    Reply,
    /// The kernel has its reply, or gets it later.
    Replied,
    /// The answer is that of a server which is away.
    Again,
}

/// A request that has waited has ended: first it is noted, then its caller goes on.
fn decided(locks: &mut HeldLocks, parked: &Parked, decided: u32) {
    let errno = errno_of(decided);
    if errno.is_none() {
        locks.note(parked.lock);
    }
    reply_to(parked, errno);
}

fn reply_to(parked: &Parked, errno: Option<Errno>) {
    let reply = match errno {
        None => Reply::ok(parked.unique),
        Some(errno) => Reply::error(parked.unique, errno),
    };
    if let Err(error) = parked.device.reply(&reply) {
        tracing::error!(%error, "the kernel refuses a reply");
    }
}

/// Whether a request may be executed twice. What TMPFILE makes ends with the connection.
fn may_repeat(op: &Op<'_>) -> bool {
    match op {
        Op::Create { .. }
        | Op::MkNod { .. }
        | Op::MkDir { .. }
        | Op::Symlink { .. }
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
    let Some(Effects { nodes, makes, .. }) = Effects::of(request).filter(|_| is_success(reply)) else {
        return SmallVec::new();
    };
    let made = || reply[REPLY_HEADER_BYTES..].first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
    let made = if makes == Makes::Nothing { None } else { made() };
    nodes.into_iter().map(|node| node.0).chain(made).collect()
}

/// Tells the value of an extended attribute, or its length to who asks with size 0.
fn tell(device: &Device, unique: Unique, value: &[u8], size: u32) -> io::Result<Sent> {
    let len = u32::try_from(value.len()).unwrap_or(u32::MAX);
    match size {
        0 => device.reply(&Reply::xattr_size(unique, len)),
        size if len > size => device.reply(&Reply::error(unique, TOO_SMALL)),
        _ => device.reply_data(unique, &[IoSlice::new(value)]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counter::counter;
    use crate::offload::channel::ChannelError;
    use landfall_fuse::Features;
    use std::io::Read;
    use std::net::TcpListener;

    fn connection() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let here = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (here, listener.accept().unwrap().0)
    }

    #[test]
    fn a_server_knows_what_was_called_since_the_last_one_that_did_not() {
        let negotiated = Negotiated::elsewhere(31, Features::of_bits(0), 4096, 0);
        let relay = Relay::start(&[], negotiated, &counter().unwrap(), 0).unwrap();
        assert_eq!(relay.heard(), 0);
        let mut known_from = Vec::new();
        for (forgotten, knows) in [(1, true), (1, true), (2, true), (3, false), (3, true), (4, false)] {
            let control = Arc::new(Channel::over(connection().0).unwrap());
            let server = (ServerLife::default(), SyncMode::Fsync);
            relay.link(Link::new(server, (knows, forgotten), control, Vec::new()));
            assert_eq!(relay.heard(), forgotten);
            known_from.push(relay.linked().unwrap().known_from);
        }
        assert_eq!(known_from, [0, 0, 0, 4, 4, 6]);
    }

    #[test]
    fn a_server_that_accepts_a_mount_which_has_ended_meanwhile_is_told() {
        let negotiated = Negotiated::elsewhere(31, Features::of_bits(0), 4096, 0);
        let relay = Relay::start(&[], negotiated, &counter().unwrap(), 0).unwrap();
        relay.end(0);
        let ((control, its_control), (queue, mut its_queue)) = (connection(), connection());
        let [control, its_control] = [control, its_control].map(|end| Channel::over(end).unwrap());
        let server = (ServerLife::default(), SyncMode::Fsync);
        relay.link(Link::new(server, (false, 0), Arc::new(control), vec![queue]));
        assert_eq!(its_control.receive().unwrap().0, Message::Ended(String::new()));
        assert!(matches!(its_control.receive(), Err(ChannelError::Closed)));
        assert_eq!(its_queue.read(&mut [0]).unwrap(), 0);
    }
}
