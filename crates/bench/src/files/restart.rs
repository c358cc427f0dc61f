//! How long a mount with many small files takes from its start to the first list of its root, after its server was killed,
//! beside `landfall serve` with as many records.

use crate::common::error::BenchError;
use crate::common::measure::cpu::CpuTime;
use crate::common::measure::stats::Summary;
use crate::common::peers::{Landfall, Peer, Programs};
use crate::common::progress::{check_stop, say};
use crate::files::args::{FsArgs, LoadChoice};
use crate::files::loads;
use crate::files::place::{Kind, Place, SERVER};
use crate::files::report::Row;
use std::fs;
use std::time::Instant;
use tempfile::TempDir;

/// Records of a small file: its inode, and its data. What names take is little beside.
const FILE_RECORDS: u64 = 2;
/// Bytes of a value. Recovery reads none of them.
const VALUE: [u8; 100] = [7; 100];
/// Bytes of a region for each record, at least.
const RECORD_BYTES: u64 = 1024;

/// One start of a server.
#[derive(Clone, Copy, Debug)]
struct Start {
    seconds: f64,
    cpu_seconds: f64,
}

/// Starts of one kind of server.
#[derive(Default)]
struct Starts(Vec<Start>);

impl Starts {
    fn row(&self, place: &str) -> Option<Row> {
        let of = |value: fn(&Start) -> f64| Summary::of(self.0.iter().map(value));
        Some(Row {
            load: LoadChoice::Restart,
            threads: 1,
            place: place.into(),
            rate: of(|start| 1.0 / start.seconds)?,
            mean_us: None,
            p50_us: of(|start| start.seconds * 1e6),
            p99_us: None,
            cpu_us: of(|start| start.cpu_seconds * 1e6)?,
            device_bytes: None,
            final_sync: None,
        })
    }
}

/// Fills both, and starts them in turns.
pub(super) fn compare(args: &FsArgs) -> Result<Vec<Row>, BenchError> {
    let records = u64::from(args.small_files) * FILE_RECORDS;
    say(format_args!("  making {} files, and {records} keys", args.small_files));
    let mut place = Place::new(Kind::Mount, args)?;
    loads::fill_small(place.files(), args.small_files)?;
    let keys = Keys::fill(records, args)?;
    let (mut mounts, mut servers) = (Starts::default(), Starts::default());
    for _ in 0..args.rounds {
        check_stop()?;
        servers.0.push(keys.start()?);
        let began = Instant::now();
        place.kill_and_start(args)?;
        let folders = fs::read_dir(place.files()).map_err(BenchError::file(place.files()))?.count();
        let seconds = began.elapsed().as_secs_f64();
        if folders == 0 {
            return Err(BenchError::Nothing("a mount has no folders after its restart"));
        }
        let cpu_seconds = place.server_cpu().since_ns(CpuTime::default()) as f64 / 1e9;
        mounts.0.push(Start { seconds, cpu_seconds });
    }
    let rows = [servers.row(SERVER), mounts.row(Kind::Mount.name(SERVER))];
    Ok(rows.into_iter().flatten().collect())
}

/// A server of keys, killed.
struct Keys {
    peer: Landfall,
    scratch: TempDir,
    records: u64,
}

impl Keys {
    fn fill(records: u64, args: &FsArgs) -> Result<Self, BenchError> {
        let scratch = tempfile::Builder::new().prefix("landfall-bench-").tempdir_in(&args.dir);
        let scratch = scratch.map_err(BenchError::file(&args.dir))?;
        let peer = Programs::find(args.workers)?.landfall(false);
        let keys = Self { peer, scratch, records };
        let mut server = keys.peer.start(keys.scratch.path(), keys.capacity())?;
        server.wait_ready()?;
        crate::common::clients::loader::load(server.resp, keys.peer.name(), 0..records, &VALUE)?;
        server.kill();
        Ok(keys)
    }

    fn capacity(&self) -> u64 {
        (self.records * RECORD_BYTES).max(256 << 20)
    }

    /// Starts it, waits until it has every key, and kills it.
    fn start(&self) -> Result<Start, BenchError> {
        let server = self.peer.start(self.scratch.path(), self.capacity())?;
        let seconds = server.wait_for_keys(self.records)?.as_secs_f64();
        let cpu_seconds = server.cpu().since_ns(CpuTime::default()) as f64 / 1e9;
        server.kill();
        Ok(Start { seconds, cpu_seconds })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_are_rates_and_times() {
        let start = |seconds| Start { seconds, cpu_seconds: 0.25 };
        let row = Starts([0.5, 0.25, 1.0].map(start).into()).row("here").unwrap();
        assert_eq!((row.rate.median, row.cpu_us.median), (2.0, 250_000.0));
        assert_eq!(row.p50_us.map(|time| time.median), Some(500_000.0));
        assert!(Starts::default().row("here").is_none());
    }
}
