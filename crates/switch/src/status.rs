//! What a device counts, for whoever asks.

use crate::metrics::{Kind, Text};
use landfall_pmnet::device::{Device, DeviceStats, ServerState};
use parking_lot::Mutex;
use std::net::SocketAddr;

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
    paths: PathCounts,
}

/// A relay's paths.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PathCounts {
    /// Now.
    pub(crate) open: u64,
    /// So far.
    pub(crate) opened: u64,
    /// Given back.
    pub(crate) closed: u64,
    /// Of these, those that no server had spoken for, and that gave way to others.
    pub(crate) gave_way: u64,
    /// Clients that got none, as there was no port or no room.
    pub(crate) refused: u64,
    /// Packets of clients without a path that begin no session.
    pub(crate) strangers: u64,
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

    pub(crate) fn count_paths(&self, count: impl FnOnce(&mut PathCounts)) {
        count(&mut self.shown.lock().paths);
    }

    pub(crate) fn dropped(&self, packets: u64) {
        self.shown.lock().drops += packets;
    }

    /// Prometheus text format, version 0.0.4.
    pub fn metrics(&self) -> String {
        let shown = self.shown.lock().clone();
        let stats = &shown.stats;
        let mut text = Text::new("landfall_pmnet");
        text.gauge("log_entries", "Updates in the log", shown.entries);
        text.gauge("log_bytes", "Bytes of the packets in the log", shown.bytes);
        text.gauge("free_bytes", "Bytes of free runs of the region", u64::from(shown.free_runs) << 20);
        text.gauge("cached_values", "Values in the read cache", shown.cached.0 as u64);
        text.gauge("cached_bytes", "Bytes of these, and of their keys", shown.cached.1 as u64);
        text.gauge("paths", "Clients that have a port of the relay", shown.paths.open);
        text.gauge("recovered_entries", "Updates found in the log at the start", self.recovered);
        text.counters([
            ("packets_total", "PMNet packets that came to this process", stats.packets),
            ("passed_total", "PMNet packets that went on in the kernel", shown.passed),
            ("malformed_total", "Packets that could not be understood", stats.malformed),
            ("unauthentic_total", "Packets whose seal did not fit: not believed", stats.unauthentic),
            (
                "wrong_side_total",
                "Packets that came in at a side where nobody sends their type: not believed",
                stats.wrong_side,
            ),
            ("dropped_total", "Packets dropped: wrong checksum, or nowhere to send them", shown.drops),
            ("paths_opened_total", "Ports given to clients", shown.paths.opened),
            ("paths_closed_total", "Ports given back", shown.paths.closed),
            (
                "paths_gave_way_total",
                "Of these, those that no server had spoken for, and that gave way to others",
                shown.paths.gave_way,
            ),
            ("paths_refused_total", "Clients that got no port, as none was free", shown.paths.refused),
            (
                "strangers_total",
                "Packets of clients without a port that begin no session",
                shown.paths.strangers,
            ),
        ]);
        count_requests(&mut text, stats);
        let why = stats.not_logged.iter().map(|(why, count)| (format!("why=\"{why:?}\""), *count));
        text.series(Kind::Counter, "not_logged_total", "Updates forwarded without being logged", why);
        let states = shown.servers.iter().map(|(address, state)| {
            let value = match state {
                ServerState::Alive => 1,
                ServerState::Silent => 0,
                ServerState::Unknown => -1,
            };
            (format!("server=\"{address}\""), value)
        });
        text.series(Kind::Gauge, "server_state", "1 answers, 0 is silent, -1 never answered", states);
        text.into()
    }
}

/// What became of updates and bypasses.
fn count_requests(text: &mut Text, stats: &DeviceStats) {
    text.counters([
        ("updates_total", "Updates that arrived, repetitions included", stats.updates),
        ("logged_total", "Updates that went into the log", stats.logged),
        ("repeated_total", "Updates that were in the log already", stats.repeated),
        ("acknowledged_total", "PMNet-ACKs of its own making sent", stats.acknowledged),
        ("joined_total", "PMNet-ACKs of other devices sent on with its own", stats.joined),
        ("refused_total", "Updates passed on unlogged, as their server refuses the session", stats.refused),
        (
            "withheld_total",
            "First packets of foreign sessions held up: updates of others with their names are in the log",
            stats.withheld,
        ),
        ("fences_total", "Fences", stats.fences),
        ("server_acks_total", "Server-ACKs", stats.server_acks),
        ("removed_total", "Updates removed from the log", stats.removed),
        (
            "removed_refused_total",
            "Updates removed as the server does not know their sessions",
            stats.removed_refused,
        ),
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
        ("held_total", "Packets held until updates of other sessions were applied", stats.held),
        (
            "held_dropped_total",
            "Packets dropped instead, for their clients to send again",
            stats.held_dropped,
        ),
        ("media_errors_total", "Errors of the medium", stats.media_errors),
    ]);
}
