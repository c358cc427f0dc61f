//! The state of a device, and the packets that it sends.

use super::config::DeviceConfig;
use super::joint::Joint;
use super::linearizable::Linearizable;
use super::reads::Reads;
use super::refused::Refused;
use super::resend::Resend;
use super::servers::Servers;
use super::stats::DeviceStats;
use super::table::Side;
use crate::identity::{Flow, Identity};
use crate::log::{Log, Stored};
use crate::wire::{Body, FROM_HOSTS, Header, Packet};
use core::net::SocketAddr;
use std::collections::{BTreeSet, VecDeque};

/// Most actions that wait for the caller. Actions beyond it are dropped; the packets are sent again later.
pub(super) const ACTIONS_MAX: usize = 8192;

/// A packet that the device wants to send.
#[derive(Debug)]
pub enum Action {
    /// A datagram that the device has made.
    Datagram {
        /// The side to which it is sent.
        towards: Side,
        /// Source address.
        from: SocketAddr,
        /// Destination address.
        to: SocketAddr,
        /// The payload.
        payload: Vec<u8>,
    },
    /// An update of the log or a packet that was delayed, to be sent to its server. Its bytes are held until
    /// [`Device::sent`].
    Logged {
        /// Identity of the update.
        identity: Identity,
        /// The packet's bytes.
        stored: Stored,
    },
}

/// A device.
///
/// Contract: call [`Self::handle`] for each packet. After a batch call [`Self::commit`]; or [`Self::begin_commit`],
/// a fence on another thread, and [`Self::finish_commit`]. Call [`Self::handle_timeout`] when [`Self::next_timeout`]
/// is due. Then call [`Self::poll_action`] until it returns `None`.
#[derive(Debug)]
pub struct Device {
    pub(super) config: DeviceConfig,
    pub(super) log: Log,
    pub(super) actions: VecDeque<Action>,
    pub(super) resend: Resend,
    pub(super) servers: Servers,
    pub(super) reads: Option<Reads>,
    pub(super) order: Option<Linearizable>,
    pub(super) joint: Joint,
    pub(super) refused: Refused,
    /// Paths on which sessions may go on that have begun on another one, which was removed. A restart has forgotten which
    /// sessions have begun there: their updates are logged once the server has spoken of them.
    pub(super) unsure: BTreeSet<Flow>,
    pub(super) stats: DeviceStats,
}

impl Device {
    pub(super) fn datagram(&mut self, towards: Side, (from, to): (SocketAddr, SocketAddr), payload: Vec<u8>) {
        if self.actions.len() < ACTIONS_MAX {
            self.actions.push_back(Action::Datagram { towards, from, to, payload });
        }
    }
}

/// A PMNet-ACK: addresses and ports are swapped, and the hash is that of the update. A joint ACK if there are
/// `others`.
pub(super) fn acknowledgement(
    config: &DeviceConfig,
    identity: &Identity,
    hash: u32,
    others: &[u8],
) -> Action {
    let body = if others.is_empty() { Body::PmnetAck } else { Body::JointAck(others) };
    let header = Header {
        kind: body.kind(),
        ack_count: config.number.unwrap_or(FROM_HOSTS),
        session: identity.session,
        seq: identity.seq,
        hash,
    };
    let payload = Packet { header, body }.to_bytes();
    let Flow { client, server } = identity.flow;
    Action::Datagram { towards: Side::Clients, from: server, to: client, payload }
}
