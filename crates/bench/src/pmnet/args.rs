//! Flags of `landfall bench pmnet`.

use super::app::App;
use super::app::On;
use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::PathBuf;

/// Flags of `landfall bench pmnet`.
#[derive(Clone, Debug, Args, Serialize, Deserialize)]
pub struct PmnetArgs {
    /// Figures to measure
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = PmnetSection::value_variants().to_vec())]
    pub only: Vec<PmnetSection>,
    /// Applications of Figures 19 to 21, of those that are installed
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = AppChoice::value_variants().to_vec())]
    pub apps: Vec<AppChoice>,
    /// Directory on tmpfs (or DAX) for logs and regions
    #[arg(long, value_name = "DIR", default_value = "/dev/shm")]
    pub dir: PathBuf,
    /// Directory on an ordinary file system, for Redis's append-only file and for a device's log on a file
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub file_dir: PathBuf,
    /// Rounds of each comparison; each round runs every contestant once
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub rounds: u32,
    /// Length of one run, seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 1.5)]
    pub seconds: f64,
    /// Requests in front of each run that do not count; they take no longer than the run
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub warm_up: u64,
    /// Pause of a single client after each request, µs, in which servers finish work that it does not wait for
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub rest_us: u64,
    /// How long every client that does not spin busy-polls for an answer before it waits in the kernel, µs
    #[serde(default)]
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=1000))]
    pub look_us: u64,
    /// How long a device that may wait busy-polls for packets before it waits in the kernel, µs; `landfall pmnet
    /// switch` has 50 by default
    #[serde(default)]
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=1000))]
    pub device_spin: u64,
    /// Closed-loop clients of Figures 16 and 22
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [1, 4, 16, 64])]
    pub clients: Vec<usize>,
    /// Closed-loop clients of Figure 19, besides one
    #[arg(long, value_name = "N", default_value_t = 16)]
    pub app_clients: usize,
    /// Payloads of Figure 15, bytes
    #[arg(long, value_name = "BYTES", value_delimiter = ',', default_values_t = [50, 100, 200, 400, 600, 800, 1000])]
    pub sizes: Vec<usize>,
    /// Shares of updates in Figure 19, percent
    #[arg(long, value_name = "PERCENT", value_delimiter = ',', default_values_t = [100, 75, 50, 25])]
    pub ratios: Vec<u32>,
    /// Keys of the key-value workloads
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub keys: u64,
    /// Length of a full log that is replayed, MiB
    #[arg(long, value_name = "MIB", default_value_t = 1024, value_parser = clap::value_parser!(u64).range(8..=16384))]
    pub replay_mib: u64,
    /// Core of devices and servers
    #[arg(long, value_name = "CORE", default_value_t = 0)]
    pub server_core: usize,
    /// Core of clients
    #[arg(long, value_name = "CORE", default_value_t = 1)]
    pub client_core: usize,
    /// Let cores sleep between packets where no process busy-polls; otherwise a thread of the lowest class keeps each
    /// core awake
    #[arg(long)]
    pub let_sleep: bool,
    /// Output folder
    #[arg(long, value_name = "DIR", default_value = "bench-results/pmnet")]
    #[serde(skip)]
    pub out: PathBuf,
    /// One short round of a little of everything: shows that it runs, measures nothing
    #[arg(long)]
    pub quick: bool,
}

/// A figure of the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PmnetSection {
    /// Where an update's time goes without PMNet
    Fig2,
    /// Update latency of an ideal handler by payload
    Fig15,
    /// Bandwidth against latency
    Fig16,
    /// Against client-side and server-side logging
    Fig18,
    /// Throughput of applications by the share of updates
    Fig19,
    /// Latency distributions, with the read cache and without
    Fig20,
    /// Three-way replication
    Fig21,
    /// With an optimised network stack: both ends spinning
    Fig22,
    /// Replay of a device's log
    Recovery,
    /// The simulator with costs measured here: what hosts with cores of their own would show
    Model,
}

impl PmnetSection {
    /// The name in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Fig2 => "Figure 2",
            Self::Fig15 => "Figure 15",
            Self::Fig16 => "Figure 16",
            Self::Fig18 => "Figure 18",
            Self::Fig19 => "Figure 19",
            Self::Fig20 => "Figure 20",
            Self::Fig21 => "Figure 21",
            Self::Fig22 => "Figure 22",
            Self::Recovery => "Recovery",
            Self::Model => "Simulated",
        }
    }
}

