//! `landfall pmnet rejected`: commands that were acknowledged early and that the real server rejected.

use super::options::RedisArgs;
use crate::output::{fail, report_lines};
use clap::Args;
use landfall_pmnet_io::redis::UpstreamError;
use landfall_pmnet_io::redis::server::rejected;
use landfall_server::config::ConfigError;
use std::process::ExitCode;

/// Flags of `landfall pmnet rejected`.
#[derive(Debug, Args)]
pub(crate) struct RejectedArgs {
    #[command(flatten)]
    redis: RedisArgs,
}

/// Why the commands cannot be shown.
#[derive(Debug, thiserror::Error)]
enum RejectedError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Upstream(#[from] UpstreamError),
}

/// Prints a line for each command: time (milliseconds since 1970), client, number, error, command.
pub(crate) fn run(args: &RejectedArgs) -> ExitCode {
    match list(args) {
        Ok(lines) => report_lines(lines, ExitCode::SUCCESS),
        Err(error) => fail(&error),
    }
}

fn list(args: &RejectedArgs) -> Result<Vec<String>, RejectedError> {
    let config = args.redis.offline()?;
    let line = |rejection: landfall_pmnet_io::redis::Rejection| {
        let command = rejection.command();
        format!(
            "{} {} {} {}: {command}",
            rejection.millis, rejection.session, rejection.number, rejection.error
        )
    };
    Ok(rejected(&config)?.into_iter().map(line).collect())
}
