//! The oracle: decides from the operations and their acknowledgements which states a client may find after a crash. It
//! shares no code with the engine.

use crate::violation::Violation;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;

/// A key and its database.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// Database.
    pub space: u8,
    /// Bytes of the key.
    pub bytes: Arc<[u8]>,
}

/// A value and its expiry.
#[derive(Clone, PartialEq, Eq)]
pub struct Value {
    /// Bytes of the value.
    pub bytes: Arc<[u8]>,
    /// Expiry, Unix milliseconds; 0 for none.
    pub expiry_ms: u64,
}

impl Value {
    fn is_expired(&self, now_ms: u64) -> bool {
        self.expiry_ms != 0 && self.expiry_ms <= now_ms
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = &self.bytes[..self.bytes.len().min(12)];
        write!(f, "{}:{}", self.space, head.escape_ascii())?;
        if self.bytes.len() > head.len() { write!(f, "…({} B)", self.bytes.len()) } else { Ok(()) }
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = &self.bytes[..self.bytes.len().min(12)];
        write!(f, "{} B {:02x?} expiring {}", self.bytes.len(), head, self.expiry_ms)
    }
}

/// The state that a client finds: all keys with their values.
pub type State = BTreeMap<Key, Value>;

/// The effect of an operation.
#[derive(Clone, Debug)]
pub enum Change {
    /// Sets (`Some`) and deletes (`None`) keys, all of them or none.
    Keys(Vec<(Key, Option<Value>)>),
    /// Deletes all keys that were written before.
    Flush,
}

#[derive(Clone, Debug)]
struct Pending {
    order: u64,
    change: Change,
    /// The operations whose effect this one read. It cannot count without them.
    causes: Vec<u64>,
}

impl Pending {
    fn touches(&self, key: &Key) -> bool {
        match &self.change {
            Change::Flush => true,
            Change::Keys(keys) => keys.iter().any(|(touched, _)| touched == key),
        }
    }
}

/// The history of a region.
#[derive(Clone, Debug)]
pub struct Oracle {
    /// The acknowledged state of each key, with the number of the operation that made it.
    base: BTreeMap<Key, (u64, Option<Value>)>,
    /// Unacknowledged operations of each writer, oldest first.
    pending: Vec<VecDeque<Pending>>,
    order: u64,
}

impl Oracle {
    /// An empty region with that many writers.
    pub fn new(writers: usize) -> Self {
        Self { base: BTreeMap::new(), pending: vec![VecDeque::new(); writers], order: 0 }
    }

    /// Notes that a writer has executed an operation that read nothing.
    pub fn note(&mut self, writer: usize, change: Change) {
        self.note_seen(writer, change, &[]);
    }

    /// Notes that a writer has executed an operation whose effect depends on what it read of the keys `seen`, including
    /// their absence. If the operation counts after a crash, so must the operations of any writer that made these keys
    /// what it read.
    pub fn note_seen(&mut self, writer: usize, change: Change, seen: &[Key]) {
        let causes = seen.iter().filter_map(|key| self.newest_of(key)).collect();
        self.order += 1;
        self.pending[writer].push_back(Pending { order: self.order, change, causes });
    }

    /// The newest unacknowledged operation that touches a key.
    fn newest_of(&self, key: &Key) -> Option<u64> {
        self.pending.iter().flatten().filter(|op| op.touches(key)).map(|op| op.order).max()
    }

    /// Number of unacknowledged operations of a writer.
    pub fn pending(&self, writer: usize) -> usize {
        self.pending[writer].len()
    }

    /// True if an unacknowledged operation touches the key.
    pub(crate) fn is_pending(&self, key: &Key) -> bool {
        self.pending.iter().flatten().any(|op| op.touches(key))
    }

    /// Notes that the oldest `count` operations of a writer are acknowledged.
    pub fn acknowledge(&mut self, writer: usize, count: usize) {
        for pending in self.pending[writer].drain(..count) {
            match pending.change {
                Change::Flush => {
                    for (_, state) in self.base.values_mut().filter(|(order, _)| *order < pending.order) {
                        *state = None;
                    }
                }
                Change::Keys(keys) => {
                    for (key, value) in keys {
                        let known = self.base.entry(key).or_insert((0, None));
                        if known.0 < pending.order {
                            *known = (pending.order, value);
                        }
                    }
                }
            }
        }
    }

