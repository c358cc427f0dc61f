//! Starts the log of a program.

use std::io::{IsTerminal, Stderr, stderr};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::SubscriberBuilder;
use tracing_subscriber::fmt::format::{DefaultFields, Format};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// What [`parse_level`] expects.
pub(crate) const LEVELS: &str =
    "error, warn, info, debug, trace, off, or a filter such as landfall_server=debug";

/// Checks what a user has given as a level: a level, or levels by module.
///
/// # Errors
/// What is expected.
pub fn parse_level(text: &str) -> Result<String, String> {
    // To the parser any other word is a module, and nothing else would be logged.
    let is_level = |part: &str| !part.is_empty() && part.parse::<LevelFilter>().is_ok();
    let are_levels = text.split(',').all(|part| part.contains('=') || is_level(part));
    let is_known = are_levels && text.parse::<Targets>().is_ok();
    if is_known { Ok(text.to_owned()) } else { Err(format!("expected {LEVELS}")) }
}

/// Starts the log. `level` is a level, or levels by module ([`parse_level`]); anything else counts as `info`.
pub fn start(level: &str, is_json: bool) {
    let wanted = targets(level);
    let log = to_stderr().with_max_level(most(&wanted));
    if is_json {
        log.json().finish().with(wanted).init();
    } else {
        log.with_target(false).finish().with(wanted).init();
    }
}

/// Levels by module. Regular expressions are not supported: their engine would be a twentieth of the build.
fn targets(level: &str) -> Targets {
    level.parse().unwrap_or_else(|_| Targets::new().with_default(LevelFilter::INFO))
}

/// The most verbose level of any module: an event beyond it costs one comparison.
fn most(wanted: &Targets) -> LevelFilter {
    let by_module = wanted.iter().map(|(_, level)| level);
    by_module.chain(wanted.default_level()).max().unwrap_or(LevelFilter::OFF)
}

/// A log on standard error, with colours only if that is a terminal: files and journals get none.
pub fn to_stderr() -> SubscriberBuilder<DefaultFields, Format, LevelFilter, fn() -> Stderr> {
    tracing_subscriber::fmt().with_ansi(stderr().is_terminal()).with_writer(stderr as fn() -> Stderr)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing::Level;

    #[test]
    fn levels_are_for_everything_or_by_module() {
        assert_eq!(most(&targets("warn")), LevelFilter::WARN);
        let wanted = targets("warn,landfall_server=debug");
        assert_eq!(most(&wanted), LevelFilter::DEBUG);
        assert!(wanted.would_enable("landfall_server::worker", &Level::DEBUG));
        assert!(!wanted.would_enable("landfall_kv", &Level::INFO));
    }

    #[test]
    fn an_invalid_level_counts_as_info() {
        let wanted = targets("landfall_server=loud");
        assert!(wanted.would_enable("landfall_server", &Level::INFO), "{wanted}");
        assert!(!wanted.would_enable("landfall_server", &Level::DEBUG), "{wanted}");
        assert!(["landfall_server=loud", "loud", "", "info,"].iter().all(|text| parse_level(text).is_err()));
        assert_eq!(parse_level("warn,landfall_server=debug"), Ok("warn,landfall_server=debug".into()));
    }
}
