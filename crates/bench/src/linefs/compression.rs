//! Traffic that compression saves on a chain, and the time that it takes: after LineFS, Figure 9.

use crate::common::clients::Random;
use crate::common::clients::conn::Conn;
use crate::common::error::BenchError;
use crate::common::measure::stats::Summary;
use crate::common::peers::{Programs, Server};
use crate::linefs::args::{LinefsArgs, LinefsLoad};
use crate::linefs::place::{Used, scratch_in};
use crate::linefs::servers::{Served, Servers, Setting};
use landfall_resp::Reply;
use serde::{Deserialize, Serialize};
use std::time::Instant;

/// Zeros in the values, percent, as in the paper; and none.
pub(super) const SHARES: [u32; 4] = [0, 40, 60, 80];
/// Bytes of a value.
const VALUE_BYTES: usize = 1 << 20;
/// In so many bytes are the zeros, behind the others: about a record of the paper's sort.
const STRETCH: usize = 100;
/// Clients, each with a connection and one value under way: the paper's sort has four processes in each phase.
const CLIENTS: usize = 4;
/// Keys of a client, which are written again and again.
const KEYS: usize = 8;
/// Least and most values that a client writes.
const VALUES: std::ops::RangeInclusive<u64> = 4..=64;

/// What the servers compress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Off,
    Auto,
    Lz4,
}

impl Mode {
    pub(super) const ALL: [Self; 3] = [Self::Off, Self::Auto, Self::Lz4];

    /// As `landfall serve --compression` takes it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Auto => "auto",
            Self::Lz4 => "lz4",
        }
    }
}

/// Values of one kind on a chain with one setting.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct CompressionRow {
    /// Zeros, percent.
    pub(super) share: u32,
    pub(super) mode: String,
    /// MiB of values written by the clients, a second.
    pub(super) rate: Summary,
    /// Time of a MiB of values, ms.
    pub(super) ms: Summary,
    /// Bytes on the wire between the servers, on both links, of each byte of values there.
    pub(super) traffic: Summary,
    /// CPU time of all servers, ms for a MiB of values.
    pub(super) cpu_ms: Summary,
}

/// What one run has found.
pub(super) struct CompressionSample {
    seconds: f64,
    mib: f64,
    traffic: f64,
    cpu_ns: u64,
}

impl CompressionRow {
    /// Of all rounds; `None` if there is none.
    pub(super) fn of(share: u32, mode: Mode, samples: &[CompressionSample]) -> Option<Self> {
        let summary = |of: fn(&CompressionSample) -> f64| Summary::of(samples.iter().map(of));
        Some(Self {
            share,
            mode: mode.name().into(),
            rate: summary(|sample| sample.mib / sample.seconds)?,
            ms: summary(|sample| sample.seconds * 1000.0 / sample.mib)?,
            traffic: summary(|sample| sample.traffic)?,
            cpu_ms: summary(|sample| sample.cpu_ns as f64 / 1e6 / sample.mib)?,
        })
    }
}

/// Values of which `share` percent are zeros.
fn values(share: u32) -> Vec<Vec<u8>> {
    let (mut random, full) = (Random::new(u64::from(share) + 1), STRETCH * (100 - share as usize) / 100);
    let mut byte = |at: usize| if at % STRETCH < full { random.next().to_le_bytes()[3] } else { 0 };
    (0..KEYS).map(|_| (0..VALUE_BYTES).map(&mut byte).collect()).collect()
}

/// Writes values to a chain that has just been started.
pub(super) fn once(
    share: u32,
    mode: Mode,
    programs: &Programs,
    args: &LinefsArgs,
) -> Result<CompressionSample, BenchError> {
    let scratch = scratch_in(&args.of_loads())?;
    let bytes = args.region_bytes(LinefsLoad::Compression);
    let flags = ["--compression", mode.name()];
    let setting = Setting {
        programs,
        scratch: scratch.path(),
        bytes,
        files: Served::Nothing,
        etcd: None,
        flags: &flags,
    };
    let servers = Servers::in_chain(setting)?;
    let (values, count) = (values(share), (args.file_mib / 16).clamp(*VALUES.start(), *VALUES.end()));
    // Memory is touched, and what is decided by measurement is decided.
    write(servers.first(), &values, count)?;
    let (used, before, began) = (Used::by(servers.pids()), sent(&servers)?, Instant::now());
    write(servers.first(), &values, count)?;
    let seconds = began.elapsed().as_secs_f64();
    let (cpu_ns, after) = (used.ns_since(), sent(&servers)?);
    let (of_values, wire) = (after.values - before.values, after.wire - before.wire);
    let mib = (count * CLIENTS as u64) as f64 * (VALUE_BYTES >> 20) as f64;
    Ok(CompressionSample { seconds, mib, traffic: wire / of_values, cpu_ns })
}

/// Each client writes `count` values.
fn write(first: &Server, values: &[Vec<u8>], count: u64) -> Result<(), BenchError> {
    let client = |client: usize| {
        let mut conn = first.connect()?;
        for (at, value) in (0..count).zip(values.iter().cycle().skip(client)) {
            let key = format!("{client}:{}", at % KEYS as u64);
            if conn.ask(&[b"SET", key.as_bytes(), value])? != Reply::Simple(b"OK") {
                return Err(BenchError::reply("landfall", "a SET that failed", "OK"));
            }
        }
        Ok(())
    };
    std::thread::scope(|threads| {
        let clients: Vec<_> = (0..CLIENTS).map(|number| threads.spawn(move || client(number))).collect();
        clients.into_iter().try_for_each(|client| client.join().expect("a client panicked"))
    })
}

/// What the servers have sent to those behind them, bytes.
struct Sent {
    values: f64,
    wire: f64,
}

fn sent(servers: &Servers) -> Result<Sent, BenchError> {
    let mut all = Sent { values: 0.0, wire: 0.0 };
    for server in servers.all() {
        let line = sent_line(&mut server.connect()?)?;
        let field = |name: &str| {
            let mut fields = line.split(',').filter_map(|field| field.split_once('='));
            let value = fields.find(|(field, _)| *field == name).map(|(_, value)| value.parse::<f64>());
            value.and_then(Result::ok).ok_or_else(|| BenchError::reply("landfall", &line, "what was sent"))
        };
        all.values += field("values")?;
        all.wire += field("wire")?;
    }
    Ok(all)
}

fn sent_line(conn: &mut Conn) -> Result<String, BenchError> {
    let Reply::Bulk(text) = conn.ask(&[b"INFO", b"replication"])? else {
        return Err(BenchError::reply("landfall", "no text", "INFO replication"));
    };
    let text = String::from_utf8_lossy(text).into_owned();
    let line = text.lines().find_map(|line| line.strip_prefix("chain_sent:"));
    line.map(|line| line.trim().to_owned())
        .ok_or_else(|| BenchError::reply("landfall", "no chain_sent", "INFO replication"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_the_share_of_zeros_that_is_asked_for() {
        for share in SHARES {
            let value = &values(share)[0];
            let zeros = value.iter().filter(|byte| **byte == 0).count() * 100 / value.len();
            assert!((share as usize..share as usize + 2).contains(&zeros), "{share}: {zeros}");
        }
    }
}
