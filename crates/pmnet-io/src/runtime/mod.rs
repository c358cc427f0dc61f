//! PMNet's state machines over kernel UDP sockets.
//!
//! - [`Session`] is one session of a client, for programs that block until a request is complete.
//! - [`Sessions`] are many sessions over one socket, for programs with an event loop of their own.
//! - [`serve`] runs a server with an [`Application`] that executes and commits.

mod application;
mod client;
mod key;
mod server;
mod session;
mod socket;

pub use application::{Application, Outcome, Saved};
pub(crate) use application::{log_no_room, log_silent};
pub use client::{SessionId, Sessions};
pub use key::{KeyFileError, read_key};
pub use server::{Network, ServerOptions, ServerReport, serve};
pub use session::{Session, SessionError, SessionOptions};
pub use socket::RuntimeError;

use landfall_pmnet::Instant;
use std::sync::{Mutex, PoisonError};

/// A monotonic clock that returns the state machines' type of time.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: std::time::Instant,
}

impl Default for Clock {
    fn default() -> Self {
        Self { start: std::time::Instant::now() }
    }
}

impl Clock {
    /// Nanoseconds since the clock was created.
    pub fn now(&self) -> Instant {
        let nanos = self.start.elapsed().as_nanos();
        // 64 bits of nanoseconds last for half a millennium.
        Instant::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

/// A report that one thread publishes periodically for others. Only the latest value is kept.
#[derive(Debug, Default)]
pub struct Published<T> {
    latest: Mutex<T>,
}

impl<T: Copy> Published<T> {
    /// The latest value.
    pub fn get(&self) -> T {
        *self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Publishes a value, which replaces the one before.
    pub fn set(&self, value: T) {
        *self.latest.lock().unwrap_or_else(PoisonError::into_inner) = value;
    }
}

/// A random number from the system's entropy.
///
/// # Errors
/// The error of the system call.
pub(crate) fn random() -> Result<u64, RuntimeError> {
    let mut bytes = [0; 8];
    let mut filled = 0;
    while filled < bytes.len() {
        let flags = rustix::rand::GetRandomFlags::empty();
        let more = rustix::rand::getrandom(&mut bytes[filled..], flags);
        filled +=
            more.map_err(|errno| RuntimeError::Kernel { what: "draw random bytes", source: errno.into() })?;
    }
    Ok(u64::from_le_bytes(bytes))
}
