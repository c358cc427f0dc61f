//! Processors that are shared by whatever wants to run: each share in proportion to its weight, and none more than one processor
//! (generalized processor sharing, Parekh and Gallager 1993; Linux's scheduler comes close to it over some milliseconds).

/// The weight of a thread of the lowest priority, of one of the usual priority having 1: nice 19 and nice 0 (`sched(7)`).
pub(super) const LOWEST: f64 = 15.0 / 1024.0;

/// Work that is less than what rounding leaves, seconds.
const NOTHING: f64 = 1e-10;

/// Something that runs: the number of what it belongs to, and the work that is left, seconds of one processor.
#[derive(Clone, Copy, Debug)]
struct Task {
    of: usize,
    left: f64,
}

/// A program beside, each of whose threads could always run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct CoRunner {
    pub(super) threads: u32,
    pub(super) weight: f64,
    /// The factor by which work takes longer beside it: memory and caches are shared.
    pub(super) contention: f64,
}

/// The processors of one machine.
#[derive(Clone, Debug)]
pub(super) struct Processors {
    count: f64,
    tasks: Vec<Task>,
    beside: Option<CoRunner>,
    /// Seconds of processors that the program beside has had.
    had: f64,
}

impl Processors {
    pub(super) fn new(count: u32, beside: Option<CoRunner>) -> Self {
        Self { count: f64::from(count), tasks: Vec::new(), beside, had: 0.0 }
    }

    /// So many seconds of work begin.
    pub(super) fn begin(&mut self, of: usize, seconds: f64) {
        assert!(seconds.is_finite(), "work without end");
        let contention = self.beside.map_or(1.0, |beside| beside.contention);
        self.tasks.push(Task { of, left: seconds * contention });
    }

    /// The processors that each task has now.
    fn share(&self) -> f64 {
        let tasks = self.tasks.len() as f64;
        let weights = tasks + self.beside.map_or(0.0, |beside| f64::from(beside.threads) * beside.weight);
        (self.count / weights).min(1.0)
    }

    /// The seconds until a task is done, if any runs.
    pub(super) fn until_done(&self) -> Option<f64> {
        let least = self.tasks.iter().map(|task| task.left).min_by(f64::total_cmp)?;
        Some(least / self.share())
    }

    /// Time goes on. Returns what is done.
    pub(super) fn go_on(&mut self, seconds: f64) -> Vec<usize> {
        let share = self.share();
        if let Some(beside) = self.beside {
            let left = self.count - share * self.tasks.len() as f64;
            self.had += left.min(f64::from(beside.threads)) * seconds;
        }
        self.tasks.iter_mut().for_each(|task| task.left -= share * seconds);
        let is_done = |task: &Task| task.left <= NOTHING;
        let done = self.tasks.iter().filter(|task| is_done(task)).map(|task| task.of).collect();
        self.tasks.retain(|task| !is_done(task));
        done
    }

    /// How often as long a round of the program beside takes in so many seconds as it would alone; `None` if there is none.
    pub(super) fn slowdown(&self, seconds: f64) -> Option<f64> {
        let beside = self.beside?;
        Some(f64::from(beside.threads).min(self.count) * seconds / self.had)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAME: CoRunner = CoRunner { threads: 2, weight: 1.0, contention: 1.0 };

    #[test]
    fn a_task_has_a_processor_and_three_share_two() {
        let mut processors = Processors::new(2, None);
        assert_eq!(processors.until_done(), None);
        processors.begin(7, 1.0);
        assert_eq!(processors.until_done(), Some(1.0));
        processors.begin(8, 2.0);
        processors.begin(9, 3.0);
        assert_eq!(processors.until_done(), Some(1.5));
        assert_eq!(processors.go_on(1.5), [7]);
        assert_eq!(processors.go_on(1.0), [8]);
        assert_eq!(processors.go_on(0.5), Vec::<usize>::new());
        assert_eq!(processors.go_on(0.5), [9]);
    }

    #[test]
    fn what_runs_beside_with_the_same_weight_takes_its_share() {
        let mut processors = Processors::new(2, Some(SAME));
        processors.begin(0, 1.0);
        processors.begin(1, 1.0);
        assert_eq!(processors.until_done(), Some(2.0));
        assert_eq!(processors.go_on(2.0), [0, 1]);
        // Half of the processors for two seconds, and all of them for another two.
        processors.go_on(2.0);
        assert_eq!(processors.slowdown(4.0), Some(8.0 / 6.0));
    }

    #[test]
    fn one_task_leaves_a_processor_to_what_runs_beside() {
        let mut processors = Processors::new(2, Some(CoRunner { threads: 1, ..SAME }));
        processors.begin(0, 1.0);
        assert_eq!(processors.until_done(), Some(1.0));
        processors.go_on(1.0);
        assert_eq!(processors.slowdown(1.0), Some(1.0));
        assert_eq!(Processors::new(2, None).slowdown(1.0), None);
    }

    #[test]
    fn the_lowest_priority_leaves_nearly_all_but_memory_is_shared() {
        let mut processors = Processors::new(2, Some(CoRunner { weight: LOWEST, contention: 1.5, ..SAME }));
        processors.begin(0, 1.0);
        processors.begin(1, 1.0);
        let until = processors.until_done().unwrap();
        assert!((1.5..1.53).contains(&until), "{until}");
    }
}
