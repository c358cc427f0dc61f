//! One connection, one long value, both ways: our TCP against the kernel's at the same MTU, frame by frame.

use super::contestant::{Over, Stand, landfall};
use super::lab::Lab;
use super::wire::{Quality, Wire};
use crate::common::clients::http::Http;
use crate::common::error::BenchError;
use crate::common::measure::stats::Summary;
use crate::common::progress::{check_stop, say};
use crate::common::sys::pin;
use serde::{Deserialize, Serialize};
use std::time::Instant;

/// Frames lost of 10,000.
pub(crate) const LOSSES: [u32; 2] = [0, 100];
pub(crate) const MTU: u32 = 1500;
/// Room for a value and the one that replaces it, beside what has not been compacted yet.
const CAPACITIES: u64 = 8;

/// One server, one direction.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Row {
    #[serde(rename = "name")]
    pub(crate) over: Over,
    /// To the server; else from it.
    pub(crate) put: bool,
    /// Frames lost of 10,000.
    pub(crate) lose: u32,
    /// MB (10^6 bytes) of payload a second.
    pub(crate) mb_per_second: Summary,
    /// CPU time of the server, ns a KiB.
    pub(crate) cpu_ns_per_kib: Summary,
}

/// Servers in turns, over each kind of wire.
pub(crate) fn measure(lab: &Lab, notes: &mut Vec<String>) -> Result<Vec<Row>, BenchError> {
    let mut rows = Vec::new();
    for lose in LOSSES {
        let quality = if lose == 0 { Quality::Bare } else { Quality::Lossy(lose) };
        let wire = Wire::new(MTU, quality)?;
        match measure_wire(lab, &wire, lose) {
            Ok(found) => rows.extend(found),
            Err(BenchError::Interrupted) => return Err(BenchError::Interrupted),
            Err(error) => {
                say(format_args!("  bulk, {lose} of 10,000 frames lost: {error}"));
                notes.push(format!("bulk transfer, {lose} of 10,000 frames lost: left out: {error}"));
            }
        }
    }
    Ok(rows)
}

fn measure_wire(lab: &Lab, wire: &Wire, lose: u32) -> Result<Vec<Row>, BenchError> {
    const WAYS: [Over; 3] = [Over::Sockets, Over::Xdp, Over::XdpSpin];
    let mut samples = vec![[Vec::new(), Vec::new()]; WAYS.len()];
    for round in 0..lab.args.rounds {
        for (over, samples) in WAYS.into_iter().zip(&mut samples) {
            check_stop()?;
            say(format_args!("  bulk, {lose} of 10,000 lost, round {}: {}", round + 1, over.name()));
            let [put, get] = turn(lab, wire, over)?;
            samples[0].push(put);
            samples[1].push(get);
        }
    }
    let rows = WAYS.into_iter().zip(&samples).flat_map(|(over, both)| {
        [true, false].into_iter().zip(both).filter_map(move |(put, samples)| {
            let summary = |of: fn(&(f64, f64)) -> f64| Summary::of(samples.iter().map(of));
            let mb_per_second = summary(|sample| sample.0)?;
            Some(Row { over, put, lose, mb_per_second, cpu_ns_per_kib: summary(|sample| sample.1)? })
        })
    });
    Ok(rows.collect())
}

/// MB a second and CPU ns a KiB, to the server and from it.
fn turn(lab: &Lab, wire: &Wire, over: Over) -> Result<[(f64, f64); 2], BenchError> {
    let bytes = lab.args.bulk_mib << 20;
    let capacity = (bytes * CAPACITIES).max(1 << 30);
    let stand = landfall(over).start(lab, wire, &lab.args.dir, capacity)?;
    let core = lab.is_pinning().then_some(lab.args.client_core);
    wire.client.enter(|| {
        core.into_iter().for_each(pin);
        transfer(&stand, bytes)
    })
}

fn transfer(stand: &Stand, bytes: u64) -> Result<[(f64, f64); 2], BenchError> {
    let mut http = Http::open(stand.http()?)?;
    let body = vec![0x5a; usize::try_from(bytes).unwrap_or(usize::MAX)];
    // Warm-up: the connection's windows, the server's memory.
    put(&mut http, &body[..body.len() / 8])?;
    let put_sample = timed(stand, bytes, || put(&mut http, &body))?;
    let get_sample = timed(stand, bytes, || {
        let read = http.get_and_drop("/kv/bulk")?;
        if read == bytes { Ok(()) } else { Err(BenchError::reply("HTTP", read, "the whole value")) }
    })?;
    Ok([put_sample, get_sample])
}

fn put(http: &mut Http, body: &[u8]) -> Result<(), BenchError> {
    match http.post("/kv/bulk", body)? {
        200..=299 => Ok(()),
        other => Err(BenchError::reply("HTTP", other, "201 or 204")),
    }
}

fn timed(
    stand: &Stand,
    bytes: u64,
    work: impl FnOnce() -> Result<(), BenchError>,
) -> Result<(f64, f64), BenchError> {
    let (cpu, begun) = (stand.server.cpu(), Instant::now());
    work()?;
    let seconds = begun.elapsed().as_secs_f64();
    let cpu_ns = stand.server.cpu().since_ns(cpu) as f64;
    Ok((bytes as f64 / 1e6 / seconds, cpu_ns / (bytes as f64 / 1024.0)))
}

/// The row of a way, direction and loss.
pub(crate) fn find(rows: &[Row], over: Over, put: bool, lose: u32) -> Option<&Row> {
    rows.iter().find(|row| (row.over, row.put, row.lose) == (over, put, lose))
}
