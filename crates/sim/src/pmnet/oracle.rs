//! The oracle: judges the results that clients got. It shares no code with clients, devices and server, and knows of
//! the server only its state in the end.

use super::history::{Call, End, History, Moment, Session, Told};
use super::linear::{Deed, Timed, Verdict, check};
use super::request::Request;
use super::store::Held;
use crate::violation::{Violation, ensure};
use landfall_pmnet::client::CompletedBy;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Add;

/// Most states that the search for an order visits.
const STATES_MAX: usize = 20_000;

/// The place of a value: its register, and its index among the values of the register, from 1 on.
type Place = (u8, usize);

/// Counts of what the oracle has judged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Judged {
    /// Updates that were reported durable.
    pub complete: u64,
    /// Updates that were applied.
    pub applied: u64,
    /// Bypasses that were answered.
    pub answered: u64,
    /// Bypasses that a device answered.
    pub from_cache: u64,
    /// Bypasses whose answer was lost.
    pub lost: u64,
    /// Histories of one register or counter.
    pub histories: u64,
    /// Histories that were too long to be decided.
    pub undecided: u64,
    /// Updates that were reported durable, and lost with all devices that had them.
    pub excused: u64,
}

impl Add for Judged {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            complete: self.complete + other.complete,
            applied: self.applied + other.applied,
            answered: self.answered + other.answered,
            from_cache: self.from_cache + other.from_cache,
            lost: self.lost + other.lost,
            histories: self.histories + other.histories,
            undecided: self.undecided + other.undecided,
            excused: self.excused + other.excused,
        }
    }
}

/// All devices of the chain were lost in the course of the run. Updates that were given before the last loss, and that
/// only devices have reported durable, may be lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TotalLoss {
    /// When the last device was lost.
    pub at: Moment,
}

/// The promise of the system about reads of other sessions' updates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    /// A bypass reads updates of other sessions once the server has applied them.
    Applied,
    /// A read that begins after an update was reported durable returns it: each register is linearizable, whichever
    /// node answers.
    Linearizable,
}

/// Judges the results that clients got by the state of the server, once the system is idle.
///
/// # Errors
/// The first thing that the rules do not allow.
pub fn judge(
    history: &History,
    held: &Held,
    loss: Option<TotalLoss>,
    promise: Promise,
) -> Result<Judged, Violation> {
    let mut judged = Judged::default();
    let mut known = BTreeSet::new();
    for session in &history.sessions {
        check_session(session, held, loss, &mut judged)?;
        known.extend(session.name);
    }
    for name in held.journals.keys() {
        ensure!(
            known.contains(name),
            "updates of {name:?} were applied, and no client has started that session"
        );
    }
    let places = check_registers(history, held)?;
    for session in &history.sessions {
        check_own_reads(session, &places)?;
    }
    check_cached_reads(history, &places, loss, &mut judged)?;
    check_counters(history, held, &mut judged)?;
    check_orders(history, held, (&places, promise), &mut judged)?;
    Ok(judged)
}

/// Judges a server that has lost confirmed batches while the clients' sessions continued. Returns the number of
/// sessions that have lost updates, and whose clients learnt of it.
///
/// # Errors
/// An update that was reported durable is lost, and its client did not learn of it. An update was applied out of order,
/// twice, or behind a gap.
pub fn judge_gone_back(history: &History, held: &Held) -> Result<u64, Violation> {
    let mut told = 0;
    for session in &history.sessions {
        let applied = session.name.and_then(|name| held.journals.get(&name)).map_or(&[][..], Vec::as_slice);
        let given: Vec<u64> = session.updates().map(|(id, _)| id).collect();
        ensure!(
            given.starts_with(applied),
            "session {:?}: {applied:?} were applied of {given:?}",
            session.name
        );
        let mut behind = session.updates().skip(applied.len());
        let lost = behind.find(|(_, call)| matches!(call.told, Told::Complete { .. }));
        if let Some((id, _)) = lost {
            ensure!(
                session.end == End::Behind,
                "update {id} of {:?} was reported durable and is lost, and its client was not told",
                session.name
            );
            told += 1;
        }
    }
    Ok(told)
}

