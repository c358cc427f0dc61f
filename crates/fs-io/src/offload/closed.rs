//! A socket at which no mount is served now: whoever connects learns why.

use super::channel::Channel;
use super::message::{Again, Message};
use crate::counter::wait;
use crate::link::Listener;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant};

/// Listens where a server would, and refuses.
pub struct ClosedSocket {
    listener: Listener,
}

/// Whether those that are refused should ask again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// The files may be served here soon, and mounts that wait go on then.
    Soon,
    /// The files are not served here: mounts that wait end.
    Ever,
}

impl ClosedSocket {
    /// Listens at `socket`.
    ///
    /// # Errors
    /// An error of the kernel.
    pub fn bind(socket: &Path) -> io::Result<Self> {
        Ok(Self { listener: Listener::bind(socket)? })
    }

    /// Refuses all that connect within `limit`, and says why.
    ///
    /// # Errors
    /// An error of the kernel.
    pub fn refuse(&self, limit: Duration, until: Until, why: &str) -> io::Result<()> {
        let end = Instant::now() + limit;
        let ever = if until == Until::Soon { Again::Later } else { Again::Never };
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if wait(&[self.listener.as_fd()], Some(left))?.is_none() {
                return Ok(());
            }
            let channel = Channel::new(self.listener.accept()?.socket)?;
            channel.try_send(&Message::Refused { ever, why: why.to_owned() });
        }
    }
}
