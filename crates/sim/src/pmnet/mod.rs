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
mod datagram;
mod device;
mod fabric;
mod fault;
mod foreign;
mod history;
mod linear;
mod oracle;
mod request;
mod server;
mod setup;
mod store;
mod work;
mod world;

pub use campaign::PmnetCampaign;
pub use client::Workload;
pub use codec::cache_config;
pub use costs::Costs;
pub use datagram::Way;
pub use device::{DeviceSetup, Landing};
pub use fabric::{Faults, Rule, Traffic};
pub use fault::{Broken, Fault};
pub use history::{Call, End, History, Moment, Session, Told};
pub use oracle::{Judged, Promise, TotalLoss, judge, judge_gone_back};
pub use request::Request;
pub use server::ServerSetup;
pub use setup::{PmnetSummary, Setup};
pub use store::Held;
pub use world::PmnetWorld;
pub use world::timed::{Load, Timed, measure};
