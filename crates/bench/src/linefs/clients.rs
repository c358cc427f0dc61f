//! Throughput by the number of clients, on an idle machine and beside a co-runner: after LineFS, Figures 4 and 6.

use crate::common::error::BenchError;
use crate::common::measure::cpu::thread_ns;
use crate::common::measure::stats::Summary;
use crate::common::peers::Programs;
use crate::files::write_file;
use crate::linefs::args::{LinefsArgs, LinefsLoad};
use crate::linefs::busy::Contestant;
use crate::linefs::corunner::{self, CoRunner, Priority};
use crate::linefs::overdue::{LOAD_MAX, Overdue};
use crate::linefs::place::{Kind, Place, empty};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::time::{Duration, Instant};

/// The clients beside which the co-runner has the same priority, too, as in Figure 6.
pub(super) const CLIENTS_OF_EQUALS: u32 = 2;

/// What runs beside the clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Beside {
    /// Nothing.
    Nothing,
    /// A co-runner that gives way to clients and servers, as in Figure 4.
    Yielding,
    /// A co-runner with their priority, as in Figure 6.
    Equal,
}

impl Beside {
    /// What so many clients run beside, in turns at the same servers.
    fn of(clients: u32) -> Vec<Self> {
        let mut all = vec![Self::Nothing, Self::Yielding];
        all.extend((clients == CLIENTS_OF_EQUALS).then_some(Self::Equal));
        all
    }

    fn priority(self) -> Option<Priority> {
        match self {
            Self::Nothing => None,
            Self::Yielding => Some(Priority::Lowest),
            Self::Equal => Some(Priority::Same),
        }
    }
}

/// What so many clients are measured at, in the order of the turns.
pub(super) fn contestants(clients: u32) -> Vec<Contestant> {
    let mut all = vec![];
    all.extend((clients == CLIENTS_OF_EQUALS).then_some(Contestant::CoRunner));
    all.extend([Kind::Chain, Kind::NotParallel, Kind::Assise, Kind::Gluster].map(Contestant::Chain));
    all
}

/// Some clients at a place, and what runs beside them.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ClientsRow {
    pub(super) place: String,
    pub(super) clients: u32,
    pub(super) beside: Beside,
    /// MiB a second, of all clients together. None for a co-runner alone.
    pub(super) rate: Option<Summary>,
    /// CPU time of the clients and of all servers, microseconds a MiB.
    pub(super) cpu_us: Option<Summary>,
    /// Time of one round of the co-runner, ms, if it has computed anything.
    pub(super) round_ms: Option<Summary>,
}

/// What one run has found.
#[derive(Debug)]
pub(super) struct ClientsSample {
    beside: Beside,
    written: Option<Written>,
    round_ms: Option<f64>,
}

/// What clients have written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Written {
    mib: f64,
    /// Until the `fsync` of the last client has returned.
    seconds: f64,
    cpu_ns: u64,
}

impl Written {
    #[cfg(test)]
    pub(super) fn of(mib: f64, seconds: f64, cpu_ns: u64) -> Self {
        Self { mib, seconds, cpu_ns }
    }

    pub(super) fn mib(&self) -> f64 {
        self.mib
    }

    pub(super) fn seconds(&self) -> f64 {
        self.seconds
    }

    pub(super) fn cpu_ns(&self) -> u64 {
        self.cpu_ns
    }

    /// MiB a second.
    pub(super) fn rate(&self) -> f64 {
        self.mib / self.seconds
    }

    /// CPU time, microseconds a MiB.
    pub(super) fn cpu_us(&self) -> f64 {
        self.cpu_ns as f64 / 1000.0 / self.mib
    }

    /// Adds the time of what serves the clients.
    pub(super) fn add_cpu(&mut self, ns: u64) {
        self.cpu_ns += ns;
    }
}

impl ClientsRow {
    /// The rows of all rounds of a contestant, each of which has a sample for each of what ran beside.
    pub(super) fn all(contestant: Contestant, clients: u32, rounds: &[Vec<ClientsSample>]) -> Vec<Self> {
        let row = |first: &ClientsSample| {
            let samples = || rounds.iter().flatten().filter(|sample| sample.beside == first.beside);
            let written = || samples().filter_map(|sample| sample.written);
            Self {
                place: contestant.name().into(),
                clients,
                beside: first.beside,
                rate: Summary::of(written().map(|written| written.rate())),
                cpu_us: Summary::of(written().map(|written| written.cpu_us())),
                round_ms: Summary::of(samples().filter_map(|sample| sample.round_ms)),
            }
        };
        rounds.first().into_iter().flatten().map(row).collect()
    }
}

