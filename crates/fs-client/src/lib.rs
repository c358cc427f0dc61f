//! The side of a library in the link of files (`docs/format/fs-link.md`): it reads and writes files of a mount in the
//! memory of the region.
//!
//! Read [`Client`] first. It asks the mount's server for leases, appends operations to a log of its own, and knows where
//! the bytes of leased files are ([`Segments`]). It does no I/O: a [`Host`] gives it the region's memory, the server, and
//! the time.
//!
//! Calling contract: all threads share a client. A call is answered as a whole, or refused ([`Unanswered`]): then the
//! kernel answers it. A client waits for the server only while none of its threads is in a lease.

#![forbid(unsafe_code)]

mod client;
mod file;
mod host;
mod log;
mod segments;
mod value;

pub use client::{Client, Next, Unanswered, Written};
pub use file::File;
pub use host::{Gone, Host, Now};
pub use segments::{Place, Segment, Segments};
