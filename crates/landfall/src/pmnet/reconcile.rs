//! `landfall pmnet reconcile`: sessions whose confirmed updates the real server has lost.

use super::options::RedisArgs;
use crate::output::{fail, report_lines};
use clap::Args;
use landfall_pmnet_io::redis::UpstreamError;
use landfall_pmnet_io::redis::reconcile::{Behind, behind, give_up_lost};
use landfall_server::config::ConfigError;
use std::process::ExitCode;

/// Flags of `landfall pmnet reconcile`.
#[derive(Debug, Args)]
pub(crate) struct ReconcileArgs {
    #[command(flatten)]
    redis: RedisArgs,
    /// Accept the loss: the sessions continue with what the devices' logs have. Stop the side-car first, and start it
    /// again
    #[arg(long)]
    give_up_lost: bool,
}

/// Why the command failed.
#[derive(Debug, thiserror::Error)]
enum ReconcileError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Upstream(#[from] UpstreamError),
}

/// Prints a line for each session with the lost updates.
pub(crate) fn run(args: &ReconcileArgs) -> ExitCode {
    match reconcile(args) {
        Ok(found) => {
            let accepted = if args.give_up_lost { "; the loss is accepted" } else { "" };
            let last = format!("{} sessions{accepted}", found.len());
            report_lines(found.iter().map(line).chain([last]), ExitCode::SUCCESS)
        }
        Err(error) => fail(&error),
    }
}

fn reconcile(args: &ReconcileArgs) -> Result<Vec<Behind>, ReconcileError> {
    let config = args.redis.offline()?;
    Ok(if args.give_up_lost { give_up_lost(&config)? } else { behind(&config)? })
}

fn line(behind: &Behind) -> String {
    let Behind { session, first, last } = behind;
    format!("{}/{}: updates {first} to {last} were confirmed and are lost", session.client, session.session)
}
