//! Files in the server's region: they are recovered and kept with the keys and the logs. Who mounts them (`fs-io`) is no
//! part of this crate; the program brings both together by [`FilesMount`].

use landfall_fs::{FilePart, Files, FsError, Imported, Publisher, Publishing};
use landfall_heap::{Item, Ticket, Until};
use parking_lot::{Mutex, RwLock};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::Thread;
use std::time::Duration;

/// Id of the writer of the files' log. Workers count from 0; ids from 251 on are those of other writers.
pub(crate) const LOG_WRITER: u8 = 249;
/// Id of the writer that publishes files.
pub(crate) const PUBLISH_WRITER: u8 = 250;

/// The mount of the files, as far as the server has to do with it. Its requests may wait for space: they ask, wake the
/// thread that keeps the heap ([`crate::shared::Shared::wake_maintenance`]), and try again until it has answered.
pub trait FilesMount: Send + Sync + std::fmt::Debug {
    /// How programs come to the files now.
    fn shown(&self) -> FilesShown;

    /// The newest question for space.
    fn asked(&self) -> u64;

    /// True while a question waits for an answer.
    fn is_asked(&self) -> bool;

    /// The heap's thread had nothing to do in a round that it began when `asked` was the newest question.
    fn answer(&self, asked: u64);

    /// The heap's thread has made progress: who waits tries again.
    fn note_progress(&self);

    /// The heap's thread ends: there will be no more space.
    fn end_answers(&self);

    /// Makes files of values, and values of files; `None` where the mount is in another process.
    fn values(&self) -> Option<Arc<dyn FileValues>>;
}

/// How programs come to the files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FilesShown {
    /// By a mount of this process, on this directory: absolute, without symbolic links.
    Mounted(PathBuf),
    /// By mounts of other processes.
    Offloaded {
        /// Where these connect.
        socket: PathBuf,
        /// Those that are served now.
        mounts: Vec<HostSide>,
        /// How long there has been none whose process answers; `None`: there is one, or was none so far.
        away: Option<Duration>,
    },
}

/// A mount of another process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostSide {
    /// The mountpoint.
    pub point: PathBuf,
    /// Whether other mounts are served at the same time.
    pub is_shared: bool,
    /// How long its process has not answered; `None`: it answers.
    pub silent: Option<Duration>,
}

