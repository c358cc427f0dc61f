//! PMNet devices: they carry packets between a [`landfall_pmnet::device::Device`] and a network.
//!
//! - [`relay`]: kernel sockets, no privilege. Clients send to the relay, which has one socket towards the server for
//!   each client.
//! - [`wire`]: AF_XDP, between two interfaces, or as a server's own network card.

mod engine;
mod error;
mod frames;
pub mod metrics;
pub mod relay;
pub mod status;
mod sys;
pub mod wire;

pub use engine::RegionConfig;
pub use error::SwitchError;
