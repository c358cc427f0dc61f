//! `landfall serve`: runs the server.

mod files;
mod offload;
mod signals;

use self::files::{FilesError, ServedFiles};
use self::signals::Signals;
use crate::chain_etcd::{EtcdPlace, EtcdViews, PlaceError};
use crate::etcd::{EtcdArgs, EtcdArgsError};
use crate::output::{self, fail};
use crate::password::read_password;
use crate::{sockets, sys};
use clap::Args;
use landfall_chain::{Compression, Replicate, Sending};
use landfall_chain_io::{NodeError, ViewFile};
use landfall_fs_io::EarlierLibraries;
use landfall_heap::transports_in;
use landfall_media::{Media, RUN_SIZE};
use landfall_server::config::{
    ChainConfig, Config, ConfigError, FileConfig, LogFormat, Size, XdpConfig, parse_address, parse_integrity,
    parse_mac, parse_media, parse_own_address, parse_spin, parse_transport, parse_xdp_mode,
    parse_xdp_offload,
};
use landfall_server::shared::Shared;
use landfall_server::store::StoreError;
use landfall_server::writes::{InRegion, PlainWrites};
use landfall_server::{Server, ServerError};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

/// How long a worker busy-polls for packets before it blocks in the kernel.
const SPIN: Duration = Duration::from_micros(50);
/// Flags of files that the server mounts itself.
const FILES_OWN: [&str; 2] = ["files", "files_options"];

