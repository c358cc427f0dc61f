//! `landfall fs`: files in a region, as a file system of this machine.

use crate::output::{self, fail};
use crate::sys;
use clap::{Args, Subcommand, ValueEnum};
use landfall_fs::{Files, FilesRecovery, FsError, OpenFiles, Publisher};
use landfall_fs_io::{Session, SessionError, Settings, SyncMode};
use landfall_fuse::{MountOptions, OptionError};
use landfall_heap::{HeapError, Tenant};
use landfall_server::config::{Config, ConfigError, Size};
use landfall_server::store::{self, StoreError};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::SystemTime;

/// Option of `-o` with which the kernel keeps written data.
const WRITEBACK: &str = "writeback";
/// Permissions of a new root directory.
const ROOT_MODE: u32 = 0o755;
/// Ids of the region's writers. The compactor has its own.
const LOG_WRITER: u8 = 0;
const PUBLISH_WRITER: u8 = 1;

/// Flags of `landfall fs`.
#[derive(Debug, Args)]
pub struct FsArgs {
    #[command(subcommand)]
    command: FsCommand,
}

#[derive(Debug, Subcommand)]
enum FsCommand {
    /// Mount the files of a region on a directory, and serve them until they are unmounted.
    Mount(MountArgs),
}

#[derive(Debug, Args)]
struct MountArgs {
    /// Empty directory to mount on
    mountpoint: PathBuf,
    /// Directory of the region (created if absent), or a DAX device
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// Size of the region; an existing smaller one grows [default: 1GiB]
    #[arg(long, value_name = "SIZE")]
    size: Option<Size>,
    /// Threads that answer requests [default: the cores, 2 to 4]
    #[arg(long, value_name = "N")]
    workers: Option<usize>,
    /// When a change becomes durable: with the next fsync, or before each call returns
    #[arg(long, value_name = "WHEN", default_value = "fsync")]
    sync: Sync,
    /// Options of the mount: ro, nosuid, nodev, noexec, sync, dirsync, allow_other, fsname=NAME, max_read=BYTES, writeback
    #[arg(short = 'o', value_name = "OPTIONS")]
    options: Vec<String>,
    /// How much of a file's region is kept in memory [default: half of the machine's memory]
    #[arg(long, value_name = "SIZE")]
    memory: Option<Size>,
    /// error, warn, info, debug, trace, or a filter such as landfall_fs_io=debug
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    log_level: String,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Sync {
    Fsync,
    Always,
}

/// Why files are not mounted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
enum FsCliError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Option(#[from] OptionError),
    #[error("the option `{name}` is not known here; `landfall fs mount --help` lists those that are")]
    UnknownOption { name: String },
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(
        "{}: it holds keys, logs or other records beside files, or instead of them: give the files a directory of their own with --dir",
        path.display()
    )]
    Foreign { path: PathBuf },
    #[error("{}: {source}", path.display())]
    Heap { path: PathBuf, source: HeapError },
    #[error("{}: {source}", path.display())]
    Files { path: PathBuf, source: FsError },
    #[error(transparent)]
    Session(#[from] SessionError),
    #[error("cannot wait for signals: {0}")]
    Signals(std::io::Error),
}

/// Runs a command of `landfall fs`.
pub(crate) fn run(args: FsArgs) -> ExitCode {
    let FsCommand::Mount(args) = args.command;
    crate::log::start(&args.log_level, false);
    match mount(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error),
    }
}

fn mount(args: &MountArgs) -> Result<(), FsCliError> {
    sys::block_stop_signals().map_err(FsCliError::Signals)?;
    let settings = args.settings()?;
    let (files, publisher, path) = open(&args.config())?;
    let medium = files.heap().media().describe();
    let session = Session::start(files, publisher, &args.mountpoint, &settings)?;
    output::announce(&[format!("mounted: {} on {} ({medium})", path.display(), session.point().display())]);
    sys::notify_ready();
    let stopper = session.stopper();
    let wait = move || {
        if let Ok(signal) = sys::wait_for_stop_signal() {
            tracing::info!(signal, "unmounting");
        }
        stopper.stop();
    };
    std::thread::Builder::new().name("signals".into()).spawn(wait).map_err(FsCliError::Signals)?;
    session.join()?;
    tracing::info!("unmounted; everything is durable");
    Ok(())
}

/// Opens the region, and recovers its files.
fn open(config: &Config) -> Result<(Arc<Files>, Publisher, PathBuf), FsCliError> {
    config.check_memory()?;
    let (media, path) = store::open_media(config)?;
    let recovery = Arc::new(FilesRecovery::default());
    let opened = store::open_on_all_cores(media, vec![Arc::clone(&recovery) as Arc<dyn Tenant>]);
    let (heap, found) = opened.map_err(|source| of_heap(&path, source))?;
    found.notes.iter().for_each(|note| tracing::warn!("{note}"));
    for damaged in &found.damaged {
        tracing::error!(slot = damaged.slot.0, what = %damaged.what, "a record is damaged");
    }
    let identity = store::random()?;
    let (uid, gid) = sys::user_and_group();
    let options = OpenFiles {
        now_ns: now_ns(),
        identity,
        mode: ROOT_MODE,
        uid,
        gid,
        log_writer: LOG_WRITER,
        publish_writer: PUBLISH_WRITER,
    };
    let opened = recovery.open(&heap, &options);
    let (files, publisher, found) =
        opened.map_err(|source| FsCliError::Files { path: path.clone(), source })?;
    found.notes.iter().for_each(|note| tracing::warn!("{note}"));
    Ok((files, publisher, path))
}

fn of_heap(path: &Path, source: HeapError) -> FsCliError {
    let path = path.to_owned();
    match source {
        HeapError::Foreign { .. } => FsCliError::Foreign { path },
        source => FsCliError::Heap { path, source },
    }
}

/// The present time, Unix nanoseconds.
fn now_ns() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

impl MountArgs {
    fn config(&self) -> Config {
        let defaults = Config::default();
        let capacity = self.size.unwrap_or(defaults.capacity);
        Config { dir: self.dir.clone(), capacity, memory: self.memory, ..defaults }
    }

    fn settings(&self) -> Result<Settings, FsCliError> {
        let mut mount = MountOptions::default();
        self.options.iter().try_for_each(|options| mount.apply(options))?;
        let mut settings = Settings::default();
        for option in std::mem::take(&mut mount.other) {
            match (&option.name[..], &option.value) {
                (WRITEBACK, None) => settings.writeback = true,
                _ => return Err(FsCliError::UnknownOption { name: option.name }),
            }
        }
        settings.mount = mount;
        settings.sync = match self.sync {
            Sync::Fsync => SyncMode::Fsync,
            Sync::Always => SyncMode::Always,
        };
        match self.workers {
            None => {}
            Some(workers @ 1..=64) => settings.workers = workers,
            Some(workers) => {
                let (what, text) = ("number of workers", workers.to_string());
                return Err(ConfigError::Value { what, text, expected: "1 to 64" }.into());
            }
        }
        Ok(settings)
    }
}
