//! Stores that are not ours behind our own loop: what data management costs is the difference between them.
//!
//! Read [`Baseline`] first. With one of these, plain writes (`SET`, `PUT` and `POST` of a key) go to it instead of
//! the heap, over the same transports, through the same codecs, and are flushed and fenced once a round, before
//! its replies leave. Nothing can be read back. Only for measuring: the flag is hidden.
//!
//! - [`BaselineChoice::Copy`] copies each value into a ring of runs: persistence without data management.
//! - [`BaselineChoice::LevelDb`] does the same and puts key and value into LevelDB, in the role that NoveLSM has in
//!   "Packets as Persistent In-Memory Data Structures" (HotNets 2021, section 3). NoveLSM keeps LevelDB's table of
//!   recent writes in persistent memory and drops its log; the paper adds the checksum that LevelDB's log has, and
//!   keeps compaction out of the run. So here: LevelDB's table with a write buffer that no run fills, `sync` off, its
//!   log (and with it the checksum) in memory where LevelDB's own in-memory environment is to be had, no compression;
//!   and the value's copy in the region stands for the flush that NoveLSM's table needs. LevelDB is in DRAM and pays for
//!   no flush of its index, which is to its advantage; it copies into its log once more, which is not (a few tens of
//!   nanoseconds).

mod ring;
mod sys;

use crate::config::ConfigError;
use landfall_heap::Heap;
use landfall_media::{Media, MediaError};
use parking_lot::Mutex;
use ring::Ring;
use std::path::Path;
use std::sync::Arc;
pub use sys::{Batch, LevelDb};

/// Which store stands in for the heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BaselineChoice {
    /// Copy and flush.
    Copy,
    /// Copy and flush, and LevelDB.
    LevelDb,
}

/// Why a baseline cannot be opened, or did not take a write.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BaselineError {
    /// Environment: LevelDB is not installed.
    #[error("LevelDB cannot be loaded ({message}): install it (Debian: libleveldb1d)")]
    NoLibrary {
        /// What the loader said.
        message: String,
    },
    /// Environment: a LevelDB without a function that is needed.
    #[error("this LevelDB has no {name}: version 1.20 or newer is needed")]
    NoSymbol {
        /// The function.
        name: &'static str,
    },
    /// From LevelDB.
    #[error("LevelDB: {message}")]
    LevelDb {
        /// What it said.
        message: String,
    },
    /// The region has not even one run left to copy into.
    #[error("the region has no free run to copy into: use a larger --capacity")]
    Full,
    /// From the medium.
    #[error(transparent)]
    Media(#[from] MediaError),
}

/// A store that stands in for the heap.
#[derive(Debug)]
pub struct Baseline {
    choice: BaselineChoice,
    /// One a worker: never waited for.
    lanes: Box<[Mutex<Lane>]>,
    leveldb: Option<LevelDb>,
}

/// What one worker has.
#[derive(Debug, Default)]
struct Lane {
    ring: Ring,
    batch: Option<Batch>,
}

impl Baseline {
    /// Opens the store that is asked for; LevelDB in a folder of its own below `dir`.
    ///
    /// # Errors
    /// [`BaselineError`] says what is missing.
    pub fn open(choice: BaselineChoice, dir: &Path, workers: usize) -> Result<Self, BaselineError> {
        let leveldb = match choice {
            BaselineChoice::Copy => None,
            BaselineChoice::LevelDb => Some(LevelDb::open(&dir.join("leveldb"))?),
        };
        let lanes = (0..workers).map(|_| Mutex::default()).collect();
        Ok(Self { choice, lanes, leveldb })
    }

    /// One line for people.
    pub fn describe(&self) -> String {
        match (&self.choice, &self.leveldb) {
            (BaselineChoice::LevelDb, Some(db)) => format!("LevelDB {}; copy and flush", db.describe()),
            _ => "copy and flush, no index, no records".into(),
        }
    }

    /// Takes a write; durable after the worker's next [`Self::commit`].
    ///
    /// # Errors
    /// [`BaselineError`].
    pub fn store(
        &self,
        worker: usize,
        heap: &Arc<Heap>,
        key: &[u8],
        value: &[u8],
    ) -> Result<(), BaselineError> {
        let mut lane = self.lanes[worker].lock();
        if let Some(db) = &self.leveldb {
            let batch = lane.batch.get_or_insert_with(|| db.batch());
            db.prepare(batch, key, value);
            db.write(batch)?;
        }
        lane.ring.copy(heap, value)
    }

    /// Flushes and fences what the worker has taken since the last time.
    ///
    /// # Errors
    /// The medium's.
    pub fn commit(&self, worker: usize, media: &dyn Media) -> Result<(), MediaError> {
        self.lanes[worker].lock().ring.flush(media)
    }
}

/// Reads the name of a store: `heap` is ours (`None`), `discard` none at all.
///
/// # Errors
/// [`ConfigError::Value`].
pub fn parse(text: &str) -> Result<(bool, Option<BaselineChoice>), ConfigError> {
    match text {
        "heap" => Ok((false, None)),
        "discard" => Ok((true, None)),
        "copy" => Ok((false, Some(BaselineChoice::Copy))),
        "leveldb" => Ok((false, Some(BaselineChoice::LevelDb))),
        _ => Err(ConfigError::Value {
            what: "store",
            text: text.into(),
            expected: "heap, discard, copy or leveldb",
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::store;

    fn open_store(dir: &Path) -> store::Store {
        let config = Config { dir: dir.into(), capacity: crate::config::Size(64 << 20), ..Config::default() };
        store::open(&config).unwrap()
    }

    #[test]
    fn names_of_stores_are_read() {
        assert_eq!(parse("heap").unwrap(), (false, None));
        assert_eq!(parse("discard").unwrap(), (true, None));
        assert_eq!(parse("leveldb").unwrap(), (false, Some(BaselineChoice::LevelDb)));
        assert!(parse("rocksdb").is_err());
    }

    #[test]
    fn what_is_copied_lies_in_the_region_and_the_ring_comes_round() {
        let dir = tempfile::tempdir().unwrap();
        let opened = open_store(dir.path());
        let heap = opened.engine.heap();
        let baseline = Baseline::open(BaselineChoice::Copy, dir.path(), 1).unwrap();
        let free_before = heap.runs().counts().free;
        for round in 0..3u8 {
            for _ in 0..100 {
                baseline.store(0, heap, b"key", &vec![round; 1 << 20]).unwrap();
            }
            baseline.commit(0, &**heap.media()).unwrap();
        }
        let taken = free_before - heap.runs().counts().free;
        assert!((1..=ring::RUNS_MAX as u32).contains(&taken), "{taken} runs");
        drop(opened);
        let region = std::fs::read(dir.path().join(store::REGION_NAME)).unwrap();
        assert!(region.windows(4096).any(|window| window.iter().all(|byte| *byte == 2)));
    }

    #[test]
    fn leveldb_takes_writes_where_it_is_installed() {
        let dir = tempfile::tempdir().unwrap();
        let opened = open_store(dir.path());
        let baseline = match Baseline::open(BaselineChoice::LevelDb, dir.path(), 1) {
            Ok(baseline) => baseline,
            Err(error) => {
                eprintln!("SKIP: {error}");
                return;
            }
        };
        for number in 0..1000u32 {
            let key = format!("key:{number}");
            baseline.store(0, opened.engine.heap(), key.as_bytes(), &[7; 1024]).unwrap();
        }
        baseline.commit(0, &**opened.engine.heap().media()).unwrap();
        assert!(baseline.describe().starts_with("LevelDB 1."), "{}", baseline.describe());
    }
}
