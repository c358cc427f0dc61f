//! A mount whose server is a process of its own: `docs/format/fs-offload.md`.
//!
//! [`Hold`] mounts, and hands the device to a [`Server`], which serves the mount as if it had mounted it. If the server
//! dies, the holder hands the same device to the next one. On another machine than the server's, it passes requests on
//! itself: `docs/format/fs-network.md`.

mod asks;
mod attached;
mod beside;
mod cache;
mod changes;
mod channel;
mod checks;
mod closed;
#[cfg(test)]
mod coherence;
mod current;
mod door;
mod earlier;
mod ending;
mod error;
mod exchange;
mod gathering;
mod greeted;
mod hello;
mod hold;
mod locks;
mod machine;
mod mark;
mod message;
mod packets;
mod place;
mod postponed;
mod questions;
mod reach;
mod refuse;
mod relay;
mod roster;
mod server;
mod strangers;
mod waiting;

pub use beside::{Before, Beside};
pub use channel::ChannelError;
pub use checks::check_socket;
pub use closed::{ClosedSocket, Until};
pub use current::Current;
pub use door::{Door, DoorError};
pub use earlier::forget_offloaded;
pub use error::HoldError;
pub use hold::{Hold, HoldSettings, HoldStopper, Nvdimm};
pub use message::MessageError;
pub use place::{Addresses, ServedAt, ServerPlace};
pub use roster::MountState;
pub use server::{Server, ServerError, ServerStopper};

/// Version of the messages between the holder of a mount and its server.
pub const OFFLOAD_VERSION: u16 = message::VERSION;
