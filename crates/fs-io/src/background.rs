//! The background threads: one publishes, one keeps the heap, and one sends chunks to the log's successor.

use crate::counters::StageTimes;
use crate::rounds::{Job, Rounds};
use crate::service::Service;
use landfall_fs::{Files, FsError, Publisher};
use landfall_heap::{Compacted, Compactor, FreeGoal, HeapError};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Pause between checks for work, at first. While nothing happens it doubles each time.
const PAUSE_MIN: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_millis(40);
/// Pause after a failure, so that it does not use a core for nothing.
const PAUSE_FAILED: Duration = Duration::from_secs(1);
/// Prepared slabs that are kept ready.
const SPARE_SLABS: usize = 2;
/// Slots by which a slab's watermark may lag.
const MARK_STEP: u32 = 4096;
/// Interval at which watermarks are moved all the way, and free runs that were not needed are given back.
const WINDOW: Duration = Duration::from_secs(1);
/// Free runs prepared, or returned to the medium, in one step.
const FREE_RUNS_PER_STEP: usize = 8;
/// Bytes that one step of compaction moves.
const STEP_BYTES: u64 = 1 << 20;
/// Steps of compaction in a row while too few runs are free.
const STEPS_MAX: usize = 32;
/// The log is published at least this often, so that what was deleted becomes free.
const PUBLISH_EVERY: Duration = Duration::from_secs(1);
/// Runs loaded in the background in one step.
const LOADS_PER_STEP: usize = 8;
/// The search for runs to compact takes at most this part of the time.
const IDLE_FACTOR: u32 = 50;
/// Longest pause of that search.
const IDLE_MAX: Duration = Duration::from_millis(100);

/// Says once that a job fails, and once more when it fails again after a success.
#[derive(Debug, Default)]
struct Complaint {
    is_made: bool,
}

impl Complaint {
    /// The outcome without its error, and whether there was one.
    fn about<T: Default>(&mut self, job: &str, outcome: Result<T, FsError>) -> (T, bool) {
        match outcome {
            Ok(done) => {
                self.is_made = false;
                (done, false)
            }
            Err(error) => {
                if !self.is_made {
                    tracing::error!(%error, "{job} fails; it is tried again");
                }
                self.is_made = true;
                (T::default(), true)
            }
        }
    }
}

/// Whether a round of work found something to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Found {
    #[default]
    Nothing,
    /// It is done, and there may be more soon.
    Done,
    /// There is more at once.
    More,
}

/// The pauses of a thread: longer and longer while it finds nothing, so that a mount that nobody uses costs little.
struct Pauses {
    next: Duration,
}

impl Pauses {
    fn new() -> Self {
        Self { next: PAUSE_MIN }
    }

    fn next(&mut self, is_idle: bool) -> Duration {
        let pause = if is_idle { self.next } else { PAUSE_MIN };
        self.next = (pause * 2).min(PAUSE_MAX);
        pause
    }
}

/// Publishes until the mount ends.
pub(crate) fn publish(service: &Service, publisher: &Mutex<Publisher>) {
    let (files, rounds) = (&service.files, &service.common.rounds);
    let (mut complaint, mut published_at) = (Complaint::default(), Instant::now());
    let mut pauses = Pauses::new();
    rounds.join_in();
    while !rounds.is_stopping() {
        let asked = rounds.asked();
        let is_old = published_at.elapsed() >= PUBLISH_EVERY;
        let is_closed = files.heap().media().closed().is_some();
        let wanted = !is_closed && (is_old || rounds.is_asked(Job::Publish) || files.publishing_is_due());
        if wanted {
            published_at = Instant::now();
        }
        let waits = !rounds.is_asked(Job::Publish) && files.publishing_waits_to_be_asked();
        let step = if wanted { publish_some(service, publisher, waits) } else { Ok(Found::Nothing) };
        let (found, failed) = complaint.about("publishing", step);
        if service.release_left() == 0 && found == Found::Nothing {
            rounds.answer(Job::Publish, asked);
            let pause = pauses.next(files.log_len().0 == 0);
            std::thread::park_timeout(if failed { PAUSE_FAILED } else { pause });
        }
        rounds.note_progress();
    }
}

/// Sends chunks to the log's successor as they fill, until the mount ends. Who publishes would not send the next one before it has
/// published the one before.
pub(crate) fn send(files: &Files, rounds: &Rounds) {
    while !rounds.is_stopping() {
        if files.wait_for_chunk(PAUSE_MAX) && files.sync_all().is_err() {
            // Whoever publishes says so.
            std::thread::sleep(PAUSE_MAX);
        }
    }
}

/// `waits`: nothing is made durable that nobody has asked for.
fn publish_some(service: &Service, publisher: &Mutex<Publisher>, waits: bool) -> Result<Found, FsError> {
    let begun = Instant::now();
    let mut publisher = publisher.lock();
    publisher.set_waits_to_be_asked(waits);
    let mut times = StageTimes::default();
    let step = || publisher.step_by_stages(&mut |stage| times.begin(stage));
    let published = service.common.rounds.publish(step)?;
    if published.operations == 0 {
        return Ok(Found::Nothing);
    }
    service.common.counters.note_published(begun, times, &published);
    Ok(Found::More)
}

