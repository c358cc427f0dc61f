//! A device: a pipeline of three stages (§IV-B2) for the packets between clients and servers.
//!
//! Read [`Device`] first. [`table`] says what the pipeline does with each type of packet.

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

use crate::dialect::Dialect;
use crate::error::LogError;
use crate::identity::{Flow, Identity};
use crate::log::{Log, NotLogged, Stored};
use crate::wire::{Body, FROM_HOSTS, Header, Packet};
use core::net::SocketAddr;
use joint::Joint;
use landfall_media::{Dirty, Extent, MediaError};
use landfall_net::Instant;
use linearizable::Linearizable;
use reads::Reads;
use refused::Refused;
use resend::Resend;
use servers::Servers;
use std::collections::VecDeque;
use std::time::Duration;

/// Most actions that wait for the caller. Actions beyond it are dropped; the packets are sent again later.
const ACTIONS_MAX: usize = 8192;

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

/// A PMNet packet that has arrived and has been verified. The caller holds its bytes until the call returns.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    /// The side on which the packet arrived.
    pub side: Side,
    /// Source address.
    pub from: SocketAddr,
    /// Destination address.
    pub to: SocketAddr,
    /// The PMNet header and everything after it.
    pub payload: &'a [u8],
    /// The packet in the region. The log refers to it.
    pub packet: Extent,
    /// Number of bytes in `packet` before `payload`.
    pub header_at: usize,
    /// Time of arrival in Unix nanoseconds.
    pub arrival_ns: u64,
}

/// What the caller must do with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Forward the packet unchanged.
    Forward,
    /// Do not forward it.
    Taken,
}

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
    /// A device with its log. The updates in the log are sent to their servers again.
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
            device.restore_in_cache(identity);
        }
        device.resend.replay(all);
        device
    }

    /// Reports an update of the log to the read cache after a restart: it is in flight and durable.
    fn restore_in_cache(&mut self, identity: &Identity) {
        let Some(reads) = &mut self.reads else { return };
        let Ok(Some(stored)) = self.log.hold(identity) else { return };
        if let Ok(bytes) = self.log.bytes_of(&stored) {
            reads.update(identity, bytes.get(stored.header_at..).unwrap_or_default(), false);
            reads.durable(identity);
        }
        self.log.release(&stored);
    }

    /// Number of values that the read cache can serve, and the bytes of everything that it holds, with keys. A value
    /// that is stored by reference counts with the bytes of its frames.
    pub fn cached(&self) -> (usize, usize) {
        self.reads.as_ref().map_or((0, 0), Reads::held)
    }

    /// The log.
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// The log, so that a relay can add and remove paths.
    pub fn log_mut(&mut self) -> &mut Log {
        &mut self.log
    }

    /// Removes a client's path and everything that is known of the client's sessions. Another client may then get
    /// the port, and the client another port. False if the client has no path, or updates in the log.
    pub fn remove_path(&mut self, flow: Flow) -> bool {
        if !self.log.remove_path(&flow) {
            return false;
        }
        let log = &self.log;
        let other = || log.paths().into_iter().find(|(other, _)| other.server == flow.server);
        self.servers.client_gone(flow, || other().map(|(other, _)| other.client));
        if let Some(reads) = &mut self.reads {
            reads.remove_client(flow);
        }
        if let Some(order) = &mut self.order {
            order.remove_client(flow);
        }
        true
    }

    /// The device's counters.
    pub fn stats(&self) -> &DeviceStats {
        &self.stats
    }

    /// The device's servers and their states.
    pub fn servers(&self) -> impl Iterator<Item = (SocketAddr, ServerState)> + '_ {
        self.servers.states()
    }

    /// Fences all appended updates and acknowledges them.
    ///
    /// # Errors
    /// The medium's error. Nothing is acknowledged then, and nothing is logged from now on; packets are still
    /// forwarded.
    pub fn commit(&mut self) -> Result<(), LogError> {
        if let Some(mut dirty) = self.begin_commit() {
            let outcome = self.log.heap().media().fence(&mut dirty, landfall_media::Site::Commit);
            self.finish_commit(outcome)?;
        }
        Ok(())
    }

    /// True if appended updates wait for a fence, and no commit is in progress.
    pub fn wants_commit(&self) -> bool {
        self.log.has_pending() && !self.log.is_committing()
    }

    /// Ends the batch and returns what must be fenced to make it durable.
    pub fn begin_commit(&mut self) -> Option<Dirty> {
        self.log.begin_commit()
    }

    /// Ends a commit after its fence, and acknowledges the updates that the fence covers.
    ///
    /// # Errors
    /// The error in `outcome`. Nothing is acknowledged then.
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

    /// The next packet to send.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Releases an update from [`Action::Logged`], after it was sent or could not be sent.
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

    /// Counts a packet that is longer than a frame. It is forwarded without inspection, unless the device might have
    /// to delay it.
    pub fn count_too_long(&mut self, side: Side) -> Verdict {
        self.stats.packets += 1;
        *self.stats.not_logged.entry(NotLogged::TooLong).or_default() += 1;
        self.unseen(side)
    }

    /// What to do with a packet that cannot be given to [`Self::handle`].
    pub fn unseen(&self, side: Side) -> Verdict {
        match self.order.is_some() && side == Side::Clients {
            true => Verdict::Taken,
            false => Verdict::Forward,
        }
    }

    /// Counts a packet with an invalid seal. It was not given to [`Self::handle`].
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

/// A PMNet-ACK: addresses and ports are swapped, and the hash is that of the update. A joint ACK if there are
/// `others`.
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
