//! `landfall pmnet switch`: runs a device.

use super::members::{ChainArgs, ChainError, keep, register};
use super::options::{BadValue, KeyArgs, LogArgs, parse_ports, stop_flag};
use crate::output::{self, fail};
use crate::sys;
use clap::Args;
use landfall_members::Role;
use landfall_pmnet::device::{CacheConfig, Codec, DeviceConfig, LinearizableConfig};
use landfall_pmnet::log::Limits;
use landfall_pmnet::paths::PathLimits;
use landfall_pmnet::{Dialect, PORTS};
use landfall_pmnet_io::runtime::KeyFileError;
use landfall_server::config::{Size, parse_media, parse_spin, parse_xdp_mode};
use landfall_switch::relay::{Relay, RelayConfig};
use landfall_switch::wire::{Nic, NicConfig, Wire, WireConfig};
use landfall_switch::{RegionConfig, SwitchError};
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Flags of `landfall pmnet switch`.
#[derive(Debug, Args)]
pub(crate) struct SwitchArgs {
    /// On the wire, over AF_XDP: the interface towards the clients and the one towards the server (root)
    #[arg(long, value_name = "CLIENTS,SERVER", value_parser = parse_pair, conflicts_with = "server")]
    between: Option<(String, String)>,
    /// As the network card of the server's own host, over AF_XDP: the interface that clients' packets arrive on (root)
    #[arg(long, value_name = "INTERFACE", conflicts_with_all = ["server", "between"])]
    nic: Option<String>,
    /// Keep forwarding while no device runs: pin its programs in this folder of a BPF file system
    #[arg(long, value_name = "FOLDER", conflicts_with = "server")]
    pin: Option<PathBuf>,
    /// Who copies packets between the interfaces and the region: auto, copy or zero-copy
    #[arg(long, value_name = "MODE", default_value = "auto", conflicts_with = "server")]
    xdp_mode: String,
    /// Relay over kernel sockets, without privileges: address that clients send to
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:51000")]
    listen: SocketAddr,
    /// Server that the relay forwards to
    #[arg(long, value_name = "ADDR:PORT")]
    server: Option<SocketAddr>,
    /// Ports that the relay forwards clients' packets from, one per client; the assignment is kept across restarts
    #[arg(long, value_name = "FIRST-LAST", default_value = "20000-29999", value_parser = parse_ports,
        conflicts_with_all = ["between", "nic"])]
    upstream_ports: RangeInclusive<u16>,
    /// Release a client's port when nothing arrived from it for this many seconds and the log has none of its updates.
    /// The port of a client whose sessions have ended is released after ten seconds. If no port is left, an hour of
    /// silence is enough
    #[arg(long, value_name = "SECONDS", default_value_t = 86_400, value_parser = clap::value_parser!(u64).range(120..=31_536_000),
        conflicts_with_all = ["between", "nic"])]
    path_idle: u64,
    /// Directory of the region (created if absent), or a DAX device
    #[arg(long, value_name = "DIR", default_value = "landfall-pmnet")]
    dir: PathBuf,
    /// Size of the region; an existing smaller one grows
    #[arg(long, value_name = "SIZE", default_value = "256MiB")]
    capacity: Size,
    /// Medium that the region must be on: auto, dax, file or volatile
    #[arg(long, value_name = "KIND", default_value = "auto")]
    media: String,
    /// Register under this name with the chain's etcd, which assigns the device's number
    #[arg(long, value_name = "NAME", requires = "etcd", conflicts_with_all = ["number", "chain_file"])]
    name: Option<String>,
    #[command(flatten)]
    chain: ChainArgs,
    /// Number of the device in its chain, 0 next to the clients; without it, the device has no chain
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(..250))]
    number: Option<u8>,
    /// This is the last device of its chain, next to the server: it acknowledges before it forwards, as a device
    /// without a chain does. The other devices forward first, because the client waits for all of them
    #[arg(long, requires = "number", conflicts_with = "name")]
    last: bool,
    /// Acknowledge in one packet together with the devices behind this one, if their acknowledgements follow within
    /// this many microseconds. 0: always separately, which clients other than Landfall's need
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 5)]
    keep_back: u64,
    /// Updates in the log, at most
    #[arg(long, value_name = "N", default_value_t = Limits::default().entries_max)]
    log_entries: usize,
    /// Updates that wait for a fence, at most
    #[arg(long, value_name = "N", default_value_t = Limits::default().queue_max)]
    log_queue: usize,
    /// Resend an update to the server if it was not confirmed within this many milliseconds
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 100)]
    resend_after: u64,
    /// Probe servers at this interval, milliseconds; 0: never
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 100)]
    heartbeat: u64,
    /// For the authors' public release of PMNet: `clients` of the release in front of `landfall pmnet server --foreign`
    /// (the default without a value), or `both`, its clients and servers. See docs/pmnet-interoperability.md
    #[arg(long, value_name = "WHO", num_args = 0..=1, require_equals = true, default_missing_value = "clients",
        value_parser = parse_dialect, conflicts_with = "key_file")]
    foreign: Option<Dialect>,
    /// Answer reads from a cache: off, resp (Redis' protocol), resp-keep (resp, for stores in which no key ever
    /// expires: also caches the server's responses), or plain (the protocol of the built-in handlers). All packets
    /// between clients and server must pass this device, and nothing else may change the server's keys
    #[arg(long, value_name = "PROTOCOL", default_value = "off", value_parser = parse_cache)]
    cache: CacheChoice,
    /// What a connection sees of the updates of other connections: session (its own updates always; others' once the
    /// server has applied them, or from the cache) or linearizable (for each key, everything that was acknowledged to
    /// any client before the request). linearizable delays requests that would overtake acknowledged updates of other
    /// connections; all devices of a chain need it, and all must be relays
    #[arg(long, value_name = "MODEL", default_value = "session", value_parser = ["session", "linearizable"])]
    consistency: String,
    /// Bytes of keys and values in the cache
    #[arg(long, value_name = "SIZE", default_value = "64MiB")]
    cache_size: Size,
    /// The cache does not answer for this many seconds after a start. Use it if this device replaces a lost one: the
    /// other devices need the time to send what they hold to the server. Default: 10 in a chain, 0 without one
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(..=86_400))]
    cache_wait: Option<u64>,
    /// Busy-poll for this many microseconds before blocking, or always
    #[arg(long, value_name = "MICROSECONDS", default_value = "50")]
    spin: String,
    /// Serve metrics at http://ADDR:PORT/metrics, for Prometheus and `landfall pmnet top`
    #[arg(long, value_name = "ADDR:PORT")]
    metrics: Option<SocketAddr>,
    #[command(flatten)]
    key: KeyArgs,
    #[command(flatten)]
    log: LogArgs,
}

