//! What happens at simulated machines, and when: threads that do one job after the other, devices, links, and timers.

use super::processors::{CoRunner, Processors};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// One step of a job.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Step {
    /// Work of a processor, seconds.
    Work(f64),
    /// The machine's device is busy for so many seconds. Who comes later waits.
    Device(f64),
    /// So many seconds pass.
    Pass(f64),
}

/// Steps one after the other, and what is said when they are done.
#[derive(Debug)]
struct Job<E> {
    steps: VecDeque<Step>,
    then: E,
}

/// A thread: its machine, and the jobs that it does one after the other.
#[derive(Debug)]
struct Thread<E> {
    machine: usize,
    jobs: VecDeque<Job<E>>,
}

/// What a timer stands for.
#[derive(Debug)]
enum Alarm<E> {
    /// A thread's step is over.
    Step(usize),
    /// Something arrives.
    Event(E),
}

/// A point in time, seconds, in its order, and the number of what happens then. Of two at the same time the first one that was
/// set comes first.
#[derive(Clone, Copy, Debug)]
struct At(f64, usize);

impl PartialEq for At {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for At {}

impl PartialOrd for At {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for At {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0).then(self.1.cmp(&other.1))
    }
}

/// A machine.
#[derive(Debug)]
struct Machine {
    processors: Processors,
    /// When its device, and its link, will have done what there is to do.
    device_free: f64,
    link_free: f64,
}

/// All machines. `E` is what happens there.
#[derive(Debug)]
pub(super) struct Engine<E> {
    now: f64,
    machines: Vec<Machine>,
    threads: Vec<Thread<E>>,
    alarms: BinaryHeap<Reverse<At>>,
    /// By number.
    set: Vec<Option<Alarm<E>>>,
    happened: VecDeque<E>,
}

impl<E> Engine<E> {
    /// Machines with so many processors, and what runs beside.
    pub(super) fn new(machines: impl IntoIterator<Item = (u32, Option<CoRunner>)>) -> Self {
        let machine = |(count, beside)| {
            let processors = Processors::new(count, beside);
            Machine { processors, device_free: 0.0, link_free: 0.0 }
        };
        Self {
            now: 0.0,
            machines: machines.into_iter().map(machine).collect(),
            threads: Vec::new(),
            alarms: BinaryHeap::new(),
            set: Vec::new(),
            happened: VecDeque::new(),
        }
    }

    /// Seconds since the beginning.
    pub(super) fn now(&self) -> f64 {
        self.now
    }

    /// A further thread at a machine.
    pub(super) fn thread(&mut self, machine: usize) -> usize {
        self.threads.push(Thread { machine, jobs: VecDeque::new() });
        self.threads.len() - 1
    }

    /// A thread is to do something, when it has done all that it was given before.
    pub(super) fn run(&mut self, thread: usize, steps: impl IntoIterator<Item = Step>, then: E) {
        let jobs = &mut self.threads[thread].jobs;
        jobs.push_back(Job { steps: steps.into_iter().collect(), then });
        if jobs.len() == 1 {
            self.go_on(thread);
        }
    }

    /// A message of so many seconds of a machine's link, which takes a further time until it is there.
    pub(super) fn send(&mut self, machine: usize, seconds: f64, delay: f64, then: E) {
        let link_free = &mut self.machines[machine].link_free;
        *link_free = link_free.max(self.now) + seconds;
        let at = *link_free + delay;
        self.set_alarm(at, Alarm::Event(then));
    }

    /// What happens next; `None` if nothing is left to do.
    pub(super) fn next(&mut self) -> Option<E> {
        loop {
            if let Some(event) = self.happened.pop_front() {
                return Some(event);
            }
            self.pass_time()?;
        }
    }

    /// How often as long what runs beside at a machine has taken as alone.
    pub(super) fn slowdown(&self, machine: usize) -> Option<f64> {
        self.machines[machine].processors.slowdown(self.now)
    }

