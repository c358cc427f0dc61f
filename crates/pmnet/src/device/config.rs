//! The configuration of a device.

use super::linearizable::LinearizableConfig;
use super::reads::CacheConfig;
use crate::dialect::Dialect;
use std::time::Duration;

/// Configuration of a device.
#[derive(Clone, Copy, Debug)]
pub struct DeviceConfig {
    /// The protocol that the device's clients and servers speak.
    pub dialect: Dialect,
    /// The device's number in its chain, counted from the clients to the server, below [`crate::wire::DEVICES_MAX`].
    /// `None`: the device is alone, and acknowledges as the authors' devices do.
    pub number: Option<u8>,
    /// The device delays its acknowledgement, and joins it with those of the devices behind it, if these follow
    /// within this time. Zero: nothing is joined. Applies only to devices with a number.
    pub keep_back: Duration,
    /// A random number, drawn at each start.
    pub incarnation: u64,
    /// An update that is still in the log after this time is sent again.
    pub resend_after: Duration,
    /// Longest pause between two repetitions of an update.
    pub resend_pause_max: Duration,
    /// Most updates that are sent again and not yet confirmed.
    pub resend_window: usize,
    /// Interval of the heartbeats to servers; zero: none are sent.
    pub heartbeat_every: Duration,
    /// Number of heartbeats without an answer after which a server that has answered before counts as silent.
    pub heartbeats_missed_max: u32,
    /// Most servers that are monitored.
    pub servers_max: usize,
    /// The read cache; `None`: no cache. It requires that all packets between clients and a server pass the device,
    /// and that nothing else changes the server's keys: see `docs/format/pmnet.md`.
    pub cache: Option<CacheConfig>,
    /// Makes keys linearizable across sessions. It requires that all packets between clients and a server pass the
    /// device, whether it runs or not, and that all devices of a chain have this setting.
    pub linearizable: Option<LinearizableConfig>,
}

impl DeviceConfig {
    /// Whether bypasses must pass through the device's pipeline.
    pub fn sees_bypasses(&self) -> bool {
        self.cache.is_some() || self.linearizable.is_some()
    }

    /// Turns off what the clients and servers of the dialect do not understand.
    pub(super) fn in_dialect(mut self) -> Self {
        if !self.dialect.asks_servers() {
            self.heartbeat_every = Duration::ZERO;
        }
        if !self.dialect.joins() {
            self.keep_back = Duration::ZERO;
        }
        self.cache = self.cache.filter(|_| self.dialect.has_order());
        self
    }
}

impl Default for DeviceConfig {
    fn default() -> Self {
        Self {
            dialect: Dialect::Landfall,
            number: None,
            keep_back: Duration::from_micros(5),
            incarnation: 0,
            resend_after: Duration::from_millis(100),
            resend_pause_max: Duration::from_secs(5),
            resend_window: 256,
            heartbeat_every: Duration::from_millis(100),
            heartbeats_missed_max: 3,
            servers_max: 64,
            cache: None,
            linearizable: None,
        }
    }
}
