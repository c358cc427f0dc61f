//! What a mount's server and a library in a program's process share: `docs/format/fs-link.md`.
//!
//! Read [`Control`] first, the view of the control memory. [`lease`] is the protocol of a lease's word. [`Request`] and
//! [`Reply`] are the messages of the socket. [`WriteRecord`] makes the record of a write, and [`Checked`] checks one.
//! [`ClientLog`] is the server's side of a client's log. The crate does no I/O: whoever maps the memory lends it as words.
//!
//! What the other side has written is not trusted: each accessor returns what is in the memory, or a value that was
//! checked, and says which.

#![forbid(unsafe_code)]

mod adopt;
mod control;
mod layout;
pub mod lease;
mod message;
#[cfg(test)]
mod model;
mod record;
mod user;

pub use adopt::{Adopted, ClientLog, LogEnd, NotGranted};
pub use control::{Control, Identity, LeaseFields, LinkState, SlabGrant, Unusable};
pub use layout::{
    BLOCK_BYTES, CONTROL_BYTES, CONTROL_WORDS, ENTRY_BYTES_MAX, ENTRY_EXTENTS_MAX, LANDINGS_MAX, LEASE_TIME,
    LEASES_MAX, SEQS_PER_LEASE, SLABS_MAX, USE_BYTES_MAX, VERSION,
};
pub use lease::{Kind, Refused, Word};
pub use message::{MESSAGE_BYTES_MAX, Malformed, PARTS_MAX, Part, Reason, Refusal, Reply, Request};
pub use record::{Broken, Checked, WriteRecord};
pub use user::is_same_user;
