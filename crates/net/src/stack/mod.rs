//! The stack: the table of connections, the queue of those that have something to send, and their timers.

mod arrival;
mod datagram;
mod host;
mod icmp;
mod ingress;
mod latest;
mod neighbours;
mod reordered;
mod resolve;
mod table;
mod tcp;
mod udp;

pub use host::{ConnectError, FlowChange, Received, SendError, Stack};
