//! Errors that keep a device from starting, or end it.

use landfall_pmnet::LogError;
use landfall_server::store::StoreError;
use std::io;
use std::net::SocketAddr;

/// An error of a device.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SwitchError {
    /// The region cannot be opened.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The log cannot be opened, or its medium has failed.
    #[error("the log: {0}")]
    Log(#[from] LogError),
    /// Environment: the address cannot be bound.
    #[error("cannot listen on {address}: {source}; choose another --listen")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The error of the system.
        source: io::Error,
    },
    /// Environment: the address of the metrics cannot be bound.
    #[error(transparent)]
    Metrics(#[from] landfall_metrics::ListenError),
    /// Environment: another program uses the port of a client that the log knows.
    #[error(
        "updates of client {client} are in the log, and were forwarded from port {port}, which cannot be bound again: \
         {source}; end the program that uses the port, and start again"
    )]
    PortTaken {
        /// The client.
        client: SocketAddr,
        /// The port that the relay used for the client.
        port: u16,
        /// The error of the system.
        source: io::Error,
    },
    /// Misuse: the addresses of clients and server are of two families.
    #[error("clients' address {listen} and the server's {server} must both be IPv4, or both IPv6")]
    Families {
        /// Address for clients.
        listen: SocketAddr,
        /// Address of the server.
        server: SocketAddr,
    },
    /// AF_XDP failed.
    #[error(transparent)]
    Xdp(#[from] landfall_xdp::XdpError),
    /// The memory that packets land in cannot be used.
    #[error(transparent)]
    Packets(#[from] landfall_packets::PacketsError),
    /// Environment: a system call failed.
    #[error("{what}: {source}")]
    System {
        /// What the call was for.
        what: &'static str,
        /// The error of the system.
        source: io::Error,
    },
}

impl SwitchError {
    pub(crate) fn system(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { what, source }
    }
}
