//! How requests get to where they are served.

use crate::common::error::BenchError;
use crate::pmnet::work::Ask;
use std::time::Duration;

/// Wait in the kernel at most.
pub(super) const WAIT_MS: i32 = 50;

/// A reply, or that an update is durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Done {
    pub(crate) client: usize,
    /// Empty for an update that a log acknowledged.
    pub(crate) reply: Vec<u8>,
    pub(crate) by: By,
}

/// Who saw to it.
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
    /// The client busy-polls for so long, then waits in the kernel.
    Looks(Duration),
}

impl Patience {
    /// It waits in the kernel at once.
    pub(crate) const WAITS: Self = Self::Looks(Duration::ZERO);
}

/// How requests get to where they are served.
pub(crate) trait Channel {
    /// Sends a client's request. It has no other under way.
    fn send(&mut self, client: usize, ask: &Ask) -> Result<(), BenchError>;

    /// Takes what has arrived; waits for something, for a while, unless it spins.
    fn receive(&mut self, done: &mut Vec<Done>) -> Result<(), BenchError>;

    /// Requests that were sent again so far.
    fn sent_again(&self) -> u64;
}
