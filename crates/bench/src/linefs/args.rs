//! Flags of `landfall bench linefs`.

use crate::common::measure::stats::whole;
use crate::files::{FsArgs, LoadChoice};
use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Flags of `landfall bench linefs`.
#[derive(Clone, Debug, Args, Serialize, Deserialize)]
pub struct LinefsArgs {
    /// Directory on the file system that holds the regions of all servers, and the bricks of GlusterFS
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub dir: PathBuf,
    /// Loads to measure
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = LinefsLoad::value_variants().to_vec())]
    pub only: Vec<LinefsLoad>,
    /// Rounds of each comparison
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub rounds: u32,
    /// Length of one run of a load without a fixed amount of work, seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 3.0)]
    pub seconds: f64,
    /// Files of varmail and of the file server
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(16..=1_000_000))]
    pub files: u32,
    /// Bytes of the file that is written in sequence, MiB; the clients of one run share them
    #[arg(long, value_name = "MIB", default_value_t = 2048, value_parser = clap::value_parser!(u64).range(1..=65_536))]
    pub file_mib: u64,
    /// Clients that write at once, of the load `clients`
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [1, 2, 4, 8],
        value_parser = clap::value_parser!(u32).range(1..=256))]
    #[serde(default)]
    pub clients: Vec<u32>,
    /// Worker threads of each Landfall server; its default where absent
    #[arg(long, value_name = "N")]
    pub workers: Option<usize>,
    /// Threads of the program beside the loads `clients`, `publish` and `busy`; as many as there are cores where absent
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    #[serde(default)]
    pub co_threads: Option<u32>,
    /// Run each load on files at its place first, remove them, and measure it then; of `set`, as many SETs first as the region
    /// has room for. Memory and blocks were touched before, as at servers that have run for a while
    #[arg(long)]
    #[serde(default)]
    pub used: bool,
    /// Folder with what `cargo xtask vm image` makes: the host of the load `failures`' replica is a virtual machine (QEMU), whose
    /// NVDIMM is the replica's region. DIR is to be in memory then
    #[arg(long, value_name = "FOLDER")]
    #[serde(skip)]
    pub machine: Option<PathBuf>,
    /// Output folder
    #[arg(long, value_name = "DIR", default_value = "bench-results")]
    pub out: PathBuf,
    /// A little of everything within a minute: shows that it runs, measures nothing
    #[arg(long)]
    pub quick: bool,
}

/// What to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LinefsLoad {
    /// Append 16 KiB, fsync: latency
    Append,
    /// Write a file in sequence by 16 KiB, then fsync: throughput, and the share of that fsync
    Write,
    /// Read that file in sequence and at random places, with the kernel's cache
    Read,
    /// So many clients, each of which writes a file of its own in sequence by 16 KiB, then fsyncs: throughput on an idle machine
    /// and beside a program that needs its cores and its memory, by the chain's way, Assise's and without a pipeline
    Clients,
    /// Append 16 KiB, fsync, on an idle machine and beside a program that needs its cores and its memory: p99 of the chain's way
    /// and of Assise's
    Busy,
    /// Append 16 KiB, fsync, alone and beside a client that writes in sequence and syncs nothing: latency
    Beside,
    /// Four clients, each of which writes a file of its own in sequence by 16 KiB, then fsyncs, beside a program that needs its
    /// cores and its memory: what that costs it, by relinking what is published and by copying it
    Publish,
    /// A file that is written in sequence by 16 KiB, then synced, on a chain: the time of each stage of a chunk
    Stages,
    /// Filebench's varmail
    Varmail,
    /// Filebench's file server
    Fileserver,
    /// LevelDB's fillsync, fillseq, fillrandom, readrandom, readseq and readhot: latency
    Leveldb,
    /// SETs of 1 KiB by 50 clients, without and with a pipeline of 16: beside redis with two replicas and WAIT
    Set,
    /// Values of which 0, 40, 60 and 80 % are zeros, on a chain without and with compression: traffic and time
    Compression,
    /// Files on a mount on another machine that are looked at again and again, with what it keeps and without, and on a mount at
    /// the server's own: time, and requests
    Elsewhere,
    /// A chain whose servers have machines of their own, with replicas that are idle and busy, simulated with the costs that are
    /// measured on this machine: sequential writes by 1, 2, 4 and 8 clients, LevelDB, varmail and the file server
    Simulated,
    /// Varmail on a chain in etcd while hosts and servers fail and come back: gaps, p99 and the course over time
    Failures,
}

/// Longest run, seconds.
const SECONDS_MAX: f64 = 120.0;
/// Bytes of a region beyond what a load needs.
const REGION_SPARE: u64 = 2 << 30;
/// Bytes that one file of varmail and of the file server may take.
const FILE_BYTES: u64 = 192 << 10;
/// Bytes that LevelDB may add to its files in a second: of each value, those of its log and those of a table.
const LEVELDB_BYTES_PER_SECOND: u64 = 256 << 20;
/// What LevelDB does, on one thread.
const LEVELDB: [(LoadChoice, u32); 6] = [
    (LoadChoice::LeveldbSync, 1),
    (LoadChoice::LeveldbFill, 1),
    (LoadChoice::LeveldbFillRandom, 1),
    (LoadChoice::LeveldbRead, 1),
    (LoadChoice::LeveldbReadSequential, 1),
    (LoadChoice::LeveldbReadHot, 1),
];

