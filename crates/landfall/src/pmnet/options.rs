//! What the services of `landfall pmnet` share: logging, stopping, and parsing of flags.

use crate::{output, sys};
use clap::Args;
use landfall_pmnet::auth::Key;
use landfall_pmnet_io::redis::server::ServerSideConfig;
use landfall_pmnet_io::runtime::{KeyFileError, read_key};
use landfall_server::config::{ConfigError, Size};
use landfall_switch::SwitchError;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Pause between checks of a side-car, before it listens and afterwards.
const CHECK_SOON: Duration = Duration::from_millis(2);
const CHECK_EVERY: Duration = Duration::from_millis(50);
/// Interval at which counters are logged.
const LOG_EVERY: Duration = Duration::from_secs(60);

/// Flags of the log.
#[derive(Clone, Debug, Args)]
pub(super) struct LogArgs {
    /// error, warn, info, debug, trace, or a filter such as landfall_switch=debug
    #[arg(long, value_name = "LEVEL", default_value = "info", value_parser = crate::log::parse_level)]
    log_level: String,
    /// text or json
    #[arg(long, value_name = "FORMAT", default_value = "text", value_parser = ["text", "json"])]
    log_format: String,
}

impl LogArgs {
    pub(super) fn start(&self) {
        crate::log::start(&self.log_level, self.log_format == "json");
    }
}

/// A flag that SIGTERM and SIGINT set. It must be created before any thread is started.
///
/// # Errors
/// An error of the kernel.
pub(super) fn stop_flag() -> std::io::Result<Arc<AtomicBool>> {
    sys::ignore_size_signal();
    sys::block_stop_signals()?;
    let stop = Arc::new(AtomicBool::new(false));
    let stopping = Arc::clone(&stop);
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        if let Ok(signal) = sys::wait_for_stop_signal() {
            tracing::info!(signal, "stopping");
        }
        stopping.store(true, Ordering::Relaxed);
    })?;
    Ok(stop)
}

/// Why a side-car has ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum SidecarEnd<E: std::error::Error + 'static> {
    #[error(transparent)]
    Failed(E),
    #[error("starting a thread: {0}")]
    Thread(std::io::Error),
    #[error("the side-car's thread has panicked")]
    Panicked,
}

/// Flags of the real server, and of the side-car's own records in it.
#[derive(Clone, Debug, Args)]
pub(super) struct RedisArgs {
    /// The real server
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:6379")]
    redis: SocketAddr,
    /// File with the real server's password, on its first line
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// User of the real server
    #[arg(long, value_name = "NAME", requires = "password_file")]
    user: Option<String>,
    /// First part of the names of the keys for the side-car's own records
    #[arg(long, value_name = "TEXT", default_value = "landfall:pmnet")]
    prefix: String,
}

impl RedisArgs {
    /// The configuration of a side-car in front of the real server.
    pub(super) fn side_car(&self, listen: SocketAddr) -> Result<ServerSideConfig, ConfigError> {
        let mut config = ServerSideConfig::new(listen, self.redis);
        config.password = self.password_file.as_deref().map(crate::password::read_password).transpose()?;
        config.user.clone_from(&self.user);
        config.prefix.clone_from(&self.prefix);
        Ok(config)
    }

    /// The configuration for commands that use the real server but do not listen.
    pub(super) fn offline(&self) -> Result<ServerSideConfig, ConfigError> {
        self.side_car(([127, 0, 0, 1], 0).into())
    }
}

/// The key that clients, devices and servers share.
#[derive(Clone, Debug, Args)]
pub(super) struct KeyArgs {
    /// File with a key that clients, devices and server share: 32 hexadecimal digits, readable by its owner only.
    /// Packets are sealed with it, and packets without a valid seal are dropped. Without a key, every host that reaches
    /// the network can impersonate any of them
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
}

impl KeyArgs {
    pub(super) fn key(&self) -> Result<Option<Key>, KeyFileError> {
        self.key_file.as_deref().map(read_key).transpose()
    }
}

/// Flags of a side-car's metrics.
#[derive(Clone, Copy, Debug, Args)]
pub(super) struct MetricsArgs {
    /// Serve counts at http://ADDR:PORT/metrics, for Prometheus and `landfall pmnet top`
    #[arg(long = "metrics", value_name = "ADDR:PORT")]
    address: Option<SocketAddr>,
}

