//! The AF_XDP transport: whole packets land in frames of the region, and our own TCP keeps them there.
//!
//! Read [`Network`] first: it is opened once, over one interface, and makes one [`Transport`] for each worker, with
//! one queue each. The transport lends chunks of landing runs to the interface (`pool`), hands packets to a
//! [`landfall_net::Stack`], and sends what that fills: headers from a small run of its own, stored bytes from
//! where they lie. A segment that comes to the wrong queue is passed on by reference to the worker that has its
//! connection (`flows`).
//!
//! [`Transport`]: landfall_sockets::Transport

mod bounce;
mod error;
mod flows;
mod memory;
mod network;
mod pool;
mod spin;
mod sys;
mod transmit;
mod transport;

pub use error::PacketsError;
pub use landfall_xdp::Mode;
pub use network::{Network, Settings};
