//! Opens the store: finds or creates the region, recovers it on all cores, and logs the findings.

use crate::config::Config;
use crate::files::{LOG_WRITER, PUBLISH_WRITER, RegionFiles};
use crate::shared::now_ns;
use landfall_chain_io::{NodeError, STATE_NAME, membership};
use landfall_fs::{FilesRecovery, FsError, LeftLog, OpenFiles, Orphans};
use landfall_heap::{FEATURE_FILES, Heap, HeapError, NewRegion, Region, Tenant};
use landfall_kv::{Engine, KvError, Recovered, Recovery};
use landfall_media::{Extent, Media, MediaError, MediaKind, OpenOptions, RUN_SIZE};
use landfall_wal::{LogRecovery, Logs, WalError};
use std::fs::DirBuilder;
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Name of the region in its directory.
pub const REGION_NAME: &str = "region.lf";

/// Shards per worker: enough that two workers seldom need one lock.
const SHARDS_PER_WORKER: usize = 16;
/// Permissions of a new root directory of files.
const ROOT_MODE: u32 = 0o755;
/// Interval at which long work logs its progress.
const PROGRESS_EVERY: Duration = Duration::from_secs(1);

/// Why the store cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Environment: the directory cannot be created.
    #[error("{}: cannot create the directory: {source}", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The region is one of several with the same data, and these would differ.
    #[error(
        "{}: this region is the node {node} of the chain {chain}: give --chain, and --node {node}. To take it out of the chain \
         for good, remove the node from the chain and the file {} from its directory",
        dir.display(),
        dir.join(STATE_NAME).display()
    )]
    OfChain {
        /// The region's directory.
        dir: PathBuf,
        /// The chain.
        chain: String,
        /// The node.
        node: String,
    },
    /// It is not known whether it is one.
    #[error(transparent)]
    State(NodeError),
    /// From the medium.
    #[error(transparent)]
    Media(#[from] MediaError),
    /// From the heap.
    #[error("{}: {source}", path.display())]
    Heap {
        /// The region.
        path: PathBuf,
        /// The cause.
        source: HeapError,
    },
    /// From the engine.
    #[error("{}: {source}", path.display())]
    Kv {
        /// The region.
        path: PathBuf,
        /// The cause.
        source: KvError,
    },
    /// From the logs.
    #[error("{}: {source}", path.display())]
    Wal {
        /// The region.
        path: PathBuf,
        /// The cause.
        source: WalError,
    },
    /// From the files.
    #[error("{}: {source}", path.display())]
    Files {
        /// The region.
        path: PathBuf,
        /// The cause.
        source: FsError,
    },
    /// Environment: no source of randomness is available.
    #[error("cannot read random bytes: {0}")]
    Random(io::Error),
}

/// An open store.
#[derive(Debug)]
pub struct Store {
    /// The engine.
    pub engine: Engine,
    /// The logs.
    pub logs: Logs,
    /// The files, if there are any.
    pub files: RegionFiles,
    /// Findings of recovery.
    pub recovered: Recovered,
    /// Duration of recovery.
    pub took: Duration,
    /// The region's path.
    pub path: PathBuf,
}

/// The region's path: in a directory, or a DAX device.
pub fn region_path(dir: &Path) -> PathBuf {
    let is_device = std::fs::metadata(dir).is_ok_and(|meta| meta.file_type().is_char_device());
    if is_device { dir.into() } else { dir.join(REGION_NAME) }
}

/// How many bytes of a file's region a server has in memory at most, unless it is told otherwise.
pub fn memory_limit() -> Option<u64> {
    Config::default().memory_limit()
}

/// Opens the store of a configuration; creates it if there is none.
///
/// # Errors
/// [`StoreError`] says what is wrong and what to do.
pub fn open(config: &Config) -> Result<Store, StoreError> {
    open_when_locked(config, |_| Ok(()), |_| Ok(Known::default()))
}

/// What is known of a region besides what is in it.
#[derive(Debug, Default)]
pub struct Known {
    /// What clients of its files have left there that is to be executed.
    pub left: Vec<Arc<LeftLog>>,
    /// Numbers of records below this one are not drawn again: opening writes some, too.
    pub next_seq: u64,
}

