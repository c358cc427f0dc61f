//! What the courses are simulated from: work, devices and threads, each measured by itself on this machine.

use super::course::{ChainCosts, Cost, Operation, SERVERS};
use crate::common::clients::http::metric;
use crate::common::error::BenchError;
use crate::common::measure::cpu::{CpuTime, named_threads_ns, thread_ns};
use crate::common::sys;
use crate::linefs::place::Place;
use crate::linefs::published::PUBLISHER;
use landfall_media::{Dirty, Extent, OpenOptions, RUN_SIZE, Site};
use landfall_server::store::open_region;
use serde::{Deserialize, Serialize};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

/// Threads of a server that work in the background: that of a first server that publishes, that of a replica, and the one that keeps
/// the heap. What they do is a matter of bytes, and nobody waits for it.
const BACKGROUND: [&str; 3] = [PUBLISHER, "chain-publish", "maintenance"];
/// After so long what a load has written is published: that is done each second.
const PUBLISHED_AFTER: Duration = Duration::from_millis(1200);
/// A write of the sequential loads, and an append, bytes.
const WRITE: u64 = 16 << 10;
/// Bytes of the long fence that is measured, and how often each is.
const LONG: u64 = 4 << 20;
const FENCES: u32 = 20;
/// Bytes of the region for that.
const REGION: u64 = 64 * RUN_SIZE;
/// Messages there and back between two threads.
const TRIPS: u32 = 2_000;

/// What was used, written and synced up to some point in time.
struct Reading {
    servers: Vec<CpuTime>,
    background_ns: Vec<u64>,
    syncs: f64,
    bytes: f64,
    /// Seconds in which writes waited until less was to be published.
    held_up: f64,
}

impl Reading {
    fn by(place: &Place) -> Result<Self, BenchError> {
        let point = place.files();
        let page = sys::extended_attribute(point, "landfall.metrics").map_err(BenchError::file(point))?;
        let value = |name: &str| {
            metric(&page, name)
                .ok_or(BenchError::Nothing("a mount does not say what it has written and synced"))
        };
        let syncs = value("landfall_fs_requests_total{kind=\"sync\"}")?;
        let bytes = value("landfall_fs_written_bytes_total")?;
        let held_up = value("landfall_fs_backlog_wait_seconds_total")?;
        let of_names = |pid: u32| BACKGROUND.map(|name| named_threads_ns(pid, name)).iter().sum();
        Ok(Self {
            servers: place.pids().into_iter().map(CpuTime::of).collect(),
            background_ns: place.pids().into_iter().map(of_names).collect(),
            syncs,
            bytes,
            held_up,
        })
    }
}

/// What a load has used at a place: of each operation, or of each byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Spent {
    /// Operations.
    pub(super) count: f64,
    pub(super) seconds: f64,
    /// Bytes that were written, and syncs.
    pub(super) bytes: f64,
    pub(super) syncs: f64,
    held_up: f64,
    /// Work of the clients, and of each server, without that in the background, seconds.
    clients: f64,
    servers: [f64; SERVERS],
    background: [f64; SERVERS],
}

/// What a load says of itself.
pub(super) struct Ran {
    pub(super) count: f64,
    pub(super) seconds: f64,
    /// CPU time of the clients, nanoseconds.
    pub(super) cpu_ns: u64,
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

impl Spent {
    /// Runs a load, and tells what it has used, with what is published of it afterwards unless that is not waited for.
    pub(super) fn by(
        place: &Place,
        waits: bool,
        load: impl FnOnce() -> Result<Ran, BenchError>,
    ) -> Result<Self, BenchError> {
        let before = Reading::by(place)?;
        let ran = load()?;
        if waits {
            std::thread::sleep(PUBLISHED_AFTER);
        }
        let after = Reading::by(place)?;
        let (mut servers, mut background) = ([0.0; SERVERS], [0.0; SERVERS]);
        for (at, (then, now)) in before.servers.iter().zip(&after.servers).enumerate().take(SERVERS) {
            background[at] = seconds(after.background_ns[at].saturating_sub(before.background_ns[at]));
            servers[at] = (seconds(now.since_ns(*then)) - background[at]).max(0.0);
        }
        Ok(Self {
            count: ran.count,
            seconds: ran.seconds,
            bytes: after.bytes - before.bytes,
            syncs: after.syncs - before.syncs,
            held_up: after.held_up - before.held_up,
            clients: seconds(ran.cpu_ns),
            servers,
            background,
        })
    }

