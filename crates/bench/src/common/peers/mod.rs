//! The servers that are compared, behind one trait.

mod choice;
mod landfall;
pub(crate) mod names;
mod peer;
mod redis;
mod server;

pub use choice::PeerChoice;
pub(crate) use landfall::{Counted, Landfall, UNSET, launch};
pub(crate) use peer::Peer;
pub(crate) use redis::{AppendOnly, Redis};
pub(crate) use server::{Server, end_of_log, not_ready, spawn, spawn_with_input};

use crate::common::clients::find_program;
use crate::common::error::BenchError;
use crate::common::progress::say;
use std::path::{Path, PathBuf};

/// The paths of the programs.
#[derive(Clone, Debug)]
pub(crate) struct Programs {
    landfall: PathBuf,
    redis: Option<PathBuf>,
    workers: Option<usize>,
}

impl Programs {
    /// Finds this executable and the other programs, and reports which are missing.
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

    /// Returns the chosen peers that are installed, in order.
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

    /// redis-server that syncs each write, without log rewriting.
    pub(crate) fn redis_always(&self) -> Result<Redis, BenchError> {
        let none = || {
            BenchError::Missing("redis-server is not installed (Debian: apt-get install redis-server)".into())
        };
        Ok(Redis::new(self.redis.clone().ok_or_else(none)?, AppendOnly::Always, false))
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
