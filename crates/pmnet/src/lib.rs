//! PMNet: an in-network log that acknowledges updates before the server has seen them.
//!
//! Source: Seemakhupt et al., *PMNet: In-Network Data Persistence*, ISCA 2021. The state machines here do no I/O, read
//! no clock and draw no entropy: packets and the time go in, packets and events come out.
//!
//! - [`device::Device`]: the pipeline between clients and servers.
//! - [`log::Log`]: updates in persistent memory, by identity.
//! - [`paths::Paths`]: a relay's ports for clients, and when they are given back.
//! - [`Client`]: a session's end at the client: order, fragments, acknowledgements, repetition.
//! - [`Server`]: all sessions of a server: order, applied exactly once, answers.
//! - [`cache`]: a device's read cache, and what it must know of requests.
//! - [`auth`]: optional tags; with them, nobody without the key is believed.
//! - [`wire`]: the packets. Byte tables, and what each party does with which packet: `docs/format/pmnet.md`.

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

/// UDP ports that PMNet's packets use at one end at least (§IV-A2).
pub const PORTS: std::ops::RangeInclusive<u16> = 51000..=52000;
