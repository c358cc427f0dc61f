//! The part that all devices share: the region, background work of the log, fences on a thread of their own, the
//! clocks.
//!
//! An [`Engine`] owns the [`Device`] state machine; a [`Driver`] moves packets between the engine and a network.

use crate::error::SwitchError;
use crate::status::Status;
use landfall_media::{Dirty, FlushInstruction, Media, MediaError, MediaRequest, OpenOptions, Site};
use landfall_pmnet::Instant;
use landfall_pmnet::auth::{Ends, Guard, Key};
use landfall_pmnet::device::{Device, DeviceConfig};
use landfall_pmnet::log::{Keeper, Limits, Log, Recovered};
use landfall_server::store::{open_region, random};
use landfall_sockets::Waker;
use landfall_spin::prefer_slices_of;
use std::borrow::Cow;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Pause of the background thread when it finds no work.
const KEEP_PAUSE: Duration = Duration::from_millis(2);
/// Scheduling slice of the background thread. It may share a core with a driver that busy-polls, and no client gets an
/// answer while it runs there.
const KEEP_SLICE: Duration = Duration::from_micros(100);
/// Scheduling slice of a driver that shares its core with other threads, servers above all. Clients wait for the
/// driver, but not for what the other threads do. The scheduler lets a thread with a short slice run first when it
/// wakes.
const DRIVE_SLICE: Duration = Duration::from_micros(100);
/// How often counts are published.
const PUBLISH_EVERY: Duration = Duration::from_millis(100);
/// Number of background rounds after which all watermarks are brought up to date.
const MARK_EVERY: u32 = 500;

/// Where a device stores its log.
#[derive(Clone, Debug)]
pub struct RegionConfig {
    /// Directory of the region, or a DAX device.
    pub dir: PathBuf,
    /// Length of the region, bytes. An existing region that is smaller grows.
    pub capacity: u64,
    /// Medium that the region must be on.
    pub media: MediaRequest,
    /// Flush instruction; `None` for the best that the processor has.
    pub flush: Option<FlushInstruction>,
}

/// The clocks of a device: time since its start, and Unix time.
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

/// A device with its region and its background threads.
pub(crate) struct Engine {
    pub(crate) device: Device,
    pub(crate) clock: Clock,
    pub(crate) status: Arc<Status>,
    /// Seals packets that are sent, and opens packets that arrive.
    pub(crate) guard: Guard,
    committer: Option<Committer>,
    keeper: Option<KeeperThread>,
    /// The failure of the log has been reported.
    reported: bool,
}

impl Engine {
    /// Opens the region and the log in it. `waker` ends the driver's wait when a fence is done. `key` is the key that
    /// the device shares with its clients and servers, if any.
    pub(crate) fn open(
        region: &RegionConfig,
        limits: Limits,
        config: DeviceConfig,
        key: Option<&Key>,
        waker: &Waker,
    ) -> Result<Self, SwitchError> {
        let begun = std::time::Instant::now();
        let options = OpenOptions { request: region.media, flush: region.flush, ..OpenOptions::default() };
        let (media, path) = open_region(&region.dir, region.capacity, options)?;
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
        Ok(Self { device, clock, status, guard, committer, keeper: Some(keeper), reported: false })
    }

