//! PMNet: an in-network log that acknowledges updates before they reach the server.
//!
//! Source: Seemakhupt et al., *PMNet: In-Network Data Persistence*, ISCA 2021. The state machines here do no I/O,
//! read no clock and draw no entropy. Packets and the time go in; packets and events come out.
//!
//! - [`device::Device`]: the packet pipeline of a device between clients and servers.
//! - [`log::Log`]: updates in persistent memory, indexed by identity.
//! - [`paths::Paths`]: the ports that a relay assigns to clients, and when each port is released.
//! - [`Client`]: the client's end of a session: order, fragments, acknowledgements, retransmission.
//! - [`Server`]: all sessions of a server. It applies each update in order and exactly once, and answers reads.
//! - [`cache`]: a device's read cache, and the codecs through which it understands requests.
//! - [`auth`]: optional tags. With a shared key, packets from senders without the key are rejected.
//! - [`wire`]: the packets. Byte tables, and how each party handles each packet: `docs/format/pmnet.md`.

#![forbid(unsafe_code)]

pub mod auth;
pub mod cache;
pub mod client;
pub mod device;
mod dialect;
mod error;
mod identity;
pub mod log;
pub mod paths;
mod pieces;
pub mod server;
pub mod wire;

pub use client::{Client, ClientConfig};
pub use dialect::Dialect;
pub use error::{LogError, WireError};
pub use identity::{Flow, Identity, SessionKey};
pub use landfall_net::Instant;
pub use server::{Server, ServerConfig, SessionRow, Ticket, Work};

/// A PMNet packet has a UDP port of this range at one end at least (§IV-A2).
pub const PORTS: std::ops::RangeInclusive<u16> = 51000..=52000;
