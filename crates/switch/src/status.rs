//! What a device counts, for whoever asks: Prometheus text over HTTP, and `landfall pmnet top`.

use crate::error::SwitchError;
use landfall_pmnet::device::{Device, DeviceStats, ServerState};
use parking_lot::Mutex;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

/// Longest that a client of the metrics may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes of a request's head that are read at most.
const HEAD_BYTES_MAX: usize = 8192;

/// A device's counts, as of a moment ago.
#[derive(Debug)]
pub struct Status {
    recovered: u64,
    shown: Mutex<Shown>,
}

#[derive(Clone, Debug, Default)]
struct Shown {
    stats: DeviceStats,
    entries: u64,
    bytes: u64,
    servers: Vec<(SocketAddr, ServerState)>,
    free_runs: u32,
    cached: (usize, usize),
    passed: u64,
    drops: u64,
}

impl Status {
    pub(crate) fn new(recovered: u64) -> Self {
        Self { recovered, shown: Mutex::default() }
    }

    pub(crate) fn publish(&self, device: &Device, passed: u64) {
        let mut shown = self.shown.lock();
        shown.stats.clone_from(device.stats());
        shown.entries = device.log().len() as u64;
        shown.bytes = device.log().bytes();
        shown.servers = device.servers().collect();
        shown.cached = device.cached();
        shown.passed = passed;
        shown.free_runs = device.log().heap().runs().free_count();
    }

    pub(crate) fn dropped(&self, packets: u64) {
        self.shown.lock().drops += packets;
    }

    /// Prometheus text format, version 0.0.4.
    pub fn metrics(&self) -> String {
        let shown = self.shown.lock().clone();
        let stats = &shown.stats;
        let mut text = String::new();
        let mut metric = |kind: &str, name: &str, help: &str, value: u64| {
            let name = format!("landfall_pmnet_{name}");
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}");
        };
        metric("gauge", "log_entries", "Updates in the log", shown.entries);
        metric("gauge", "log_bytes", "Bytes of the packets in the log", shown.bytes);
        metric("gauge", "free_bytes", "Bytes of free runs of the region", u64::from(shown.free_runs) << 20);
        metric("gauge", "cached_values", "Values in the read cache", shown.cached.0 as u64);
        metric("gauge", "cached_bytes", "Bytes of these, and of their keys", shown.cached.1 as u64);
        metric("gauge", "recovered_entries", "Updates found in the log at the start", self.recovered);
        let counters = [
            ("packets_total", "PMNet packets that came to this process", stats.packets),
            ("passed_total", "PMNet packets that went on in the kernel", shown.passed),
            ("malformed_total", "Packets that could not be understood", stats.malformed),
            ("dropped_total", "Packets dropped: wrong checksum, or nowhere to send them", shown.drops),
            ("updates_total", "Updates that arrived, repetitions included", stats.updates),
            ("logged_total", "Updates that went into the log", stats.logged),
            ("repeated_total", "Updates that were in the log already", stats.repeated),
            ("acknowledged_total", "PMNet-ACKs of its own making sent", stats.acknowledged),
            ("joined_total", "PMNet-ACKs of other devices sent on with its own", stats.joined),
            ("fences_total", "Fences", stats.fences),
            ("server_acks_total", "Server-ACKs", stats.server_acks),
            ("removed_total", "Updates removed from the log", stats.removed),
            ("retransmissions_total", "Retransmission requests of servers", stats.retransmissions),
            (
                "retransmissions_answered_total",
                "Of those, answered from the log alone",
                stats.retransmissions_answered,
            ),
            ("recoveries_total", "Recovery requests of servers", stats.recoveries),
            ("resent_total", "Updates sent to servers again", stats.resent),
            ("replays_total", "Servers that were sent everything again", stats.replays),
            ("bypasses_total", "Bypasses that came to this process", stats.bypasses),
            ("cache_hits_total", "Bypasses answered from the read cache", stats.cache_hits),
            ("media_errors_total", "Errors of the medium", stats.media_errors),
        ];
        counters.into_iter().for_each(|(name, help, value)| metric("counter", name, help, value));
        not_logged(&mut text, stats);
        servers(&mut text, &shown.servers);
        text
    }
}

fn not_logged(text: &mut String, stats: &DeviceStats) {
    let name = "landfall_pmnet_not_logged_total";
    let _ = writeln!(text, "# HELP {name} Updates forwarded without being logged\n# TYPE {name} counter");
    for (why, count) in &stats.not_logged {
        let _ = writeln!(text, "{name}{{why=\"{why:?}\"}} {count}");
    }
}

fn servers(text: &mut String, servers: &[(SocketAddr, ServerState)]) {
    let name = "landfall_pmnet_server_state";
    let _ = writeln!(text, "# HELP {name} 1 answers, 0 is silent, -1 never answered\n# TYPE {name} gauge");
    for (address, state) in servers {
        let value = match state {
            ServerState::Well => 1,
            ServerState::Silent => 0,
            ServerState::Unknown => -1,
        };
        let _ = writeln!(text, "{name}{{server=\"{address}\"}} {value}");
    }
}

/// Answers `GET /metrics` on `address`, on a thread of its own, until the process ends.
///
/// # Errors
/// [`SwitchError::Listen`].
pub fn serve(address: SocketAddr, status: Arc<Status>) -> Result<SocketAddr, SwitchError> {
    let failed = |source| SwitchError::Listen { address, source };
    let listener = TcpListener::bind(address).map_err(failed)?;
    let local = listener.local_addr().map_err(failed)?;
    let work = move || {
        for stream in listener.incoming().flatten() {
            // One at a time: they are few, and a slow one is given up.
            let _ = answer(&stream, &status);
        }
    };
    let thread = std::thread::Builder::new().name("metrics".into()).spawn(work);
    thread.map_err(SwitchError::system("starting a thread"))?;
    Ok(local)
}

fn answer(stream: &TcpStream, status: &Status) -> std::io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut head = BufReader::new(std::io::Read::take(stream, HEAD_BYTES_MAX as u64));
    let mut request = String::new();
    head.read_line(&mut request)?;
    let mut line = String::new();
    while head.read_line(&mut line)? > 2 {
        line.clear();
    }
    let (code, body) = match request.split(' ').nth(1) {
        Some("/metrics" | "/") => ("200 OK", status.metrics()),
        _ => ("404 Not Found", "only /metrics is here\n".into()),
    };
    let head = format!(
        "HTTP/1.1 {code}\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    let mut to = stream;
    to.write_all(head.as_bytes())?;
    to.write_all(body.as_bytes())
}