/// As [`open`]. `may_begin` is called as in [`open_media_if`], and `when_locked` with the path of the region when nobody
/// else has it, before anything of it is read.
///
/// # Errors
/// As [`open`]; those of `may_begin` and of `when_locked`.
pub fn open_when_locked<E: From<StoreError>>(
    config: &Config,
    may_begin: impl FnOnce(Option<&dyn Media>) -> Result<(), E>,
    when_locked: impl FnOnce(&Path) -> Result<Known, E>,
) -> Result<Store, E> {
    let (media, path) = open_media_if(config, may_begin)?;
    let known = when_locked(&path)?;
    Ok(open_known(config, media, path, known)?)
}

fn open_known(
    config: &Config,
    media: Arc<dyn Media>,
    path: PathBuf,
    known: Known,
) -> Result<Store, StoreError> {
    let shards = (config.workers * SHARDS_PER_WORKER).next_power_of_two();
    let begun = Instant::now();
    let new_files = if config.wants_files() { Some(new_files(&path)?) } else { None };
    let (engine, logs, files, recovered) =
        recover_all(media, shards, new_files.as_ref(), unnamed(config), known).map_err(
            |error| match error {
                RecoverError::Kv(source) => StoreError::Kv { path: path.clone(), source },
                RecoverError::Wal(source) => StoreError::Wal { path: path.clone(), source },
                RecoverError::Files(source) => StoreError::Files { path: path.clone(), source },
            },
        )?;
    files.publish_by(config.files_publish.unwrap_or_default());
    Ok(Store { engine, logs, files, recovered, took: begun.elapsed(), path })
}

/// How files are opened in a region that may have none so far: their root belongs to the owner of the region.
fn new_files(path: &Path) -> Result<OpenFiles, StoreError> {
    let owner = std::fs::metadata(path).map_or((0, 0), |owned| (owned.uid(), owned.gid()));
    let now_ns = i64::try_from(now_ns()).unwrap_or(i64::MAX);
    Ok(open_files(now_ns, random()?, owner))
}

fn open_files(now_ns: i64, identity: [u8; 16], (uid, gid): (u32, u32)) -> OpenFiles {
    let (log_writer, publish_writer) = (LOG_WRITER, PUBLISH_WRITER);
    OpenFiles { now_ns, identity, mode: ROOT_MODE, uid, gid, log_writer, publish_writer }
}

/// Opens the region of a configuration; creates and formats it if there is none. `may_begin` is called before the region
/// is created, formatted or grown, so that a start that it refuses has changed nothing. It gets the region's medium, which
/// nobody else has then; `None`: there is no region yet.
///
/// # Errors
/// As [`open_region`]; those of `may_begin`.
pub fn open_media_if<E: From<StoreError>>(
    config: &Config,
    may_begin: impl FnOnce(Option<&dyn Media>) -> Result<(), E>,
) -> Result<(Arc<dyn Media>, PathBuf), E> {
    if config.chain.is_none()
        && let Some((chain, node)) = membership(&config.dir).map_err(StoreError::State)?
    {
        return Err(StoreError::OfChain { dir: config.dir.clone(), chain, node }.into());
    }
    let memory = config.memory_limit();
    let options =
        OpenOptions { request: config.media, flush: config.flush, memory, ..OpenOptions::default() };
    open_region_if(&config.dir, config.capacity.0, options, may_begin)
}

/// Checks that requests of so many workers may land in the region, as it is to be: `media` is that of a region that
/// exists.
///
/// # Errors
/// [`StoreError::Heap`] says how large it has to be.
pub fn check_workers(config: &Config, workers: usize, media: Option<&dyn Media>) -> Result<(), StoreError> {
    let bytes = match media {
        // A device does not grow.
        Some(media) if media.kind() == MediaKind::DeviceDax => media.len(),
        Some(media) => media.len().max(config.capacity.0),
        None => config.capacity.0,
    };
    landfall_heap::check_transports(bytes / RUN_SIZE, workers)
        .map_err(|source| StoreError::Heap { path: region_path(&config.dir), source })
}

