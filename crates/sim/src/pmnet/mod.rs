//! Simulation of PMNet as a whole: clients, a chain of devices, and a server with replicas, with all faults at the same
//! time.
//!
//! Read [`PmnetCampaign`] first. It draws a system and its faults from a seed, runs the system, ends all faults, waits
//! until the system is idle, and lets the oracle judge. Tests drive a [`PmnetWorld`] by hand for the failure cases that
//! the paper names. Clients, devices, logs and sessions are the real ones; clock, network and media are simulated.
//!
//! # The fault model
//!
//! - **Links.** In each direction independently, packets are lost (up to 30 of 100), duplicated, delayed by up to 20 ms
//!   and so overtaken, and damaged: one to eight bits are flipped within 16 adjacent bits of the UDP payload. The UDP
//!   checksum detects all such damage. Senders compute it, and devices and hosts verify it and drop packets that do not
//!   match. A link is cut for a while, in one direction or both.
//! - **Devices** crash between packets and in the middle of appends, fences, background work and recovery. The
//!   surviving image is drawn as in [`landfall_media::sim`]. A fence fails, and the device then forwards packets
//!   without logging them until it is started again. A device is down for a while, forwards nothing, and starts as a
//!   new incarnation. A device is lost and replaced by an empty one; in campaigns, one device of the chain is never
//!   lost. Any device may have a read cache, often a small one, for registers, which updates set, and for counters,
//!   which bypasses change.
//! - **The server** crashes. It loses none of its committed batches, and a prefix of the batches under way survives.
//!   The server is lost, and the replica with the most batches takes its place. A batch counts once the server's own
//!   medium and every replica have it. Replicas stop, or are replaced by empty ones. The store refuses a batch and
//!   applies nothing of it.
//! - **Clients** crash, and others start in their place from the same address, with session numbers drawn from few. If
//!   silent sessions end, the run lasts longer than the silence, and clients, or the path to the server, are cut off
//!   for longer than that. In separate campaigns, some clients are those of the authors' release, which never
//!   retransmit. Such a client crashes if it gets no answer, and the next one has another port. These campaigns have
//!   one device at most, and no packet is duplicated or delayed if the device has a read cache, because these clients
//!   cannot tell an answer from an older one.
//! - **Strangers** on the clients' side send packets with the server's address that only a server sends, about open
//!   sessions. If clients, devices and server share a key, strangers do this on the server's side, too, and send
//!   updates with the addresses of clients. They also send updates of sessions that never began.
//!
//! The server's application is a model with registers, counters and journals, whose batches are atomic. It is not the
//! key-value engine.
//!
//! # What is judged
//!
//! The oracle judges the results that clients got, and the state of the server in the end:
//!
//! - The applied updates of each session are a prefix of the updates that its client was given: each once, in order,
//!   whole, and no fewer than were reported durable.
//! - A bypass reads the updates in front of it. Bypasses, and their order among the updates, are linearizable for each
//!   register and counter. Nothing is executed twice.
//! - An answer from a device's cache is durable, and equals the server's answer byte for byte. It is not older than the
//!   values that were complete, or that any client had read from a cache or the server, when it was requested. Cached
//!   counters are linearizable together with all bypasses.
//! - In the part of the runs where it is promised, each register is linearizable in all results of all sessions: an
//!   update takes effect before it is complete, whichever client reads and whichever node answers.
//! - A session reads its own writes, and never reads older values than the server has answered before. The server may
//!   answer a cache miss with an older value than a cache has served before: see `docs/format/pmnet.md`, "What is not
//!   promised".
//! - If silent sessions end, no row of a crashed client's session remains in the end, except for sessions of which a
//!   device holds updates. A client learns that its session has ended only after a silence.
//! - The system becomes idle, and every log is empty then, except for updates behind a gap that a crashed client has
//!   left.

mod campaign;
mod client;
mod codec;
mod costs;
mod device;
mod fabric;
mod foreign;
mod history;
mod linear;
mod oracle;
mod request;
mod server;
mod setup;
mod store;
mod world;

