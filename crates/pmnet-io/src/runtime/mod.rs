//! PMNet's state machines over kernel UDP sockets.
//!
//! - [`Session`] is one session of a client, for programs that block until a request is complete.
//! - [`Sessions`] are many sessions over one socket, for programs with an event loop of their own.
//! - [`serve`] runs a server with an [`Application`] that executes and commits.

mod application;
mod client;
mod clock;
mod entropy;
mod key;
mod network;
mod published;
mod server;
mod session;
mod socket;

pub use application::{Application, Outcome, Saved};
pub(crate) use application::{log_no_room, log_silent};
pub use client::{SessionId, Sessions};
pub use clock::Clock;
pub(crate) use entropy::random;
pub use key::{KeyFileError, read_key};
pub use network::{Network, ServerOptions, ServerReport};
pub use published::Published;
pub use server::serve;
pub use session::{Session, SessionError, SessionOptions};
pub use socket::RuntimeError;
