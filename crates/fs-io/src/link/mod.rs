//! The server of libraries in other programs: `docs/format/fs-link.md`.
//!
//! [`Link::enter`] comes before every request of a mount that reads or changes a file: it takes leases back that are in
//! the way. A thread listens, each client has a thread that answers it, and one thread adopts what all clients append.

mod client;
mod connection;
mod counts;
mod listen;
mod roll;
mod server;
mod shared;
mod sys;

pub(crate) use counts::{Fenced, Why};
pub(crate) use listen::{Accepted, Libraries, Listener, Offered};
pub use roll::{EarlierLibraries, end_earlier_libraries};
pub(crate) use server::{Entered, Link};
pub(crate) use shared::{Linked, Named, ServerLife, words_of};
pub(crate) use sys::watch_process;
