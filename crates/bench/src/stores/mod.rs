//! Other stores behind Landfall's event loop. The difference between them is the cost of data management.
//!
//! Read [`StoreChoice`] first. With one of these, plain writes (`SET`, `PUT` and `POST` of a key) go to it instead of
//! the heap, over the same transports, through the same codecs, and are flushed and fenced once a round, before
//! its replies leave. Nothing can be read back. `landfall-bench bench server --store NAME` serves over one of them.
//!
//! - [`StoreChoice::Discard`] takes nothing: what remains is parsing, replying and the kernel.
//! - [`StoreChoice::Copy`] copies each value into a ring of runs: persistence without data management.
//! - [`StoreChoice::LevelDb`] copies each value, too, and puts key and value into LevelDB, in the role that NoveLSM
//!   has in "Packets as Persistent In-Memory Data Structures" (HotNets 2021, section 3). NoveLSM keeps LevelDB's table
//!   of recent writes in persistent memory and drops its log; the paper adds the checksum that LevelDB's log has, and
//!   keeps compaction out of the run. So here: LevelDB's table with a write buffer that no run fills, `sync` off, its
//!   log (and with it the checksum) in memory where LevelDB's own in-memory environment is to be had, no compression;
//!   and the value's copy in the region stands for the flush that NoveLSM's table needs. LevelDB is in DRAM and pays
//!   for no flush of its index, which is to its advantage; it copies into its log once more, which is not (a few tens
//!   of nanoseconds).

mod error;
mod ring;
mod sys;

use clap::{Args, ValueEnum};
pub(crate) use error::StoreError;
use landfall_heap::{Gated, Heap, Source};
use landfall_kv::{SetRequest, Written};
use landfall_media::{Extent, MediaError};
use landfall_server::config::Config;
use landfall_server::writes::{Destination, InRegion, PlainWrites, WriteError};
use parking_lot::Mutex;
use ring::Ring;
use std::borrow::Cow;
use std::path::Path;
use std::process::ExitCode;
pub(crate) use sys::{Batch, Durability, LevelDb};

/// Flags of the hidden `landfall bench server`.
#[derive(Debug, Args)]
pub struct ServerArgs {
    /// Store of plain writes
    #[arg(long, value_enum)]
    store: StoreChoice,
    #[command(flatten)]
    serve: Box<landfall::ServeArgs>,
}

/// The store of plain writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StoreChoice {
    /// The store of `landfall serve`
    Heap,
    /// Nowhere
    Discard,
    /// Copy and flush
    Copy,
    /// Copy and flush, and LevelDB
    #[value(name = "leveldb")]
    LevelDb,
}

/// Serves as `landfall serve` does, over another store.
pub(crate) fn serve(args: ServerArgs) -> ExitCode {
    landfall::serve_over(*args.serve, |config| open(args.store, config))
}

fn open(choice: StoreChoice, config: &Config) -> Result<Box<dyn PlainWrites>, Box<dyn std::error::Error>> {
    Ok(match choice {
        StoreChoice::Heap => Box::new(InRegion),
        StoreChoice::Discard => Box::new(Discard),
        StoreChoice::Copy => Box::new(CopyStore::open(config.workers)),
        StoreChoice::LevelDb => {
            // The region's folder is made with the region, which comes later.
            std::fs::create_dir_all(&config.dir)?;
            Box::new(CopyStore::open(config.workers).with_leveldb(&config.dir)?)
        }
    })
}

/// Takes every write and keeps none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Discard;

impl PlainWrites for Discard {
    fn describe(&self) -> Option<String> {
        Some("none: plain writes are discarded".into())
    }

    fn keeps_values(&self) -> bool {
        false
    }

    fn set(&self, _: Destination<'_>, _: &SetRequest<'_>) -> Result<Option<Gated<Written>>, WriteError> {
        Ok(None)
    }
}

/// Copies values into a ring in the region, and puts them into LevelDB where that is wanted.
#[derive(Debug)]
pub(crate) struct CopyStore {
    /// The state of each worker. Each lock has one user, so that it never blocks.
    lanes: Box<[Mutex<Lane>]>,
    leveldb: Option<LevelDb>,
}

/// The state of one worker.
#[derive(Debug, Default)]
struct Lane {
    ring: Ring,
    batch: Option<Batch>,
}

impl CopyStore {
    /// Without LevelDB.
    pub(crate) fn open(workers: usize) -> Self {
        Self { lanes: (0..workers).map(|_| Mutex::default()).collect(), leveldb: None }
    }

    /// With LevelDB, in a separate folder below `dir`.
    ///
    /// # Errors
    /// [`StoreError`] says what is missing.
    pub(crate) fn with_leveldb(mut self, dir: &Path) -> Result<Self, StoreError> {
        self.leveldb = Some(LevelDb::open(&dir.join("leveldb"))?);
        Ok(self)
    }

    /// Accepts a write. It is durable after the worker's next [`Self::flush`].
    ///
    /// # Errors
    /// [`StoreError`].
    pub(crate) fn store(
        &self,
        worker: usize,
        heap: &Heap,
        key: &[u8],
        value: &[u8],
    ) -> Result<(), StoreError> {
        let mut lane = self.lanes[worker].lock();
        if let Some(db) = &self.leveldb {
            let batch = lane.batch.get_or_insert_with(|| db.batch());
            db.prepare(batch, key, value);
            db.write(batch)?;
        }
        lane.ring.copy(heap, value)
    }

