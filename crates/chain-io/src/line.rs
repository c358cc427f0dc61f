//! What a stream knows of its connection.

use crate::connection::{Connection, Lost};
use crate::packer::Packer;
use landfall_chain::Compression;
use landfall_heap::SlotId;
use landfall_spin::SpinWait;
use std::io;
use std::time::{Duration, Instant};

/// After so long without one the connection is made anew, and the batch sent again. The next time it is twice as long, so
/// that a batch for which a slow medium needs longer gets through.
pub(crate) const SILENT_AFTER: Duration = Duration::from_secs(30);

/// A writer busy-polls for an answer for at most this time before it blocks.
const SPIN_MAX: Duration = Duration::from_millis(1);

/// What is done when nothing needs to be sent any more that an earlier life may not have sent.
pub type Prepare = Box<dyn Fn() -> io::Result<()> + Send>;

/// What the first stream does before the node answers anybody.
pub(crate) struct Begin {
    /// What an earlier life may not have sent.
    pub(crate) unsent: Vec<SlotId>,
    pub(crate) prepare: Prepare,
}

/// A batch that the writer has sent itself, and that is not answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SentBatch {
    pub(crate) begun: Instant,
}

/// What a stream knows of its connection. Who holds it may use the connection: the thread of the stream, or the writer.
pub(crate) struct Line {
    pub(crate) connection: Option<Connection>,
    /// The generation of the connection.
    pub(crate) generation: u64,
    /// Of the first stream, until the node is ready.
    pub(crate) begin: Option<Begin>,
    /// The batch may have been sent before.
    pub(crate) is_again: bool,
    /// How long an answer to the batch is waited for.
    pub(crate) patience: Duration,
    pub(crate) packer: Packer,
    /// What people were told last.
    pub(crate) told: String,
    /// The writer has sent the batch under way.
    pub(crate) sent: Option<SentBatch>,
    /// How the writer waits for an answer.
    pub(crate) spin: SpinWait,
    /// What has ended the connection while the writer used it. The thread sees to that.
    pub(crate) lost: Option<Lost>,
}

impl Line {
    pub(crate) fn new(compression: Compression, spin: Duration) -> Self {
        Self {
            connection: None,
            generation: 0,
            begin: None,
            is_again: false,
            patience: SILENT_AFTER,
            packer: Packer::new(compression),
            told: String::new(),
            sent: None,
            lost: None,
            // Not for ever: who waits looks whether it should go on.
            spin: SpinWait::new(spin.min(SPIN_MAX)),
        }
    }
}
