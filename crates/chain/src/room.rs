//! How much room the nodes behind have, and who may take it.
//!
//! A node reports its room with everything that it says to the node before ([`Report`]). The first node takes room for
//! each value before it writes it ([`Room::take`]), and gives it back when the batch is complete: the report that came
//! with the acknowledgement knows of the value. With each question for room it says what it has taken ([`Round`]), and
//! every node passes that on: a copy ends only when the node has room for what was admitted without it.

use crate::wire::{Code, WireError, message, u64_at};

/// Length of a report in a head, bytes.
pub(crate) const REPORT_BYTES: usize = 24;
/// Length of the head of a question, bytes.
const ASK_BYTES: usize = 32;
/// Stands for a number of bytes that is not known.
const NOT_KNOWN: u64 = u64::MAX;

/// The room at a node and at all nodes behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// Reports of a node are numbered: one with a higher number knows of everything that is acknowledged by one with a
    /// lower number.
    pub order: u64,
    /// Bytes that can be written at once.
    pub free: u64,
    /// Bytes that can be written after a while, although nobody deletes anything.
    pub obtainable: u64,
}

impl Report {
    /// Appends the report to a head.
    pub(crate) fn encode(&self, head: &mut Vec<u8>) {
        [self.order, self.free, self.obtainable]
            .iter()
            .for_each(|field| head.extend_from_slice(&field.to_le_bytes()));
    }

    pub(crate) fn decode(head: &[u8]) -> Result<Self, WireError> {
        if head.len() != REPORT_BYTES {
            return Err(WireError::Length);
        }
        Ok(Self { order: u64_at(head, 0), free: u64_at(head, 8), obtainable: u64_at(head, 16) })
    }
}

/// What the first node has admitted. It says so with each question for room, and every node passes on what it has heard
/// last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Round {
    /// Number of the first node's question, 1 or more. It grows, from start to start.
    pub number: u64,
    /// The newest question of the first node that was answered when this one began, in this life of the node; 0: none.
    /// What it admits from then on has room by that answer, or by a newer report.
    pub answered: u64,
    /// Bytes that it had admitted when this question began, and that were not complete; `None`: it does not know.
    pub taken: Option<u64>,
}

/// A question for room, as it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Bytes that somebody waits for.
    pub wanted: u64,
    /// What the first node has said last; `None`: nothing in this view.
    pub round: Option<Round>,
}

impl Ask {
    /// The message.
    pub fn encode(&self, version: u64, number: u64) -> Vec<u8> {
        let [first, answered, taken] = self
            .round
            .map_or([0; 3], |round| [round.number, round.answered, round.taken.unwrap_or(NOT_KNOWN)]);
        let head: Vec<u8> =
            [self.wanted, first, answered, taken].iter().flat_map(|field| field.to_le_bytes()).collect();
        message(Code::Ask, version, number, &head, 0)
    }

    /// Reads the head of a question.
    ///
    /// # Errors
    /// [`WireError::Length`].
    pub fn decode(head: &[u8]) -> Result<Self, WireError> {
        if head.len() != ASK_BYTES {
            return Err(WireError::Length);
        }
        let (number, answered) = (u64_at(head, 8), u64_at(head, 16));
        let taken = Some(u64_at(head, 24)).filter(|taken| *taken != NOT_KNOWN);
        let round = (number > 0).then_some(Round { number, answered, taken });
        Ok(Self { wanted: u64_at(head, 0), round })
    }
}

/// Whether a value may be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Yes: its room is taken.
    Taken,
    /// Not yet: room is being made, or has to be asked for.
    Wait,
    /// No: a node behind is full.
    Full,
}

/// A question for the room of the node behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question {
    number: u64,
    reports: u64,
    /// Bytes that somebody waits for.
    pub wanted: u64,
}

/// The room behind a node.
#[derive(Clone, Debug, Default)]
pub struct Room {
    /// The newest one.
    report: Option<Report>,
    /// Bytes that were taken since, or that the report may not know of.
    taken: u64,
    /// Number of reports that came with something else than an answer.
    reports: u64,
    /// Questions that were asked, and the last one that was answered.
    asked: u64,
    answered: u64,
    /// The newest report is an answer, and nothing was acknowledged since its question.
    is_settled: bool,
    /// Most bytes that somebody waits for.
    wanted: u64,
    /// Somebody waits for a report.
    is_awaited: bool,
}

impl Room {
    /// Questions get numbers above this one. None of them is answered, whatever was in an earlier life.
    pub(crate) fn number_above(&mut self, number: u64) {
        self.asked = number;
    }

    /// What the first node says with the question that it has just begun. `is_known`: room was taken for everything that
    /// is under way.
    pub(crate) fn round(&self, is_known: bool) -> Round {
        Round { number: self.asked, answered: self.answered, taken: is_known.then_some(self.taken) }
    }

