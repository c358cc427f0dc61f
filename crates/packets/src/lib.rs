//! The AF_XDP transport: whole packets land in frames of the region, and Landfall's own TCP keeps them there.
//!
//! Read [`Network`] first. It is opened once, over one interface, and creates one [`Transport`] for each worker, with
//! one queue each. The transport lends chunks of landing runs to the interface (`pool`), passes packets to a
//! [`landfall_net::Stack`], and sends the packets that the stack fills: headers from a small run of its own, stored
//! bytes from their frames. Where that is cheaper, a sequence of segments is sent as one long packet (`offload`). A
//! segment that arrives at the wrong queue is forwarded by reference to the worker that has its connection (`flows`).
//!
//! A device without a TCP transport uses [`LandingMemory`], so that its packets land in frames as well.
//!
//! [`Transport`]: landfall_sockets::Transport

mod bounce;
mod error;
mod flows;
mod landing;
mod memory;
mod network;
mod offload;
mod pool;
mod sys;
mod transmit;
mod transport;
mod units;

pub use error::PacketsError;
pub use landfall_xdp::Mode;
pub use landing::{Departures, Landing, LandingMemory};
pub use network::{Network, Settings};
pub use pool::Pool;
