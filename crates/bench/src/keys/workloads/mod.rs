//! The workloads, one file each.

pub(crate) mod amplification;
pub(crate) mod instructions;
pub(crate) mod memory;
pub(crate) mod mixed;
pub(crate) mod paging;
pub(crate) mod range;
pub(crate) mod restart;
pub(crate) mod space;
pub(crate) mod throughput;

use crate::common::clients::Client;
use crate::common::error::BenchError;
use crate::common::measure::proc::warm_memory;
use crate::common::measure::stats::whole;
use crate::common::peers::{Peer, Programs, Server};
use crate::keys::args::{KvArgs, MediaChoice, limits};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Memory that is touched before each start, bytes: most loads write less than this.
const WARM_BYTES: u64 = 4 << 30;

/// The settings and programs that all workloads share.
#[derive(Debug)]
pub(crate) struct Bench {
    pub(crate) args: KvArgs,
    pub(crate) programs: Programs,
    pub(crate) client: Client,
}

/// A folder on a medium, removed with everything in it when this is dropped.
#[derive(Debug)]
pub(crate) struct Scratch(TempDir);

impl Scratch {
    /// The folder of a server's data. Its log lies beside it.
    pub(crate) fn data(&self) -> PathBuf {
        self.beside("data")
    }

    /// Returns the path of a file beside it.
    pub(crate) fn beside(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }
}

/// A server on its own folder. The server ends before its folder is deleted: fields drop in order.
#[derive(Debug)]
pub(crate) struct Fresh {
    pub(crate) server: Server,
    scratch: Scratch,
}

impl Fresh {
    /// A file beside the server's data.
    pub(crate) fn beside(&self, name: &str) -> PathBuf {
        self.scratch.beside(name)
    }
}

impl Bench {
    pub(crate) fn scratch(&self, media: MediaChoice) -> Result<Scratch, BenchError> {
        let base: &Path = match media {
            MediaChoice::Pm => &self.args.pm_dir,
            MediaChoice::File => &self.args.file_dir,
        };
        let dir = tempfile::Builder::new().prefix("landfall-bench-").tempdir_in(base);
        dir.map(Scratch).map_err(BenchError::file(base))
    }

    /// Starts an empty peer.
    pub(crate) fn fresh(
        &self,
        media: MediaChoice,
        peer: &dyn Peer,
        capacity: u64,
    ) -> Result<Fresh, BenchError> {
        let scratch = self.scratch(media)?;
        if !self.args.quick {
            warm_memory(WARM_BYTES);
        }
        let mut server = peer.start(&scratch.data(), capacity)?;
        server.wait_ready()?;
        Ok(Fresh { server, scratch })
    }

    /// Returns how many requests take about the wanted time at a rate: a multiple of `step`.
    pub(crate) fn requests(&self, rps: f64, step: u64) -> u64 {
        let wanted = whole(rps * self.args.seconds);
        wanted.clamp(limits::REQUESTS_MIN, limits::REQUESTS_MAX).next_multiple_of(step.max(1))
    }
}

/// Returns the bytes of a region for records with their overheads and for compaction: at least what a user would give.
pub(crate) fn capacity_for(records: u64, value_bytes: usize) -> u64 {
    capacity_of(payload(records, value_bytes).saturating_mul(3))
}

/// Room for records that are loaded once and never overwritten. With the usual room for compaction, ten million of them
/// would not fit into the memory of most machines.
pub(crate) fn capacity_for_load(records: u64, value_bytes: usize) -> u64 {
    let payload = payload(records, value_bytes);
    capacity_of(payload.saturating_add(payload / 8))
}

/// Returns the largest number of bytes that records of short keys take.
fn payload(records: u64, value_bytes: usize) -> u64 {
    const RECORD_BYTES: u64 = 256;
    records.saturating_mul(value_bytes as u64 + RECORD_BYTES)
}

fn capacity_of(bytes: u64) -> u64 {
    const LEAST: u64 = 1 << 30;
    bytes.saturating_add(LEAST).next_multiple_of(1 << 20)
}

#[cfg(test)]
mod tests {
    use super::capacity_for;

    #[test]
    fn capacity_has_room_for_data_and_compaction_and_is_whole_runs() {
        let capacity = capacity_for(1_000_000, 1024);
        assert!(capacity > 3 * 1_000_000 * 1024);
        assert!(capacity.is_multiple_of(1 << 20));
        assert_eq!(capacity_for(0, 1), 1 << 30);
    }
}
