//! Where what happens is written.

use std::io::{IsTerminal, Stderr, stderr};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::SubscriberBuilder;
use tracing_subscriber::fmt::format::{DefaultFields, Format};

/// Starts the log: `level` is a level, or a filter by module; what is neither counts as `info`.
pub(crate) fn start(level: &str, is_json: bool) {
    let filter = EnvFilter::try_new(level).unwrap_or_else(|_| EnvFilter::new("info"));
    let log = to_stderr().with_env_filter(filter);
    if is_json { log.json().init() } else { log.with_target(false).init() }
}

/// A log on standard error, in colours only where that is a terminal: files and journals get none.
pub(crate) fn to_stderr() -> SubscriberBuilder<DefaultFields, Format, LevelFilter, fn() -> Stderr> {
    tracing_subscriber::fmt().with_ansi(stderr().is_terminal()).with_writer(stderr as fn() -> Stderr)
}
