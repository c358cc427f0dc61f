//! What all devices share: the region, the log's background work, fences that are device I/O, the clocks.

use crate::error::SwitchError;
use crate::status::Status;
use landfall_media::{Dirty, FlushInstruction, Media, MediaError, MediaRequest, Site};
use landfall_pmnet::Instant;
use landfall_pmnet::auth::{Ends, Guard, Key};
use landfall_pmnet::device::{Device, DeviceConfig};
use landfall_pmnet::log::{Keeper, Limits, Log, Recovered};
use landfall_server::store::{open_region, random};
use landfall_sockets::{Waker, prefer_slices_of};
use std::borrow::Cow;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Pause between looks at what background work there is.
const KEEP_PAUSE: Duration = Duration::from_millis(2);
/// How long it runs at a time where it shares a core with a driver that never waits: for so long nobody is answered.
const KEEP_SLICE: Duration = Duration::from_micros(100);
/// How long a driver runs at a time where others want its core, servers above all: whom it makes wait is a client, and what they do
/// is done behind the clients' backs. One that wakes goes before those who may run for longer.
const DRIVE_SLICE: Duration = Duration::from_micros(100);
/// How often counts are shown.
const PUBLISH_EVERY: Duration = Duration::from_millis(100);
/// How often watermarks are moved all the way.
const MARK_EVERY: u32 = 500;

/// Where a device keeps its log.
#[derive(Clone, Debug)]
pub struct RegionConfig {
    /// Directory of the region, or a DAX device.
    pub dir: PathBuf,
    /// Bytes of the region; an existing smaller one grows.
    pub capacity: u64,
    /// Medium that it must be on.
    pub media: MediaRequest,
    /// Flush instruction; `None`: the best there is.
    pub flush: Option<FlushInstruction>,
}

/// The clocks of a device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock(std::time::Instant);

impl Clock {
    pub(crate) fn start() -> Self {
        Self(std::time::Instant::now())
    }

    pub(crate) fn now(&self) -> Instant {
        Instant::from_nanos(u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// Unix time, nanoseconds.
    pub(crate) fn unix_ns() -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    }
}

/// A device with its region.
pub(crate) struct Engine {
    pub(crate) device: Device,
    pub(crate) clock: Clock,
    pub(crate) status: Arc<Status>,
    /// Seals what is sent, and opens what arrives.
    pub(crate) guard: Guard,
    committer: Option<Committer>,
    keeper: Option<KeeperThread>,
    complained: bool,
}

impl Engine {
    /// Opens the region and the log in it. `waker` ends the driver's wait when a fence is done; `key` is what the device shares
    /// with its clients and servers, if anything.
    pub(crate) fn open(
        region: &RegionConfig,
        limits: Limits,
        config: DeviceConfig,
        key: Option<&Key>,
        waker: &Waker,
    ) -> Result<Self, SwitchError> {
        let begun = std::time::Instant::now();
        let (media, path) = open_region(&region.dir, region.capacity, region.media, region.flush)?;
        tracing::info!(region = %path.display(), medium = media.describe(), "region opened");
        let (log, recovered) = Log::open(media, limits)?;
        report(&recovered, begun.elapsed());
        log.heap().reserve_landing(1);
        let clock = Clock::start();
        let committer = log.commits_elsewhere().then(|| Committer::start(&log, waker.clone())).transpose()?;
        let keeper = KeeperThread::start(log.keeper())?;
        let incarnation = u64::from_le_bytes(random()?);
        let status = Arc::new(Status::new(recovered.entries));
        let device = Device::new(DeviceConfig { incarnation, ..config }, log, clock.now());
        let sender = u64::from_le_bytes(random()?);
        let guard = Guard::of(key, || sender);
        Ok(Self { device, clock, status, guard, committer, keeper: Some(keeper), complained: false })
    }

    /// A packet that is about to be sent: sealed where there is a key, and copied only then.
    pub(crate) fn seal<'a>(&mut self, ends: Ends, packet: impl Into<Cow<'a, [u8]>>) -> Cow<'a, [u8]> {
        let packet = packet.into();
        if !self.guard.is_keyed() {
            return packet;
        }
        let mut bytes = packet.into_owned();
        self.guard.seal(ends, Clock::unix_ns(), &mut bytes);
        bytes.into()
    }

    /// Makes what was logged durable, or begins to: then [`Self::collect`] is called when the waker says so.
    pub(crate) fn commit(&mut self) {
        if !self.device.wants_commit() {
            return;
        }
        let Some(dirty) = self.device.begin_commit() else { return };
        match &self.committer {
            Some(committer) => committer.begin(dirty),
            None => {
                let mut dirty = dirty;
                let outcome = self.device.log().heap().media().fence(&mut dirty, Site::Commit);
                self.finish(outcome);
            }
        }
    }

    /// Takes the end of a fence, if it has ended, and begins the next.
    pub(crate) fn collect(&mut self) {
        if let Some(outcome) = self.committer.as_ref().and_then(Committer::collect) {
            self.finish(outcome);
            self.commit();
        }
    }

    /// Whether another thread of this device waits for a fence.
    pub(crate) fn is_fencing(&self) -> bool {
        self.committer.is_some() && self.device.log().is_committing()
    }

    fn finish(&mut self, outcome: Result<(), MediaError>) {
        if let Err(error) = self.device.finish_commit(outcome)
            && !std::mem::replace(&mut self.complained, true)
        {
            tracing::error!(%error, "the log takes no more updates: they are forwarded, and acknowledged by nobody here; replace the medium and start again");
        }
    }

    /// Makes what was logged durable, and does what is due.
    pub(crate) fn keep_up(&mut self) {
        self.commit();
        let now = self.clock.now();
        if self.device.next_timeout().is_some_and(|due| due <= now) {
            self.device.handle_timeout(now);
        }
    }

    /// How long nothing is due, at most `most`.
    pub(crate) fn until_due(&self, most: Duration) -> Duration {
        let now = self.clock.now();
        self.device.next_timeout().map_or(most, |due| due.since(now))
    }

    /// Serves the counts, if that is wanted; where.
    pub(crate) fn serve_metrics(
        &self,
        address: Option<SocketAddr>,
    ) -> Result<Option<SocketAddr>, SwitchError> {
        let status = Arc::clone(&self.status);
        address.map(|address| crate::metrics::serve(address, move || status.metrics())).transpose()
    }

    /// Brings the counts that others read up to date.
    fn publish(&self, passed: u64) {
        self.status.publish(&self.device, passed);
    }

    /// Ends background work and leaves the region with every watermark moved.
    pub(crate) fn stop(mut self) {
        drop(self.committer.take());
        if self.device.log().has_pending() && !self.device.log().is_committing() {
            let _ = self.device.commit();
        }
        if let Some(keeper) = self.keeper.take() {
            keeper.stop();
        }
    }
}

