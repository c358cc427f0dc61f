//! The time until a server serves again after a kill, by the number of records.

use super::{Bench, Scratch, capacity_for_load};
use crate::common::clients::conn::info_field;
use crate::common::clients::{loader, value_of};
use crate::common::error::BenchError;
use crate::common::measure::proc::drop_cached_below;
use crate::common::measure::stats::Summary;
use crate::common::peers::PeerChoice;
use crate::common::peers::{Peer, Server};
use crate::common::progress::{check_stop, say};
use crate::keys::args::MediaChoice;
use serde::{Deserialize, Serialize};
use std::fs;
use std::time::{Duration, Instant};

/// Length of a value, bytes.
const VALUE_BYTES: usize = 1024;
/// The pause between the load and the kill, in which background work ends.
const REST: Duration = Duration::from_secs(1);
/// A log being rewritten for longer than this is not waited for.
const REWRITE_MAX: Duration = Duration::from_secs(120);

/// One server, one number of records.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) media: MediaChoice,
    pub(crate) peer: String,
    pub(crate) records: u64,
    /// The page cache was dropped before the start.
    pub(crate) cold: bool,
    /// From the start of the process until `DBSIZE` answers with every key, seconds.
    pub(crate) seconds: Summary,
}

/// A peer and its folder.
struct Killed {
    peer: Box<dyn Peer>,
    scratch: Scratch,
}

/// Returns the numbers of records: a quarter, a half and all of the number in the flags.
pub(crate) fn sizes(bench: &Bench) -> [u64; 3] {
    [bench.args.records / 4, bench.args.records / 2, bench.args.records]
}

/// Measures at one number of records.
pub(crate) fn measure(bench: &Bench, media: MediaChoice, records: u64) -> Result<Vec<Row>, BenchError> {
    let killed = load_and_kill(bench, media, records)?;
    let mut rows = compare(bench, media, records, &killed, false)?;
    if media == MediaChoice::File {
        rows.extend(compare(bench, media, records, &killed, true)?);
    }
    Ok(rows)
}

fn load_and_kill(bench: &Bench, media: MediaChoice, records: u64) -> Result<Vec<Killed>, BenchError> {
    let compared = [PeerChoice::Landfall, PeerChoice::RedisAlways];
    let chosen = compared.into_iter().filter(|choice| bench.args.peers.contains(choice));
    let mut killed = Vec::new();
    for peer in chosen.filter_map(|choice| bench.programs.peer_as_deployed(choice)) {
        say(format_args!("  {}: restart: loading {records} records: {}", media.name(), peer.name()));
        let scratch = bench.scratch(media)?;
        let mut server = peer.start(&scratch.data(), capacity_for_load(records, VALUE_BYTES))?;
        server.wait_ready()?;
        loader::load(server.resp, peer.name(), 0..records, &value_of(VALUE_BYTES))?;
        wait_until_quiet(&server)?;
        server.kill();
        killed.push(Killed { peer, scratch });
    }
    Ok(killed)
}

/// Waits until a background rewrite of the log has ended: a restart is measured, not an interrupted rewrite.
fn wait_until_quiet(server: &Server) -> Result<(), BenchError> {
    let (mut conn, begun) = (server.connect()?, Instant::now());
    std::thread::sleep(REST);
    while begun.elapsed() < REWRITE_MAX
        && info_field(&mut conn, "persistence", "aof_rewrite_in_progress")?.is_some_and(|busy| busy != 0.0)
    {
        check_stop()?;
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

fn compare(
    bench: &Bench,
    media: MediaChoice,
    records: u64,
    killed: &[Killed],
    cold: bool,
) -> Result<Vec<Row>, BenchError> {
    let mut samples = vec![Vec::new(); killed.len()];
    for _ in 0..bench.args.rounds {
        for (killed, samples) in killed.iter().zip(&mut samples) {
            samples.push(restart(killed, records, cold)?.as_secs_f64());
        }
    }
    let rows = killed.iter().zip(samples).filter_map(|(killed, samples)| {
        let seconds = Summary::of(samples)?;
        Some(Row { media, peer: killed.peer.name().into(), records, cold, seconds })
    });
    Ok(rows.collect())
}

/// Starts, waits until every key is there, kills again.
fn restart(killed: &Killed, records: u64, cold: bool) -> Result<Duration, BenchError> {
    let dir = killed.scratch.data();
    if cold {
        drop_cached_below(&dir);
        // Whole-machine, where we may: also drops what the advice to single files leaves.
        let _ = fs::write("/proc/sys/vm/drop_caches", "3");
    }
    let server = killed.peer.start(&dir, capacity_for_load(records, VALUE_BYTES))?;
    let took = server.wait_for_keys(records)?;
    server.kill();
    Ok(took)
}
