//! `landfall pmnet log`: shows the log of a device that is not running.

use super::options::BadValue;
use crate::output::{fail, report_lines};
use clap::Args;
use landfall_pmnet::LogError;
use landfall_pmnet::log::{Limits, Log, Recovered, SessionEntries, Standing};
use landfall_server::config::{ConfigError, parse_media};
use landfall_server::store::{StoreError, open_region};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Flags of `landfall pmnet log`.
#[derive(Debug, Args)]
pub(crate) struct LogCommandArgs {
    /// Directory of the region, or a DAX device
    #[arg(long, value_name = "DIR", default_value = "landfall-pmnet")]
    dir: PathBuf,
    /// Medium that the region must be on: auto, dax, file or volatile
    #[arg(long, value_name = "KIND", default_value = "auto")]
    media: String,
    /// Discard the updates of a session, durably: CLIENT/SESSION as the list shows it. Use it for a session whose
    /// client died with a gap in its updates, which no server will ever apply. Updates of it that were reported as
    /// durable are lost
    #[arg(long, value_name = "CLIENT/SESSION")]
    discard: Option<String>,
}

/// Why the log cannot be shown.
#[derive(Debug, thiserror::Error)]
pub(super) enum LogCommandError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Log(#[from] LogError),
    #[error(transparent)]
    Value(#[from] BadValue),
    #[error("{}: no region here; --dir names a device's", .0.display())]
    Nothing(PathBuf),
}

/// Prints a line for each session: client, session, server, numbers, entries, bytes.
pub(crate) fn run(args: &LogCommandArgs) -> ExitCode {
    match list(args) {
        Ok(lines) => report_lines(lines, ExitCode::SUCCESS),
        Err(error) => fail(&error),
    }
}

fn list(args: &LogCommandArgs) -> Result<Vec<String>, LogCommandError> {
    let (mut log, recovered) = open(&args.dir, &args.media)?;
    let sessions = log.sessions();
    if let Some(wanted) = &args.discard {
        let session = sessions.iter().find(|session| name(session) == *wanted);
        let session = session.ok_or_else(|| BadValue::new(wanted, "no such session in the log"))?;
        let count = log.discard(session.flow, session.session)?;
        return Ok(vec![format!("{wanted}: {count} updates discarded")]);
    }
    let mut lines: Vec<String> = sessions.iter().map(show).collect();
    lines.push(format!(
        "{} updates, {} bytes; {} records without their packet, {} damaged",
        recovered.entries, recovered.bytes, recovered.gone, recovered.damaged
    ));
    Ok(lines)
}

/// Opens the log of a device that is not running.
pub(super) fn open(dir: &Path, media: &str) -> Result<(Log, Recovered), LogCommandError> {
    let path = landfall_server::store::region_path(dir);
    if !path.exists() {
        return Err(LogCommandError::Nothing(path));
    }
    // The region keeps its size: opening grows a region only if it is smaller than requested.
    let smallest = u64::from(landfall_heap::layout::RUNS_MIN) * landfall_media::RUN_SIZE;
    let options = landfall_media::OpenOptions { request: parse_media(media)?, ..Default::default() };
    let (media, _) = open_region(dir, smallest, options)?;
    Ok(Log::open(media, Limits::default())?)
}

fn name(entries: &SessionEntries) -> String {
    format!("{}/{}", entries.flow.client, entries.session)
}

fn show(entries: &SessionEntries) -> String {
    let SessionEntries { flow, first, last, count, bytes, standing, .. } = entries;
    let known = if *standing == Standing::Unknown { "; no server has reported on the session" } else { "" };
    format!(
        "{} to {}: numbers {first} to {last}, {count} updates, {bytes} bytes{known}",
        name(entries),
        flow.server
    )
}
