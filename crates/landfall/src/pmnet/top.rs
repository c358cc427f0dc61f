//! `landfall pmnet top`: shows the counters of a device, and their rates.

use crate::demo::wire::Http;
use crate::output::{ended, fail, print_line};
use clap::Args;
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Time limit of a request to the device.
const LIMIT: Duration = Duration::from_secs(5);
/// Prefix of the names of metrics.
const PREFIX: &str = "landfall_pmnet_";

/// Flags of `landfall pmnet top`.
#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    /// Address at which a device or a side-car serves its metrics (its `--metrics`)
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:9151")]
    metrics: SocketAddr,
    /// Seconds between two requests
    #[arg(long, value_name = "SECONDS", default_value_t = 1)]
    every: u64,
    /// End after this many requests; 0: continue until interrupted
    #[arg(long, value_name = "N", default_value_t = 0)]
    count: u64,
}

/// Why there is nothing to show.
#[derive(Debug, thiserror::Error)]
enum TopError {
    #[error("{address} cannot be reached: {source} (is anything of PMNet running with --metrics {address}?)")]
    Unreachable { address: SocketAddr, source: io::Error },
    #[error("{address} answered something that is not counts of PMNet")]
    Strange { address: SocketAddr },
}

type Counts = BTreeMap<String, f64>;

/// Prints a table each second.
pub(crate) fn run(args: &TopArgs) -> ExitCode {
    let mut last: Option<(Instant, Counts)> = None;
    let mut shown = 0;
    loop {
        let now = Instant::now();
        let counts = match ask(args.metrics) {
            Ok(counts) => counts,
            Err(error) => return fail(&error),
        };
        let since = last.as_ref().map(|(then, counts)| (now.duration_since(*then), counts));
        if let Err(error) = print_line(table(&counts, since).as_bytes()) {
            return ended(&error);
        }
        shown += 1;
        if shown == args.count {
            return ExitCode::SUCCESS;
        }
        last = Some((now, counts));
        std::thread::sleep(Duration::from_secs(args.every.max(1)));
    }
}

fn ask(address: SocketAddr) -> Result<Counts, TopError> {
    let unreachable = |source| TopError::Unreachable { address, source };
    let text = fetch(address).map_err(unreachable)?;
    let counts: Counts = text.lines().filter_map(parse).collect();
    if counts.is_empty() { Err(TopError::Strange { address }) } else { Ok(counts) }
}

fn fetch(address: SocketAddr) -> io::Result<String> {
    let answer = Http::connect(address, LIMIT)?.call("GET", "/metrics", "", b"")?;
    Ok(String::from_utf8_lossy(&answer.body).into_owned())
}

fn parse(line: &str) -> Option<(String, f64)> {
    let (name, value) = line.strip_prefix(PREFIX)?.rsplit_once(' ')?;
    Some((name.to_owned(), value.parse().ok()?))
}

/// A table of counters with their increase per second.
fn table(counts: &Counts, since: Option<(Duration, &Counts)>) -> String {
    let mut text = format!("{:<42} {:>16} {:>14}", "", "total", "a second");
    for (name, value) in counts {
        let before = since.and_then(|(span, counts)| Some((span, counts.get(name)?)));
        let rate = match before {
            Some((span, before)) if name.contains("_total") => {
                format!("{:.0}", (value - before) / span.as_secs_f64().max(0.001))
            }
            _ => String::new(),
        };
        text += &format!("\n{name:<42} {value:>16} {rate:>14}");
    }
    text + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_show_their_rate_and_gauges_do_not() {
        let then: Counts = [("updates_total".into(), 10.0), ("log_entries".into(), 5.0)].into();
        let now: Counts = [("updates_total".into(), 30.0), ("log_entries".into(), 7.0)].into();
        let text = table(&now, Some((Duration::from_secs(2), &then)));
        let line = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
        assert!(line("updates_total").ends_with(" 10"));
        assert!(line("log_entries").trim_end().ends_with(" 7"));
    }
}
