//! `landfall serve --files`: the mount of the files in the server's region. The server keeps the heap for both.

use crate::fs::socket;
use landfall_fs::{FilePart, FsError, Imported};
use landfall_fs_io::{Keeper, Keeping, Session, SessionError, Settings, Values};
use landfall_fuse::{MountOptions, OptionError};
use landfall_heap::Item;
use landfall_server::files::FilesMount;
use landfall_server::shared::Shared;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

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
    thread: JoinHandle<Result<(), SessionError>>,
}

/// Unmounts the files from another thread.
#[derive(Clone)]
pub(super) struct Stopper {
    stopper: landfall_fs_io::Stopper,
    /// Ends when the files have been unmounted and left in good order.
    ended: Arc<Mutex<Receiver<()>>>,
}

impl Stopper {
    /// Unmounts, and returns when everything is published.
    pub(super) fn stop(&self) {
        self.stopper.stop();
        let ended = self.ended.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        // Nothing is ever sent: the other end is dropped.
        let _ = ended.recv();
    }
}

impl MountedFiles {
    /// Mounts the files of a server's region where its configuration says so.
    pub(super) fn start(shared: &Arc<Shared>) -> Result<Option<Self>, FilesError> {
        let config = &shared.config;
        let Some(point) = &config.files else { return Ok(None) };
        let Some((files, publisher)) = shared.files.files().cloned().zip(shared.files.take_publisher())
        else {
            return Ok(None);
        };
        let mount = mount_options(config.files_options.as_deref())?;
        let settings = Settings { mount, socket: socket(&config.dir), ..Settings::default() };
        let workers = config.workers + settings.workers;
        files.heap().reserve_landing(u32::try_from(workers).unwrap_or(u32::MAX));
        let waking = Arc::clone(shared);
        let keeper = Keeper::Program(Box::new(move || waking.wake_maintenance()));
        let session = Session::start_with((files, publisher), point, &settings, keeper)
            .map_err(|source| FilesError::Session { point: point.clone(), source })?;
        let (point, keeping, values) = (session.point().to_owned(), session.keeping(), session.values());
        shared.files.set_mount(Some(Arc::new(Mount { point, keeping, values })));
        Self::follow(shared, session).map(Some)
    }

    /// Follows the session to its end.
    fn follow(shared: &Arc<Shared>, session: Session) -> Result<Self, FilesError> {
        let (ends, ended) = sync_channel(1);
        let stopper = Stopper { stopper: session.stopper(), ended: Arc::new(Mutex::new(ended)) };
        let (point, shared) = (session.point().to_owned(), Arc::clone(shared));
        let follow = move || {
            let outcome = session.join();
            shared.files.set_mount(None);
            match &outcome {
                Ok(()) if shared.is_stopping() => {}
                Ok(()) => tracing::warn!("the files are unmounted; keys and logs are served on"),
                Err(error) => tracing::error!(%error, "the mount of the files has failed"),
            }
            drop(ends);
            outcome
        };
        let thread = std::thread::Builder::new().name("files".into()).spawn(follow);
        Ok(Self { point, stopper, thread: thread.map_err(FilesError::Thread)? })
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
        let outcome = self.thread.join().expect("a panic ends the process");
        outcome.map_err(|source| FilesError::Session { point: self.point, source })
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