impl LinefsLoad {
    /// The loads of `landfall bench fs` that it consists of, and their threads; none if it is of another kind.
    pub(super) fn on_files(self) -> &'static [(LoadChoice, u32)] {
        match self {
            Self::Append => &[(LoadChoice::Append, 1)],
            Self::Write => &[(LoadChoice::Write, 1)],
            Self::Read => &[(LoadChoice::ReadSequential, 1), (LoadChoice::ReadRandom, 1)],
            Self::Varmail => &[(LoadChoice::Varmail, 16)],
            Self::Fileserver => &[(LoadChoice::Fileserver, 16)],
            Self::Leveldb => &LEVELDB,
            Self::Clients
            | Self::Publish
            | Self::Stages
            | Self::Busy
            | Self::Beside
            | Self::Set
            | Self::Compression
            | Self::Elsewhere
            | Self::Simulated
            | Self::Failures => &[],
        }
    }
}

impl LinefsArgs {
    /// These arguments with bounds applied, and small if `quick`.
    pub(super) fn bounded(&self) -> Self {
        let mut args = self.clone();
        if args.quick {
            args.rounds = args.rounds.min(1);
            args.seconds = args.seconds.min(0.2);
            args.files = args.files.min(64);
            args.file_mib = args.file_mib.min(8);
            args.clients.truncate(2);
        }
        args.seconds = if args.seconds.is_finite() { args.seconds.clamp(0.05, SECONDS_MAX) } else { 3.0 };
        args
    }

    /// What each of so many clients writes, MiB.
    pub(super) fn mib_of_client(&self, clients: u32) -> u64 {
        (self.file_mib / u64::from(clients)).max(1)
    }

    /// Threads of the co-runner.
    pub(super) fn co_threads(&self) -> usize {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        self.co_threads.map_or(cores, |threads| threads as usize)
    }

    /// The settings with which the loads of `landfall bench fs` run.
    pub(super) fn of_loads(&self) -> FsArgs {
        FsArgs {
            dir: self.dir.clone(),
            only: Vec::new(),
            threads: vec![1],
            rounds: self.rounds,
            seconds: self.seconds,
            files: self.files,
            file_mib: self.file_mib,
            small_files: 0,
            workers: self.workers,
            transport: Vec::new(),
            out: self.out.clone(),
            quick: self.quick,
        }
    }

    /// Bytes of the region of each server for a load. All of it is allocated at the start.
    pub(super) fn region_bytes(&self, load: LinefsLoad) -> u64 {
        let data = self.data_bytes(load);
        // What was removed may not be free yet.
        let data = if self.used { 2 * data } else { data };
        data + data / 2 + if self.quick { REGION_SPARE / 4 } else { REGION_SPARE }
    }

    /// Bytes that a load may write.
    fn data_bytes(&self, load: LinefsLoad) -> u64 {
        match load {
            LinefsLoad::Append
            | LinefsLoad::Busy
            | LinefsLoad::Beside
            | LinefsLoad::Set
            | LinefsLoad::Compression
            | LinefsLoad::Elsewhere => 0,
            LinefsLoad::Write | LinefsLoad::Read | LinefsLoad::Stages => self.file_mib << 20,
            // What the clients before have written may not be free yet.
            LinefsLoad::Clients | LinefsLoad::Publish => self.file_mib << 21,
            LinefsLoad::Leveldb => whole(self.seconds * LEVELDB_BYTES_PER_SECOND as f64),
            LinefsLoad::Varmail | LinefsLoad::Fileserver | LinefsLoad::Failures => {
                u64::from(self.files) * FILE_BYTES
            }
            // One load after the other.
            LinefsLoad::Simulated => [LinefsLoad::Clients, LinefsLoad::Leveldb, LinefsLoad::Varmail]
                .map(|load| self.data_bytes(load))
                .into_iter()
                .fold(0, u64::max),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        settings: LinefsArgs,
    }

    #[test]
    fn a_region_has_room_for_its_load_and_a_quick_one_is_small() {
        let args =
            |flags: &[&str]| Cli::try_parse_from([&["linefs"], flags].concat()).unwrap().settings.bounded();
        let bytes = args(&["--file-mib", "4096"]).region_bytes(LinefsLoad::Write);
        assert_eq!(bytes, 8 << 30);
        for load in LinefsLoad::value_variants() {
            assert!(args(&["--quick"]).region_bytes(*load) <= 1 << 30, "{load:?}");
        }
    }

    #[test]
    fn a_time_without_end_is_bounded() {
        let cli = Cli::try_parse_from(["linefs", "--seconds", "inf"]).unwrap();
        assert_eq!(cli.settings.bounded().seconds, 3.0);
    }
}
