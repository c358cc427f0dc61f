//! A mount whose server is a process of its own: `docs/format/fs-offload.md`.
//!
//! [`Hold`] mounts, and hands the device to a [`Server`], which serves the mount as if it had mounted it. If the server
//! dies, the holder hands the same device to the next one.

mod channel;
mod closed;
mod earlier;
mod gathering;
mod hold;
mod message;
mod refuse;
mod roster;
mod server;

pub use channel::ChannelError;
pub use closed::{ClosedSocket, Until};
pub use earlier::forget_offloaded;
pub use hold::{Hold, HoldError, HoldSettings, HoldStopper};
pub use message::MessageError;
pub use roster::MountState;
pub use server::{Beside, Current, Server, ServerError, ServerStopper};
