//! Where mounts on other machines come to a server: `docs/format/fs-network.md`.
//!
//! For the server, each is the mount of a holder on this machine, whose queues are connections.

use super::channel::{Channel, ChannelError};
use super::hello::{ConnectionId, Hello, PASSWORD_BYTES_MAX, Purpose, Welcome};
use super::message::{Again, Attach, DESCRIPTORS_MAX, Message, MessageError, Over};
use super::packets;
use super::strangers::Strangers;
use crate::common::Sharing;
use crate::counter::{counter, raise, wait};
use crate::ledger::Ledger;
use landfall_fs::{FileLock, InodeNumber, LOCKS_MAX};
use parking_lot::Mutex;
use rustix::net::sockopt;
use std::collections::HashMap;
use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use subtle::ConstantTimeEq;

/// How long a connection may take to say what it is.
const HELLO_LIMIT: Duration = Duration::from_secs(5);
/// Most connections that have said the password and are not a queue which the server has.
const CONNECTIONS_MAX: usize = 256;
/// How long the end waits until holders have heard the last word of the server.
const LAST_WORD_LIMIT: Duration = Duration::from_secs(2);
/// How often it looks.
const LAST_WORD_STEP: Duration = Duration::from_millis(2);
/// Pause after no connection could be accepted.
const PAUSE: Duration = Duration::from_millis(50);
/// A machine that does not answer for so long is away.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// An idle connection is tried so often.
const KEEPALIVE_EVERY: Duration = Duration::from_secs(10);

/// Why nobody can come.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DoorError {
    /// Misuse: the password cannot be sent.
    #[error("a password for mounts on other machines has at most {PASSWORD_BYTES_MAX} bytes")]
    Password,
    /// Environment: the address cannot be listened at.
    #[error("{address}: cannot listen for mounts on other machines: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the kernel says.
        source: io::Error,
    },
}

/// Listens for mounts on other machines, until it is dropped: when the server has ended.
pub struct Door {
    shared: Arc<Shared>,
    address: SocketAddr,
    accepting: Option<JoinHandle<()>>,
}

struct Shared {
    /// Where the server listens, and where it does so for libraries, if some in a virtual machine may connect.
    socket: PathBuf,
    libraries: Option<PathBuf>,
    password: Vec<u8>,
    /// Readable when nobody is accepted any more.
    closed: OwnedFd,
    /// Readable when connections are to end.
    stop: OwnedFd,
    /// Connections that have not said the password.
    strangers: Strangers,
    /// Those that have said it, and have a thread here.
    connections: AtomicUsize,
    /// Holders with a control connection, and their queues.
    holders: Mutex<HashMap<ConnectionId, Vec<TcpStream>>>,
}

/// Why the control connection of a mount ends.
#[derive(Debug, thiserror::Error)]
enum ControlError {
    #[error(transparent)]
    Channel(#[from] ChannelError),
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl Door {
    /// Checks that a server can listen at an address, before anything is changed for that.
    ///
    /// # Errors
    /// [`DoorError`].
    pub fn check(address: SocketAddr, password: Option<&[u8]>) -> Result<(), DoorError> {
        if password.is_some_and(|password| password.len() > PASSWORD_BYTES_MAX) {
            return Err(DoorError::Password);
        }
        TcpListener::bind(address).map(drop).map_err(|source| DoorError::Listen { address, source })
    }

    /// Listens at `address` for mounts of the server that listens at `socket`, or will, and for their libraries, if it has a
    /// socket for these.
    ///
    /// # Errors
    /// [`DoorError`].
    pub fn open(
        address: SocketAddr,
        (socket, libraries): (PathBuf, Option<PathBuf>),
        password: Option<Vec<u8>>,
    ) -> Result<Self, DoorError> {
        let password = password.unwrap_or_default();
        if password.len() > PASSWORD_BYTES_MAX {
            return Err(DoorError::Password);
        }
        let failed = |source| DoorError::Listen { address, source };
        let listener = TcpListener::bind(address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let bound = listener.local_addr().map_err(failed)?;
        let (closed, stop) = (counter().map_err(failed)?, counter().map_err(failed)?);
        let shared = Arc::new(Shared {
            socket,
            libraries,
            password,
            closed,
            stop,
            strangers: Strangers::default(),
            connections: AtomicUsize::new(0),
            holders: Mutex::default(),
        });
        let accepting = Arc::clone(&shared);
        let accept = move || accepting.accept(&listener);
        let accepting = std::thread::Builder::new().name("door".into()).spawn(accept).map_err(failed)?;
        Ok(Self { shared, address: bound, accepting: Some(accepting) })
    }

    /// The address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        raise(&self.shared.closed);
        self.accepting.take().into_iter().for_each(|thread| drop(thread.join()));
        // The server has ended, and with it the connections to it.
        let until = Instant::now() + LAST_WORD_LIMIT;
        while self.shared.connections.load(Ordering::Acquire) > 0 && Instant::now() < until {
            std::thread::sleep(LAST_WORD_STEP);
        }
        raise(&self.shared.stop);
    }
}

/// Counts a connection as long as it lives.
struct Counted<'s>(&'s Shared);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A holder with a control connection, as long as that lives.
struct Known<'s> {
    shared: &'s Shared,
    connection: ConnectionId,
}

