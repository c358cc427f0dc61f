//! `landfall serve --files`: the mount of the files in the server's region. The server keeps the heap for both.

use crate::fs::socket;
use landfall_chain_io::{Node, Role};
use landfall_fs::{FilePart, FsError, Imported, Operation};
use landfall_fs_io::{Keeper, Keeping, Session, SessionError, Settings, Values};
use landfall_fuse::{MountOptions, OptionError};
use landfall_heap::Item;
use landfall_server::files::FilesMount;
use landfall_server::shared::{Shared, now_ns};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// How often a node of a chain looks whether it is the first one.
const ROLE_EVERY: Duration = Duration::from_millis(50);

/// Why the files are not mounted, or not left in good order.
#[derive(Debug, thiserror::Error)]
pub(super) enum FilesError {
    #[error(transparent)]
    Option(#[from] OptionError),
    #[error("--files-options: the option `{name}` is not known here")]
    UnknownOption { name: String },
    #[error("{}: {source}", point.display())]
    Session { point: PathBuf, source: SessionError },
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
    #[error("files without a name cannot be deleted: {0}")]
    Orphans(#[from] FsError),
}

/// What the server tells the mount.
struct Mount {
    point: PathBuf,
    keeping: Keeping,
    values: Values,
}

impl std::fmt::Debug for Mount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mount").field("keeping", &self.keeping).finish_non_exhaustive()
    }
}

