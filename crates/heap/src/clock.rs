//! The hand of the clock algorithm that evicts data of a paged region.

use parking_lot::Mutex;

/// The clock's hand: the run that is visited next.
#[derive(Debug, Default)]
pub(crate) struct Clock(pub(crate) Mutex<u32>);