impl MetricsArgs {
    /// Serves the metrics if the flag is set; returns the address.
    pub(super) fn serve(
        self,
        text: impl Fn() -> String + Send + 'static,
    ) -> Result<Option<SocketAddr>, SwitchError> {
        Ok(self.address.map(|address| landfall_metrics::serve(address, text)).transpose()?)
    }
}

/// Runs a side-car on a separate thread until its end. Prints its address, as `label`, once `listens` returns it, and
/// the address of its metrics: scripts read the ports from there. Logs its counters from time to time, and at the end.
pub(super) fn run_side_car<E: std::error::Error + Send>(
    (name, label, metrics): (&str, &str, Option<SocketAddr>),
    run: impl FnOnce() -> Result<(), E> + Send + 'static,
    listens: impl Fn() -> Option<SocketAddr>,
    tell: impl Fn(&str),
) -> Result<(), SidecarEnd<E>> {
    let thread =
        std::thread::Builder::new().name("side-car".into()).spawn(run).map_err(SidecarEnd::Thread)?;
    let (mut told, mut announced) = (Instant::now(), false);
    while !thread.is_finished() {
        if let Some(address) = listens().filter(|_| !announced) {
            announced = true;
            announce(name, label, address, metrics);
        }
        std::thread::sleep(if announced { CHECK_EVERY } else { CHECK_SOON });
        if told.elapsed() >= LOG_EVERY {
            told = Instant::now();
            tell("so far");
        }
    }
    let outcome = thread.join().map_err(|_| SidecarEnd::Panicked)?;
    tell("stopped");
    outcome.map_err(SidecarEnd::Failed)
}

fn announce(name: &str, label: &str, address: SocketAddr, metrics: Option<SocketAddr>) {
    let mut lines =
        vec![format!("landfall {} pmnet {name}", env!("CARGO_PKG_VERSION")), format!("{label}: {address}")];
    lines.extend(metrics.map(|address| format!("metrics: http://{address}/metrics")));
    lines.push("ready".to_owned());
    output::announce(&lines);
    sys::notify_ready();
}

/// An invalid value of a flag.
#[derive(Debug, thiserror::Error)]
#[error("{text}: {expected}")]
pub(super) struct BadValue {
    text: String,
    expected: &'static str,
}

impl BadValue {
    pub(super) fn new(text: &str, expected: &'static str) -> Self {
        Self { text: text.into(), expected }
    }
}

/// A number of things of which none would serve nobody.
pub(super) fn parse_count(text: &str) -> Result<usize, BadValue> {
    let count = text.parse().ok().filter(|count| *count > 0);
    count.ok_or_else(|| BadValue::new(text, "give 1 or more"))
}

/// The length of the longest request.
pub(super) fn parse_request_size(text: &str) -> Result<Size, BadValue> {
    let size = text.parse::<Size>().ok().filter(|size| size.0 >= 1024);
    size.ok_or_else(|| BadValue::new(text, "give a size of 1KiB or more"))
}

/// A length that fits the 32 bits of the packets.
pub(super) fn parse_reply_size(text: &str) -> Result<u32, BadValue> {
    let size = text.parse::<Size>().ok().and_then(|size| u32::try_from(size.0).ok());
    size.filter(|size| *size > 0).ok_or_else(|| BadValue::new(text, "give a size below 4GiB, such as 1GiB"))
}

/// Seconds of silence after which a session ends: a lease is a quarter of them, in whole seconds of 16 bits.
pub(super) fn parse_silence(text: &str) -> Result<Duration, BadValue> {
    let seconds = text.parse().ok().filter(|seconds| (4..=4 * u64::from(u16::MAX)).contains(seconds));
    seconds.map(Duration::from_secs).ok_or_else(|| BadValue::new(text, "give 4 to 262140 seconds"))
}

/// Parses `FIRST-LAST`.
pub(super) fn parse_ports(text: &str) -> Result<RangeInclusive<u16>, BadValue> {
    let bad = || BadValue::new(text, "give two ports, the first not above the last: FIRST-LAST");
    let (first, last) = text.split_once('-').ok_or_else(bad)?;
    let ports = first.parse().map_err(|_| bad())?..=last.parse().map_err(|_| bad())?;
    if ports.is_empty() || *ports.start() == 0 { Err(bad()) } else { Ok(ports) }
}
