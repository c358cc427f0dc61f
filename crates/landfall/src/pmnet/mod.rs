//! `landfall pmnet`: the commands of the in-network log.

mod chain;
mod client;
mod counts;
mod log;
mod members;
mod options;
mod reconcile;
mod rejected;
mod server;
mod sessions;
mod switch;
mod top;

use crate::output::report;
use clap::{Args, Subcommand};
use std::process::ExitCode;

/// Flags of `landfall pmnet`.
#[derive(Debug, Args)]
pub struct PmnetArgs {
    #[command(subcommand)]
    command: PmnetCommand,
}

#[derive(Debug, Subcommand)]
enum PmnetCommand {
    /// A device: logs updates between clients and a server, acknowledges them, resends them after failures
    Switch(Box<switch::SwitchArgs>),
    /// The side-car of Redis clients: speaks RESP to them and PMNet to the network
    Client(Box<client::ClientArgs>),
    /// The side-car of a real server: PMNet to the network and RESP to a Redis, or to `landfall serve`
    Server(Box<server::ServerArgs>),
    /// Show the acknowledged commands that a real server has rejected
    Rejected(rejected::RejectedArgs),
    /// Show the sessions whose confirmed updates a real server has lost, or let them continue without these
    Reconcile(reconcile::ReconcileArgs),
    /// Show the sessions of a server's side-car, or clear some of them
    Sessions(sessions::SessionsArgs),
    /// Show the log of a device that is not running, session by session
    Log(log::LogCommandArgs),
    /// Show or change a chain: its devices, their order, and which of them are lost for good
    Chain(chain::ChainCommandArgs),
    /// Show the counters of a running device, repeatedly
    Top(top::TopArgs),
    /// Print the match-action table: what each stage of a device does with which packet
    Table,
}

/// Runs a subcommand.
pub(crate) fn run(args: PmnetArgs) -> ExitCode {
    match args.command {
        PmnetCommand::Switch(args) => switch::run(*args),
        PmnetCommand::Client(args) => client::run(*args),
        PmnetCommand::Server(args) => server::run(*args),
        PmnetCommand::Rejected(args) => rejected::run(&args),
        PmnetCommand::Reconcile(args) => reconcile::run(&args),
        PmnetCommand::Sessions(args) => sessions::run(&args),
        PmnetCommand::Log(args) => log::run(&args),
        PmnetCommand::Chain(args) => chain::run(&args),
        PmnetCommand::Top(args) => top::run(&args),
        PmnetCommand::Table => report(&landfall_pmnet::device::table::describe(), ExitCode::SUCCESS),
    }
}