/// Makes the directory of a region, which is its owner's alone, if there is none.
///
/// # Errors
/// An error of the file system.
pub fn make_directory(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

/// Opens the region in `dir`, or on the DAX device of that name; creates and formats it if there is none.
///
/// # Errors
/// [`StoreError`] says what is wrong and what to do.
pub fn open_region(
    dir: &Path,
    capacity: u64,
    options: OpenOptions,
) -> Result<(Arc<dyn Media>, PathBuf), StoreError> {
    open_region_if(dir, capacity, options, |_| Ok(()))
}

/// As [`open_region`]; `may_begin` is called as in [`open_media_if`].
fn open_region_if<E: From<StoreError>>(
    dir: &Path,
    capacity: u64,
    options: OpenOptions,
    may_begin: impl FnOnce(Option<&dyn Media>) -> Result<(), E>,
) -> Result<(Arc<dyn Media>, PathBuf), E> {
    let path = region_path(dir);
    let capacity = capacity / RUN_SIZE * RUN_SIZE;
    landfall_heap::Geometry::runs_for(capacity)
        .map_err(|source| StoreError::Heap { path: path.clone(), source })?;
    let options = OpenOptions { create: Some(capacity), read_only: false, ..options };
    let open = || landfall_media::open(&path, &options).map_err(StoreError::from);
    let opened = if path.exists() {
        // A server that is about to end is waited for first: it has the ports, too.
        let opened = open()?;
        may_begin(Some(&*opened.media))?;
        opened
    } else {
        may_begin(None)?;
        make_directory(dir).map_err(|source| StoreError::Directory { path: dir.into(), source })?;
        open()?
    };
    prepare(&*opened.media, capacity, &path)?;
    Ok((opened.media, path))
}

/// Formats a blank region; grows one that is smaller than requested.
fn prepare(media: &dyn Media, capacity: u64, path: &Path) -> Result<(), StoreError> {
    let is_short = media.kind() != MediaKind::DeviceDax && media.len() < capacity;
    if is_blank(media)? {
        // A start that formats what an earlier one has left need not come again to grow it.
        if is_short {
            media.grow(capacity)?;
        }
        let new = NewRegion {
            salt: random()?,
            hash_seed: u64::from_le_bytes(random()?),
            created_ms: now_ns() / 1_000_000,
        };
        return landfall_heap::create(media, &new)
            .map_err(|source| StoreError::Heap { path: path.into(), source });
    }
    if is_short {
        // Only a complete region grows. Any other file, such as a truncated region, is not changed, so that the open
        // refuses it.
        if landfall_heap::Geometry::read(media)
            .is_ok_and(|(geometry, _)| geometry.check_length(media).is_ok())
        {
            media.grow(capacity)?;
        }
    }
    Ok(())
}

/// True for a medium that was never formatted: new, or left blank by a crash during creation. The run tables are
/// checked, too: a region that lost both superblocks must not pass for a new one.
fn is_blank(media: &dyn Media) -> Result<bool, MediaError> {
    let head = media.bytes(Extent::new(0, RUN_SIZE.min(media.len()) as u32))?;
    Ok(head.iter().all(|byte| *byte == 0))
}

/// Random bytes from the kernel.
///
/// # Errors
/// [`StoreError::Random`].
pub fn random<const N: usize>() -> Result<[u8; N], StoreError> {
    let mut bytes = [0; N];
    let mut source = std::fs::File::open("/dev/urandom").map_err(StoreError::Random)?;
    source.read_exact(&mut bytes).map_err(StoreError::Random)?;
    Ok(bytes)
}

/// Why a region cannot be recovered.
#[derive(Debug, thiserror::Error)]
pub enum RecoverError {
    /// From the engine.
    #[error(transparent)]
    Kv(#[from] KvError),
    /// From the logs.
    #[error(transparent)]
    Wal(#[from] WalError),
    /// From the files.
    #[error(transparent)]
    Files(#[from] FsError),
}

/// Recovers engine and logs on every core, and files if there are any. Notes about logs and files are among those of the
/// engine.
///
/// # Errors
/// Errors of the engine, of the logs and of the files.
pub fn recover(
    media: Arc<dyn Media>,
    shards: usize,
) -> Result<(Engine, Logs, RegionFiles, Recovered), RecoverError> {
    recover_all(media, shards, None, Orphans::Delete, Known::default())
}

/// What becomes of files without a name.
fn unnamed(config: &Config) -> Orphans {
    match (&config.chain, &config.files_offload) {
        (Some(_), _) => Orphans::OfChain,
        (None, Some(_)) => Orphans::Keep,
        (None, None) => Orphans::Delete,
    }
}

/// As [`recover`]. A region without files gets some with `new_files`.
fn recover_all(
    media: Arc<dyn Media>,
    shards: usize,
    new_files: Option<&OpenFiles>,
    unnamed: Orphans,
    known: Known,
) -> Result<(Engine, Logs, RegionFiles, Recovered), RecoverError> {
    let (keys, logs) = (Arc::new(Recovery::new(shards)), Arc::new(LogRecovery::default()));
    let files = Arc::new(FilesRecovery::default());
    files.execute_left(known.left);
    let tenants: Vec<Arc<dyn Tenant>> =
        vec![Arc::clone(&keys) as _, Arc::clone(&logs) as _, Arc::clone(&files) as _];
    let (heap, mut recovered) = open_on_all_cores(media, tenants).map_err(KvError::from)?;
    heap.raise_next_seq(known.next_seq);
    let (logs, found) = logs.open(&heap)?;
    recovered.notes.extend(found.notes);
    let has_files = heap.geometry().features & FEATURE_FILES != 0;
    // Where there are files, there is a root: nothing of a new one is needed.
    let options = new_files.copied().or_else(|| has_files.then(|| open_files(0, [0; 16], (0, 0))));
    let files = match options {
        Some(options) => {
            let (files, publisher, found) = files.open_with(&heap, &options, unnamed)?;
            recovered.notes.extend(found.notes);
            RegionFiles::new(files, publisher)
        }
        None => RegionFiles::default(),
    };
    Ok((keys.open(&heap), logs, files, recovered))
}

/// Opens a region, in which `tenants` keep records, on every core.
///
/// # Errors
/// As [`Region::run`].
pub fn open_on_all_cores(
    media: Arc<dyn Media>,
    tenants: Vec<Arc<dyn Tenant>>,
) -> Result<(Arc<Heap>, Recovered), HeapError> {
    let mut region = Region::open(media, tenants)?;
    loop {
        on_all_cores(|first| scan(&region, first))?;
        finish_on_all_cores(|| region.gather_some())?;
        if !region.settle()? {
            break;
        }
    }
    finish_on_all_cores(|| region.adopt_some())?;
    finish_on_all_cores(|| region.finish_some())?;
    region.finish()
}

/// Scans until nothing is left; the first thread logs the progress.
fn scan(region: &Region, logs_progress: bool) -> Result<(), HeapError> {
    let mut next_word = Instant::now() + PROGRESS_EVERY;
    while region.scan_some()? {
        if logs_progress && Instant::now() >= next_word {
            let (done, total) = region.progress();
            tracing::info!(slabs = done, of = total, "recovering");
            next_word += PROGRESS_EVERY;
        }
    }
    Ok(())
}

/// Calls `step` on every core until it returns false.
///
/// # Errors
/// The first error of a step.
pub fn finish_on_all_cores(step: impl Fn() -> Result<bool, HeapError> + Sync) -> Result<(), HeapError> {
    on_all_cores(|_| {
        while step()? {}
        Ok(())
    })
}

/// Runs `work` on as many threads as there are cores; its argument is true for the first one.
fn on_all_cores(work: impl Fn(bool) -> Result<(), HeapError> + Sync) -> Result<(), HeapError> {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        let work = &work;
        let others: Vec<_> = (1..cores).map(|_| scope.spawn(move || work(false))).collect();
        let mine = work(true);
        others
            .into_iter()
            .map(|thread| thread.join().expect("a recovery thread panicked"))
            .fold(mine, Result::and)
    })
}
