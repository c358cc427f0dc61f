//! Flags of `landfall bench`.

use crate::draw::DrawArgs;
use crate::files::{FsArgs, FsLoadArgs};
use crate::keys::KvArgs;
use crate::linefs::LinefsArgs;
use crate::paper::{PaperArgs, StagesArgs, WalServerArgs};
use crate::pmnet::{PmnetArgs, PmnetServerArgs};
use crate::stores::ServerArgs;
use clap::{Args, Subcommand};

/// Flags of `landfall bench`.
#[derive(Debug, Args)]
pub struct BenchArgs {
    /// What to measure, or to draw
    #[command(subcommand)]
    pub command: BenchCommand,
}

/// What can be measured, and drawn.
#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// The key-value store beside Redis, with random keys: rate, CPU, latency, restart, space, range scans
    Kv(KvArgs),
    /// The measurements of two papers on packets in persistent memory, repeated here; needs root
    Paper(PaperArgs),
    /// The measurements of the paper on in-network logs (ISCA 2021), repeated here; needs root
    Pmnet(PmnetArgs),
    /// Files of a mount beside the file system on which its region lies
    Fs(FsArgs),
    /// Files and keys of three servers in a chain beside GlusterFS and Redis with as many copies: the evaluation of LineFS
    /// (SOSP 2021), as far as it can be repeated
    Linefs(LinefsArgs),
    /// Draw kept reports anew: the plots and tables that a measurement would write with these results
    Draw(DrawArgs),
    /// `landfall serve` over another store
    #[command(hide = true)]
    Server(ServerArgs),
    /// One load on a folder, in this process
    #[command(hide = true)]
    FsLoad(FsLoadArgs),
    /// A server, a logger or a side-car at one end of the wire
    #[command(hide = true)]
    PmnetServer(PmnetServerArgs),
    /// The stages of a durable write, in this process
    #[command(hide = true)]
    Stages(StagesArgs),
    /// A write-ahead log that reads, copies and syncs, for comparison
    #[command(hide = true)]
    WalServer(WalServerArgs),
}