    /// Another node is behind: nothing is known of it. What was taken is still under way.
    pub(crate) fn forget(&mut self) {
        self.report = None;
        self.is_settled = false;
    }

    /// Takes room for a value of so many bytes, if there is enough. `awaited` belongs to the request, and is `None` at
    /// first: a request that finds no room waits for the answer to one question that is asked after that, and this is its
    /// number.
    pub(crate) fn take(&mut self, bytes: u64, awaited: &mut Option<u64>) -> Verdict {
        // What was taken, and may be used only later, needs room besides.
        let wanted = self.taken.saturating_add(bytes);
        let Some(report) = self.report else {
            self.want(wanted);
            return Verdict::Wait;
        };
        if report.free.saturating_sub(self.taken) >= bytes {
            self.taken += bytes;
            *awaited = None;
            return Verdict::Taken;
        }
        let is_known = self.is_settled || awaited.is_some_and(|question| self.answered >= question);
        if is_known && report.obtainable < bytes {
            *awaited = None;
            return Verdict::Full;
        }
        awaited.get_or_insert(self.asked + 1);
        self.want(wanted);
        Verdict::Wait
    }

    /// Takes room, for what the sender could do without, if so many times as much is free.
    pub(crate) fn take_spare(&mut self, bytes: u64, times: u64) -> bool {
        let wanted = bytes.saturating_mul(times);
        let is_free = self.report.is_some_and(|report| report.free.saturating_sub(self.taken) >= wanted);
        if is_free {
            self.taken += bytes;
        }
        is_free
    }

    fn want(&mut self, bytes: u64) {
        self.wanted = self.wanted.max(bytes).max(1);
        self.is_awaited = true;
    }

    /// Takes room whether or not there is any: another node has admitted the value.
    pub(crate) fn note_taken(&mut self, bytes: u64) {
        self.taken += bytes;
    }

    /// A report knows of what was taken, or nothing was written.
    pub(crate) fn give_back(&mut self, bytes: u64) {
        self.taken -= bytes;
    }

    /// A report that came with an acknowledgement or a welcome.
    pub(crate) fn note(&mut self, report: Report) {
        self.reports += 1;
        self.is_settled = false;
        self.set(report);
    }

    fn set(&mut self, report: Report) {
        if self.report.is_none_or(|known| known.order < report.order) {
            self.report = Some(report);
        }
    }

    /// True if somebody waits for an answer that has not been asked for.
    pub(crate) fn wants_answer(&self) -> bool {
        self.wanted > 0
    }

    /// True if nothing is known of the room, or a question is not answered.
    pub(crate) fn is_open(&self) -> bool {
        self.report.is_none() || self.wants_answer() || self.asked > self.answered
    }

    /// Begins a question.
    pub(crate) fn ask(&mut self) -> Question {
        self.asked += 1;
        Question { number: self.asked, reports: self.reports, wanted: std::mem::take(&mut self.wanted) }
    }

    /// The answer to a question.
    pub(crate) fn answer(&mut self, question: Question, report: Report) {
        self.answered = question.number;
        self.set(report);
        self.is_settled = question.reports == self.reports;
    }

    /// For one who waits for an answer to a question that is asked from now on: true if it has come.
    pub(crate) fn is_answered(&mut self, wanted: u64, awaited: &mut Option<u64>) -> bool {
        let question = *awaited.get_or_insert(self.asked + 1);
        let is_answered = self.answered >= question;
        if is_answered {
            *awaited = None;
        } else {
            self.is_awaited = true;
            if self.asked < question {
                self.want(wanted);
            }
        }
        is_answered
    }

    /// True if somebody has begun to wait since the last call.
    pub(crate) fn take_awaited(&mut self) -> bool {
        std::mem::take(&mut self.is_awaited)
    }

    /// Bytes that can be taken now, and bytes that could be after a while.
    pub(crate) fn left(&self) -> (u64, u64) {
        self.report
            .map_or((0, u64::MAX), |report| (report.free.saturating_sub(self.taken), report.obtainable))
    }

