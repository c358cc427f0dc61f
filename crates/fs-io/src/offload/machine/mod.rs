//! Libraries in a virtual machine whose NVDIMM is the server's region: `docs/format/fs-network.md`, "Virtual machines".
//!
//! They share memory with the server, as libraries on its machine do. Only what they ask goes over the network: the holder of
//! the mount listens for them in its place. In a chain the mount may follow to a server of another region: libraries are those
//! of the server alone that has theirs ([`mark`]).

mod written;

use super::error::HoldError;
use super::hello::Purpose;
use super::mark;
use super::message::ServerLife;
use super::packets::{receive_over, receive_packet, send_over};
use super::reach::Remote;
use super::relay::Relay;
use crate::counter::{counter, raise, wait};
use crate::link::{Accepted, Listener, watch_process};
use crate::lives::MountId;
use crate::random::random_bytes;
use crate::sys;
use landfall_fs_link::{Reason, Refusal, Reply, Request, is_same_user};
use parking_lot::Mutex;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, Shutdown, send, sendmsg, shutdown};
use std::fs::File;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use written::Written;

/// Where the kernel names the time since it was booted.
const BOOT: &str = "/proc/sys/kernel/random/boot_id";
/// A mount that no holder has.
const NO_MOUNT: MountId = [0; 16];

/// Listens for libraries, until it is dropped.
pub(super) struct Machine {
    shared: Arc<Shared>,
    socket: PathBuf,
    accepting: Option<JoinHandle<()>>,
}

struct Shared {
    /// The region.
    device: File,
    mount: MountId,
    /// `st_dev` of the mount.
    st_dev: u64,
    boot: [u8; 16],
    /// Passes on what the kernel asks.
    relay: Arc<Relay>,
    /// The server that serves the mount.
    served: Mutex<Option<Arc<Served>>>,
    /// Readable when nobody is served any more.
    stop: OwnedFd,
}

/// A server, as long as it serves the mount.
struct Served {
    remote: Remote,
    life: ServerLife,
    /// The sockets of its libraries; `None`: another server serves the mount.
    libraries: Mutex<Option<Vec<Weak<OwnedFd>>>>,
}

impl Served {
    /// A library is one of this server, unless that serves the mount no more.
    fn add(&self, library: &Arc<OwnedFd>) -> bool {
        let mut libraries = self.libraries.lock();
        let Some(libraries) = &mut *libraries else { return false };
        libraries.retain(|library| library.strong_count() > 0);
        libraries.push(Arc::downgrade(library));
        true
    }

    /// Another server serves the mount from now on. Before anybody gets an answer of that one, libraries of this one know.
    fn end(&self) {
        let libraries = self.libraries.lock().take().unwrap_or_default();
        for library in libraries.iter().filter_map(Weak::upgrade) {
            // One that has gone knows.
            let _ = shutdown(&*library, Shutdown::Both);
        }
    }

    fn has_ended(&self) -> bool {
        self.libraries.lock().is_none()
    }
}

/// How what a library asks ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// It has closed its socket.
    Library,
    /// The server has gone, or the mount ends.
    Server,
}

impl Machine {
    /// Listens at `socket` for libraries of the programs that use a mount.
    ///
    /// # Errors
    /// [`HoldError::Nvdimm`], [`HoldError::Libraries`], [`HoldError::Io`].
    pub(super) fn start(
        (device, socket): (&Path, &Path),
        (mount, st_dev): (MountId, u64),
        relay: &Arc<Relay>,
    ) -> Result<Self, HoldError> {
        let opened = File::options().read(true).write(true).open(device);
        let device = opened.map_err(|source| HoldError::Nvdimm { device: device.to_owned(), source })?;
        let listener = Listener::bind(socket)
            .map_err(|source| HoldError::Libraries { socket: socket.to_owned(), source })?;
        let (boot, relay, stop) = (boot()?, Arc::clone(relay), counter()?);
        let shared = Shared { device, mount, st_dev, boot, relay, served: Mutex::default(), stop };
        let shared = Arc::new(shared);
        let accepting = Arc::clone(&shared);
        let accept = move || accepting.accept_all(&listener);
        let accepting = std::thread::Builder::new().name("link".into()).spawn(accept)?;
        Ok(Self { shared, socket: socket.to_owned(), accepting: Some(accepting) })
    }