impl Drop for Known<'_> {
    fn drop(&mut self) {
        self.shared.holders.lock().remove(&self.connection);
    }
}

impl Shared {
    fn accept(self: &Arc<Self>, listener: &TcpListener) {
        loop {
            match wait(&[self.closed.as_fd(), listener.as_fd()], None) {
                Ok(Some(1)) => {}
                _ => return,
            }
            match listener.accept() {
                Ok((stream, peer)) => self.begin(stream, peer),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => {
                    tracing::warn!(%error, "a mount on another machine cannot connect");
                    std::thread::sleep(PAUSE);
                }
            }
        }
    }

    /// Has a thread greet a connection.
    fn begin(self: &Arc<Self>, stream: TcpStream, peer: SocketAddr) {
        let shared = Arc::clone(self);
        let serve = move || {
            if let Err(error) = shared.greet(stream, peer) {
                // The server says itself when a mount has ended, and strangers do not fill its log.
                tracing::debug!(%peer, %error, "the connection of a mount on another machine has ended");
            }
        };
        if let Err(error) = std::thread::Builder::new().name("door".into()).spawn(serve) {
            tracing::warn!(%error, "a mount on another machine cannot connect");
        }
    }

    fn greet(&self, stream: TcpStream, peer: SocketAddr) -> Result<(), ControlError> {
        let stranger = self.strangers.admit(&stream)?;
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(HELLO_LIMIT))?;
        stream.set_write_timeout(Some(HELLO_LIMIT))?;
        end_with_the_machine(&stream)?;
        let hello = match Hello::read(&stream)? {
            Ok(hello) if hello.password.ct_eq(&self.password).into() => hello,
            Ok(_) => return self.refuse(&stream, peer, Welcome::Password),
            Err(welcome) => return self.refuse(&stream, peer, welcome),
        };
        drop(stranger);
        let others = self.connections.fetch_add(1, Ordering::AcqRel);
        let _counted = Counted(self);
        if others >= CONNECTIONS_MAX {
            return self.refuse(&stream, peer, Welcome::Many);
        }
        match hello.purpose {
            Purpose::Control => self.control(stream, hello.connection, peer),
            Purpose::Queue => self.take_queue(stream, hello.connection, peer),
            Purpose::Libraries => self.pass_on(&stream, peer),
        }
    }

    fn refuse(&self, mut stream: &TcpStream, peer: SocketAddr, why: Welcome) -> Result<(), ControlError> {
        // Strangers do not fill the log: who is refused tells it in its own.
        tracing::debug!(%peer, %why, "a mount on another machine is refused");
        Ok(stream.write_all(&why.encode())?)
    }

    /// Keeps a queue until its mount is attached.
    fn take_queue(
        &self,
        stream: TcpStream,
        connection: ConnectionId,
        peer: SocketAddr,
    ) -> Result<(), ControlError> {
        let kept = stream.try_clone()?;
        let welcome = match self.holders.lock().get_mut(&connection) {
            // One descriptor is the ledger's.
            Some(queues) if queues.len() + 1 < DESCRIPTORS_MAX => {
                queues.push(kept);
                Welcome::LetIn
            }
            Some(_) => Welcome::Many,
            None => Welcome::Unknown,
        };
        if welcome != Welcome::LetIn {
            return self.refuse(&stream, peer, welcome);
        }
        Ok((&stream).write_all(&welcome.encode())?)
    }

    /// Passes the messages of a library in a virtual machine on, until one side ends.
    fn pass_on(&self, mut stream: &TcpStream, peer: SocketAddr) -> Result<(), ControlError> {
        let Some(libraries) = &self.libraries else {
            return self.refuse(stream, peer, Welcome::NoLibraries);
        };
        stream.write_all(&Welcome::LetIn.encode())?;
        stream.set_read_timeout(None)?;
        Ok(packets::pass(stream, libraries, self.stop.as_fd())?)
    }

    /// Passes the messages of a mount on, until one side ends.
    fn control(
        &self,
        stream: TcpStream,
        connection: ConnectionId,
        peer: SocketAddr,
    ) -> Result<(), ControlError> {
        let known = Known { shared: self, connection };
        self.holders.lock().insert(connection, Vec::new());
        (&stream).write_all(&Welcome::LetIn.encode())?;
        let outside = Channel::over(stream)?;
        let inside = match Channel::connect(&self.socket) {
            Ok(inside) => inside,
            Err(_) => {
                let why = "the server does not serve mounts now: try again soon".to_owned();
                return Ok(outside.send(&Message::Refused { ever: Again::Later, why }, &[])?);
            }
        };
        let (mut is_finished, mut claims) = (false, Vec::new());
        loop {
            let all: [BorrowedFd<'_>; 3] = [self.stop.as_fd(), inside.as_fd(), outside.as_fd()];
            match wait(&all[..if is_finished { 2 } else { 3 }], None)? {
                Some(1) => outside.send(&inside.receive()?.0, &[])?,
                Some(2) => match outside.receive() {
                    Ok((message, _)) => self.pass_in(&inside, message, (&known, peer), &mut claims)?,
                    // It waits for the last word, perhaps.
                    Err(ChannelError::Closed) => {
                        inside.finish();
                        is_finished = true;
                    }
                    Err(error) => return Err(error.into()),
                },
                _ => return Ok(()),
            }
        }
    }

    /// Passes a message of the holder on to the server.
    fn pass_in(
        &self,
        inside: &Channel,
        message: Message,
        (known, peer): (&Known<'_>, SocketAddr),
        claims: &mut Vec<(InodeNumber, FileLock)>,
    ) -> Result<(), ControlError> {
        match message {
            Message::Locks(locks) if claims.len() + locks.len() <= LOCKS_MAX => {
                claims.extend(locks);
                Ok(())
            }
            Message::Attach(attach) => self.attach(inside, attach, (known, peer), claims),
            Message::Alive { .. }
            | Message::Forgotten { .. }
            | Message::Recalled { .. }
            | Message::NotKnown { .. }
            | Message::Point(_)
            | Message::Ended(_) => {
                // If the server has closed its side, its last word is yet to be passed on.
                let _ = inside.send(&message, &[]);
                Ok(())
            }
            _ => Err(ChannelError::from(MessageError::Malformed).into()),
        }
    }

    /// Attaches a mount with the queues that it has, and the locks that it claims.
    fn attach(
        &self,
        inside: &Channel,
        attach: Attach,
        (known, peer): (&Known<'_>, SocketAddr),
        claims: &[(InodeNumber, FileLock)],
    ) -> Result<(), ControlError> {
        let queues = self.holders.lock().get_mut(&known.connection).map(std::mem::take).unwrap_or_default();
        for queue in &queues {
            queue.set_read_timeout(None)?;
            queue.set_write_timeout(None)?;
        }
        let point = [peer.ip().to_string().as_bytes(), b":", &attach.point].concat();
        let attach =
            Attach { sharing: Sharing::Shared, over: Over::Connections, id: String::new(), point, ..attach };
        let ledger = Ledger::of_locks(claims)?;
        let queues = queues.iter().map(AsFd::as_fd);
        let descriptors: Vec<BorrowedFd<'_>> = std::iter::once(ledger.file()).chain(queues).collect();
        Ok(inside.send(&Message::Attach(attach), &descriptors)?)
    }
}

/// Has the kernel end a connection whose other machine is away.
///
/// # Errors
/// An error of the kernel.
pub(super) fn end_with_the_machine(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let limit = u32::try_from(SILENCE_MAX.as_millis()).unwrap_or(u32::MAX);
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, KEEPALIVE_EVERY)?;
    sockopt::set_tcp_keepintvl(stream, KEEPALIVE_EVERY)?;
    sockopt::set_tcp_user_timeout(stream, limit)?;
    Ok(())
}
