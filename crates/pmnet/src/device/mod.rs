//! The device: a pipeline of three stages (§IV-B2) between clients and servers.
//!
//! Read [`Device`] first; what is done with which packet is in [`table`].

mod joint;
mod landed;
mod linearizable;
mod pipeline;
mod reads;
mod refused;
mod resend;
mod servers;
mod stats;
pub mod table;

pub use linearizable::LinearizableConfig;
pub use reads::{CacheConfig, Codec};
pub use servers::ServerState;
pub use stats::DeviceStats;
pub use table::Side;

use crate::error::LogError;
use crate::log::{Log, NotLogged, Stored};
use crate::wire::{Body, FROM_HOSTS, Header, Packet};
use crate::{Dialect, Flow, Identity, Instant};
use core::net::SocketAddr;
use joint::Joint;
use landfall_media::{Dirty, Extent, MediaError};
use linearizable::Linearizable;
use reads::Reads;
use refused::Refused;
use resend::Resend;
use servers::Servers;
use std::collections::VecDeque;
use std::time::Duration;

/// Actions that wait for the driver at most; what would go beyond is left out and sent again later.
const ACTIONS_MAX: usize = 8192;

/// How a device behaves.
#[derive(Clone, Copy, Debug)]
pub struct DeviceConfig {
    /// What its clients and servers speak.
    pub dialect: Dialect,
    /// Its number in its chain, from the clients to the server, below [`crate::wire::DEVICES_MAX`]; `None`: it stands alone and
    /// acknowledges as the authors' devices do.
    pub number: Option<u8>,
    /// An acknowledgement is kept back, and joined with those of the devices behind this one, if these follow within so long.
    /// Zero: nothing is joined. Only for devices with a number.
    pub keep_back: Duration,
    /// Drawn at each start.
    pub incarnation: u64,
    /// An update that nothing has removed for so long is sent again.
    pub resend_after: Duration,
    /// Longest pause between two repetitions.
    pub resend_pause_max: Duration,
    /// Repetitions without confirmation at once.
    pub resend_window: usize,
    /// How often servers are asked whether they live; zero: never.
    pub heartbeat_every: Duration,
    /// Heartbeats without an answer after which a server that has answered before counts as silent.
    pub heartbeats_missed_max: u32,
    /// Servers that are watched.
    pub servers_max: usize,
    /// The read cache, if there is to be one. All packets between clients and a server must pass the device, and nothing
    /// else may change the server's keys: see `docs/format/pmnet.md`.
    pub cache: Option<CacheConfig>,
    /// Whether keys are linearizable across sessions. All packets between clients and a server must pass the device, whether
    /// it runs or not, and all devices of a chain must be told so.
    pub linearizable: Option<LinearizableConfig>,
}

impl DeviceConfig {
    /// Whether bypasses must come to the device, and may not be sent on without it.
    pub fn sees_bypasses(&self) -> bool {
        self.cache.is_some() || self.linearizable.is_some()
    }

    /// Without what its clients and servers do not understand.
    fn in_dialect(mut self) -> Self {
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

/// A PMNet packet that has arrived and been verified. The caller holds its bytes until the call returns.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    /// Where it came in.
    pub side: Side,
    /// Its source.
    pub from: SocketAddr,
    /// Its destination.
    pub to: SocketAddr,
    /// The PMNet header and what follows.
    pub payload: &'a [u8],
    /// The packet in the region: what the log refers to.
    pub packet: Extent,
    /// Bytes of `packet` in front of `payload`.
    pub header_at: usize,
    /// When it arrived, Unix nanoseconds.
    pub arrival_ns: u64,
}

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// To be sent on as it is.
    Forward,
    /// It ends here.
    Taken,
}

/// What a device wants sent.
#[derive(Debug)]
pub enum Action {
    /// A datagram of its own making.
    Datagram {
        /// Where it is to leave.
        towards: Side,
        /// In whose name.
        from: SocketAddr,
        /// To whom.
        to: SocketAddr,
        /// The payload.
        payload: Vec<u8>,
    },
    /// An update of the log, or a packet that was held, to its server. Its bytes are held: [`Device::sent`] lets go of them.
    Logged {
        /// Which.
        identity: Identity,
        /// Where it lies.
        stored: Stored,
    },
}

/// One device.
///
/// Contract: [`Self::handle`] for each packet; after a batch [`Self::commit`] (or [`Self::begin_commit`], a fence elsewhere,
/// [`Self::finish_commit`]); [`Self::handle_timeout`] when [`Self::next_timeout`] says so; then all of [`Self::poll_action`].
#[derive(Debug)]
pub struct Device {
    config: DeviceConfig,
    log: Log,
    actions: VecDeque<Action>,
    resend: Resend,
    servers: Servers,
    reads: Option<Reads>,
    order: Option<Linearizable>,
    joint: Joint,
    refused: Refused,
    stats: DeviceStats,
}

impl Device {
    /// A device over its log. What is in the log is sent to its servers again.
    pub fn new(config: DeviceConfig, log: Log, now: Instant) -> Self {
        let config = config.in_dialect();
        let mut device = Self {
            config,
            log,
            actions: VecDeque::new(),
            resend: Resend::new(&config),
            servers: Servers::default(),
            reads: None,
            order: None,
            joint: Joint::new(config.number.map_or(Duration::ZERO, |_| config.keep_back), config.servers_max),
            refused: Refused::default(),
            stats: DeviceStats::default(),
        };
        let all = device.log.identities(|_| true);
        let restarted = !device.log.is_new();
        let heap = device.log.heap();
        device.order = config.linearizable.map(|order| Linearizable::new(order, &device.log, now));
        let new_reads = |cache| Reads::new(cache, config.dialect, config.servers_max, (heap, restarted), now);
        device.reads = config.cache.map(new_reads);
        for identity in &all {
            device.resend.watch(*identity, now);
            device.servers.note(&device.config, identity.flow, now);
            device.tell_cache(identity);
        }
        device.resend.replay(all);
        device
    }

