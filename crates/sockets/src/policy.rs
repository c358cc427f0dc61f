//! What both transports do alike: times, bounds, and what an error of `accept` means.

use std::io;
use std::time::{Duration, Instant};

/// Pause in accepting after an error that trying again at once would only repeat.
pub(crate) const ACCEPT_RETRY: Duration = Duration::from_millis(100);
/// How long a closed connection's last send may take; then it is cut off.
pub(crate) const CLOSE_DRAIN_MAX: Duration = Duration::from_secs(3);
/// How often landing space is asked for while there is none, if nothing else happens.
pub(crate) const STARVED_RETRY: Duration = Duration::from_millis(10);

/// Longest turn on a CPU of a thread that polls a transport.
const POLLING_SLICE: Duration = Duration::from_millis(1);
/// The same of a thread that writes back: it works for some microseconds between waits for the device.
const WRITE_BACK_SLICE: Duration = Duration::from_micros(200);

/// Lets the calling thread, which polls a transport, run soon when it is woken. Best effort.
///
/// Where clients share the machine, a woken thread may have to wait until the slice of a client ends; that a
/// shorter slice goes first was worth a tenth to a third more requests at 50 clients on a file.
pub fn run_soon_when_woken() {
    prefer_slices_of(POLLING_SLICE);
}

/// The same for a thread that writes back.
pub(crate) fn write_back_soon_when_woken() {
    prefer_slices_of(WRITE_BACK_SLICE);
}

/// Lets the calling thread take its turns on a CPU in slices of this length: the shorter, the sooner it runs when it is woken.
/// Best effort.
pub fn prefer_slices_of(slice: Duration) {
    if let Err(error) = crate::sys::prefer_short_slices(slice) {
        tracing::debug!(%error, "the scheduler takes no wish for short slices");
    }
}

/// True if only this connection attempt failed, and the next may be accepted at once.
pub(crate) fn only_this_accept_failed(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted, TimedOut, WouldBlock};
    let dead_on_arrival = matches!(error.raw_os_error(), Some(libc::EPROTO | libc::EPERM));
    dead_on_arrival
        || matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted | TimedOut | WouldBlock)
}

/// Reports that accepting pauses; when to go on.
pub(crate) fn pause_accepting(tag: u32, error: &io::Error) -> Instant {
    let advice = match error.raw_os_error() {
        Some(libc::EMFILE | libc::ENFILE) => "raise RLIMIT_NOFILE (ulimit -n) or close connections",
        _ => "see the error",
    };
    tracing::warn!(listener = tag, %error, retry_ms = ACCEPT_RETRY.as_millis(), advice, "cannot accept");
    Instant::now() + ACCEPT_RETRY
}

/// Reports a connection that was refused because a worker has as many as it can have.
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
