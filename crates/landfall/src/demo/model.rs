//! What may be read after a crash, for each unit of keys that change together.
//!
//! A unit stores the state in which it was last read and every write attempted since, acknowledged or not. After a
//! crash, the state must be that of the last acknowledged write or of a later attempted one. It must never be older
//! than what a reader has seen.

use super::payload::{self, Content};

/// Length of one chunk that is appended to a log, bytes.
pub(crate) const CHUNK_LEN: usize = 100;

/// Which keys change together, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// One key: written, overwritten, deleted, expiring.
    Plain,
    /// Keys that are written together, and deleted together.
    Group(usize),
    /// A counter and a value of its version, changed in one transaction.
    Tied,
    /// One key that chunks are appended to.
    Log,
}

/// State of a unit after a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// No key exists.
    Absent,
    /// Every key has this operation's value of this length.
    Value {
        /// Bytes.
        len: usize,
    },
    /// Every key has this operation's value, which expires between the two times, Unix milliseconds.
    Expiring {
        /// Bytes.
        len: usize,
        /// The value does not expire before this time.
        earliest_ms: u64,
        /// The value has expired by this time.
        latest_ms: u64,
    },
    /// The counter has this value, and the key beside it a value of this length.
    Count {
        /// The counter.
        count: u64,
        /// Bytes.
        len: usize,
    },
    /// The log has this many chunks.
    Chunks {
        /// The number of chunks.
        count: u64,
    },
}

/// An attempted write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attempt {
    /// Number of the operation, increasing within a client: the version of what it writes.
    pub(crate) op: u64,
    /// State of the unit after the write.
    pub(crate) state: State,
    /// The server has acknowledged the write.
    pub(crate) acked: bool,
}

/// A read of all keys of a unit, and when it began and ended.
#[derive(Debug)]
pub(crate) struct Observed {
    pub(crate) values: Vec<Option<Vec<u8>>>,
    pub(crate) before_ms: u64,
    pub(crate) after_ms: u64,
}

/// A fault that a read reveals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wrong {
    /// Acknowledged data, or data that a reader has seen, are missing.
    Lost,
    /// Bytes that were never written to this key.
    Torn,
    /// A deleted, expired or overwritten value is current again.
    Resurrected,
    /// Keys that change together are not consistent.
    Split,
}

/// A unit of keys.
#[derive(Debug)]
pub(crate) struct Unit {
    pub(crate) kind: Kind,
    pub(crate) keys: Vec<String>,
    /// The state in which the unit was last read.
    pub(crate) base: Attempt,
    /// Writes since then.
    pub(crate) tries: Vec<Attempt>,
    /// A fault was found in this unit: it is reported once and not checked again.
    pub(crate) faulty: bool,
}

impl Unit {
    pub(crate) fn new(kind: Kind, name: &str) -> Self {
        let keys = match kind {
            Kind::Plain | Kind::Log => vec![name.to_owned()],
            Kind::Group(count) => (0..count).map(|member| format!("{name}:{member}")).collect(),
            Kind::Tied => vec![format!("{name}:count"), format!("{name}:value")],
        };
        let base = Attempt { op: 0, state: State::Absent, acked: true };
        Self { kind, keys, base, tries: Vec::new(), faulty: false }
    }

    /// The latest write, acknowledged or not.
    pub(crate) fn latest(&self) -> &Attempt {
        self.tries.last().unwrap_or(&self.base)
    }

    /// Records an attempt.
    pub(crate) fn attempt(&mut self, op: u64, state: State) {
        self.tries.push(Attempt { op, state, acked: false });
    }

    /// Records that the attempt of `op` was acknowledged at `now_ms`, `since_ms` after it was sent.
    pub(crate) fn ack(&mut self, op: u64, since_ms: u64) {
        if let Some(attempt) = self.tries.iter_mut().find(|attempt| attempt.op == op) {
            attempt.acked = true;
            if let State::Expiring { earliest_ms, latest_ms, .. } = &mut attempt.state {
                *latest_ms = *earliest_ms + since_ms;
            }
        }
    }

    /// Removes the attempt of `op`, which was refused: it must have changed nothing.
    pub(crate) fn refuse(&mut self, op: u64) {
        self.tries.retain(|attempt| attempt.op != op);
    }

    /// Ends the attempts after the server's death: an unacknowledged write has been executed by now, or never will be.
    pub(crate) fn close(&mut self, now_ms: u64, sent_ms: u64) {
        for attempt in self.tries.iter_mut().filter(|attempt| !attempt.acked) {
            if let State::Expiring { earliest_ms, latest_ms, .. } = &mut attempt.state {
                *latest_ms = *earliest_ms + now_ms.saturating_sub(sent_ms);
            }
        }
    }

    /// Checks what was read. `seen` is the newest operation that a reader has seen. If there is no fault, later reads
    /// are checked against this one.
    pub(crate) fn judge(&mut self, observed: &Observed, seen: u64) -> Result<(), Wrong> {
        let floor = self.floor(seen);
        let allowed = |attempt: &&Attempt| attempt.op >= floor && self.matches(attempt, observed);
        let found = self.tries.iter().rev().chain([&self.base]).find(allowed).copied();
        let Some(found) = found else {
            self.faulty = true;
            return Err(self.diagnose(observed));
        };
        self.base = Attempt { acked: true, ..found };
        self.tries.clear();
        Ok(())
    }

    /// The oldest operation that may be the last one.
    fn floor(&self, seen: u64) -> u64 {
        let acked =
            self.tries.iter().rfind(|attempt| attempt.acked).map_or(self.base.op, |attempt| attempt.op);
        // The reader's number counts only if an attempt has it; otherwise it belongs to an append or to an earlier
        // check.
        let shown = self.tries.iter().any(|attempt| attempt.op == seen);
        if shown { acked.max(seen) } else { acked }
    }

