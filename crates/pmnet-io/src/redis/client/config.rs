//! Settings of the client's side-car.

use crate::runtime::Published;
use landfall_pmnet::ClientConfig;
use landfall_pmnet::auth::Key;
use landfall_pmnet::client::Devices;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// Settings of the client's side-car.
#[derive(Clone, Debug)]
pub struct SidecarConfig {
    /// Address that Redis clients connect to.
    pub listen: SocketAddr,
    /// Address of the PMNet server.
    pub server: SocketAddr,
    /// Local address towards the network; `None`: the kernel chooses it.
    pub bind: Option<SocketAddr>,
    /// Settings of the protocol, with the number of devices.
    pub client: ClientConfig,
    /// The devices that must acknowledge, which may change at run time; `None`: those of the protocol's settings.
    pub chain: Option<Arc<Published<Option<Devices>>>>,
    /// Key that the side-car shares with devices and server, if any.
    pub key: Option<Key>,
    /// Password that clients must send, if any.
    pub password: Option<String>,
    /// Allow addresses other than loopback without a password.
    pub open: bool,
    /// Longest time to busy-poll before the side-car blocks; [`Duration::MAX`]: never block. The time is shortened
    /// while polling finds nothing.
    pub spin: Duration,
    /// Acknowledge commands early whose success reply is constant unless a key holds another type.
    pub typed_early: bool,
    /// Most connections.
    pub connections_max: usize,
    /// Most requests of a connection that may be under way.
    pub pipeline_max: usize,
    /// Most bytes of replies that clients have not read, over all connections. Beyond it, connections wait for their
    /// clients.
    pub replies_bytes_max: usize,
    /// Longest request, bytes.
    pub request_bytes_max: usize,
    /// Most idle sessions that are kept for later connections.
    pub sessions_kept: usize,
}

impl SidecarConfig {
    /// The default settings.
    pub fn new(listen: SocketAddr, server: SocketAddr) -> Self {
        Self {
            listen,
            server,
            bind: None,
            client: ClientConfig::default(),
            chain: None,
            key: None,
            password: None,
            open: false,
            spin: Duration::ZERO,
            typed_early: false,
            connections_max: 4096,
            pipeline_max: 1024,
            replies_bytes_max: 64 << 20,
            request_bytes_max: 4 << 20,
            sessions_kept: 256,
        }
    }
}