    /// Flushes and fences the writes that the worker has accepted since its last flush.
    ///
    /// # Errors
    /// [`StoreError`] of the medium.
    pub(crate) fn flush(&self, worker: usize, heap: &Heap) -> Result<(), MediaError> {
        self.lanes[worker].lock().ring.flush(&**heap.media())
    }
}

impl PlainWrites for CopyStore {
    fn describe(&self) -> Option<String> {
        Some(match &self.leveldb {
            Some(db) => format!("LevelDB {}; copy and flush", db.describe()),
            None => "copy and flush, no index, no records".into(),
        })
    }

    fn keeps_values(&self) -> bool {
        false
    }

    fn set(
        &self,
        to: Destination<'_>,
        request: &SetRequest<'_>,
    ) -> Result<Option<Gated<Written>>, WriteError> {
        let heap = to.engine.heap();
        value_of(heap, request.value)
            .and_then(|value| self.store(to.worker, heap, request.key, &value))
            .map_err(|error| WriteError::StandIn(Box::new(error)))?;
        Ok(None)
    }

    fn commit(&self, worker: usize, heap: &Heap) -> Result<(), MediaError> {
        self.flush(worker, heap)
    }
}

/// A value's bytes: copied only where they lie in several places.
fn value_of<'a>(heap: &'a Heap, value: Source<'a>) -> Result<Cow<'a, [u8]>, StoreError> {
    let bytes = |extent: &Extent| heap.media().bytes(*extent);
    Ok(match value {
        Source::None => Cow::Borrowed(&[]),
        Source::Bytes(bytes) => Cow::Borrowed(bytes),
        Source::Landed { extents: [one], .. } => Cow::Borrowed(bytes(one)?),
        Source::Landed { extents, .. } | Source::Stored { extents, .. } => {
            let mut whole = Vec::new();
            for extent in extents {
                whole.extend_from_slice(bytes(extent)?);
            }
            Cow::Owned(whole)
        }
        Source::Patched(_) => unreachable!("a plain write is no change of a stored value"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use landfall_heap::Writer;
    use landfall_server::config::Size;
    use landfall_server::store::{self, REGION_NAME};
    use std::sync::Arc;

    fn open_store(dir: &Path) -> store::Store {
        let config = Config { dir: dir.into(), capacity: Size(64 << 20), ..Config::default() };
        store::open(&config).unwrap()
    }

    /// A plain write through the seam that the server uses.
    fn set(writes: &dyn PlainWrites, opened: &store::Store, key: &[u8], value: &[u8]) {
        let mut writer = Writer::new(Arc::clone(opened.engine.heap()), 0);
        let to = Destination { engine: &opened.engine, writer: &mut writer, worker: 0 };
        let request = SetRequest {
            space: 0,
            key,
            key_at: None,
            value: Source::Bytes(value),
            expiry_ms: 0,
            arrival_ns: 1,
        };
        assert!(writes.set(to, &request).unwrap().is_none());
        assert!(!writer.has_work(), "the heap gets nothing");
    }

    #[test]
    fn what_is_copied_lies_in_the_region_and_the_ring_comes_round() {
        let dir = tempfile::tempdir().unwrap();
        let opened = open_store(dir.path());
        let heap = opened.engine.heap();
        let copies = CopyStore::open(1);
        let free_before = heap.runs().counts().free;
        for round in 0..3u8 {
            for _ in 0..100 {
                set(&copies, &opened, b"key", &vec![round; 1 << 20]);
            }
            copies.commit(0, heap).unwrap();
        }
        let taken = free_before - heap.runs().counts().free;
        assert!((1..=ring::RUNS_MAX as u32).contains(&taken), "{taken} runs");
        drop(opened);
        let region = std::fs::read(dir.path().join(REGION_NAME)).unwrap();
        assert!(region.windows(4096).any(|window| window.iter().all(|byte| *byte == 2)));
    }

    #[test]
    fn what_is_discarded_takes_no_space() {
        let dir = tempfile::tempdir().unwrap();
        let opened = open_store(dir.path());
        let free_before = opened.engine.heap().runs().counts().free;
        set(&Discard, &opened, b"key", &[1; 1 << 20]);
        assert_eq!(opened.engine.heap().runs().counts().free, free_before);
    }

    #[test]
    #[allow(clippy::print_stderr, reason = "a test says what it skips")]
    fn leveldb_takes_writes_where_it_is_installed() {
        let dir = tempfile::tempdir().unwrap();
        let opened = open_store(dir.path());
        let with = match CopyStore::open(1).with_leveldb(dir.path()) {
            Ok(with) => with,
            Err(error) => {
                eprintln!("SKIP: {error}");
                return;
            }
        };
        for number in 0..1000u32 {
            set(&with, &opened, format!("key:{number}").as_bytes(), &[7; 1024]);
        }
        with.commit(0, opened.engine.heap()).unwrap();
        let words = with.describe().unwrap();
        assert!(words.starts_with("LevelDB 1."), "{words}");
    }
}
