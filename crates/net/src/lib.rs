//! Ethernet, ARP, IPv4, IPv6, ICMP, UDP and TCP as state machines that keep the frames they receive.
//!
//! Read [`Stack`] first. It does no I/O and reads no clock. A driver
//!
//! 1. hands it each packet where it landed ([`Stack::receive`]), and the time ([`Stack::handle_time`]),
//! 2. takes events ([`Stack::poll_event`]): payload arrives as extents of the frames in which it landed, each held once
//!    for the receiver,
//! 3. sends the packets that it fills ([`Stack::poll_transmit`]): headers and small bytes in a buffer, stored bytes by
//!    reference,
//! 4. calls the stack again no later than [`Stack::deadline`].
//!
//! The stack copies nothing to reorder, to reassemble or to retransmit. Received segments wait in the frames in which
//! they landed. Replies are sent, and retransmitted, from the frames that hold the data (["Packets as Persistent
//! In-Memory Data Structures"][honda], 4.1). `docs/tcp.md` lists what the TCP implements and what it leaves out, RFC by
//! RFC.
//!
//! [honda]: https://doi.org/10.1145/3484266.3487386

#![forbid(unsafe_code)]

mod address;
mod config;
mod event;
mod frames;
mod ip;
mod packet;
mod stack;
mod stats;
mod tcp;
mod time;

pub use address::{Tuple, pseudo_sum};
pub use config::{Config, CongestionControl, Mac};
pub use event::{ConnId, Ended, Event};
pub use frames::Frames;
pub use packet::{BYTES_MAX, Cut, DESCRIPTORS_MAX, LONG_LEN_MAX, Packet, Piece};
pub use stack::{ConnectError, FlowChange, Received, SendError, Stack};
pub use stats::{DROPS, Drop, Stats};
pub use time::Instant;