/// Publishes everything, after the last request. While other mounts go on: what there was when it began.
///
/// # Errors
/// [`FsError`]: what is not published stays in the log, and is published after the next start.
pub(crate) fn publish_all(service: &Service, publisher: &Mutex<Publisher>) -> Result<(), FsError> {
    let end = service.files.next_operation();
    while publish_some(service, publisher, false)? == Found::More {
        if service.is_shared() && service.files.published_below() >= end {
            break;
        }
    }
    Ok(())
}

/// Prepares space before the first request comes: the first writes would otherwise go to blocks that the file system below
/// has not written yet, and each of them would wait for its metadata.
pub(crate) fn prepare(files: &Files) {
    // Where it fails, the keeper fails, too, and says so.
    let _ = files.heap().maintain_free_runs(FreeGoal::TOGETHER, false);
}

/// Keeps the heap until the mount ends.
pub(crate) fn keep(files: &Arc<Files>, rounds: &Rounds) {
    let mut keeper = Keeper::new(files);
    let (mut complaint, mut is_closed) = (Complaint::default(), false);
    let mut pauses = Pauses::new();
    rounds.join_in();
    while !rounds.is_stopping() {
        let asked = rounds.asked();
        let (found, failed) = match files.heap().media().closed() {
            Some(reason) => {
                if !std::mem::replace(&mut is_closed, true) {
                    tracing::error!(
                        reason,
                        "the medium has failed: changes are refused (EIO), reads go on; unmount, and mount again on a \
                         medium that works"
                    );
                }
                (Found::Nothing, true)
            }
            None => complaint.about("keeping the region", keeper.step(rounds)),
        };
        if found != Found::More {
            rounds.answer(Job::Keep, asked);
            let pause = pauses.next(found == Found::Nothing);
            std::thread::park_timeout(if failed { PAUSE_FAILED } else { pause });
        }
    }
}

/// The heap's background work.
struct Keeper<'f> {
    files: &'f Arc<Files>,
    compactor: Compactor,
    window_began: Instant,
    /// The compactor found no run worth compacting, and is not asked again until then.
    idle_until: Instant,
}

impl<'f> Keeper<'f> {
    fn new(files: &'f Arc<Files>) -> Self {
        let now = Instant::now();
        let compactor = Compactor::new(Arc::clone(files.heap()));
        Self { files, compactor, window_began: now, idle_until: now }
    }

    fn step(&mut self, rounds: &Rounds) -> Result<Found, FsError> {
        let heap = self.files.heap();
        let (mut loading, mut is_idle) = (true, true);
        for _ in 0..LOADS_PER_STEP {
            loading = loading && heap.media().load_some()?;
        }
        heap.relieve_memory(0);
        let window_over = self.window_began.elapsed() >= WINDOW;
        if window_over {
            self.window_began = Instant::now();
        }
        for step in 0..FREE_RUNS_PER_STEP {
            if !heap.maintain_free_runs(FreeGoal::TOGETHER, window_over && step == 0)? {
                break;
            }
            is_idle = false;
        }
        if heap.has_room() && heap.spare_slabs() < SPARE_SLABS {
            heap.prepare_slab_within_reserve()?;
        }
        heap.mark_slabs(if window_over { 1 } else { MARK_STEP })?;
        let compacting = self.compact(rounds)?;
        Ok(match (loading, compacting) {
            (false, Found::Nothing) if is_idle => Found::Nothing,
            (false, Found::Nothing) => Found::Done,
            _ => Found::More,
        })
    }

    /// Makes space while too few runs are free, as fast as possible: writers wait for it.
    fn compact(&mut self, rounds: &Rounds) -> Result<Found, FsError> {
        if Instant::now() < self.idle_until && !rounds.is_asked(Job::Keep) {
            return Ok(Found::Nothing);
        }
        for _ in 0..STEPS_MAX {
            let begun = Instant::now();
            let goal = self.files.heap().compact_goal();
            let done = match self.compactor.step(&**self.files, goal, STEP_BYTES) {
                // No space is left to work with: deletes free runs without compaction.
                Err(HeapError::Full) => Compacted { is_idle: true, ..Compacted::default() },
                other => other?,
            };
            rounds.note_progress();
            if done.is_idle {
                self.idle_until = Instant::now() + (begun.elapsed() * IDLE_FACTOR).min(IDLE_MAX);
                return Ok(Found::Nothing);
            }
        }
        Ok(Found::More)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_limit_while_nothing_happens_and_begin_anew_when_something_does() {
        let mut pauses = Pauses::new();
        let idle: Vec<u128> = (0..5).map(|_| pauses.next(true).as_millis()).collect();
        assert_eq!(idle, [5, 10, 20, 40, 40]);
        assert_eq!([false, false, true].map(|is_idle| pauses.next(is_idle).as_millis()), [5, 5, 10]);
    }
}
