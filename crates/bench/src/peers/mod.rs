//! The servers that are compared, behind one trait.

mod landfall;
mod redis;
mod server;

pub(crate) use landfall::{Counted, Landfall, UNSET, launch};
pub(crate) use redis::{AppendOnly, Redis};
pub(crate) use server::{Server, end_of_log, spawn};

use crate::args::PeerChoice;
use crate::clients::find_program;
use crate::error::BenchError;
use crate::say;
use std::path::{Path, PathBuf};

/// A server that can be started on a folder.
pub(crate) trait Peer: Sync {
    /// Name in reports, unique among the peers of a run.
    fn name(&self) -> &str;

    /// Starts on a folder, new or as an earlier run of the same peer left it, and waits until it listens.
    ///
    /// It may still be loading: see [`Server::wait_ready`].
    fn start(&self, dir: &Path, capacity: u64) -> Result<Server, BenchError>;

    /// Bytes that it takes on its medium now: runs in use, or the files' lengths.
    fn media_bytes(&self, server: &Server) -> Result<u64, BenchError>;
}

/// Names of the peers in reports.
pub(crate) mod names {
    pub(crate) const LANDFALL: &str = "landfall";
    pub(crate) const DISCARD: &str = "landfall, discarding";
    pub(crate) const REDIS_ALWAYS: &str = "redis always";
    pub(crate) const REDIS_EVERYSEC: &str = "redis everysec";
    pub(crate) const REDIS_NO: &str = "redis no";
    pub(crate) const REDIS_NONE: &str = "redis, no AOF";
}

/// Where the programs are.
#[derive(Clone, Debug)]
pub(crate) struct Programs {
    landfall: PathBuf,
    redis: Option<PathBuf>,
    workers: Option<usize>,
}

impl Programs {
    /// This executable, and what else is installed; says plainly what is missing.
    pub(crate) fn find(workers: Option<usize>) -> Result<Self, BenchError> {
        let landfall = std::env::current_exe().map_err(BenchError::file(Path::new("this executable")))?;
        let redis = find_program("redis-server");
        if redis.is_none() {
            say(format_args!(
                "redis-server is not installed (Debian: apt-get install redis-server): no peer to compare with"
            ));
        }
        Ok(Self { landfall, redis, workers })
    }

    /// The chosen peers, of those that are installed, in order.
    pub(crate) fn peers(&self, choices: &[PeerChoice]) -> Vec<Box<dyn Peer>> {
        choices.iter().filter_map(|choice| self.peer(*choice, false)).collect()
    }

    /// A peer that runs as its users run it, log rewriting included: for space and restart.
    pub(crate) fn peer_as_deployed(&self, choice: PeerChoice) -> Option<Box<dyn Peer>> {
        self.peer(choice, true)
    }

    /// landfall, with storing switched off if `discard`.
    pub(crate) fn landfall(&self, discard: bool) -> Landfall {
        Landfall::new(self.landfall.clone(), self.workers, discard)
    }

    /// landfall with one worker, whatever the flags say.
    pub(crate) fn landfall_with_one_worker(&self, discard: bool) -> Landfall {
        Landfall::new(self.landfall.clone(), Some(1), discard)
    }

    fn peer(&self, choice: PeerChoice, rewrite: bool) -> Option<Box<dyn Peer>> {
        let mode = match choice {
            PeerChoice::Landfall => return Some(Box::new(self.landfall(false))),
            PeerChoice::Discard => return Some(Box::new(self.landfall(true))),
            PeerChoice::RedisAlways => AppendOnly::Always,
            PeerChoice::RedisEverysec => AppendOnly::EverySecond,
            PeerChoice::RedisNo => AppendOnly::No,
            PeerChoice::RedisNone => AppendOnly::Off,
        };
        Some(Box::new(Redis::new(self.redis.clone()?, mode, rewrite)))
    }
}