/// Files of values, and values of files.
pub trait FileValues: Send + Sync {
    /// Makes a file of a verified value: both refer to the same bytes. The caller keeps the value's record current
    /// meanwhile. [`Self::settle`] follows, without locks.
    ///
    /// # Errors
    /// [`FsError`]. Nothing is made then.
    fn import(&self, path: &[u8], value: &Item<'_>, replaces: bool) -> Result<Imported, FsError>;

    /// Makes a new file durable, and tells the kernel of it. It blocks.
    ///
    /// # Errors
    /// The medium's.
    fn settle(&self, new: &Imported) -> Result<(), FsError>;

    /// Opens a file, to pass its bytes on. It blocks, and is called without locks.
    ///
    /// # Errors
    /// [`FsError`].
    fn open(&self, path: &[u8]) -> Result<Box<dyn FileBytes + '_>, FsError>;

    /// Before what had to wait for a batch of the files is tried again, makes the batch durable. It blocks, and is called
    /// without locks.
    ///
    /// # Errors
    /// The medium's.
    fn make_ready(&self, waits: Until) -> Result<(), FsError>;
}

/// A file whose bytes are passed on.
pub trait FileBytes {
    /// Passes all bytes, `bytes_max` at most, to `take`, where they are, with the ticket of the batch that makes them durable;
    /// `None`: they are. Their records stay current until `take` returns. Nothing is waited for.
    ///
    /// # Errors
    /// [`FsError`]; `take` was not called then.
    fn pass(
        &self,
        bytes_max: u64,
        take: &mut dyn FnMut(&[FilePart<'_>], Option<Ticket>),
    ) -> Result<(), FsError>;
}

/// The files of the region, if there are any.
#[derive(Debug, Default)]
pub struct RegionFiles {
    files: Option<Arc<Files>>,
    /// Until a mount takes it.
    publisher: Mutex<Option<Publisher>>,
    mount: RwLock<Option<Arc<dyn FilesMount>>>,
    /// In a chain: makes durable what comes from the node before.
    follower: OnceLock<Thread>,
    /// In a chain: publishes that.
    publishing: OnceLock<Thread>,
    /// In a chain: the worker that makes durable what it has received itself, plus one, as long as there is such a thing.
    committer: AtomicUsize,
    /// The workers that can be told of answers, bit by bit: only they make anything durable themselves.
    committers: AtomicU64,
    /// The worker that is told when the node behind has answered, plus one.
    told: Mutex<usize>,
}

impl RegionFiles {
    pub(crate) fn new(files: Arc<Files>, publisher: Publisher) -> Self {
        let publisher = Mutex::new(Some(publisher));
        Self { files: Some(files), publisher, ..Self::default() }
    }

    /// The files; `None` in a region without any.
    pub fn files(&self) -> Option<&Arc<Files>> {
        self.files.as_ref()
    }

    /// From now on what is published gets its bytes in this way.
    pub(crate) fn publish_by(&self, publishing: Publishing) {
        if let Some(publisher) = &mut *self.publisher.lock() {
            publisher.set_publishing(publishing);
        }
    }

    /// What publishes the log of the files, for their mount: once.
    pub fn take_publisher(&self) -> Option<Publisher> {
        self.publisher.lock().take()
    }

    /// Passes what publishes to `act`, unless a mount has taken it.
    pub(crate) fn with_publisher<T>(&self, act: impl FnOnce(&mut Publisher) -> T) -> Option<T> {
        self.publisher.lock().as_mut().map(act)
    }

    pub(crate) fn set_follower(&self, thread: Thread) {
        let _ = self.follower.set(thread);
    }

    /// Something has come from the node before.
    pub(crate) fn wake_follower(&self) {
        self.follower.get().into_iter().for_each(Thread::unpark);
    }

    /// A worker can be told of answers, or cannot.
    pub(crate) fn set_may_commit(&self, worker: usize, may: bool) {
        match may {
            true => self.committers.fetch_or(1 << worker, Ordering::AcqRel),
            false => self.committers.fetch_and(!(1 << worker), Ordering::AcqRel),
        };
    }

    /// A worker has received something that it makes durable itself; false if it cannot.
    pub(crate) fn set_committer(&self, worker: usize) -> bool {
        let may = self.committers.load(Ordering::Acquire) >> worker & 1 != 0;
        if may {
            self.committer.store(worker + 1, Ordering::Release);
        }
        may
    }

    /// The worker that makes something durable, if one does.
    pub(crate) fn committer(&self) -> Option<usize> {
        self.committer.load(Ordering::Acquire).checked_sub(1)
    }

    /// A worker has nothing to make durable any more.
    pub(crate) fn end_committer(&self, worker: usize) {
        let _ = self.committer.compare_exchange(worker + 1, 0, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// From now on the worker that makes something durable is told of the answers, or nobody is: by `tell`, if that is a change.
    ///
    /// # Errors
    /// Those of `tell`: it is called again the next time.
    pub(crate) fn tell<E>(
        &self,
        worker: Option<usize>,
        tell: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        let mut told = self.told.lock();
        let now = worker.map_or(0, |worker| worker + 1);
        if *told != now && (worker.is_none() || self.committer() == worker) {
            // If that fails, nobody is told.
            *told = 0;
            tell()?;
            *told = now;
        }
        Ok(())
    }

    pub(crate) fn set_publishing(&self, thread: Thread) {
        let _ = self.publishing.set(thread);
    }

    /// A chunk of the log is complete.
    pub(crate) fn wake_publishing(&self) {
        self.publishing.get().into_iter().for_each(Thread::unpark);
    }

    /// The files are mounted, or not any more.
    pub fn set_mount(&self, mount: Option<Arc<dyn FilesMount>>) {
        *self.mount.write() = mount;
    }

    /// The mount, while there is one.
    pub fn mount(&self) -> Option<Arc<dyn FilesMount>> {
        self.mount.read().clone()
    }
}
