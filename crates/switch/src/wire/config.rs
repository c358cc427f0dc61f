//! Settings of a device on the wire.

use crate::engine::RegionConfig;
use landfall_packets::Mode;
use landfall_pmnet::auth::Key;
use landfall_pmnet::device::DeviceConfig;
use landfall_pmnet::log::Limits;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Settings of a device on the wire.
#[derive(Clone, Debug)]
pub struct WireConfig {
    /// Interface towards the clients.
    pub clients: String,
    /// Interface towards the server.
    pub server: String,
    /// How long to busy-poll for packets before the device blocks; `Duration::MAX`: never block.
    pub spin: Duration,
    /// Whether the kernel copies packets, or the interface writes them in place.
    pub mode: Mode,
    /// Folder of a BPF file system in which the programs are pinned, so that packets pass while no device runs.
    pub pin: Option<PathBuf>,
    /// Forward updates before they are logged, so that all devices of a chain log them at the same time.
    pub forwards_first: bool,
    /// The region of the log.
    pub region: RegionConfig,
    /// Bounds of the log.
    pub limits: Limits,
    /// Settings of the device's state machine.
    pub device: DeviceConfig,
    /// Key that the device shares with clients and servers, if any.
    pub key: Option<Key>,
    /// Address at which to serve `/metrics`, if any.
    pub metrics: Option<SocketAddr>,
}
