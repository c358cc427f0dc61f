//! Channels that carry requests to servers.

use crate::common::error::BenchError;
use crate::pmnet::work::Ask;
use std::time::Duration;

/// The longest wait in the kernel, ms.
pub(super) const WAIT_MS: i32 = 50;

/// A completed request: it has its reply, or a log acknowledged it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Done {
    pub(crate) client: usize,
    /// Empty for an update that a log acknowledged.
    pub(crate) reply: Vec<u8>,
    pub(crate) by: By,
}

/// What completed a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    /// A server, or a logger.
    Server,
    /// The devices' logs.
    Devices,
    /// A device's read cache.
    Cache,
}

/// How a client waits for answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// The client busy-polls all the time.
    Spins,
    /// The client busy-polls for this long, then waits in the kernel.
    BusyPolls(Duration),
}

impl Patience {
    /// The client waits in the kernel at once.
    pub(crate) const WAITS: Self = Self::BusyPolls(Duration::ZERO);
}

/// How requests get to where they are served.
pub(crate) trait Channel {
    /// Sends a client's request. The client has no other request in flight.
    fn send(&mut self, client: usize, ask: &Ask) -> Result<(), BenchError>;

    /// Receives completed requests. Waits up to [`WAIT_MS`] for one, unless the channel busy-polls.
    fn receive(&mut self, done: &mut Vec<Done>) -> Result<(), BenchError>;

    /// Returns how many requests were sent again so far.
    fn sent_again(&self) -> u64;

    /// Returns how many updates were sent so far that devices may acknowledge before the server executes them.
    fn updates(&self) -> u64 {
        0
    }
}
