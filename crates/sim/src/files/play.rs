//! Steps on a mount beside the model, crashes in the middle of them, and what may be there afterwards.

use super::call::{Call, Step};
use super::mount::{Mount, Observed, check};
use super::posix::Posix;
use super::view::difference;
use crate::rng::Rng;
use crate::violation::{Violation, ensure};
use landfall_media::Site;
use landfall_media::sim::{CrashImage, CrashState, SimMedia, SimOptions};
use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// A fault that is built in: the judge must find it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fault {
    /// Flushes and fences of this site do nothing.
    pub skip: Option<Site>,
    /// Calls that ask for durability return at once.
    pub forgets_syncs: bool,
}

/// The tree after some number of calls.
#[derive(Clone, Debug)]
pub(super) struct State {
    pub(super) posix: Posix,
    pub(super) observed: Observed,
}

/// Where a step lies among the operations of the medium, and what is known behind it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    /// Operations of the medium before the step, and behind it.
    pub(super) before: u64,
    pub(super) after: u64,
    /// Calls so far.
    pub(super) calls: usize,
    /// Calls that are promised to be durable.
    pub(super) promised: usize,
}

/// Steps that were executed without a crash.
#[derive(Debug)]
pub(super) struct Played {
    /// Operations of the medium before the first step.
    pub(super) begin: u64,
    pub(super) marks: Vec<Mark>,
    /// Calls that were refused.
    pub(super) refused: u64,
    /// The tree after 0, 1, 2, ... calls.
    pub(super) states: Vec<State>,
}

/// What recovery has made of a crash.
pub(super) struct Recovered {
    pub(super) mount: Mount,
    pub(super) observed: Observed,
}

/// A medium that continues from an image.
pub(super) fn restart(image: &CrashImage) -> Arc<SimMedia> {
    SimMedia::restart(image, SimOptions::default())
}

/// Opens a region, with a fault.
fn open(base: &CrashImage, fault: Fault) -> Result<Mount, Violation> {
    let media = restart(base);
    if let Some(site) = fault.skip {
        media.skip_site(site);
    }
    let mut mount = Mount::open(media)?;
    if fault.forgets_syncs {
        mount.forget_syncs();
    }
    Ok(mount)
}

fn execute(mount: &mut Mount, step: &Step) -> Result<(), Violation> {
    match step {
        Step::Call(call) => mount.call(call).map(drop),
        Step::Persist(persist) => mount.persist(persist).map(drop),
        Step::Publish => mount.publish(),
        Step::Compact => mount.compact(),
    }
}

/// Executes a call on both sides: they do the same. False: both refuse it.
pub(super) fn call_both(mount: &mut Mount, posix: &mut Posix, call: &Call) -> Result<bool, Violation> {
    let (done, expected) = (mount.call(call)?, posix.call(call));
    ensure!(done == expected, "{call:?} is {done:?} and not {expected:?}");
    Ok(done.is_ok())
}

/// Observes a mount, which must be what the model is.
pub(super) fn observe_as(mount: &Mount, posix: &Posix) -> Result<Observed, Violation> {
    let observed = mount.observe()?;
    if let Some(difference) = difference(&observed.view, &posix.view()) {
        return Err(Violation(difference));
    }
    let (found, expected) = (mount.inode_count(), posix.inode_count());
    ensure!(found == expected, "there are {found} inodes and not {expected}");
    Ok(observed)
}

/// Executes steps beside the model. `base` is a region with the tree that `posix` is.
pub(super) fn play(
    base: &CrashImage,
    posix: Posix,
    fault: Fault,
    steps: &[Step],
) -> Result<Played, Violation> {
    let (mut mount, mut posix) = (open(base, fault)?, posix);
    let begin = mount.media.ops().total();
    let first = State { observed: observe_as(&mount, &posix)?, posix: posix.clone() };
    let mut played = Played { begin, marks: Vec::new(), refused: 0, states: vec![first] };
    let (mut calls, mut promised) = (0, 0);
    let known = posix.calls();
    for (at, step) in steps.iter().enumerate() {
        let before = mount.media.ops().total();
        match step {
            Step::Call(call) => {
                let done = call_both(&mut mount, &mut posix, call);
                let is_done = done.map_err(|v| v.during(format!("step {at}")))?;
                played.refused += u64::from(!is_done);
                calls += 1;
                let observed =
                    observe_as(&mount, &posix).map_err(|v| v.during(format!("after step {at}")))?;
                played.states.push(State { posix: posix.clone(), observed });
            }
            Step::Persist(persist) => {
                let (done, expected) = (mount.persist(persist)?, posix.persist(persist));
                ensure!(done == expected, "{persist:?} is {done:?} and not {expected:?}");
                promised = promised.max(posix.promised(persist).saturating_sub(known));
            }
            Step::Publish | Step::Compact => execute(&mut mount, step)?,
        }
        played.marks.push(Mark { before, after: mount.media.ops().total(), calls, promised });
    }
    Ok(played)
}