    /// The state with all executed operations, which a running engine shows.
    pub fn newest(&self, now_ms: u64) -> State {
        let all: Vec<usize> = self.pending.iter().map(VecDeque::len).collect();
        self.after(&all, now_ms)
    }

    /// The state with the acknowledged operations only.
    pub fn acknowledged(&self, now_ms: u64) -> State {
        self.after(&vec![0; self.pending.len()], now_ms)
    }

    /// The state when the first `counts[w]` unacknowledged operations of each writer `w` count.
    fn after(&self, counts: &[usize], now_ms: u64) -> State {
        let mut ops: Vec<&Pending> = self
            .pending
            .iter()
            .zip(counts)
            .flat_map(|(pending, count)| pending.iter().take(*count))
            .collect();
        ops.sort_by_key(|op| op.order);
        let mut state: BTreeMap<&Key, (u64, Option<&Value>)> =
            self.base.iter().map(|(key, (order, value))| (key, (*order, value.as_ref()))).collect();
        for op in ops {
            match &op.change {
                Change::Flush => state.retain(|_, (order, _)| *order > op.order),
                Change::Keys(keys) => {
                    let news = keys.iter().map(|(key, value)| (key, (op.order, value.as_ref())));
                    let is_newer = |key: &Key| state.get(key).is_none_or(|(known, _)| *known < op.order);
                    state.extend(news.filter(|(key, _)| is_newer(key)).collect::<Vec<_>>());
                }
            }
        }
        let there = |(key, (_, value)): (&Key, (u64, Option<&Value>))| Some((key.clone(), value?.clone()));
        state.into_iter().filter_map(there).filter(|(_, value)| !value.is_expired(now_ms)).collect()
    }

    /// Checks that a crash at this moment may leave the state `found`.
    ///
    /// # Errors
    /// The differences from the nearest legal state.
    pub fn judge(&self, found: &State, now_ms: u64) -> Result<(), Violation> {
        let mut nearest: Option<Vec<String>> = None;
        for counts in self.prefixes().into_iter().filter(|counts| self.is_closed(counts)) {
            let differences = differences(&self.after(&counts, now_ms), found);
            if differences.is_empty() {
                return Ok(());
            }
            if nearest.as_ref().is_none_or(|known| differences.len() < known.len()) {
                nearest = Some(differences);
            }
        }
        let lengths: Vec<usize> = self.pending.iter().map(VecDeque::len).collect();
        let text = nearest.unwrap_or_default().join("; ");
        Err(Violation(format!("not a legal state (unacknowledged: {lengths:?}); nearest: {text}")))
    }

    /// True if all operations that the counting ones have read from count, too.
    fn is_closed(&self, counts: &[usize]) -> bool {
        let counting = || self.pending.iter().zip(counts).flat_map(|(ops, count)| ops.iter().take(*count));
        let left_out = |order: &u64| {
            self.pending
                .iter()
                .zip(counts)
                .any(|(ops, count)| ops.iter().skip(*count).any(|op| op.order == *order))
        };
        !counting().any(|op| op.causes.iter().any(left_out))
    }

    /// Every choice of a prefix for each writer.
    fn prefixes(&self) -> Vec<Vec<usize>> {
        let mut all = vec![Vec::new()];
        for pending in &self.pending {
            let longer = |counts: Vec<usize>| {
                (0..=pending.len()).map(move |count| [counts.as_slice(), &[count]].concat())
            };
            all = all.into_iter().flat_map(longer).collect();
        }
        all
    }

    /// Continues from the state that was found after a crash. No operation is pending any more.
    pub fn collapse(&mut self, found: &State) {
        self.pending.iter_mut().for_each(VecDeque::clear);
        self.base =
            found.iter().map(|(key, value)| (key.clone(), (self.order, Some(value.clone())))).collect();
    }
}

