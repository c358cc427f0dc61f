//! Bytes written to the medium for each byte received, by how much of the region is live. Counted, not timed: one run
//! each.

use super::Bench;
use crate::common::clients::http::metric;
use crate::common::clients::zipf::Zipf;
use crate::common::clients::{Random, loader, value_of};
use crate::common::error::BenchError;
use crate::common::measure::proc::storage_bytes_written;
use crate::common::measure::stats::whole;
use crate::common::peers::{Peer, Server};
use crate::common::progress::say;
use crate::keys::args::MediaChoice;
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// Length of a value, bytes.
pub(crate) const VALUE_BYTES: usize = 1024;
/// Length of a record, bytes: `docs/format/records.md`.
const RECORD_BYTES: f64 = 128.0;
/// Size of the region, bytes; in a quick run.
const REGION_BYTES: u64 = 512 << 20;
const QUICK_REGION_BYTES: u64 = 128 << 20;
/// How often the region's size is overwritten before bytes are counted, and while they are.
const TIMES: f64 = 3.0;
const QUICK_TIMES: f64 = 0.5;
/// Overwriting ends after this long at the latest. The ratio is valid for any number of bytes.
const OVERWRITING_MAX: Duration = Duration::from_secs(90);

/// Shares of the region that are live.
pub(crate) const SHARES: [f64; 3] = [1.0 / 3.0, 0.6, 0.8];

/// How the next key is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Draw {
    /// Each key is as likely as any other.
    #[serde(rename = "uniform")]
    Uniform,
    /// Zipf's law with exponent 0.99, as in YCSB.
    #[serde(rename = "zipf 0.99")]
    Zipf,
}

impl Draw {
    pub(crate) const ALL: [Self; 2] = [Self::Uniform, Self::Zipf];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::Zipf => "zipf 0.99",
        }
    }
}

/// One share and one way to choose keys, on one medium.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) media: MediaChoice,
    /// Share of the region that keys, values and records take.
    pub(crate) live_share: f64,
    pub(crate) draw: Draw,
    pub(crate) region_bytes: u64,
    /// Keys.
    pub(crate) records: u64,
    /// The counts while keys were overwritten.
    pub(crate) counted: Counted,
}

/// A server's counters, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Counted {
    /// Received; all of it lands in the region.
    pub(crate) received: f64,
    /// Records, new and rewritten.
    pub(crate) records: f64,
    /// Data that the compactor moved.
    pub(crate) moved: f64,
    /// Data copied within the region on their way in.
    pub(crate) copied: f64,
    /// Zeroes in front of records.
    pub(crate) zeroes: f64,
    /// On a file: written to storage, as the kernel counts for the process.
    pub(crate) storage: Option<f64>,
}

impl Counted {
    /// Bytes written for each byte received, by the server's counters.
    pub(crate) fn amplification(&self) -> f64 {
        (self.received + self.records + self.moved + self.copied + self.zeroes) / self.received
    }

    /// Bytes written for each byte received, as counted by the kernel.
    pub(crate) fn storage_amplification(&self) -> Option<f64> {
        Some(self.storage? / self.received)
    }

    /// Reads the counters of a server that has executed `sets`.
    fn of(server: &Server, media: MediaChoice, sets: u64) -> Result<Self, BenchError> {
        let storage = match media {
            MediaChoice::Pm => None,
            MediaChoice::File => storage_bytes_written(server.pid()).map(|bytes| bytes as f64),
        };
        let read = Self::read(&server.metrics()?, sets as f64);
        let read =
            read.ok_or_else(|| BenchError::reply("landfall", "metrics without them", "its counters"))?;
        Ok(Self { storage, ..read })
    }

    fn read(metrics: &str, sets: f64) -> Option<Self> {
        let count = |name: &str| metric(metrics, &format!("landfall_{name}"));
        let copied = |path: &str| count(&format!("copied_bytes_total{{path=\"{path}\""));
        let on_the_way = ["placed", "key", "list", "stalled", "consolidated"];
        Some(Self {
            received: count("input_bytes_total")?,
            records: (sets + count("compacted_records_total")?) * RECORD_BYTES,
            moved: copied("moved")?,
            copied: on_the_way.into_iter().map(copied).sum::<Option<f64>>()?,
            zeroes: count("zeroed_bytes_total")?,
            storage: None,
        })
    }

    fn since(self, before: Self) -> Self {
        Self {
            received: self.received - before.received,
            records: self.records - before.records,
            moved: self.moved - before.moved,
            copied: self.copied - before.copied,
            zeroes: self.zeroes - before.zeroes,
            storage: self.storage.zip(before.storage).map(|(after, before)| after - before),
        }
    }
}

