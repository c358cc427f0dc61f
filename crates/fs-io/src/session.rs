//! A mount, from its beginning to its end.

use crate::aside::Aside;
use crate::background;
use crate::clock;
use crate::common::{Common, Sharing};
use crate::counter::{counter, raise};
use crate::detach::{Detached, LINGER, detach, write_back};
use crate::forget::{Forgetter, Forgetting, Questions};
use crate::household::{HeapKeeper, Household};
use crate::inspect;
use crate::keeping::{Keeper, Keeping};
use crate::landing::{Ahead, Landing};
use crate::ledger::Ledger;
use crate::line::{ConnectionQueue, Line};
use crate::link::{Libraries, Link, Linked, Named, Offered};
use crate::lives::MountId;
use crate::losses::Losses;
use crate::panics::{self, Holder};
use crate::queues::{self, Queues};
use crate::rounds::Rounds;
use crate::service::{Held, Service, SyncMode, Which, Written};
use crate::slices;
use crate::syncs::Syncs;
use crate::sys::Image;
use crate::transport::{DeviceQueue, Transport, TransportKind};
use crate::values::Values;
use crate::worker::Worker;
use landfall_fs::{Files, FsError, InodeNumber, Operation, Publisher};
use landfall_fs_link::Reason;
use landfall_fuse::{
    Device, EPOCH_MINOR, Feature, HandshakeError, Mount, MountError, MountOptions, Negotiated, Notification,
    RingError, Share, Unmount, Wanted, check_point, check_ring, handshake, mount, queue_count, unmount_dead,
};
use landfall_media::RUN_SIZE;
use parking_lot::Mutex;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often it looks.
const LINGER_STEP: Duration = Duration::from_millis(20);
/// Inodes without a name that are deleted with one wait for the log.
const RELEASED_AT_ONCE: usize = 1000;
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
    /// The socket to which libraries in other programs connect (`docs/format/fs-link.md`); `None`: there is none. Nor is
    /// there over io_uring, where a request that waits for a library would hold up those behind it.
    pub socket: Option<PathBuf>,
    /// How requests come and replies go.
    pub transport: TransportKind,
    /// Whether other mounts of a server change the files, too.
    pub sharing: Sharing,
    /// Whether to mount although the mountpoint is not empty, and to say so: a server that takes over from another one must
    /// not be kept from it by what a program has written where nothing was mounted.
    pub hides_files: bool,
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
            transport: TransportKind::default(),
            sharing: Sharing::default(),
            hides_files: false,
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
    /// Environment: there is no FUSE over io_uring here.
    #[error(transparent)]
    Ring(#[from] RingError),
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

/// Checks that files can be mounted on a directory, before a region is opened for them. What a server has left there that
/// has died is unmounted.
///
/// # Errors
/// [`SessionError`] says what is wrong and what to do.
pub fn check_mountpoint(point: &Path, settings: &Settings) -> Result<(), SessionError> {
    if unmount_dead(point, &settings.mount)? {
        tracing::info!(point = %point.display(), "unmounted: the server of an earlier mount has died");
    }
    check_point(point)?;
    if !settings.hides_files && !is_empty(point) {
        return Err(SessionError::NotEmpty(point.to_owned()));
    }
    if settings.transport == TransportKind::Uring {
        check_ring()?;
    }
    Ok(())
}

fn is_empty(point: &Path) -> bool {
    std::fs::read_dir(point).map_or(true, |mut entries| entries.next().is_none())
}

/// A mount that can be served: INIT was answered.
pub(crate) struct Ready {
    pub(crate) mount: Mount,
    /// A queue for each worker; one at least. Over io_uring only what does not come over it comes here.
    pub(crate) queues: Vec<Device>,
    pub(crate) negotiated: Negotiated,
}

impl Ready {
    /// Mounts on `point`, and answers INIT. `stop` is readable when nobody wants the mount any more.
    pub(crate) fn make(
        point: &Path,
        settings: &Settings,
        stop: BorrowedFd<'_>,
    ) -> Result<Self, SessionError> {
        check_mountpoint(point, settings)?;
        if !is_empty(point) {
            let point = point.display();
            tracing::warn!(%point, "not empty: what was written there while nothing was mounted is hidden until the mount ends");
        }
        let (device, mount) = mount(point, &settings.mount)?;
        let negotiated = handshake(&device, &wanted(settings), stop)?;
        let over_ring = negotiated.features.has(Feature::OverIoUring);
        if settings.transport == TransportKind::Uring && !over_ring {
            return Err(RingError::Disabled.into());
        }
        let devices = if over_ring { 1 } else { settings.workers };
        let mut queues = (1..devices).map(|_| device.clone_queue()).collect::<io::Result<Vec<_>>>()?;
        queues.push(device);
        Ok(Self { mount, queues, negotiated })
    }
}

/// A mount that is to be served, and where its requests come from.
pub(crate) struct Lines {
    pub(crate) mount: Mount,
    /// One for each worker; one at least.
    pub(crate) lines: Vec<Line>,
    pub(crate) negotiated: Negotiated,
}

impl From<Ready> for Lines {
    fn from(Ready { mount, queues, negotiated }: Ready) -> Self {
        Self { mount, lines: queues.into_iter().map(Line::Device).collect(), negotiated }
    }
}

/// A mount that another process holds, which goes on when its server dies.
pub(crate) struct Elsewhere {
    pub(crate) memory: Memory,
    /// If it has had a server before: what that has left.
    pub(crate) earlier: Option<Losses>,
    /// A counter (eventfd) that is raised when the mount has ended.
    pub(crate) ended: OwnedFd,
    /// What the holder is asked.
    pub(crate) questions: Arc<Questions>,
    /// The libraries of the server, where there can be any.
    pub(crate) link: Option<Arc<Link>>,
    pub(crate) common: Common,
    pub(crate) which: Which,
}

/// What remembers what was done for a mount that another process holds.
pub(crate) enum Memory {
    /// On this machine: the ledger that its holder keeps.
    Ledger(Arc<Ledger>),
    /// On another machine: the log.
    Log(MountId),
}

/// How a session ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Nobody uses the mount any more.
    Unmount,
    /// The mount waits for the next server.
    Leave,
}

