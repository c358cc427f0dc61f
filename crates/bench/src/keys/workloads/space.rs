//! Bytes on the medium and in memory for the bytes stored. Counted, not timed: one run each.

use super::{Bench, capacity_for};
use crate::common::clients::conn::{info_field, key_count};
use crate::common::clients::{Random, key_of, loader, value_of};
use crate::common::error::BenchError;
use crate::common::measure::proc::Memory;
use crate::common::peers::PeerChoice;
use crate::common::peers::{Peer, Server};
use crate::common::progress::{check_stop, say};
use crate::keys::args::MediaChoice;
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// Value sizes, bytes.
pub(crate) const SIZES: [usize; 2] = [1024, 100];
/// How often each key is overwritten.
pub(crate) const OVERWRITES: u64 = 10;
/// Records of small values for one record of large ones: runs of 1 MiB must not hide their overhead.
const SMALL_FACTOR: u64 = 4;
const POLL_EVERY: Duration = Duration::from_millis(50);
/// Background work counts as done once the bytes have not changed for this long.
const STABLE_FOR: Duration = Duration::from_secs(3);
/// Background work that takes longer is not waited for.
const SETTLE_MAX: Duration = Duration::from_secs(120);

/// One server, one value size.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) media: MediaChoice,
    pub(crate) peer: String,
    pub(crate) value_bytes: usize,
    pub(crate) records: u64,
    /// Bytes on the medium over bytes of keys and values: after the load.
    pub(crate) loaded: f64,
    /// The largest seen while each key was overwritten ten times in random order.
    pub(crate) overwriting_max: f64,
    /// The ratio after background work has ended.
    pub(crate) settled: f64,
    /// The time that the background work took, seconds.
    pub(crate) settle_seconds: f64,
    /// Resident memory at the end, bytes.
    pub(crate) memory: Memory,
    /// Growth of memory that is no file or shared memory, a key, key bytes included.
    pub(crate) anon_per_key: f64,
    /// Growth of anonymous memory for each key, without the key's own bytes.
    pub(crate) anon_per_key_beyond_key: f64,
    /// The bytes in use as the server reports them, if it does.
    pub(crate) used_memory: Option<f64>,
}

/// Measures every server and size on a medium.
pub(crate) fn measure(bench: &Bench, media: MediaChoice) -> Result<Vec<Row>, BenchError> {
    let compared = [PeerChoice::Landfall, PeerChoice::RedisAlways];
    let mut rows = Vec::new();
    for value_bytes in SIZES {
        for choice in compared.into_iter().filter(|choice| bench.args.peers.contains(choice)) {
            if let Some(peer) = bench.programs.peer_as_deployed(choice) {
                rows.push(measure_peer(bench, media, &*peer, value_bytes)?);
            }
        }
    }
    Ok(rows)
}

fn measure_peer(
    bench: &Bench,
    media: MediaChoice,
    peer: &dyn Peer,
    value_bytes: usize,
) -> Result<Row, BenchError> {
    let records = bench.args.records * if value_bytes < 512 { SMALL_FACTOR } else { 1 };
    let key_bytes = key_of(0).len();
    let payload = (records * (key_bytes + value_bytes) as u64) as f64;
    say(format_args!("  {}: space, {records} records of {value_bytes} B: {}", media.name(), peer.name()));
    let fresh = bench.fresh(media, peer, capacity_for(records, value_bytes))?;
    let server = &fresh.server;
    let memory_before = Memory::of(server.pid());
    let value = value_of(value_bytes);
    loader::load(server.resp, peer.name(), 0..records, &value)?;
    let loaded = peer.media_bytes(server)? as f64 / payload;
    let overwriting_max = overwrite(peer, server, records, &value)? as f64 / payload;
    let (bytes, settled_after) = settle(peer, server)?;
    let memory = Memory::of(server.pid());
    let mut conn = server.connect()?;
    if key_count(&mut conn, peer.name())? != Some(records) {
        return Err(BenchError::reply(peer.name(), "another number of keys", "every key loaded"));
    }
    let anon_per_key = memory.anon.saturating_sub(memory_before.anon) as f64 / records as f64;
    Ok(Row {
        media,
        peer: peer.name().into(),
        value_bytes,
        records,
        loaded,
        overwriting_max,
        settled: bytes as f64 / payload,
        settle_seconds: settled_after.as_secs_f64(),
        memory,
        anon_per_key,
        anon_per_key_beyond_key: anon_per_key - key_bytes as f64,
        used_memory: info_field(&mut conn, "memory", "used_memory")?,
    })
}

/// Overwrites every key ten times, each time in another random order. Returns the most bytes seen on the medium.
fn overwrite(peer: &dyn Peer, server: &Server, records: u64, value: &[u8]) -> Result<u64, BenchError> {
    let (address, name) = (server.resp, peer.name());
    std::thread::scope(|scope| {
        let writer = scope.spawn(move || {
            let mut random = Random::new(records);
            (0..OVERWRITES).try_for_each(|_| loader::load(address, name, random.permutation(records), value))
        });
        let mut most = 0;
        while !writer.is_finished() {
            check_stop()?;
            most = most.max(peer.media_bytes(server)?);
            std::thread::sleep(POLL_EVERY);
        }
        most = most.max(peer.media_bytes(server)?);
        writer.join().unwrap_or(Err(BenchError::Nothing("the writer panicked"))).map(|()| most)
    })
}

/// Waits until the bytes on the medium no longer change. Returns their number and the time of the last change.
fn settle(peer: &dyn Peer, server: &Server) -> Result<(u64, Duration), BenchError> {
    let begun = Instant::now();
    let (mut bytes, mut since) = (peer.media_bytes(server)?, Duration::ZERO);
    while begun.elapsed() < SETTLE_MAX && begun.elapsed() < since + STABLE_FOR {
        check_stop()?;
        std::thread::sleep(POLL_EVERY);
        let now = peer.media_bytes(server)?;
        if now != bytes {
            (bytes, since) = (now, begun.elapsed());
        }
    }
    Ok((bytes, since))
}
