//! How a device on the wire waits for packets.

use crate::engine::Engine;
use crate::error::SwitchError;
use landfall_sockets::{Poller, Waker};
use landfall_spin::SpinWait;
use std::time::Duration;

/// Most packets that one call takes from a queue.
pub(super) const BATCH: u32 = 64;
/// Number of polls of the rings between two rounds of a device that never blocks: about a microsecond.
const POLLS: u32 = 100;
/// Longest wait, so that the device notices a stop and publishes its counts.
pub(super) const WAIT_MAX: Duration = Duration::from_millis(100);

/// Busy-polls for a while, then blocks until the kernel reports packets or a timeout is due.
pub(super) fn wait(
    rest: &mut SpinWait,
    poller: &mut Poller,
    most: Duration,
    engine: &Engine,
    mut has_received: impl FnMut() -> bool,
) -> Result<(), SwitchError> {
    let due = engine.until_due(most);
    if due.is_zero() {
        return Ok(());
    }
    if rest.is_endless() && engine.is_fencing() {
        // This core may be the only one on which the fencing thread can run.
        std::thread::yield_now();
        return Ok(());
    }
    if rest.is_endless() {
        // Several polls of the rings for each check of the clock and the timeouts, which takes longer than a poll.
        // There is no pause instruction in between, because a hypervisor may take the core away from a thread that
        // pauses.
        let _ = (0..POLLS).any(|_| has_received());
        return Ok(());
    }
    let poll_or_block = |most: Duration| {
        if most.is_zero() {
            return Ok(has_received());
        }
        poller.wait(Some(most)).map_err(SwitchError::system("waiting for packets"))?;
        Ok(poller.ready().next().is_some())
    };
    rest.until(due, poll_or_block, |is_ready| *is_ready).map(drop)
}

pub(super) fn new_poller(waker: &Waker) -> Result<Poller, SwitchError> {
    let mut poller = Poller::new().map_err(SwitchError::system("epoll_create1"))?;
    poller.watch_edges(waker.descriptor()).map_err(SwitchError::system("watching an eventfd"))?;
    Ok(poller)
}
