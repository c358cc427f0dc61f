//! Scrubbing: check every entry against its checksum, step by step, with a limit for each step.

use crate::error::WalError;
use crate::logs::Logs;
use crate::read::ReadLimit;
use landfall_heap::{Damage, Until};
use std::ops::Bound;

/// Most bytes that one step checks. A first entry that is larger is checked alone.
const STEP_BYTES: u64 = 1 << 20;

/// How far a scrub of logs has come.
#[derive(Clone, Debug, Default)]
pub struct LogScrub {
    log: Option<String>,
    offset: u64,
}

/// What a step has checked.
#[derive(Clone, Debug, Default)]
pub struct LogScrubbed {
    /// Entries that were checked.
    pub entries: u64,
    /// Bytes of the entries that were read without an error.
    pub bytes: u64,
    /// Log, offset and failed check of each damaged entry.
    pub findings: Vec<(String, u64, Damage)>,
    /// Every log has been checked; the next step starts with the first log again.
    pub wrapped: bool,
}

impl Logs {
    /// Checks the next entries, `entries_max` at most. It blocks while bytes are read that have left memory.
    pub fn scrub(&self, at: &mut LogScrub, entries_max: usize) -> LogScrubbed {
        let mut done = LogScrubbed::default();
        let name = match at.log.take().or_else(|| self.next_log(None)) {
            Some(name) => name,
            None => {
                done.wrapped = true;
                return done;
            }
        };
        if self.scrub_log(&name, at, entries_max, &mut done) {
            at.log = self.next_log(Some(&name));
            at.offset = 0;
            done.wrapped = at.log.is_none();
        } else {
            at.log = Some(name);
        }
        done
    }

    fn next_log(&self, after: Option<&str>) -> Option<String> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.names.read().range::<str, _>((from, Bound::Unbounded)).next().map(|(name, _)| name.to_string())
    }

    /// Checks the next entries of one log. True if the end of the log has been reached.
    fn scrub_log(&self, name: &str, at: &mut LogScrub, entries: usize, done: &mut LogScrubbed) -> bool {
        let limit = ReadLimit { entries, bytes: STEP_BYTES };
        let page = loop {
            match self.page(name.as_bytes(), at.offset, limit) {
                Ok((page, _)) => break page,
                Err(WalError::Wait(Until::Load(load))) if self.heap.wait_for_load(load) => {}
                // The entries in between were trimmed.
                Err(WalError::OutOfRange { first, .. }) if first > at.offset => {
                    at.offset = first;
                    return false;
                }
                // The log's head.
                Err(WalError::Damaged { what }) => {
                    done.findings.push((name.to_owned(), at.offset, what));
                    return true;
                }
                // The log is gone, or this is its end.
                Err(_) => return true,
            }
        };
        for (offset, item) in &page.entries {
            done.entries += 1;
            match item {
                Ok(item) => done.bytes += item.len as u64,
                Err(WalError::Damaged { what }) => done.findings.push((name.to_owned(), *offset, *what)),
                Err(_) => {}
            }
        }
        at.offset = page.next;
        page.next == page.end
    }
}
