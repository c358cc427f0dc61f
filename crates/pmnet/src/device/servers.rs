//! Monitors servers by heartbeats. A device has no address of its own. It sends heartbeats with the address of a
//! client whose packets pass, and does not forward the replies to them.

mod heartbeats;

use super::config::DeviceConfig;
use crate::identity::Flow;
use core::net::SocketAddr;
use landfall_net::Instant;
use std::collections::BTreeMap;

/// State of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerState {
    /// The server has never answered a heartbeat. It may be one of the authors' release.
    Unknown,
    /// The server answers.
    Alive,
    /// The server has answered before, and no longer does.
    Silent,
}

#[derive(Clone, Copy, Debug)]
struct Server {
    /// The client whose address the heartbeats carry.
    via: SocketAddr,
    state: ServerState,
    incarnation: u64,
    /// Heartbeats since the last answer.
    missed: u32,
    asked_at: Instant,
}

/// The servers that are monitored.
#[derive(Debug, Default)]
pub(super) struct Servers {
    known: BTreeMap<SocketAddr, Server>,
    asked: u32,
}

impl Servers {
    /// Notes that an update passes to a server.
    pub(super) fn note(&mut self, config: &DeviceConfig, flow: Flow, now: Instant) {
        if let Some(server) = self.known.get_mut(&flow.server) {
            server.via = flow.client;
        } else if self.known.len() < config.servers_max {
            let state = ServerState::Unknown;
            let server = Server { via: flow.client, state, incarnation: 0, missed: 0, asked_at: now };
            self.known.insert(flow.server, server);
        }
    }

    /// Notes that packets of a client no longer pass. Heartbeats to its server then carry another client's address;
    /// if there is none, the server is no longer monitored.
    pub(super) fn client_gone(&mut self, flow: Flow, other: impl FnOnce() -> Option<SocketAddr>) {
        let Some(server) = self.known.get_mut(&flow.server).filter(|server| server.via == flow.client) else {
            return;
        };
        match other() {
            Some(client) => server.via = client,
            None => drop(self.known.remove(&flow.server)),
        }
    }

    pub(super) fn states(&self) -> impl Iterator<Item = (SocketAddr, ServerState)> + '_ {
        self.known.iter().map(|(address, server)| (*address, server.state))
    }

    pub(super) fn is_silent(&self, address: &SocketAddr) -> bool {
        self.known.get(address).is_some_and(|server| server.state == ServerState::Silent)
    }

    pub(super) fn next_timeout(&self, config: &DeviceConfig) -> Option<Instant> {
        let next = self.known.values().map(|server| server.asked_at + config.heartbeat_every).min();
        next.filter(|_| !config.heartbeat_every.is_zero())
    }

    /// Notes a server's answer. True if the server was silent before, or has restarted.
    fn note_answer(&mut self, address: SocketAddr, incarnation: u64) -> bool {
        let Some(server) = self.known.get_mut(&address) else { return false };
        let was = (server.state, server.incarnation);
        (server.state, server.incarnation, server.missed) = (ServerState::Alive, incarnation, 0);
        match was {
            (ServerState::Unknown, _) => false,
            (ServerState::Silent, _) => true,
            (ServerState::Alive, before) => before != incarnation,
        }
    }

    /// The nonce of this device's heartbeats. The incarnation distinguishes it from the nonces of others.
    fn nonce(config: &DeviceConfig) -> u64 {
        config.incarnation ^ u64::from(config.number.unwrap_or(u8::MAX)).rotate_left(17)
    }
}