    /// The same by processors that take longer by a factor.
    #[cfg(test)]
    pub(super) fn slower(&self, factor: f64) -> Self {
        let of = |work: [f64; SERVERS]| work.map(|work| work * factor);
        let clients = self.clients * factor;
        Self { clients, servers: of(self.servers), background: of(self.background), ..*self }
    }

    /// Bytes a second.
    pub(super) fn rate(&self) -> f64 {
        self.bytes / self.seconds
    }

    /// Work of all a byte.
    pub(super) fn work_of_byte(&self) -> f64 {
        let servers: f64 = self.servers.iter().chain(&self.background).sum();
        (self.clients + servers) / self.bytes
    }

    /// An operation at one server. `threads` clients did it; `fence`: what its sync waits for.
    pub(super) fn operation(&self, threads: u32, fence: Cost) -> Operation {
        // One that syncs more than once is as many.
        let parts = (self.syncs / self.count).ceil().max(1.0);
        let count = self.count * parts;
        let work = (self.clients + self.servers[0]) / count;
        let (bytes, syncs) = (self.bytes / count, self.syncs / count);
        // Several clients wait for processors and for each other: how long, nobody knows.
        let waits = if threads == 1 { (self.seconds - self.held_up) / count - work } else { 0.0 };
        let pause = (waits - syncs * (fence.each + fence.byte * bytes)).max(0.0);
        Operation { work, pause, bytes, syncs, parts }
    }
}

/// What one server alone has used, and a chain with the same loads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Loads {
    /// Writes in sequence.
    pub(super) write: Spent,
    /// Appends, each with an fsync.
    pub(super) append: Spent,
}

/// The costs of a chain: what it uses for a byte of a long file, and for an append what that does not explain.
pub(super) fn of_chain(chain: &Loads, alone: &Loads, fence: Cost, hop: f64) -> ChainCosts {
    let of_byte = |spent: &Spent, work: f64| work / spent.bytes.max(1.0);
    let first = |spent: &Spent| spent.clients + spent.servers[0];
    let byte = |server: usize| match server {
        0 => of_byte(&chain.write, first(&chain.write)) - of_byte(&alone.write, first(&alone.write)),
        _ => of_byte(&chain.write, chain.write.servers[server]),
    };
    let operation = |spent: &Spent, work: f64| work / spent.count;
    let each = |server: usize, byte: f64| {
        let work = match server {
            0 => {
                operation(&chain.append, first(&chain.append))
                    - operation(&alone.append, first(&alone.append))
            }
            _ => operation(&chain.append, chain.append.servers[server]),
        };
        work - byte * WRITE as f64
    };
    let cost = |server: usize| {
        let byte = byte(server).max(0.0);
        Cost { each: each(server, byte).max(0.0), byte }
    };
    ChainCosts {
        moves: std::array::from_fn(cost),
        publish: chain.write.background.map(|work| of_byte(&chain.write, work).max(0.0)),
        fence,
        hop,
    }
}

/// The time of a device for a short batch and for a long one, beside the work of who waits: of a region of its own in `place`.
pub(super) fn fence(place: &Path) -> Result<Cost, BenchError> {
    let dir = tempfile::Builder::new().prefix("landfall-bench-").tempdir_in(place);
    let dir = dir.map_err(BenchError::file(place))?;
    let failed = |error: &dyn std::fmt::Display| BenchError::Store(error.to_string());
    let (media, _) =
        open_region(dir.path(), REGION, OpenOptions::default()).map_err(|error| failed(&error))?;
    let once = |bytes: u64| -> Result<f64, BenchError> {
        let mut took = 0.0;
        for round in 0..=FENCES {
            let extent = Extent::new(RUN_SIZE, u32::try_from(bytes).unwrap_or(u32::MAX));
            media.zero(extent).map_err(|error| failed(&error))?;
            let (began, work, mut dirty) = (Instant::now(), thread_ns(), Dirty::default());
            media.flush(&mut dirty, Site::Data, extent);
            media.fence(&mut dirty, Site::Commit).map_err(|error| failed(&error))?;
            let waited = began.elapsed().as_secs_f64() - seconds(thread_ns().saturating_sub(work));
            // The first one finds blocks that nothing was written to.
            took += if round == 0 { 0.0 } else { waited.max(0.0) };
        }
        Ok(took / f64::from(FENCES))
    };
    let (short, long) = (once(WRITE)?, once(LONG)?);
    let byte = ((long - short) / (LONG - WRITE) as f64).max(0.0);
    Ok(Cost { each: (short - byte * WRITE as f64).max(0.0), byte })
}

