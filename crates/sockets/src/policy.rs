//! Times and limits that both transports share, and the meaning of errors of `accept`.

use landfall_spin::prefer_slices_of;
use std::io;
use std::time::{Duration, Instant};

/// Pause in accepting after an error that an immediate retry would only repeat.
pub(crate) const ACCEPT_RETRY: Duration = Duration::from_millis(100);
/// Time limit of a closed connection's last send; after that the send is cut off.
pub(crate) const CLOSE_DRAIN_MAX: Duration = Duration::from_secs(3);
/// Interval of attempts to take a run while there is no landing space, if there are no other events.
pub(crate) const STARVED_RETRY: Duration = Duration::from_millis(10);

/// CPU time slice of a thread that polls a transport.
const POLLING_SLICE: Duration = Duration::from_millis(1);
/// CPU time slice of a write-back thread, which works for some microseconds between waits for the device.
const WRITE_BACK_SLICE: Duration = Duration::from_micros(200);

/// Makes the calling thread, which polls a transport, run soon after it is woken. Best effort.
///
/// If clients share the machine, a woken thread may have to wait until the time slice of a client ends; a thread with a
/// shorter slice runs first.
pub fn run_soon_when_woken() {
    prefer_slices_of(POLLING_SLICE);
}

/// Makes the calling thread, which writes back, run soon after it is woken. Best effort.
pub(crate) fn write_back_soon_when_woken() {
    prefer_slices_of(WRITE_BACK_SLICE);
}

/// True if only this connection attempt failed, and the next one may be accepted at once.
pub(crate) fn only_this_accept_failed(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted, TimedOut, WouldBlock};
    let dead_on_arrival = matches!(error.raw_os_error(), Some(libc::EPROTO | libc::EPERM));
    dead_on_arrival
        || matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted | TimedOut | WouldBlock)
}

/// Reports that accepting pauses, and returns when to accept again.
pub(crate) fn pause_accepting(tag: u32, error: &io::Error) -> Instant {
    let advice = match error.raw_os_error() {
        Some(libc::EMFILE | libc::ENFILE) => "raise RLIMIT_NOFILE (ulimit -n) or close connections",
        _ => "see the error",
    };
    tracing::warn!(listener = tag, %error, retry_ms = ACCEPT_RETRY.as_millis(), advice, "cannot accept");
    Instant::now() + ACCEPT_RETRY
}

/// Reports that a connection was refused because the worker has as many as it can have.
pub(crate) fn report_full(tag: u32) {
    let max = crate::slots::CONNECTIONS_MAX;
    tracing::warn!(listener = tag, max, "a connection was refused: this worker has no slot free");
}

/// The shorter of a limit and the time until `at`.
pub(crate) fn until(limit: Option<Duration>, at: Option<Instant>, now: Instant) -> Option<Duration> {
    match (limit, at.map(|at| at.saturating_duration_since(now))) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}
