//! A mount of files, and the connections to its servers.

use crate::connection::Connection;
use crate::sys::Kept;
use landfall_fs_client::Client;
use std::sync::{Mutex, TryLockError};
use std::time::{Duration, Instant};

/// Most connections of a process to the servers of one mount, one after the other. Each keeps memory and two descriptors.
const CONNECTIONS_MAX: usize = 16;
/// How often the next server is looked for.
const RETRY_EVERY: Duration = Duration::from_secs(1);

/// A mount of files.
pub(crate) struct Mount {
    device: u64,
    /// The socket of its server.
    socket: Vec<u8>,
    connections: Mutex<Connections>,
}

/// The connections that there have been.
struct Connections {
    /// Threads use the clients whenever they like, so they stay until the process ends.
    all: Vec<&'static Connection>,
    /// When the next server may be looked for; `None`: never.
    may_open: Option<Instant>,
}

impl Connections {
    fn open(&mut self, mount: &Mount) -> Option<&'static Connection> {
        let now = Instant::now();
        if self.all.len() >= CONNECTIONS_MAX || self.may_open.is_none_or(|from| now < from) {
            return None;
        }
        // A server that refuses at first refuses always. When one has ended, the next one may not be there yet.
        self.may_open = (!self.all.is_empty()).then_some(now + RETRY_EVERY);
        let connection: &'static Connection = Kept::new(Connection::open(&mount.socket, mount.device).ok()?);
        self.all.push(connection);
        self.may_open = Some(now + RETRY_EVERY);
        Some(connection)
    }
}

impl Mount {
    pub(crate) fn new(device: u64, socket: Vec<u8>) -> Self {
        let connections = Connections { all: Vec::new(), may_open: Some(Instant::now()) };
        Self { device, socket, connections: Mutex::new(connections) }
    }

    /// `st_dev` of its files.
    pub(crate) fn device(&self) -> u64 {
        self.device
    }

    /// The client of the connection. If there has been none, or its server has ended, one is opened. `None` if there is no
    /// server, and while another thread opens one.
    pub(crate) fn client(&self) -> Option<&'static Client<'static>> {
        let mut connections = match self.connections.try_lock() {
            Ok(connections) => connections,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        match connections.all.last() {
            Some(last) if !last.client.is_over() => Some(&last.client),
            _ => Some(&connections.open(self)?.client),
        }
    }

    /// The process is a child of the one that has connected.
    pub(crate) fn close_in_child(&self) {
        // Another thread may have had the lock when the process forked.
        if let Ok(connections) = self.connections.try_lock() {
            connections.all.iter().for_each(|connection| connection.close_in_child());
        }
    }
}