    /// Seals a packet that is about to be sent. Without a key, returns the packet as it is; only sealing needs a copy.
    pub(crate) fn seal<'a>(&mut self, ends: Ends, packet: impl Into<Cow<'a, [u8]>>) -> Cow<'a, [u8]> {
        let packet = packet.into();
        if !self.guard.is_keyed() {
            return packet;
        }
        let mut bytes = packet.into_owned();
        self.guard.seal(ends, Clock::unix_ns(), &mut bytes);
        bytes.into()
    }

    /// Makes appended updates durable, if any wait for it. If fences run on a thread of their own, starts one; the
    /// caller calls [`Self::collect`] when the waker is set.
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

    /// If a fence has ended, takes its result and starts the next.
    pub(crate) fn collect(&mut self) {
        if let Some(outcome) = self.committer.as_ref().and_then(Committer::collect) {
            self.finish(outcome);
            self.commit();
        }
    }

    /// True while the committer thread of this device executes a fence.
    pub(crate) fn is_fencing(&self) -> bool {
        self.committer.is_some() && self.device.log().is_committing()
    }

    fn finish(&mut self, outcome: Result<(), MediaError>) {
        if let Err(error) = self.device.finish_commit(outcome)
            && !std::mem::replace(&mut self.reported, true)
        {
            tracing::error!(%error, "the log takes no more updates: this device forwards them and does not acknowledge them; replace the medium and start again");
        }
    }

    /// Makes appended updates durable, and handles timeouts that are due.
    pub(crate) fn keep_up(&mut self) {
        self.commit();
        let now = self.clock.now();
        if self.device.next_timeout().is_some_and(|due| due <= now) {
            self.device.handle_timeout(now);
        }
    }

    /// Time until the next timeout is due, at most `most`.
    pub(crate) fn until_due(&self, most: Duration) -> Duration {
        let now = self.clock.now();
        self.device.next_timeout().map_or(most, |due| due.since(now))
    }

    /// Serves the counts over HTTP if `address` is given. Returns the address that was bound.
    pub(crate) fn serve_metrics(
        &self,
        address: Option<SocketAddr>,
    ) -> Result<Option<SocketAddr>, SwitchError> {
        let status = Arc::clone(&self.status);
        let serve = |address| landfall_metrics::serve(address, move || status.metrics());
        Ok(address.map(serve).transpose()?)
    }

    /// Updates the counts that other threads read.
    fn publish(&self, passed: u64) {
        self.status.publish(&self.device, passed);
    }

    /// Stops the background threads and brings all watermarks of the region up to date.
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

/// Moves packets between an engine and a network.
pub(crate) trait Driver {
    /// The engine that the driver serves.
    fn engine(&self) -> &Engine;

    /// Number of PMNet packets that the kernel forwarded without passing them to this process.
    fn passed(&self) -> u64 {
        0
    }

    /// Receives, handles and sends one batch of packets. Waits if there was nothing to do.
    fn round(&mut self) -> Result<(), SwitchError>;

    /// Runs rounds until `stop` is set.
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
            "records of the log cannot be read: this device may have lost acknowledged updates; other devices of the chain have them"
        );
    }
}

/// Executes fences on a thread of its own, so that the driver does not block.
struct Committer {
    jobs: Option<SyncSender<Dirty>>,
    done: Receiver<Result<(), MediaError>>,
    thread: Option<JoinHandle<()>>,
}

impl Committer {
    fn start(log: &Log, waker: Waker) -> Result<Self, SwitchError> {
        let (jobs, to_do) = sync_channel::<Dirty>(1);
        let (report, done) = sync_channel(1);
        let media: Arc<dyn Media> = Arc::clone(log.heap().media());
        let work = move || {
            for mut dirty in to_do {
                let outcome = media.fence(&mut dirty, Site::Commit);
                if report.send(outcome).is_err() {
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
            // There is one fence at a time, so that the channel has room; the thread lives as long as `self`.
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

/// Background work of the log, on a thread of its own.
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
            let (mut reported, mut rounds) = (false, 0_u32);
            while !stopping.load(Ordering::Relaxed) {
                rounds = rounds.wrapping_add(1);
                let marked =
                    if rounds.is_multiple_of(MARK_EVERY) { keeper.store_watermarks() } else { Ok(()) };
                match marked.and_then(|()| keeper.step()) {
                    Ok(kept) if kept.busy => continue,
                    Ok(_) => {}
                    Err(error) if !std::mem::replace(&mut reported, true) => {
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
            tracing::warn!("watermarks were not written; the next start will verify more data");
        }
    }
}
