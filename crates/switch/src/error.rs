//! Why a device cannot start, or go on.

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
    /// Environment: an address cannot be listened on.
    #[error("cannot listen on {address}: {source}; choose another --listen")]
    Listen {
        /// Which.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// Environment: a client's port is taken.
    #[error(
        "updates of client {client} are in the log, and were sent on from port {port}, which cannot be had again: {source}; \
         end the program that has the port, and start again"
    )]
    PortTaken {
        /// The client.
        client: SocketAddr,
        /// The port.
        port: u16,
        /// Why.
        source: io::Error,
    },
    /// Misuse: a packet's addresses must be of one kind.
    #[error("clients' address {listen} and the server's {server} must both be IPv4, or both IPv6")]
    Families {
        /// The one.
        listen: SocketAddr,
        /// The other.
        server: SocketAddr,
    },
    /// AF_XDP.
    #[error(transparent)]
    Xdp(#[from] landfall_xdp::XdpError),
    /// The memory that packets land in.
    #[error(transparent)]
    Packets(#[from] landfall_packets::PacketsError),
    /// Environment: something that the system refused.
    #[error("{what}: {source}")]
    System {
        /// What was being done.
        what: &'static str,
        /// Why it failed.
        source: io::Error,
    },
}

impl SwitchError {
    pub(crate) fn system(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { what, source }
    }
}
