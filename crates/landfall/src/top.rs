//! Counters as a table with their rates: what the `top` commands show.

use crate::output::{ended, fail, print_line};
use std::collections::BTreeMap;
use std::error::Error;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Values of metrics by their names, with their labels.
pub(crate) type Counts = BTreeMap<String, f64>;

/// How often to ask.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Pace {
    /// Seconds between two requests
    #[arg(long, value_name = "SECONDS", default_value_t = 1)]
    every: u64,
    /// End after this many requests; 0: continue until interrupted
    #[arg(long, value_name = "N", default_value_t = 0)]
    count: u64,
}

/// The samples of a page of metrics whose names begin with `prefix`, without it.
pub(crate) fn parse(page: &str, prefix: &str) -> Counts {
    let sample = |line: &str| {
        let (name, value) = line.strip_prefix(prefix)?.rsplit_once(' ')?;
        Some((name.to_owned(), value.parse().ok()?))
    };
    page.lines().filter_map(sample).collect()
}

/// Prints a table as often as wanted.
pub(crate) fn show<E: Error>(pace: Pace, mut ask: impl FnMut() -> Result<Counts, E>) -> ExitCode {
    let mut last: Option<(Instant, Counts)> = None;
    let mut shown = 0;
    loop {
        let now = Instant::now();
        let counts = match ask() {
            Ok(counts) => counts,
            Err(error) => return fail(&error),
        };
        let since = last.as_ref().map(|(then, counts)| (now.duration_since(*then), counts));
        if let Err(error) = print_line(table(&counts, since).as_bytes()) {
            return ended(&error);
        }
        shown += 1;
        if shown == pace.count {
            return ExitCode::SUCCESS;
        }
        last = Some((now, counts));
        std::thread::sleep(Duration::from_secs(pace.every.max(1)));
    }
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