/// What all threads of a session share.
struct Shared {
    point: PathBuf,
    holder: Holder,
    mount: Mutex<Mount>,
    /// Readable when the workers are to end.
    stop: OwnedFd,
    /// A counter (eventfd) that is raised when the last worker has ended, if somebody waits for it.
    ended: Option<OwnedFd>,
    /// Workers that have not ended.
    serving: AtomicUsize,
}

/// What all workers have in common.
#[derive(Clone)]
struct Work {
    syncs: Arc<Syncs>,
    aside: Arc<Aside>,
    negotiated: Negotiated,
    image: Image,
    ahead: Ahead,
}

/// A mount that is served.
pub struct Session {
    shared: Arc<Shared>,
    service: Arc<Service>,
    /// The mount's kernel, if it is on this machine.
    notifier: Option<Arc<Device>>,
    workers: Vec<JoinHandle<io::Result<()>>>,
    publisher: Arc<Mutex<Publisher>>,
    /// The threads that work for this mount only.
    household: Option<Household>,
    /// The thread that commits for requests over io_uring.
    /// Requests that wait for room in the log.
    aside: Arc<Aside>,
    syncing: Option<(Arc<Syncs>, JoinHandle<()>)>,
    /// The libraries of this mount only.
    libraries: Option<Libraries>,
    /// The thread that makes the kernel drop what it keeps.
    forgetting: Option<JoinHandle<()>>,
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
        let socket = settings.socket.clone().filter(|_| settings.transport == TransportKind::Device);
        let settings = &Settings { workers: settings.workers.max(1), socket, ..settings.clone() };
        let stop = counter()?;
        let ready = Ready::make(point, settings, stop.as_fd())?;
        Self::serve((files, Arc::new(Mutex::new(publisher))), ready.into(), (stop, None), (settings, keeper))
    }

    /// Serves a mount. `stop` is readable when the workers are to end. One that another process holds stays mounted, however
    /// the session ends, until [`Self::take_mount`].
    pub(crate) fn serve(
        (files, publisher): (Arc<Files>, Arc<Mutex<Publisher>>),
        mount: Lines,
        (stop, elsewhere): (OwnedFd, Option<Elsewhere>),
        (settings, keeper): (&Settings, Keeper),
    ) -> Result<Self, SessionError> {
        let Lines { mut mount, lines, negotiated } = mount;
        let device = mount.id().and_then(device_of);
        // Its holder unmounts it, or waits for the next server, if this one cannot serve it.
        elsewhere.iter().for_each(|_| mount.leave());
        let image = files.heap().media().image().map(Image::new).ok_or(SessionError::NoImage)?;
        let shares = match negotiated.features.has(Feature::OverIoUring) {
            true => queues::shares(queue_count()?, settings.workers),
            false => Vec::new(),
        };
        let is_kept = matches!(keeper, Keeper::Program(_));
        let heap_keeper = if is_kept { HeapKeeper::Program } else { HeapKeeper::Thread };
        if !is_kept && elsewhere.is_none() {
            let workers = lines.len() + shares.len();
            files.heap().reserve_landing(u32::try_from(workers).unwrap_or(u32::MAX));
        }
        let own = match keeper {
            Keeper::Session => Common::default(),
            Keeper::Program(wake) => Common::with_rounds(Rounds::beside(wake)),
        };
        let notifier = lines.first().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?.device();
        let notifier = notifier.map(Device::clone_queue).transpose()?.map(Arc::new);
        let point = mount.point().to_owned();
        let holder = if elsewhere.is_some() { Holder::Another } else { Holder::This(point.clone()) };
        let is_own = elsewhere.is_none();
        let (ended, earlier, memory, forgetting, common, which, link) = match elsewhere {
            Some(Elsewhere { memory, earlier, ended, questions, link, common, which }) => {
                (Some(ended), earlier, Some(memory), Forgetting::Holder(questions), common, which, link)
            }
            None => {
                let device = notifier.as_ref().ok_or(SessionError::NoImage)?;
                let forgetting = Forgetting::This(device.clone_queue()?);
                (None, None, None, forgetting, own, Which::default(), None)
            }
        };
        let (mount, serving) = (Mutex::new(mount), AtomicUsize::new(0));
        let shared = Arc::new(Shared { point, holder, mount, stop, ended, serving });
        let written = if settings.writeback { Written::Kept } else { Written::Through };
        let forgetter = Arc::new(Forgetter::new(forgetting));
        let named = named(memory.as_ref(), device);
        let linked = named.map(|named| Linked::new(which.mount, named, &forgetter));
        let libraries = match is_own {
            true => libraries((&files, &publisher), &common, (settings, linked.clone()), &shared.holder)?,
            false => None,
        };
        let link = link.or_else(|| libraries.as_ref()?.link().cloned());
        let held = memory.map(|memory| held(&files, memory, earlier.as_ref(), &common));
        let service =
            Service::new(files, common, (settings.sync, written), (link.clone(), forgetter), (held, which));
        let mut session = Self {
            shared,
            service: Arc::new(service),
            notifier,
            workers: Vec::new(),
            publisher,
            household: None,
            aside: Arc::default(),
            syncing: None,
            libraries,
            forgetting: None,
        };
        if is_own {
            let (service, holder) = (&session.service, &session.shared.holder);
            session.household = Some(Household::start(service, &session.publisher, holder, heap_keeper)?);
        }
        session.start_forgetting()?;
        if let (Some(link), Some(linked)) = (link.filter(|_| !is_own), linked) {
            link.add(linked);
        }
        if let Some(earlier) = &earlier {
            take_over(session.notifier.as_deref(), negotiated, earlier)?;
        }
        session.start_workers(lines, shares, negotiated, image)?;
        Ok(session)
    }

    /// From now on the mount ends with the session.
    pub(crate) fn take_mount(&self, mount: Mount) {
        *self.shared.mount.lock() = mount;
    }

    fn start_forgetting(&mut self) -> io::Result<()> {
        let (forgetter, shared) = (Arc::clone(&self.service.forgetter), Arc::clone(&self.shared));
        let forget = move || panics::essential(&shared.holder, || forgetter.run());
        self.forgetting = Some(std::thread::Builder::new().name("forget".into()).spawn(forget)?);
        Ok(())
    }

    fn start_workers(
        &mut self,
        lines: Vec<Line>,
        shares: Vec<Share>,
        negotiated: Negotiated,
        image: Image,
    ) -> Result<(), SessionError> {
        let ahead = if self.service.held.is_some() { Ahead::Mapped } else { Ahead::Nothing };
        let syncs = if shares.is_empty() { Syncs::default() } else { Syncs::by_thread() };
        let work = Work { syncs: Arc::new(syncs), aside: Arc::clone(&self.aside), negotiated, image, ahead };
        if !self.service.is_elsewhere() {
            self.start_aside(&work, lines.len() + shares.len())?;
        }
        if let Some(device) = lines.first().and_then(Line::device)
            && !shares.is_empty()
        {
            self.start_syncing(Arc::clone(&work.syncs))?;
            self.start_rings(device, shares, &work)?;
        }
        for (index, line) in lines.into_iter().enumerate() {
            let (name, work) = (format!("fuse-{index}"), work.clone());
            match line {
                // A worker that found no descriptor in its thread would end the mount.
                Line::Device(device) => {
                    let queue = DeviceQueue::new(device, &self.shared.stop)?;
                    self.start_worker((name, index), work, move |_| Ok(queue))?;
                }
                Line::Connection(stream) => {
                    let queue = ConnectionQueue::new(stream, &self.shared.stop)?;
                    self.start_worker((name, index), work, move |_| Ok(queue))?;
                }
            }
        }
        Ok(())
    }

    /// Starts a worker with the transport that `open` opens in its thread.
    fn start_worker<T: Transport>(
        &mut self,
        (name, queue): (String, usize),
        work: Work,
        open: impl FnOnce(&Shared) -> io::Result<T> + Send + 'static,
    ) -> io::Result<()> {
        let (service, shared) = (Arc::clone(&self.service), Arc::clone(&self.shared));
        let thread = std::thread::Builder::new().name(name);
        shared.serving.fetch_add(1, Ordering::AcqRel);
        let serve = {
            let shared = Arc::clone(&shared);
            move || {
                slices::answer_soon();
                service.held.iter().for_each(|held| held.answer_by_this_thread(queue));
                let Work { syncs, aside, negotiated, image, ahead } = work;
                let heap = Arc::clone(service.files.heap());
                let landing = Landing::new(heap, image, negotiated.frame_bytes(), ahead);
                let transport = open(&shared)?;
                Worker { service, syncs, aside, transport, decoder: negotiated.decoder(), landing }.run()
            }
        };
        let run = move || {
            let outcome = panics::essential(&shared.holder, serve);
            if let Err(error) = &outcome {
                tracing::error!(%error, "a worker fails: the mount ends");
                shared.stop_workers();
            }
            shared.note_end_of_worker();
            outcome
        };
        self.workers.push(thread.spawn(run)?);
        Ok(())
    }

    /// Starts a worker for each share of the queues, and waits until their rings are open. No request comes before.
    fn start_rings(&mut self, device: &Device, shares: Vec<Share>, work: &Work) -> Result<(), SessionError> {
        let (opened, outcomes) = sync_channel(shares.len());
        for (index, share) in shares.into_iter().enumerate() {
            let (device, opened) = (device.clone_queue()?, opened.clone());
            let (heap, negotiated) = (Arc::clone(self.service.files.heap()), work.negotiated);
            // Only the thread that opens a ring may use it.
            let open = move |shared: &Shared| {
                let (queues, outcome) = match Queues::open(&device, share, &negotiated, (heap, &shared.stop))
                {
                    Ok(queues) => (Ok(queues), Ok(())),
                    Err(error) => (Err(io::Error::other(error.to_string())), Err(error)),
                };
                // Whoever started this thread may have given up.
                let _ = opened.send(outcome);
                queues
            };
            self.start_worker((format!("ring-{index}"), index), work.clone(), open)?;
        }
        drop(opened);
        outcomes.into_iter().try_for_each(|outcome| outcome)?;
        Ok(())
    }

    fn start_syncing(&mut self, syncs: Arc<Syncs>) -> io::Result<()> {
        let (service, shared) = (Arc::clone(&self.service), Arc::clone(&self.shared));
        let own = Arc::clone(&syncs);
        let run = move || {
            slices::answer_soon();
            panics::essential(&shared.holder, || own.run(&service));
        };
        self.syncing = Some((syncs, std::thread::Builder::new().name("sync".into()).spawn(run)?));
        Ok(())
    }

    /// Starts threads for requests that wait for room in the log.
    fn start_aside(&mut self, work: &Work, threads: usize) -> io::Result<()> {
        for index in 0..threads {
            let (service, shared) = (Arc::clone(&self.service), Arc::clone(&self.shared));
            let (aside, syncs) = (Arc::clone(&work.aside), Arc::clone(&work.syncs));
            let run = move || {
                service.held.iter().for_each(|held| held.answer_by_this_thread(usize::MAX));
                panics::essential(&shared.holder, || aside.run(&service, &syncs));
            };
            let thread = std::thread::Builder::new().name(format!("aside-{index}")).spawn(run)?;
            self.aside.keep(thread);
        }
        Ok(())
    }

    /// Ends the session from another thread.
    pub fn stopper(&self) -> Stopper {
        Stopper { shared: Arc::clone(&self.shared) }
    }

    /// Shows what the session has done, from another thread.
    pub fn inspector(&self) -> Inspector {
        Inspector { service: Arc::clone(&self.service) }
    }

    /// How the program answers requests that wait for space ([`Keeper::Program`]).
    pub fn keeping(&self) -> Keeping {
        Keeping::new(Arc::clone(&self.service.common.rounds))
    }

    /// Values of other systems in the region as files, and files as values.
    pub fn values(&self) -> Values {
        Values::new(Arc::clone(&self.service), self.notifier.clone())
    }

    /// The mountpoint.
    pub fn point(&self) -> &Path {
        &self.shared.point
    }

    /// Waits until the mount has ended, and leaves the region clean: everything durable, published and marked.
    ///
    /// # Errors
    /// An error of a worker, or of the region.
    pub fn join(self) -> Result<(), SessionError> {
        self.end(End::Unmount)
    }

    /// As [`Self::join`]. The mount may be left to the next server.
    ///
    /// # Errors
    /// As for [`Self::join`].
    pub(crate) fn end(self, end: End) -> Result<(), SessionError> {
        self.end_with(end, || ())
    }

    /// As [`Self::end`]. `at_last` may change the files, when no request does so any more.
    ///
    /// # Errors
    /// As for [`Self::join`].
    pub(crate) fn end_with(mut self, end: End, at_last: impl FnOnce()) -> Result<(), SessionError> {
        let mut outcome = Ok(());
        for worker in self.workers.drain(..) {
            outcome = outcome.and(worker.join().expect("a panic ends the process"));
        }
        if end == End::Unmount {
            self.service.common.locking.end_mount(self.service.mount());
        }
        match end {
            // After a failure it is still mounted.
            End::Unmount => self.shared.mount.lock().unmount(Unmount::Lazily)?,
            End::Leave => self.shared.mount.lock().leave(),
        }
        self.end_background();
        let files = &self.service.files;
        if end == End::Unmount {
            self.forget_ledger();
            for some in self.service.forget_all().chunks(RELEASED_AT_ONCE) {
                // The log's slab may be full. What cannot be deleted is left to the next start.
                let _ = files.sync_all();
                release(files, &self.service.common, some.iter().copied());
            }
        }
        at_last();
        background::publish_all(&self.service, &self.publisher)?;
        files.heap().mark_slabs(1).map_err(FsError::Heap)?;
        Ok(outcome?)
    }

    /// Writes no more to the memory of a holder that this session does not serve any more.
    fn forget_ledger(&self) {
        self.service.ledger().iter().for_each(|ledger| self.service.common.ledgers.remove(ledger));
    }

    /// Ends the background threads, and libraries before.
    fn end_background(&mut self) {
        self.shared.stop_workers();
        for worker in self.workers.drain(..) {
            // There are some only where the session has not begun: that error is reported.
            let _ = worker.join();
        }
        self.aside.end();
        if let Some((syncs, thread)) = self.syncing.take() {
            syncs.end();
            thread.join().expect("a panic ends the process");
        }
        self.service.libraries().into_iter().for_each(|link| link.remove(self.service.mount()));
        self.libraries = None;
        self.service.forgetter.close();
        if let Some(forgetting) = self.forgetting.take() {
            forgetting.join().expect("a panic ends the process");
        }
        self.household = None;
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.end_background();
        // Of a session that has not begun, too.
        self.forget_ledger();
    }
}

