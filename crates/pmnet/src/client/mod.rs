//! A client's session.

mod config;

pub use config::{ClientConfig, ClientError, ClientStats, CompletedBy, Event, Failure, RequestId};

use landfall_net::Instant;

/// One session with a server.
pub struct Client {
    config: ClientConfig,
    now: Instant,
}

#[expect(unused_variables, clippy::needless_pass_by_ref_mut, reason = "signatures first")]
impl Client {
    /// A session that is to be started. Number and nonce are the caller's random draw.
    pub fn new(config: ClientConfig, session: u16, nonce: u64, now: Instant) -> Self {
        Self { config, now }
    }

    /// Another draw, after [`Event::Refused`]. Requests that wait go with it.
    pub fn restart(&mut self, session: u16, nonce: u64, now: Instant) {}

    /// Queues an update.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn update(&mut self, request: &[u8], now: Instant) -> Result<RequestId, ClientError> {
        Err(ClientError::Full)
    }

    /// Queues a bypass.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn bypass(&mut self, request: &[u8], now: Instant) -> Result<RequestId, ClientError> {
        Err(ClientError::Full)
    }

    /// Ends the session once everything that was queued is complete.
    pub fn end(&mut self, now: Instant) {}

    /// The chain has changed: what is not complete needs the acknowledgements of devices 0 to `devices - 1`.
    pub fn set_devices(&mut self, devices: u8, now: Instant) {}

    /// Takes the payload of a datagram from the server's address.
    pub fn handle_datagram(&mut self, bytes: &[u8], now: Instant) {}

    /// Takes note that it is later.
    pub fn handle_timeout(&mut self, now: Instant) {}

    /// The next datagram for the server.
    pub fn poll_transmit(&mut self) -> Option<Vec<u8>> {
        None
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        None
    }

    /// When [`Self::handle_timeout`] is due.
    pub fn next_timeout(&self) -> Option<Instant> {
        None
    }

    /// What has been counted.
    pub fn stats(&self) -> ClientStats {
        ClientStats::default()
    }

    /// Whether numbers run out: end the session and start another.
    pub fn needs_successor(&self) -> bool {
        false
    }

    /// Queues a heartbeat.
    pub fn heartbeat(&mut self, nonce: u64) {}
}
