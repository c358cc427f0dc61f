//! The counts of a device, published for `/metrics`.

use landfall_metrics::{Kind, Text};
use landfall_pmnet::device::{Device, DeviceStats, ServerState};
use parking_lot::Mutex;
use std::net::SocketAddr;

/// The counts of a device, as its driver published them last.
#[derive(Debug)]
pub struct Status {
    recovered: u64,
    published: Mutex<Published>,
}

#[derive(Clone, Debug, Default)]
struct Published {
    stats: DeviceStats,
    entries: u64,
    bytes: u64,
    servers: Vec<(SocketAddr, ServerState)>,
    free_runs: u32,
    cached: (usize, usize),
    passed: u64,
    drops: u64,
    paths: PathCounts,
}

/// Counts of a relay's paths.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PathCounts {
    /// Paths that are open now.
    pub(crate) open: u64,
    /// Paths opened so far.
    pub(crate) opened: u64,
    /// Paths closed so far.
    pub(crate) closed: u64,
    /// Closed paths that no server had confirmed, and whose ports were needed for other clients.
    pub(crate) gave_way: u64,
    /// Requests for a path that were refused, because no port was free or the log had no room.
    pub(crate) refused: u64,
    /// Packets from clients without a path that do not begin a session.
    pub(crate) strangers: u64,
}

impl Status {
    pub(crate) fn new(recovered: u64) -> Self {
        Self { recovered, published: Mutex::default() }
    }

    pub(crate) fn publish(&self, device: &Device, passed: u64) {
        let mut published = self.published.lock();
        published.stats.clone_from(device.stats());
        published.entries = device.log().len() as u64;
        published.bytes = device.log().bytes();
        published.servers = device.servers().collect();
        published.cached = device.cached();
        published.passed = passed;
        published.free_runs = device.log().heap().runs().free_count();
    }

    pub(crate) fn count_paths(&self, count: impl FnOnce(&mut PathCounts)) {
        count(&mut self.published.lock().paths);
    }

    pub(crate) fn dropped(&self, packets: u64) {
        self.published.lock().drops += packets;
    }

    /// The counts in the Prometheus text format, version 0.0.4.
    pub fn metrics(&self) -> String {
        let shown = self.published.lock().clone();
        let stats = &shown.stats;
        let mut text = Text::new("landfall_pmnet");
        text.gauge("log_entries", "Updates in the log", shown.entries);
        text.gauge("log_bytes", "Bytes of the packets in the log", shown.bytes);
        text.gauge("free_bytes", "Bytes of free runs of the region", u64::from(shown.free_runs) << 20);
        text.gauge("cached_values", "Values in the read cache", shown.cached.0 as u64);
        text.gauge("cached_bytes", "Bytes of the cached values and of their keys", shown.cached.1 as u64);
        text.gauge("paths", "Clients that have a port of the relay", shown.paths.open);
        text.gauge("recovered_entries", "Updates found in the log at the start", self.recovered);
        text.counters([
            ("packets_total", "PMNet packets that this process received", stats.packets),
            ("passed_total", "PMNet packets that the kernel forwarded", shown.passed),
            ("malformed_total", "Packets that could not be parsed", stats.malformed),
            ("unauthentic_total", "Packets with a wrong seal: ignored", stats.unauthentic),
            (
                "wrong_side_total",
                "Packets of a type that is never sent from the side that they came from: forwarded, and not believed",
                stats.wrong_side,
            ),
            ("dropped_total", "Packets dropped: wrong checksum, or no destination for them", shown.drops),
            ("paths_opened_total", "Ports assigned to clients", shown.paths.opened),
            ("paths_closed_total", "Ports released", shown.paths.closed),
            (
                "paths_gave_way_total",
                "Ports released for other clients, because no server had confirmed their clients",
                shown.paths.gave_way,
            ),
            ("paths_refused_total", "Clients that got no port: none was free, or the log had no room", shown.paths.refused),
            (
                "strangers_total",
                "Packets from clients without a port that do not begin a session",
                shown.paths.strangers,
            ),
        ]);
        count_requests(&mut text, stats);
        text.metric(Kind::Counter, "not_logged_total", "Updates forwarded without being logged");
        for (why, count) in &stats.not_logged {
            text.sample("not_logged_total", &[("why", &format!("{why:?}"))], count);
        }
        text.metric(Kind::Gauge, "server_state", "1 answers, 0 is silent, -1 has never answered");
        for (address, state) in &shown.servers {
            let value = match state {
                ServerState::Alive => 1,
                ServerState::Silent => 0,
                ServerState::Unknown => -1,
            };
            text.sample("server_state", &[("server", &address.to_string())], value);
        }
        text.into()
    }
}

/// Adds the counts of updates and bypasses.
fn count_requests(text: &mut Text, stats: &DeviceStats) {
    text.counters([
        ("updates_total", "Updates that arrived, including repetitions", stats.updates),
        ("logged_total", "Updates appended to the log", stats.logged),
        ("repeated_total", "Updates that were in the log already", stats.repeated),
        ("acknowledged_total", "PMNet-ACKs that this device sent for its own log", stats.acknowledged),
        ("joined_total", "PMNet-ACKs of other devices that this device merged with its own", stats.joined),
        (
            "refused_total",
            "Updates forwarded and not logged, because their server refuses the session",
            stats.refused,
        ),
        (
            "withheld_total",
            "First packets of foreign sessions withheld, because the log holds updates of other sessions of that name",
            stats.withheld,
        ),
        ("fences_total", "Fences", stats.fences),
        ("server_acks_total", "Server-ACKs", stats.server_acks),
        ("removed_total", "Updates removed from the log", stats.removed),
        (
            "removed_refused_total",
            "Updates removed because the server does not know their sessions",
            stats.removed_refused,
        ),
        ("retransmissions_total", "Retransmission requests of servers", stats.retransmissions),
        (
            "retransmissions_answered_total",
            "Retransmission requests answered from the log alone",
            stats.retransmissions_answered,
        ),
        ("recoveries_total", "Recovery requests of servers", stats.recoveries),
        ("resent_total", "Updates sent to servers again", stats.resent),
        ("replays_total", "Replays of the whole log to a server", stats.replays),
        ("bypasses_total", "Bypasses that this process received", stats.bypasses),
        ("cache_hits_total", "Bypasses answered from the read cache", stats.cache_hits),
        ("held_total", "Packets held until updates of other sessions were applied", stats.held),
        (
            "held_dropped_total",
            "Packets dropped because too many were held; their clients send them again",
            stats.held_dropped,
        ),
        ("media_errors_total", "Errors of the medium", stats.media_errors),
    ]);
}
