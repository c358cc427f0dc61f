//! How a request waits for space: both background threads do a round, and it tries again.

use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// A step of publishing that takes longer waits for another machine, or for a medium that is slow.
const HELD_UP_AFTER: Duration = Duration::from_secs(1);

/// The background threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Job {
    /// Publishes operations: what they deleted becomes free.
    Publish = 0,
    /// Keeps the heap: compaction makes free runs.
    Keep = 1,
}

/// Rounds of the background threads, and who waits for them.
#[derive(Debug, Default)]
pub(crate) struct Rounds {
    /// Number of the newest question for space.
    asked: AtomicU64,
    /// The newest question that each thread has answered: since it was asked, the thread has found nothing to do.
    answered: [AtomicU64; 2],
    is_stopping: AtomicBool,
    /// When the step of publishing began that is under way.
    publishing_since: Mutex<Option<Instant>>,
    progress: Mutex<u64>,
    changed: Condvar,
    threads: Mutex<Vec<Thread>>,
    /// Wakes the thread that keeps the heap, where that is none of the session's.
    wake_keeper: Option<WakeKeeper>,
}

/// Wakes the thread that keeps the heap.
struct WakeKeeper(Box<dyn Fn() + Send + Sync>);

impl std::fmt::Debug for WakeKeeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WakeKeeper").finish_non_exhaustive()
    }
}

impl Rounds {
    /// Rounds of a session whose heap the program keeps. `wake` ends a pause of the program's thread.
    pub(crate) fn beside(wake: Box<dyn Fn() + Send + Sync>) -> Self {
        Self { wake_keeper: Some(WakeKeeper(wake)), ..Self::default() }
    }

    /// The thread ends: it answers every question.
    pub(crate) fn end_answers(&self, job: Job) {
        self.answered[job as usize].store(u64::MAX, Ordering::Release);
        self.note_progress();
    }

    /// Asks for space. Returns the question.
    pub(crate) fn ask(&self) -> u64 {
        let question = self.asked.fetch_add(1, Ordering::AcqRel) + 1;
        self.wake();
        question
    }

    /// The newest question.
    pub(crate) fn asked(&self) -> u64 {
        self.asked.load(Ordering::Acquire)
    }

    /// True while a question waits for an answer of the thread.
    pub(crate) fn is_asked(&self, job: Job) -> bool {
        self.answered[job as usize].load(Ordering::Acquire) < self.asked()
    }

    /// The thread had nothing to do in a round that it began when `asked` was the newest question. The heap's thread comes
    /// second: what was published may be compacted.
    pub(crate) fn answer(&self, job: Job, asked: u64) {
        let published = self.answered[Job::Publish as usize].load(Ordering::Acquire);
        let asked = if job == Job::Keep { asked.min(published) } else { asked };
        self.answered[job as usize].fetch_max(asked, Ordering::AcqRel);
        self.note_progress();
    }

    /// True if both threads have answered the question: there will be no more space.
    pub(crate) fn is_answered(&self, question: u64) -> bool {
        self.answered.iter().all(|answered| answered.load(Ordering::Acquire) >= question)
    }

    /// A step of publishing, which may wait for long.
    pub(crate) fn publish<T>(&self, step: impl FnOnce() -> T) -> T {
        self.publish_since(Instant::now(), step)
    }

    /// As [`Self::publish`], of a step that began then.
    pub(crate) fn publish_since<T>(&self, begun: Instant, step: impl FnOnce() -> T) -> T {
        *self.publishing_since.lock() = Some(begun);
        let done = step();
        *self.publishing_since.lock() = None;
        done
    }

    /// True while a step of publishing takes long: no question is answered meanwhile.
    pub(crate) fn is_held_up(&self) -> bool {
        self.publishing_since.lock().is_some_and(|since| since.elapsed() >= HELD_UP_AFTER)
    }

    /// Something has changed: who waits tries again.
    pub(crate) fn note_progress(&self) {
        *self.progress.lock() += 1;
        self.changed.notify_all();
    }

    /// The number of changes so far.
    pub(crate) fn progress(&self) -> u64 {
        *self.progress.lock()
    }

    /// Waits for a change after `seen`, for some time at most.
    pub(crate) fn wait(&self, seen: u64, limit: Duration) {
        let mut progress = self.progress.lock();
        if *progress == seen {
            self.changed.wait_for(&mut progress, limit);
        }
    }

    /// The calling thread is one of the background.
    pub(crate) fn join_in(&self) {
        self.threads.lock().push(std::thread::current());
    }

    fn wake(&self) {
        self.threads.lock().iter().for_each(Thread::unpark);
        self.wake_keeper.iter().for_each(|WakeKeeper(wake)| wake());
    }

    /// Ends the background threads.
    pub(crate) fn stop(&self) {
        self.is_stopping.store(true, Ordering::Release);
        self.wake();
    }

    /// True once the background threads are to end.
    pub(crate) fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_answered_when_the_heap_was_kept_after_publishing() {
        let rounds = Rounds::default();
        let question = rounds.ask();
        rounds.answer(Job::Keep, question);
        assert!(rounds.is_asked(Job::Keep), "what is published later may be compacted");
        rounds.answer(Job::Publish, question);
        assert!(!rounds.is_answered(question));
        rounds.answer(Job::Keep, question);
        assert!(rounds.is_answered(question));
        assert!(!rounds.is_answered(rounds.ask()));
    }

    #[test]
    fn a_keeper_of_the_program_is_woken_and_holds_nobody_up_when_it_has_ended() {
        let (sent, woken) = std::sync::mpsc::sync_channel(4);
        let rounds = Rounds::beside(Box::new(move || sent.send(()).expect("the test waits")));
        let question = rounds.ask();
        assert!(woken.try_recv().is_ok());
        rounds.answer(Job::Publish, question);
        assert!(!rounds.is_answered(question));
        rounds.end_answers(Job::Keep);
        assert!(rounds.is_answered(question));
        let next = rounds.ask();
        rounds.answer(Job::Publish, next);
        assert!(rounds.is_answered(next));
    }

    #[test]
    fn what_has_changed_already_is_not_waited_for() {
        let rounds = Rounds::default();
        let seen = rounds.progress();
        rounds.note_progress();
        rounds.wait(seen, Duration::MAX);
        assert_eq!(rounds.progress(), seen + 1);
    }
}