/// What moves packets for an engine.
pub(crate) trait Driver {
    /// Its engine.
    fn engine(&self) -> &Engine;

    /// PMNet's packets that went on without coming here.
    fn passed(&self) -> u64 {
        0
    }

    /// Does all there is to do; waits if there was nothing.
    fn round(&mut self) -> Result<(), SwitchError>;

    /// Rounds until told to stop.
    fn rounds(&mut self, stop: &AtomicBool) -> Result<(), SwitchError> {
        prefer_slices_of(DRIVE_SLICE);
        let mut published = std::time::Instant::now();
        while !stop.load(Ordering::Relaxed) {
            self.round()?;
            if published.elapsed() >= PUBLISH_EVERY {
                published = std::time::Instant::now();
                self.engine().publish(self.passed());
            }
        }
        Ok(())
    }
}

fn report(recovered: &Recovered, took: Duration) {
    recovered.notes.iter().for_each(|note| tracing::warn!("{note}"));
    tracing::info!(
        entries = recovered.entries,
        bytes = recovered.bytes,
        paths = recovered.paths,
        gone = recovered.gone,
        strays = recovered.strays,
        rejected = recovered.rejected,
        ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        "log recovered"
    );
    if recovered.damaged > 0 {
        tracing::error!(
            slots = recovered.damaged,
            "records of the log cannot be read: updates that were acknowledged may be lost here; other devices of the chain have them"
        );
    }
}

/// Waits for fences in the driver's place.
struct Committer {
    jobs: Option<SyncSender<Dirty>>,
    done: Receiver<Result<(), MediaError>>,
    thread: Option<JoinHandle<()>>,
}

impl Committer {
    fn start(log: &Log, waker: Waker) -> Result<Self, SwitchError> {
        let (jobs, to_do) = sync_channel::<Dirty>(1);
        let (told, done) = sync_channel(1);
        let media: Arc<dyn Media> = Arc::clone(log.heap().media());
        let work = move || {
            for mut dirty in to_do {
                let outcome = media.fence(&mut dirty, Site::Commit);
                if told.send(outcome).is_err() {
                    break;
                }
                waker.wake();
            }
        };
        let thread = std::thread::Builder::new().name("fences".into()).spawn(work);
        let thread = thread.map_err(SwitchError::system("starting a thread"))?;
        Ok(Self { jobs: Some(jobs), done, thread: Some(thread) })
    }

    fn begin(&self, dirty: Dirty) {
        if let Some(jobs) = &self.jobs {
            // One at a time: there is room, and the thread lives as long as this.
            let _ = jobs.send(dirty);
        }
    }

    fn collect(&self) -> Option<Result<(), MediaError>> {
        self.done.try_recv().ok()
    }
}

impl Drop for Committer {
    fn drop(&mut self) {
        drop(self.jobs.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The log's background work on a thread of its own.
struct KeeperThread {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Keeper>,
}

impl KeeperThread {
    fn start(mut keeper: Keeper) -> Result<Self, SwitchError> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopping = Arc::clone(&stop);
        let work = move || {
            prefer_slices_of(KEEP_SLICE);
            let (mut complained, mut rounds) = (false, 0_u32);
            while !stopping.load(Ordering::Relaxed) {
                rounds = rounds.wrapping_add(1);
                let marked =
                    if rounds.is_multiple_of(MARK_EVERY) { keeper.store_watermarks() } else { Ok(()) };
                match marked.and_then(|()| keeper.step()) {
                    Ok(kept) if kept.busy => continue,
                    Ok(_) => {}
                    Err(error) if !std::mem::replace(&mut complained, true) => {
                        tracing::error!(%error, "background work of the log failed");
                    }
                    Err(_) => {}
                }
                std::thread::sleep(KEEP_PAUSE);
            }
            keeper
        };
        let thread = std::thread::Builder::new().name("log keeper".into()).spawn(work);
        Ok(Self { stop, thread: thread.map_err(SwitchError::system("starting a thread"))? })
    }

    fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        let left = self.thread.join().map(|keeper| keeper.store_watermarks());
        if !matches!(left, Ok(Ok(()))) {
            tracing::warn!("watermarks were not written; the next start will look at more data");
        }
    }
}