    fn set_alarm(&mut self, at: f64, alarm: Alarm<E>) {
        self.alarms.push(Reverse(At(at, self.set.len())));
        self.set.push(Some(alarm));
    }

    /// The thread's next step, or its next job.
    fn go_on(&mut self, thread: usize) {
        loop {
            let Thread { machine, jobs } = &mut self.threads[thread];
            let Some(job) = jobs.front_mut() else { return };
            let at = &mut self.machines[*machine];
            match job.steps.pop_front() {
                None => {
                    self.happened.extend(jobs.pop_front().map(|job| job.then));
                    continue;
                }
                Some(Step::Work(seconds)) => at.processors.begin(thread, seconds),
                Some(Step::Device(seconds)) => {
                    at.device_free = at.device_free.max(self.now) + seconds;
                    let until = at.device_free;
                    self.set_alarm(until, Alarm::Step(thread));
                }
                Some(Step::Pass(seconds)) => self.set_alarm(self.now + seconds, Alarm::Step(thread)),
            }
            return;
        }
    }

    /// Until the next thing is over.
    fn pass_time(&mut self) -> Option<()> {
        let work = self.machines.iter().filter_map(|machine| machine.processors.until_done());
        let work = work.min_by(f64::total_cmp).map(|seconds| self.now + seconds);
        let alarm = self.alarms.peek().map(|Reverse(At(at, _))| *at);
        let until = work.into_iter().chain(alarm).min_by(f64::total_cmp)?;
        let seconds = until - self.now;
        self.now = until;
        let done: Vec<usize> =
            self.machines.iter_mut().flat_map(|machine| machine.processors.go_on(seconds)).collect();
        done.into_iter().for_each(|thread| self.go_on(thread));
        while let Some(Reverse(At(at, number))) = self.alarms.peek().copied() {
            if at > self.now {
                break;
            }
            self.alarms.pop();
            match self.set[number].take() {
                Some(Alarm::Step(thread)) => self.go_on(thread),
                Some(Alarm::Event(event)) => self.happened.push_back(event),
                None => {}
            }
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(mut engine: Engine<&'static str>) -> Vec<(f64, &'static str)> {
        std::iter::from_fn(|| engine.next().map(|event| (engine.now(), event))).collect()
    }

    #[test]
    fn a_thread_does_one_job_after_the_other_and_machines_work_side_by_side() {
        let mut engine = Engine::new([(1, None), (1, None)]);
        let (first, second) = (engine.thread(0), engine.thread(1));
        engine.run(first, [Step::Work(1.0), Step::Pass(1.0)], "one");
        engine.run(first, [Step::Work(1.0)], "two");
        engine.run(second, [Step::Work(1.5)], "beside");
        assert_eq!(all(engine), [(1.5, "beside"), (2.0, "one"), (3.0, "two")]);
    }

    #[test]
    fn threads_of_a_machine_wait_for_its_device_and_messages_for_its_link() {
        let mut engine = Engine::new([(2, None)]);
        for name in ["one", "two"] {
            let thread = engine.thread(0);
            engine.run(thread, [Step::Device(1.0)], name);
        }
        engine.send(0, 1.5, 0.25, "message");
        engine.send(0, 1.5, 0.25, "the next one");
        let expected = [(1.0, "one"), (1.75, "message"), (2.0, "two"), (3.25, "the next one")];
        assert_eq!(all(engine), expected);
    }

    #[test]
    fn what_runs_beside_is_asked_for_by_machine() {
        let same = CoRunner { threads: 1, weight: 1.0, contention: 1.0 };
        let mut engine = Engine::new([(1, Some(same)), (1, None)]);
        let thread = engine.thread(0);
        engine.run(thread, [Step::Work(1.0)], "done");
        assert_eq!(engine.next(), Some("done"));
        assert_eq!((engine.now(), engine.slowdown(0), engine.slowdown(1)), (2.0, Some(2.0), None));
    }
}
