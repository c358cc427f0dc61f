//! Reading what has left memory, on threads of its own: a command that needs such bytes waits, and its worker does not.
//!
//! A command finds under the lock of its shard that its value is not in memory. It asks for all of it ([`Loader::submit`]),
//! waits as it would for a commit, and is executed again. Commands that follow in its pipeline, and other keys that it
//! names, are asked for at once, so that the device always has several reads to do.

use crate::shared::{Shared, count};
use landfall_heap::{Heap, LoadId, Loader};
use landfall_media::Extent;
use parking_lot::{Condvar, Mutex};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

/// Reads under way at once.
const THREADS: usize = 32;
/// Their stacks are small: they read, and do nothing else.
const STACK_BYTES: usize = 128 << 10;
/// What has been read is held so long for whoever asked, who comes at once unless a client is slow, ...
const KEPT_FOR: Duration = Duration::from_millis(200);
/// ... or only so long, where more than one part in so many of the memory is held like this.
const KEPT_FOR_LEAST: Duration = Duration::from_millis(5);
const KEPT_PARTS: u64 = 16;
/// What could not be read is not read again for so long: whoever asks is told the error instead.
const FAILED_FOR: Duration = Duration::from_secs(1);

/// Counts of the loader, for `INFO` and `/metrics`.
#[derive(Debug, Default)]
pub struct LoadCounters {
    /// Requests for bytes that had left memory.
    pub loads: AtomicU64,
    /// Bytes of these requests.
    pub bytes: AtomicU64,
}

/// The loader of a server.
pub struct Loads {
    heap: Arc<Heap>,
    state: Mutex<State>,
    work: Condvar,
    /// What has been asked for.
    pub counters: LoadCounters,
}

impl std::fmt::Debug for Loads {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Loads").field("counters", &self.counters).finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct State {
    queue: VecDeque<Part>,
    /// Parts to be read of each request that is not done.
    pending: BTreeMap<LoadId, usize>,
    /// Held since it was read, oldest first.
    kept: VecDeque<Kept>,
    /// Bytes of these.
    kept_bytes: u64,
    /// Starts of extents that could not be read, and since when.
    failed: BTreeMap<u64, Instant>,
    next: u64,
    stopping: bool,
}

/// A part of a request: what one thread reads at once.
#[derive(Debug)]
struct Part {
    load: LoadId,
    extent: Extent,
}

#[derive(Debug)]
struct Kept {
    load: LoadId,
    since: Instant,
    extent: Extent,
}

impl Loads {
    /// The loader of a heap of which not all need be in memory; `None` where all is.
    pub(crate) fn of(heap: &Arc<Heap>) -> Option<Arc<Self>> {
        if !heap.is_paged() {
            return None;
        }
        let loads = Arc::new(Self {
            heap: Arc::clone(heap),
            state: Mutex::default(),
            work: Condvar::new(),
            counters: LoadCounters::default(),
        });
        let loader: Arc<dyn Loader> = Arc::clone(&loads) as _;
        heap.set_loader(Arc::downgrade(&loader));
        Some(loads)
    }

    /// Starts the threads.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn spawn(
        self: &Arc<Self>,
        shared: &Arc<Shared>,
    ) -> std::io::Result<Vec<std::thread::JoinHandle<()>>> {
        (0..THREADS)
            .map(|index| {
                let (loads, shared) = (Arc::clone(self), Arc::clone(shared));
                let thread = std::thread::Builder::new().name(format!("load-{index}"));
                thread.stack_size(STACK_BYTES).spawn(move || loads.run(&shared))
            })
            .collect()
    }

    /// Ends the threads once they have read what they are reading.
    pub(crate) fn stop(&self) {
        self.state.lock().stopping = true;
        self.work.notify_all();
    }

    fn run(&self, shared: &Shared) {
        while let Some(Part { load, extent }) = self.next() {
            let outcome = self.heap.load(extent);
            if let Err(error) = &outcome {
                tracing::error!(%error, "a part of the region cannot be read");
            }
            if self.finish(load, extent, outcome.is_err()) {
                shared.wake_load_waiters();
            }
        }
    }

    /// The next part to be read; `None` when the server stops.
    fn next(&self) -> Option<Part> {
        let mut state = self.state.lock();
        loop {
            if state.stopping {
                return None;
            }
            if let Some(part) = state.queue.pop_front() {
                return Some(part);
            }
            if state.kept.is_empty() {
                self.work.wait(&mut state);
            } else {
                // Whoever has kept something comes back in time to release it.
                self.work.wait_for(&mut state, KEPT_FOR);
                self.release_old(&mut state, Instant::now());
            }
        }
    }

    /// A part has been read, or cannot be; true if its request is done.
    fn finish(&self, load: LoadId, extent: Extent, failed: bool) -> bool {
        let now = Instant::now();
        let mut state = self.state.lock();
        if failed {
            state.failed.insert(extent.off, now);
        }
        state.kept.push_back(Kept { load, since: now, extent });
        state.kept_bytes += u64::from(extent.len());
        let left = state.pending.get_mut(&load).map_or(0, |left| {
            *left -= 1;
            *left
        });
        if left == 0 {
            state.pending.remove(&load);
        }
        self.release_old(&mut state, now);
        left == 0
    }

    fn release_old(&self, state: &mut State, now: Instant) {
        let kept_max = self.heap.memory().map_or(0, |memory| memory.limit / KEPT_PARTS);
        while let Some(kept) = state.kept.front() {
            let kept_for = if state.kept_bytes > kept_max { KEPT_FOR_LEAST } else { KEPT_FOR };
            // All of a request that is under way is kept until whoever asked has seen it.
            if now - kept.since < kept_for || state.pending.contains_key(&kept.load) {
                break;
            }
            self.heap.runs().release(kept.extent);
            state.kept_bytes -= u64::from(kept.extent.len());
            state.kept.pop_front();
        }
    }
}

impl Loader for Loads {
    fn submit(&self, extents: &[Extent]) -> Option<LoadId> {
        let mut state = self.state.lock();
        let now = Instant::now();
        state.failed.retain(|_, since| now - *since < FAILED_FOR);
        let parts: Vec<Extent> = extents.iter().copied().flat_map(Extent::by_run).collect();
        if state.stopping || parts.iter().any(|part| state.failed.contains_key(&part.off)) {
            return None;
        }
        count(&self.counters.loads, 1);
        count(&self.counters.bytes, extents.iter().map(|extent| u64::from(extent.len())).sum());
        let load = LoadId(state.next);
        state.next += 1;
        state.pending.insert(load, parts.len());
        state.queue.extend(parts.iter().map(|extent| Part { load, extent: *extent }));
        drop(state);
        match parts.len() {
            1 => drop(self.work.notify_one()),
            _ => drop(self.work.notify_all()),
        }
        Some(load)
    }

    fn is_done(&self, load: LoadId) -> bool {
        !self.state.lock().pending.contains_key(&load)
    }
}

impl Drop for Loads {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        let queued = state.queue.drain(..).map(|part| part.extent);
        let kept = state.kept.drain(..).map(|kept| kept.extent);
        queued.chain(kept).for_each(|extent| self.heap.runs().release(extent));
    }
}