/// What libraries call a mount, if there can be any.
fn named(memory: Option<&Memory>, device: Option<u64>) -> Option<Named> {
    match memory {
        Some(Memory::Log(mount)) => Some(Named::Machine(*mount)),
        _ => device.map(Named::Here),
    }
}

/// Serves libraries, if there is a socket for them.
pub(crate) fn libraries(
    (files, publisher): (&Arc<Files>, &Arc<Mutex<Publisher>>),
    common: &Common,
    (settings, linked): (&Settings, Option<Linked>),
    holder: &Holder,
) -> io::Result<Option<Libraries>> {
    let Some(socket) = &settings.socket else { return Ok(None) };
    let refused = match settings.sync {
        _ if settings.writeback => Some(Reason::WriteBack),
        SyncMode::Always => Some(Reason::Always),
        SyncMode::Fsync => None,
    };
    let mounts = linked.into_iter().collect();
    Libraries::start(socket, Offered { files, publisher, holders: &common.leases, refused, mounts }, holder)
}

/// `st_dev` of the mount that the kernel's table calls `id`. It is not asked of the mount: a server that waits for its own
/// answer cannot be killed.
pub(crate) fn device_of(id: &str) -> Option<u64> {
    let (major, minor) = id.split_once(':')?;
    Some(libc::makedev(major.parse().ok()?, minor.parse().ok()?))
}

