//! `landfall pmnet reconcile`: sessions whose confirmed updates the real server has lost.

use super::options::RedisArgs;
use crate::output::{fail, report_lines};
use clap::Args;
use landfall_pmnet_io::redis::UpstreamError;
use landfall_pmnet_io::redis::reconcile::{Behind, behind, discard_lost};
use landfall_server::config::ConfigError;
use std::process::ExitCode;

/// Flags of `landfall pmnet reconcile`.
#[derive(Debug, Args)]
pub(crate) struct ReconcileArgs {
    #[command(flatten)]
    redis: RedisArgs,
    /// Discard the lost updates, durably: the sessions continue with what the devices' logs have. Stop the side-car
    /// first, and start it again
    #[arg(long, alias = "give-up-lost")]
    discard_lost: bool,
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
            let discarded = if args.discard_lost { "; their lost updates are discarded" } else { "" };
            let last = format!("{} sessions{discarded}", found.len());
            report_lines(found.iter().map(line).chain([last]), ExitCode::SUCCESS)
        }
        Err(error) => fail(&error),
    }
}

fn reconcile(args: &ReconcileArgs) -> Result<Vec<Behind>, ReconcileError> {
    let config = args.redis.offline()?;
    Ok(if args.discard_lost { discard_lost(&config)? } else { behind(&config)? })
}

fn line(behind: &Behind) -> String {
    let Behind { session, first, last } = behind;
    format!("{}/{}: updates {first} to {last} were confirmed and are lost", session.client, session.session)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Command {
        #[command(flatten)]
        args: ReconcileArgs,
    }

    #[test]
    fn the_flag_is_understood_by_its_former_name() {
        let discards = |flags: &[&str]| {
            let given = ["reconcile", "--redis", "127.0.0.1:1"].iter().chain(flags);
            Command::try_parse_from(given).unwrap().args.discard_lost
        };
        assert!(discards(&["--discard-lost"]) && discards(&["--give-up-lost"]));
        assert!(!discards(&[]));
    }
}
