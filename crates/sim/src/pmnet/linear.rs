//! A checker for linearizability: is there an order of the calls on one object in which each takes effect between its
//! beginning and its end?
//!
//! Source: Wing and Gong, *Testing and Verifying Concurrent Objects*, 1993, with a set of visited states (Lowe,
//! *Testing for Linearizability*, 2017).

use super::history::Moment;
use std::collections::BTreeSet;

/// Most calls of a history: the set of executed calls has one bit for each.
const CALLS_MAX: usize = 128;

/// The effect of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    /// Sets the object to this value.
    Write(u64),
    /// Returns this value.
    Read(u64),
    /// Adds one, and returns this value, if the answer arrived.
    Add(Option<u64>),
}

/// One call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timed {
    /// The effect of the call.
    pub deed: Deed,
    /// The call takes effect after this moment.
    pub begin: Moment,
    /// The call takes effect before this moment; `None`: at any later time, or never.
    pub end: Option<Moment>,
}

/// The result of the checker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// There is such an order.
    Linearizable,
    /// There is no such order.
    Not,
    /// There are too many calls, or too many states to visit.
    Undecided,
}

/// Searches for an order of `calls` on an object with the initial value 0, through at most `states_max` states.
pub fn check(calls: &[Timed], states_max: usize) -> Verdict {
    let calls = relevant(calls);
    if calls.len() > CALLS_MAX {
        return Verdict::Undecided;
    }
    let must = (0..calls.len()).filter(|at| calls[*at].end.is_some()).fold(0_u128, |bits, at| bits | 1 << at);
    let mut seen = BTreeSet::new();
    let mut todo = vec![(0_u128, 0_u64)];
    while let Some((done, value)) = todo.pop() {
        if done & must == must {
            return Verdict::Linearizable;
        }
        if !seen.insert((done, value)) {
            continue;
        }
        if seen.len() > states_max {
            return Verdict::Undecided;
        }
        todo.extend(next(&calls, done, value));
    }
    Verdict::Not
}

/// The calls that matter, with the latest end first. Writes that may never have happened and that no call has read do
/// not matter.
fn relevant(calls: &[Timed]) -> Vec<Timed> {
    let is_read = |value: u64| calls.iter().any(|call| call.deed == Deed::Read(value));
    let counts = |call: &&Timed| match (call.deed, call.end) {
        (Deed::Write(value), None) => is_read(value),
        _ => true,
    };
    let mut calls: Vec<Timed> = calls.iter().filter(counts).copied().collect();
    calls.sort_by_key(|call| std::cmp::Reverse(call.end.unwrap_or(Moment::MAX)));
    calls
}

/// The states after one more call: any call that had begun before the first of the remaining calls ended.
fn next(calls: &[Timed], done: u128, value: u64) -> impl Iterator<Item = (u128, u64)> {
    let open = (0..calls.len()).filter(move |at| done >> at & 1 == 0);
    let first_end = open.clone().filter_map(|at| calls[at].end).min().unwrap_or(Moment::MAX);
    open.filter(move |at| calls[*at].begin < first_end).filter_map(move |at| {
        let after = match calls[at].deed {
            Deed::Write(written) => written,
            Deed::Read(found) => (found == value).then_some(value)?,
            Deed::Add(None) => value + 1,
            Deed::Add(Some(found)) => (found == value + 1).then_some(found)?,
        };
        Some((done | 1 << at, after))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timed(deed: Deed, begin: Moment, end: Moment) -> Timed {
        Timed { deed, begin, end: Some(end) }
    }

    fn verdict(calls: &[Timed]) -> Verdict {
        check(calls, 10_000)
    }

    #[test]
    fn a_read_may_return_the_old_value_or_that_of_a_concurrent_write() {
        for found in [1, 2] {
            let calls =
                [timed(Deed::Write(1), 1, 2), timed(Deed::Write(2), 3, 6), timed(Deed::Read(found), 4, 5)];
            assert_eq!(verdict(&calls), Verdict::Linearizable);
        }
    }

    #[test]
    fn a_read_of_an_older_value_is_not_linearizable() {
        let write = Timed { deed: Deed::Write(1), begin: 1, end: None };
        let calls = [write, timed(Deed::Read(1), 2, 3), timed(Deed::Read(0), 4, 5)];
        assert_eq!(verdict(&calls), Verdict::Not);
        let calls = [write, timed(Deed::Read(0), 2, 3), timed(Deed::Read(1), 4, 5)];
        assert_eq!(verdict(&calls), Verdict::Linearizable);
    }

    #[test]
    fn additions_return_every_number_once_and_in_order() {
        let add = |found, begin, end| timed(Deed::Add(Some(found)), begin, end);
        assert_eq!(verdict(&[add(2, 1, 4), add(1, 2, 3)]), Verdict::Linearizable);
        assert_eq!(verdict(&[add(2, 1, 2), add(1, 3, 4)]), Verdict::Not);
        assert_eq!(verdict(&[add(1, 1, 4), add(1, 2, 3)]), Verdict::Not);
        assert_eq!(verdict(&[add(2, 3, 4)]), Verdict::Not);
        let lost = Timed { deed: Deed::Add(None), begin: 1, end: None };
        assert_eq!(verdict(&[lost, add(2, 3, 4)]), Verdict::Linearizable);
        assert_eq!(verdict(&[lost, add(1, 3, 4), timed(Deed::Read(2), 5, 6)]), Verdict::Linearizable);
    }

    #[test]
    fn histories_that_are_too_long_are_undecided() {
        let calls = vec![timed(Deed::Add(None), 1, 2); CALLS_MAX + 1];
        assert_eq!(verdict(&calls), Verdict::Undecided);
        let calls: Vec<Timed> = (1..30).map(|value| timed(Deed::Write(value), value, 99)).collect();
        let end = [timed(Deed::Read(77), 100, 101)];
        assert_eq!(check(&[&calls[..], &end].concat(), 1000), Verdict::Undecided);
    }
}
