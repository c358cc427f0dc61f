//! `landfall pmnet rejected`: commands that were acknowledged early and that the real server rejected.

use crate::fail;
use clap::Args;
use landfall_pmnet_io::redis::UpstreamError;
use landfall_pmnet_io::redis::server::{ServerSideConfig, rejected};
use landfall_server::config::ConfigError;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

/// Flags of `landfall pmnet rejected`.
#[derive(Debug, Args)]
pub(crate) struct RejectedArgs {
    /// The real server
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:6379")]
    redis: SocketAddr,
    /// File with its password, on its first line
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// First part of the names of the side-car's keys
    #[arg(long, value_name = "TEXT", default_value = "landfall:pmnet")]
    prefix: String,
}

/// Why they cannot be shown.
#[derive(Debug, thiserror::Error)]
enum RejectedError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Upstream(#[from] UpstreamError),
}

/// Prints a line for each: when (milliseconds since 1970), whose, its number, the error, the command.
#[expect(clippy::print_stdout, reason = "they are the command's output")]
pub(crate) fn run(args: &RejectedArgs) -> ExitCode {
    match list(args) {
        Ok(lines) => {
            lines.iter().for_each(|line| println!("{line}"));
            ExitCode::SUCCESS
        }
        Err(error) => fail(&error),
    }
}

fn list(args: &RejectedArgs) -> Result<Vec<String>, RejectedError> {
    // It listens nowhere: only what concerns the real server is used.
    let mut config = ServerSideConfig::new(([127, 0, 0, 1], 0).into(), args.redis);
    config.password = args.password_file.as_deref().map(crate::serve::read_password).transpose()?;
    config.prefix.clone_from(&args.prefix);
    let line = |rejection: landfall_pmnet_io::redis::Rejection| {
        let command = rejection.command();
        format!(
            "{} {} {} {}: {command}",
            rejection.millis, rejection.session, rejection.number, rejection.error
        )
    };
    Ok(rejected(&config)?.into_iter().map(line).collect())
}
