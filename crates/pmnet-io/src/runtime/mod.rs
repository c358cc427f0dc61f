//! PMNet's state machines over kernel UDP sockets.
//!
//! - [`Session`]: one session of a client, for programs that wait for each request.
//! - [`Sessions`]: many sessions over one socket, for programs with a loop of their own.
//! - [`serve`]: a server, around an [`Application`] that commits.

mod application;
mod client;
mod key;
mod server;
mod session;
mod socket;

pub use application::{Application, Outcome, Saved};
pub(crate) use application::{tell_no_room, tell_silent};
pub use client::{SessionId, Sessions};
pub use key::{KeyFileError, read_key};
pub use server::{Network, ServerOptions, ServerReport, serve};
pub use session::{Session, SessionError, SessionOptions};
pub use socket::RuntimeError;

use landfall_pmnet::Instant;
use std::sync::{Mutex, PoisonError};

/// A monotonic clock as the state machines want it.
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
    /// Nanoseconds since the clock was made.
    pub fn now(&self) -> Instant {
        let nanos = self.start.elapsed().as_nanos();
        // Half a millennium.
        Instant::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

/// What a thread tells others about itself, now and then: the latest of it.
#[derive(Debug, Default)]
pub struct Published<T> {
    latest: Mutex<T>,
}

impl<T: Copy> Published<T> {
    /// The latest.
    pub fn get(&self) -> T {
        *self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces it.
    pub fn set(&self, value: T) {
        *self.latest.lock().unwrap_or_else(PoisonError::into_inner) = value;
    }
}

/// Eight bytes of the system's entropy.
///
/// # Errors
/// The kernel's.
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