/// Executes steps that were played: what may be there after a crash behind `at` operations of the medium.
pub(super) fn crash(
    base: &CrashImage,
    fault: Fault,
    played: (&[Step], &Played),
    at: u64,
) -> Result<CrashState, Violation> {
    Ok(crash_at_each(base, fault, played, &BTreeSet::from([at]))?.remove(0))
}

/// As [`crash`], for several crashes.
pub(super) fn crash_at_each(
    base: &CrashImage,
    fault: Fault,
    (steps, played): (&[Step], &Played),
    points: &BTreeSet<u64>,
) -> Result<Vec<CrashState>, Violation> {
    let mut mount = open(base, fault)?;
    // What is read stays in memory, and decides how the next call is executed: all that was observed is.
    mount.observe()?;
    mount.media.freeze_at_each(points.iter().copied());
    for (step, mark) in steps.iter().zip(&played.marks) {
        if points.last().is_none_or(|last| *last <= mount.media.ops().total()) {
            break;
        }
        execute(&mut mount, step)?;
        if matches!(step, Step::Call(_)) {
            mount.observe()?;
        }
        ensure!(mount.media.ops().total() == mark.after, "the medium has seen other operations for {step:?}");
    }
    let states = mount.media.frozen_each();
    ensure!(states.len() == points.len(), "there are less operations than {:?}", points.last());
    Ok(states)
}

/// Checks what a crash has left, recovers it and reads all of it.
pub(super) fn recover(image: &CrashImage) -> Result<Recovered, Violation> {
    check(restart(image))?;
    let mount = Mount::open(restart(image))?;
    let observed = mount.observe()?;
    Ok(Recovered { mount, observed })
}

/// Recovers what a crash has left, with a crash in the middle of that.
pub(super) fn recover_twice(image: &CrashImage, rng: &mut Rng) -> Result<Recovered, Violation> {
    let medium = restart(image);
    let all = Mount::open(Arc::clone(&medium))?.media.ops().total();
    let medium = restart(image);
    medium.freeze_at(rng.below(all + 1));
    drop(Mount::open(Arc::clone(&medium))?);
    let state = medium.frozen().unwrap_or_else(|| medium.crash_state());
    recover(&state.draw(rng.draw()))
}

impl Played {
    /// Operations of the medium behind the last step.
    pub(super) fn end(&self) -> u64 {
        self.marks.last().map_or(self.begin, |mark| mark.after)
    }

    /// Number of steps that have returned behind `at` operations of the medium.
    pub(super) fn returned(&self, at: u64) -> usize {
        self.marks.iter().take_while(|mark| mark.after <= at).count()
    }

    /// The states that may be found after a crash behind `at` operations of the medium: everything promised is there, and
    /// nothing that had not begun.
    pub(super) fn possible(&self, at: u64) -> RangeInclusive<usize> {
        let done = self.marks.iter().filter(|mark| mark.after <= at);
        let begun = self.marks.iter().filter(|mark| mark.before < at);
        let promised = done.map(|mark| mark.promised).max().unwrap_or(0);
        // A refused call does nothing to the medium, and may be promised all the same.
        promised..=begun.map(|mark| mark.calls).max().unwrap_or(0).max(promised)
    }

    /// The states that are what was recovered.
    pub(super) fn states_like(&self, observed: &Observed) -> Vec<usize> {
        let states = self.states.iter().enumerate();
        states.filter(|(_, state)| state.observed == *observed).map(|(calls, _)| calls).collect()
    }

    /// Says that what was recovered is no state that may be there.
    pub(super) fn explain(&self, observed: &Observed, possible: &RangeInclusive<usize>) -> Violation {
        let found = self.states_like(observed);
        let expected = &self.states[*possible.start()];
        let what = difference(&observed.view, &expected.observed.view);
        let what = what.unwrap_or_else(|| "times, permissions or blocks differ".to_owned());
        Violation(format!(
            "the tree is what {found:?} calls make, and not {possible:?}; beside {}: {what}",
            possible.start()
        ))
    }
}
