//! Runs both side-cars in one process, in front of a running Redis server:
//!
//! ```text
//! cargo run --release -p landfall-pmnet-io --example redis_sidecars -- 127.0.0.1:6379 127.0.0.1:7379
//! redis-benchmark -p 7379 -t set -n 10000
//! ```
//!
//! With devices on the path, the option `--devices` of `landfall pmnet client` sets how many acknowledge each update.

use landfall_pmnet_io::redis::client::{self, SidecarConfig};
use landfall_pmnet_io::redis::server::{self, ServerSideConfig};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

#[expect(clippy::print_stderr, reason = "a command-line example prints its errors")]
fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let addresses =
        (args.next().and_then(|arg| arg.parse().ok()), args.next().and_then(|arg| arg.parse().ok()));
    let (Some(redis), Some(listen)) = addresses else {
        eprintln!("usage: redis_sidecars REDIS:PORT LISTEN:PORT [spin]");
        return ExitCode::FAILURE;
    };
    let spin = if args.next().is_some() { Duration::MAX } else { Duration::ZERO };
    run(redis, listen, spin)
}

#[expect(clippy::print_stderr, reason = "a command-line example prints its errors")]
fn run(redis: SocketAddr, listen: SocketAddr, spin: Duration) -> ExitCode {
    let network = SocketAddr::from(([127, 0, 0, 1], 51000));
    let stop = Arc::new(AtomicBool::new(false));
    let mut server_config = ServerSideConfig::new(network, redis);
    server_config.options.spin = spin;
    let server_stop = stop.clone();
    let serving = thread::spawn(move || server::run(server_config, Arc::default(), server_stop));
    let client_config = SidecarConfig { spin, ..SidecarConfig::new(listen, network) };
    thread::spawn(move || {
        if let Err(error) = client::run(client_config, Arc::default(), stop) {
            eprintln!("the client's side-car: {error}");
        }
    });
    match serving.join() {
        Ok(Err(error)) => eprintln!("the server's side-car: {error}"),
        _ => return ExitCode::SUCCESS,
    }
    ExitCode::FAILURE
}
