//! A server's sessions.

mod config;
mod row;

pub use config::{ServerConfig, ServerStats, Ticket, Work};
pub use row::SessionRow;

use landfall_net::Instant;
use std::net::SocketAddr;

/// All sessions of a server.
pub struct Server {
    config: ServerConfig,
    now: Instant,
}

#[expect(unused_variables, clippy::needless_pass_by_ref_mut, reason = "signatures first")]
impl Server {
    /// A new incarnation, with what the one before it has committed.
    pub fn new(
        config: ServerConfig,
        incarnation: u64,
        rows: impl IntoIterator<Item = SessionRow>,
        floor: u32,
        now: Instant,
    ) -> Self {
        Self { config, now }
    }

    /// Takes the payload of a datagram.
    pub fn handle_datagram(&mut self, from: SocketAddr, bytes: &[u8], now: Instant) {}

    /// Takes note that it is later.
    pub fn handle_timeout(&mut self, now: Instant) {}

    /// The next piece of work for the application.
    pub fn poll_work(&mut self) -> Option<Work> {
        None
    }

    /// An update or a row is committed.
    pub fn committed(&mut self, ticket: Ticket, now: Instant) {}

    /// A bypass is executed, and committed if it `changed` something.
    pub fn respond(&mut self, ticket: Ticket, response: &[u8], changed: bool, now: Instant) {}

    /// Nothing of the work was applied, nor will be. Work of the session handed out behind it has failed, too.
    pub fn failed(&mut self, ticket: Ticket) {}

    /// The next datagram, and for whom.
    pub fn poll_transmit(&mut self) -> Option<(SocketAddr, Vec<u8>)> {
        None
    }

    /// When [`Self::handle_timeout`] is due.
    pub fn next_timeout(&self) -> Option<Instant> {
        None
    }

    /// What has been counted.
    pub fn stats(&self) -> ServerStats {
        ServerStats::default()
    }
}