pub use campaign::PmnetCampaign;
pub use client::Workload;
pub use codec::cache_config;
pub use costs::Costs;
pub use device::{DeviceSetup, Landing};
pub use fabric::{Faults, Rule, Traffic, Way};
pub use history::{Call, End, History, Moment, Session, Told};
pub use oracle::{Judged, Promise, TotalLoss, judge, judge_gone_back};
pub use request::Request;
pub use server::ServerSetup;
pub use setup::{PmnetSummary, Setup};
pub use store::Held;
pub use world::{Load, PmnetWorld, Timed, measure};

use landfall_media::Site;
use std::time::Duration;

/// Faults that are built in on purpose (canaries). The oracle must catch each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// Devices acknowledge without a fence.
    DeviceAcksEarly,
    /// Devices leave out flushes or fences.
    DeviceSkips(Site),
    /// The server confirms batches that its medium does not have.
    ServerConfirmsEarly,
    /// The application commits an update's effect without its row.
    RowForgotten,
    /// The application commits a bypass's effect without its row.
    BypassRowForgotten,
    /// Devices accept packets that only servers send from both sides.
    SidesConfused,
    /// Devices ignore that a server does not know a session.
    RefusalsUnheard,
    /// The server ends silent sessions without asking devices whether they hold updates.
    EndsUnasked,
    /// Clients accept acknowledgements after their lease has expired.
    LeaseIgnored,
    /// The server ignores which updates clients know to be confirmed.
    ConfirmedUnheard,
    /// Devices answer a server's recovery request as if their logs were empty.
    LogsDenied,
    /// Devices accept packets without a seal, though there is a key.
    SealsUnchecked,
    /// Devices hold no packets, though keys must be linearizable.
    NothingHeld,
    /// Read caches do not know that updates change registers.
    CacheMissesUpdates,
    /// Read caches do not know that additions change counters.
    CacheMissesAdditions,
    /// Read caches mix up all registers with each other, and all counters.
    CacheConfusesKeys,
}

impl Broken {
    /// True if the fault is in read caches, so that devices must have some.
    pub(crate) fn is_in_caches(self) -> bool {
        matches!(self, Self::CacheMissesUpdates | Self::CacheMissesAdditions | Self::CacheConfusesKeys)
    }
}

/// A fault of a part of the system. It ends after a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A device crashes.
    DeviceCrash {
        /// Number of the device.
        device: usize,
        /// Time until it starts again.
        down: Duration,
        /// The crash is in the middle of the device's next operation, and not at once.
        inside: bool,
    },
    /// A fence fails, and the device logs no more updates.
    MediumFails {
        /// Number of the device.
        device: usize,
        /// Time until it is started again, on a medium that works.
        down: Duration,
    },
    /// A device is lost with its log.
    DeviceLoss {
        /// Number of the device.
        device: usize,
        /// Time until an empty device takes its place.
        down: Duration,
    },
    /// The server crashes.
    ServerCrash {
        /// Time until it starts again.
        down: Duration,
    },
    /// The server is lost with its medium.
    ServerLoss {
        /// Time until a replica takes its place.
        down: Duration,
    },
    /// A replica stops.
    ReplicaCrash {
        /// Number of the replica.
        replica: usize,
        /// Time until it starts again.
        down: Duration,
        /// It starts again without its batches.
        wiped: bool,
    },
    /// A client crashes, and another one starts in its place.
    ClientCrash {
        /// Number of the client.
        client: usize,
    },
    /// A stranger on the clients' side sends packets with the server's address.
    Forgery {
        /// The client that gets them, and whose session they are about.
        client: usize,
    },
    /// A stranger sends updates of a session that never began.
    Junk {
        /// The client whose address they have.
        client: usize,
    },
    /// A link is cut.
    Partition {
        /// Number of the hop; 0 is the clients' end.
        hop: usize,
        /// Cut towards the server.
        up: bool,
        /// Cut towards the clients.
        down: bool,
        /// Duration of the cut.
        lasts: Duration,
    },
}