/// One turn, at servers that have just been started.
pub(super) fn once(
    contestant: Contestant,
    clients: u32,
    programs: &Programs,
    args: &LinefsArgs,
) -> Result<Vec<ClientsSample>, BenchError> {
    let (bytes, threads) = (corunner::point_bytes(args.quick), args.co_threads());
    let Contestant::Chain(kind) = contestant else {
        let round_ms = Some(corunner::alone(bytes, threads, Duration::from_secs_f64(args.seconds)));
        return Ok(vec![ClientsSample { beside: Beside::Equal, written: None, round_ms }]);
    };
    let place = Place::new(kind, programs, &args.of_loads(), args.region_bytes(LinefsLoad::Clients))?;
    let overdue = Overdue::watch(place.pids(), LOAD_MAX);
    let sample = |beside: Beside| {
        let runner = beside.priority().map(|priority| CoRunner::start(bytes, threads, priority));
        let used = place.used();
        let mut written = write_all(place.files(), clients, args.mib_of_client(clients))?;
        written.add_cpu(used.ns_since());
        let round_ms = runner.map(CoRunner::end);
        empty(place.files())?;
        Ok(ClientsSample { beside, written: Some(written), round_ms })
    };
    // The first files of a place are written to memory and blocks that nothing has touched; those after them are not.
    let touched =
        write_all(place.files(), clients, args.mib_of_client(clients)).and_then(|_| empty(place.files()));
    let samples = touched.and_then(|()| Beside::of(clients).into_iter().map(sample).collect());
    overdue.end("clients that write", samples)
}

fn path_of(files: &Path, client: u32) -> std::path::PathBuf {
    files.join(format!("client-{client}"))
}

/// Clients that write at once, each a file of its own.
pub(super) fn write_all(files: &Path, clients: u32, mib_each: u64) -> Result<Written, BenchError> {
    let began = Instant::now();
    let outcomes: Vec<Result<u64, BenchError>> = std::thread::scope(|scope| {
        let start = |client| scope.spawn(move || write_one(&path_of(files, client), mib_each));
        let threads: Vec<_> = (0..clients).map(start).collect();
        let panicked = |_| Err(BenchError::Nothing("a client has panicked"));
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(panicked)).collect()
    });
    let seconds = began.elapsed().as_secs_f64();
    let cpu_ns = outcomes.into_iter().sum::<Result<u64, BenchError>>()?;
    Ok(Written { mib: (u64::from(clients) * mib_each) as f64, seconds, cpu_ns })
}

/// One client. Returns the CPU time of its thread, nanoseconds.
fn write_one(path: &Path, mib: u64) -> Result<u64, BenchError> {
    let before = thread_ns();
    write_file(path, mib)?;
    Ok(thread_ns().saturating_sub(before))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::fs;

    pub(in crate::linefs) fn row(
        contestant: Contestant,
        clients: u32,
        beside: Beside,
        rate: f64,
        round_ms: f64,
    ) -> ClientsRow {
        let of = |value: f64| Summary::of([value, value * 1.1]);
        let is_chain = contestant != Contestant::CoRunner;
        ClientsRow {
            place: contestant.name().into(),
            clients,
            beside,
            rate: of(rate).filter(|_| is_chain),
            cpu_us: of(100.0).filter(|_| is_chain),
            round_ms: of(round_ms).filter(|_| beside != Beside::Nothing),
        }
    }

    #[test]
    fn clients_write_a_file_each_and_leave_none() {
        let dir = tempfile::tempdir().unwrap();
        let written = write_all(dir.path(), 3, 1).unwrap();
        assert_eq!((written.mib, fs::read_dir(dir.path()).unwrap().count()), (3.0, 3));
        assert_eq!(fs::metadata(path_of(dir.path(), 2)).unwrap().len(), 1 << 20);
        empty(dir.path()).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        // What one client fails with is what all have failed with.
        assert!(write_all(&dir.path().join("nowhere"), 2, 1).is_err());
    }

    #[test]
    fn rows_keep_apart_what_ran_beside() {
        let sample = |beside, seconds| ClientsSample {
            beside,
            written: Some(Written { mib: 10.0, seconds, cpu_ns: 50_000 }),
            round_ms: (beside != Beside::Nothing).then_some(7.0),
        };
        let round = |scale| vec![sample(Beside::Nothing, scale), sample(Beside::Yielding, 2.0 * scale)];
        let rows = ClientsRow::all(Contestant::Chain(Kind::Chain), 4, &[round(1.0), round(2.0)]);
        let rates: Vec<_> = rows.iter().map(|row| row.rate.clone().unwrap().samples).collect();
        assert_eq!(rates, [[10.0, 5.0], [5.0, 2.5]]);
        assert_eq!(rows[0].cpu_us.as_ref().unwrap().median, 5.0);
        assert!(rows[0].round_ms.is_none() && rows[1].round_ms.is_some());
        assert!(ClientsRow::all(Contestant::CoRunner, 2, &[]).is_empty());
    }
}
