//! Libraries in a virtual machine whose NVDIMM is the server's region: `docs/format/fs-network.md`, "Virtual machines".
//!
//! They share memory with the server, as libraries on its machine do. Only what they ask goes over the network: the holder of
//! the mount listens for them in its place. In a chain the mount may follow to a server of another region: libraries are those
//! of the server alone that has theirs ([`mark`]).

mod library;
mod written;

use super::changes::Changes;
use super::error::HoldError;
use super::hello::Purpose;
use super::mark;
use super::message::ServerLife;
use super::packets::{receive_over, receive_packet, send_over};
use super::reach::Remote;
use super::relay::Relay;
use crate::counter::{counter, lower, raise, wait};
use crate::link::{Accepted, Listener, watch_process};
use crate::lives::MountId;
use crate::random::random_bytes;
use crate::sys;
use landfall_fs_link::{Reason, Refusal, Reply, Request, is_same_user};
use library::Library;
use parking_lot::Mutex;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, send, sendmsg};
use std::fs::File;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// Where the kernel names the time since it was booted.
const BOOT: &str = "/proc/sys/kernel/random/boot_id";
/// A library knows so soon that its socket is closed, and answers nothing more by itself: it looks once in a millisecond.
const LOOKS_WITHIN: Duration = Duration::from_millis(2);
/// How long a server that answers libraries no more may take to say that it ends in good order.
const LAST_WORD_LIMIT: Duration = Duration::from_secs(15);
/// How long a library does not ask again for a lease of a file that has lost changes.
const LOST_FOR: Duration = Duration::from_secs(1);
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
    /// Where it was reached last.
    remote: Mutex<Remote>,
    life: ServerLife,
    /// Readable when it is gone.
    over: OwnedFd,
    /// Its libraries; `None`: another server serves the mount.
    libraries: Mutex<Option<Vec<Arc<Library>>>>,
}

impl Served {
    /// A library is one of this server, unless that serves the mount no more.
    fn add(&self, library: &Arc<Library>) -> bool {
        let mut libraries = self.libraries.lock();
        libraries.as_mut().map(|libraries| libraries.push(Arc::clone(library))).is_some()
    }

    /// All is done that is to be done for a library.
    fn remove(&self, library: &Arc<Library>) {
        if let Some(libraries) = &mut *self.libraries.lock() {
            libraries.retain(|other| !Arc::ptr_eq(other, library));
        }
    }

    /// Another server serves the mount from now on. Before anybody gets an answer of that one, libraries of this one know, and
    /// of those that have ended it is noted in `changes` what may be lost.
    fn end(&self, changes: &Mutex<Changes>) {
        let libraries = self.libraries.lock().take().unwrap_or_default();
        for library in &libraries {
            match library.has_gone() {
                true => library.note_changes(changes, self.life),
                // It knows best itself.
                false => drop(library.written.lock().settle()),
            }
            library.close();
        }
        if !libraries.is_empty() {
            std::thread::sleep(LOOKS_WITHIN);
        }
    }

    /// It has gone. In good order: all that it has done is durable.
    fn note_gone(&self, has_all_durable: bool) {
        if has_all_durable {
            self.libraries.lock().iter().flatten().for_each(|library| library.settle());
        }
        raise(&self.over);
    }

