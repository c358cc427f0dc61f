//! A mount, from its beginning to its end.

use crate::background;
use crate::clock;
use crate::inspect;
use crate::keeping::{Keeper, Keeping};
use crate::landing::Landing;
use crate::link::{Link, Listener, Threads};
use crate::panics;
use crate::rounds::Rounds;
use crate::service::{Service, SyncMode, Written};
use crate::syncs::Syncs;
use crate::sys::{self, Image};
use crate::values::Values;
use crate::worker::Worker;
use landfall_fs::{Files, FsError, Operation, Publisher};
use landfall_fs_link::Reason;
use landfall_fuse::{
    Device, Feature, HandshakeError, Mount, MountError, MountOptions, Negotiated, Unmount, Wanted, handshake,
    mount,
};
use landfall_media::RUN_SIZE;
use parking_lot::Mutex;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long the end waits for programs that still use a mount which was detached.
const LINGER: Duration = Duration::from_secs(5);
/// How often it looks.
const LINGER_STEP: Duration = Duration::from_millis(20);
/// Bytes of the largest WRITE: those of a run, so that it lands in two runs at most.
#[allow(clippy::cast_possible_truncation, reason = "a run has 1 MiB")]
const WRITE_BYTES_MAX: u32 = RUN_SIZE as u32;

/// How to mount.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Threads that answer requests.
    pub workers: usize,
    /// When changes become durable.
    pub sync: SyncMode,
    /// The kernel keeps written data, and writes them back later.
    pub writeback: bool,
    /// Options of the mount.
    pub mount: MountOptions,
    /// The socket to which libraries in other programs connect (`docs/format/fs-link.md`); `None`: there is none.
    pub socket: Option<PathBuf>,
}

impl Default for Settings {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let workers = cores.clamp(2, 4);
        Self {
            workers,
            sync: SyncMode::default(),
            writeback: false,
            mount: MountOptions::default(),
            socket: None,
        }
    }
}