    /// True if so many bytes have room, and everything that was taken. Otherwise that is asked for.
    pub(crate) fn fits(&mut self, bytes: u64) -> bool {
        let needed = bytes.max(self.taken);
        let fits = self.report.is_some_and(|report| report.free >= needed);
        if !fits {
            self.want(needed);
        }
        fits
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::HEADER_BYTES;

    fn report(order: u64, free: u64, obtainable: u64) -> Report {
        Report { order, free, obtainable }
    }

    fn room(free: u64, obtainable: u64) -> Room {
        let mut room = Room::default();
        room.note(report(1, free, obtainable));
        room
    }

    #[test]
    fn what_is_under_way_is_not_given_to_others() {
        let mut room = room(100, 100);
        assert_eq!(room.take(60, &mut None), Verdict::Taken);
        assert_eq!(room.take(60, &mut None), Verdict::Wait);
        assert_eq!(room.take(40, &mut None), Verdict::Taken);
        assert_eq!(room.left().0, 0);
        // The acknowledgement of the first one.
        room.note(report(2, 40, 40));
        room.give_back(60);
        assert_eq!(room.left().0, 0);
    }

    #[test]
    fn an_older_report_does_not_count() {
        let mut room = room(100, 100);
        room.note(report(3, 20, 20));
        room.note(report(2, 60, 60));
        assert_eq!(room.left().0, 20);
    }

    #[test]
    fn nobody_is_told_that_it_is_full_before_a_new_answer() {
        let (mut room, mut awaited) = (room(10, 10), None);
        let before = room.ask();
        assert_eq!(room.take(60, &mut awaited), Verdict::Wait);
        room.answer(before, report(2, 10, 10));
        room.note(report(3, 10, 10));
        assert_eq!(room.take(60, &mut awaited), Verdict::Wait, "it was asked before");
        let question = room.ask();
        assert_eq!(question.wanted, 60);
        room.note(report(4, 10, 10));
        room.answer(question, report(5, 10, 10));
        assert_eq!(room.take(60, &mut awaited), Verdict::Full);
        assert_eq!(room.take(60, &mut awaited), Verdict::Wait, "something was acknowledged since");
        let question = room.ask();
        room.answer(question, report(6, 10, 10));
        assert_eq!(room.take(60, &mut None), Verdict::Full, "nothing was acknowledged since");
        assert_eq!(room.take(5, &mut None), Verdict::Taken);
    }

    #[test]
    fn one_who_can_get_room_waits() {
        let (mut room, mut awaited) = (room(10, 100), None);
        assert_eq!(room.take(60, &mut awaited), Verdict::Wait);
        let question = room.ask();
        room.answer(question, report(2, 10, 100));
        assert_eq!(room.take(60, &mut awaited), Verdict::Wait);
        let question = room.ask();
        room.answer(question, report(3, 70, 100));
        assert_eq!(room.take(60, &mut awaited), Verdict::Taken);
    }

    #[test]
    fn who_waits_asks_for_room_beside_what_was_taken() {
        let mut room = room(70, 200);
        assert_eq!(room.take(50, &mut None), Verdict::Taken);
        assert_eq!(room.take(60, &mut None), Verdict::Wait);
        let question = room.ask();
        assert_eq!(question.wanted, 110);
        room.answer(question, report(2, 110, 200));
        assert_eq!(room.take(60, &mut None), Verdict::Taken);
    }

    #[test]
    fn of_a_node_that_has_not_reported_nothing_is_taken() {
        let mut room = Room::default();
        assert_eq!(room.take(1, &mut None), Verdict::Wait);
        assert!(room.wants_answer() && !room.fits(0));
        assert_eq!(room.left(), (0, u64::MAX));
    }

    #[test]
    fn a_question_is_passed_on_once() {
        let (mut room, mut awaited) = (room(10, 10), None);
        assert!(!room.is_answered(7, &mut awaited));
        let question = room.ask();
        assert_eq!(question.wanted, 7);
        assert!(!room.is_answered(7, &mut awaited) && !room.wants_answer());
        room.answer(question, report(2, 10, 10));
        assert!(room.is_answered(7, &mut awaited) && room.take_awaited() && !room.take_awaited());
    }

    #[test]
    fn what_has_no_room_is_asked_for() {
        let mut room = room(10, 100);
        assert!(room.fits(10) && !room.wants_answer());
        assert!(!room.fits(11));
        let question = room.ask();
        assert_eq!(question.wanted, 11);
        room.answer(question, report(2, 11, 100));
        assert!(room.fits(11) && !room.fits(12));
    }

    #[test]
    fn a_question_says_which_one_was_answered_before_and_what_is_taken() {
        const START: u64 = 1 << 32;
        let mut room = room(100, 100);
        room.number_above(START);
        let first = room.ask();
        assert_eq!(room.round(false), Round { number: START + 1, answered: 0, taken: None });
        room.answer(first, report(2, 100, 100));
        assert_eq!(room.take(60, &mut None), Verdict::Taken);
        room.ask();
        assert_eq!(room.round(true), Round { number: START + 2, answered: START + 1, taken: Some(60) });
    }

    #[test]
    fn a_question_is_read_as_it_was_written() {
        let round = Round { number: 7, answered: 6, taken: Some(5) };
        let rounds = [None, Some(round), Some(Round { taken: None, ..round })];
        for ask in rounds.map(|round| Ask { wanted: 9, round }) {
            let head = ask.encode(1, 2)[HEADER_BYTES..].to_vec();
            assert_eq!(Ask::decode(&head), Ok(ask));
            assert_eq!(Ask::decode(&head[..8]), Err(WireError::Length), "it ends behind the first field");
        }
    }
}