    /// The mount has a new connection to the same server. Libraries that have lost theirs are the kernel's: what they have
    /// changed is, too.
    fn go_on(&self, remote: Remote, changes: &Mutex<Changes>) -> io::Result<()> {
        *self.remote.lock() = remote;
        lower(&self.over)?;
        let lost: Vec<Arc<Library>> = match &mut *self.libraries.lock() {
            Some(libraries) => libraries.extract_if(.., |library| library.is_closed()).collect(),
            None => Vec::new(),
        };
        lost.iter().for_each(|library| library.note_changes(changes, self.life));
        Ok(())
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

    /// The server that serves the mount has gone; in good order: all that it has done is durable.
    pub(super) fn note_gone(&self, has_all_durable: bool) {
        self.shared.served.lock().iter().for_each(|served| served.note_gone(has_all_durable));
    }

    /// The server of this life is about to serve the mount. What may be lost with the one before is noted when this returns.
    pub(super) fn end_before(&self, life: ServerLife) {
        let before = self.shared.served.lock().take_if(|served| served.life != life);
        before.iter().for_each(|before| before.end(&self.shared.relay.changes));
    }

    /// From now on this server serves the mount.
    ///
    /// # Errors
    /// An error of the kernel.
    pub(super) fn set_server(&self, remote: Remote, life: ServerLife) -> io::Result<()> {
        let mut served = self.shared.served.lock();
        // One that has only lost its connection is the same.
        if let Some(served) = served.as_ref().filter(|served| served.life == life) {
            return served.go_on(remote, &self.shared.relay.changes);
        }
        let (remote, libraries, over) = (Mutex::new(remote), Mutex::new(Some(Vec::new())), counter()?);
        *served = Some(Arc::new(Served { remote, life, over, libraries }));
        Ok(())
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
    fn serve(&self, socket: OwnedFd, process: i32) -> io::Result<()> {
        let process = watch_process(process)?;
        let Some(served) = self.served.lock().clone() else { return Ok(()) };
        if !mark::is_of(self.device.try_clone()?, served.life)? {
            tracing::debug!("the server has another region than this machine: programs use the mount");
            return self.refuse(&socket);
        }
        let remote = served.remote.lock().clone();
        let stream = remote.greet(Purpose::Libraries, random_bytes()?).map_err(io::Error::other)?;
        stream.set_read_timeout(None)?;
        stream.set_write_timeout(None)?;
        let library = Arc::new(Library::new(socket, stream, process));
        if !served.add(&library) {
            return Ok(());
        }
        if self.pass(&library, served.life)? == End::Server {
            // A server that ends in good order says so soon, by the mount's connection. What may be lost otherwise is known when
            // it is known which server is the next one.
            wait(&[self.stop.as_fd(), served.over.as_fd()], Some(LAST_WORD_LIMIT))?;
            library.close();
            return Ok(());
        }
        library.close_to_program();
        if !self.sync_for(&library).unwrap_or(false) {
            library.note_changes(&self.relay.changes, served.life);
        }
        served.remove(&library);
        self.see_off(&library)
    }

    /// Refuses a library of another server.
    fn refuse(&self, library: &OwnedFd) -> io::Result<()> {
        if wait(&[self.stop.as_fd(), library.as_fd()], None)? == Some(1) {
            receive_packet(library.as_fd())?;
            let refusal = Refusal { reason: Reason::Mount, errno: libc::EBADF.unsigned_abs(), wait_ms: 0 };
            send(library, &Reply::Refused(refusal).encode(), SendFlags::NOSIGNAL)?;
        }
        Ok(())
    }

    /// Tells the server that a library has left, and when its process has ended.
    fn see_off(&self, Library { stream, process, .. }: &Library) -> io::Result<()> {
        send_over(stream, &Request::Left.encode())?;
        // What it has asked before it left is answered still, and must be taken: a connection that is closed with something
        // unread is reset, and what was sent last may be lost.
        let mut has_ended = false;
        loop {
            let awaited = [self.stop.as_fd(), stream.as_fd(), process.as_fd()];
            match wait(&awaited[..if has_ended { 2 } else { 3 }], None)? {
                Some(1) if receive_over(stream)?.is_some() => {}
                Some(2) => {
                    send_over(stream, &Request::Ended.encode())?;
                    has_ended = true;
                }
                _ => return Ok(()),
            }
        }
    }

    /// A library has gone. What it has written and not made durable nobody knows but its server: that is to make it durable.
    /// False if it has not.
    fn sync_for(&self, library: &Library) -> io::Result<bool> {
        if !library.written.lock().may_be_lost() {
            return Ok(true);
        }
        let stream = &library.stream;
        send_over(stream, &Request::Sync.encode())?;
        let next = || match wait(&[self.stop.as_fd(), stream.as_fd()], None)? {
            Some(1) => receive_over(stream),
            _ => Ok(None),
        };
        if library.written.lock().is_waiting() {
            next()?.iter().for_each(|answer| library.written.lock().answer(answer));
        }
        Ok(next()?.is_some_and(|answer| matches!(Reply::decode(&answer), Ok(Reply::Done))))
    }

    /// Passes messages on until one side ends. A library that is killed may do so in the middle of anything.
    ///
    /// # Errors
    /// An error of the kernel.
    fn pass(&self, library: &Library, life: ServerLife) -> io::Result<End> {
        let Library { socket, stream, written, .. } = library;
        loop {
            match wait(&[self.stop.as_fd(), socket.as_fd(), stream.as_fd()], None)? {
                Some(1) => match receive_packet(socket.as_fd()) {
                    Ok(Some(message)) if self.is_lost(&message) => {
                        if send(socket, &refused_for(LOST_FOR).encode(), SendFlags::NOSIGNAL).is_err() {
                            return Ok(End::Library);
                        }
                    }
                    Ok(Some(message)) => {
                        written.lock().ask(&message);
                        if send_over(stream, &self.named(message, life)).is_err() {
                            return Ok(End::Server);
                        }
                    }
                    Ok(None) | Err(_) => return Ok(End::Library),
                },
                Some(2) => match receive_over(stream) {
                    Ok(Some(message)) => {
                        written.lock().answer(&message);
                        if self.answer(socket, &message).is_err() {
                            return Ok(End::Library);
                        }
                    }
                    Ok(None) | Err(_) => return Ok(End::Server),
                },
                _ => return Ok(End::Server),
            }
        }
    }

    /// True if it asks for a lease of a file that has lost changes, of which nobody was told yet: the kernel tells.
    fn is_lost(&self, message: &[u8]) -> bool {
        match Request::decode(message) {
            Ok(Request::Acquire { inode, .. }) => self.relay.changes.lock().is_lost(inode.0),
            _ => false,
        }
    }

    /// What a library says, as the server understands it: the mount is called otherwise there.
    fn named(&self, message: Vec<u8>, life: ServerLife) -> Vec<u8> {
        match Request::decode(&message) {
            Ok(Request::Hello { version, device }) => {
                let mount = if device == self.st_dev { self.mount } else { NO_MOUNT };
                Request::HelloFrom { version, mount, boot: self.boot, life }.encode()
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

/// The file is left to the kernel for so long.
fn refused_for(time: Duration) -> Reply {
    let wait_ms = u32::try_from(time.as_millis()).unwrap_or(u32::MAX);
    Reply::Refused(Refusal { reason: Reason::Left, errno: libc::EAGAIN.unsigned_abs(), wait_ms })
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