/// What a session knows of a mount that another process holds.
fn held(files: &Files, memory: Memory, earlier: Option<&Losses>, common: &Common) -> Held {
    let ledger = match memory {
        Memory::Ledger(ledger) => ledger,
        Memory::Log(mount) => return Held::Elsewhere(mount),
    };
    // The mount's kernel may come to know what was made before it came, and is not durable yet: no such number is given
    // again.
    ledger.note_number(files.take_number());
    common.ledgers.add(Arc::clone(&ledger));
    Held::Here { ledger, losses: earlier.cloned() }
}

/// Takes over from a server that has died: the kernel delivers again what that one has not answered, and forgets names if
/// changes are lost. The holder makes it drop what it keeps of their inodes.
fn take_over(device: Option<&Device>, negotiated: Negotiated, lost: &Losses) -> io::Result<()> {
    let Some(device) = device else { return Ok(()) };
    if negotiated.features.has(Feature::HasResend) {
        device.notify(&Notification::resend())?;
    } else {
        tracing::warn!(
            "this kernel delivers no request twice (Linux 6.9 does): who waits for one that the dead server had \
             received waits until the mount ends"
        );
    }
    let inodes = lost.inodes();
    if inodes == Some(0) {
        return Ok(());
    }
    tracing::warn!(
        inodes = inodes.unwrap_or(0),
        are_more = inodes.is_none(),
        "what the dead server had not made durable is lost, as after a power loss"
    );
    if negotiated.minor >= EPOCH_MINOR {
        device.notify(&Notification::expire_names())?;
    } else {
        tracing::warn!(
            "this kernel cannot forget all names (Linux 6.16 can): some that are lost may be shown"
        );
    }
    Ok(())
}