    /// Where libraries connect.
    pub(super) fn socket(&self) -> &Path {
        &self.socket
    }

    /// From now on this server serves the mount. Nothing that is asked at the mount has come to it yet.
    pub(super) fn set_server(&self, remote: Remote, life: ServerLife) {
        let mut served = self.shared.served.lock();
        // One that has only lost its connection is the same.
        if served.as_ref().is_some_and(|served| served.life == life) {
            return;
        }
        let libraries = Mutex::new(Some(Vec::new()));
        let before = served.replace(Arc::new(Served { remote, life, libraries }));
        before.iter().for_each(|before| before.end());
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        raise(&self.shared.stop);
        self.accepting.take().into_iter().for_each(|thread| drop(thread.join()));
    }
}

impl Shared {
    fn accept_all(self: &Arc<Self>, listener: &Listener) {
        while let Ok(Some(1)) = wait(&[self.stop.as_fd(), listener.as_fd()], None) {
            let served = listener.accept().and_then(|accepted| self.begin(accepted));
            if let Err(error) = served {
                tracing::warn!(%error, "a library cannot be accepted");
            }
        }
    }

    fn begin(self: &Arc<Self>, Accepted { socket, user, process }: Accepted) -> io::Result<()> {
        if !is_same_user(user, sys::own_user()) {
            tracing::warn!(uid = user, "another user asks for files: refused");
            return Ok(());
        }
        let shared = Arc::clone(self);
        let serve = move || {
            if let Err(error) = shared.serve(socket, process) {
                tracing::debug!(%error, "a library is not answered any more");
            }
        };
        std::thread::Builder::new().name("library".into()).spawn(serve).map(drop)
    }

    /// Passes on what a library asks. The server hears when its process has ended: until then it may store to what it was
    /// granted.
    fn serve(&self, library: OwnedFd, process: i32) -> io::Result<()> {
        let process = watch_process(process)?;
        let Some(served) = self.served.lock().clone() else { return Ok(()) };
        if !mark::is_of(self.device.try_clone()?, served.life)? {
            tracing::debug!("the server has another region than this machine: programs use the mount");
            receive_packet(library.as_fd())?;
            let refusal = Refusal { reason: Reason::Mount, errno: libc::EBADF.unsigned_abs(), wait_ms: 0 };
            send(&library, &Reply::Refused(refusal).encode(), SendFlags::NOSIGNAL)?;
            return Ok(());
        }
        let library = Arc::new(library);
        if !served.add(&library) {
            return Ok(());
        }
        let stream = served.remote.greet(Purpose::Libraries, random_bytes()?).map_err(io::Error::other)?;
        stream.set_read_timeout(None)?;
        stream.set_write_timeout(None)?;
        let mut written = Written::default();
        if self.pass(&library, &stream, &mut written)? == End::Server || served.has_ended() {
            return Ok(());
        }
        drop(library);
        self.sync_for(&stream, written, served.life);
        send_over(&stream, &Request::Left.encode())?;
        // What it has asked before it left is answered still, and must be taken: a connection that is closed with something
        // unread is reset, and what was sent last may be lost.
        let mut has_ended = false;
        loop {
            let awaited = [self.stop.as_fd(), stream.as_fd(), process.as_fd()];
            match wait(&awaited[..if has_ended { 2 } else { 3 }], None)? {
                Some(1) if receive_over(&stream)?.is_some() => {}
                Some(2) => {
                    send_over(&stream, &Request::Ended.encode())?;
                    has_ended = true;
                }
                _ => return Ok(()),
            }
        }
    }

