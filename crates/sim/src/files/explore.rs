//! Crashes at points of a workload, each judged.

use super::call::{Bytes, Call, Persist, Step};
use super::mount::{Mount, Observed, new_region};
use super::play::{
    Fault, Played, Recovered, call_both, crash_at_each, observe_as, play, recover, recover_twice,
};
use super::posix::Posix;
use super::view::{Body, View, join};
use crate::rng::Rng;
use crate::violation::{Violation, ensure};
use landfall_media::sim::{CrashImage, CrashState};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// One in so many recovered trees is changed, published, opened again and compared.
const EXERCISED_ONE_IN: u64 = 12;
/// One in so many recoveries crashes, too.
const CRASHED_AGAIN_ONE_IN: u64 = 12;

/// Recovered images that are kept: as many as a few similar workloads leave.
const KNOWN_MAX: usize = 256;

/// Where workloads are crashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Points {
    /// Before a step, and behind each operation of the medium from there on.
    From(usize),
    /// At the begin and the end, and behind so many operations between.
    Some(usize),
    /// Behind the last call, and behind so many operations from there to the end.
    Last(usize),
}

/// How much was tried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Explored {
    /// Workloads executed.
    pub workloads: u64,
    /// Different traces of operations on the medium.
    pub traces: u64,
    /// Crash images judged.
    pub images: u64,
    /// Different ones among them: recovered, checked and read.
    pub recovered: u64,
    /// Recoveries that crashed, too.
    pub again: u64,
    /// Recovered trees that were used on.
    pub exercised: u64,
}

impl std::ops::AddAssign for Explored {
    fn add_assign(&mut self, other: Self) {
        self.workloads += other.workloads;
        self.traces += other.traces;
        self.images += other.images;
        self.recovered += other.recovered;
        self.again += other.again;
        self.exercised += other.exercised;
    }
}

/// The calls of a workload and, behind each of them and at the end, how many operations the medium has seen. Workloads
/// with the same trace leave the same bytes, whatever asked for durability.
type Trace = (Vec<Call>, Vec<u64>);

/// A crash that was recovered: behind how many operations, and what the tree was then.
#[derive(Debug)]
struct Judged {
    at: u64,
    calls: Vec<usize>,
}

/// What recovery makes of an image.
#[derive(Debug)]
struct Tree {
    observed: Observed,
    inodes: usize,
}

/// What a program finds in a recovered tree, after so many of its steps had returned.
pub type Judge<'j> = dyn FnMut(&View, usize) -> Result<(), Violation> + 'j;

/// Crashes workloads on an empty tree.
pub struct Explorer {
    base: CrashImage,
    fault: Fault,
    traces: BTreeMap<Trace, Vec<Judged>>,
    /// The newest images that were recovered. Crashes of similar workloads often leave the same bytes, and what recovery
    /// makes of them depends on nothing else.
    known: VecDeque<(CrashImage, Arc<Tree>)>,
    /// How much was tried.
    pub explored: Explored,
}

impl Explorer {
    /// An explorer of mounts with a fault.
    ///
    /// # Errors
    /// A new region that cannot be used.
    pub fn new(fault: Fault) -> Result<Self, Violation> {
        let (base, traces, known) = (new_region()?, BTreeMap::new(), VecDeque::new());
        Ok(Self { base, fault, traces, known, explored: Explored::default() })
    }

    /// Forgets traces and images: later workloads are not like earlier ones.
    pub fn forget(&mut self) {
        self.traces.clear();
        self.known.clear();
    }

    /// Executes a workload, crashes it, and judges each tree that is recovered.
    ///
    /// # Errors
    /// The first tree that may not be there.
    pub fn check(&mut self, steps: &[Step], points: Points) -> Result<(), Violation> {
        self.check_steps(steps, points).map_err(|violation| {
            let steps: Vec<String> = steps.iter().map(|step| format!("  {step:?}")).collect();
            Violation(format!("{violation}\n{}", steps.join("\n")))
        })
    }

    /// As [`Self::check`]; besides, `program` judges each tree that is recovered.
    ///
    /// # Errors
    /// The first tree that may not be there.
    pub fn check_program(
        &mut self,
        steps: &[Step],
        points: Points,
        program: &mut Judge<'_>,
    ) -> Result<(), Violation> {
        let played = play(&self.base, Posix::default(), self.fault, steps)?;
        self.explored.workloads += 1;
        self.crash_all(steps, &played, points, program).map(drop)
    }

    fn check_steps(&mut self, steps: &[Step], points: Points) -> Result<(), Violation> {
        self.explored.workloads += 1;
        let played = play(&self.base, Posix::default(), self.fault, steps)?;
        let trace = trace_of(steps, &played);
        if let Some(all) = self.traces.get(&trace) {
            for judged in all {
                let possible = played.possible(judged.at);
                let is_possible = judged.calls.iter().any(|calls| possible.contains(calls));
                let (at, calls) = (judged.at, &judged.calls);
                ensure!(
                    is_possible,
                    "behind operation {at} the tree is what {calls:?} calls make, not {possible:?}"
                );
            }
            return Ok(());
        }
        let judged = self.crash_all(steps, &played, points, &mut |_, _| Ok(()))?;
        self.explored.traces += 1;
        self.traces.insert(trace, judged);
        Ok(())
    }

