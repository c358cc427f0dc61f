//! Connects to a server: at a socket of this machine, or at the first of several addresses where one serves the mount.

use super::channel::{Channel, ChannelError};
use super::door::end_with_the_machine;
use super::error::{HoldError, failed, refusal};
use super::hello::{ConnectionId, Hello, HelloError, PASSWORD_BYTES_MAX, Purpose, Welcome};
use super::message::{Message, Region, ServerLife};
use super::place::{Addresses, ServerPlace};
use crate::random::random_bytes;
use crate::service::SyncMode;
use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Most workers of a server.
const WORKERS_MAX: u32 = 64;
/// How long a server on a network may take to accept a connection, and to answer a hello.
const CONNECT_LIMIT: Duration = Duration::from_secs(3);

/// A server that offers its files.
pub(super) struct Reached {
    pub(super) channel: Arc<Channel>,
    /// As messages name it.
    pub(super) server: String,
    pub(super) workers: usize,
    pub(super) sync: SyncMode,
    pub(super) region: Region,
    pub(super) life: ServerLife,
    /// Names this attempt to connect, where it is over a network.
    connection: ConnectionId,
    remote: Option<Remote>,
}

/// How to connect once more.
#[derive(Clone)]
pub(super) struct Remote {
    address: SocketAddr,
    password: Vec<u8>,
}

impl Reached {
    /// How to connect once more, if the server is on a network.
    pub(super) fn remote(&self) -> Option<&Remote> {
        self.remote.as_ref()
    }

    /// Opens so many queues to a server on a network.
    pub(super) fn queues(&self, count: usize) -> Result<Vec<TcpStream>, HoldError> {
        let Some(remote) = &self.remote else { return Ok(Vec::new()) };
        let open = |_| {
            let stream = remote
                .greet(Purpose::Queue, self.connection)
                .map_err(|error| not_reached(&self.server, error))?;
            // A reply takes as long as what it waits for.
            stream.set_read_timeout(None)?;
            stream.set_write_timeout(None)?;
            Ok(stream)
        };
        (0..count).map(open).collect()
    }
}

impl Remote {
    /// Connects, and is let in.
    ///
    /// # Errors
    /// [`HelloError`].
    pub(super) fn greet(&self, purpose: Purpose, connection: ConnectionId) -> Result<TcpStream, HelloError> {
        let stream = TcpStream::connect_timeout(&self.address, CONNECT_LIMIT)?;
        stream.set_read_timeout(Some(CONNECT_LIMIT))?;
        stream.set_write_timeout(Some(CONNECT_LIMIT))?;
        end_with_the_machine(&stream)?;
        let hello = Hello { purpose, connection, password: self.password.clone() };
        (&stream).write_all(&hello.encode())?;
        match Welcome::read(&stream)? {
            Welcome::LetIn => Ok(stream),
            refused => Err(refused.into()),
        }
    }
}

fn not_reached(server: &str, error: HelloError) -> HoldError {
    let server = server.to_owned();
    match error {
        HelloError::Io(source) => HoldError::Unreachable { server, source },
        HelloError::NotWelcome(Welcome::Version) => {
            HoldError::OtherRelease { server, why: error.to_string() }
        }
        HelloError::Foreign | HelloError::NotWelcome(_) => {
            HoldError::NotLetIn { server, why: error.to_string() }
        }
    }
}

/// Connects to the server, and hears its offer.
pub(super) fn reach(server: &ServerPlace) -> Result<Reached, HoldError> {
    match server {
        ServerPlace::Socket(path) => reach_near(path),
        ServerPlace::Network(addresses) => reach_one(addresses),
    }
}

fn reach_near(socket: &Path) -> Result<Reached, HoldError> {
    let server = socket.display().to_string();
    let channel = match Channel::connect(socket) {
        Ok(channel) => channel,
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            return Err(HoldError::NotYours { server });
        }
        Err(source) => return Err(HoldError::NoServer { server, source }),
    };
    hear_offer(channel, server, ConnectionId::default(), None)
}

/// Connects to the first server that offers its files.
fn reach_one(Addresses { addresses, password }: &Addresses) -> Result<Reached, HoldError> {
    let password = password.clone().unwrap_or_default();
    if password.len() > PASSWORD_BYTES_MAX {
        return Err(HoldError::Password);
    }
    let mut errors = Vec::new();
    for name in addresses {
        match reach_far(name, &password) {
            Ok(reached) => return Ok(reached),
            Err(error) => errors.push(error),
        }
    }
    match errors.pop() {
        Some(error) if errors.is_empty() => Err(error),
        last => Err(HoldError::None(errors.into_iter().chain(last).collect())),
    }
}

fn reach_far(name: &str, password: &[u8]) -> Result<Reached, HoldError> {
    let unreachable = |source| HoldError::Unreachable { server: name.to_owned(), source };
    let mut last = io::ErrorKind::AddrNotAvailable.into();
    for address in name.to_socket_addrs().map_err(unreachable)? {
        let (connection, remote) = (random_bytes()?, Remote { address, password: password.to_vec() });
        match remote.greet(Purpose::Control, connection) {
            Ok(stream) => {
                return hear_offer(Channel::over(stream)?, name.to_owned(), connection, Some(remote));
            }
            // The host's next address.
            Err(HelloError::Io(source)) => last = source,
            Err(error) => return Err(not_reached(name, error)),
        }
    }
    Err(unreachable(last))
}

fn hear_offer(
    channel: Channel,
    server: String,
    connection: ConnectionId,
    remote: Option<Remote>,
) -> Result<Reached, HoldError> {
    match channel.receive() {
        Ok((Message::Offer { workers, sync, region, life }, _)) => {
            let workers = usize::try_from(workers.clamp(1, WORKERS_MAX)).unwrap_or(1);
            let channel = Arc::new(channel);
            Ok(Reached { channel, server, workers, sync, region, life, connection, remote })
        }
        Ok((other, _)) => Err(refusal(&server, other)),
        Err(source @ ChannelError::Closed) if remote.is_some() => {
            Err(HoldError::NotLetIn { server, why: source.to_string() })
        }
        Err(source) => Err(failed(&server, source)),
    }
}
