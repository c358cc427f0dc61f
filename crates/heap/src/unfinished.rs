//! Space that incomplete requests hold. The receivers return it when a write finds no room.

use landfall_media::RUN_SIZE;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Most times that unfinished requests return half of what they hold for one writer, before it reports that the region
/// is full.
const HALVES_MAX: u64 = 8;

/// How the receivers of unfinished requests make room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Return {
    /// They copy together what is scattered over runs that nothing else fills. No request is lost for that, and a few bytes
    /// in each of many runs keep them all.
    #[default]
    Scattered,
    /// That, and half of what unfinished requests hold is given up.
    Half,
}

/// Bytes that unfinished requests hold, and requests to return them.
#[derive(Debug, Default)]
pub(crate) struct Unfinished {
    bytes: AtomicU64,
    /// A writer waits for space that unfinished requests hold.
    is_wanted: AtomicBool,
    /// Number of returns that have begun because a writer asked.
    begun: AtomicU64,
    returns: Mutex<Returns>,
}

/// One return at a time, by all receivers: as long as one of them has not answered, nobody knows what there is.
#[derive(Debug, Default)]
struct Returns {
    receivers: usize,
    /// What the next one is to ask for.
    wanted: Return,
    /// Receivers that have answered the latest one.
    answers: usize,
    /// The latest one, and what it asks for.
    begun: u64,
    asks_for: Return,
    /// Number of returns that all receivers have answered.
    ended: u64,
}

impl Returns {
    fn end_if_answered(&mut self) -> bool {
        let ends = self.ended < self.begun && self.answers >= self.receivers;
        if ends {
            self.ended = self.begun;
        }
        ends
    }
}

impl Unfinished {
    /// Notes that an incomplete request holds `now` bytes of the region, where it held `before`.
    pub(crate) fn note(&self, before: u64, now: u64) {
        if before != now {
            self.bytes.fetch_add(now.wrapping_sub(before), Ordering::Relaxed);
        }
    }

    /// Bytes of the region that incomplete requests hold.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// One more receiver answers returns from now on. The number of the latest one, which it need not answer.
    pub(crate) fn join(&self) -> u64 {
        let mut returns = self.returns.lock();
        returns.receivers += 1;
        if returns.ended < returns.begun {
            returns.answers += 1;
        }
        returns.begun
    }

    /// A receiver that has answered this return, and those before, answers no more.
    pub(crate) fn leave(&self, answered: u64) {
        let mut returns = self.returns.lock();
        returns.receivers -= 1;
        if returns.ended < returns.begun && answered == returns.begun {
            returns.answers -= 1;
        }
        returns.end_if_answered();
    }

    /// True if a writer has requested, since the last call, that unfinished requests return space, and a return begins.
    pub(crate) fn take_wanted(&self) -> bool {
        if !self.is_wanted.load(Ordering::Relaxed) || !self.is_wanted.swap(false, Ordering::AcqRel) {
            return false;
        }
        let mut returns = self.returns.lock();
        let wanted = std::mem::take(&mut returns.wanted);
        if returns.ended < returns.begun {
            // Whoever needs more when it has ended asks again.
            return false;
        }
        returns.asks_for = wanted;
        returns.begun += 1;
        returns.answers = 0;
        returns.end_if_answered();
        self.begun.store(returns.begun, Ordering::Release);
        true
    }

    /// What the latest return asks of a receiver that has answered those up to `answered`; `None`: nothing new.
    pub(crate) fn asked(&self, answered: &mut u64) -> Option<Return> {
        if self.begun.load(Ordering::Acquire) == *answered {
            return None;
        }
        let returns = self.returns.lock();
        *answered = returns.begun;
        Some(returns.asks_for)
    }

    /// A receiver has returned what the latest return asks for. True if it was the last one.
    pub(crate) fn answer(&self) -> bool {
        let mut returns = self.returns.lock();
        returns.answers += 1;
        returns.end_if_answered()
    }

    /// For one who finds no room: requests that unfinished requests return space. `since` is that of its first request,
    /// and `None` before. False if they hold too little, or have returned space often enough without success.
    pub(crate) fn ask(&self, since: &mut Option<u64>, most: Return) -> bool {
        let mut returns = self.returns.lock();
        let ended = returns.ended - (*since.get_or_insert(returns.begun)).min(returns.ended);
        let asks = match (ended, most) {
            (0, _) => self.bytes() > 0,
            (_, Return::Scattered) => false,
            (_, Return::Half) => self.bytes() >= RUN_SIZE && ended <= HALVES_MAX,
        };
        if asks {
            if ended > 0 {
                returns.wanted = Return::Half;
            }
            self.is_wanted.store(true, Ordering::Release);
        }
        asks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a writer asks for has happened when each receiver has answered, and not before.
    #[test]
    fn a_return_ends_when_all_receivers_have_answered() {
        let unfinished = Unfinished::default();
        unfinished.note(0, 3);
        let (mut first, mut second) = (unfinished.join(), unfinished.join());
        let mut since = None;
        let mut asks = || unfinished.ask(&mut since, Return::Half);
        assert!(asks() && unfinished.take_wanted());
        assert_eq!(unfinished.asked(&mut first), Some(Return::Scattered));
        assert_eq!(unfinished.asked(&mut first), None);
        assert!(!unfinished.answer() && asks(), "the second one has not answered");
        assert!(!unfinished.take_wanted(), "one at a time");
        assert_eq!(unfinished.asked(&mut second), Some(Return::Scattered));
        assert!(unfinished.answer() && !asks(), "three bytes are no reason to close a connection");
    }

    /// What was asked for while another return went on, which then sufficed, costs nobody a request later.
    #[test]
    fn each_return_asks_for_what_those_want_who_wait_for_it() {
        let unfinished = Unfinished::default();
        unfinished.note(0, 2 * RUN_SIZE);
        let mut receiver = unfinished.join();
        let (mut first, mut second, mut third) = (None, None, None);
        assert!(unfinished.ask(&mut first, Return::Half) && unfinished.take_wanted());
        assert!(unfinished.asked(&mut receiver).is_some() && unfinished.answer());
        assert!(unfinished.ask(&mut second, Return::Half) && unfinished.take_wanted());
        assert!(unfinished.ask(&mut first, Return::Half) && !unfinished.take_wanted());
        assert!(unfinished.asked(&mut receiver).is_some() && unfinished.answer());
        unfinished.note(2 * RUN_SIZE, 3);
        assert!(unfinished.ask(&mut third, Return::Half) && unfinished.take_wanted());
        assert_eq!(unfinished.asked(&mut receiver), Some(Return::Scattered));
    }

    #[test]
    fn a_receiver_that_ends_is_not_waited_for_and_one_that_begins_need_not_answer() {
        let unfinished = Unfinished::default();
        unfinished.note(0, 2 * RUN_SIZE);
        let (mut first, second) = (unfinished.join(), unfinished.join());
        let (mut since, mut other) = (None, None);
        assert!(unfinished.ask(&mut since, Return::Half) && unfinished.take_wanted());
        let third = unfinished.join();
        assert!(unfinished.asked(&mut first).is_some() && !unfinished.answer());
        unfinished.leave(first);
        unfinished.leave(third);
        assert!(unfinished.ask(&mut other, Return::Scattered));
        unfinished.leave(second);
        assert!(unfinished.ask(&mut since, Return::Half) && unfinished.take_wanted());
        let mut fourth = 0;
        assert_eq!(unfinished.asked(&mut fourth), Some(Return::Half), "what was scattered did not suffice");
        assert!(!unfinished.ask(&mut other, Return::Scattered), "another one had it returned");
    }
}
