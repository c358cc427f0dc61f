//! A seeded campaign over files: random calls, refused ones among them, publishing and compaction; a crash; and the next
//! round goes on with what recovery has found.

use super::call::{Bytes, Call, Persist, Step, falloc};
use super::mount::{Mount, new_region, repair};
use super::play::{Fault, Recovered, crash, play, recover, restart};
use super::posix::Posix;
use super::view::join;
use crate::rng::Rng;
use crate::violation::{Violation, ensure};
use landfall_media::sim::{CrashImage, SimMedia};
use std::sync::Arc;

const DIRECTORIES: [&str; 4] = ["", "d", "e", "d/f"];
const NAMES: [&str; 5] =
    ["a", "b", "d", "f", "a longer name that does not fit into the body of a record of names"];
/// Most bytes of a file, about.
const FILE_BYTES: u64 = 40_000;
const BLOCK: u64 = 4096;
/// Most steps of a round.
const STEPS_MAX: usize = 40;

/// Length of a campaign, and the fault that is built in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilesPlan {
    /// Number of crashes.
    pub crashes: usize,
    /// The campaign must fail then.
    pub fault: Fault,
}

/// Counts of a campaign.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FilesSummary {
    /// Steps executed.
    pub steps: u64,
    /// Calls that were refused.
    pub refused: u64,
    /// Crashes of recovery.
    pub again: u64,
    /// Repairs that crashed, of trees of which nothing is damaged.
    pub repairs: u64,
    /// Calls that a crash has taken back.
    pub lost: u64,
    /// Inodes of the last tree.
    pub inodes: u64,
}

/// A campaign drawn from one seed.
pub struct FilesCampaign {
    plan: FilesPlan,
    rng: Rng,
    base: CrashImage,
    posix: Posix,
    summary: FilesSummary,
}

impl FilesCampaign {
    /// Runs the campaign of `seed`.
    ///
    /// # Errors
    /// The first tree or answer that may not be there.
    pub fn run(seed: u64, plan: FilesPlan) -> Result<FilesSummary, Violation> {
        let (rng, base, posix) = (Rng::new(seed), new_region()?, Posix::default());
        let mut campaign = Self { plan, rng, base, posix, summary: FilesSummary::default() };
        for round in 0..plan.crashes {
            campaign.round().map_err(|violation| violation.during(format!("round {round}")))?;
        }
        campaign.summary.inodes = campaign.posix.inode_count() as u64;
        Ok(campaign.summary)
    }

    fn round(&mut self) -> Result<(), Violation> {
        let steps: Vec<Step> = (0..self.rng.between(1, STEPS_MAX)).map(|_| step(&mut self.rng)).collect();
        self.crash(&steps).map_err(|violation| {
            let steps: Vec<String> = steps.iter().map(|step| format!("  {step:?}")).collect();
            Violation(format!("{violation}\n{}", steps.join("\n")))
        })
    }

    fn crash(&mut self, steps: &[Step]) -> Result<(), Violation> {
        let played = play(&self.base, self.posix.clone(), self.plan.fault, steps)?;
        self.summary.steps += steps.len() as u64;
        self.summary.refused += played.refused;
        let at = played.begin + self.rng.below(played.end() - played.begin + 1);
        let state = crash(&self.base, self.plan.fault, (steps, &played), at)?;
        let mut image = state.draw(self.rng.draw());
        if self.rng.one_in(3) {
            self.summary.again += 1;
            image = self.crash_recovery(&image)?;
        }
        if self.rng.one_in(4) {
            self.summary.repairs += 1;
            image = self.crash_repair(&image)?;
        }
        let Recovered { mount, observed } = recover(&image)?;
        let possible = played.possible(at);
        let found = played.states_like(&observed).into_iter().find(|calls| possible.contains(calls));
        let found = found.ok_or_else(|| played.explain(&observed, &possible))?;
        self.posix = played.states[found].posix.clone();
        ensure!(mount.inode_count() == self.posix.inode_count(), "inodes without a name are left");
        self.summary.lost += (possible.end() - found) as u64;
        self.base = image;
        Ok(())
    }

