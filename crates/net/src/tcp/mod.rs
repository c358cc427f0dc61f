//! TCP (RFC 9293 and its extensions): the state of one connection, and how it handles segments, time and data.
//!
//! | file | what |
//! |---|---|
//! | `input.rs` | handles an arriving segment (RFC 9293, 3.10.7; RFC 5961; RFC 7323) |
//! | `acknowledge.rs` | handles acknowledgements of sent data (RFC 5681, 6582, 6675, 8985) |
//! | `receive.rs` | received payload and FIN: in order, out of order, held back (RFC 9293, 3.8.6; RFC 2018) |
//! | `output.rs` | chooses and fills the next segment to send |
//! | `tcb.rs` | the state of a connection, and what the application asks of it |
//! | `timers.rs`, `timer_set.rs` | timers (RFC 6298; RFC 9293, 3.8) |
//! | `open.rs` | the initial state of connections; negotiated options |
//! | `backlog.rs`, `cookie.rs`, `isn.rs` | half-open connections, SYN cookies, initial sequence numbers |
//! | `time_wait.rs` | connections in TIME-WAIT |

mod acknowledge;
pub(crate) mod backlog;
mod congestion;
pub(crate) mod cookie;
pub(crate) mod emit;
mod input;
pub(crate) mod isn;
mod open;
mod output;
mod payload;
mod queue;
mod reassembly;
mod receive;
mod rtt;
mod sack;
pub(crate) mod segment;
mod sent;
pub(crate) mod seq;
mod tcb;
pub(crate) mod time_wait;
mod timer_set;
mod timers;

pub(crate) use open::{Agreed, Numbers};
pub(crate) use reassembly::Kept;
pub(crate) use tcb::{Context, Tcb};
