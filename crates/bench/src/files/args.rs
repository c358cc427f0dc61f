//! Flags of `landfall bench fs`.

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Flags of `landfall bench fs`.
#[derive(Clone, Debug, Args, Serialize, Deserialize)]
pub struct FsArgs {
    /// Directory on the file system to compare with; the region lies there, too
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub dir: PathBuf,
    /// Loads to measure
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = LoadChoice::value_variants().to_vec())]
    pub only: Vec<LoadChoice>,
    /// Threads of the loads that say so
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [1, 16],
        value_parser = clap::value_parser!(u32).range(1..=256))]
    pub threads: Vec<u32>,
    /// Rounds of each comparison
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub rounds: u32,
    /// Length of one run of a load without a fixed amount of work, seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 3.0)]
    pub seconds: f64,
    /// Files of varmail and of the file server
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(16..=1_000_000))]
    pub files: u32,
    /// Bytes of the file that is written in sequence and read, MiB
    #[arg(long, value_name = "MIB", default_value_t = 2048, value_parser = clap::value_parser!(u64).range(1..=65_536))]
    pub file_mib: u64,
    /// Small files that are made, looked at and removed; and that are there when a mount starts
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(16..=10_000_000))]
    pub small_files: u32,
    /// Worker threads of the mount; its default where absent
    #[arg(long, value_name = "N")]
    pub workers: Option<usize>,
    /// Transports of the mount; `uring` needs Linux 6.14, and root to allow it
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = device_only())]
    #[serde(default = "device_only")]
    pub transport: Vec<TransportChoice>,
    /// Output folder
    #[arg(long, value_name = "DIR", default_value = "bench-results")]
    pub out: PathBuf,
    /// A little of everything within a minute: shows that it runs, measures nothing
    #[arg(long)]
    pub quick: bool,
}

/// How a mount's requests come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TransportChoice {
    /// By reads of /dev/fuse
    Dev,
    /// Over io_uring
    Uring,
}

fn device_only() -> Vec<TransportChoice> {
    vec![TransportChoice::Dev]
}

/// What to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LoadChoice {
    /// Make a file, write 16 KiB, fsync
    Create,
    /// Append 16 KiB to a file of the thread's own, fsync
    Append,
    /// Filebench's varmail: delete, create, append with fsync, read; 16 threads, files of 16 KiB
    Varmail,
    /// Filebench's file server: create 128 KiB, append, read whole, delete, stat; 16 threads
    Fileserver,
    /// Write a file in sequence by 16 KiB, then fsync
    Write,
    /// Read that file in sequence by 128 KiB, with the kernel's cache
    ReadSequential,
    /// Read 4 KiB at random places of that file, with the kernel's cache
    ReadRandom,
    /// As `readsequential`, once, with the kernel's cache dropped and the mount's server started anew; needs root
    ReadSequentialCold,
    /// As `readrandom`, with these caches empty at first; needs root
    ReadRandomCold,
    /// Make, stat and unlink small files without fsync; beside bindfs, too, a file system by FUSE that passes calls on
    Small,
    /// LevelDB's fillsync: put values of 1 KiB, each synced
    LeveldbSync,
    /// LevelDB's fillseq: put values of 1 KiB
    LeveldbFill,
    /// LevelDB's fillrandom: put values of 1 KiB, in no order
    LeveldbFillRandom,
    /// LevelDB's readrandom: get values of 1 KiB
    LeveldbRead,
    /// LevelDB's readseq: go through values of 1 KiB in their order
    LeveldbReadSequential,
    /// LevelDB's readhot: get values of 1 KiB, all of them of a hundredth of the keys
    LeveldbReadHot,
    /// Unpack a tree of 4,000 sources by tar
    Untar,
    /// Run git status on that tree
    GitStatus,
    /// Build a crate by cargo
    Build,
    /// Start with as many small files after a kill, to the first ls; beside landfall serve with as many records
    Restart,
}

impl LoadChoice {
    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Create => "create 16 KiB, fsync",
            Self::Append => "append 16 KiB, fsync",
            Self::Varmail => "varmail",
            Self::Fileserver => "file server",
            Self::Write => "sequential write",
            Self::ReadSequential => "sequential read, cached",
            Self::ReadRandom => "random 4 KiB read, cached",
            Self::ReadSequentialCold => "sequential read, cold",
            Self::ReadRandomCold => "random 4 KiB read, cold",
            Self::Small => "small files",
            Self::LeveldbSync => "LevelDB fillsync",
            Self::LeveldbFill => "LevelDB fillseq",
            Self::LeveldbFillRandom => "LevelDB fillrandom",
            Self::LeveldbRead => "LevelDB readrandom",
            Self::LeveldbReadSequential => "LevelDB readseq",
            Self::LeveldbReadHot => "LevelDB readhot",
            Self::Untar => "untar",
            Self::GitStatus => "git status",
            Self::Build => "cargo build",
            Self::Restart => "start with small files, to the first ls",
        }
    }

    /// True for what begins with empty caches.
    pub fn is_cold(self) -> bool {
        matches!(self, Self::ReadSequentialCold | Self::ReadRandomCold)
    }

    /// What is counted.
    pub fn unit(self) -> &'static str {
        match self {
            Self::Write | Self::ReadSequential | Self::ReadSequentialCold => "MiB/s",
            Self::Untar => "files/s",
            Self::Restart => "starts/s",
            _ => "operations/s",
        }
    }
}

/// Longest run, seconds.
const SECONDS_MAX: f64 = 120.0;

impl FsArgs {
    /// These arguments with bounds applied, and small if `quick`.
    pub(crate) fn bounded(&self) -> Self {
        let mut args = self.clone();
        if args.quick {
            args.rounds = args.rounds.min(2);
            args.seconds = args.seconds.min(0.2);
            args.files = args.files.min(200);
            args.file_mib = args.file_mib.min(16);
            args.small_files = args.small_files.min(500);
        }
        args.seconds = if args.seconds.is_finite() { args.seconds.clamp(0.05, SECONDS_MAX) } else { 3.0 };
        args
    }
}
