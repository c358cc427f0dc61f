//! AF_XDP: whole packets between a network interface and memory of the caller.
//!
//! Read [`Socket`] first. To receive: [`Interface::find`], [`Umem::register`] a mapped area, [`Socket::open`] one queue
//! each, [`Socket::fill`] chunks, [`Steering::attach`] the rules that select packets, and [`Steering::set_socket`]. All
//! other packets go to the kernel as before. A device on the wire has a [`Bridge`] on each of its two interfaces
//! instead: all other packets go to the other interface.
//!
//! Calling contract: a chunk belongs to the kernel from [`Socket::fill`] until [`Socket::receive`] reports it, and a
//! piece from [`Socket::transmit`] until [`Socket::completed`] reports it. A round of a worker is: receive, work,
//! transmit, kick once, take completions, fill.
//!
//! Addresses are byte offsets in the UMEM. The crate needs Linux 6.6 or newer, little-endian.

mod attached;
mod bpf;
mod bridge;
mod error;
mod interface;
mod packet;
mod ring;
mod rules;
mod socket;
mod steering;
mod sys;
mod umem;
mod wanted;

pub use attached::AttachMode;
pub use bridge::Bridge;
pub use error::XdpError;
pub use interface::Interface;
pub use packet::{NotTaken, PIECES_MAX, Piece, Received, Statistics};
pub use rules::{PORTS_MAX, Rules, TARGETS_MAX, Target};
pub use socket::{Mode, RING_ENTRIES_MAX, RingSizes, Socket};
pub use steering::Steering;
pub use umem::{Chunk, Umem, XDP_HEADROOM, check_mtu};
pub use wanted::{Bits, Kind, Wanted};
