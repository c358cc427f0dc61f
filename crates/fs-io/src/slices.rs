//! Threads that somebody waits for run before those in the background.

use std::time::Duration;

/// CPU time slice of a thread that answers requests: most take some tens of microseconds.
const ANSWERING: Duration = Duration::from_micros(200);

/// The calling thread answers requests: once it is woken it runs soon, also where the publisher, the keeper or another
/// program has the processor.
pub(crate) fn answer_soon() {
    landfall_spin::prefer_slices_of(ANSWERING);
}
