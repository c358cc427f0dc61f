//! The connection to the server of a mount.

use crate::sys::{ControlMemory, Kept};
use landfall_fs_client::{Client, Gone, Host, Next, Now};
use landfall_fs_link::{Control, MESSAGE_BYTES_MAX, Reply, Request, is_same_user};
use landfall_heap::RunId;
use landfall_media::{Attached, Extent, Site};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, connect, recv, recvmsg, send, socket_with,
};
use rustix::time::{ClockId, clock_gettime};
use std::fs::File;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Descriptors of the library have high numbers: programs expect the lowest free one for themselves.
const DESCRIPTOR_MIN: i32 = 600;
/// Longest wait for an answer. A server that takes longer does not answer requests of the mount either.
const ANSWER_TIME: Duration = Duration::from_secs(30);
/// Descriptors that come with the first answer: the region, and the control memory.
const FILES: usize = 2;

/// Why there is no connection. The kernel answers then.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    /// The kernel refuses, most often because the mount is another user's.
    #[error(transparent)]
    Kernel(#[from] Errno),
    /// The server is another user's.
    #[error("the server is another user's")]
    Foreign,
    /// The server refuses, or does not keep to the protocol.
    #[error("the server refuses")]
    Refused,
    /// The region cannot be mapped.
    #[error(transparent)]
    Region(#[from] landfall_media::MediaError),
    /// The control memory is none of this version.
    #[error(transparent)]
    Control(#[from] landfall_fs_link::Unusable),
}

/// Numbers of the library's own descriptors: [`UNUSED`] where there is none, [`LOST`] if the program has made one of its own
/// of it. They are looked at whenever a program closes something.
static NUMBERS: [AtomicI32; DESCRIPTORS_MAX] = [const { AtomicI32::new(UNUSED) }; DESCRIPTORS_MAX];
/// Descriptors of all connections that there have been.
const DESCRIPTORS_MAX: usize = 64;
const UNUSED: i32 = -1;
const LOST: i32 = -2;

/// The program closes these descriptors, or makes them others.
pub(crate) fn lose(descriptors: &RangeInclusive<u32>) {
    for number in &NUMBERS {
        let own = number.load(Ordering::Acquire);
        if own == UNUSED {
            return;
        }
        if own >= 0 && descriptors.contains(&own.cast_unsigned()) {
            number.store(LOST, Ordering::Release);
        }
    }
}

/// A descriptor of the library, until the program makes its number another one.
struct Own {
    descriptor: OwnedFd,
    number: &'static AtomicI32,
}

impl Own {
    /// `None` if there have been too many.
    fn new(descriptor: OwnedFd) -> Option<Self> {
        let own = descriptor.as_raw_fd();
        let takes = |number: &&AtomicI32| {
            number.compare_exchange(UNUSED, own, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        NUMBERS.iter().find(takes).map(|number| Self { descriptor, number })
    }

    fn get(&self) -> Option<BorrowedFd<'_>> {
        (self.number.load(Ordering::Acquire) != LOST).then(|| self.descriptor.as_fd())
    }
}

/// The server, and the region that it has passed on.
struct Server {
    socket: Own,
    /// The control memory: the next server finds it here, if this one is killed.
    memory: Own,
    /// One question at a time. True: one was not answered, and its answer may still come. None is asked any more.
    asking: Mutex<bool>,
    /// Its last word was that everything is durable.
    has_settled: AtomicBool,
    region: Attached,
}

/// A mount to whose server the process is connected. It stays until the process ends.
pub(crate) struct Connection {
    pub(crate) client: Client<'static>,
    server: &'static Server,
}

impl Connection {
    /// Connects to the socket of the mount with this `st_dev`.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub(crate) fn open(path: &[u8], device: u64) -> Result<Self, ConnectError> {
        let socket = socket(path)?;
        send(&socket, &Request::hello(device).encode(), SendFlags::NOSIGNAL)?;
        let (reply, files) = receive_with_files(&socket)?;
        let (Reply::Welcome { client, hash_seed, begin, control: at }, Ok([region, control_file])) =
            (reply, <[OwnedFd; FILES]>::try_from(files))
        else {
            return Err(ConnectError::Refused);
        };
        let memory: &'static ControlMemory = Kept::new(ControlMemory::map(&control_file, at)?);
        let control = Control::new(memory.words())?;
        let identity = control.identity()?;
        // In a virtual machine, somebody may have named another device.
        if (identity.client, identity.hash_seed) != (client, hash_seed) {
            return Err(ConnectError::Refused);
        }
        let region = Attached::new(&File::from(region), identity.region_bytes, begin)?;
        let memory = rustix::io::fcntl_dupfd_cloexec(&control_file, DESCRIPTOR_MIN)?;
        let server: &'static Server = Kept::new(Server {
            socket: Own::new(socket).ok_or(ConnectError::Refused)?,
            memory: Own::new(memory).ok_or(ConnectError::Refused)?,
            asking: Mutex::default(),
            has_settled: AtomicBool::new(false),
            region,
        });
        // A virtual machine's mount may follow to a server of another region.
        let next = if begin == 0 { Next::SameRegion } else { Next::Any };
        Ok(Self { client: Client::new(control, server)?.followed_by(next), server })
    }

    /// The process is a child of the one that has connected: the connection ends with its parent.
    pub(crate) fn close_in_child(&self) {
        [&self.server.socket, &self.server.memory]
            .into_iter()
            .filter_map(Own::get)
            .for_each(crate::sys::close);
    }
}

