//! A seeded campaign over the engine: run a workload, crash, recover, judge the result, and continue. Recovery may
//! crash, too.

use crate::observe::{observe, recover};
use crate::op::{Op, Workload};
use crate::oracle::State;
use crate::rng::Rng;
use crate::violation::Violation;
use crate::world::{Setup, World};
use landfall_heap::layout::GROUP_RECORDS_MAX;
use landfall_media::sim::{CrashImage, CrashState, SimMedia};
use landfall_media::{Media, Site};
use std::sync::Arc;

/// Most crashes of recovery before it completes.
const RECOVERY_CRASHES_MAX: usize = 3;

/// Length of a campaign, and the fault that is built in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Number of crashes.
    pub crashes: usize,
    /// Most operations between two crashes.
    pub ops_max: usize,
    /// A flush or fence that is left out; the campaign must fail then. `None`: nothing is left out.
    pub skip: Option<Site>,
}

/// Counts of a campaign.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Operations executed.
    pub ops: u64,
    /// Crashes.
    pub crashes: u64,
    /// Crashes in the middle of recovery.
    pub recovery_crashes: u64,
    /// Clean restarts.
    pub restarts: u64,
    /// Crash images recovered and judged.
    pub images: u64,
    /// Records that the compactor moved.
    pub moved: u64,
    /// Slabs that the compactor freed.
    pub freed_slabs: u64,
}

/// A campaign drawn from one seed.
pub struct Campaign {
    plan: Plan,
    rng: Rng,
    world: World,
    workload: Workload,
    summary: Summary,
    /// Operations since the last crash, for the report of a violation.
    history: Vec<Op>,
}

impl Campaign {
    /// Runs the campaign of `seed`.
    ///
    /// # Errors
    /// The first state or answer that the rules do not allow.
    pub fn run(seed: u64, plan: Plan) -> Result<Summary, Violation> {
        let mut campaign = Self::new(seed, plan)?;
        for crash in 0..plan.crashes {
            campaign.history.clear();
            let round = campaign.round();
            round.map_err(|violation| campaign.explain(violation).during(format!("round {crash}")))?;
        }
        campaign.end().map_err(|violation| violation.during("the end of the campaign"))?;
        Ok(campaign.summary)
    }

    fn new(seed: u64, plan: Plan) -> Result<Self, Violation> {
        let mut rng = Rng::new(seed);
        let (runs, writers) = (rng.between(32, 36) as u32, rng.between(1, 2));
        let deferred = rng.one_in(2);
        let sums = !deferred && rng.one_in(2);
        // Half of the runs have transactions of few records beside groups.
        let group_max = if rng.one_in(2) { rng.between(0, 3) } else { GROUP_RECORDS_MAX };
        let setup = Setup { runs, writers, deferred, sums, group_max };
        let world = World::create(setup, |media| skip_site(media, plan.skip))?;
        let workload = Workload::new(rng.draw(), setup.writers, setup.deferred);
        Ok(Self { plan, rng, world, workload, summary: Summary::default(), history: Vec::new() })
    }

    /// Adds the operations since the last crash to a violation.
    fn explain(&self, violation: Violation) -> Violation {
        let ops: Vec<String> = self.history.iter().map(|op| format!("  {op:?}")).collect();
        Violation(format!("{violation}\n{:?}, since the last crash:\n{}", self.world.setup(), ops.join("\n")))
    }

    /// Executes some operations, then crashes between two operations or in the middle of one, or restarts.
    fn round(&mut self) -> Result<(), Violation> {
        let ops = self.rng.between(1, self.plan.ops_max);
        for _ in 0..ops {
            self.op()?;
        }
        match self.rng.below(8) {
            0 => return self.restart(),
            1 | 2 => {}
            _ => self.work_until_frozen()?,
        }
        let state = self.world.media.frozen().unwrap_or_else(|| self.world.media.crash_state());
        self.crash(&state)
    }

