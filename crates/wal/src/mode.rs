//! What a machine that another one sends to knows of itself.

use crate::log::Log;
use landfall_heap::Ticket;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How this machine takes what another one sends.
#[derive(Debug, Default)]
pub(crate) enum Mode {
    /// It has everything: nothing may be missing.
    #[default]
    InStep,
    /// It has not, and what comes means nothing.
    Behind,
    /// It is copied to.
    Copying(Copying),
}

/// What was deleted since a copy has begun. Pages that were read before do not bring it back.
#[derive(Debug, Default)]
pub(crate) struct Copying {
    /// Lives up to these, by name.
    pub(crate) logs: BTreeMap<Box<str>, u64>,
    /// Logs, their lives, and consumers.
    pub(crate) positions: BTreeSet<(Box<str>, u64, Box<str>)>,
}

/// Logs that have ended for a copy, by name, with their entries, and the tickets of their ends. Their records mean nothing
/// after a crash, like those of every log that has ended.
pub(crate) type Kept = BTreeMap<Box<str>, (Arc<Log>, Ticket)>;