/// An application of the paper's evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AppChoice {
    /// B-tree
    Btree,
    /// Crit-bit tree
    Ctree,
    /// Red-black tree
    Rbtree,
    /// Hash map
    Hashmap,
    /// Skip list
    Skiplist,
    /// Redis, `appendfsync always` on a file
    Redis,
    /// `landfall serve`
    Landfall,
    /// A Twitter clone on Redis
    Twitter,
    /// New-order and payment of TPC-C on Redis
    Tpcc,
    /// Redis, `appendfsync always` on tmpfs
    RedisTmpfs,
    /// The Twitter clone on Redis on tmpfs
    TwitterTmpfs,
    /// TPC-C on Redis on tmpfs
    TpccTmpfs,
}

impl AppChoice {
    pub(crate) fn app(self) -> App {
        use landfall_bench_handlers::Structure::{BTree, CritBit, HashMap, RedBlack, SkipList};
        match self {
            Self::Btree => App::Map(BTree),
            Self::Ctree => App::Map(CritBit),
            Self::Rbtree => App::Map(RedBlack),
            Self::Hashmap => App::Map(HashMap),
            Self::Skiplist => App::Map(SkipList),
            Self::Redis => App::Redis(On::File),
            Self::RedisTmpfs => App::Redis(On::Memory),
            Self::Landfall => App::Landfall,
            Self::Twitter => App::Twitter(On::File),
            Self::TwitterTmpfs => App::Twitter(On::Memory),
            Self::Tpcc => App::Tpcc(On::File),
            Self::TpccTmpfs => App::Tpcc(On::Memory),
        }
    }
}

impl PmnetArgs {
    /// These arguments within bounds, small if `quick`.
    pub(crate) fn bounded(&self) -> Self {
        let mut args = self.clone();
        if args.quick {
            (args.rounds, args.seconds, args.warm_up) = (1, 0.1, 100);
            (args.clients, args.sizes, args.ratios) = (vec![1, 4], vec![50, 1000], vec![100, 50]);
            (args.app_clients, args.keys, args.replay_mib) = (2, 100, 16);
        }
        args.seconds = if args.seconds.is_finite() { args.seconds.clamp(0.05, 60.0) } else { 1.5 };
        args.warm_up = args.warm_up.min(10_000_000);
        args.keys = args.keys.clamp(1, 1_000_000);
        args.app_clients = args.app_clients.clamp(1, CLIENTS_MAX);
        args.clients.iter_mut().for_each(|clients| *clients = (*clients).clamp(1, CLIENTS_MAX));
        args.sizes.iter_mut().for_each(|bytes| *bytes = (*bytes).clamp(16, PAYLOAD_MAX));
        args.ratios.iter_mut().for_each(|percent| *percent = (*percent).min(100));
        args
    }
}

/// The largest number of clients of a run.
pub(crate) const CLIENTS_MAX: usize = 64;
/// Longest payload of the ideal handler: one packet.
pub(crate) const PAYLOAD_MAX: usize = 1400;

/// A process at an end of the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ServeKind {
    /// Plain requests and replies over UDP
    Udp,
    /// Plain requests and replies over TCP
    Tcp,
    /// A server of PMNet
    Pmnet,
    /// A logger: logs requests over UDP, replies, and passes them on
    Logger,
    /// The server's side-car of a Redis-protocol server
    Sidecar,
}

/// Flags of the hidden `landfall bench pmnet-server`.
#[derive(Clone, Debug, Args)]
pub struct PmnetServerArgs {
    /// Kind of process
    #[arg(long, value_enum)]
    pub kind: ServeKind,
    /// Structure of the handler; without it, requests are acknowledged and forgotten
    #[arg(long)]
    pub structure: Option<String>,
    /// Where to listen
    #[arg(long)]
    pub listen: SocketAddr,
    /// Folder of the handler's region, or of the log
    #[arg(long)]
    pub dir: PathBuf,
    /// Bytes of the region or of the log
    #[arg(long, default_value_t = 256 << 20)]
    pub capacity: u64,
    /// Hosts that must have an update before it is answered; of a side-car, its server's replicas
    #[arg(long, value_delimiter = ',')]
    pub replicas: Vec<SocketAddr>,
    /// The server behind a logger or a side-car
    #[arg(long)]
    pub forward: Option<SocketAddr>,
    /// For a server of PMNet and a side-car: where it tells how many updates it has executed
    #[arg(long)]
    pub counts: Option<SocketAddr>,
    /// Never wait in the kernel
    #[arg(long)]
    pub spin: bool,
    /// For a plain server over UDP: append to each reply when its request was received, executed and durable
    #[arg(long)]
    pub stamps: bool,
    /// Let others on this core finish their slices first
    #[arg(long)]
    pub background: bool,
}
