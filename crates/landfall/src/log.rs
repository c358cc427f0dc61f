//! Where what happens is written.

use std::io::{IsTerminal, Stderr, stderr};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::SubscriberBuilder;
use tracing_subscriber::fmt::format::{DefaultFields, Format};

/// A log on standard error, in colours only where that is a terminal: files and journals get none.
pub(crate) fn to_stderr() -> SubscriberBuilder<DefaultFields, Format, LevelFilter, fn() -> Stderr> {
    tracing_subscriber::fmt().with_ansi(stderr().is_terminal()).with_writer(stderr as fn() -> Stderr)
}