    /// A library has gone. What it has written and not made durable nobody knows but its server: that makes it durable. If it
    /// cannot, it may be lost with the server, as what the kernel has written.
    fn sync_for(&self, stream: &TcpStream, mut written: Written, life: ServerLife) {
        if written.inodes().is_empty() || self.ask_to_sync(stream, &mut written).is_ok_and(|done| done) {
            return;
        }
        let mut changes = self.relay.changes.lock();
        written.inodes().into_iter().for_each(|inode| changes.note(life, inode));
    }

    fn ask_to_sync(&self, stream: &TcpStream, written: &mut Written) -> io::Result<bool> {
        let request = Request::Sync.encode();
        send_over(stream, &request)?;
        let next = || match wait(&[self.stop.as_fd(), stream.as_fd()], None)? {
            Some(1) => receive_over(stream),
            _ => Ok(None),
        };
        if written.is_waiting() {
            next()?.iter().for_each(|answer| written.answer(answer));
        }
        Ok(next()?.is_some_and(|answer| matches!(Reply::decode(&answer), Ok(Reply::Done))))
    }

    /// Passes messages on until one side ends. A library that is killed may do so in the middle of anything.
    ///
    /// # Errors
    /// The connection's.
    fn pass(&self, library: &OwnedFd, stream: &TcpStream, written: &mut Written) -> io::Result<End> {
        loop {
            match wait(&[self.stop.as_fd(), library.as_fd(), stream.as_fd()], None)? {
                Some(1) => match receive_packet(library.as_fd()) {
                    Ok(Some(message)) => {
                        written.ask(&message);
                        send_over(stream, &self.named(message))?;
                    }
                    Ok(None) | Err(_) => return Ok(End::Library),
                },
                Some(2) => match receive_over(stream)? {
                    Some(message) => {
                        written.answer(&message);
                        if self.answer(library, &message).is_err() {
                            return Ok(End::Library);
                        }
                    }
                    None => return Ok(End::Server),
                },
                _ => return Ok(End::Server),
            }
        }
    }

    /// What a library says, as the server understands it: the mount is called otherwise there.
    fn named(&self, message: Vec<u8>) -> Vec<u8> {
        match Request::decode(&message) {
            Ok(Request::Hello { version, device }) => {
                let mount = if device == self.st_dev { self.mount } else { NO_MOUNT };
                Request::HelloFrom { version, mount, boot: self.boot }.encode()
            }
            _ => message,
        }
    }

    /// Answers a library. With the first answer comes the region, for its bytes and for the control memory.
    fn answer(&self, library: &OwnedFd, message: &[u8]) -> io::Result<()> {
        if !matches!(Reply::decode(message), Ok(Reply::Welcome { .. })) {
            send(library, message, SendFlags::NOSIGNAL)?;
            return Ok(());
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let files: [BorrowedFd<'_>; 2] = [self.device.as_fd(), self.device.as_fd()];
        control.push(SendAncillaryMessage::ScmRights(&files));
        sendmsg(library, &[IoSlice::new(message)], &mut control, SendFlags::NOSIGNAL)?;
        Ok(())
    }
}

/// Names the time since this machine was booted.
fn boot() -> io::Result<[u8; 16]> {
    let text = std::fs::read_to_string(BOOT)?;
    parse_boot(&text).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn parse_boot(text: &str) -> Option<[u8; 16]> {
    let digits: String = text.trim().chars().filter(|digit| *digit != '-').collect();
    u128::from_str_radix(&digits, 16).ok().filter(|_| digits.len() == 32).map(u128::to_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boot_is_named_as_the_kernel_names_it() {
        let boot = parse_boot("00112233-4455-6677-8899-aabbccddeeff\n");
        assert_eq!(
            boot,
            Some([
                0, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff
            ])
        );
        assert_eq!(parse_boot("00112233"), None);
        assert!(super::boot().is_ok());
    }
}