    /// A crash has damaged nothing, so that a repair has nothing to do but to execute the log.
    fn crash_repair(&mut self, image: &CrashImage) -> Result<CrashImage, Violation> {
        let medium = restart(image);
        let lines = repair(Arc::clone(&medium))?;
        // A call that the tree refused may be in the log: recovery ends the log there, and a repair leaves it out.
        if lines.iter().any(|line| line.contains("an operation of the log is refused")) {
            return Ok(image.clone());
        }
        ensure!(lines.is_empty(), "a repair after a crash has changed something: {lines:?}");
        let all = medium.ops().total();
        let medium = restart(image);
        medium.freeze_at(self.rng.below(all + 1));
        repair(Arc::clone(&medium))?;
        self.drawn(&medium)
    }

    fn crash_recovery(&mut self, image: &CrashImage) -> Result<CrashImage, Violation> {
        let all = Mount::open(restart(image))?.media.ops().total();
        let medium = restart(image);
        medium.freeze_at(self.rng.below(all + 1));
        drop(Mount::open(Arc::clone(&medium))?);
        self.drawn(&medium)
    }

    /// What the crash that was chosen for a medium has left.
    fn drawn(&mut self, medium: &SimMedia) -> Result<CrashImage, Violation> {
        let state = medium.frozen().ok_or_else(|| Violation("the medium has seen less operations".into()))?;
        Ok(state.draw(self.rng.draw()))
    }
}

fn one<T: Copy>(rng: &mut Rng, of: &[T]) -> T {
    of[rng.below(of.len() as u64) as usize]
}

fn path(rng: &mut Rng) -> String {
    let directory = if rng.one_in(2) { "" } else { one(rng, &DIRECTORIES) };
    join(directory, one(rng, &NAMES))
}

/// At a block now and then.
fn offset(rng: &mut Rng) -> u64 {
    let offset = rng.below(FILE_BYTES);
    if rng.one_in(2) { offset / BLOCK * BLOCK } else { offset }
}

fn step(rng: &mut Rng) -> Step {
    match rng.below(32) {
        0..=2 => Step::Persist(Persist::Sync),
        3..=5 => Step::Persist(Persist::Fsync(one(rng, &DIRECTORIES).to_owned())),
        6..=7 => Step::Persist(Persist::Fdatasync(path(rng))),
        8..=9 => Step::Publish,
        10 => Step::Compact,
        _ => Step::Call(call(rng)),
    }
}

fn call(rng: &mut Rng) -> Call {
    let [path, to] = [path(rng), path(rng)];
    match rng.below(24) {
        0..=3 => Call::Create { path },
        4..=5 => Call::Mkdir { path: one(rng, &DIRECTORIES[1..]).to_owned() },
        6 => Call::Symlink { target: to, path },
        7 => Call::Link { from: path, to },
        8..=9 => Call::Unlink { path },
        10 => Call::Rmdir { path: one(rng, &DIRECTORIES[1..]).to_owned() },
        11..=12 => Call::Rename { from: path, to },
        13 => Call::Rename { from: one(rng, &DIRECTORIES[1..]).to_owned(), to },
        14..=18 => {
            let len = match rng.below(3) {
                0 => 1 + rng.below(200),
                1 => 1 + rng.below(9000),
                _ => BLOCK * (1 + rng.below(4)),
            };
            Call::Write { path, offset: offset(rng), bytes: Bytes::pattern(len, rng.draw()) }
        }
        19..=20 => Call::Truncate { path, size: offset(rng) },
        21 => allocation(rng, path),
        22 => Call::SetExtended { path, name: "user.x".into(), value: Bytes::pattern(100, rng.draw()) },
        _ => Call::RemoveExtended { path, name: "user.x".into() },
    }
}

fn allocation(rng: &mut Rng, path: String) -> Call {
    let modes = [
        falloc::RESERVE,
        falloc::KEEP_SIZE,
        falloc::PUNCH_HOLE | falloc::KEEP_SIZE,
        falloc::ZERO_RANGE,
        falloc::ZERO_RANGE | falloc::KEEP_SIZE,
        falloc::COLLAPSE_RANGE,
        falloc::INSERT_RANGE,
    ];
    Call::Allocate { path, mode: one(rng, &modes), offset: offset(rng), len: 1 + offset(rng) }
}
