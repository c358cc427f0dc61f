//! Scrubbing: checking every entry against its checksum, within a budget.

use crate::error::WalError;
use crate::logs::Logs;
use crate::read::ReadLimit;
use landfall_heap::Damage;
use std::ops::Bound;

/// Bytes that one step checks at most, but always one entry.
const STEP_BYTES: u64 = 1 << 20;

/// Where a scrub of logs stands.
#[derive(Clone, Debug, Default)]
pub struct LogScrub {
    log: Option<String>,
    offset: u64,
}

/// What a step has checked.
#[derive(Clone, Debug, Default)]
pub struct LogScrubbed {
    /// Entries.
    pub entries: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Log, offset and failed check of what is damaged.
    pub findings: Vec<(String, u64, Damage)>,
    /// Every log has been checked; the scrub starts over.
    pub wrapped: bool,
}

impl Logs {
    /// Checks some entries.
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

    /// True at the end of the log.
    fn scrub_log(&self, name: &str, at: &mut LogScrub, entries: usize, done: &mut LogScrubbed) -> bool {
        let limit = ReadLimit { entries, bytes: STEP_BYTES };
        let page = match self.page(name.as_bytes(), at.offset, limit) {
            // What was in between is trimmed.
            Err(WalError::OutOfRange { first, .. }) if first > at.offset => {
                at.offset = first;
                return false;
            }
            Err(_) => return true,
            Ok((page, _)) => page,
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