    fn crash_all(
        &mut self,
        steps: &[Step],
        played: &Played,
        points: Points,
        program: &mut Judge<'_>,
    ) -> Result<Vec<Judged>, Violation> {
        let mut all = Vec::new();
        let mut rng = Rng::new(played.end() << 20 | played.states.len() as u64);
        let points = points_of(steps, played, points, &mut rng);
        let (first, last) = (points.first().copied(), points.last().copied());
        let states = crash_at_each(&self.base, self.fault, (steps, played), &points)?;
        for (at, state) in points.into_iter().zip(states) {
            let is_edge = Some(at) == first || Some(at) == last;
            for image in images(&state, is_edge, &mut rng) {
                let judged = self.judge(played, at, &image, &mut rng, program);
                let calls =
                    judged.map_err(|violation| violation.during(format!("a crash behind operation {at}")))?;
                all.push(Judged { at, calls });
            }
        }
        Ok(all)
    }

    /// The states that are what is recovered.
    fn judge(
        &mut self,
        played: &Played,
        at: u64,
        image: &CrashImage,
        rng: &mut Rng,
        program: &mut Judge<'_>,
    ) -> Result<Vec<usize>, Violation> {
        self.explored.images += 1;
        let tree = self.tree_of(image)?;
        let (calls, possible) = (played.states_like(&tree.observed), played.possible(at));
        let Some(found) = calls.iter().find(|calls| possible.contains(calls)) else {
            return Err(played.explain(&tree.observed, &possible));
        };
        let posix = &played.states[*found].posix;
        ensure!(tree.inodes == posix.inode_count(), "inodes without a name are left");
        program(&tree.observed.view, played.returned(at))?;
        if rng.one_in(CRASHED_AGAIN_ONE_IN) {
            self.explored.again += 1;
            let again = recover_twice(image, rng).map_err(|v| v.during("a crash of recovery"))?;
            ensure!(again.observed == tree.observed, "after a crash of recovery the tree is another one");
        }
        if rng.one_in(EXERCISED_ONE_IN) {
            self.explored.exercised += 1;
            let mount = recover(image)?.mount;
            exercise(mount, posix.clone()).map_err(|v| v.during("using on what was recovered"))?;
        }
        Ok(calls)
    }

    fn tree_of(&mut self, image: &CrashImage) -> Result<Arc<Tree>, Violation> {
        if let Some((_, tree)) = self.known.iter().find(|(known, _)| known == image) {
            return Ok(Arc::clone(tree));
        }
        self.explored.recovered += 1;
        let Recovered { mount, observed } = recover(image)?;
        let tree = Arc::new(Tree { observed, inodes: mount.inode_count() });
        if self.known.len() == KNOWN_MAX {
            self.known.pop_front();
        }
        self.known.push_back((image.clone(), Arc::clone(&tree)));
        Ok(tree)
    }
}

fn trace_of(steps: &[Step], played: &Played) -> Trace {
    let (mut calls, mut totals) = (Vec::new(), Vec::new());
    for (step, mark) in steps.iter().zip(&played.marks) {
        match step {
            Step::Call(call) => {
                calls.push(call.clone());
                totals.push(mark.after);
            }
            Step::Publish | Step::Compact => totals.push(mark.after),
            Step::Persist(_) => {}
        }
    }
    totals.push(played.end());
    (calls, totals)
}

/// The operations behind which a workload is crashed, in order.
fn points_of(steps: &[Step], played: &Played, points: Points, rng: &mut Rng) -> BTreeSet<u64> {
    match points {
        Points::From(step) => (played.marks[step].before..=played.end()).collect(),
        Points::Some(most) => some(played.begin, played.end(), most, rng),
        Points::Last(most) => {
            let is_call = |step: &Step| matches!(step, Step::Call(_));
            let last = steps.iter().rposition(is_call).map_or(played.begin, |at| played.marks[at].after);
            some(last, played.end(), most, rng)
        }
    }
}

/// Both ends of a range, and so many points between.
fn some(first: u64, last: u64, most: usize, rng: &mut Rng) -> BTreeSet<u64> {
    if last - first <= most as u64 {
        return (first..=last).collect();
    }
    let between = (0..most).map(|_| first + rng.below(last - first));
    between.chain([first, last]).collect()
}

fn images(state: &CrashState, is_edge: bool, rng: &mut Rng) -> Vec<CrashImage> {
    let mut images = vec![state.draw(rng.draw())];
    if is_edge {
        images.extend([state.durable(), state.newest()]);
    }
    images
}

/// Changes a recovered tree in each of its directories, publishes that, and opens it again.
pub(super) fn exercise(mut mount: Mount, mut posix: Posix) -> Result<(), Violation> {
    let view = posix.view();
    let directories = view.iter().filter(|(_, seen)| seen.body == Body::Directory);
    let mut calls = Vec::new();
    for (directory, _) in directories {
        let (path, renamed) = (join(directory, "new"), join(directory, "renamed"));
        calls.extend([
            Call::Create { path: path.clone() },
            Call::Write { path: path.clone(), offset: 100, bytes: Bytes::pattern(5000, 77) },
            Call::Rename { from: path, to: renamed },
        ]);
    }
    let named = view.keys().filter(|path| !path.is_empty());
    calls.extend(named.clone().map(|path| Call::Truncate { path: path.clone(), size: 3000 }));
    calls.extend(named.map(|path| Call::Unlink { path: path.clone() }));
    for call in &calls {
        call_both(&mut mount, &mut posix, call)?;
    }
    let changed = observe_as(&mount, &posix)?;
    let synced = mount.persist(&Persist::Sync)?;
    ensure!(synced.is_ok(), "a sync is refused: {synced:?}");
    let log = mount.media.crash_state().durable();
    mount.publish()?;
    for image in [log, mount.media.crash_state().durable()] {
        let again = recover(&image)?;
        ensure!(again.observed == changed, "after a restart the tree is another one");
    }
    Ok(())
}
