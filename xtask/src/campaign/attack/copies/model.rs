//! What a client has requested, and what its keys may hold after a kill.

use crate::seed::Random;
use std::collections::BTreeSet;

/// Minimum and maximum length of a value, bytes.
const LENGTHS: std::ops::RangeInclusive<usize> = 10..=900_000;
/// Number of possible doublings of the minimum length: 0 to 16.
const DOUBLINGS: usize = 17;

/// A value, represented by the seed and length of its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Value {
    seed: u64,
    len: usize,
}

impl Value {
    /// Draws a value. Most are short, and all lengths occur.
    fn draw(random: &mut Random) -> Self {
        let doublings = random.below(DOUBLINGS).min(random.below(DOUBLINGS));
        let least = LENGTHS.start() << doublings;
        let len = (least + random.below(least)).min(*LENGTHS.end());
        Self { seed: random.number(), len }
    }

    pub(super) fn bytes(self) -> Vec<u8> {
        let mut random = Random::new(self.seed);
        let words = self.len.div_ceil(8);
        let mut bytes: Vec<u8> = (0..words).flat_map(|_| random.number().to_le_bytes()).collect();
        bytes.truncate(self.len);
        bytes
    }
}

/// One command. Keys are numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Set(usize, Value),
    Copy { from: usize, to: usize },
    Delete(usize),
    Get(usize),
}

/// The keys of one client. No other client writes them.
#[derive(Clone, Debug)]
pub(super) struct Model {
    keys: Vec<Option<Value>>,
    /// Commands that were sent and not answered.
    under_way: Vec<Operation>,
}

impl Model {
    pub(super) fn new(keys: usize) -> Self {
        Self { keys: vec![None; keys], under_way: Vec::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    /// Two of five operations are SET; one of five each is COPY, DEL and GET.
    pub(super) fn draw(&self, random: &mut Random) -> Operation {
        let key = random.below(self.len());
        match random.below(5) {
            0 | 1 => Operation::Set(key, Value::draw(random)),
            2 => Operation::Copy { from: key, to: (key + 1 + random.below(self.len() - 1)) % self.len() },
            3 => Operation::Delete(key),
            _ => Operation::Get(key),
        }
    }

    /// The reply that an operation must have if it is executed next.
    pub(super) fn reply(&self, operation: Operation) -> Vec<u8> {
        let flag = |is: bool| if is { b"1".to_vec() } else { b"0".to_vec() };
        match operation {
            Operation::Set(..) => b"OK".to_vec(),
            Operation::Copy { from, .. } => flag(self.keys[from].is_some()),
            Operation::Delete(key) => flag(self.keys[key].is_some()),
            Operation::Get(key) => self.keys[key].map(Value::bytes).unwrap_or_default(),
        }
    }

    /// Records that an operation was executed.
    pub(super) fn executed(&mut self, operation: Operation) {
        match operation {
            Operation::Set(key, value) => self.keys[key] = Some(value),
            Operation::Copy { from, to } if self.keys[from].is_some() => self.keys[to] = self.keys[from],
            Operation::Delete(key) => self.keys[key] = None,
            Operation::Copy { .. } | Operation::Get(_) => {}
        }
    }

    /// The server is gone: it is unknown whether these operations were executed.
    pub(super) fn cut(&mut self, under_way: &[Operation]) {
        self.under_way = under_way.to_vec();
    }

    /// What each key may hold, for every possible outcome of the operations under way.
    pub(super) fn possible(&self) -> Vec<BTreeSet<Option<Value>>> {
        let mut possible: Vec<_> = self.keys.iter().map(|value| BTreeSet::from([*value])).collect();
        for operation in &self.under_way {
            match *operation {
                Operation::Set(key, value) => possible[key].extend([Some(value)]),
                Operation::Delete(key) => possible[key].extend([None]),
                Operation::Copy { from, to } => {
                    let copied: Vec<_> = possible[from].iter().copied().filter(Option::is_some).collect();
                    possible[to].extend(copied);
                }
                Operation::Get(_) => {}
            }
        }
        possible
    }

    /// Sets what the keys hold to what was read after a restart.
    pub(super) fn seen(&mut self, keys: Vec<Option<Value>>) {
        *self = Self { keys, under_way: Vec::new() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(seed: u64) -> Value {
        Value { seed, len: 20 }
    }

    #[test]
    fn replies_follow_from_executed_operations() {
        let mut model = Model::new(3);
        let copy = Operation::Copy { from: 0, to: 1 };
        assert_eq!(model.reply(copy), b"0");
        for operation in [Operation::Set(0, value(1)), copy, Operation::Delete(0)] {
            model.executed(operation);
        }
        assert_eq!(model.reply(Operation::Get(1)), value(1).bytes());
        assert_eq!(model.reply(Operation::Delete(0)), b"0");
        assert_eq!(model.reply(copy), b"0");
    }

    #[test]
    fn operations_under_way_may_have_been_executed_or_not() {
        let mut model = Model::new(3);
        model.executed(Operation::Set(0, value(1)));
        let copy = Operation::Copy { from: 0, to: 1 };
        model.cut(&[Operation::Set(0, value(2)), copy, Operation::Delete(0)]);
        let possible = model.possible();
        assert_eq!(possible[0], BTreeSet::from([None, Some(value(1)), Some(value(2))]));
        assert_eq!(possible[1], BTreeSet::from([None, Some(value(1)), Some(value(2))]));
        assert_eq!(possible[2], BTreeSet::from([None]));
    }

    #[test]
    fn values_are_distinguished_by_seed_and_all_lengths_occur() {
        let mut random = Random::new(7);
        let drawn: Vec<Value> = (0..10_000).map(|_| Value::draw(&mut random)).collect();
        assert!(drawn.iter().all(|value| LENGTHS.contains(&value.len)));
        assert!(drawn.iter().any(|value| value.len < 12) && drawn.iter().any(|value| value.len > 700_000));
        assert_ne!(value(1).bytes(), value(2).bytes());
        assert_eq!(value(1).bytes().len(), 20);
    }
}