/// Why the device does not run.
#[derive(Debug, thiserror::Error)]
enum RunError {
    #[error(transparent)]
    Switch(#[from] SwitchError),
    #[error(transparent)]
    Chain(#[from] ChainError),
    #[error(transparent)]
    Config(#[from] landfall_server::config::ConfigError),
    #[error(transparent)]
    Key(#[from] KeyFileError),
    #[error(transparent)]
    Value(#[from] BadValue),
    #[error("signals: {0}")]
    Signals(std::io::Error),
    #[error("the address that was bound: {0}")]
    Address(std::io::Error),
}

/// Runs a device until SIGTERM or SIGINT.
pub(crate) fn run(mut args: SwitchArgs) -> ExitCode {
    args.log.start();
    match start(&mut args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error),
    }
}

fn start(args: &mut SwitchArgs) -> Result<(), RunError> {
    args.check_foreign()?;
    let stop = stop_flag().map_err(RunError::Signals)?;
    sys::raise_open_files();
    let registered = join_chain(args, &stop)?;
    if let Some((clients, server)) = &args.between {
        let wire = Wire::open(&args.wire(clients, server)?)?;
        announce(wire.reason(), None, wire.metrics());
        wire.run(&stop)?;
    } else if let Some(interface) = &args.nic {
        let config = NicConfig { interface: interface.clone(), wire: args.wire("", "")? };
        let nic = Nic::open(&config)?;
        announce(nic.reason(), None, nic.metrics());
        nic.run(&stop)?;
    } else {
        relay(args, &stop)?;
    }
    stop.store(true, Ordering::Relaxed);
    registered.map(JoinHandle::join);
    tracing::info!("stopped; everything acknowledged is in the log or confirmed by the server");
    Ok(())
}

/// Registers with the chain's etcd, and takes the number that the chain assigns.
fn join_chain(args: &mut SwitchArgs, stop: &Arc<AtomicBool>) -> Result<Option<JoinHandle<()>>, RunError> {
    let Some((name, source)) = args.chain.source_of(args.name.as_deref())? else { return Ok(None) };
    let chain = source.show().map_err(ChainError::from)?.chain;
    let device = chain.device(name).filter(|device| !device.failed);
    let device = device.ok_or_else(|| {
        BadValue::new(
            name,
            "no such device in the chain, or it is marked as failed: landfall pmnet chain add NAME",
        )
    })?;
    args.number = Some(device.number);
    args.last = chain.devices.iter().rfind(|device| !device.failed).is_some_and(|last| last.name == *name);
    let keeper = register(&source, name, Role::Device, args.metrics.unwrap_or(args.listen))?;
    Ok(Some(keep(keeper, Arc::clone(stop))?))
}

fn relay(args: &SwitchArgs, stop: &AtomicBool) -> Result<(), RunError> {
    let config = args.relay()?;
    if !PORTS.contains(&config.listen.port()) && !PORTS.contains(&config.server.port()) {
        tracing::warn!(
            "neither the relay's port nor the server's is between 51000 and 52000: devices further on will not take the packets for PMNet's"
        );
    }
    let relay = Relay::open(&config)?;
    let address = relay.address().map_err(RunError::Address)?;
    announce(&format!("relay to {}", config.server), Some(address), relay.metrics());
    Ok(relay.run(stop)?)
}

/// Prints the addresses: scripts read the ports from here.
fn announce(what: &str, listen: Option<SocketAddr>, metrics: Option<SocketAddr>) {
    let mut lines = vec![format!("landfall {} pmnet switch: {what}", env!("CARGO_PKG_VERSION"))];
    lines.extend(listen.map(|address| format!("listen: {address}")));
    lines.extend(metrics.map(|address| format!("metrics: http://{address}/metrics")));
    lines.push("ready".to_owned());
    output::announce(&lines);
    sys::notify_ready();
}

/// Default of `--cache-wait` in a chain.
const CHAIN_CACHE_WAIT_S: u64 = 10;

/// Parses the value of `--foreign`.
fn parse_dialect(text: &str) -> Result<Dialect, BadValue> {
    match text {
        "clients" => Ok(Dialect::ForeignClients),
        "both" => Ok(Dialect::ForeignBoth),
        _ => Err(BadValue::new(text, "give clients or both")),
    }
}

/// The protocol that the cache parses.
#[derive(Clone, Copy, Debug)]
struct CacheChoice(Option<Codec>);

fn parse_cache(text: &str) -> Result<CacheChoice, BadValue> {
    match text {
        "off" => Ok(CacheChoice(None)),
        "resp" => Ok(CacheChoice(Some(Codec::Resp { keep_responses: false }))),
        "resp-keep" => Ok(CacheChoice(Some(Codec::Resp { keep_responses: true }))),
        "plain" => Ok(CacheChoice(Some(Codec::Plain))),
        _ => Err(BadValue::new(text, "give off, resp, resp-keep or plain")),
    }
}

/// Parses `A,B`.
fn parse_pair(text: &str) -> Result<(String, String), BadValue> {
    match text.split_once(',') {
        Some((a, b)) if !a.is_empty() && !b.is_empty() => Ok((a.into(), b.into())),
        _ => Err(BadValue::new(text, "give two interfaces: CLIENTS,SERVER")),
    }
}

impl SwitchArgs {
    /// Checks that a read cache is used only with servers that apply updates in order.
    fn check_foreign(&self) -> Result<(), BadValue> {
        if self.foreign == Some(Dialect::ForeignBoth) && self.cache.0.is_some() {
            let expected = "a server of the release answers updates in no order: give --cache off";
            return Err(BadValue::new("--foreign=both with --cache", expected));
        }
        Ok(())
    }

    fn relay(&self) -> Result<RelayConfig, RunError> {
        let server = self.server.ok_or_else(|| {
            BadValue::new(
                "pmnet switch",
                "give --server ADDR:PORT, where the relay sends packets on to, or --between CLIENTS,SERVER, or --nic INTERFACE",
            )
        })?;
        if self.is_linearizable() && self.foreign.is_some() {
            let problem = "linearizable and --foreign exclude each other: a bypass of the authors' clients does not say which updates come before it; give --consistency session";
            return Err(BadValue::new(&self.consistency, problem).into());
        }
        Ok(RelayConfig {
            listen: self.listen,
            server,
            upstream_ports: self.upstream_ports.clone(),
            paths: PathLimits { idle: Duration::from_secs(self.path_idle), ..PathLimits::default() },
            spin: parse_spin(&self.spin)?,
            region: self.region()?,
            limits: self.limits(),
            device: self.device(),
            key: self.key.key()?,
            metrics: self.metrics,
        })
    }

    fn wire(&self, clients: &str, server: &str) -> Result<WireConfig, RunError> {
        if self.is_linearizable() {
            let problem = "linearizable needs a relay (--listen, --server): on the wire, what passes while no device runs would overtake acknowledged updates";
            return Err(BadValue::new(&self.consistency, problem).into());
        }
        Ok(WireConfig {
            clients: clients.into(),
            server: server.into(),
            spin: parse_spin(&self.spin)?,
            mode: parse_xdp_mode(&self.xdp_mode)?,
            pin: self.pin.clone(),
            forwards_first: self.number.is_some() && !self.last,
            region: self.region()?,
            limits: self.limits(),
            device: self.device(),
            key: self.key.key()?,
            metrics: self.metrics,
        })
    }

    fn region(&self) -> Result<RegionConfig, RunError> {
        Ok(RegionConfig {
            dir: self.dir.clone(),
            capacity: self.capacity.0,
            media: parse_media(&self.media)?,
            flush: None,
        })
    }

    fn limits(&self) -> Limits {
        Limits {
            entries_max: self.log_entries,
            bytes_max: self.capacity.0,
            queue_max: self.log_queue,
            ..Limits::default()
        }
    }

    fn device(&self) -> DeviceConfig {
        DeviceConfig {
            dialect: self.foreign.unwrap_or_default(),
            number: self.number,
            keep_back: Duration::from_micros(self.keep_back),
            resend_after: Duration::from_millis(self.resend_after.max(1)),
            heartbeat_every: Duration::from_millis(self.heartbeat),
            cache: self.cache.0.map(|codec| self.cache_config(codec)),
            linearizable: self.is_linearizable().then(|| self.linearizable()),
            ..DeviceConfig::default()
        }
    }

    fn is_linearizable(&self) -> bool {
        self.consistency == "linearizable"
    }

    fn linearizable(&self) -> LinearizableConfig {
        // Requests of another protocol do not look like Redis', so every request concerns every key.
        LinearizableConfig::new(self.cache.0.unwrap_or(Codec::Resp { keep_responses: false }))
    }

    fn cache_config(&self, codec: Codec) -> CacheConfig {
        let mut config = CacheConfig::new(codec);
        let wait = self.cache_wait.unwrap_or(if self.number.is_some() { CHAIN_CACHE_WAIT_S } else { 0 });
        config.replacement_wait = Duration::from_secs(wait);
        config.limits.bytes_max = usize::try_from(self.cache_size.0).unwrap_or(usize::MAX);
        config
    }
}
