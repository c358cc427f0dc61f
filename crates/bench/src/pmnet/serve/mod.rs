//! The hidden `landfall bench pmnet-server`: a server, a logger or a side-car at an end of the wire.

pub(crate) mod counts;
mod handler;
mod logger;
pub(crate) mod plain;
mod pmnet;
mod replicas;
pub(crate) mod tcp;

use super::args::{PmnetServerArgs, ServeKind};
use crate::common::error::BenchError;
use crate::common::sys::{note_stop_signals, stop_asked};
use crate::pmnet::sys::{Class, enter_class};
use counts::Executed;
use landfall_pmnet_io::redis::server::{self as sidecar, ServerSideConfig, ServerSideReports};
use std::io::{self, Write};
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Bytes of the longest datagram.
const DATAGRAM_BYTES_MAX: usize = 65535;
/// The largest number of requests that share a commit.
const BATCH_MAX: usize = 64;
/// The longest wait between two checks of the stop flag, ms.
const WAIT_MS: i32 = 100;
/// Bytes of the tag in front of a request and of its reply. The client chooses the tag.
pub(crate) const TAG_BYTES: usize = 8;
/// Bytes of a socket's buffers in the kernel.
const BUFFER_BYTES: usize = 8 << 20;

/// Runs until SIGTERM.
pub(crate) fn run(args: &PmnetServerArgs) -> Result<(), BenchError> {
    if args.background {
        enter_class(Class::Batch);
    }
    match args.kind {
        ServeKind::Udp => plain::run(args),
        ServeKind::Tcp => tcp::run(args),
        ServeKind::Pmnet => pmnet::run(args),
        ServeKind::Logger => logger::run(args),
        ServeKind::Sidecar => run_sidecar(args),
    }
}

fn run_sidecar(args: &PmnetServerArgs) -> Result<(), BenchError> {
    let redis = args.forward.ok_or(BenchError::Nothing("a side-car needs --forward ADDR:PORT"))?;
    let mut config = ServerSideConfig::new(args.listen, redis);
    config.options.spin = spin(args);
    config.replicas = args.replicas.len() as u32;
    let reports = Arc::new(ServerSideReports::default());
    let (stop, ready, counted) = (watch_stop(), reports.network.clone(), Arc::clone(&reports));
    tell_at(args.counts, move || Executed::of(&counted.network.get(), counted.redis.get().rejected))?;
    announce_when(move || ready.get().incarnations > 0);
    sidecar::run(config, reports, stop).map_err(|error| BenchError::Store(error.to_string()))
}

/// Tells what was executed, if there is an address to tell it at.
fn tell_at(
    address: Option<SocketAddr>,
    executed: impl Fn() -> Executed + Send + 'static,
) -> Result<(), BenchError> {
    address.map_or(Ok(()), |address| counts::tell(address, executed).map(drop))
}

/// A server that shares a core with a device does not busy-poll: that would delay the device whose packets it waits
/// for.
fn spin(args: &PmnetServerArgs) -> Duration {
    if args.spin { Duration::MAX } else { Duration::ZERO }
}

/// Returns a flag that SIGINT and SIGTERM set.
fn watch_stop() -> Arc<AtomicBool> {
    note_stop_signals();
    let stop = Arc::new(AtomicBool::new(false));
    let told = stop.clone();
    std::thread::spawn(move || {
        while !stop_asked() {
            std::thread::sleep(Duration::from_millis(20));
        }
        told.store(true, Ordering::Relaxed);
    });
    stop
}

/// Announces that the process serves.
fn announce_when(serves: impl Fn() -> bool + Send + 'static) {
    std::thread::spawn(move || {
        while !serves() {
            std::thread::sleep(Duration::from_millis(1));
        }
        announce();
    });
}

/// Prints the lines that the parent process waits for.
fn announce() {
    // An error means that no process reads the lines.
    let _ = io::stdout().write_all(b"landfall bench pmnet-server\nready\n");
    let _ = io::stdout().flush();
}

/// Opens a non-blocking socket with room for many datagrams.
fn open_udp(address: SocketAddr) -> Result<UdpSocket, BenchError> {
    let failed = BenchError::connection("the server's socket");
    let open = || -> io::Result<UdpSocket> {
        let socket = socket2::Socket::new(
            socket2::Domain::for_address(address),
            socket2::Type::DGRAM,
            Some(socket2::Protocol::UDP),
        )?;
        // The system may grant less.
        let _ = socket.set_recv_buffer_size(BUFFER_BYTES);
        socket.bind(&address.into())?;
        socket.set_nonblocking(true)?;
        Ok(socket.into())
    };
    open().map_err(failed)
}

/// Datagrams that have arrived, with their senders.
#[derive(Debug, Default)]
struct Batch {
    bytes: Vec<u8>,
    /// The sender of each datagram and its range in the buffer.
    arrived: Vec<(SocketAddr, std::ops::Range<usize>)>,
}

impl Batch {
    /// Receives up to [`BATCH_MAX`] datagrams. If none has arrived, waits for one unless the server busy-polls.
    fn receive(&mut self, socket: &UdpSocket, spin: bool) -> io::Result<()> {
        self.bytes.resize(BATCH_MAX * DATAGRAM_BYTES_MAX, 0);
        self.arrived.clear();
        let mut at = 0;
        while self.arrived.len() < BATCH_MAX {
            match socket.recv_from(&mut self.bytes[at..at + DATAGRAM_BYTES_MAX]) {
                Ok((len, from)) if len >= TAG_BYTES => {
                    self.arrived.push((from, at..at + len));
                    at += len;
                }
                Ok(_) => {}
                Err(_) if !self.arrived.is_empty() || spin => return Ok(()),
                Err(_) => {
                    use std::os::fd::AsFd;
                    super::sys::wait_readable(&[socket.as_fd()], WAIT_MS)?;
                    if stop_asked() {
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns the sender, tag and request of each datagram.
    fn requests(&self) -> impl Iterator<Item = (SocketAddr, &[u8], &[u8])> {
        self.arrived.iter().map(|(from, range)| {
            let (tag, request) = self.bytes[range.clone()].split_at(TAG_BYTES);
            (*from, tag, request)
        })
    }
}
