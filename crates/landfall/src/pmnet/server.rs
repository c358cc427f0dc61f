//! `landfall pmnet server`: the side-car of a real Redis, or of `landfall serve`.

use super::counts;
use super::members::{ChainArgs, ChainError, keep, register};
use super::options::{
    KeyArgs, LogArgs, MetricsArgs, RedisArgs, SidecarEnd, parse_reply_size, parse_silence, run_side_car,
    stop_flag,
};
use crate::output::fail;
use clap::Args;
use landfall_members::Role;
use landfall_pmnet::server::Silence;
use landfall_pmnet_io::redis::server::{ServerSideConfig, ServerSideReports, run as run_sidecar};
use landfall_pmnet_io::runtime::{KeyFileError, RuntimeError};
use landfall_server::config::{Size, parse_spin};
use landfall_switch::SwitchError;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

/// Flags of `landfall pmnet server`.
#[derive(Debug, Args)]
pub(crate) struct ServerArgs {
    /// Address that clients and devices send to; a port between 51000 and 52000
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:51500")]
    listen: SocketAddr,
    #[command(flatten)]
    redis: RedisArgs,
    /// Replicas of the real server that must have a commit before it is confirmed (WAIT): as many as may be promoted
    #[arg(long, value_name = "N", default_value_t = 0)]
    replicas: u32,
    /// Run in front of a Redis that may lose confirmed data (appendonly and appendfsync are not yes and always)
    #[arg(long)]
    accept_data_loss: bool,
    /// Number of devices between the clients and this side-car, as for its clients. Sessions of crashed clients then
    /// end once all devices have reported that they hold nothing of them; without this flag such sessions stay for ever
    #[arg(long, value_name = "N")]
    devices: Option<u8>,
    /// With --devices: a session that is silent for this long ends. Clients trust devices for a quarter of this time
    /// while this side-car does not answer
    #[arg(long, value_name = "SECONDS", default_value = "64800", requires = "devices", value_parser = parse_silence)]
    session_idle: Duration,
    /// Sessions, at most, with those that have ended
    #[arg(long, value_name = "N", default_value_t = 65536, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    max_sessions: u32,
    /// Accept sessions of the authors' public release of PMNet, which begin without a session start. See
    /// docs/pmnet-interoperability.md
    #[arg(long, conflicts_with = "key_file")]
    foreign: bool,
    /// Write acknowledged commands that the real server rejects to this file, too
    #[arg(long, value_name = "FILE")]
    rejected: Option<PathBuf>,
    /// Requests in one commit, at most
    #[arg(long, value_name = "N", default_value_t = 512)]
    batch: usize,
    /// Longest reply that is carried; for a longer one the client gets an error
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = parse_reply_size)]
    max_reply: u32,
    /// Bytes of long replies, all together, that wait until their clients have fetched them
    #[arg(long, value_name = "SIZE", default_value = "2GiB")]
    max_replies: Size,
    /// Register under this name with the chain's etcd
    #[arg(long, value_name = "NAME", requires = "etcd", conflicts_with = "chain_file")]
    name: Option<String>,
    #[command(flatten)]
    chain: ChainArgs,
    /// Busy-poll for this many microseconds before blocking, less while that finds nothing; or always
    #[arg(long, value_name = "MICROSECONDS", default_value = "0")]
    spin: String,
    #[command(flatten)]
    key: KeyArgs,
    #[command(flatten)]
    metrics: MetricsArgs,
    #[command(flatten)]
    log: LogArgs,
}

/// Why the side-car does not run.
#[derive(Debug, thiserror::Error)]
enum RunError {
    #[error(transparent)]
    Sidecar(#[from] SidecarEnd<RuntimeError>),
    #[error(transparent)]
    Chain(#[from] ChainError),
    #[error(transparent)]
    Config(#[from] landfall_server::config::ConfigError),
    #[error(transparent)]
    Key(#[from] KeyFileError),
    #[error(transparent)]
    Metrics(#[from] SwitchError),
    #[error("signals: {0}")]
    System(#[from] std::io::Error),
}

/// Runs the side-car until SIGTERM or SIGINT.
pub(crate) fn run(args: ServerArgs) -> ExitCode {
    args.log.start();
    match start(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error),
    }
}

fn start(args: ServerArgs) -> Result<(), RunError> {
    let stop = stop_flag()?;
    let registered = match args.chain.source_of(args.name.as_deref())? {
        Some((name, source)) => {
            let keeper = register(&source, name, Role::Server, args.listen)?;
            Some(keep(keeper, Arc::clone(&stop))?)
        }
        None => None,
    };
    let metrics = args.metrics;
    let config = args.config()?;
    let reports = Arc::new(ServerSideReports::default());
    let counted = Arc::clone(&reports);
    let metrics = metrics.serve(move || counts::server(&counted.network.get(), &counted.redis.get()))?;
    let (theirs, stopping) = (Arc::clone(&reports), Arc::clone(&stop));
    let run = move || run_sidecar(config, theirs, stopping);
    let listens = || reports.network.get().listens;
    let outcome = run_side_car(("server", "listen", metrics), run, listens, |when| tell(&reports, when));
    stop.store(true, Ordering::Relaxed);
    registered.map(JoinHandle::join);
    Ok(outcome?)
}

fn tell(reports: &ServerSideReports, when: &str) {
    tracing::info!(network = ?reports.network.get(), redis = ?reports.redis.get(), "{when}");
}

impl ServerArgs {
    fn config(self) -> Result<ServerSideConfig, RunError> {
        let mut config = self.redis.side_car(self.listen)?;
        config.options.spin = parse_spin(&self.spin)?;
        config.options.key = self.key.key()?;
        config.options.batch_max = self.batch.max(1);
        config.options.server.response_bytes_max = self.max_reply;
        config.options.server.responses_long_bytes_max =
            usize::try_from(self.max_replies.0).unwrap_or(usize::MAX);
        config.options.server.silence =
            self.devices.map(|devices| Silence { devices, after: self.session_idle });
        config.options.server.sessions_max = self.max_sessions as usize;
        config.options.server.foreign = self.foreign;
        config.replicas = self.replicas;
        config.accept_data_loss = self.accept_data_loss;
        config.rejected_file = self.rejected;
        Ok(config)
    }
}
