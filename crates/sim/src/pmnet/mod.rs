//! PMNet as a whole: clients, a chain of devices, a server with replicas, under every fault at once.
//!
//! Read [`PmnetCampaign`] first: it draws a system and what happens to it from a seed, ends all faults, waits until the
//! system rests, and lets the oracle judge. [`PmnetWorld`] is driven by hand for the failure cases that the paper names.
//! Clients, devices, logs and sessions are the real ones, over a simulated clock, network and media.
//!
//! # The fault model
//!
//! - **Links**, each direction by itself: packets are lost (up to 30 of 100), doubled, late by up to 20 ms and so
//!   overtaken, and damaged: one to eight bits are turned within 16 adjacent ones of the UDP payload. UDP's checksum
//!   notices every such damage; it is computed by senders and verified by devices and hosts, which drop what does not
//!   match. A link is cut for a while, in one direction or both.
//! - **Devices** crash between packets and in the middle of appending, fencing, background work and recovery. What is
//!   left is drawn as in [`landfall_media::sim`]. A fence fails, and the device passes packets on without logging any, until
//!   it is started again. A device is down for a while, passes nothing on, and starts as a new
//!   incarnation. A device is lost for good and replaced by an empty one; in campaigns, one of the chain never is.
//!   Any device may have a read cache, often a small one: for registers, which updates set, and for counters, which
//!   bypasses change.
//! - **The server** crashes: of its committed batches nothing is lost, of those under way a prefix survives. It is lost
//!   for good and the replica that has most takes its place. A batch counts once the server's own medium and every replica
//!   have it; replicas stop, or are replaced by empty ones. A batch is refused and nothing of it applied.
//! - **Clients** are forgotten, and others start in their place from the same address, with session numbers drawn
//!   from few. Where sessions that fall silent end, the run lasts for longer than a silence, and clients, or the way to the server, are cut
//!   off for longer than that. In campaigns of their own some are those of the authors' release, which never send anything again: such a client is
//!   forgotten when no answer comes, and the next one has another port. There is one device at most then, and no packet is doubled or
//!   late where it has a read cache: their packets do not tell an answer from an older one.
//! - **Strangers** on the clients' side send in the server's name what only a server sends, of sessions that are open. Where clients,
//!   devices and server share a key, strangers do so on the server's side, too, and send updates in clients' names. They also send updates
//!   of sessions that never began.
//!
//! The server's application is a model (registers, counters, journals; batches are atomic), not the key-value engine.
//!
//! # What is judged
//!
//! Of what clients were told, and of what the server holds in the end:
//!
//! - the updates applied of each session are the first ones that were given to its client, each once, in order, whole,
//!   and no fewer than were reported durable;
//! - a bypass sees the updates in front of it; what bypasses, and its place among the updates, is linearizable for
//!   each register and counter; nothing is executed twice;
//! - what a device answers from its cache is durable, the server's answer byte for byte, and not older than what was
//!   complete, or had been read by anybody from a cache or the server, when it was asked. Cached counters are
//!   linearizable together with everything that bypasses;
//! - where that is promised, in a part of the runs, each register is linearizable in all that sessions were told: an update
//!   has happened once it is complete, whoever reads and whoever answers;
//! - a session reads its own writes, and never goes back behind what the server has answered it. That the server answers
//!   a miss with less than a cache has served before is allowed: see `docs/format/pmnet.md`, "What is not promised";
//! - where sessions that fall silent end, no row of a session whose client is gone is left in the end, but of those of which a device
//!   holds something; a client is told that its session is gone only after a silence;
//! - everything comes to rest, and every log is empty then, but for updates behind a gap that a dead client has left.

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

/// What can be wrong with a system on purpose: the oracle must notice each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// Devices acknowledge before the fence, which never comes.
    DeviceAcksEarly,
    /// Devices leave out flushes or fences.
    DeviceSkips(Site),
    /// The server confirms batches that its medium does not have.
    ServerConfirmsEarly,
    /// The application commits an update's effect without its row.
    RowForgotten,
    /// The application commits a bypass's effect without its row.
    BypassRowForgotten,
    /// Devices believe what only servers send from whichever side it comes.
    SidesConfused,
    /// Devices do not hear that a server does not know a session.
    RefusalsUnheard,
    /// The server ends silent sessions without asking devices what they hold.
    EndsUnasked,
    /// Clients believe devices and server though their lease has run out.
    LeaseIgnored,
    /// The server does not hear what clients know to be confirmed.
    ConfirmedUnheard,
    /// Devices say that their logs have nothing of what a server asks for.
    LogsDenied,
    /// Devices believe packets without a seal, though there is a key.
    SealsUnchecked,
    /// Devices hold nothing, though keys are to be linearizable.
    NothingHeld,
    /// Read caches do not know that updates change registers.
    CacheMissesUpdates,
    /// Read caches do not know that additions change counters.
    CacheMissesAdditions,
    /// Read caches take all registers for one, and all counters.
    CacheConfusesKeys,
}

impl Broken {
    /// Whether it is in read caches, so that there must be some.
    pub(crate) fn is_in_caches(self) -> bool {
        matches!(self, Self::CacheMissesUpdates | Self::CacheMissesAdditions | Self::CacheConfusesKeys)
    }
}

/// Something that happens to a part of the system, and passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A device stops, at once or in the middle of the next thing that it does.
    DeviceCrash {
        /// Which.
        device: usize,
        /// It starts again after this.
        down: Duration,
        /// In the middle of something.
        inside: bool,
    },
    /// A fence fails: the device takes nothing into its log any more.
    MediumFails {
        /// Which.
        device: usize,
        /// It is started again, on a medium that works, after this.
        down: Duration,
    },
    /// A device is lost with its log.
    DeviceLoss {
        /// Which.
        device: usize,
        /// Another one takes its place after this.
        down: Duration,
    },
    /// The server stops.
    ServerCrash {
        /// It starts again after this.
        down: Duration,
    },
    /// The server is lost with its medium.
    ServerLoss {
        /// A replica takes its place after this.
        down: Duration,
    },
    /// A replica stops.
    ReplicaCrash {
        /// Which.
        replica: usize,
        /// It is back after this.
        down: Duration,
        /// With nothing.
        wiped: bool,
    },
    /// A client is forgotten, and another one starts in its place.
    ClientCrash {
        /// Which.
        client: usize,
    },
    /// A stranger on the clients' side speaks in the server's name.
    Forgery {
        /// To which client, and about its session.
        client: usize,
    },
    /// A stranger sends updates of a session that never began.
    Junk {
        /// From the address of which client.
        client: usize,
    },
    /// A link is cut.
    Partition {
        /// Which hop: 0 is the clients' end.
        hop: usize,
        /// Towards the server.
        up: bool,
        /// Towards the clients.
        down: bool,
        /// For so long.
        lasts: Duration,
    },
}