/// Flags of `landfall serve`. Each may also be set in the configuration file; flags take precedence.
#[derive(Debug, Default, Args)]
pub struct ServeArgs {
    /// Directory of the region (created if absent), or a DAX device [default: landfall-data]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Size of the region; an existing smaller one grows [default: 1GiB]
    #[arg(long, value_name = "SIZE")]
    capacity: Option<Size>,
    /// How much of a file's region is kept in memory [default: half of the machine's memory]
    #[arg(long, value_name = "SIZE")]
    memory: Option<Size>,
    /// Address for RESP: ADDR:PORT, a port on loopback, or off [default: 127.0.0.1:6479]
    #[arg(long, value_name = "ADDR:PORT")]
    resp: Option<String>,
    /// Address for HTTP: ADDR:PORT, a port on loopback, or off [default: 127.0.0.1:6480]
    #[arg(long, value_name = "ADDR:PORT")]
    http: Option<String>,
    /// Worker threads [default: half the cores]
    #[arg(long, value_name = "N")]
    workers: Option<usize>,
    /// Medium that the region must be on: auto, dax, file or volatile [default: auto]
    #[arg(long, value_name = "KIND")]
    media: Option<String>,
    /// Flush instruction: auto, clwb, clflushopt, clflush or none (eADR) [default: auto]
    #[arg(long, value_name = "NAME")]
    flush: Option<String>,
    /// Sockets: auto, uring or epoll [default: auto]
    #[arg(long, value_name = "NAME")]
    transport: Option<String>,
    /// Serve over AF_XDP and Landfall's own TCP on this interface, instead of sockets: packets land in the region
    #[arg(long, value_name = "INTERFACE")]
    xdp: Option<String>,
    /// Separate IP address for --xdp [default: the interface's, shared with the kernel]
    #[arg(long, value_name = "ADDRESS/PREFIX")]
    ip: Option<String>,
    /// Hardware address for --xdp: auto is the interface's [default: auto]
    #[arg(long, value_name = "MAC")]
    mac: Option<String>,
    /// Busy-poll for requests, and for the next server's answers, for this many microseconds before blocking, or always [default:
    /// 0; 50 with --xdp]
    #[arg(long, value_name = "MICROSECONDS")]
    spin: Option<String>,
    /// Who copies packets between the interface and the region: auto, copy or zero-copy [default: auto]
    #[arg(long, value_name = "MODE")]
    xdp_mode: Option<String>,
    /// Make each poll for packets drive the device for up to this many microseconds; 0: off [default: 0]
    #[arg(long, value_name = "MICROSECONDS")]
    xdp_busy_poll: Option<u64>,
    /// Send sequences of segments as one long packet, for the kernel or its device to cut: auto (in copy mode), on or
    /// off [default: auto]
    #[arg(long, value_name = "WHEN")]
    xdp_offload: Option<String>,
    /// Keep the steering program attached between starts, pinned at this path of a BPF file system
    #[arg(long, value_name = "PATH")]
    xdp_pin: Option<PathBuf>,
    /// Land packets beside the region and copy them into it: to test the mode for media that cannot be pinned
    #[arg(long, hide = true)]
    xdp_bounce: bool,
    /// TOML file with any of these settings, with underscores for dashes
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// File with the password that clients must give, on its first line
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// Serve other machines without a password
    #[arg(long)]
    insecure_no_password: bool,
    /// text or json [default: text]
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<String>,
    /// error, warn, info, debug, trace, or a filter such as landfall_server=debug [default: info]
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<String>,
    /// Connections at once, at most [default: 10000]
    #[arg(long, value_name = "N")]
    max_clients: Option<usize>,
    /// Close connections idle for this many seconds; 0: never [default: 0]
    #[arg(long, value_name = "SECONDS")]
    idle_timeout: Option<u64>,
    /// Close a connection whose request or reply transfers less than 16 KiB a second for this many seconds; 0: never
    /// [default: 60]
    #[arg(long, value_name = "SECONDS")]
    request_timeout: Option<u64>,
    /// Longest value [default: 512MiB]
    #[arg(long, value_name = "SIZE")]
    max_request: Option<Size>,
    /// Commands of one connection executed in a row [default: 1024]
    #[arg(long, value_name = "N")]
    max_pipeline: Option<usize>,
    /// Bytes of replies queued for a connection before the server stops reading from it [default: 4MiB]
    #[arg(long, value_name = "SIZE")]
    max_output: Option<Size>,
    /// Longest HTTP head [default: 64KiB]
    #[arg(long, value_name = "SIZE")]
    max_header: Option<Size>,
    /// Checksum of values: crc32c, or tcp: the sums of the packets that brought them, over --xdp [default: crc32c]
    #[arg(long, value_name = "MODE")]
    integrity: Option<String>,
    /// Mount the files of the region on this empty directory: files, keys and logs in one region
    #[arg(long, value_name = "MOUNTPOINT")]
    files: Option<PathBuf>,
    /// Serve the files of the region at this socket, for mounts of `landfall fs mount --offload SOCKET`, which are processes
    /// of their own and may die
    #[arg(long, value_name = "SOCKET", conflicts_with_all = FILES_OWN)]
    files_offload: Option<PathBuf>,
    /// Let mounts on other machines (`landfall fs mount --server`) connect to this address, with the password of
    /// --password-file. On a network the port is commonly 6481
    #[arg(long, value_name = "ADDR:PORT", conflicts_with_all = FILES_OWN)]
    files_listen: Option<String>,
    /// The region, in memory, is the NVDIMM of a virtual machine: programs there share it (`landfall fs mount --nvdimm`). There
    /// is one such machine at a time
    #[arg(long, conflicts_with_all = FILES_OWN)]
    nvdimm: bool,
    /// Options of the mount of --files, as for `landfall fs mount -o`: ro, nosuid, nodev, noexec, sync, dirsync, allow_other,
    /// fsname=NAME, max_read=BYTES
    #[arg(long, value_name = "OPTIONS")]
    files_options: Option<String>,
    /// How published files get their bytes, to compare: relink (they refer to them where they landed), copy, copy-each (piece
    /// by piece) [default: relink]
    #[arg(long, value_name = "MODE")]
    files_publish: Option<String>,
    /// Let clients make files of values and values of files of that mount (LF.PUBLISH, LF.PUBLISHENTRY, LF.ADOPT), with the
    /// rights of the server: they can read and replace every file, whatever its permissions say
    #[arg(long)]
    files_commands: bool,
    /// File of the view of a chain, or its name if the chain is in etcd: what this server acknowledges, all nodes of the
    /// chain have
    #[arg(long, value_name = "FILE|NAME")]
    chain: Option<PathBuf>,
    /// Which node of the chain this server is
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// Where clients connect to this server of a chain, as the others tell them [default: its RESP address]
    #[arg(long, value_name = "HOST:PORT")]
    announce: Option<String>,
    /// Compress what goes to the next server of a chain: off, auto (while that takes no longer), lz4 (whatever becomes
    /// shorter by a tenth) [default: off]
    #[arg(long, value_name = "MODE")]
    compression: Option<String>,
    /// What programs wait for until all servers of a chain have their files: sync (each change), fsync, background
    /// (nothing: fsync waits for this server only) [default: fsync]
    #[arg(long, value_name = "MODE")]
    replicate: Option<String>,
    /// How what goes to the next server of a chain is sent, to compare: pipelined, one-at-a-time (a chunk when the one before
    /// is acknowledged), at-fsync (files when fsync asks for them) [default: pipelined]
    #[arg(long, value_name = "MODE")]
    chain_send: Option<String>,
    /// Bytes per second that the background scrub checks; 0: none [default: 16MiB]
    #[arg(long, value_name = "SIZE")]
    scrub_rate: Option<Size>,
    /// Bytes per second, at most, of a copy to the next server of a chain while that is behind; 0: no limit [default: 0]
    #[arg(long, value_name = "SIZE")]
    copy_rate: Option<Size>,
    #[command(flatten)]
    etcd: EtcdArgs,
}

