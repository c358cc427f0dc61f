//! `landfall fs`: files in a region, as a file system of this machine.

mod background;
pub(crate) mod helper;
mod look;
mod offload;
mod run;
mod values;

use crate::chain::ChainArgs;
use crate::check::CheckArgs;
use crate::nvdimm::NvdimmError;
use crate::output::{self, fail};
use crate::password::read_password;
use crate::sockets;
use crate::sys;
use clap::{Args, Subcommand, ValueEnum};
use landfall_fs::{Files, FilesRecovery, FsError, OpenFiles, Orphans, Publisher, Publishing, Recovered};
use landfall_fs_io::{
    Addresses, DoorError, HoldError, HoldSettings, Nvdimm, ServerError, ServerPlace, Session, SessionError,
    Settings, Sharing, SyncMode, TransportKind, check_mountpoint, forget_offloaded,
};
use landfall_fuse::{MountOptions, OptionError, OtherOption};
use landfall_heap::{HeapError, Tenant};
use landfall_media::Media;
use landfall_server::config::{Config, ConfigError, Size};
use landfall_server::store::{self, StoreError};
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Permissions of a new root directory.
const ROOT_MODE: u32 = 0o755;
/// Ids of the region's writers. The compactor has its own.
const LOG_WRITER: u8 = 0;
const PUBLISH_WRITER: u8 = 1;

/// Flags of a mount that serves itself.
const OWN_FLAGS: [&str; 9] =
    ["dir", "size", "workers", "sync", "writeback", "memory", "metrics", "transport", "publish"];

/// Those of them that `-o` has, too.
const OWN_OPTIONS: [&str; 7] = ["writeback", "always", "size", "memory", "workers", "transport", "metrics"];

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
    /// Serve mounts of `landfall fs mount --offload` from a process of its own
    Serve(offload::ServeArgs),
    /// Run a program that reads and writes the files of mounts in its own process, without system calls
    Run(run::RunArgs),
    /// Show the space of a mount: size, free, live, and what the log holds
    Df(look::DfArgs),
    /// Show an inode, and where its data are
    Stat(look::StatArgs),
    /// Show the counters of a mount, and their rates
    Top(look::TopArgs),
    /// Make a file of a key's value, or replace one: both refer to the same bytes, nothing is copied
    ImportKey(values::ImportArgs),
    /// Make a key's value of a file: both refer to the same bytes, nothing is copied
    ExportKey(values::ExportArgs),
    /// Verify the region of files that is not mounted, as `landfall check`
    Check(CheckArgs),
    /// Several servers with the same files, as `landfall chain`
    Chain(ChainArgs),
}

