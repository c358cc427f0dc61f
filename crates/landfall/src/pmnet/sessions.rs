//! `landfall pmnet sessions`: shows and clears the sessions of a server's side-car.

use super::log::{LogCommandError, open};
use super::options::{BadValue, RedisArgs};
use crate::output::{fail, report_lines};
use clap::Args;
use landfall_pmnet::SessionKey;
use landfall_pmnet::log::Log;
use landfall_pmnet_io::redis::UpstreamError;
use landfall_pmnet_io::redis::sessions::{Cleared, Listed, Listing, clear, list};
use landfall_server::config::ConfigError;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Flags of `landfall pmnet sessions`.
#[derive(Debug, Args)]
pub(crate) struct SessionsArgs {
    #[command(flatten)]
    redis: RedisArgs,
    /// Also count what the log in this directory holds of each session: the log of a device that is not running. May be
    /// repeated
    #[arg(long, value_name = "DIR")]
    device_log: Vec<PathBuf>,
    /// Clear a session, CLIENT/SESSION as the list shows it: removes the row of one that has ended, and ends an open
    /// one, with --force. May be repeated. Stop the side-car first, and start it again
    #[arg(long, value_name = "CLIENT/SESSION")]
    clear: Vec<String>,
    /// Clear all sessions to which nothing was written for this long: 90, 90s, 15m, 12h, 7d
    #[arg(long, value_name = "AGE", value_parser = parse_age)]
    clear_idle: Option<Duration>,
    /// Also clear open sessions: updates that devices hold of them, and that their clients send, are refused and lost
    #[arg(long)]
    force: bool,
}

