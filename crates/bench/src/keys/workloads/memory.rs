//! Resident memory with many small keys, and of an empty region that is opened repeatedly. One run each.

use super::{Bench, capacity_for_load};
use crate::common::clients::{loader, value_of};
use crate::common::error::BenchError;
use crate::common::measure::proc::Memory;
use crate::common::peers::PeerChoice;
use crate::common::peers::{Peer, Server};
use crate::common::progress::{check_stop, say};
use crate::keys::args::MediaChoice;
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// Length of a value, bytes.
pub(crate) const VALUE_BYTES: usize = 100;
/// Keys; in a quick run.
pub(crate) const KEYS: u64 = 1_000_000;
const QUICK_KEYS: u64 = 50_000;
/// Size of the empty region, bytes, and how often it is opened again.
const EMPTY_BYTES: u64 = 1 << 30;
const RESTARTS: usize = 3;
/// Memory that has not changed by more than this for so long has settled.
const NOISE_BYTES: u64 = 1 << 20;
const STABLE_FOR: Duration = Duration::from_secs(2);
const SETTLE_MAX: Duration = Duration::from_secs(30);
const POLL_EVERY: Duration = Duration::from_millis(100);

/// One server with its keys.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) media: MediaChoice,
    pub(crate) peer: String,
    pub(crate) records: u64,
    /// Memory once every key is loaded.
    pub(crate) loaded: Memory,
    /// Memory after a kill and a start, once every key is there again.
    pub(crate) restarted: Memory,
}

/// An empty region: after the first start, then after each further one.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Empty {
    pub(crate) media: MediaChoice,
    pub(crate) region_bytes: u64,
    pub(crate) starts: Vec<Memory>,
}

impl Empty {
    /// Resident bytes at the last start beyond those at the first.
    pub(crate) fn gained_bytes(&self) -> Option<f64> {
        Some(self.starts.last()?.rss as f64 - self.starts.first()?.rss as f64)
    }
}

/// Measures the servers that are compared.
pub(crate) fn measure(bench: &Bench, media: MediaChoice) -> Result<Vec<Row>, BenchError> {
    let compared = [PeerChoice::Landfall, PeerChoice::RedisAlways];
    let chosen = compared.into_iter().filter(|choice| bench.args.peers.contains(choice));
    let peers = chosen.filter_map(|choice| bench.programs.peer_as_deployed(choice));
    peers.map(|peer| measure_peer(bench, media, &*peer)).collect()
}

fn measure_peer(bench: &Bench, media: MediaChoice, peer: &dyn Peer) -> Result<Row, BenchError> {
    let records = if bench.args.quick { QUICK_KEYS } else { KEYS };
    say(format_args!("  {}: memory with {records} keys: {}", media.name(), peer.name()));
    let (scratch, capacity) = (bench.scratch(media)?, capacity_for_load(records, VALUE_BYTES));
    let mut server = peer.start(&scratch.data(), capacity)?;
    server.wait_ready()?;
    loader::load(server.resp, peer.name(), 0..records, &value_of(VALUE_BYTES))?;
    let loaded = settled(&server)?;
    server.kill();
    let server = peer.start(&scratch.data(), capacity)?;
    server.wait_for_keys(records)?;
    let restarted = settled(&server)?;
    server.kill();
    Ok(Row { media, peer: peer.name().into(), records, loaded, restarted })
}

/// Starts on an empty region, and again after each kill.
pub(crate) fn measure_empty(bench: &Bench, media: MediaChoice) -> Result<Vec<Empty>, BenchError> {
    say(format_args!("  {}: memory of an empty region over {RESTARTS} restarts", media.name()));
    let (scratch, peer) = (bench.scratch(media)?, bench.programs.landfall(false));
    let mut starts = Vec::new();
    for _ in 0..=RESTARTS {
        let mut server = peer.start(&scratch.data(), EMPTY_BYTES)?;
        server.wait_ready()?;
        starts.push(settled(&server)?);
        server.kill();
    }
    Ok(vec![Empty { media, region_bytes: EMPTY_BYTES, starts }])
}

/// Waits until a server's memory no longer changes: regions are read, and logs rewritten, in the background.
fn settled(server: &Server) -> Result<Memory, BenchError> {
    let begun = Instant::now();
    let (mut memory, mut since) = (Memory::of(server.pid()), Duration::ZERO);
    while begun.elapsed() < SETTLE_MAX && begun.elapsed() < since + STABLE_FOR {
        check_stop()?;
        std::thread::sleep(POLL_EVERY);
        let now = Memory::of(server.pid());
        if now.rss.abs_diff(memory.rss) > NOISE_BYTES {
            (memory, since) = (now, begun.elapsed());
        }
    }
    Ok(Memory::of(server.pid()))
}
