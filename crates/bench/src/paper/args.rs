//! Flags of `landfall bench paper`.

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::PathBuf;

/// Flags of `landfall bench paper`.
#[derive(Clone, Debug, Args, Serialize, Deserialize)]
pub struct PaperArgs {
    /// Measurements to make
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = PaperSection::value_variants().to_vec())]
    pub only: Vec<PaperSection>,
    /// Directory on tmpfs (or DAX) for regions and logs
    #[arg(long, value_name = "DIR", default_value = "/dev/shm")]
    pub dir: PathBuf,
    /// Directory on an ordinary file system: write-ahead logs are measured there, too
    #[arg(long, value_name = "DIR")]
    pub file_dir: Option<PathBuf>,
    /// Rounds of each comparison; each round runs every server once
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub rounds: u32,
    /// Length of one run, whole seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=5))]
    pub seconds: u32,
    /// Connections of Figure 2
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [1, 2, 5, 10, 20, 50, 100])]
    pub connections: Vec<usize>,
    /// Core that servers are pinned to
    #[arg(long, value_name = "CORE", default_value_t = 0)]
    pub server_core: usize,
    /// Core that clients are pinned to
    #[arg(long, value_name = "CORE", default_value_t = 1)]
    pub client_core: usize,
    /// Length of a bulk transfer, MiB
    #[arg(long, value_name = "MIB", default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=256))]
    pub bulk_mib: u64,
    /// Output folder
    #[arg(long, value_name = "DIR", default_value = "bench-results/paper")]
    pub out: PathBuf,
    /// One short round of a little of everything: shows that it runs, measures nothing
    #[arg(long)]
    pub quick: bool,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PaperSection {
    /// Where the time of a durable 1 KiB write goes
    Table1,
    /// Throughput and latency over connections
    Figure2,
    /// Write-ahead logs
    Wal,
    /// Kernel TCP against ours: small requests
    Tcp,
    /// Kernel TCP against ours: one long value, with loss and without
    Bulk,
    /// Against redis over the same wire
    Targets,
}

impl PaperArgs {
    /// These arguments, small if `quick`.
    pub(crate) fn bounded(&self) -> Self {
        let mut args = self.clone();
        if args.quick {
            (args.rounds, args.seconds) = (1, 1);
            args.connections = vec![1, 10];
            args.bulk_mib = args.bulk_mib.min(8);
        }
        args.connections.iter_mut().for_each(|connections| *connections = (*connections).clamp(1, 1000));
        args
    }

    /// True if a section is requested.
    pub(crate) fn wants(&self, section: PaperSection) -> bool {
        self.only.contains(&section)
    }
}

/// A store whose stages are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StageStore {
    /// Ours.
    Heap,
    /// Copy and flush.
    Copy,
    /// LevelDB, and copy and flush.
    #[value(name = "leveldb")]
    LevelDb,
}

/// How far a request is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Upto {
    /// It has landed: what stands for the NIC.
    Land,
    /// Its HTTP is parsed.
    Parse,
    /// It is in the store's own form.
    Prepare,
    /// It is allocated and inserted; for the heap with a checksum that is given.
    Insert,
    /// It is allocated and inserted; the checksum is computed.
    Checksum,
    /// The value is copied.
    Copy,
    /// It is durable.
    Commit,
}

/// Flags of the hidden `landfall bench stages`.
#[derive(Clone, Debug, Args)]
pub struct StagesArgs {
    /// The store
    #[arg(long, value_enum)]
    pub store: StageStore,
    /// Directory for the region
    #[arg(long)]
    pub dir: PathBuf,
    /// Flush instruction
    #[arg(long, default_value = "auto")]
    pub flush: String,
    /// Batches of requests
    #[arg(long, default_value_t = 400)]
    pub batches: u32,
    /// Only take requests so far, one after the other, and time nothing: for counting instructions
    #[arg(long, value_enum)]
    pub upto: Option<Upto>,
}

/// Flags of the hidden `landfall bench wal-server`.
#[derive(Clone, Debug, Args)]
pub struct WalServerArgs {
    /// Where to listen
    #[arg(long)]
    pub listen: SocketAddr,
    /// The log
    #[arg(long)]
    pub log: PathBuf,
    /// Length of the log, MiB
    #[arg(long, default_value_t = 64)]
    pub log_mib: usize,
    /// Read into the log itself, without a copy in between
    #[arg(long)]
    pub direct: bool,
    /// Busy-poll for requests, and never wait in the kernel
    #[arg(long)]
    pub spin: bool,
}
