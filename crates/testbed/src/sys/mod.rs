//! System calls of the testbed: namespaces, offload settings, packet sockets, forwarding programs, shared memory.
//!
//! Unsafe code is allowed here, because std has no functions for these.
#![allow(unsafe_code)]

mod checked;
mod ethtool;
mod forward;
mod interface;
mod memory;
mod namespace;
mod packet;

pub(crate) use ethtool::{Offload, switch};
pub(crate) use forward::Forwarder;
pub use memory::Memory;
pub(crate) use namespace::{enter, new_namespace, run_inside};
pub use packet::PacketSocket;
pub(crate) use packet::wait;
