//! The bypasses of one session: reassembly, order relative to updates, and stored responses.

use super::config::ServerConfig;
use super::long::Long;
use crate::pieces::{Assembly, Mark, Response};
use crate::wire::FIRST_BYPASS;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::RangeInclusive;

/// Most incomplete bypasses of a session.
const PARTIAL_MAX: usize = 4;
/// Most bypasses of a session that wait for updates or for the application.
const PENDING_MAX: usize = 64;
/// No bypass has lost its response.
#[allow(clippy::reversed_empty_ranges)]
const NONE_LOST: RangeInclusive<u32> = 1..=0;

/// A complete bypass.
#[derive(Debug)]
pub(super) struct Request {
    /// Number in the session.
    pub(super) number: u32,
    /// The number in the packet, which the response repeats.
    pub(super) seq: u32,
    /// The update that must be applied first.
    pub(super) after: Option<u32>,
    pub(super) bytes: Vec<u8>,
}

/// State of a bypass.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Known<'a> {
    /// Not yet executed.
    New,
    /// Executed, or possibly executed by an earlier incarnation. Its response is lost.
    Lost,
    /// It waits, is being executed, or was answered long ago.
    Busy,
    /// Answered. The response is stored.
    Answered(&'a Response),
}

/// The state of all bypasses of a session.
#[derive(Debug)]
pub(super) struct Bypasses {
    /// Bypasses of this session that were or may have been executed, and whose responses are lost.
    pub(super) lost: RangeInclusive<u32>,
    /// The highest number that was answered.
    pub(super) answered: u32,
    partial: BTreeMap<u32, Assembly>,
    waiting: BTreeMap<u32, Request>,
    /// Bypasses that were handed to the application, or are about to be.
    pub(super) busy: BTreeSet<u32>,
    pub(super) kept: VecDeque<(u32, Response)>,
    /// The stored response that is longer than one window, if there is one.
    pub(super) long: Option<Long>,
    kept_bytes: usize,
    /// Bytes of incomplete and waiting bypasses.
    bytes: usize,
}

impl Bypasses {
    /// A new session's bypasses: none yet. Numbers up to `before` belong to earlier sessions with the same key; late
    /// packets that carry them are ignored.
    pub(super) fn begin(before: u32) -> Self {
        Self {
            lost: NONE_LOST,
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

    /// Bypasses of a session that an earlier incarnation has begun, which may have executed those up to `before`.
    pub(super) fn restore(before: u32) -> Self {
        Self { lost: FIRST_BYPASS..=before, ..Self::begin(before) }
    }

    /// Bytes of incomplete and waiting bypasses.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The highest number that was answered, or that an earlier incarnation may have executed.
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

    /// Whether a later bypass has arrived. A client has one bypass at a time, so it has the response to this one,
    /// perhaps from a cache. A late execution of this one would replace the stored response that the client still
    /// waits for.
    pub(super) fn is_past(&self, number: u32) -> bool {
        let newest = [self.waiting.keys().next_back(), self.busy.last(), Some(&self.answered)];
        newest.into_iter().flatten().any(|newest| number < *newest) && !self.is_lost(number)
    }

    /// Whether the bypass may have been executed and its response is lost.
    pub(super) fn is_lost(&self, number: u32) -> bool {
        self.lost.contains(&number)
    }

    /// Adds a piece of a bypass. Returns the request when it is complete.
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

    /// The highest number, as in the packet, of the bypasses that wait for updates.
    pub(super) fn newest(&self) -> Option<u32> {
        self.waiting.values().next_back().map(|request| request.seq)
    }

    /// Whether another complete bypass may wait.
    pub(super) fn has_room(&self) -> bool {
        self.waiting.len() + self.busy.len() < PENDING_MAX
    }

    /// Lets a bypass wait for updates.
    pub(super) fn wait(&mut self, request: Request) {
        self.bytes += request.bytes.len();
        self.waiting.insert(request.number, request);
    }

    /// Removes the first waiting bypass that is ready: every update that it waits for is below `next`.
    pub(super) fn pop(&mut self, next: u32) -> Option<Request> {
        let ready = |request: &&Request| request.after.is_none_or(|after| after < next);
        let number = self.waiting.values().find(ready)?.number;
        let request = self.waiting.remove(&number)?;
        self.bytes -= request.bytes.len();
        self.busy.insert(number);
        Some(request)
    }

    /// Stores the response to a bypass.
    pub(super) fn keep(&mut self, number: u32, response: Response, config: &ServerConfig) {
        // A client has one bypass at a time, so it has every earlier response.
        self.drop_fetched_long();
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

    /// Drops all bypasses that are not answered, except those in `busy`. The client will send them again.
    pub(super) fn keep_only(&mut self, busy: impl Iterator<Item = u32>) {
        self.partial.clear();
        self.waiting.clear();
        self.busy = busy.collect();
        self.bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(bytes: &[u8]) -> Response {
        Response { bytes: bytes.to_vec(), check: 0 }
    }

    fn request(number: u32, after: Option<u32>) -> Request {
        Request { number, seq: number, after, bytes: vec![1, 2, 3] }
    }

    #[test]
    fn a_bypass_is_new_then_busy_then_answered() {
        let mut bypasses = Bypasses::restore(FIRST_BYPASS + 4);
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
    fn responses_are_stored_up_to_a_number_and_bytes_and_the_newest_always() {
        let config = ServerConfig { responses_kept: 2, responses_bytes_max: 10, ..ServerConfig::default() };
        let mut bypasses = Bypasses::begin(FIRST_BYPASS - 1);
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
    fn pieces_are_reassembled_and_the_oldest_of_too_many_bypasses_is_dropped() {
        let mut bypasses = Bypasses::begin(FIRST_BYPASS - 1);
        let mark = Mark { count: 2, total: 4, after: 0 };
        for number in 0..=PARTIAL_MAX as u32 {
            assert_eq!(bypasses.piece(FIRST_BYPASS + number, mark, 0, b"ab"), None);
        }
        assert_eq!(bypasses.bytes(), 2 * PARTIAL_MAX);
        assert_eq!(bypasses.piece(FIRST_BYPASS + 1, mark, 1, b"cd"), Some(b"abcd".to_vec()));
        assert_eq!(bypasses.piece(FIRST_BYPASS, mark, 1, b"cd"), None);
    }
}