#[derive(Clone, Debug, Args)]
struct MountArgs {
    /// Empty directory to mount on
    mountpoint: PathBuf,
    /// Directory of the region (created if absent), or a DAX device
    #[arg(long, value_name = "DIR", required_unless_present_any = ["offload", "server"])]
    dir: Option<PathBuf>,
    /// Leave the serving to `landfall fs serve`, which listens at this socket
    #[arg(long, value_name = "SOCKET", conflicts_with_all = OWN_FLAGS)]
    offload: Option<PathBuf>,
    /// Mount the files of a server on another machine, which listens there (`landfall serve --files-listen`, `landfall fs
    /// serve --listen`). Of a chain, name all servers: they are asked in turn which one serves mounts
    #[arg(long, value_name = "HOST:PORT,...", value_delimiter = ',', conflicts_with_all = OWN_FLAGS, conflicts_with_all = ["offload", "shared"])]
    server: Vec<String>,
    /// File with the password of that server, on its first line
    #[arg(long, value_name = "FILE", requires = "server", conflicts_with_all = OWN_FLAGS, conflicts_with = "offload")]
    password_file: Option<PathBuf>,
    /// How long programs wait while that server is away; then their calls fail with EIO [default: for ever, and a minute
    /// if the next server is of another release]
    #[arg(long, value_name = "SECONDS", conflicts_with = "dir")]
    patience: Option<u32>,
    /// Memory for what that server has said, and nobody has changed since; 0: ask it each time
    #[arg(long, value_name = "SIZE", default_value = "64MiB", requires = "server", conflicts_with_all = OWN_FLAGS, conflicts_with = "offload")]
    cache: Size,
    /// In a virtual machine whose NVDIMM is that server's region (`landfall fs serve --nvdimm`), the device that the kernel
    /// has made of it, such as /dev/dax0.0: programs with the library (`landfall fs run`) read and write there
    #[arg(long, value_name = "DEVICE", requires = "server", conflicts_with_all = OWN_FLAGS, conflicts_with = "offload")]
    nvdimm: Option<PathBuf>,
    /// Let the server have other mounts of the files at the same time, all of them with this flag: the kernel keeps nothing
    #[arg(long, requires = "offload", conflicts_with_all = OWN_FLAGS)]
    shared: bool,
    /// Size of the region; an existing smaller one grows [default: 1GiB]
    #[arg(long, value_name = "SIZE")]
    size: Option<Size>,
    /// Threads that answer requests [default: the cores, 2 to 4]
    #[arg(long, value_name = "N")]
    workers: Option<usize>,
    /// When a change becomes durable: with the next fsync, or before each call returns
    #[arg(long, value_name = "WHEN", default_value = "fsync")]
    sync: Sync,
    /// The kernel keeps written data, and writes them back later in larger pieces
    #[arg(long)]
    writeback: bool,
    /// How published files get their bytes, to compare: relink (they refer to them where they landed), copy, copy-each (piece
    /// by piece)
    #[arg(long, value_name = "MODE", default_value = "relink")]
    publish: Publishing,
    /// How requests come: by reads of /dev/fuse, or over io_uring (Linux 6.14, where root has allowed it)
    #[arg(long, value_name = "WHICH", default_value = "dev")]
    transport: Transport,
    /// Options of the mount: ro, nosuid, nodev, noexec, sync, dirsync, allow_other, fsname=NAME, max_read=BYTES. Flags of
    /// this command, too: always, writeback, size=SIZE, memory=SIZE, workers=N, metrics=ADDR:PORT, transport=dev|uring
    #[arg(short = 'o', value_name = "OPTIONS")]
    options: Vec<String>,
    /// How much of a file's region is kept in memory [default: half of the machine's memory]
    #[arg(long, value_name = "SIZE")]
    memory: Option<Size>,
    /// Serve counters at http://ADDR:PORT/metrics, for Prometheus
    #[arg(long, value_name = "ADDR:PORT")]
    metrics: Option<SocketAddr>,
    /// Return once it is mounted, and serve it from a process in the background
    #[arg(long)]
    background: bool,
    /// Log of a mount in the background [default: mount.log in the region's directory; with --server, in the present one]
    #[arg(long, value_name = "FILE", requires = "background")]
    log_file: Option<PathBuf>,
    /// error, warn, info, debug, trace, or a filter such as landfall_fs_io=debug
    #[arg(long, value_name = "LEVEL", default_value = "info", value_parser = crate::log::parse_level)]
    log_level: String,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Sync {
    Fsync,
    Always,
}

impl From<Sync> for SyncMode {
    fn from(sync: Sync) -> Self {
        match sync {
            Sync::Fsync => Self::Fsync,
            Sync::Always => Self::Always,
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Transport {
    Dev,
    Uring,
}

impl From<Transport> for TransportKind {
    fn from(transport: Transport) -> Self {
        match transport {
            Transport::Dev => Self::Device,
            Transport::Uring => Self::Uring,
        }
    }
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
    #[error("the option `{name}` is for a mount that has the region (--dir): here the server decides that")]
    OwnOption { name: String },
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(
        "{}: it holds keys, logs or other records beside files, or instead of them: mount its files with \
         `landfall serve --dir {} --files MOUNTPOINT`, or give the files a directory of their own with --dir",
        path.display(),
        dir.display()
    )]
    Foreign { path: PathBuf, dir: PathBuf },
    #[error("{}: {source}", path.display())]
    Heap { path: PathBuf, source: HeapError },
    #[error("{}: {source}", path.display())]
    Files { path: PathBuf, source: FsError },
    #[error(transparent)]
    Session(#[from] SessionError),
    #[error("`{text}` is no address; metrics=ADDR:PORT needs one, such as 127.0.0.1:9150")]
    Address { text: String },
    #[error("`{text}` is no transport; transport=dev|uring names one")]
    Transport { text: String },
    #[error(transparent)]
    Background(#[from] background::BackgroundError),
    #[error(transparent)]
    Metrics(#[from] landfall_metrics::ListenError),
    #[error("cannot wait for signals: {0}")]
    Signals(std::io::Error),
    #[error("the file that names an earlier mount by a server cannot be removed: {0}")]
    Earlier(std::io::Error),
    #[error(transparent)]
    Hold(#[from] HoldError),
    #[error(transparent)]
    Server(#[from] ServerError),
    #[error("--listen: {0}")]
    Door(#[from] DoorError),
    #[error("`{text}` is no list of processors; --cpus needs one, such as 2,4-7")]
    Cpus { text: String },
    #[error("this process cannot be moved to these processors: {0}")]
    Affinity(std::io::Error),
    #[error("the niceness cannot be set: {0}")]
    Nice(std::io::Error),
    #[error("a DAX device has no directory: say where to listen by --socket")]
    NoSocket,
    #[error("`{}` is no directory from the root on: with HOST:PORT,... give the option `server`", place.display())]
    Relative { place: PathBuf },
    #[error("--nvdimm: {0}")]
    Nvdimm(#[from] NvdimmError),
}

/// Runs a command of `landfall fs`.
pub(crate) fn run(args: FsArgs) -> ExitCode {
    let args = match args.command {
        FsCommand::Mount(args) => args,
        FsCommand::Serve(args) => return offload::serve(&args),
        FsCommand::Run(args) => return run::run(&args),
        FsCommand::Df(args) => return look::df(&args),
        FsCommand::Stat(args) => return look::stat(&args),
        FsCommand::Top(args) => return look::top(&args),
        FsCommand::ImportKey(args) => return values::import(&args),
        FsCommand::ExportKey(args) => return values::export(&args),
        FsCommand::Check(args) => return crate::check::run(&args),
        FsCommand::Chain(args) => return crate::chain::run(args),
    };
    crate::log::start(&args.log_level, false);
    match mount(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error),
    }
}

/// Starts `landfall` with the arguments of this command again, without those that are for this process.
fn mount_in_background(
    args: &MountArgs,
    mut given: impl Iterator<Item = OsString>,
) -> Result<(), FsCliError> {
    let mut again: Vec<OsString> = Vec::new();
    while let Some(arg) = given.next() {
        match arg.to_str() {
            Some("--background") => {}
            Some("--log-file") => drop(given.next()),
            Some(arg) if arg.starts_with("--log-file=") => {}
            _ => again.push(arg),
        }
    }
    Ok(background::start(&again, args.log_directory(), args.log_file.as_deref())?)
}

fn mount(args: &MountArgs) -> Result<(), FsCliError> {
    let (args, mount) = args.with_options()?;
    let settings = args.settings(mount)?;
    if args.background {
        return mount_in_background(&args, std::env::args_os().skip(1));
    }
    sys::ignore_size_signal();
    sys::block_stop_signals().map_err(FsCliError::Signals)?;
    if let Some(server) = args.server_place()? {
        let sharing = if args.shared { Sharing::Shared } else { Sharing::Alone };
        let patience = args.patience.map(|seconds| Duration::from_secs(seconds.into()));
        let cache_bytes = usize::try_from(args.cache.0).unwrap_or(usize::MAX);
        let nvdimm = args.nvdimm.clone().map(|device| Nvdimm { device, libraries: sockets::in_machine() });
        let hold = HoldSettings { server, mount: settings.mount, patience, sharing, cache_bytes, nvdimm };
        return offload::mount(&args.mountpoint, hold);
    }
    let may_begin = || -> Result<(), FsCliError> {
        check_mountpoint(&args.mountpoint, &settings)?;
        args.metrics.map_or(Ok(()), landfall_metrics::check)?;
        Ok(())
    };
    let opened = open(&args.config(), settings.workers, Orphans::Delete, |_| may_begin())?;
    let Opened { files, mut publisher, path, .. } = opened;
    publisher.set_publishing(args.publish);
    forget_offloaded(&sockets::of_mounts(args.dir())).map_err(FsCliError::Earlier)?;
    let medium = files.heap().media().describe();
    let session = Session::start(files, publisher, &args.mountpoint, &settings)?;
    let mut lines = vec![format!("mounted: {} on {} ({medium})", path.display(), session.point().display())];
    if let Some(address) = args.metrics {
        let inspector = session.inspector();
        let address = landfall_metrics::serve(address, move || inspector.metrics())?;
        lines.push(format!("metrics: http://{address}/metrics"));
    }
    output::announce(&lines);
    sys::notify_ready();
    let stopper = session.stopper();
    at_signal("unmounting", move || stopper.stop())?;
    session.join()?;
    tracing::info!("unmounted; everything is durable");
    Ok(())
}

/// Does something when the process is told to stop. Signals are blocked.
fn at_signal(what: &'static str, act: impl FnOnce() + Send + 'static) -> Result<(), FsCliError> {
    let wait = move || {
        if let Ok(signal) = sys::wait_for_stop_signal() {
            tracing::info!(signal, "{what}");
        }
        act();
    };
    std::thread::Builder::new().name("signals".into()).spawn(wait).map(drop).map_err(FsCliError::Signals)
}

/// Files of a region.
struct Opened {
    files: Arc<Files>,
    publisher: Publisher,
    path: PathBuf,
    found: Recovered,
}

/// Opens the region, and recovers its files, for workers for which it has room. `may_begin` is called before the region is
/// created or changed, with the medium of one that exists.
fn open(
    config: &Config,
    workers: usize,
    orphans: Orphans,
    may_begin: impl FnOnce(Option<&dyn Media>) -> Result<(), FsCliError>,
) -> Result<Opened, FsCliError> {
    config.check_memory()?;
    let (media, path) = store::open_media_if::<FsCliError>(config, |media| {
        store::check_workers(config, workers, media)?;
        may_begin(media)
    })?;
    // The region is locked: who has served them is dead.
    let earlier = sockets::end_libraries(&config.dir, &path);
    let recovery = Arc::new(FilesRecovery::default());
    recovery.execute_left(earlier.logs());
    let opened = store::open_on_all_cores(media, vec![Arc::clone(&recovery) as Arc<dyn Tenant>]);
    let (heap, found) = opened.map_err(|source| of_heap(&path, &config.dir, source))?;
    heap.check_transports(workers).map_err(|source| of_heap(&path, &config.dir, source))?;
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
    let opened = recovery.open_with(&heap, &options, orphans);
    earlier.note_executed();
    let (files, publisher, found) =
        opened.map_err(|source| FsCliError::Files { path: path.clone(), source })?;
    found.notes.iter().for_each(|note| tracing::warn!("{note}"));
    Ok(Opened { files, publisher, path, found })
}

fn of_heap(path: &Path, dir: &Path, source: HeapError) -> FsCliError {
    let path = path.to_owned();
    match source {
        HeapError::Foreign { .. } => FsCliError::Foreign { path, dir: dir.into() },
        source => FsCliError::Heap { path, source },
    }
}

/// The present time, Unix nanoseconds.
fn now_ns() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

fn config(dir: &Path, size: Option<Size>, memory: Option<Size>) -> Config {
    let defaults = Config::default();
    Config { dir: dir.into(), capacity: size.unwrap_or(defaults.capacity), memory, ..defaults }
}

impl MountArgs {
    fn config(&self) -> Config {
        config(self.dir(), self.size, self.memory)
    }

    /// The region's directory. Where a server has the region, it is of no meaning.
    fn dir(&self) -> &Path {
        self.dir.as_deref().unwrap_or(Path::new(""))
    }

    /// The server that has the region, if this process has not.
    fn server_place(&self) -> Result<Option<ServerPlace>, FsCliError> {
        if let Some(socket) = &self.offload {
            return Ok(Some(ServerPlace::Socket(socket.clone())));
        }
        if self.server.is_empty() {
            return Ok(None);
        }
        let password = self.password_file.as_deref().map(read_password).transpose()?;
        let password = password.map(String::into_bytes);
        Ok(Some(ServerPlace::Network(Addresses { addresses: self.server.clone(), password })))
    }

    /// Where the log of a mount in the background is.
    fn log_directory(&self) -> &Path {
        self.offload.as_deref().and_then(Path::parent).unwrap_or(self.dir())
    }

    /// The same, with what `-o` says: where both say something, `-o` wins.
    fn with_options(&self) -> Result<(Self, MountOptions), FsCliError> {
        let (mut args, mut mount) = (self.clone(), MountOptions::default());
        self.options.iter().try_for_each(|options| mount.apply(options))?;
        for OtherOption { name, value } in std::mem::take(&mut mount.other) {
            if args.dir.is_none() && OWN_OPTIONS.contains(&&name[..]) {
                return Err(FsCliError::OwnOption { name });
            }
            match (&name[..], value) {
                ("writeback", None) => args.writeback = true,
                ("always", None) => args.sync = Sync::Always,
                ("size", Some(value)) => args.size = Some(value.parse()?),
                ("memory", Some(value)) => args.memory = Some(value.parse()?),
                ("workers", Some(value)) => args.workers = Some(workers(&value)?),
                ("transport", Some(value)) => {
                    let transport = Transport::from_str(&value, false);
                    args.transport = transport.map_err(|_| FsCliError::Transport { text: value })?;
                }
                ("metrics", Some(value)) => {
                    args.metrics = Some(value.parse().map_err(|_| FsCliError::Address { text: value })?);
                }
                _ => return Err(FsCliError::UnknownOption { name }),
            }
        }
        Ok((args, mount))
    }

    fn settings(&self, mount: MountOptions) -> Result<Settings, FsCliError> {
        let mut settings = Settings {
            mount,
            writeback: self.writeback,
            socket: sockets::of_libraries(self.dir()),
            ..Settings::default()
        };
        settings.sync = self.sync.into();
        settings.transport = self.transport.into();
        if let Some(count) = self.workers {
            settings.workers = workers(&count.to_string())?;
        }
        Ok(settings)
    }
}

fn workers(text: &str) -> Result<usize, ConfigError> {
    let (what, expected) = ("number of workers", "1 to 64");
    let count = text.parse().ok().filter(|count| (1..=64).contains(count));
    count.ok_or_else(|| ConfigError::Value { what, text: text.to_owned(), expected })
}