impl FilesMount for Mount {
    fn point(&self) -> &Path {
        &self.point
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

    fn import(&self, path: &[u8], value: &Item<'_>, replaces: bool) -> Result<Imported, FsError> {
        self.values.import(path, value, replaces)
    }

    fn settle(&self, new: &Imported) -> Result<(), FsError> {
        self.values.settle(new)
    }

    fn export(
        &self,
        path: &[u8],
        bytes_max: u64,
        take: &mut dyn FnMut(&[FilePart<'_>]),
    ) -> Result<(), FsError> {
        self.values.export(path, bytes_max, take)
    }
}

/// The mounted files of a server.
pub(super) struct MountedFiles {
    point: PathBuf,
    stopper: Stopper,
    thread: JoinHandle<Result<(), FilesError>>,
}

/// Where a mount is in its life.
enum Stage {
    /// This server is a node of a chain, and not the first one.
    Waiting,
    Mounted(landfall_fs_io::Stopper),
    /// It must not begin any more.
    Over,
}

/// Unmounts the files from another thread.
#[derive(Clone)]
pub(super) struct Stopper {
    stage: Arc<Mutex<Stage>>,
    /// Ends when the files have been unmounted and left in good order.
    ended: Arc<Mutex<Receiver<()>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Stopper {
    /// Unmounts, and returns when everything is published.
    pub(super) fn stop(&self) {
        self.unmount();
        // Nothing is ever sent: the other end is dropped.
        let _ = lock(&self.ended).recv();
    }

    fn unmount(&self) {
        let mounted = match std::mem::replace(&mut *lock(&self.stage), Stage::Over) {
            Stage::Mounted(stopper) => stopper,
            Stage::Waiting | Stage::Over => return,
        };
        mounted.stop();
    }

    /// The files are mounted, unless that is not wanted any more.
    fn note_mounted(&self, session: &Session) {
        let mut stage = lock(&self.stage);
        if matches!(*stage, Stage::Waiting) {
            *stage = Stage::Mounted(session.stopper());
            return;
        }
        drop(stage);
        session.stopper().stop();
    }

    fn is_over(&self) -> bool {
        matches!(*lock(&self.stage), Stage::Over)
    }
}

impl MountedFiles {
    /// Mounts the files of a server's region where its configuration says so. A node of a chain does so when it is the
    /// first one.
    pub(super) fn start(shared: &Arc<Shared>) -> Result<Option<Self>, FilesError> {
        let config = &shared.config;
        let (Some(point), Some(files)) = (&config.files, shared.files.files()) else { return Ok(None) };
        let mount = mount_options(config.files_options.as_deref())?;
        // Libraries make their writes durable on this machine only.
        let socket = if shared.chain.is_some() { None } else { socket(&config.dir) };
        let settings = Settings { mount, socket, ..Settings::default() };
        let workers = config.workers + settings.workers;
        files.heap().reserve_landing(u32::try_from(workers).unwrap_or(u32::MAX));
        let (ends, ended) = sync_channel(1);
        let stage = Arc::new(Mutex::new(Stage::Waiting));
        let stopper = Stopper { stage, ended: Arc::new(Mutex::new(ended)) };
        let life =
            Life { shared: Arc::clone(shared), point: point.clone(), settings, stopper: stopper.clone() };
        let session = if shared.chain.is_some() { None } else { Some(life.mount()?) };
        let follow = move || {
            let outcome = life.run(session);
            drop(ends);
            outcome
        };
        let thread = std::thread::Builder::new().name("files".into()).spawn(follow);
        Ok(Some(Self { point: point.clone(), stopper, thread: thread.map_err(FilesError::Thread)? }))
    }

    /// The mountpoint.
    pub(super) fn point(&self) -> &Path {
        &self.point
    }

    pub(super) fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Unmounts, after the server has stopped, unless that is done.
    pub(super) fn end(self) -> Result<(), FilesError> {
        self.stopper.stop();
        self.thread.join().expect("a panic ends the process")
    }
}

/// The life of a mount.
struct Life {
    shared: Arc<Shared>,
    point: PathBuf,
    settings: Settings,
    stopper: Stopper,
}

impl Life {
    fn mount(&self) -> Result<Session, FilesError> {
        let failed = |source| FilesError::Session { point: self.point.clone(), source };
        let files = self.shared.files.files().cloned().zip(self.shared.files.take_publisher());
        let files = files.ok_or_else(|| failed(SessionError::NoImage))?;
        let waking = Arc::clone(&self.shared);
        let keeper = Keeper::Program(Box::new(move || waking.wake_maintenance()));
        let session = Session::start_with(files, &self.point, &self.settings, keeper).map_err(failed)?;
        let (point, keeping, values) = (session.point().to_owned(), session.keeping(), session.values());
        self.shared.files.set_mount(Some(Arc::new(Mount { point, keeping, values })));
        self.stopper.note_mounted(&session);
        Ok(session)
    }

    /// Follows the mount to its end. In a chain it begins when this node is the first one.
    fn run(&self, session: Option<Session>) -> Result<(), FilesError> {
        let session = match session {
            Some(session) => session,
            None if !self.wait_to_be_first() => return Ok(()),
            None => match self.release_orphans().and_then(|()| self.mount()) {
                Ok(session) => session,
                Err(error) => {
                    tracing::error!(%error, "this node is the first one, and cannot mount the files: stopping");
                    self.shared.stop();
                    return Err(error);
                }
            },
        };
        tracing::info!(point = %self.point.display(), "the files are mounted");
        let outcome = std::thread::scope(|scope| {
            let watch = self.shared.chain.as_ref().map(|node| scope.spawn(|| self.watch_role(node)));
            let outcome = session.join();
            self.stopper.unmount();
            watch.into_iter().for_each(|watch| watch.thread().unpark());
            outcome
        });
        self.shared.files.set_mount(None);
        match &outcome {
            Ok(()) if self.shared.is_stopping() => {}
            Ok(()) => tracing::warn!("the files are unmounted; keys and logs are served on"),
            Err(error) => tracing::error!(%error, "the mount of the files has failed"),
        }
        outcome.map_err(|source| FilesError::Session { point: self.point.clone(), source })
    }

    fn role(&self) -> Option<Role> {
        self.shared.chain.as_ref().map(|node| node.role())
    }

    /// False if the server stops first.
    fn wait_to_be_first(&self) -> bool {
        while !self.stopper.is_over() && !self.shared.is_stopping() {
            if self.role() == Some(Role::First) {
                return true;
            }
            std::thread::sleep(ROLE_EVERY);
        }
        false
    }

    /// Unmounts when this node is not in the chain any more: what it has may be old.
    fn watch_role(&self, node: &Node) {
        while !self.stopper.is_over() {
            if node.role() == Role::Removed {
                tracing::error!("this node was removed from its chain: the files are unmounted");
                self.stopper.unmount();
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
                match files.execute(i64::try_from(now_ns()).unwrap_or(i64::MAX), &release) {
                    Err(FsError::Wait(_)) => files.sync_all()?,
                    Err(FsError::Backlog) => std::thread::sleep(ROLE_EVERY),
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
