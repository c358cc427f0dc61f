//! Bypasses of one session: put together, in their place behind updates, answered again.

use super::config::ServerConfig;
use super::long::Long;
use crate::pieces::{Assembly, Mark, Response};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Most bypasses of a session that are in pieces.
const PARTIAL_MAX: usize = 4;
/// Most bypasses of a session that wait for updates, or for the application.
const PENDING_MAX: usize = 64;

/// A whole bypass.
#[derive(Debug)]
pub(super) struct Request {
    /// Number in the session.
    pub(super) number: u32,
    /// The number as it was sent, which the response bears.
    pub(super) seq: u32,
    /// The update to wait for.
    pub(super) after: Option<u32>,
    pub(super) bytes: Vec<u8>,
}

/// What is known of a bypass.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Known<'a> {
    /// Nothing: it is to be executed.
    New,
    /// It may have been executed by an incarnation that is gone, with the response.
    Lost,
    /// It waits or is being executed, or was answered long ago.
    Busy,
    /// It was answered with this.
    Answered(&'a Response),
}

/// The session's bypasses.
#[derive(Debug)]
pub(super) struct Bypasses {
    /// Up to here bypasses may have been executed before this incarnation.
    pub(super) before: u32,
    /// The highest that was answered.
    pub(super) answered: u32,
    partial: BTreeMap<u32, Assembly>,
    waiting: BTreeMap<u32, Request>,
    /// Given to the application, or about to be.
    pub(super) busy: BTreeSet<u32>,
    pub(super) kept: VecDeque<(u32, Response)>,
    /// Which of those that are kept is beyond one window.
    pub(super) long: Option<Long>,
    kept_bytes: usize,
    /// Bytes of partial and waiting ones.
    bytes: usize,
}

impl Bypasses {
    /// None yet, behind `before`.
    pub(super) fn new(before: u32) -> Self {
        Self {
            before,
            answered: before,
            partial: BTreeMap::new(),
            waiting: BTreeMap::new(),
            busy: BTreeSet::new(),
            kept: VecDeque::new(),
            long: None,
            kept_bytes: 0,
            bytes: 0,
        }
    }

    /// Bytes of requests that wait.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The highest that was answered, or may have been executed before.
    pub(super) fn last(&self) -> u32 {
        self.answered
    }

