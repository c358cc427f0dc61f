//! `landfall pmnet client`: the side-car of Redis clients.

use super::counts;
use super::members::{ChainArgs, ChainError, follow};
use super::options::{
    KeyArgs, LogArgs, MetricsArgs, SidecarEnd, parse_count, parse_reply_size, parse_request_size,
    run_side_car, stop_flag,
};
use crate::{fail, sys};
use clap::Args;
use landfall_pmnet_io::redis::client::{SidecarConfig, SidecarError, SidecarReport, run as run_sidecar};
use landfall_pmnet_io::runtime::{KeyFileError, Published};
use landfall_server::config::{Size, parse_spin};
use landfall_switch::SwitchError;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Flags of `landfall pmnet client`.
#[derive(Debug, Args)]
pub(crate) struct ClientArgs {
    /// Address that Redis clients connect to
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:6579")]
    listen: SocketAddr,
    /// PMNet address of the server, or of the relay in front of it [default: the chain's]
    #[arg(long, value_name = "ADDR:PORT", required_unless_present_any = ["chain_file", "etcd"])]
    server: Option<SocketAddr>,
    /// Devices on the path, numbered from 0; with none, only the server acknowledges
    #[arg(long, value_name = "N", default_value_t = 0, conflicts_with_all = ["chain_file", "etcd"],
        value_parser = clap::value_parser!(u8).range(..=250))]
    devices: u8,
    #[command(flatten)]
    chain: ChainArgs,
    /// Own address towards the network [default: the kernel chooses]
    #[arg(long, value_name = "ADDR:PORT")]
    bind: Option<SocketAddr>,
    /// Packets of a session in flight, at most
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u16).range(1..))]
    window: u16,
    /// Largest IP packet of the path, bytes
    #[arg(long, value_name = "BYTES", default_value_t = 1500, value_parser = clap::value_parser!(u16).range(576..))]
    mtu: u16,
    /// Busy-poll for this many microseconds before blocking, less while that finds nothing; or always
    #[arg(long, value_name = "MICROSECONDS", default_value = "0")]
    spin: String,
    /// Also acknowledge commands early whose success is constant but for a key's type
    #[arg(long)]
    typed_early: bool,
    /// File with the password that clients must give, on its first line
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// Serve other machines without a password
    #[arg(long)]
    insecure_no_password: bool,
    /// Connections, at most
    #[arg(long, value_name = "N", default_value_t = 4096, value_parser = parse_count)]
    max_clients: usize,
    /// Requests of a connection in flight, at most
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = parse_count)]
    max_pipeline: usize,
    /// Longest request
    #[arg(long, value_name = "SIZE", default_value = "1MiB", value_parser = parse_request_size)]
    max_request: Size,
    /// Bytes of replies that clients have not read, of all connections together; beyond it, connections that do not
    /// read are paused
    #[arg(long, value_name = "SIZE", default_value = "64MiB")]
    max_replies: Size,
    /// Longest reply that is carried; for a longer one the client gets an error
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = parse_reply_size)]
    max_reply: u32,
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
    Sidecar(#[from] SidecarEnd<SidecarError>),
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
pub(crate) fn run(args: ClientArgs) -> ExitCode {
    args.log.start();
    match start(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error),
    }
}

fn start(args: ClientArgs) -> Result<(), RunError> {
    let stop = stop_flag()?;
    sys::raise_open_files();
    let metrics = args.metrics;
    let config = args.config(&stop)?;
    let report = Arc::new(Published::<SidecarReport>::default());
    let counted = Arc::clone(&report);
    let metrics = metrics.serve(move || counts::client(&counted.get()))?;
    let theirs = Arc::clone(&report);
    let tell = |when: &str| tracing::info!(report = ?report.get(), "{when}");
    let run = move || run_sidecar(config, theirs, stop);
    Ok(run_side_car(("client", "resp", metrics), run, || report.get().listens, tell)?)
}

impl ClientArgs {
    fn config(self, stop: &Arc<AtomicBool>) -> Result<SidecarConfig, RunError> {
        let password = self.password_file.as_deref().map(crate::password::read_password).transpose()?;
        let mut server = self.server;
        let devices = Arc::new(Published::default());
        let source = self.chain.source()?;
        if let Some(source) = &source {
            let (chain, _) = follow(source, Arc::clone(&devices), Arc::clone(stop))?;
            server = server.or(Some(chain.server));
        }
        // The flags require one of the two.
        let server = server.unwrap_or(self.listen);
        let mut config = SidecarConfig::new(self.listen, server);
        config.chain = source.map(|_| devices);
        config.client.devices = self.devices;
        config.client.window = self.window;
        config.client.mtu = self.mtu;
        config.key = self.key.key()?;
        config.client.response_bytes_max = self.max_reply;
        config.bind = self.bind;
        config.spin = parse_spin(&self.spin)?;
        config.typed_early = self.typed_early;
        config.password = password;
        config.open = self.insecure_no_password;
        config.connections_max = self.max_clients;
        config.pipeline_max = self.max_pipeline;
        config.replies_bytes_max = usize::try_from(self.max_replies.0).unwrap_or(usize::MAX);
        config.request_bytes_max = usize::try_from(self.max_request.0).unwrap_or(usize::MAX);
        Ok(config)
    }
}
