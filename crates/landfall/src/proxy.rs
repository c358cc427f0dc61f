//! `landfall proxy`: a way to the first server of a chain for clients that do not know Sentinel.
//!
//! A thread for each server of the chain asks it which one takes writes ([`watch`]). Two threads for each client ([`relay`])
//! pass bytes on to that server and back ([`pair`]). When another server is the first, the clients of the one before are cut
//! off, so that they connect again.

mod choice;
mod pair;
mod reach;
mod relay;
mod watch;

use self::relay::Relay;
use crate::output::{self, fail};
use crate::password::read_password;
use crate::sys;
use clap::Args;
use landfall_chain_io::ClientAddress;
use landfall_server::config::{ConfigError, parse_address};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

/// Servers to ask, at most: a chain has no more members.
const SERVERS_MAX: usize = landfall_chain::MEMBERS_MAX;
/// Clients at once, at most, that may be asked for: each takes two threads.
const CLIENTS_MAX: usize = 10_000;
/// Pause after a client could not be accepted, as the machine is short of files or memory.
const ACCEPT_AGAIN_AFTER: Duration = Duration::from_millis(100);
/// Files of a client: its connection, and that to the server.
const FILES_PER_CLIENT: u64 = 2;
/// Files beside those of clients: questions to the servers, their names being resolved, clients that are refused.
const OTHER_FILES: u64 = 64;

/// Flags of `landfall proxy`.
#[derive(Debug, Args)]
pub struct ProxyArgs {
    /// Address for clients: ADDR:PORT, or a port on loopback
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:6379")]
    listen: String,
    /// The name of the chain
    #[arg(long, value_name = "NAME")]
    chain: String,
    /// The RESP address of a server of the chain; several times, or with commas. Give all of them
    #[arg(long = "server", value_name = "HOST:PORT", required = true, value_delimiter = ',')]
    servers: Vec<ClientAddress>,
    /// File with the servers' password, on its first line: they are asked with it. Clients give it themselves
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// Listen for other machines although the servers have no password
    #[arg(long)]
    insecure_no_password: bool,
    /// Clients at once, at most
    #[arg(long, value_name = "N", default_value_t = 1000)]
    max_clients: usize,
    /// text or json
    #[arg(long, value_name = "FORMAT", default_value = "text", value_parser = ["text", "json"])]
    log_format: String,
    /// error, warn, info, debug, trace, or a filter such as landfall=debug
    #[arg(long, value_name = "LEVEL", default_value = "info", value_parser = crate::log::parse_level)]
    log_level: String,
}

/// Why there is no proxy.
#[derive(Debug, thiserror::Error)]
enum ProxyError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(
        "cannot listen on {address}: {source} (is another program listening there? port 0 picks a free one)"
    )]
    Listen { address: SocketAddr, source: io::Error },
    #[error("cannot start a thread, make a pipe, or wait for signals: {0}")]
    System(io::Error),
}

/// Runs `landfall proxy` until SIGTERM or SIGINT.
pub(crate) fn run(args: &ProxyArgs) -> ExitCode {
    crate::log::start(&args.log_level, args.log_format == "json");
    match serve(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error),
    }
}

fn serve(args: &ProxyArgs) -> Result<(), ProxyError> {
    let address = args.checked_address()?;
    let password = args.password_file.as_deref().map(read_password).transpose()?;
    sys::block_stop_signals().map_err(ProxyError::System)?;
    let open_files = sys::raise_open_files();
    let clients_max = clients_for(open_files, args.max_clients);
    if clients_max < args.max_clients {
        tracing::warn!(
            open_files,
            clients_max,
            "the limit on open files is low: more clients are refused; raise it (ulimit -n)"
        );
    }
    let listen = |source| ProxyError::Listen { address, source };
    let listener = TcpListener::bind(address).map_err(listen)?;
    let bound = listener.local_addr().map_err(listen)?;
    let relay = Relay::new(&args.chain, args.servers.len(), clients_max).map_err(ProxyError::System)?;
    let relay = Arc::new(relay);
    for (index, server) in args.servers.iter().enumerate() {
        let watch = watch::Watch::new(server.clone(), &args.chain, password.clone());
        let relay = Arc::clone(&relay);
        spawn("watch", move || watch.run(|answer| relay.note(index, answer)))?;
    }
    let accepting = Arc::clone(&relay);
    spawn("accept", move || accept(&listener, &accepting))?;
    output::announce(&[format!("proxy of the chain {}: {bound}", args.chain), "ready".to_owned()]);
    sys::notify_ready();
    let signal = sys::wait_for_stop_signal().map_err(ProxyError::System)?;
    tracing::info!(signal, "stopping");
    relay.stop();
    Ok(())
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), ProxyError> {
    std::thread::Builder::new().name(name.into()).spawn(work).map(drop).map_err(ProxyError::System)
}

/// Clients that there are files for, as many as are wanted at most. Without a file a client is not even accepted: it
/// would wait, and be told nothing.
fn clients_for(open_files: u64, wanted: usize) -> usize {
    let clients = open_files.saturating_sub(OTHER_FILES) / FILES_PER_CLIENT;
    usize::try_from(clients).unwrap_or(usize::MAX).clamp(1, wanted)
}

/// Accepts clients until the process ends.
fn accept(listener: &TcpListener, relay: &Arc<Relay>) {
    let mut is_said = false;
    loop {
        match listener.accept() {
            Ok((client, _)) => {
                is_said = false;
                relay.accept(client);
            }
            Err(error) => {
                // It is tried again ten times a second, and the log needs it once.
                if !std::mem::replace(&mut is_said, true) {
                    tracing::warn!(%error, "a client cannot be accepted");
                }
                std::thread::sleep(ACCEPT_AGAIN_AFTER);
            }
        }
    }
}

impl ProxyArgs {
    /// The address to listen on, if the flags make sense.
    fn checked_address(&self) -> Result<SocketAddr, ConfigError> {
        let bad = |what, text: String, expected| Err(ConfigError::Value { what, text, expected });
        if self.servers.len() > SERVERS_MAX {
            return bad("list of servers", self.servers.len().to_string(), "at most 16, as a chain has");
        }
        if !(1..=CLIENTS_MAX).contains(&self.max_clients) {
            return bad("number of clients", self.max_clients.to_string(), "1 to 10000");
        }
        let Some(address) = parse_address(&self.listen)? else {
            return bad("listening address", self.listen.clone(), "ADDR:PORT, or a port on loopback");
        };
        let is_guarded = self.password_file.is_some() || self.insecure_no_password;
        if !address.ip().is_loopback() && !is_guarded {
            return Err(ConfigError::Exposed { address });
        }
        Ok(address)
    }
}