/// The time from a thread that sends to one that is woken by it, over loopback, beside the work of both, seconds.
pub(super) fn hop() -> Result<f64, BenchError> {
    let failed = |source: io::Error| BenchError::file(Path::new("a socket"))(source);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed)?;
    let mut near = TcpStream::connect(listener.local_addr().map_err(failed)?).map_err(failed)?;
    let (mut far, _) = listener.accept().map_err(failed)?;
    [&near, &far].into_iter().try_for_each(|stream| stream.set_nodelay(true)).map_err(failed)?;
    let echo = std::thread::spawn(move || -> io::Result<u64> {
        let (mut byte, began) = ([0], thread_ns());
        for _ in 0..TRIPS {
            far.read_exact(&mut byte)?;
            far.write_all(&byte)?;
        }
        Ok(thread_ns().saturating_sub(began))
    });
    let (mut byte, began, work) = ([0], Instant::now(), thread_ns());
    for _ in 0..TRIPS {
        near.write_all(&byte).map_err(failed)?;
        near.read_exact(&mut byte).map_err(failed)?;
    }
    let took = began.elapsed().as_secs_f64();
    let own = seconds(thread_ns().saturating_sub(work));
    let other = echo.join().unwrap_or(Ok(0)).map_err(failed)?;
    Ok(((took - own - seconds(other)) / f64::from(2 * TRIPS)).max(0.0))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    const MIB: f64 = (1 << 20) as f64;

    /// A load of so many operations of so many bytes, at servers that have worked so long, in seconds an operation.
    pub(crate) fn spent(count: f64, bytes: f64, servers: [f64; SERVERS]) -> Spent {
        Spent {
            count,
            seconds: count * 0.001,
            bytes: count * bytes,
            syncs: count,
            held_up: 0.0,
            clients: count * 0.0001,
            servers: servers.map(|work| work * count),
            background: [0.00001 * count; SERVERS],
        }
    }

    fn near(value: f64, wanted: f64) -> bool {
        (value - wanted).abs() < 1e-12
    }

    #[test]
    fn a_chain_costs_what_it_uses_beyond_one_server() {
        let alone = [spent(10.0, MIB, [0.001, 0.0, 0.0]), spent(100.0, WRITE as f64, [0.0002, 0.0, 0.0])];
        let chain =
            [spent(10.0, MIB, [0.0015, 0.002, 0.001]), spent(100.0, WRITE as f64, [0.0003, 0.0004, 0.0002])];
        let loads = |[write, append]: [Spent; 2]| Loads { write, append };
        let costs = of_chain(&loads(chain), &loads(alone), Cost { each: 0.0001, byte: 0.0 }, 0.00002);
        let [first, second, third] = costs.moves;
        assert!(
            near(first.byte * MIB, 0.0005) && near(second.byte * MIB, 0.002) && near(third.byte * MIB, 0.001)
        );
        let short = WRITE as f64 / MIB;
        assert!(near(first.each, 0.0001 - 0.0005 * short), "{costs:?}");
        assert!(near(second.each, 0.0004 - 0.002 * short), "{costs:?}");
        assert!(near(costs.publish[2] * MIB, 0.00001), "{costs:?}");
    }

    #[test]
    fn an_operation_waits_for_what_neither_works_nor_syncs() {
        let spent = spent(100.0, 1000.0, [0.0002, 0.0, 0.0]);
        let operation = spent.operation(1, Cost { each: 0.0004, byte: 0.0 });
        assert!(near(operation.work, 0.0003) && near(operation.pause, 0.0003), "{operation:?}");
        assert_eq!((operation.bytes, operation.syncs), (1000.0, 1.0));
        assert_eq!(spent.operation(16, Cost::default()).pause, 0.0);
        // Two syncs are two operations.
        let twice = Spent { syncs: 200.0, ..spent }.operation(1, Cost { each: 0.0001, byte: 0.0 });
        assert!(near(twice.work, 0.00015) && near(twice.pause, 0.00025), "{twice:?}");
        assert_eq!((twice.bytes, twice.syncs, twice.parts), (500.0, 1.0, 2.0));
    }

    #[test]
    fn devices_and_threads_are_measured() {
        let dir = tempfile::tempdir().unwrap();
        let fence = fence(dir.path()).unwrap();
        assert!(fence.each >= 0.0 && fence.byte >= 0.0 && fence.byte.is_finite());
        assert!((0.0..0.1).contains(&hop().unwrap()));
    }
}
