//! A connection of a command to a running server.

use crate::demo::wire::{Reply, Resp};
use clap::Args;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

/// Time limit of a reply, beyond the time that the command itself waits.
const REPLY_LIMIT: Duration = Duration::from_secs(30);

/// Which server to talk to.
#[derive(Debug, Args)]
pub(crate) struct ServerArgs {
    /// RESP address of the server
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:6479")]
    addr: String,
    /// File with the server's password, on its first line
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
}

/// Why a command could not be sent, or was refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClientError {
    /// The address cannot be resolved.
    #[error("{0}: no such address; give ADDR:PORT")]
    Address(String),
    /// An error of the connection, or of the file with the password.
    #[error("{what}: {source}")]
    Io {
        /// The operation.
        what: String,
        /// The cause.
        source: io::Error,
    },
    /// The server refused the command.
    #[error("{0}")]
    Refused(String),
}

fn io_error(what: impl Into<String>) -> impl FnOnce(io::Error) -> ClientError {
    let what = what.into();
    |source| ClientError::Io { what, source }
}

/// A connection to a server.
pub(crate) struct Client {
    resp: Resp,
    address: SocketAddr,
}

impl Client {
    /// Connects, and gives the password if there is one. Commands may wait for `wait` before they reply.
    ///
    /// # Errors
    /// [`ClientError`].
    pub(crate) fn connect(server: &ServerArgs, wait: Duration) -> Result<Self, ClientError> {
        let bad = || ClientError::Address(server.addr.clone());
        let address = server.addr.to_socket_addrs().map_err(|_| bad())?.next().ok_or_else(bad)?;
        let unreachable = io_error(format!("cannot reach {address}"));
        let resp = Resp::connect(address, REPLY_LIMIT + wait).map_err(unreachable)?;
        let mut client = Self { resp, address };
        if let Some(path) = &server.password_file {
            let text = std::fs::read_to_string(path).map_err(io_error(path.display().to_string()))?;
            client.call(&[b"AUTH", text.lines().next().unwrap_or_default().as_bytes()])?;
        }
        Ok(client)
    }

    /// Sends a command. An error that the server replies is [`ClientError::Refused`].
    ///
    /// # Errors
    /// [`ClientError`].
    pub(crate) fn call(&mut self, words: &[&[u8]]) -> Result<Reply, ClientError> {
        match self.resp.call(words).map_err(io_error(self.address.to_string()))? {
            Reply::Error(text) => Err(ClientError::Refused(text)),
            reply => Ok(reply),
        }
    }
}
