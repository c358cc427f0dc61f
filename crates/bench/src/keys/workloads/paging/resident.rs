//! Resident memory of the server with little memory, from phase to phase.

use crate::common::clients::conn::info_field;
use crate::common::error::BenchError;
use crate::common::measure::proc::Memory;
use crate::common::peers::Server;
use serde::{Deserialize, Serialize};

/// At the end of a phase; of several rounds the one with the most resident memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Resident {
    pub(crate) after: String,
    /// `VmRSS`, bytes.
    pub(crate) rss: f64,
    /// Of it the region, as the server counts it.
    pub(crate) region: f64,
    /// What the server says its index takes.
    pub(crate) index: f64,
}

impl Resident {
    pub(super) fn of(server: &Server, after: &str) -> Result<Self, BenchError> {
        let field = |name| match field(server, name)? {
            Some(bytes) => Ok(bytes),
            None => Err(BenchError::reply(&server.peer, "INFO of a region that is in memory anyway", name)),
        };
        Ok(Self {
            after: after.into(),
            rss: Memory::of(server.pid()).rss as f64,
            region: field("region_memory_bytes")?,
            index: field("index_bytes")?,
        })
    }
}

/// Keeps what was found at the end of a phase, if it is the first or the most.
pub(super) fn keep_most(kept: &mut Vec<Resident>, found: Resident) {
    match kept.iter_mut().find(|other| other.after == found.after) {
        Some(other) if other.rss < found.rss => *other = found,
        Some(_) => {}
        None => kept.push(found),
    }
}

/// A field of what the server says about itself, if it says it.
pub(super) fn field(server: &Server, name: &str) -> Result<Option<f64>, BenchError> {
    info_field(&mut server.connect()?, "landfall", name)
}

#[cfg(test)]
mod tests {
    use super::{Resident, keep_most};

    #[test]
    fn of_each_phase_the_most_is_kept() {
        let of = |after: &str, rss| Resident { after: after.into(), rss, region: 1.0, index: 1.0 };
        let mut kept = Vec::new();
        for found in [of("load", 5.0), of("hits", 7.0), of("load", 9.0), of("hits", 6.0)] {
            keep_most(&mut kept, found);
        }
        assert_eq!(kept, [of("load", 9.0), of("hits", 7.0)]);
    }
}