/// Runs the server until SIGTERM, SIGINT or `SHUTDOWN`.
pub(crate) fn run(args: ServeArgs) -> ExitCode {
    run_over(args, |_| Ok(Box::new(InRegion)))
}

/// Runs `landfall serve` with plain writes going to what `open` returns: for measurements.
pub fn run_over(
    args: ServeArgs,
    open: impl FnOnce(&Config) -> Result<Box<dyn PlainWrites>, Box<dyn std::error::Error>>,
) -> ExitCode {
    let (config, place) = match args.settings() {
        Ok(settings) => settings,
        Err(error) => return fail(&error),
    };
    crate::log::start(&config.log_level, config.log_format == LogFormat::Json);
    let writes = match open(&config) {
        Ok(writes) => writes,
        Err(error) => return fail(&*error),
    };
    match serve(config, place.as_ref(), writes) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error),
    }
}

/// Why the flags make no sense.
#[derive(Debug, thiserror::Error)]
enum SettingsError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Etcd(#[from] EtcdArgsError),
}

/// How long an end in good order waits for the other nodes of a chain.
const CHAIN_GRACE: Duration = Duration::from_secs(5);

/// Why nothing is served, or why serving has ended.
#[derive(Debug, thiserror::Error)]
enum ServeError {
    #[error(transparent)]
    Server(#[from] ServerError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Files(#[from] FilesError),
    #[error(transparent)]
    Place(#[from] PlaceError),
}

/// Serves until the end. A node that was removed from a chain in etcd starts anew, in this process: its region is recovered,
/// and it waits until the chain's manager has added it again.
fn serve(
    mut config: Config,
    place: Option<&EtcdPlace>,
    writes: Box<dyn PlainWrites>,
) -> Result<(), ServeError> {
    sys::ignore_size_signal();
    sys::block_stop_signals().map_err(ServerError::Thread)?;
    let open_files = sys::raise_open_files();
    if open_files < (config.max_clients as u64).saturating_add(64) {
        tracing::warn!(
            open_files,
            max_clients = config.max_clients,
            "the limit on open files is lower than --max-clients: raise it (ulimit -n)"
        );
    }
    let signals = Signals::follow().map_err(ServerError::Thread)?;
    let Some(place) = place else {
        serve_once(&mut config, writes, None, &signals)?;
        return Ok(());
    };
    serve_in_chain(&mut config, place, writes, &signals)
}

fn serve_in_chain(
    config: &mut Config,
    place: &EtcdPlace,
    mut writes: Box<dyn PlainWrites>,
    signals: &Signals,
) -> Result<(), ServeError> {
    let _lock = place.lock()?;
    while let Some(views) = place.take(&|| signals.has_come())? {
        let of_etcd: Arc<EtcdViews> = Arc::clone(&views);
        config.chain = Some(ChainConfig {
            views: of_etcd,
            node: place.node.clone(),
            announce: place.announce.clone(),
            compression: place.compression,
            replicate: place.replicate,
            sending: place.sending,
        });
        match serve_once(config, writes, Some(&views), signals) {
            Ok(()) if views.was_removed() && !signals.has_come() => {}
            // The chain has changed while the server started.
            Err(ServeError::Server(ServerError::Chain(
                error @ (NodeError::View { .. } | NodeError::FirstIsBehind { .. }),
            ))) => tracing::warn!(%error, "starting anew"),
            outcome => return outcome,
        }
        config.chain = None;
        writes = Box::new(InRegion);
    }
    Ok(())
}

/// Serves until something stops the server.
fn serve_once(
    config: &mut Config,
    writes: Box<dyn PlainWrites>,
    views: Option<&EtcdViews>,
    signals: &Signals,
) -> Result<(), ServeError> {
    let mut earlier = EarlierLibraries::default();
    let end_libraries = |region: &Path| {
        earlier = sockets::end_libraries(&config.dir, region);
        earlier.logs()
    };
    let may_begin = |media: Option<&dyn Media>| Ok::<_, ServeError>(files::check(config, media)?);
    let server = Server::start_over(config.clone(), writes, may_begin, end_libraries);
    earlier.note_executed();
    let server = server?;
    let shared = Arc::clone(server.shared());
    let files = match ServedFiles::start(&shared) {
        Ok(files) => files,
        Err(error) => {
            shared.stop();
            server.join()?;
            return Err(error.into());
        }
    };
    announce(&server, files.as_ref());
    // One that starts anew listens where it did before.
    (config.resp, config.http) = (shared.bound_resp, shared.bound_http);
    config.files_listen = files.as_ref().and_then(ServedFiles::listens);
    if let Some(views) = views {
        let shared = Arc::downgrade(&shared);
        views.on_removal(move || shared.upgrade().iter().for_each(|shared| shared.stop()));
    }
    let stopper = files.as_ref().map(ServedFiles::stopper);
    signals.stop_by(move || {
        end_waits_for_the_chain(&shared);
        // Files first: their end may need space, which the server makes.
        stopper.iter().for_each(files::Stopper::stop);
        shared.stop();
    });
    let served = server.join();
    signals.stop_by(|| {});
    files.map_or(Ok(()), ServedFiles::end)?;
    served?;
    tracing::info!("stopped; everything acknowledged is durable");
    Ok(())
}

/// A mount that ends waits for the other nodes, but not for ever: what they lack is sent at the next start.
fn end_waits_for_the_chain(shared: &Shared) {
    let Some(node) = shared.chain.clone() else { return };
    let stop = move || {
        std::thread::sleep(CHAIN_GRACE);
        node.stop();
    };
    if let Err(error) = std::thread::Builder::new().name("grace".into()).spawn(stop) {
        tracing::warn!(%error, "the end may wait for other nodes of the chain");
    }
}

/// Prints where and how the server serves: scripts read the ports from here.
fn announce(server: &Server, files: Option<&ServedFiles>) {
    let shared = server.shared();
    let media = shared.engine.heap().media();
    let mut lines = vec![
        format!("landfall {} on {}", env!("CARGO_PKG_VERSION"), media.describe()),
        format!("transport: {}; workers: {}", shared.transport, shared.config.workers),
    ];
    lines.extend(shared.writes.describe().map(|store| format!("store: {store}")));
    lines.extend(shared.bound_resp.map(|address| format!("resp: {address}")));
    lines.extend(shared.bound_http.map(|address| format!("http: {address}")));
    lines.extend(files.map(|files| format!("files: {}", files.path().display())));
    lines.extend(
        files.and_then(ServedFiles::listens).map(|address| format!("files for mounts elsewhere: {address}")),
    );
    lines.push("ready".to_owned());
    output::announce(&lines);
    sys::notify_ready();
}

impl ServeArgs {
    /// The settings, and the place in a chain in etcd if there is one.
    fn settings(mut self) -> Result<(Config, Option<EtcdPlace>), SettingsError> {
        let mut file = self.config.as_deref().map(FileConfig::read).transpose()?.unwrap_or_default();
        let chain = match (self.chain.take().or(file.chain.take()), self.node.take().or(file.node.take())) {
            (None, None) => None,
            (Some(chain), Some(node)) => Some((chain, node)),
            _ => return Err(ConfigError::ChainNode.into()),
        };
        let announce = self.announce.take().or(file.announce.take());
        let announce = announce.map(|text| text.parse()).transpose().map_err(ConfigError::Announce)?;
        if announce.is_some() && chain.is_none() {
            return Err(ConfigError::AnnounceAlone.into());
        }
        let compression = self.compression.take().or(file.compression.take());
        let compression: Option<Compression> =
            compression.map(|text| text.parse()).transpose().map_err(ConfigError::Compression)?;
        if compression.is_some() && chain.is_none() {
            return Err(ConfigError::CompressionAlone.into());
        }
        let compression = compression.unwrap_or_default();
        if self.copy_rate.or(file.copy_rate).is_some() && chain.is_none() {
            return Err(ConfigError::CopyRateAlone.into());
        }
        let replicate = self.replicate.take().or(file.replicate.take());
        let replicate: Option<Replicate> =
            replicate.map(|text| text.parse()).transpose().map_err(ConfigError::Replicate)?;
        let sending = self.chain_send.take().or(file.chain_send.take());
        let sending: Option<Sending> =
            sending.map(|text| text.parse()).transpose().map_err(ConfigError::Sending)?;
        if sending.is_some() && chain.is_none() {
            return Err(ConfigError::SendingAlone.into());
        }
        let sending = sending.unwrap_or_default();
        let client = std::mem::take(&mut self.etcd).or(EtcdArgs::of_file(&mut file)).client()?;
        let mut config = self.config(file)?;
        if replicate.is_some()
            && (chain.is_none() || config.files.is_none() && config.files_offload.is_none())
        {
            return Err(ConfigError::ReplicateAlone.into());
        }
        let replicate = replicate.unwrap_or_default();
        let place = match (chain, client) {
            (None, None) => None,
            (Some((view, node)), None) => {
                let views = Arc::new(ViewFile::new(view));
                config.chain = Some(ChainConfig { views, node, announce, compression, replicate, sending });
                None
            }
            (Some((chain, node)), Some(client)) => {
                let chain = chain.to_string_lossy().into_owned();
                let dir = config.dir.clone();
                Some(EtcdPlace { client, chain, node, dir, announce, compression, replicate, sending })
            }
            (None, Some(_)) => return Err(ConfigError::ChainNode.into()),
        };
        Ok((config, place))
    }

    /// Defaults, overridden by the file, overridden by the flags.
    fn config(self, file: FileConfig) -> Result<Config, ConfigError> {
        let mut config = Config::default();
        set(&mut config.dir, self.dir.or(file.dir));
        set(&mut config.capacity, self.capacity.or(file.capacity));
        config.memory = self.memory.or(file.memory);
        // A small region has no room for those of many cores.
        let most = transports_in(config.capacity.0 / RUN_SIZE);
        config.workers = config.workers.min(usize::try_from(most).unwrap_or(usize::MAX)).max(1);
        set(&mut config.workers, self.workers.or(file.workers));
        config.files = self.files.or(file.files);
        config.files_offload = self.files_offload.or(file.files_offload);
        set(&mut config.files_listen, parse(self.files_listen.or(file.files_listen), parse_address)?);
        config.nvdimm = self.nvdimm || file.nvdimm.unwrap_or_default();
        config.files_options = self.files_options.or(file.files_options);
        let publish = self.files_publish.or(file.files_publish);
        config.files_publish =
            publish.map(|text| text.parse()).transpose().map_err(ConfigError::Publishing)?;
        config.files_commands = self.files_commands || file.files_commands.unwrap_or_default();
        set(&mut config.log_level, parse(self.log_level.or(file.log_level), parse_level)?);
        set(&mut config.max_clients, self.max_clients.or(file.max_clients));
        set(&mut config.idle_timeout, self.idle_timeout.or(file.idle_timeout).map(Duration::from_secs));
        set(
            &mut config.request_timeout,
            self.request_timeout.or(file.request_timeout).map(Duration::from_secs),
        );
        set(&mut config.max_request, self.max_request.or(file.max_request));
        set(&mut config.max_pipeline, self.max_pipeline.or(file.max_pipeline));
        set(&mut config.max_output, self.max_output.or(file.max_output));
        set(&mut config.max_header, self.max_header.or(file.max_header));
        set(&mut config.integrity, parse(self.integrity.or(file.integrity), parse_integrity)?);
        set(&mut config.scrub_rate, self.scrub_rate.or(file.scrub_rate));
        set(&mut config.copy_rate, self.copy_rate.or(file.copy_rate));
        set(&mut config.resp, parse(self.resp.or(file.resp), parse_address)?);
        set(&mut config.http, parse(self.http.or(file.http), parse_address)?);
        set(&mut config.media, parse(self.media.or(file.media), parse_media)?);
        set(&mut config.transport, parse(self.transport.or(file.transport), parse_transport)?);
        let spin = parse(self.spin.or(file.spin), parse_spin)?;
        let interface = self.xdp.or(file.xdp);
        set(&mut config.spin, spin.filter(|_| interface.is_none()));
        let of_xdp = OfXdp {
            ip: self.ip.or(file.ip),
            mac: self.mac.or(file.mac),
            mode: self.xdp_mode.or(file.xdp_mode),
            busy_poll: self.xdp_busy_poll.or(file.xdp_busy_poll),
            offload: self.xdp_offload.or(file.xdp_offload),
            bounce: self.xdp_bounce,
            pin: self.xdp_pin.or(file.xdp_pin),
        };
        config.xdp = of_xdp.config(interface, spin)?;
        set(&mut config.flush, parse(self.flush.or(file.flush), parse_flush)?);
        set(&mut config.log_format, parse(self.log_format.or(file.log_format), parse_format)?);
        config.insecure_no_password = self.insecure_no_password || file.insecure_no_password.unwrap_or(false);
        config.password =
            self.password_file.or(file.password_file).as_deref().map(read_password).transpose()?;
        check_ranges(&config)?;
        Ok(config)
    }
}

/// Settings that mean something with `--xdp` only.
struct OfXdp {
    ip: Option<String>,
    mac: Option<String>,
    mode: Option<String>,
    busy_poll: Option<u64>,
    offload: Option<String>,
    bounce: bool,
    pin: Option<PathBuf>,
}

impl OfXdp {
    fn config(
        self,
        interface: Option<String>,
        spin: Option<Duration>,
    ) -> Result<Option<XdpConfig>, ConfigError> {
        let Some(interface) = interface else {
            let given = [
                ("--ip", self.ip.is_some()),
                ("--mac", self.mac.is_some()),
                ("--xdp-mode", self.mode.is_some()),
                ("--xdp-busy-poll", self.busy_poll.is_some()),
                ("--xdp-offload", self.offload.is_some()),
                ("--xdp-bounce", self.bounce),
                ("--xdp-pin", self.pin.is_some()),
            ];
            let alone = given.iter().find(|(_, is_given)| *is_given);
            return alone.map_or(Ok(None), |(what, _)| Err(ConfigError::XdpAlone(what)));
        };
        Ok(Some(XdpConfig {
            interface,
            address: parse(self.ip, parse_own_address)?,
            mac: parse(self.mac, parse_mac)?.flatten(),
            spin: spin.unwrap_or(SPIN),
            mode: parse(self.mode, parse_xdp_mode)?.unwrap_or_default(),
            busy_poll: Duration::from_micros(self.busy_poll.unwrap_or(0)),
            offload: parse(self.offload, parse_xdp_offload)?.flatten(),
            bounce: self.bounce,
            pin: self.pin,
        }))
    }
}

fn set<T>(setting: &mut T, given: Option<T>) {
    if let Some(given) = given {
        *setting = given;
    }
}

fn parse<T>(
    text: Option<String>,
    read: fn(&str) -> Result<T, ConfigError>,
) -> Result<Option<T>, ConfigError> {
    text.as_deref().map(read).transpose()
}

fn parse_flush(text: &str) -> Result<Option<landfall_media::FlushInstruction>, ConfigError> {
    if text == "auto" {
        return Ok(None);
    }
    let expected = "auto, clwb, clflushopt, clflush or none";
    text.parse().map(Some).map_err(|_| ConfigError::Value {
        what: "flush instruction",
        text: text.into(),
        expected,
    })
}

fn parse_level(text: &str) -> Result<String, ConfigError> {
    let (what, expected) = ("log level", crate::log::LEVELS);
    crate::log::parse_level(text).map_err(|_| ConfigError::Value { what, text: text.into(), expected })
}

fn parse_format(text: &str) -> Result<LogFormat, ConfigError> {
    match text {
        "text" => Ok(LogFormat::Text),
        "json" => Ok(LogFormat::Json),
        _ => Err(ConfigError::Value { what: "log format", text: text.into(), expected: "text or json" }),
    }
}

fn check_ranges(config: &Config) -> Result<(), ConfigError> {
    let bad = |what, text: String, expected| Err(ConfigError::Value { what, text, expected });
    if !(1..=64).contains(&config.workers) {
        return bad("number of workers", config.workers.to_string(), "1 to 64");
    }
    if config.max_clients == 0 {
        return bad("number of clients (--max-clients)", "0".into(), "1 or more");
    }
    if !(1024..=landfall_heap::VALUE_BYTES_MAX).contains(&config.max_request.0) {
        return bad("length of a value (--max-request)", config.max_request.to_string(), "1KiB to 512MiB");
    }
    if config.max_pipeline == 0 {
        return bad("number of commands (--max-pipeline)", "0".into(), "1 or more");
    }
    if config.max_header.0 < 1024 {
        return bad("length of a head (--max-header)", config.max_header.to_string(), "at least 1KiB");
    }
    if !(1..=landfall_server::config::MAX_OUTPUT_MAX).contains(&config.max_output.0) {
        return bad(
            "limit on queued replies (--max-output)",
            config.max_output.to_string(),
            "1 byte to 1GiB",
        );
    }
    Ok(())
}