/// The differences of two states, as text.
pub(crate) fn differences(expected: &State, found: &State) -> Vec<String> {
    let mut out = Vec::new();
    for (key, value) in expected {
        match found.get(key) {
            None => out.push(format!("{key:?} is missing, expected {value:?}")),
            Some(other) if other != value => out.push(format!("{key:?} is {other:?}, expected {value:?}")),
            Some(_) => {}
        }
    }
    for (key, value) in found.iter().filter(|(key, _)| !expected.contains_key(key)) {
        out.push(format!("{key:?} exists with {value:?}, expected no value"));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        Key { space: 0, bytes: name.as_bytes().into() }
    }

    fn set(name: &str, text: &str) -> Change {
        Change::Keys(vec![(key(name), Some(Value { bytes: text.as_bytes().into(), expiry_ms: 0 }))])
    }

    fn state(of: &[(&str, &str)]) -> State {
        let pair = |(k, v): &(&str, &str)| (key(k), Value { bytes: v.as_bytes().into(), expiry_ms: 0 });
        of.iter().map(pair).collect()
    }

    #[test]
    fn acknowledged_operations_must_be_found_and_a_prefix_of_the_others_may_be() {
        let mut oracle = Oracle::new(1);
        oracle.note(0, set("a", "1"));
        oracle.acknowledge(0, 1);
        oracle.note(0, set("a", "2"));
        oracle.note(0, set("b", "3"));
        for legal in [&[("a", "1")][..], &[("a", "2")], &[("a", "2"), ("b", "3")]] {
            oracle.judge(&state(legal), 0).expect("a prefix");
        }
        for illegal in [&[][..], &[("a", "1"), ("b", "3")], &[("a", "0")], &[("b", "3")]] {
            oracle.judge(&state(illegal), 0).expect_err("lost, out of order, never written");
        }
    }

    #[test]
    fn a_group_is_found_whole_or_not_at_all() {
        let mut oracle = Oracle::new(2);
        let both = [set("a", "1"), set("b", "2")].map(|change| match change {
            Change::Keys(keys) => keys,
            Change::Flush => unreachable!("sets only"),
        });
        oracle.note(1, Change::Keys(both.concat()));
        oracle.judge(&state(&[("a", "1"), ("b", "2")]), 0).expect("whole");
        oracle.judge(&state(&[]), 0).expect("not at all");
        oracle.judge(&state(&[("a", "1")]), 0).expect_err("in part");
    }

    #[test]
    fn a_flush_deletes_older_keys_and_no_newer_ones() {
        let mut oracle = Oracle::new(2);
        oracle.note(0, set("a", "1"));
        oracle.acknowledge(0, 1);
        oracle.note(0, Change::Flush);
        oracle.note(1, set("b", "2"));
        oracle.acknowledge(1, 1);
        oracle.judge(&state(&[("a", "1"), ("b", "2")]), 0).expect("the flush was lost");
        oracle.judge(&state(&[("b", "2")]), 0).expect("the flush was not lost");
        oracle.judge(&state(&[]), 0).expect_err("newer than the flush, and acknowledged");
        oracle.acknowledge(0, 1);
        oracle.judge(&state(&[("a", "1"), ("b", "2")]), 0).expect_err("resurrected");
    }

    #[test]
    fn an_effect_is_not_found_without_its_cause_by_another_writer() {
        let mut oracle = Oracle::new(2);
        oracle.note(0, set("a", "1"));
        oracle.note(0, set("b", "2"));
        oracle.acknowledge(0, 2);
        oracle.note(0, Change::Flush);
        oracle.note_seen(1, set("a", "first"), &[key("a")]);
        oracle.judge(&state(&[("a", "1"), ("b", "2")]), 0).expect("neither counts");
        oracle.judge(&state(&[("a", "first")]), 0).expect("both count");
        oracle.judge(&state(&[]), 0).expect("the flush alone counts");
        oracle.judge(&state(&[("a", "first"), ("b", "2")]), 0).expect_err("an effect without its cause");
    }

    #[test]
    fn an_expired_value_is_not_found() {
        let mut oracle = Oracle::new(1);
        let value = Value { bytes: b"1"[..].into(), expiry_ms: 10 };
        oracle.note(0, Change::Keys(vec![(key("a"), Some(value))]));
        oracle.acknowledge(0, 1);
        oracle.judge(&state(&[]), 10).expect("expired");
        oracle.judge(&state(&[]), 9).expect_err("not yet");
    }
}
