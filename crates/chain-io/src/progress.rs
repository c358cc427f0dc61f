//! How far a copy to the node behind has come.

use std::fmt;
use std::time::Instant;

const MB: f64 = 1e6;

/// How far a copy to the node behind has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyProgress {
    /// The node behind.
    pub node: String,
    /// Records that it has gone through.
    pub records: u64,
    /// How many there are, about: records of deletes count here, too.
    pub of: u64,
    /// Records that were sent.
    pub sent: u64,
    /// Bytes of all messages.
    pub bytes: u64,
    /// When it has begun.
    pub begun: Instant,
}

impl fmt::Display for CopyProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { node, records, of, sent, bytes, begun } = self;
        let (mb, seconds) = (*bytes as f64 / MB, begun.elapsed().as_secs());
        write!(
            f,
            "copies to {node}: {records} of about {of} records, {sent} of them sent, {mb:.1} MB, {seconds} s"
        )
    }
}