/// Why the command failed.
#[derive(Debug, thiserror::Error)]
enum SessionsError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Upstream(#[from] UpstreamError),
    #[error(transparent)]
    Log(#[from] LogCommandError),
    #[error(transparent)]
    Value(#[from] BadValue),
}

/// Prints a line for each session, or for each that was to be cleared. Fails if one of these could not be cleared.
pub(crate) fn run(args: &SessionsArgs) -> ExitCode {
    match sessions(args) {
        Ok((lines, all_done)) => {
            report_lines(lines, if all_done { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        Err(error) => fail(&error),
    }
}

fn sessions(args: &SessionsArgs) -> Result<(Vec<String>, bool), SessionsError> {
    let config = args.redis.offline()?;
    let listing = list(&config)?;
    let logs = args.device_log.iter().map(|dir| Ok(open(dir, "auto")?.0));
    let logs: Vec<Log> = logs.collect::<Result<_, LogCommandError>>()?;
    if args.clear.is_empty() && args.clear_idle.is_none() {
        return Ok((show(&listing, &logs), true));
    }
    let wanted = wanted(args, &listing)?;
    let fates = clear(&config, &wanted, args.force)?;
    let lost = |key: &SessionKey| {
        let listed = wanted.iter().find(|listed| listed.row.key == *key)?;
        held(listed, &logs).filter(|count| *count > 0)
    };
    let mut lines: Vec<String> = fates.iter().map(|(key, fate)| tell(key, fate, lost(key))).collect();
    let kept = fates.iter().filter(|(_, fate)| matches!(fate, Cleared::Kept(_))).count();
    lines.push(format!("{} sessions cleared, {kept} stay", fates.len() - kept));
    Ok((lines, kept == 0))
}

/// The sessions to clear.
fn wanted(args: &SessionsArgs, listing: &Listing) -> Result<Vec<Listed>, BadValue> {
    let mut wanted: Vec<Listed> = Vec::new();
    for text in &args.clear {
        let found = listing.sessions.iter().find(|listed| name(&listed.row.key) == *text);
        wanted.push(*found.ok_or_else(|| BadValue::new(text, "no such session"))?);
    }
    if let Some(age) = args.clear_idle {
        let idle = listing.sessions.iter().filter(|listed| listed.idle().is_some_and(|idle| idle >= age));
        wanted.extend(idle);
    }
    wanted.sort_by_key(|listed| listed.row.key);
    wanted.dedup();
    Ok(wanted)
}

fn name(SessionKey { client, session }: &SessionKey) -> String {
    format!("{client}/{session}")
}

/// Updates in the logs of devices that are not applied; `None` without logs. For a server, the client of a relay is a
/// port of that relay.
fn held(listed: &Listed, logs: &[Log]) -> Option<usize> {
    let key = listed.row.key;
    let of = |log: &Log| -> usize {
        let paths = log.paths();
        let is_ours = |flow: &landfall_pmnet::Flow| {
            let port = paths.iter().find(|(path, _)| path == flow).map(|(_, port)| *port);
            port.map_or(flow.client == key.client, |port| port == key.client.port())
        };
        let ours = log.sessions().into_iter().filter(|one| one.session == key.session && is_ours(&one.flow));
        let above = listed.row.update.wrapping_add(1);
        ours.map(|one| log.seqs(one.flow, one.session, above, usize::MAX).len()).sum()
    };
    (!logs.is_empty()).then(|| logs.iter().map(of).max().unwrap_or(0))
}

fn show(listing: &Listing, logs: &[Log]) -> Vec<String> {
    let mut lines: Vec<String> =
        listing.sessions.iter().map(|listed| line(listed, held(listed, logs))).collect();
    let ended = listing.sessions.iter().filter(|listed| listed.row.ended).count();
    let (all, floor) = (listing.sessions.len(), listing.floor);
    lines.push(format!("{all} sessions, {ended} of them ended; new ones begin above {floor}"));
    lines
}

fn line(listed: &Listed, held: Option<usize>) -> String {
    let row = &listed.row;
    let state = match (listed.behind, row.ended) {
        (true, _) => "behind: confirmed updates are lost",
        (_, true) => "ended",
        (_, false) => "open",
    };
    let applied = match row.update {
        u32::MAX => "nothing applied".into(),
        last => format!("applied up to {last}"),
    };
    let idle = listed
        .idle()
        .map_or("written at an unknown time".into(), |idle| format!("written {} ago", age(idle)));
    let lease = if row.lease == 0 {
        "no lease".into()
    } else {
        format!("lease {}", age(Duration::from_secs(row.lease.into())))
    };
    let held = held.map_or(String::new(), |count| format!(", {count} updates held"));
    format!("{}: {state}, {applied}, {idle}, {lease}{held}", name(&row.key))
}

fn tell(key: &SessionKey, fate: &Cleared, lost: Option<usize>) -> String {
    let lost = lost.map_or(String::new(), |count| format!("; {count} updates in logs will be refused"));
    match fate {
        Cleared::Removed => format!("{}: removed", name(key)),
        Cleared::Ended => format!("{}: ended{lost}", name(key)),
        Cleared::Kept(why) => format!("{}: stays: {why}", name(key)),
    }
}

/// A duration in the largest unit in which it has two digits.
fn age(span: Duration) -> String {
    let seconds = span.as_secs();
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7200 => format!("{}m", seconds / 60),
        7200..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

fn parse_age(text: &str) -> Result<Duration, BadValue> {
    let (digits, unit) =
        text.split_at(text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len()));
    let factor = match unit {
        "" | "s" => Some(1_u64),
        "m" => Some(60),
        "h" => Some(3600),
        "d" => Some(86_400),
        _ => None,
    };
    let seconds = factor.and_then(|factor| digits.parse::<u64>().ok()?.checked_mul(factor));
    seconds
        .map(Duration::from_secs)
        .ok_or_else(|| BadValue::new(text, "give an age such as 90s, 15m, 12h or 7d"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_read_and_shown() {
        for (text, seconds) in [("90", 90), ("90s", 90), ("15m", 900), ("12h", 43_200), ("7d", 604_800)] {
            assert_eq!(parse_age(text).unwrap(), Duration::from_secs(seconds), "{text}");
        }
        for text in ["", "m", "1x", "-1s", "99999999999999999999d"] {
            assert!(parse_age(text).is_err(), "{text}");
        }
        let shown = [90, 900, 43_200, 604_800].map(|seconds| age(Duration::from_secs(seconds)));
        assert_eq!(shown, ["90s", "15m", "12h", "7d"]);
    }
}