/// Why there is no mount, or why it has ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// Environment: the mountpoint is not empty, so that a mount would hide what is in it.
    #[error("{}: not empty: the mount would hide what is in it; make an empty directory to mount on", .0.display())]
    NotEmpty(PathBuf),
    /// Environment: the kernel or the user's rights.
    #[error(transparent)]
    Mount(#[from] MountError),
    /// Environment: the kernel's protocol.
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
    /// Misuse: the region is not in memory that a kernel can write into.
    #[error("the region's medium has no image in memory")]
    NoImage,
    /// Environment: an error of the device, or no thread can be started.
    #[error("the mount cannot be served: {0}")]
    Io(#[from] io::Error),
    /// What was not published stays in the log.
    #[error("the region is not left clean: {0}; nothing durable is lost")]
    NotClean(#[from] FsError),
}

/// What all threads of a session share.
struct Shared {
    point: PathBuf,
    mount: Mutex<Mount>,
    /// Readable when the workers are to end.
    stop: OwnedFd,
    /// Workers that have not ended.
    serving: AtomicUsize,
}

/// A mount that is served.
pub struct Session {
    shared: Arc<Shared>,
    service: Arc<Service>,
    notifier: Arc<Device>,
    workers: Vec<JoinHandle<io::Result<()>>>,
    keeper: Option<JoinHandle<()>>,
    publisher: Arc<Mutex<Publisher>>,
    publishing: Option<JoinHandle<()>>,
    libraries: Option<Threads>,
}

/// Ends a session from another thread.
#[derive(Clone)]
pub struct Stopper {
    shared: Arc<Shared>,
}

/// Shows what a session has done.
#[derive(Clone)]
pub struct Inspector {
    service: Arc<Service>,
}

impl Inspector {
    /// The page of metrics: Prometheus text format.
    pub fn metrics(&self) -> String {
        inspect::metrics(&self.service)
    }
}

impl Session {
    /// Mounts the files on `point`, and serves them. `publisher` is the one of these files.
    ///
    /// # Errors
    /// [`SessionError`] says what is wrong and what to do. Nothing is mounted then.
    pub fn start(
        files: Arc<Files>,
        publisher: Publisher,
        point: &Path,
        settings: &Settings,
    ) -> Result<Self, SessionError> {
        Self::start_with((files, publisher), point, settings, Keeper::Session)
    }

    /// As [`Self::start`], in a heap that `keeper` keeps.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn start_with(
        (files, publisher): (Arc<Files>, Publisher),
        point: &Path,
        settings: &Settings,
        keeper: Keeper,
    ) -> Result<Self, SessionError> {
        let image = files.heap().media().image().map(Image::new).ok_or(SessionError::NoImage)?;
        if std::fs::read_dir(point).is_ok_and(|mut entries| entries.next().is_some()) {
            return Err(SessionError::NotEmpty(point.to_owned()));
        }
        let workers = settings.workers.max(1);
        let is_kept = matches!(keeper, Keeper::Program(_));
        if !is_kept {
            files.heap().reserve_landing(u32::try_from(workers).unwrap_or(u32::MAX));
        }
        let stop =
            rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).map_err(io::Error::from)?;
        let (device, mount) = mount(point, &settings.mount)?;
        let negotiated = handshake(&device, &wanted(settings), stop.as_fd())?;
        let point = mount.point().to_owned();
        let shared = Arc::new(Shared { point, mount: Mutex::new(mount), stop, serving: AtomicUsize::new(0) });
        let rounds = Arc::new(match keeper {
            Keeper::Session => Rounds::default(),
            Keeper::Program(wake) => Rounds::beside(wake),
        });
        let written = if settings.writeback { Written::Kept } else { Written::Through };
        let publisher = Arc::new(Mutex::new(publisher));
        let link = link(&files, &publisher, &device, settings, &shared.point);
        let available = link.as_ref().ok().cloned();
        let notifier = Arc::new(device.clone_queue()?);
        let service = Arc::new(Service::new(files, rounds, (settings.sync, written), available));
        let mut session = Self {
            shared,
            service,
            notifier,
            workers: Vec::new(),
            keeper: None,
            publisher,
            publishing: None,
            libraries: None,
        };
        if !is_kept {
            session.start_keeper()?;
        }
        session.start_publisher()?;
        session.start_libraries(link, settings)?;
        session.start_workers(device, workers, negotiated, image)?;
        Ok(session)
    }

    fn start_keeper(&mut self) -> io::Result<()> {
        let (service, shared) = (Arc::clone(&self.service), Arc::clone(&self.shared));
        let keep = move || {
            panics::essential(&shared.point, || background::keep(&service.files, &service.rounds));
        };
        self.keeper = Some(std::thread::Builder::new().name("keep".into()).spawn(keep)?);
        Ok(())
    }

    fn start_publisher(&mut self) -> io::Result<()> {
        let (service, shared) = (Arc::clone(&self.service), Arc::clone(&self.shared));
        let publisher = Arc::clone(&self.publisher);
        let publish = move || {
            let work = || background::publish(&service, &publisher);
            panics::essential(&shared.point, work);
        };
        self.publishing = Some(std::thread::Builder::new().name("publish".into()).spawn(publish)?);
        Ok(())
    }

    /// Serves libraries. The mount does without them where there is no socket.
    fn start_libraries(&mut self, link: Result<Arc<Link>, Reason>, settings: &Settings) -> io::Result<()> {
        let Some(path) = &settings.socket else { return Ok(()) };
        match Listener::bind(path) {
            Ok(listener) => {
                let stop = self.shared.stop.try_clone()?;
                self.libraries = Some(Threads::start(listener, link, stop, &self.shared.point)?);
            }
            Err(error) => {
                tracing::warn!(%error, socket = %path.display(), "libraries cannot connect: they use the mount");
            }
        }
        Ok(())
    }

    fn start_workers(
        &mut self,
        device: Device,
        count: usize,
        negotiated: Negotiated,
        image: Image,
    ) -> io::Result<()> {
        let syncs = Arc::<Syncs>::default();
        let mut devices = (1..count).map(|_| device.clone_queue()).collect::<io::Result<Vec<_>>>()?;
        devices.push(device);
        for (index, device) in devices.into_iter().enumerate() {
            let heap = Arc::clone(self.service.files.heap());
            let worker = Worker {
                service: Arc::clone(&self.service),
                syncs: Arc::clone(&syncs),
                device: Arc::new(device),
                decoder: negotiated.decoder(),
                landing: Landing::new(heap, image, negotiated.frame_bytes()),
            };
            let shared = Arc::clone(&self.shared);
            let thread = std::thread::Builder::new().name(format!("fuse-{index}"));
            shared.serving.fetch_add(1, Ordering::AcqRel);
            let run = move || {
                let outcome = panics::essential(&shared.point, || worker.run(&shared.stop));
                shared.serving.fetch_sub(1, Ordering::AcqRel);
                if let Err(error) = &outcome {
                    tracing::error!(%error, "a worker fails: the mount ends");
                    shared.stop_workers();
                }
                outcome
            };
            self.workers.push(thread.spawn(run)?);
        }
        Ok(())
    }

    /// How the program answers requests that wait for space ([`Keeper::Program`]).
    pub fn keeping(&self) -> Keeping {
        Keeping::new(Arc::clone(&self.service.rounds))
    }

    /// Values of other systems in the region as files, and files as values.
    pub fn values(&self) -> Values {
        Values::new(Arc::clone(&self.service), Arc::clone(&self.notifier))
    }

    /// Ends the session from another thread.
    pub fn stopper(&self) -> Stopper {
        Stopper { shared: Arc::clone(&self.shared) }
    }

    /// Shows what the session has done, from another thread.
    pub fn inspector(&self) -> Inspector {
        Inspector { service: Arc::clone(&self.service) }
    }

    /// The mountpoint.
    pub fn point(&self) -> &Path {
        &self.shared.point
    }

    /// Waits until the mount has ended, and leaves the region clean: everything durable, published and marked.
    ///
    /// # Errors
    /// An error of a worker, or of the region.
    pub fn join(mut self) -> Result<(), SessionError> {
        let mut outcome = Ok(());
        for worker in self.workers.drain(..) {
            outcome = outcome.and(worker.join().expect("a panic ends the process"));
        }
        // After a failure it is still mounted.
        self.shared.mount.lock().unmount(Unmount::Lazily)?;
        self.end_background();
        let (files, now_ns) = (&self.service.files, clock::now_ns());
        for number in self.service.lives.take_orphans() {
            // What is not released now is deleted at the next start.
            let _ = files.execute(now_ns, &Operation::Release { number });
        }
        background::publish_all(&self.service, &self.publisher)?;
        files.heap().mark_slabs(1).map_err(FsError::Heap)?;
        Ok(outcome?)
    }

    /// Ends the background threads, and libraries before.
    fn end_background(&mut self) {
        self.shared.stop_workers();
        if let Some(mut libraries) = self.libraries.take() {
            libraries.end();
        }
        self.service.rounds.stop();
        if let Some(keeper) = self.keeper.take() {
            keeper.join().expect("a panic ends the process");
        }
        if let Some(publishing) = self.publishing.take() {
            publishing.join().expect("a panic ends the process");
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.end_background();
    }
}

/// What libraries link to, or why they cannot.
fn link(
    files: &Arc<Files>,
    publisher: &Arc<Mutex<Publisher>>,
    device: &Device,
    settings: &Settings,
    point: &Path,
) -> Result<Arc<Link>, Reason> {
    // Without a socket nobody asks.
    let socket = settings.socket.as_deref().ok_or(Reason::Medium)?;
    if settings.writeback {
        return Err(Reason::WriteBack);
    }
    if settings.sync == SyncMode::Always {
        return Err(Reason::Always);
    }
    let failed = |error: io::Error| {
        tracing::warn!(%error, "libraries cannot be served: they use the mount");
        Reason::Medium
    };
    let region = files.heap().media().share().ok_or(Reason::Medium)?.map_err(failed)?;
    let notifier = device.clone_queue().map_err(failed)?;
    Ok(Arc::new(Link::new(Arc::clone(files), Arc::clone(publisher), notifier, region, (socket, point))))
}

impl Shared {
    fn stop_workers(&self) {
        // A full counter is readable, too.
        let _ = rustix::io::write(&self.stop, &1_u64.to_le_bytes());
    }
}

impl Stopper {
    /// Unmounts. Programs that still use the mount lose it, after some seconds.
    pub fn stop(&self) {
        let mut mount = self.shared.mount.lock();
        match mount.unmount(Unmount::WhenIdle) {
            Ok(()) => return,
            Err(MountError::Busy { point }) => tracing::warn!(
                "{}: programs still use it; it is detached, and their files end in {} s",
                point.display(),
                LINGER.as_secs()
            ),
            Err(error) => tracing::warn!(%error, "it is detached instead"),
        }
        write_back(&self.shared.point);
        if let Err(error) = mount.unmount(Unmount::Lazily) {
            tracing::error!(%error, "it stays mounted, without a server");
        }
        drop(mount);
        let until = Instant::now() + LINGER;
        while Instant::now() < until && self.shared.serving.load(Ordering::Acquire) > 0 {
            std::thread::sleep(LINGER_STEP);
        }
        self.shared.stop_workers();
    }
}

/// Writes back what the kernel keeps, as far as it can be reached.
fn write_back(point: &Path) {
    if let Ok(directory) = std::fs::File::open(point)
        && let Err(error) = sys::sync_file_system(directory.as_fd())
    {
        tracing::warn!(%error, "what the kernel keeps is not written back");
    }
}

/// What is asked of the kernel. It keeps names, attributes and data until it changes them itself. Locks are its own.
fn wanted(settings: &Settings) -> Wanted {
    use Feature as F;
    let default = Wanted { max_write: WRITE_BYTES_MAX, ..Wanted::default() };
    let features = default
        .features
        // There is no OPEN that could truncate.
        .without(&[F::AtomicOTrunc, F::AutoInvalData, F::CreateSuppGroup, F::HasExpireOnly])
        .with(&[F::NoOpenSupport, F::NoOpendirSupport, F::HandleKillprivV2, F::PosixAcl, F::DontMask]);
    let features = match settings.writeback {
        true => features.with(&[F::WritebackCache]),
        false => features,
    };
    Wanted { features, ..default }
}
