//! State that all workers share.

use crate::config::Config;
use crate::counters::Counters;
use crate::files::RegionFiles;
use crate::loads::Loads;
use crate::writes::PlainWrites;
use landfall_chain_io::Node;
use landfall_heap::Integrity;
use landfall_kv::{Engine, Recovered};
use landfall_sockets::Waker;
use landfall_wal::Logs;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// A connected client, for `CLIENT LIST`.
#[derive(Clone, Debug)]
pub struct ClientInfo {
    /// Address of the client.
    pub peer: Option<SocketAddr>,
    /// Name that the client has set.
    pub name: String,
    /// Library name and version that the client has set.
    pub library: (String, String),
    /// Selected database.
    pub database: u8,
    /// RESP version, 2 or 3.
    pub protocol: u8,
    /// When the client connected.
    pub since: Instant,
    /// Worker that serves the client.
    pub worker: usize,
    /// The end of the connection was requested.
    pub killed: Arc<AtomicBool>,
}

/// How other threads wake a worker, and which workers wait for its commits.
#[derive(Debug)]
pub struct WorkerHandle {
    /// Ends the worker's wait.
    pub waker: Waker,
    /// Other workers with replies that wait for this worker's commit: one bit per worker.
    pub waiters: AtomicU64,
    /// A command of this worker waits for bytes to be read.
    pub loading: AtomicBool,
    /// A log that a reader of this worker waits for has grown.
    pub logs_grown: AtomicBool,
}

/// The chosen transport, with the reason.
#[derive(Clone, Debug)]
pub struct ChosenTransport {
    /// `uring` or `epoll`.
    pub name: &'static str,
    /// Why it was chosen.
    pub reason: String,
}

impl std::fmt::Display for ChosenTransport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.name, self.reason)
    }
}

/// State that all workers share.
#[derive(Debug)]
pub struct Shared {
    /// Settings.
    pub config: Config,
    /// The store.
    pub engine: Engine,
    /// The logs.
    pub logs: Logs,
    /// The files in the region, and their mount.
    pub files: RegionFiles,
    /// The place in a chain, if the server has one.
    pub chain: Option<Arc<Node>>,
    /// Destination of plain writes.
    pub writes: Box<dyn PlainWrites>,
    /// Findings of recovery at start.
    pub recovered: Recovered,
    /// Duration of recovery, nanoseconds.
    pub recovery_ns: u64,
    /// Counters.
    pub counters: Counters,
    /// When the server started.
    pub started: Instant,
    /// Random id of this run, 40 hexadecimal digits.
    pub run_id: String,
    /// Bound RESP address.
    pub bound_resp: Option<SocketAddr>,
    /// Bound HTTP address.
    pub bound_http: Option<SocketAddr>,
    /// The transport in use.
    pub transport: ChosenTransport,
    /// Counters of each worker's transport, as of its last tick.
    pub transport_counters: Vec<Mutex<Vec<(&'static str, u64)>>>,
    /// RESP clients by id.
    pub clients: Mutex<BTreeMap<u64, ClientInfo>>,
    /// Next client id.
    pub next_client: AtomicU64,
    /// Cursors of `SCAN`.
    pub cursors: Mutex<crate::cursors::Cursors>,
    /// The background thread, once it runs.
    pub maintenance: std::sync::OnceLock<std::thread::Thread>,
    /// What reads bytes that have left memory; `None` where all of the region may be in memory.
    pub loads: Option<Arc<Loads>>,
    /// The server was asked to stop.
    pub stopping: AtomicBool,
    /// The workers, once they run.
    pub workers: std::sync::OnceLock<Vec<WorkerHandle>>,
}

impl Shared {
    /// Asks every worker to complete its requests and stop.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.wake_all();
    }

    /// Sum of the transports' counters over all workers; empty if they have none.
    pub fn transport_counters(&self) -> Vec<(&'static str, u64)> {
        let mut all: Vec<(&'static str, u64)> = Vec::new();
        for counters in &self.transport_counters {
            for (name, count) in counters.lock().iter() {
                match all.iter_mut().find(|(known, _)| known == name) {
                    Some((_, sum)) => *sum += count,
                    None => all.push((name, *count)),
                }
            }
        }
        all
    }

    /// Wakes the background thread, because a writer waits for space.
    pub fn wake_maintenance(&self) {
        if let Some(thread) = self.maintenance.get() {
            thread.unpark();
        }
    }

    /// Bytes of unsent replies at which a connection's commands wait.
    pub(crate) fn output_max(&self) -> usize {
        let most = self.loads.as_ref().map_or(u64::MAX, |loads| loads.reply_max);
        self.config.max_output.0.min(most) as usize
    }

    /// Ends the wait of every worker with a command that waits for bytes to be read, except one worker's.
    pub(crate) fn wake_load_waiters(&self, except: Option<usize>) {
        let workers = self.workers.get().into_iter().flatten().enumerate();
        let others = workers.filter(|(id, _)| Some(*id) != except).map(|(_, worker)| worker);
        let waits = |worker: &&WorkerHandle| worker.loading.swap(false, Ordering::AcqRel);
        others.filter(waits).for_each(|worker| worker.waker.wake());
    }

    /// Ends the wait of the worker that makes operations on files durable, if one does.
    pub(crate) fn wake_committer(&self) {
        if let Some((workers, worker)) = self.workers.get().zip(self.files.committer()) {
            workers[worker].waker.wake();
        }
    }

    /// Ends every worker's wait.
    pub fn wake_all(&self) {
        self.workers.get().into_iter().flatten().for_each(|worker| worker.waker.wake());
    }

    /// True if values are stored and have a CRC-32C.
    pub(crate) fn checksums_values(&self) -> bool {
        self.config.integrity == Integrity::Crc32c && self.writes.keeps_values()
    }

    /// True once the server must stop.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }
}

/// Current time, Unix nanoseconds.
pub fn now_ns() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}
