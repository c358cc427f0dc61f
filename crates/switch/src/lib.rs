//! PMNet devices: processes that connect the state machine [`landfall_pmnet::device::Device`] to a network.
//!
//! - [`relay`] uses kernel sockets and needs no privilege. Clients send to the relay, which has one socket towards the
//!   server for each client.
//! - [`wire`] uses AF_XDP, either between two interfaces or as the network card of a server.

mod engine;
mod error;
mod frames;
pub mod relay;
pub mod status;
mod sys;
pub mod wire;

pub use engine::RegionConfig;
pub use error::SwitchError;