/// Fills a region to a share, overwrites until cleaning has found its pace, then counts.
pub(crate) fn measure(
    bench: &Bench,
    media: MediaChoice,
    live_share: f64,
    draw: Draw,
) -> Result<Vec<Row>, BenchError> {
    let (region_bytes, times) =
        if bench.args.quick { (QUICK_REGION_BYTES, QUICK_TIMES) } else { (REGION_BYTES, TIMES) };
    let records = whole(region_bytes as f64 * live_share / (VALUE_BYTES as f64 + RECORD_BYTES));
    let percent = live_share * 100.0;
    say(format_args!("  {}: write amplification, {percent:.0} % live, {} keys", media.name(), draw.name()));
    let peer = bench.programs.landfall(false);
    let fresh = bench.fresh(media, &peer, region_bytes)?;
    let server = &fresh.server;
    loader::load(server.resp, peer.name(), 0..records, &value_of(VALUE_BYTES))?;
    let mut keys = Keys::new(draw, records);
    let sets = whole(region_bytes as f64 * times / VALUE_BYTES as f64);
    let warmed_up = records + overwrite(server, peer.name(), &mut keys, sets)?;
    let before = Counted::of(server, media, warmed_up)?;
    let counted_sets = overwrite(server, peer.name(), &mut keys, sets)?;
    let counted = Counted::of(server, media, warmed_up + counted_sets)?.since(before);
    Ok(vec![Row { media, live_share, draw, region_bytes, records, counted }])
}

/// Overwrites so many keys, or for as long as is allowed; how many it were.
fn overwrite(server: &Server, peer: &str, keys: &mut Keys, sets: u64) -> Result<u64, BenchError> {
    let (begun, mut done) = (Instant::now(), 0);
    let numbers = std::iter::from_fn(|| {
        if done == sets || begun.elapsed() > OVERWRITING_MAX {
            return None;
        }
        done += 1;
        Some(keys.next())
    });
    loader::load(server.resp, peer, numbers, &value_of(VALUE_BYTES))?;
    Ok(done)
}

/// The keys of a load, one after the other.
struct Keys {
    count: u64,
    zipf: Option<Zipf>,
    random: Random,
}

impl Keys {
    fn new(draw: Draw, count: u64) -> Self {
        let zipf = (draw == Draw::Zipf).then(|| Zipf::new(count));
        Self { count, zipf, random: Random::new(count) }
    }

    fn next(&mut self) -> u64 {
        match &self.zipf {
            Some(zipf) => zipf.draw(&mut self.random),
            None => self.random.below(self.count),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Counted, Draw, Keys};

    const METRICS: &str = "landfall_input_bytes_total 1000\nlandfall_compacted_records_total 2\n\
        landfall_copied_bytes_total{path=\"inline\"} 7\nlandfall_copied_bytes_total{path=\"placed\"} 10\n\
        landfall_copied_bytes_total{path=\"key\"} 20\nlandfall_copied_bytes_total{path=\"moved\"} 300\n\
        landfall_copied_bytes_total{path=\"reply\"} 7\nlandfall_copied_bytes_total{path=\"list\"} 0\n\
        landfall_copied_bytes_total{path=\"stalled\"} 0\nlandfall_copied_bytes_total{path=\"consolidated\"} 0\n\
        landfall_zeroed_bytes_total 42\n";

    #[test]
    fn everything_that_reaches_the_region_is_counted_and_replies_are_not() {
        let counted = Counted::read(METRICS, 1.0).unwrap();
        assert_eq!(counted.amplification(), (1000.0 + 3.0 * 128.0 + 300.0 + 30.0 + 42.0) / 1000.0);
        assert_eq!(counted.storage_amplification(), None);
    }

    #[test]
    fn a_counter_that_is_missing_is_no_zero() {
        let without = METRICS.replace("zeroed", "painted");
        assert_eq!(Counted::read(&without, 1.0), None);
    }

    #[test]
    fn a_part_of_a_run_is_what_was_counted_less_what_had_been() {
        let counted = Counted { storage: Some(5.0), ..Counted::read(METRICS, 1.0).unwrap() };
        let none = Counted { storage: Some(0.0), ..Counted::default() };
        assert_eq!(counted.since(counted), none);
        assert_eq!(counted.since(Counted { received: 900.0, ..none }).storage_amplification(), Some(0.05));
    }

    #[test]
    fn zipf_repeats_keys_more_often_than_chance() {
        let distinct = |draw| {
            let mut keys = Keys::new(draw, 1000);
            (0..1000).map(|_| keys.next()).collect::<std::collections::BTreeSet<_>>().len()
        };
        assert!(distinct(Draw::Zipf) < distinct(Draw::Uniform));
    }
}
