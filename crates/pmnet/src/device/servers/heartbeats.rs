//! Heartbeats to servers, and the replies to them.

use super::{ServerState, Servers};
use crate::device::state::Device;
use crate::device::table::Side;
use crate::wire::{Body, Packet, Role};
use core::net::SocketAddr;
use landfall_net::Instant;

impl Device {
    /// Sends the heartbeats that are due, and finds servers that have become silent.
    pub(in crate::device) fn watch_servers(&mut self, now: Instant) {
        if self.config.heartbeat_every.is_zero() {
            return;
        }
        let nonce = Servers::nonce(&self.config);
        let number = self.config.number.unwrap_or(0);
        let mut due = Vec::new();
        for (address, server) in &mut self.servers.known {
            if server.asked_at + self.config.heartbeat_every > now {
                continue;
            }
            server.asked_at = now;
            server.missed = server.missed.saturating_add(1);
            if server.missed > self.config.heartbeats_missed_max && server.state == ServerState::Alive {
                server.state = ServerState::Silent;
            }
            due.push((*address, server.via));
        }
        for (server, via) in due {
            self.servers.asked = self.servers.asked.wrapping_add(1);
            let body = Body::Heartbeat { nonce, role: Role::Device, number };
            let bytes = Packet::new(0, self.servers.asked, body).to_bytes();
            self.datagram(Side::Server, (via, server), bytes);
        }
    }

    /// True for a reply to a heartbeat of this device. If the server has restarted or was silent before, all its
    /// updates are sent again.
    pub(in crate::device) fn handle_heartbeat_reply(
        &mut self,
        packet: &Packet<'_>,
        from: SocketAddr,
    ) -> bool {
        let Body::HeartbeatReply { nonce, role, incarnation, .. } = packet.body else { return false };
        if nonce != Servers::nonce(&self.config) {
            return false;
        }
        if role == Role::Server && self.servers.note_answer(from, incarnation) {
            self.stats.replays += 1;
            let all = self.log.identities(|flow| flow.server == from);
            self.resend.replay(all);
        }
        true
    }
}
