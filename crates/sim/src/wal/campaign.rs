//! A seeded campaign over logs: run a workload, crash, recover, judge the result, and continue. Recovery may crash,
//! too.

use super::op::{LogOp, LogWorkload};
use super::oracle::LogsState;
use super::world::{WalWorld, observe, open};
use crate::campaign::{Plan, skip_site};
use crate::joined::Leaves;
use crate::rng::Rng;
use crate::violation::Violation;
use crate::world::Setup;
use landfall_heap::layout::GROUP_RECORDS_MAX;
use landfall_media::RUN_SIZE;
use landfall_media::sim::{CrashImage, CrashState, SimMedia};
use std::sync::Arc;

/// Most crashes of recovery before it completes.
const RECOVERY_CRASHES_MAX: usize = 2;
/// Bytes of a paged region that may be in memory: so few that each run taken makes others leave.
const MEMORY: u64 = 4 * RUN_SIZE;
/// Most operations that are executed to reach a crash in the middle of one.
const FREEZE_OPS_MAX: usize = 60;

/// Counts of a campaign.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WalSummary {
    /// Operations executed.
    pub ops: u64,
    /// Crashes.
    pub crashes: u64,
    /// Crashes in the middle of recovery.
    pub recovery_crashes: u64,
    /// Crash images recovered and judged.
    pub images: u64,
    /// Records that the compactor moved.
    pub moved: u64,
    /// Entries found after crashes, added up.
    pub entries: u64,
}

/// A campaign drawn from one seed.
pub struct WalCampaign {
    plan: Plan,
    leaves: Leaves,
    /// A part of the region is in memory.
    is_paged: bool,
    rng: Rng,
    world: WalWorld,
    workload: LogWorkload,
    summary: WalSummary,
    /// Operations since the last crash, for the report of a violation.
    history: Vec<LogOp>,
}

impl WalCampaign {
    /// Runs the campaign of `seed`.
    ///
    /// # Errors
    /// The first state or answer that the rules do not allow.
    pub fn run(seed: u64, plan: Plan, leaves: Leaves) -> Result<WalSummary, Violation> {
        let mut campaign = Self::new(seed, plan, leaves)?;
        for crash in 0..plan.crashes {
            campaign.history.clear();
            let round = campaign.round();
            round.map_err(|violation| campaign.explain(violation).during(format!("round {crash}")))?;
        }
        campaign.world.empty().map_err(|violation| violation.during("the end of the campaign"))?;
        Ok(campaign.summary)
    }

    fn new(seed: u64, plan: Plan, leaves: Leaves) -> Result<Self, Violation> {
        let mut rng = Rng::new(seed);
        let setup = Setup {
            runs: rng.between(32, 36) as u32,
            writers: rng.between(1, 2),
            deferred: rng.one_in(2),
            sums: false,
            group_max: GROUP_RECORDS_MAX,
        };
        let is_paged = rng.one_in(2);
        let mut world = WalWorld::create(setup, |media| prepare(media, plan, is_paged))?;
        world.leaves = leaves;
        let workload = LogWorkload::new(rng.draw(), setup.writers, setup.deferred);
        let (summary, history) = (WalSummary::default(), Vec::new());
        Ok(Self { plan, leaves, is_paged, rng, world, workload, summary, history })
    }

    fn explain(&self, violation: Violation) -> Violation {
        let ops: Vec<String> = self.history.iter().map(|op| format!("  {op:?}")).collect();
        Violation(format!("{violation}\n{:?}, since the last crash:\n{}", self.world.setup(), ops.join("\n")))
    }

    fn op(&mut self) -> Result<(), Violation> {
        self.summary.ops += 1;
        let op = self.workload.next();
        self.history.push(op.clone());
        self.world.run(&op)
    }

    /// Executes some operations, then crashes between two operations or in the middle of one.
    fn round(&mut self) -> Result<(), Violation> {
        for _ in 0..self.rng.between(1, self.plan.ops_max) {
            self.op()?;
        }
        match self.rng.below(8) {
            0 => self.world.commit_all()?,
            1 | 2 => {}
            _ => self.work_until_frozen()?,
        }
        let state = self.world.media.frozen().unwrap_or_else(|| self.world.media.crash_state());
        self.crash(&state)
    }

    fn work_until_frozen(&mut self) -> Result<(), Violation> {
        let ahead = 1 + if self.rng.one_in(2) { self.rng.below(12) } else { self.rng.below(300) };
        self.world.media.freeze_at(self.world.media.ops().total() + ahead);
        for _ in 0..FREEZE_OPS_MAX {
            self.op()?;
            if self.world.media.frozen().is_some() {
                break;
            }
        }
        Ok(())
    }

    /// Recovers one or two images of the crash, judges each, and continues with the last.
    fn crash(&mut self, state: &CrashState) -> Result<(), Violation> {
        self.summary.crashes += 1;
        if self.rng.one_in(2) {
            let image = state.draw(self.rng.draw());
            self.recover_image(image)?;
        }
        let image = state.draw(self.rng.draw());
        let (media, found) = self.recover_image(image)?;
        self.summary.moved += self.world.compacted.moved_records;
        self.summary.entries += found.values().map(|log| log.entries.len() as u64).sum::<u64>();
        let mut oracle = self.world.oracle.clone();
        oracle.collapse(&found);
        self.world = WalWorld::open(self.world.setup(), media, oracle, self.world.now_ms)?;
        self.world.leaves = self.leaves;
        self.world.check()
    }

    fn recover_image(&mut self, mut image: CrashImage) -> Result<(Arc<SimMedia>, LogsState), Violation> {
        self.summary.images += 1;
        for _ in 0..self.rng.between(0, RECOVERY_CRASHES_MAX) {
            image = self.crash_recovery(&image)?;
        }
        let media = self.medium(&image);
        let found = self.judged(&media)?;
        Ok((media, found))
    }

    fn crash_recovery(&mut self, image: &CrashImage) -> Result<CrashImage, Violation> {
        let media = self.medium(image);
        media.freeze_at(1 + self.rng.below(20));
        self.judged(&media)?;
        self.summary.recovery_crashes += 1;
        let state = media.frozen().unwrap_or_else(|| media.crash_state());
        Ok(state.draw(self.rng.draw()))
    }

    fn medium(&self, image: &CrashImage) -> Arc<SimMedia> {
        let media = self.world.medium(image);
        prepare(&media, self.plan, self.is_paged);
        media
    }

    fn judged(&self, media: &Arc<SimMedia>) -> Result<LogsState, Violation> {
        let (_engine, logs) = open(media)?;
        let found = observe(&logs)?;
        self.world.oracle.judge(&found)?;
        Ok(found)
    }
}

fn prepare(media: &SimMedia, plan: Plan, is_paged: bool) {
    skip_site(media, plan.skip);
    if is_paged {
        media.page(MEMORY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn recovery_crashes_up_to_the_named_number_of_times() {
        let plan = Plan { crashes: 1, ops_max: 10, skip: None };
        let mut campaign = WalCampaign::new(1, plan, Leaves::WhatMay).unwrap();
        (0..10).for_each(|_| campaign.op().unwrap());
        let image = campaign.world.media.crash_state().durable();
        let mut crashes = || {
            let before = campaign.summary.recovery_crashes;
            campaign.recover_image(image.clone()).unwrap();
            campaign.summary.recovery_crashes - before
        };
        let seen: BTreeSet<u64> = (0..30).map(|_| crashes()).collect();
        assert!(seen.into_iter().eq(0..=RECOVERY_CRASHES_MAX as u64));
    }
}
