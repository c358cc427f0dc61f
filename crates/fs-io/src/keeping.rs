//! Who keeps the heap of a mount, and how requests that wait for space learn what was done.

use crate::rounds::{Job, Rounds};
use std::sync::Arc;

/// Who keeps the heap: compaction, free runs, slabs, watermarks, memory.
pub enum Keeper {
    /// A thread of the session: nothing else is in the region.
    Session,
    /// The program, for other systems in the region, too. It has also reserved landing runs for the workers
    /// ([`landfall_heap::Heap::reserve_landing`]). A request that waits for space calls this, which wakes the program's
    /// thread; the thread answers by [`Keeping`].
    Program(Box<dyn Fn() + Send + Sync>),
}

/// How the program that keeps a session's heap answers requests that wait for space.
#[derive(Clone, Debug)]
pub struct Keeping {
    rounds: Arc<Rounds>,
}

impl Keeping {
    pub(crate) fn new(rounds: Arc<Rounds>) -> Self {
        Self { rounds }
    }

    /// The newest question for space.
    pub fn asked(&self) -> u64 {
        self.rounds.asked()
    }

    /// True while a question waits for an answer.
    pub fn is_asked(&self) -> bool {
        self.rounds.is_asked(Job::Keep)
    }

    /// There was nothing to do in a round that began when `asked` was the newest question.
    pub fn answer(&self, asked: u64) {
        self.rounds.answer(Job::Keep, asked);
    }

    /// There may be more space: requests try again.
    pub fn note_progress(&self) {
        self.rounds.note_progress();
    }

    /// Nobody keeps the heap any more: no question waits for an answer.
    pub fn end(&self) {
        self.rounds.end_answers(Job::Keep);
    }
}