fn socket(path: &[u8]) -> Result<OwnedFd, ConnectError> {
    let low = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    let socket = rustix::io::fcntl_dupfd_cloexec(&low, DESCRIPTOR_MIN)?;
    set_socket_timeout(&socket, Timeout::Recv, Some(ANSWER_TIME))?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    // The attribute that names the socket is the mount's word, and anybody may mount something: whoever serves it could
    // take the memory away that it has lent.
    let own = rustix::process::geteuid().as_raw();
    let is_own = crate::sys::user_behind(socket.as_fd()).is_some_and(|user| is_same_user(user, own));
    if is_own { Ok(socket) } else { Err(ConnectError::Foreign) }
}

fn receive_with_files(socket: &OwnedFd) -> Result<(Reply, Vec<OwnedFd>), ConnectError> {
    let mut bytes = [0; MESSAGE_BYTES_MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut slices = [IoSliceMut::new(&mut bytes)];
    let received = again(|| recvmsg(socket, &mut slices, &mut control, RecvFlags::CMSG_CLOEXEC))?;
    let mut files = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            files.extend(received);
        }
    }
    let reply = Reply::decode(&bytes[..received.bytes]).map_err(|_| ConnectError::Refused)?;
    Ok((reply, files))
}

/// Repeats a call that a signal interrupts.
fn again<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            done => return done,
        }
    }
}

impl Host for Server {
    #[inline]
    fn bytes(&self, extent: Extent) -> Result<&[u8], Gone> {
        self.region.bytes(extent).map_err(|_| Gone)
    }

    fn open_run(&self, run: RunId) -> Result<(), Gone> {
        self.region.open_run(run.off()).map_err(|_| Gone)
    }

    fn close_run(&self, run: RunId) {
        // A run that stays open is one that the process may store to until it ends.
        let _ = self.region.close_run(run.off());
    }

    #[inline]
    fn store(&self, off: u64, bytes: &[u8]) -> Result<(), Gone> {
        self.region.store(off, bytes).map_err(|_| Gone)
    }

    fn flush(&self, _site: Site, extent: Extent) {
        self.region.flush(extent);
    }

    fn fence(&self) {
        self.region.fence();
    }

    fn ask(&self, request: &Request) -> Result<Reply, Gone> {
        let mut is_unanswered = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        if *is_unanswered {
            return Err(Gone);
        }
        let socket = self.socket.get().ok_or(Gone)?;
        again(|| send(socket, &request.encode(), SendFlags::NOSIGNAL)).map_err(|_| Gone)?;
        *is_unanswered = true;
        let mut bytes = [0; MESSAGE_BYTES_MAX];
        let (len, _) = again(|| recv(socket, &mut bytes[..], RecvFlags::empty())).map_err(|_| Gone)?;
        let reply = Reply::decode(bytes.get(..len).ok_or(Gone)?).map_err(|_| Gone)?;
        *is_unanswered = false;
        if reply == Reply::Settled {
            self.has_settled.store(true, Ordering::Release);
            return Err(Gone);
        }
        Ok(reply)
    }

    fn is_there(&self) -> bool {
        let Some(socket) = self.socket.get() else { return false };
        let mut polled = [PollFd::from_borrowed_fd(socket, PollFlags::RDHUP)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut polled, Some(&at_once)).is_ok() && polled[0].revents().is_empty()
    }

    /// The last word is behind answers that nobody has waited for.
    fn has_settled(&self) -> bool {
        let _one = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        let mut bytes = [0; MESSAGE_BYTES_MAX];
        while !self.has_settled.load(Ordering::Acquire) {
            let Some(socket) = self.socket.get() else { break };
            match again(|| recv(socket, &mut bytes[..], RecvFlags::DONTWAIT)) {
                Ok((len, _)) if len > 0 => {
                    let said = bytes.get(..len).and_then(|bytes| Reply::decode(bytes).ok());
                    self.has_settled.store(said == Some(Reply::Settled), Ordering::Release);
                }
                _ => break,
            }
        }
        self.has_settled.load(Ordering::Acquire)
    }

    #[inline]
    fn now(&self) -> Now {
        let (unix, steady) = (clock_gettime(ClockId::Realtime), clock_gettime(ClockId::Monotonic));
        let ms = steady.tv_sec.unsigned_abs() * 1000 + steady.tv_nsec.unsigned_abs() / 1_000_000;
        Now { unix_ns: unix.tv_sec.saturating_mul(1_000_000_000).saturating_add(unix.tv_nsec), ms }
    }
}