    fn op(&mut self) -> Result<(), Violation> {
        self.summary.ops += 1;
        let op = self.workload.next();
        self.history.push(op.clone());
        self.world.run(&op)?;
        if self.summary.ops.is_multiple_of(16) {
            self.world.check_durable()?;
        }
        Ok(())
    }

    /// Executes operations until the medium has frozen a crash state in the middle of one.
    fn work_until_frozen(&mut self) -> Result<(), Violation> {
        let ahead = 1 + if self.rng.one_in(2) { self.rng.below(12) } else { self.rng.below(400) };
        self.world.media.freeze_at(self.world.media.ops().total() + ahead);
        for _ in 0..100 {
            self.op()?;
            if self.world.media.frozen().is_some() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Recovers one or two images of the crash, judges each, and continues with the last.
    fn crash(&mut self, state: &CrashState) -> Result<(), Violation> {
        self.summary.crashes += 1;
        if self.rng.one_in(2) {
            let image = state.draw(self.rng.draw());
            self.recover_image(image).map(|_| ())?;
        }
        let image = state.draw(self.rng.draw());
        let (media, found) = self.recover_image(image)?;
        self.resume(media, &found)
    }

    /// Recovers an image, with crashes of recovery in between, and judges the result.
    fn recover_image(&mut self, mut image: CrashImage) -> Result<(Arc<SimMedia>, State), Violation> {
        self.summary.images += 1;
        for _ in 0..self.rng.between(0, RECOVERY_CRASHES_MAX) {
            image = self.crash_recovery(&image)?;
        }
        let media = self.medium(&image);
        let found = self.judged(&media)?;
        Ok((media, found))
    }

    /// Crashes during the recovery of `image`, and returns an image that the crash may leave.
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
        skip_site(&media, self.plan.skip);
        media
    }

    fn judged(&self, media: &Arc<SimMedia>) -> Result<State, Violation> {
        let media: Arc<dyn Media> = Arc::clone(media) as Arc<dyn Media>;
        let engine = recover(&media)?;
        let found = observe(&engine, self.world.now_ms)?;
        self.world.oracle.judge(&found, self.world.now_ms)?;
        crate::recount::recount(&engine, 0)?;
        Ok(found)
    }

    /// Continues with a region that was recovered and judged. Opening it again tests one more restart.
    fn resume(&mut self, media: Arc<SimMedia>, found: &State) -> Result<(), Violation> {
        self.count_compacted();
        let mut oracle = self.world.oracle.clone();
        oracle.collapse(found);
        self.world = World::open(self.world.setup(), media, oracle, self.world.now_ms)?;
        self.world.check()?;
        self.world.recount()
    }

    fn count_compacted(&mut self) {
        self.summary.moved += self.world.compacted.moved_records;
        self.summary.freed_slabs += self.world.compacted.freed_slabs;
    }

    /// Restarts cleanly, as a server does.
    fn restart(&mut self) -> Result<(), Violation> {
        self.summary.restarts += 1;
        self.world.commit_all()?;
        self.world.recount().map_err(|violation| violation.during("before a restart"))?;
        if self.rng.one_in(2) {
            self.world.engine.heap().mark_slabs(1)?;
        }
        let image = self.world.media.crash_state().durable();
        let (media, found) = self.recover_image(image)?;
        self.resume(media, &found)
    }

    /// Checks for leaks: once everything is deleted and compacted, every data run must be free.
    fn end(&mut self) -> Result<(), Violation> {
        self.world.commit_all()?;
        self.world.recount()?;
        self.world.empty()
    }
}

pub(crate) fn skip_site(media: &SimMedia, skip: Option<Site>) {
    if let Some(site) = skip {
        media.skip_site(site);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn recovery_crashes_up_to_the_named_number_of_times() {
        let plan = Plan { crashes: 1, ops_max: 10, skip: None };
        let mut campaign = Campaign::new(1, plan).unwrap();
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