    pub(super) fn known(&self, number: u32) -> Known<'_> {
        if let Some((_, response)) = self.kept.iter().find(|(kept, _)| *kept == number) {
            Known::Answered(response)
        } else if self.busy.contains(&number) || self.waiting.contains_key(&number) {
            Known::Busy
        } else if self.is_lost(number) {
            Known::Lost
        } else if number <= self.answered {
            Known::Busy
        } else {
            Known::New
        }
    }

    /// Whether a later one has come. A client has one bypass at a time, so it has the response to this one: a cache's, perhaps.
    /// Executed late, its response would take the place of the one that the client still waits for.
    pub(super) fn is_past(&self, number: u32) -> bool {
        let newest = [self.waiting.keys().next_back(), self.busy.last(), Some(&self.answered)];
        newest.into_iter().flatten().any(|newest| number < *newest) && !self.is_lost(number)
    }

    /// Whether it may have been executed before this incarnation.
    pub(super) fn is_lost(&self, number: u32) -> bool {
        number <= self.before
    }

    /// Takes a piece of a bypass; all of it with the last one.
    pub(super) fn piece(&mut self, number: u32, mark: Mark, index: u16, piece: &[u8]) -> Option<Vec<u8>> {
        let mut partial = match self.remove_partial(number) {
            Some(partial) if partial.mark() == mark => partial,
            _ => Assembly::new(mark),
        };
        partial.add(index, piece);
        if partial.is_whole() {
            return partial.into_bytes();
        }
        self.bytes += partial.bytes();
        self.partial.insert(number, partial);
        if self.partial.len() > PARTIAL_MAX {
            let oldest = *self.partial.keys().next().expect("there are several");
            self.remove_partial(oldest);
        }
        None
    }

    fn remove_partial(&mut self, number: u32) -> Option<Assembly> {
        let partial = self.partial.remove(&number)?;
        self.bytes -= partial.bytes();
        Some(partial)
    }

    /// The highest number, as it was sent, of those that wait for updates.
    pub(super) fn newest(&self) -> Option<u32> {
        self.waiting.values().next_back().map(|request| request.seq)
    }

    /// Whether another whole one may wait.
    pub(super) fn has_room(&self) -> bool {
        self.waiting.len() + self.busy.len() < PENDING_MAX
    }

    /// Has one wait for updates.
    pub(super) fn wait(&mut self, request: Request) {
        self.bytes += request.bytes.len();
        self.waiting.insert(request.number, request);
    }

    /// The first of those that need not wait any longer: every update below `next` is in front of them.
    pub(super) fn pop(&mut self, next: u32) -> Option<Request> {
        let ready = |request: &&Request| request.after.is_none_or(|after| after < next);
        let number = self.waiting.values().find(ready)?.number;
        let request = self.waiting.remove(&number)?;
        self.bytes -= request.bytes.len();
        self.busy.insert(number);
        Some(request)
    }

    /// One was answered.
    pub(super) fn keep(&mut self, number: u32, response: Response, config: &ServerConfig) {
        // A client has one bypass at a time: what it got before, it has.
        self.forget_long();
        self.busy.remove(&number);
        self.answered = self.answered.max(number);
        self.kept_bytes += response.bytes.len();
        self.kept.push_back((number, response));
        let too_many =
            |kept: usize, bytes| kept > config.responses_kept || bytes > config.responses_bytes_max;
        while self.kept.len() > 1 && too_many(self.kept.len(), self.kept_bytes) {
            let (_, response) = self.kept.pop_front().expect("there are several");
            self.kept_bytes -= response.bytes.len();
        }
    }

    pub(super) fn remove_kept(&mut self, number: u32) {
        if let Some(at) = self.kept.iter().position(|(kept, _)| *kept == number)
            && let Some((_, response)) = self.kept.remove(at)
        {
            self.kept_bytes -= response.bytes.len();
        }
    }

    /// Forgets those that are not answered, but for `busy` ones: they will come again.
    pub(super) fn forget_but(&mut self, busy: impl Iterator<Item = u32>) {
        self.partial.clear();
        self.waiting.clear();
        self.busy = busy.collect();
        self.bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::FIRST_BYPASS;

    fn response(bytes: &[u8]) -> Response {
        Response { bytes: bytes.to_vec(), check: 0 }
    }

    fn request(number: u32, after: Option<u32>) -> Request {
        Request { number, seq: number, after, bytes: vec![1, 2, 3] }
    }

    #[test]
    fn a_bypass_is_new_then_busy_then_answered() {
        let mut bypasses = Bypasses::new(FIRST_BYPASS + 4);
        let number = FIRST_BYPASS + 5;
        assert_eq!(bypasses.known(number), Known::New);
        bypasses.wait(request(number, Some(7)));
        assert_eq!(bypasses.known(number), Known::Busy);
        assert!(bypasses.pop(7).is_none());
        assert!(bypasses.pop(8).is_some());
        assert_eq!(bypasses.known(number), Known::Busy);
        bypasses.keep(number, response(b"OK"), &ServerConfig::default());
        assert_eq!(bypasses.known(number), Known::Answered(&response(b"OK")));
        assert_eq!(bypasses.known(number - 1), Known::Lost);
        assert_eq!(bypasses.bytes(), 0);
    }

    #[test]
    fn responses_are_kept_up_to_their_number_and_bytes_but_for_the_newest() {
        let config = ServerConfig { responses_kept: 2, responses_bytes_max: 10, ..ServerConfig::default() };
        let mut bypasses = Bypasses::new(FIRST_BYPASS - 1);
        let kept = |bypasses: &Bypasses| {
            let answered = |number: &u32| matches!(bypasses.known(*number), Known::Answered(_));
            (FIRST_BYPASS..FIRST_BYPASS + 4).filter(answered).count()
        };
        for (number, len, left) in [(0, 3, 1), (1, 3, 2), (2, 3, 2), (3, 11, 1)] {
            bypasses.keep(FIRST_BYPASS + number, response(&vec![0; len]), &config);
            assert_eq!(kept(&bypasses), left, "after {number}");
        }
        assert_eq!(bypasses.known(FIRST_BYPASS), Known::Busy, "answered once is not executed again");
    }

    #[test]
    fn pieces_make_a_bypass_and_the_oldest_of_too_many_go() {
        let mut bypasses = Bypasses::new(FIRST_BYPASS - 1);
        let mark = Mark { count: 2, total: 4, after: 0 };
        for number in 0..=PARTIAL_MAX as u32 {
            assert_eq!(bypasses.piece(FIRST_BYPASS + number, mark, 0, b"ab"), None);
        }
        assert_eq!(bypasses.bytes(), 2 * PARTIAL_MAX);
        assert_eq!(bypasses.piece(FIRST_BYPASS + 1, mark, 1, b"cd"), Some(b"abcd".to_vec()));
        assert_eq!(bypasses.piece(FIRST_BYPASS, mark, 1, b"cd"), None);
    }
}
