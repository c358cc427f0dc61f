//! A device: a pipeline of three stages (§IV-B2) for the packets between clients and servers.
//!
//! Read [`Device`] first. [`table`] says what the pipeline does with each type of packet.

mod arrival;
mod codec;
mod config;
mod joint;
mod landed;
mod linearizable;
mod pipeline;
mod reads;
mod refused;
mod resend;
mod servers;
mod state;
mod stats;
pub mod table;

pub use arrival::{Arrival, Verdict};
pub use codec::Codec;
pub use config::DeviceConfig;
pub use linearizable::LinearizableConfig;
pub use reads::CacheConfig;
pub use servers::ServerState;
pub use state::{Action, Device};
pub use stats::DeviceStats;
pub use table::Side;

use crate::error::LogError;
use crate::identity::{Flow, Identity};
use crate::log::{Log, NotLogged, Stored};
use core::net::SocketAddr;
use joint::Joint;
use landfall_media::{Dirty, MediaError};
use landfall_net::Instant;
use linearizable::Linearizable;
use reads::Reads;
use refused::Refused;
use resend::Resend;
use servers::Servers;
use state::acknowledgement;
use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

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
            unsure: BTreeSet::new(),
            stats: DeviceStats::default(),
        };
        device.unsure = device.log.paths_after_forgetting().into_iter().collect();
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
        self.unsure.remove(&flow);
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
}