/// Checks that each update was applied once, in order, without a gap, and that none that was reported durable is
/// missing.
fn check_session(
    session: &Session,
    held: &Held,
    loss: Option<TotalLoss>,
    judged: &mut Judged,
) -> Result<(), Violation> {
    let applied = session.name.and_then(|name| held.journals.get(&name)).map_or(&[][..], Vec::as_slice);
    let given: Vec<u64> = session.updates().map(|(id, _)| id).collect();
    ensure!(given.starts_with(applied), "session {:?}: {applied:?} were applied of {given:?}", session.name);
    judged.applied += applied.len() as u64;
    let mut incomplete = None;
    for (at, (id, call)) in session.updates().enumerate() {
        let Told::Complete { at: told_at, by } = call.told else {
            incomplete = incomplete.or(Some(id));
            continue;
        };
        judged.complete += 1;
        ensure!(incomplete.is_none(), "update {id} was complete before {incomplete:?} in front of it");
        let may_be_lost = by == CompletedBy::Devices && loss.is_some_and(|loss| call.begun < loss.at);
        if at >= applied.len() && may_be_lost {
            judged.excused += 1;
            continue;
        }
        ensure!(
            at < applied.len(),
            "update {id} of {:?} was reported durable by {by:?} at {told_at}, and is lost",
            session.name
        );
    }
    if matches!(session.end, End::Ended { .. }) {
        ensure!(applied.len() == given.len(), "session {:?} has ended without {given:?}", session.name);
    }
    Ok(())
}

/// Checks that requests were applied whole: journals and registers must agree. Returns the place of each value.
fn check_registers(history: &History, held: &Held) -> Result<BTreeMap<u64, Place>, Violation> {
    let sets = history.sessions.iter().flat_map(|session| &session.calls).filter_map(|call| {
        let Request::Set { key, id, .. } = call.request else { return None };
        Some((id, key))
    });
    let keys: BTreeMap<u64, u8> = sets.collect();
    let mut places = BTreeMap::new();
    for (key, values) in &held.registers {
        for (place, id) in values.iter().enumerate() {
            ensure!(keys.get(id) == Some(key), "register {key} held {id}, which no client has set");
            ensure!(places.insert(*id, (*key, place + 1)).is_none(), "update {id} was applied twice");
        }
    }
    for id in held.journals.values().flatten() {
        ensure!(places.contains_key(id), "update {id} is in a journal, and in no register");
    }
    let journaled: usize = held.journals.values().map(Vec::len).sum();
    ensure!(journaled == places.len(), "{} values, and {journaled} entries of journals", places.len());
    Ok(places)
}

/// Index of the value that a read of a register has returned; 0 for the initial value.
fn place_of(register: u8, value: u64, places: &BTreeMap<u64, Place>) -> Result<usize, Violation> {
    if value == 0 {
        return Ok(0);
    }
    match places.get(&value) {
        Some((key, place)) if *key == register => Ok(*place),
        Some((key, _)) => Err(Violation(format!("{value} of register {key} was read in {register}"))),
        None => Err(Violation(format!("{value} was read, and no register has held it in the end"))),
    }
}