    fn matches(&self, attempt: &Attempt, observed: &Observed) -> bool {
        let absent = observed.values.iter().all(Option::is_none);
        match attempt.state {
            State::Absent => absent,
            State::Value { len } => self.holds(attempt.op, len, observed),
            State::Expiring { len, earliest_ms, latest_ms } => {
                (absent && observed.after_ms >= earliest_ms)
                    || (observed.before_ms <= latest_ms && self.holds(attempt.op, len, observed))
            }
            State::Count { count, len } => {
                observed.values[0].as_deref() == Some(count.to_string().as_bytes())
                    && observed.values[1].as_deref() == Some(&payload::make(&self.keys[1], count, len)[..])
            }
            State::Chunks { count } => {
                observed.values[0].as_deref() == Some(&chunks(&self.keys[0], 0..count)[..])
            }
        }
    }

    fn holds(&self, op: u64, len: usize, observed: &Observed) -> bool {
        let pairs = self.keys.iter().zip(&observed.values);
        pairs.into_iter().all(|(key, value)| {
            value.as_ref().is_some_and(|value| value.len() == len && *value == payload::make(key, op, len))
        })
    }

    /// Why no allowed state matches.
    fn diagnose(&self, observed: &Observed) -> Wrong {
        let present = observed.values.iter().filter(|value| value.is_some()).count();
        if present == 0 {
            return Wrong::Lost;
        }
        let told =
            self.keys.iter().zip(&observed.values).filter_map(|(key, value)| Some((key, value.as_ref()?)));
        let is_data = |key: &str| self.kind != Kind::Log && !key.ends_with(":count");
        let versions: Vec<Content> =
            told.filter(|(key, _)| is_data(key)).map(|(key, value)| payload::read(key, value)).collect();
        if versions.contains(&Content::Torn) {
            return Wrong::Torn;
        }
        let agree = versions.windows(2).all(|pair| pair[0] == pair[1]);
        match self.kind {
            Kind::Group(_) | Kind::Tied if present != self.keys.len() || !agree => Wrong::Split,
            Kind::Tied => Wrong::Split,
            Kind::Log => Wrong::Lost,
            _ => Wrong::Resurrected,
        }
    }
}

/// The chunks of a log.
pub(crate) fn chunks(key: &str, range: std::ops::Range<u64>) -> Vec<u8> {
    range.flat_map(|index| payload::make(key, index + 1, CHUNK_LEN)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(unit: &Unit, op: u64, len: usize) -> Observed {
        let values = unit.keys.iter().map(|key| Some(payload::make(key, op, len))).collect();
        Observed { values, before_ms: 1000, after_ms: 1000 }
    }

    fn nothing(unit: &Unit, now_ms: u64) -> Observed {
        Observed { values: vec![None; unit.keys.len()], before_ms: now_ms, after_ms: now_ms }
    }

    fn written(kind: Kind) -> Unit {
        let mut unit = Unit::new(kind, "u");
        unit.attempt(1, State::Value { len: 50 });
        unit.ack(1, 0);
        unit.attempt(2, State::Value { len: 60 });
        unit
    }

    #[test]
    fn the_last_acknowledged_write_and_later_ones_are_allowed() {
        for (op, len) in [(1, 50), (2, 60)] {
            let mut unit = written(Kind::Plain);
            assert_eq!(unit.judge(&read(&unit, op, len), 0), Ok(()));
            assert_eq!(unit.base.op, op);
        }
    }

    #[test]
    fn missing_older_and_torn_values_are_detected() {
        let mut unit = written(Kind::Plain);
        assert_eq!(unit.judge(&nothing(&unit, 1), 0), Err(Wrong::Lost));
        let mut unit = written(Kind::Plain);
        unit.ack(2, 0);
        assert_eq!(unit.judge(&read(&unit, 1, 50), 0), Err(Wrong::Resurrected));
        let mut torn = read(&unit, 2, 60);
        torn.values[0].as_mut().unwrap()[40] ^= 1;
        assert_eq!(unit.judge(&torn, 0), Err(Wrong::Torn));
    }

    #[test]
    fn what_a_reader_has_seen_may_not_be_revoked() {
        let mut unit = written(Kind::Plain);
        assert_eq!(unit.judge(&read(&unit, 1, 50), 2), Err(Wrong::Resurrected));
    }

    #[test]
    fn a_group_that_disagrees_is_split() {
        let mut unit = written(Kind::Group(3));
        let mut mixed = read(&unit, 1, 50);
        mixed.values[1] = read(&unit, 2, 60).values[1].take();
        assert_eq!(unit.judge(&mixed, 0), Err(Wrong::Split));
        mixed.values[1] = None;
        assert_eq!(unit.judge(&mixed, 0), Err(Wrong::Split));
    }

    #[test]
    fn an_expired_key_must_be_absent_and_a_fresh_one_present() {
        let expiring = || {
            let mut unit = written(Kind::Plain);
            unit.attempt(3, State::Expiring { len: 70, earliest_ms: 500, latest_ms: u64::MAX });
            unit.ack(3, 20);
            unit
        };
        let mut unit = expiring();
        assert_eq!(unit.judge(&read(&unit, 3, 70), 0), Err(Wrong::Resurrected), "at 1000 it has expired");
        let mut unit = expiring();
        assert_eq!(unit.judge(&nothing(&unit, 400), 0), Err(Wrong::Lost), "at 400 it has not");
        let mut unit = expiring();
        assert_eq!(unit.judge(&nothing(&unit, 501), 0), Ok(()));
        assert_eq!(unit.judge(&read(&unit, 1, 50), 0), Err(Wrong::Resurrected), "the version before it");
    }
}