/// Deletes inodes without a name. What cannot be deleted now is left to the thread that publishes, as long as there are
/// other mounts, and to the next start.
pub(crate) fn release(files: &Files, common: &Common, orphans: impl IntoIterator<Item = InodeNumber>) {
    let now_ns = clock::now_ns();
    let is_left =
        |number: &InodeNumber| files.execute(now_ns, &Operation::Release { number: *number }).is_err();
    let left: Vec<InodeNumber> = orphans.into_iter().filter(is_left).collect();
    common.unreleased.lock().extend(left);
}

impl Shared {
    fn note_end_of_worker(&self) {
        let is_last = self.serving.fetch_sub(1, Ordering::AcqRel) == 1;
        self.ended.iter().filter(|_| is_last).for_each(raise);
    }

    fn stop_workers(&self) {
        raise(&self.stop);
    }
}

impl Stopper {
    /// Unmounts. Programs that still use the mount lose it, after some seconds.
    pub fn stop(&self) {
        if detach(&mut self.shared.mount.lock(), write_back) == Detached::Idle {
            return;
        }
        let until = Instant::now() + LINGER;
        while Instant::now() < until && self.shared.serving.load(Ordering::Acquire) > 0 {
            std::thread::sleep(LINGER_STEP);
        }
        self.shared.stop_workers();
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
        .with(&[F::NoOpenSupport, F::NoOpendirSupport, F::HandleKillprivV2, F::PosixAcl, F::DontMask])
        .with(&[F::HasResend]);
    let features = match settings.writeback {
        true => features.with(&[F::WritebackCache]),
        false => features,
    };
    let features = match settings.sharing {
        // What one kernel would keep itself, locks as well as attributes, others would not see.
        Sharing::Shared => features.without(&[F::DoReaddirplus]).with(&[F::PosixLocks, F::FlockLocks]),
        Sharing::Alone => features,
    };
    let features = match settings.transport {
        TransportKind::Uring => features.with(&[F::OverIoUring]),
        TransportKind::Device => features,
    };
    Wanted { features, ..default }
}