/// Checks that a session reads its own writes or newer values, and no older value than the server has answered before.
/// Answers of devices are checked against other answers of devices only ([`check_cached_reads`]), because the server
/// may not have applied the update yet.
fn check_own_reads(session: &Session, places: &BTreeMap<u64, Place>) -> Result<(), Violation> {
    let mut least: BTreeMap<u8, (usize, u64)> = BTreeMap::new();
    let mut missing = None;
    for call in &session.calls {
        match (call.request, call.told) {
            (Request::Set { key, id, .. }, _) => {
                missing = missing.or(Some(id).filter(|id| !places.contains_key(id)));
                if let Some((_, place)) = places.get(&id) {
                    least.insert(key, (*place, id));
                }
            }
            (_, Told::Value { from_cache: false, .. }) if missing.is_some() => {
                let name = session.name;
                return Err(Violation(format!(
                    "session {name:?} got an answer behind update {missing:?}, which is lost"
                )));
            }
            (Request::Get { key }, Told::Value { value, from_cache, .. }) => {
                let place = place_of(key, value, places)?;
                let (least_place, id) = least.get(&key).copied().unwrap_or((0, 0));
                ensure!(
                    place >= least_place,
                    "session {:?} read {value} in register {key} after {id}",
                    session.name
                );
                if !from_cache {
                    least.insert(key, (place, value));
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// Checks that a device's answer is durable, and not older than any value that was complete, or that any client had
/// read, when the request was given.
fn check_cached_reads(
    history: &History,
    places: &BTreeMap<u64, Place>,
    loss: Option<TotalLoss>,
    judged: &mut Judged,
) -> Result<(), Violation> {
    let calls = || history.sessions.iter().flat_map(|session| &session.calls);
    for call in calls() {
        let Told::Value { at, value, from_cache: true } = call.told else { continue };
        judged.from_cache += 1;
        let Request::Get { key } = call.request else { continue };
        if !places.contains_key(&value) && loss.is_some_and(|loss| at < loss.at) {
            continue;
        }
        let place = place_of(key, value, places)?;
        for (known_at, known) in calls().filter_map(|call| known_of(key, call)) {
            let is_newer = places.get(&known).is_some_and(|(_, newer)| *newer > place);
            ensure!(
                known_at > call.begun || !is_newer,
                "a device answered {value} in register {key}, asked at {}, after {known} was known at {known_at}",
                call.begun
            );
        }
    }
    Ok(())
}

/// A value that a register has or will have, and the moment from which a client knows it.
fn known_of(register: u8, call: &Call) -> Option<(Moment, u64)> {
    match (call.request, call.told) {
        (Request::Set { key, id, .. }, Told::Complete { at, .. }) if key == register => Some((at, id)),
        (Request::Get { key }, Told::Value { at, value, .. }) if key == register => Some((at, value)),
        _ => None,
    }
}

fn check_counters(history: &History, held: &Held, judged: &mut Judged) -> Result<(), Violation> {
    let mut added = BTreeSet::new();
    for id in held.counters.values().flatten() {
        ensure!(added.insert(*id), "addition {id} was executed twice");
    }
    for call in history.sessions.iter().flat_map(|session| &session.calls) {
        match (call.request, call.told) {
            (Request::Add { id, .. }, Told::Value { .. }) => {
                ensure!(added.contains(&id), "addition {id} was answered, and is lost");
            }
            (_, Told::Lost { .. }) => judged.lost += 1,
            _ => {}
        }
        judged.answered += u64::from(matches!(call.told, Told::Value { .. }));
    }
    Ok(())
}

/// Checks that bypasses are linearizable for each register and each counter. If [`Promise::Linearizable`] is given,
/// reads and updates of registers must be, too.
fn check_orders(
    history: &History,
    held: &Held,
    (places, promise): (&BTreeMap<u64, Place>, Promise),
    judged: &mut Judged,
) -> Result<(), Violation> {
    let mut histories: BTreeMap<(bool, u8), Vec<Timed>> = BTreeMap::new();
    for session in &history.sessions {
        for (at, call) in session.calls.iter().enumerate() {
            let found = match (promise, call.request) {
                (Promise::Linearizable, Request::Set { .. } | Request::Get { .. }) => {
                    timed_strictly((session, at), call, places)
                }
                _ => timed(session, at, call),
            };
            if let Some((object, timed)) = found {
                histories.entry(object).or_default().push(timed);
            }
        }
    }
    for ((is_counter, key), mut calls) in histories {
        let last = if is_counter { held.counter(key) } else { held.register(key) };
        calls.push(Timed { deed: Deed::Read(last), begin: Moment::MAX - 1, end: Some(Moment::MAX) });
        judged.histories += 1;
        match check(&calls, STATES_MAX) {
            Verdict::Linearizable => {}
            Verdict::Undecided => judged.undecided += 1,
            Verdict::Not => {
                let what = if is_counter { "counter" } else { "register" };
                return Err(Violation(format!("{what} {key} is not linearizable: {calls:?}")));
            }
        }
    }
    Ok(())
}

/// The object of a call, and the call's effect and time.
fn timed(session: &Session, at: usize, call: &Call) -> Option<((bool, u8), Timed)> {
    let (begin, answered) = (call.begun, answered_at(call));
    let (object, deed, end) = match (call.request, call.told) {
        (Request::Set { key, id, .. }, _) => ((false, key), Deed::Write(id), applied_at(session, at)),
        (Request::Get { key, .. }, Told::Value { value, from_cache: false, .. }) => {
            ((false, key), Deed::Read(value), answered)
        }
        (Request::Count { key }, Told::Value { value, .. }) => ((true, key), Deed::Read(value), answered),
        (Request::Add { key, .. }, Told::Value { value, .. }) => {
            ((true, key), Deed::Add(Some(value)), answered)
        }
        (Request::Add { key, .. }, _) => ((true, key), Deed::Add(None), None),
        _ => return None,
    };
    Some((object, Timed { deed, begin, end }))
}

/// The object, the effect and the time of a call if registers must be linearizable: an update takes effect before it is
/// complete, and reads count whichever node answers.
fn timed_strictly(
    (session, at): (&Session, usize),
    call: &Call,
    places: &BTreeMap<u64, Place>,
) -> Option<((bool, u8), Timed)> {
    let begin = call.begun;
    match (call.request, call.told) {
        (Request::Get { key }, Told::Value { at, value, .. }) => {
            Some(((false, key), Timed { deed: Deed::Read(value), begin, end: Some(at) }))
        }
        (Request::Set { key, id, .. }, Told::Complete { at: complete, .. }) if places.contains_key(&id) => {
            let end = applied_at(session, at).map_or(complete, |applied| applied.min(complete));
            Some(((false, key), Timed { deed: Deed::Write(id), begin, end: Some(end) }))
        }
        (Request::Set { .. }, _) => timed(session, at, call),
        _ => None,
    }
}

fn answered_at(call: &Call) -> Option<Moment> {
    match call.told {
        Told::Value { at, .. } => Some(at),
        _ => None,
    }
}

/// The latest moment at which an update was applied, as its client knows: the server has confirmed it or an update
/// behind it, or has answered a bypass behind it, or has ended the session.
fn applied_at(session: &Session, at: usize) -> Option<Moment> {
    let by_server = |call: &Call| match call.told {
        Told::Complete { at, by: CompletedBy::Server } if call.request.is_update() => Some(at),
        Told::Value { at, from_cache: false, .. } => Some(at),
        _ => None,
    };
    let end = match session.end {
        End::Ended { at } => Some(at),
        _ => None,
    };
    session.calls[at..].iter().filter_map(by_server).chain(end).min()
}

#[cfg(test)]
mod tests {
    use super::super::store::Effect;
    use super::*;
    use std::slice::from_ref;

    const KEY: u8 = 1;

    fn name(number: u16) -> (landfall_pmnet::SessionKey, u64) {
        let client = "10.0.0.1:40000".parse().unwrap();
        (landfall_pmnet::SessionKey { client, session: number }, 7)
    }

    fn session(number: u16, calls: &[Call]) -> Session {
        Session { name: Some(name(number)), calls: calls.to_vec(), end: End::Open }
    }

    /// The update `id`, given at moment `10 * id`, and complete at once or never.
    fn set(id: u64, complete: bool) -> Call {
        let told = Told::Complete { at: 10 * id + 1, by: CompletedBy::Devices };
        let told = if complete { told } else { Told::Nothing };
        Call { request: Request::Set { key: KEY, id, pad: 0 }, begun: 10 * id, told }
    }

    fn get(begun: Moment, value: u64, from_cache: bool) -> Call {
        let told = Told::Value { at: begun + 1, value, from_cache };
        Call { request: Request::Get { key: KEY }, begun, told }
    }

    fn add(begun: Moment, id: u64, value: Option<u64>) -> Call {
        let at = begun + 1;
        let told = value.map_or(Told::Nothing, |value| Told::Value { at, value, from_cache: false });
        Call { request: Request::Add { key: KEY, id }, begun, told }
    }

    /// The state of a server that has applied these updates of sessions and these additions.
    fn held(sets: &[(u16, u64)], adds: &[u64]) -> Held {
        let mut store = super::super::store::Store::new(0);
        let set =
            |(number, id): &(u16, u64)| Effect::Set { session: name(*number), key: KEY, id: *id, pad: 0 };
        sets.iter().map(set).for_each(|effect| store.apply(&effect));
        adds.iter().for_each(|id| store.apply(&Effect::Add { key: KEY, id: *id }));
        store.held().clone()
    }

    fn verdict(sessions: &[Session], held: &Held) -> Result<Judged, Violation> {
        judge(&History::of(sessions), held, None, Promise::Applied)
    }

    #[test]
    fn only_updates_that_were_not_reported_durable_may_be_lost() {
        let one = session(1, &[set(1, true), set(2, true), set(3, false)]);
        for applied in [&[(1, 1), (1, 2)][..], &[(1, 1), (1, 2), (1, 3)]] {
            verdict(from_ref(&one), &held(applied, &[])).unwrap();
        }
        for applied in [&[(1, 1)][..], &[], &[(1, 2), (1, 1)], &[(1, 1), (1, 1), (1, 2)], &[(1, 1), (1, 3)]] {
            verdict(from_ref(&one), &held(applied, &[])).unwrap_err();
        }
        let gone = verdict(&[Session { name: None, ..one.clone() }], &held(&[(1, 1), (1, 2)], &[]));
        gone.unwrap_err();
        let ended = Session { end: End::Ended { at: 99 }, ..one };
        verdict(&[ended], &held(&[(1, 1), (1, 2)], &[])).unwrap_err();
    }

    #[test]
    fn updates_that_only_devices_had_are_excused_if_every_device_is_lost() {
        let one = session(1, &[set(1, true), set(2, true)]);
        let history = History::of(&[one]);
        let with = |at| judge(&history, &held(&[(1, 1)], &[]), Some(TotalLoss { at }), Promise::Applied);
        assert_eq!(with(25).map(|judged| judged.excused), Ok(1));
        with(15).unwrap_err();
    }

    #[test]
    fn a_session_reads_its_own_writes_or_newer_values() {
        let reads = |value| session(1, &[set(1, true), set(2, true), get(30, value, false)]);
        let other = session(2, &[set(5, false)]);
        let both = held(&[(1, 1), (1, 2), (2, 5)], &[]);
        verdict(&[reads(2), other.clone()], &both).unwrap();
        verdict(&[reads(1), other.clone()], &both).unwrap_err();
        verdict(&[reads(5), other.clone()], &held(&[(1, 1), (2, 5), (1, 2)], &[])).unwrap_err();
        verdict(&[reads(8), other], &both).unwrap_err();
    }

    #[test]
    fn an_answer_shows_that_the_updates_in_front_of_it_are_applied() {
        let one = session(1, &[set(1, true), set(2, false), get(30, 1, false)]);
        verdict(&[one], &held(&[(1, 1)], &[])).unwrap_err();
    }

    #[test]
    fn a_device_answers_only_durable_values_and_none_older_than_a_complete_update() {
        let writer = session(1, &[set(1, true), set(2, true)]);
        let all = held(&[(1, 1), (1, 2)], &[]);
        let reader = |begun, value| session(2, &[get(begun, value, true)]);
        assert_eq!(verdict(&[writer.clone(), reader(30, 2)], &all).unwrap().from_cache, 1);
        verdict(&[writer.clone(), reader(15, 1)], &all).unwrap();
        verdict(&[writer.clone(), reader(30, 1)], &all).unwrap_err();
        verdict(&[writer.clone(), reader(30, 0)], &all).unwrap_err();
        let never = session(3, &[set(9, false)]);
        verdict(&[writer, never, reader(30, 9)], &all).unwrap_err();
    }

    #[test]
    fn a_device_answers_no_older_value_than_was_read_before() {
        let writer = session(1, &[set(1, true), set(2, false)]);
        let all = held(&[(1, 1), (1, 2)], &[]);
        let reads = |first, second| {
            let reader =
                |number, begun, (value, from_cache)| session(number, &[get(begun, value, from_cache)]);
            verdict(&[writer.clone(), reader(2, 30, first), reader(3, 40, second)], &all)
        };
        reads((1, true), (2, true)).unwrap();
        reads((2, false), (2, true)).unwrap();
        reads((2, true), (1, true)).unwrap_err();
        reads((2, false), (1, true)).unwrap_err();
        // The server may not have applied the update that a device has answered with.
        reads((2, true), (1, false)).unwrap();
    }

    #[test]
    fn complete_updates_are_read_by_all_clients_if_that_is_promised() {
        let writer = session(1, &[set(1, true), set(2, true)]);
        let all = held(&[(1, 1), (1, 2)], &[]);
        let strictly = |sessions: &[Session], held: &Held| {
            judge(&History::of(sessions), held, None, Promise::Linearizable)
        };
        for from_cache in [false, true] {
            let reads = |value| [writer.clone(), session(2, &[get(30, value, from_cache)])];
            strictly(&reads(2), &all).unwrap();
            strictly(&reads(1), &all).unwrap_err();
        }
        verdict(&[writer.clone(), session(2, &[get(30, 1, false)])], &all).unwrap();
        // Of the updates of two sessions, the one that was given later must be applied later.
        let other = session(2, &[set(5, true)]);
        strictly(&[writer.clone(), other.clone()], &held(&[(1, 1), (1, 2), (2, 5)], &[])).unwrap();
        strictly(&[writer.clone(), other.clone()], &held(&[(1, 1), (2, 5), (1, 2)], &[])).unwrap_err();
        verdict(&[writer, other], &held(&[(1, 1), (2, 5), (1, 2)], &[])).unwrap();
    }

    #[test]
    fn a_device_answers_no_value_of_another_register() {
        let other = Call { request: Request::Set { key: KEY + 1, id: 1, pad: 0 }, ..set(1, true) };
        let mut store = super::super::store::Store::new(0);
        store.apply(&Effect::Set { session: name(1), key: KEY + 1, id: 1, pad: 0 });
        let sessions = [session(1, &[other]), session(2, &[get(30, 1, true)])];
        verdict(&sessions, store.held()).unwrap_err();
    }

    #[test]
    fn additions_are_executed_once_and_answered_in_an_order() {
        let calls = session(1, &[add(10, 1, Some(1)), add(20, 2, None), add(30, 3, Some(3))]);
        verdict(from_ref(&calls), &held(&[], &[1, 2, 3])).unwrap();
        verdict(from_ref(&calls), &held(&[], &[1, 3])).unwrap_err();
        verdict(from_ref(&calls), &held(&[], &[1, 2, 2, 3])).unwrap_err();
        verdict(&[calls], &held(&[], &[1, 2])).unwrap_err();
        let wrong = session(1, &[add(10, 1, Some(2)), add(20, 2, Some(1))]);
        verdict(&[wrong], &held(&[], &[1, 2])).unwrap_err();
    }
}
