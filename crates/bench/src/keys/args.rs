//! Flags of `landfall bench kv`.

use crate::common::clients::ClientChoice;
use crate::common::peers::PeerChoice;
use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Flags of `landfall bench kv`.
#[derive(Clone, Debug, Args, Serialize, Deserialize)]
pub struct KvArgs {
    /// Media to measure on
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [MediaChoice::Pm, MediaChoice::File])]
    pub media: Vec<MediaChoice>,
    /// Directory on tmpfs, for `--media pm`
    #[arg(long, value_name = "DIR", default_value = "/dev/shm")]
    pub pm_dir: PathBuf,
    /// Directory on the file system to measure, for `--media file`
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub file_dir: PathBuf,
    /// Servers to compare, of those found
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [
        PeerChoice::Landfall, PeerChoice::Discard, PeerChoice::RedisAlways, PeerChoice::RedisNo, PeerChoice::RedisNone,
    ])]
    pub peers: Vec<PeerChoice>,
    /// Measurements to make
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = WorkloadChoice::value_variants().to_vec())]
    pub only: Vec<WorkloadChoice>,
    /// Load generator; auto takes redis-benchmark where it is installed
    #[arg(long, value_enum, default_value_t = ClientChoice::Auto)]
    pub client: ClientChoice,
    /// Value sizes, bytes
    #[arg(long, value_name = "BYTES", value_delimiter = ',', default_values_t = [1024])]
    pub sizes: Vec<usize>,
    /// Keys are drawn at random from so many; with further numbers, and with a single key, only the fastest SETs
    #[arg(short = 'r', long, value_name = "N", value_delimiter = ',', default_values_t = [100_000, 1_000_000],
        value_parser = clap::value_parser!(u64).range(1..=50_000_000))]
    pub random_keys: Vec<u64>,
    /// Rounds of each comparison; each round runs every server once
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub rounds: u32,
    /// Length of one run of a load, seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 3.0)]
    pub seconds: f64,
    /// Records for restart, space and range scans
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1000..=50_000_000))]
    pub records: u64,
    /// Region for paging, MiB; its memory is a tenth of this
    #[serde(default)]
    #[arg(long, value_name = "MIB", default_value_t = 4000, value_parser = clap::value_parser!(u64).range(limits::PAGED_MIB_MIN..=1_000_000))]
    pub paged_mib: u64,
    /// Worker threads of landfall; its default where absent
    #[arg(long, value_name = "N")]
    pub workers: Option<usize>,
    /// Output folder
    #[arg(long, value_name = "DIR", default_value = "bench-results")]
    pub out: PathBuf,
    /// A little of everything within minutes: shows that it runs, measures nothing
    #[arg(long)]
    pub quick: bool,
}

/// Where regions and logs lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MediaChoice {
    /// tmpfs: the code path of persistent memory (cache-line flush and fence), not its latency
    Pm,
    /// An ordinary file system
    File,
}

impl MediaChoice {
    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pm => "pm",
            Self::File => "file",
        }
    }
}

/// What to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WorkloadChoice {
    /// SETs: requests a second, latency, CPU per request
    Set,
    /// GETs: requests a second, latency, CPU per request
    Get,
    /// Latency of one GET client beside a SET load
    Mixed,
    /// Bytes written to the medium for each byte received
    Amplification,
    /// Resident memory with many keys, and of an empty region, over restarts
    Memory,
    /// Instructions of a SET by stage; needs valgrind
    Instructions,
    /// Time to recover after a kill
    Restart,
    /// Bytes on the medium and in memory per record
    Space,
    /// Range scans over HTTP
    Range,
    /// A region ten times larger than its memory; only on a file
    Paging,
}

/// Bounds on what one run may do, whatever the flags say.
pub(crate) mod limits {
    /// Requests of one run at most.
    pub(crate) const REQUESTS_MAX: u64 = 50_000_000;
    /// Requests of one run at least: fewer say nothing about a 99th percentile.
    pub(crate) const REQUESTS_MIN: u64 = 2_000;
    /// Seconds of one run at most.
    pub(crate) const SECONDS_MAX: f64 = 120.0;
    /// Region for paging at least, MiB: a tenth of it is the least memory that a server takes.
    pub(crate) const PAGED_MIB_MIN: u64 = 640;
    /// Longest value, bytes.
    pub(crate) const VALUE_MAX: usize = 64 << 20;
}

impl KvArgs {
    /// These arguments with bounds applied, and small if `quick`.
    pub(crate) fn bounded(&self) -> Self {
        let mut args = self.clone();
        if args.quick {
            args.rounds = args.rounds.min(2);
            args.seconds = args.seconds.min(0.2);
            args.records = args.records.min(5_000);
            args.paged_mib = limits::PAGED_MIB_MIN;
        }
        args.seconds =
            if args.seconds.is_finite() { args.seconds.clamp(0.05, limits::SECONDS_MAX) } else { 3.0 };
        args.sizes.iter_mut().for_each(|size| *size = (*size).clamp(1, limits::VALUE_MAX));
        args
    }

    /// How many keys the loads draw from, unless they say otherwise.
    pub(crate) fn keys(&self) -> u64 {
        self.random_keys.first().copied().unwrap_or(0)
    }

    /// Length of the values of loads with one size only, bytes.
    pub(crate) fn value_bytes(&self) -> usize {
        self.sizes.first().copied().unwrap_or(1024)
    }
}
