//! The operations of every server that is compared.

use super::server::Server;
use crate::common::error::BenchError;
use std::path::Path;

/// A server that can be started on a folder.
pub(crate) trait Peer: Sync {
    /// Name in reports, unique among the peers of a run.
    fn name(&self) -> &str;

    /// Starts on a folder, which is new or was left by an earlier run of this peer, and waits until it listens.
    ///
    /// It may still be loading: see [`Server::wait_ready`].
    fn start(&self, dir: &Path, capacity: u64) -> Result<Server, BenchError>;

    /// Returns the bytes that it uses on its medium: runs in use, or the files' lengths.
    fn media_bytes(&self, server: &Server) -> Result<u64, BenchError>;
}
