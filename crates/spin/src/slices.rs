//! How soon a thread runs after it is woken.

use std::time::Duration;

/// Sets the CPU time slice of the calling thread: with a shorter slice the thread runs sooner after it is woken. Best
/// effort.
///
/// If other programs share the machine, or threads in the background of this one, a woken thread may have to wait until
/// their time slice ends, which is milliseconds; a thread with a shorter slice runs first.
pub fn prefer_slices_of(slice: Duration) {
    if let Err(error) = crate::sys::prefer_short_slices(slice) {
        tracing::debug!(%error, "the scheduler takes no wish for short slices");
    }
}
