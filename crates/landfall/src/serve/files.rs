//! The files in the server's region, for programs: mounted by this process (`landfall serve --files`), or served for
//! mounts of others (`--files-offload`). The server keeps the heap for all.

use super::offload::{self, Door, OffloadError};
use crate::nvdimm::{self, NvdimmError};
use crate::sockets;
use landfall_chain::Replicate;
use landfall_chain_io::{Node, Role};
use landfall_fs::{FilePart, FsError, Imported, Operation};
use landfall_fs_io::{
    Before, Beside, Door as NetworkDoor, DoorError, Keeper, Keeping, OpenValue, ServedAt, ServerStopper,
    Session, SessionError, Settings, SyncMode, Values, check_mountpoint, check_socket,
};
use landfall_fuse::{MountOptions, OptionError};
use landfall_heap::{Item, Ticket, Until};
use landfall_media::Media;
use landfall_server::config::Config;
use landfall_server::files::{FileBytes, FileValues, FilesMount, FilesShown};
use landfall_server::shared::{Shared, now_ns};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// How often a node of a chain looks whether it is the first one.
const ROLE_EVERY: Duration = Duration::from_millis(50);

/// Why programs do not get at the files, or why they are not left in good order.
#[derive(Debug, thiserror::Error)]
pub(super) enum FilesError {
    #[error(transparent)]
    Option(#[from] OptionError),
    #[error("--files-options: the option `{name}` is not known here")]
    UnknownOption { name: String },
    #[error("{}: {source}", point.display())]
    Session { point: PathBuf, source: SessionError },
    #[error("--files-offload: {0}")]
    Offload(#[from] OffloadError),
    #[error("--files-listen: {0}")]
    Listen(#[from] DoorError),
    #[error("--nvdimm: {0}")]
    Nvdimm(#[from] NvdimmError),
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
    #[error("files without a name cannot be deleted: {0}")]
    Orphans(#[from] FsError),
}

/// What the server tells who serves the files.
struct Mount {
    keeping: Keeping,
    shown: Box<dyn Fn() -> FilesShown + Send + Sync>,
    values: Option<Arc<dyn FileValues>>,
}

impl std::fmt::Debug for Mount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mount").field("keeping", &self.keeping).finish_non_exhaustive()
    }
}

impl FilesMount for Mount {
    fn shown(&self) -> FilesShown {
        (self.shown)()
    }

    fn asked(&self) -> u64 {
        self.keeping.asked()
    }

    fn is_asked(&self) -> bool {
        self.keeping.is_asked()
    }

    fn answer(&self, asked: u64) {
        self.keeping.answer(asked);
    }

    fn note_progress(&self) {
        self.keeping.note_progress();
    }

    fn end_answers(&self) {
        self.keeping.end();
    }

    fn values(&self) -> Option<Arc<dyn FileValues>> {
        self.values.clone()
    }
}

/// Files of values, and values of files, of a mount of this process.
struct ValuesOfMount(Values);

impl FileValues for ValuesOfMount {
    fn import(&self, path: &[u8], value: &Item<'_>, replaces: bool) -> Result<Imported, FsError> {
        self.0.import(path, value, replaces)
    }

    fn settle(&self, new: &Imported) -> Result<(), FsError> {
        self.0.settle(new)
    }

    fn open(&self, path: &[u8]) -> Result<Box<dyn FileBytes + '_>, FsError> {
        Ok(Box::new(BytesOfFile(self.0.open(path)?)))
    }

    fn make_ready(&self, waits: Until) -> Result<(), FsError> {
        self.0.make_ready(waits)
    }
}

/// The bytes of a file of that mount.
struct BytesOfFile<'v>(OpenValue<'v>);

impl FileBytes for BytesOfFile<'_> {
    fn pass(
        &self,
        bytes_max: u64,
        take: &mut dyn FnMut(&[FilePart<'_>], Option<Ticket>),
    ) -> Result<(), FsError> {
        self.0.pass(bytes_max, take)
    }
}

/// Where programs come to the files.
#[derive(Clone, Debug)]
enum Place {
    /// A mount of this process, on this directory.
    Mountpoint(PathBuf),
    /// Mounts of other processes: see [`ServedAt`].
    Socket { socket: PathBuf, notes: PathBuf },
}

impl Place {
    fn path(&self) -> &Path {
        match self {
            Self::Mountpoint(path) | Self::Socket { socket: path, .. } => path,
        }
    }
}

/// Serves the files to programs.
enum Serving {
    Mount(Box<Session>),
    Mounts(Box<landfall_fs_io::Server>),
}

impl Serving {
    fn ender(&self) -> Ender {
        match self {
            Self::Mount(session) => Ender::Mount(session.stopper()),
            Self::Mounts(server) => Ender::Mounts(server.stopper()),
        }
    }

    /// Serves until the end, and leaves everything in good order.
    fn join(self, point: &Path) -> Result<(), FilesError> {
        match self {
            Self::Mount(session) => {
                session.join().map_err(|source| FilesError::Session { point: point.to_owned(), source })
            }
            Self::Mounts(server) => Ok(server.run().map_err(OffloadError::from)?),
        }
    }
}

/// Ends what serves the files.
enum Ender {
    Mount(landfall_fs_io::Stopper),
    Mounts(ServerStopper),
}

impl Ender {
    fn end(&self) {
        match self {
            Self::Mount(stopper) => stopper.stop(),
            Self::Mounts(stopper) => stopper.stop(),
        }
    }
}

/// The files of a server, for programs.
pub(super) struct ServedFiles {
    place: Place,
    /// Where mounts on other machines connect.
    door: Option<NetworkDoor>,
    stopper: Stopper,
    thread: JoinHandle<Result<(), FilesError>>,
}

/// Whether the files are served.
enum Stage {
    /// This server is a node of a chain, and not the first one.
    Waiting,
    Served(Ender),
    /// It must not begin any more.
    Over,
}

/// Ends the serving of files from another thread.
#[derive(Clone)]
pub(super) struct Stopper {
    stage: Arc<Mutex<Stage>>,
    /// Ends when nobody serves the files any more, and they were left in good order.
    ended: Arc<Mutex<Receiver<()>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Stopper {
    /// Unmounts, or leaves the mounts to the next server, and returns when everything is published.
    pub(super) fn stop(&self) {
        self.begin();
        // Nothing is ever sent: the other end is dropped.
        let _ = lock(&self.ended).recv();
    }

    fn begin(&self) {
        let ender = match std::mem::replace(&mut *lock(&self.stage), Stage::Over) {
            Stage::Served(ender) => ender,
            Stage::Waiting | Stage::Over => return,
        };
        ender.end();
    }

    /// The files are served, unless that is not wanted any more.
    fn note_served(&self, ender: Ender) {
        let mut stage = lock(&self.stage);
        if matches!(*stage, Stage::Waiting) {
            *stage = Stage::Served(ender);
            return;
        }
        drop(stage);
        ender.end();
    }

    fn is_over(&self) -> bool {
        matches!(*lock(&self.stage), Stage::Over)
    }
}

/// Checks that the files can be served as the configuration says, before the region is created or changed: `media` is that
/// of one that exists.
pub(super) fn check(config: &Config, media: Option<&dyn Media>) -> Result<(), FilesError> {
    let mount = mount_options(config.files_options.as_deref())?;
    if let Some(point) = &config.files {
        let settings = Settings { mount, hides_files: config.chain.is_some(), ..Settings::default() };
        check_mountpoint(point, &settings)
            .map_err(|source| FilesError::Session { point: point.clone(), source })?;
    }
    if let Some(socket) = &config.files_offload {
        check_socket(socket, &config.dir).map_err(OffloadError::from)?;
    }
    if let Some(address) = config.files_listen {
        NetworkDoor::check(address, config.password.as_ref().map(String::as_bytes))?;
    }
    if config.nvdimm {
        media.map_or(Ok(()), nvdimm::check)?;
    }
    Ok(())
}

impl ServedFiles {
    /// Serves the files of a server's region where its configuration says so. A node of a chain does so when it is the
    /// first one.
    pub(super) fn start(shared: &Arc<Shared>) -> Result<Option<Self>, FilesError> {
        let config = &shared.config;
        let place = match (&config.files_offload, &config.files) {
            (Some(socket), _) => {
                let notes = sockets::notes_of(&config.dir, socket);
                Place::Socket { socket: socket.clone(), notes }
            }
            (None, Some(point)) => Place::Mountpoint(point.clone()),
            (None, None) => return Ok(offload::forget(config).map(|()| None)?),
        };
        let Some(files) = shared.files.files() else { return Ok(None) };
        if matches!(place, Place::Mountpoint(_)) {
            offload::forget(config)?;
        }
        let mount = mount_options(config.files_options.as_deref())?;
        let socket = sockets::of_libraries(&config.dir);
        let of_machine = socket.clone().filter(|_| config.nvdimm);
        if config.nvdimm {
            nvdimm::offer(files)?;
        }
        let is_sync = config.chain.as_ref().is_some_and(|chain| chain.replicate == Replicate::Sync);
        let sync = if is_sync { SyncMode::Always } else { SyncMode::default() };
        let hides_files = shared.chain.is_some();
        let settings = Settings { mount, sync, socket, hides_files, ..Settings::default() };
        let workers = config.workers + settings.workers;
        files.heap().reserve_landing(u32::try_from(workers).unwrap_or(u32::MAX));
        let (ends, ended) = sync_channel(1);
        let stage = Arc::new(Mutex::new(Stage::Waiting));
        let stopper = Stopper { stage, ended: Arc::new(Mutex::new(ended)) };
        let life =
            Life { shared: Arc::clone(shared), place: place.clone(), settings, stopper: stopper.clone() };
        let serving = if shared.chain.is_some() { None } else { Some(life.serve(Before::ThisMachine)?) };
        let door = match (&place, config.files_listen) {
            (Place::Socket { socket, .. }, Some(address)) => {
                let password = config.password.as_ref().map(|password| password.clone().into_bytes());
                Some(NetworkDoor::open(address, (socket.clone(), of_machine), password)?)
            }
            _ => None,
        };
        let follow = move || {
            let outcome = life.run(serving);
            drop(ends);
            outcome
        };
        let thread = std::thread::Builder::new().name("files".into()).spawn(follow);
        Ok(Some(Self { place, door, stopper, thread: thread.map_err(FilesError::Thread)? }))
    }

    /// The mountpoint, or the socket of mounts.
    pub(super) fn path(&self) -> &Path {
        self.place.path()
    }

    /// Where mounts on other machines connect.
    pub(super) fn listens(&self) -> Option<SocketAddr> {
        self.door.as_ref().map(NetworkDoor::address)
    }

    pub(super) fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Ends the serving, after the server has stopped, unless that is done.
    pub(super) fn end(self) -> Result<(), FilesError> {
        self.stopper.stop();
        self.thread.join().expect("a panic ends the process")
    }
}

/// The time in which files are served, and that before it.
struct Life {
    shared: Arc<Shared>,
    place: Place,
    settings: Settings,
    stopper: Stopper,
}

impl Life {
    fn serve(&self, before: Before) -> Result<Serving, FilesError> {
        let failed = |source| FilesError::Session { point: self.place.path().to_owned(), source };
        let files = self.shared.files.files().cloned().zip(self.shared.files.take_publisher());
        let files = files.ok_or_else(|| failed(SessionError::NoImage))?;
        let waking = Arc::clone(&self.shared);
        let keeper = Keeper::Program(Box::new(move || waking.wake_maintenance()));
        let (serving, mount) = match &self.place {
            Place::Mountpoint(point) => {
                let session = Session::start_with(files, point, &self.settings, keeper).map_err(failed)?;
                let (point, keeping, values) =
                    (session.point().to_owned(), session.keeping(), ValuesOfMount(session.values()));
                let shown = Box::new(move || FilesShown::Mounted(point.clone()));
                (Serving::Mount(Box::new(session)), Mount { keeping, shown, values: Some(Arc::new(values)) })
            }
            Place::Socket { socket, notes } => {
                let beside = Beside { keeper, workers: self.shared.config.workers, before };
                let server =
                    offload::start(files, ServedAt { socket, notes }, self.settings.clone(), beside)?;
                if self.shared.config.files_listen.is_some() {
                    server.admit_elsewhere();
                }
                let shown = offload::shows(socket.clone(), server.current());
                let keeping = server.keeping();
                (Serving::Mounts(Box::new(server)), Mount { keeping, shown, values: None })
            }
        };
        self.shared.files.set_mount(Some(Arc::new(mount)));
        self.stopper.note_served(serving.ender());
        Ok(serving)
    }

    /// Follows the serving to its end. In a chain it begins when this node is the first one.
    fn run(&self, serving: Option<Serving>) -> Result<(), FilesError> {
        let serving = match serving {
            Some(serving) => serving,
            None => match self.take_over() {
                Ok(Some(serving)) => serving,
                Ok(None) => return Ok(()),
                Err(error) => {
                    tracing::error!(%error, "this node cannot serve the files: stopping");
                    self.shared.stop();
                    return Err(error);
                }
            },
        };
        let path = self.place.path().display();
        match &serving {
            Serving::Mount(_) => tracing::info!(point = %path, "the files are mounted"),
            Serving::Mounts(_) => tracing::info!(socket = %path, "mounts are served"),
        }
        let (outcome, was_told) = std::thread::scope(|scope| {
            let watch = self.shared.chain.as_ref().map(|node| scope.spawn(|| self.watch_role(node)));
            let outcome = serving.join(self.place.path());
            let was_told = self.stopper.is_over();
            self.stopper.begin();
            watch.into_iter().for_each(|watch| watch.thread().unpark());
            (outcome, was_told)
        });
        self.shared.files.set_mount(None);
        let is_removed = self.shared.chain.as_ref().is_some_and(|node| node.role() == Role::Removed);
        match &outcome {
            // It starts anew, and what nobody has acknowledged goes.
            _ if is_removed => {
                let left = outcome.err().map(tracing::field::display);
                tracing::warn!(
                    left,
                    "files are not served any more; what the whole chain has is durable there"
                );
                return Ok(());
            }
            Ok(()) if was_told || self.shared.is_stopping() => {}
            Ok(()) => tracing::warn!("files are not served any more; keys and logs are"),
            Err(error) => tracing::error!(%error, "serving the files has failed"),
        }
        outcome
    }

    /// Waits until this node is the first one, and serves the files. `None` if the server stops first.
    fn take_over(&self) -> Result<Option<Serving>, FilesError> {
        let Some(node) = &self.shared.chain else { return Ok(None) };
        let mut door = match &self.place {
            Place::Mountpoint(_) => None,
            Place::Socket { socket, notes } => Some(Door::new(ServedAt { socket, notes })),
        };
        while !self.stopper.is_over() && !self.shared.is_stopping() {
            if node.role() == Role::First {
                // Mounts that go on have open files without a name.
                let before = match &door {
                    Some(door) if !door.has_forgotten => Before::ThisMachine,
                    _ => Before::Another,
                };
                // It removes its socket, before the server binds it.
                drop(door);
                if before == Before::Another {
                    self.release_orphans()?;
                }
                return self.serve(before).map(Some);
            }
            match &mut door {
                None => std::thread::sleep(ROLE_EVERY),
                Some(door) => door.refuse(node, ROLE_EVERY)?,
            }
        }
        Ok(None)
    }

    /// Ends the serving when this node is not in the chain any more: what it has may be old.
    fn watch_role(&self, node: &Node) {
        while !self.stopper.is_over() {
            if node.role() == Role::Removed {
                tracing::error!("this node was removed from its chain: files are served no more");
                self.stopper.begin();
            }
            std::thread::park_timeout(ROLE_EVERY);
        }
    }

    /// Deletes files without a name: the programs that had them open were at another node, or are gone.
    fn release_orphans(&self) -> Result<(), FilesError> {
        let Some(files) = self.shared.files.files() else { return Ok(()) };
        for number in files.orphans()? {
            let release = Operation::Release { number };
            loop {
                // The next start deletes them.
                if self.stopper.is_over() || self.shared.is_stopping() {
                    return Ok(());
                }
                match files.execute(i64::try_from(now_ns()).unwrap_or(i64::MAX), &release) {
                    Err(FsError::Backlog | FsError::Wait(Until::Space)) => std::thread::sleep(ROLE_EVERY),
                    Err(FsError::Wait(_)) => files.sync_all()?,
                    done => break done?,
                }
            }
        }
        Ok(())
    }
}

fn mount_options(text: Option<&str>) -> Result<MountOptions, FilesError> {
    let mut mount = MountOptions::default();
    text.map_or(Ok(()), |text| mount.apply(text))?;
    match mount.other.pop() {
        Some(other) => Err(FilesError::UnknownOption { name: other.name }),
        None => Ok(mount),
    }
}
