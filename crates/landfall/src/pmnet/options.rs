//! What the services of `landfall pmnet` share: logging, stopping, values of flags.

use crate::sys;
use clap::Args;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Flags about what is told.
#[derive(Clone, Debug, Args)]
pub(super) struct LogArgs {
    /// error, warn, info, debug, trace, or a filter such as landfall_switch=debug
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    log_level: String,
    /// text or json
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    log_format: String,
}

impl LogArgs {
    pub(super) fn start(&self) {
        let filter = tracing_subscriber::EnvFilter::try_new(&self.log_level)
            .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
        let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
        match self.log_format.as_str() {
            "json" => log.json().init(),
            _ => log.with_target(false).init(),
        }
    }
}

/// A flag that SIGTERM and SIGINT set. To be called before any thread is started.
///
/// # Errors
/// The kernel's.
pub(super) fn stop_flag() -> std::io::Result<Arc<AtomicBool>> {
    sys::block_stop_signals()?;
    let stop = Arc::new(AtomicBool::new(false));
    let stopping = Arc::clone(&stop);
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        if let Ok(signal) = sys::wait_for_stop_signal() {
            tracing::info!(signal, "stopping");
        }
        stopping.store(true, Ordering::Relaxed);
    })?;
    Ok(stop)
}

/// A value that a flag cannot have.
#[derive(Debug, thiserror::Error)]
#[error("{text}: {expected}")]
pub(super) struct BadValue {
    text: String,
    expected: &'static str,
}

impl BadValue {
    pub(super) fn new(text: &str, expected: &'static str) -> Self {
        Self { text: text.into(), expected }
    }
}

/// `FIRST-LAST`.
pub(super) fn parse_ports(text: &str) -> Result<RangeInclusive<u16>, BadValue> {
    let bad = || BadValue::new(text, "give two ports, the first not above the last: FIRST-LAST");
    let (first, last) = text.split_once('-').ok_or_else(bad)?;
    let ports = first.parse().map_err(|_| bad())?..=last.parse().map_err(|_| bad())?;
    if ports.is_empty() || *ports.start() == 0 { Err(bad()) } else { Ok(ports) }
}