    /// An update of the log, after a restart, is in flight, and durable.
    fn tell_cache(&mut self, identity: &Identity) {
        let Some(reads) = &mut self.reads else { return };
        let Ok(Some(stored)) = self.log.hold(identity) else { return };
        if let Ok(bytes) = self.log.bytes_of(&stored) {
            reads.update(identity, bytes.get(stored.header_at..).unwrap_or_default(), false);
            reads.durable(identity);
        }
        self.log.release(&stored);
    }

    /// Values that the read cache serves, and the bytes of all that it holds with their keys: of those that lie where their
    /// packets landed, the bytes of the frames.
    pub fn cached(&self) -> (usize, usize) {
        self.reads.as_ref().map_or((0, 0), Reads::held)
    }

    /// The log.
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// The log, for the paths of relays.
    pub fn log_mut(&mut self) -> &mut Log {
        &mut self.log
    }

    /// A client's path is given back: false if there is none, or its updates are in the log. Another client may have the port, and
    /// the client another port: what is known of its sessions is forgotten.
    pub fn remove_path(&mut self, flow: Flow) -> bool {
        if !self.log.remove_path(&flow) {
            return false;
        }
        let log = &self.log;
        let other = || log.paths().into_iter().find(|(other, _)| other.server == flow.server);
        self.servers.gone(flow, || other().map(|(other, _)| other.client));
        if let Some(reads) = &mut self.reads {
            reads.forget_client(flow);
        }
        if let Some(order) = &mut self.order {
            order.forget_client(flow);
        }
        true
    }

    /// What it has counted.
    pub fn stats(&self) -> &DeviceStats {
        &self.stats
    }

    /// Its servers, and how they are.
    pub fn servers(&self) -> impl Iterator<Item = (SocketAddr, ServerState)> + '_ {
        self.servers.states()
    }

    /// Fences what was logged, and acknowledges it.
    ///
    /// # Errors
    /// The medium's. Nothing is acknowledged then, and nothing logged from now on: packets are still forwarded.
    pub fn commit(&mut self) -> Result<(), LogError> {
        if let Some(mut dirty) = self.begin_commit() {
            let outcome = self.log.heap().media().fence(&mut dirty, landfall_media::Site::Commit);
            self.finish_commit(outcome)?;
        }
        Ok(())
    }

    /// True if something waits for a fence and none is under way.
    pub fn wants_commit(&self) -> bool {
        self.log.has_pending() && !self.log.is_committing()
    }

    /// Ends the batch: the fence of what is returned makes it durable.
    pub fn begin_commit(&mut self) -> Option<Dirty> {
        self.log.begin_commit()
    }

    /// The fence has ended: what it covers is acknowledged.
    ///
    /// # Errors
    /// The outcome's; nothing is acknowledged then.
    pub fn finish_commit(&mut self, outcome: Result<(), MediaError>) -> Result<(), LogError> {
        let Self { log, actions, config, stats, reads, order, joint, .. } = self;
        stats.fences += 1;
        log.finish_commit(outcome, |identity, hash| {
            if let Some(reads) = reads {
                reads.durable(&identity);
            }
            if let Some(order) = order {
                order.durable(&identity);
            }
            if let Some(others) = joint.durable(&identity) {
                stats.acknowledged += 1;
                stats.joined += u64::from(!others.is_empty());
                actions.push_back(acknowledgement(config, &identity, hash, &others));
            }
        })
    }

    /// The next thing to send.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// An update from [`Action::Logged`] has been sent, or could not be.
    pub fn sent(&mut self, stored: &Stored) {
        self.log.release(stored);
    }

    /// When [`Self::handle_timeout`] is due.
    pub fn next_timeout(&self) -> Option<Instant> {
        let reads = self.reads.as_ref().and_then(Reads::next_timeout);
        let order = self.order.as_ref().and_then(Linearizable::next_timeout);
        [self.resend.next_timeout(), self.servers.next_timeout(&self.config), reads, order]
            .into_iter()
            .flatten()
            .min()
    }

    /// A packet was longer than a frame: it goes on without being looked at, unless it might have to be held.
    pub fn count_too_long(&mut self, side: Side) -> Verdict {
        self.stats.packets += 1;
        *self.stats.not_logged.entry(NotLogged::TooLong).or_default() += 1;
        self.unseen(side)
    }

    /// What becomes of a packet that the device cannot be shown.
    pub fn unseen(&self, side: Side) -> Verdict {
        match self.order.is_some() && side == Side::Clients {
            true => Verdict::Taken,
            false => Verdict::Forward,
        }
    }

    /// A packet's seal does not fit: it was not shown to the device.
    pub fn count_unauthentic(&mut self) {
        self.stats.packets += 1;
        self.stats.unauthentic += 1;
    }

    fn datagram(&mut self, towards: Side, (from, to): (SocketAddr, SocketAddr), payload: Vec<u8>) {
        if self.actions.len() < ACTIONS_MAX {
            self.actions.push_back(Action::Datagram { towards, from, to, payload });
        }
    }
}

/// A PMNet-ACK: addresses and ports swapped, the update's hash. With those of `others`, a joint one.
fn acknowledgement(config: &DeviceConfig, identity: &Identity, hash: u32, others: &[u8]) -> Action {
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
