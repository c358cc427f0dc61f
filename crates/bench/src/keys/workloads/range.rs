//! Range scans over HTTP: a thousand keys in order.

use super::{Bench, capacity_for};
use crate::common::clients::http::Http;
use crate::common::clients::{Random, key_of, loader, value_of};
use crate::common::error::BenchError;
use crate::common::measure::stats::Summary;
use crate::common::peers::Peer;
use crate::common::progress::{check_stop, say};
use crate::keys::args::MediaChoice;
use serde::{Deserialize, Serialize};
use std::time::Instant;

/// Keys of one scan.
pub(crate) const SCAN_KEYS: u64 = 1000;
/// Scans of one round.
const SCANS: u32 = 200;
const QUICK_SCANS: u32 = 5;

/// One kind of scan on one medium.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) media: MediaChoice,
    pub(crate) value_bytes: usize,
    /// Keys without their values.
    pub(crate) keys_only: bool,
    /// Time of a scan as the client sees it, µs a key.
    pub(crate) wall_us_per_key: Summary,
    /// CPU time of the server, µs a key.
    pub(crate) cpu_us_per_key: Summary,
}

/// Measures keys alone, and values of 100 B and 1 KiB.
pub(crate) fn measure(bench: &Bench, media: MediaChoice) -> Result<Vec<Row>, BenchError> {
    let mut rows = Vec::new();
    for (value_bytes, keys_only) in [(100, true), (100, false), (1024, false)] {
        rows.extend(measure_kind(bench, media, value_bytes, keys_only)?);
    }
    Ok(rows)
}

fn measure_kind(
    bench: &Bench,
    media: MediaChoice,
    value_bytes: usize,
    keys_only: bool,
) -> Result<Option<Row>, BenchError> {
    let peer = bench.programs.landfall(false);
    let records = bench.args.records.max(2 * SCAN_KEYS);
    say(format_args!(
        "  {}: range scans, {records} records of {value_bytes} B, keys only: {keys_only}",
        media.name()
    ));
    let fresh = bench.fresh(media, &peer, capacity_for(records, value_bytes))?;
    let server = &fresh.server;
    let mut order = Random::new(1);
    loader::load(server.resp, peer.name(), order.permutation(records), &value_of(value_bytes))?;
    let address = server.http.ok_or(BenchError::Nothing("landfall serves no HTTP"))?;
    let mut http = Http::open(address)?;
    let scans = if bench.args.quick { QUICK_SCANS } else { SCANS };
    let (mut wall, mut cpu) = (Vec::new(), Vec::new());
    for _ in 0..=bench.args.rounds {
        let (before, begun) = (server.cpu(), Instant::now());
        for _ in 0..scans {
            scan(&mut http, order.below(records - SCAN_KEYS), value_bytes, keys_only)?;
        }
        let keys = f64::from(scans) * SCAN_KEYS as f64;
        wall.push(begun.elapsed().as_secs_f64() * 1e6 / keys);
        cpu.push(server.cpu().since_ns(before) as f64 / 1000.0 / keys);
    }
    // The first round warms up.
    let (wall, cpu) = (Summary::of(wall.into_iter().skip(1)), Summary::of(cpu.into_iter().skip(1)));
    Ok(wall.zip(cpu).map(|(wall_us_per_key, cpu_us_per_key)| Row {
        media,
        value_bytes,
        keys_only,
        wall_us_per_key,
        cpu_us_per_key,
    }))
}

fn scan(http: &mut Http, first: u64, value_bytes: usize, keys_only: bool) -> Result<(), BenchError> {
    check_stop()?;
    let key = String::from_utf8_lossy(&key_of(first)).replace(':', "%3A");
    let only = if keys_only { "&keys_only=1" } else { "" };
    let mut body = Vec::new();
    http.get(&format!("/kv?start={key}&limit={SCAN_KEYS}{only}"), &mut body)?;
    // The layout is fixed, so the length of the right answer is, too.
    let line =
        if keys_only { 3 + 16 + 1 } else { format!("16 {value_bytes}\n").len() + 16 + value_bytes + 1 };
    let last = key_of(first + SCAN_KEYS - 1);
    if body.len() as u64 != SCAN_KEYS * line as u64 || !contains(&body[body.len() - line..], &last) {
        return Err(BenchError::reply("landfall", format!("{} bytes", body.len()), "1000 keys in order"));
    }
    Ok(())
}

fn contains(bytes: &[u8], word: &[u8]) -> bool {
    bytes.windows(word.len()).any(|window| window == word)
}
