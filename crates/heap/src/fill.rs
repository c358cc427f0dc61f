//! The run that a writer fills with bytes that did not land.

use crate::layout::RunId;
use landfall_media::RUN_SIZE;

/// Number of fills of the compactor, by how often their bytes have been moved.
pub(crate) const STREAMS: usize = 3;

/// The run that a writer fills.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fill {
    pub(crate) run: RunId,
    pub(crate) used: u32,
}

impl Fill {
    pub(crate) fn room(self) -> usize {
        RUN_SIZE as usize - self.used as usize
    }
}
