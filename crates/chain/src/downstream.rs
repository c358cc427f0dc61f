//! What a node knows of the node behind it.

use crate::hello::Welcome;
use crate::room::{Ask, Question, Report, Room, Round, Verdict};
use crate::view::{Member, View};

/// What is known of the node behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Nothing: it may be in step.
    Unknown,
    /// It is behind, and stays so until it is told that a copy ends.
    Behind,
    /// It is in step, or may have been told so: every batch waits for it.
    InStep,
}

/// A copy under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copying {
    number: u64,
}

/// A copy that is about to end: the room of the node counts already.
#[derive(Clone, Copy, Debug)]
struct Ending {
    copy: Copying,
    /// The newest round of the first node that had come when the room began to count; if none had, the first one after
    /// that.
    since_round: Option<u64>,
}

/// What a node knows of the node behind it, and when its batches are complete.
#[derive(Clone, Debug)]
pub struct Downstream {
    version: u64,
    /// `since` of this node in the first view; 0 before that.
    since: u64,
    /// This node was removed from the chain since it has started, or is not the first one any more.
    is_out: bool,
    is_first: bool,
    node: Option<Member>,
    /// How many nodes are behind this one in the view.
    nodes_behind: usize,
    standing: Standing,
    /// Which streams are connected. The copy's is not among them.
    connected: Vec<bool>,
    /// The copy that may end well.
    copying: Option<Copying>,
    copies_begun: u64,
    /// The room behind.
    room: Room,
    ending: Option<Ending>,
    /// What the first node has said last in this view.
    round: Option<Round>,
    /// How many nodes, from the next one on, had what was acknowledged last in this view.
    copies: u8,
}

impl Downstream {
    /// For a node with so many streams. It knows of no view.
    pub fn new(streams: usize) -> Self {
        Self {
            version: 0,
            since: 0,
            is_out: false,
            is_first: false,
            node: None,
            nodes_behind: 0,
            standing: Standing::Unknown,
            connected: vec![false; streams],
            copying: None,
            copies_begun: 0,
            room: Room::default(),
            ending: None,
            round: None,
            copies: 0,
        }
    }

    /// Questions for room get numbers above this one: they grow from start to start.
    pub fn number_questions_above(&mut self, number: u64) {
        self.room.number_above(number);
    }

    /// Another view counts. All connections must be closed.
    pub fn set_view(&mut self, view: &View, me: &str) {
        let streams = self.connected.len();
        let now = view.find(me).map_or(0, |(_, member)| member.since);
        let since = if self.version == 0 { now } else { self.since };
        let mut room = std::mem::take(&mut self.room);
        room.forget();
        // Questions go on, so what is passed on with them does, too.
        let round = self.round.filter(|_| self.version == view.version);
        *self = Self {
            version: view.version,
            since,
            is_out: self.is_out || now != since || (self.is_first && !view.is_first(me)),
            is_first: view.is_first(me),
            node: view.behind(me).cloned(),
            nodes_behind: view.find(me).map_or(0, |(place, _)| view.members.len() - 1 - place),
            copies_begun: self.copies_begun,
            room,
            round,
            ..Self::new(streams)
        };
    }

    /// The view that counts.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// True if this node was removed from the chain since it has started, whether or not it was added again, or was the first
    /// one and is not any more. What it has under way is never complete: it may be what a client wrote here, and another node
    /// takes writes now. It has to start anew.
    pub fn is_out(&self) -> bool {
        self.is_out
    }

    /// The node behind, if there is one.
    pub fn node(&self) -> Option<&Member> {
        self.node.as_ref()
    }

    /// What is known of it.
    pub fn standing(&self) -> Standing {
        self.standing
    }

    /// A stream is connected. False if the view has changed since the connection was begun: it must be closed.
    pub fn connected(&mut self, stream: usize, version: u64, welcome: Welcome) -> bool {
        let Some(node) = self.node.as_ref().filter(|_| version == self.version) else { return false };
        self.standing = if welcome.since == node.since { Standing::InStep } else { Standing::Behind };
        // A stream that is opened while a copy is under way ends it at the other side, too.
        self.copying = None;
        self.connected[stream] = true;
        true
    }

    /// A stream is not connected any more.
    pub fn lost(&mut self, stream: usize) {
        self.connected[stream] = false;
        self.copying = None;
    }

    /// True if a batch of a stream is complete although the node behind has not acknowledged it.
    pub fn is_complete_alone(&self, stream: usize) -> bool {
        let is_behind = self.standing == Standing::Behind && !self.connected[stream];
        !self.is_out && (self.node.is_none() || is_behind)
    }

    /// In view `version`, so many nodes from the next one on have everything that was acknowledged to this one.
    pub fn note_copies(&mut self, version: u64, nodes: u8) {
        if version == self.version {
            self.copies = nodes;
        }
    }

    /// How many nodes behind have what this one acknowledges, as far as is known in this view.
    pub fn copies(&self) -> u8 {
        if self.standing == Standing::InStep { self.copies.max(1) } else { 0 }
    }

    /// True if a copy may begin at a node that is in step.
    pub fn wants_copy(&self) -> bool {
        let is_behind = self.node.is_some() && self.standing == Standing::Behind;
        is_behind && self.copying.is_none() && self.connected.iter().all(|connected| *connected)
    }

    /// A copy begins, if one may: every chunk from now on reaches the node behind, or the copy does not end well.
    pub fn begin_copy(&mut self) -> Option<Copying> {
        if !self.wants_copy() {
            return None;
        }
        self.copies_begun += 1;
        self.copying = Some(Copying { number: self.copies_begun });
        self.copying
    }

    /// True as long as a copy may end well.
    pub fn is_copying(&self, copy: Copying) -> bool {
        self.copying == Some(copy)
    }

    /// Everything is copied and acknowledged: from now on the room of the node behind counts. True if it has room for
    /// all that is under way, also for what the first node has admitted before it knew of this room. Otherwise ask again:
    /// this becomes true when that is acknowledged, and the first node has asked for room twice.
    pub fn counts_room(&mut self, copy: Copying) -> bool {
        if self.ending.is_none_or(|ending| ending.copy != copy) {
            self.ending = Some(Ending { copy, since_round: self.round.map(|round| round.number) });
        }
        self.under_way().is_some_and(|bytes| self.room.fits(bytes))
    }

    /// True if this is the first node, and one behind the next may be about to get in step: then a copy waits for what this
    /// node says with its questions.
    pub fn may_be_waited_for(&self) -> bool {
        let is_next_in_step = self.standing == Standing::InStep;
        self.is_first && is_next_in_step && usize::from(self.copies()) < self.nodes_behind
    }

    /// Bytes that the first node has under way, of which some may not have come here; `None`: it may have admitted more
    /// without the room of the node for which a copy ends. A node knows what it has admitted itself.
    fn under_way(&self) -> Option<u64> {
        if self.is_first {
            return Some(0);
        }
        let since = self.ending?.since_round?;
        self.round.filter(|round| round.answered > since)?.taken
    }

    /// The node before passes on what the first node has said, in view `version`. Call it before the question with which
    /// it came is answered.
    pub fn note_round(&mut self, version: u64, round: Round) {
        if version != self.version {
            return;
        }
        self.round = Some(round);
        if let Some(ending) = &mut self.ending {
            ending.since_round.get_or_insert(round.number);
        }
    }

    /// The node has room for everything: from now on every batch waits for the node behind. Only if this is true may
    /// it be told that the copy ends.
    pub fn end_copy(&mut self, copy: Copying) -> bool {
        if !self.is_copying(copy) {
            return false;
        }
        self.copying = None;
        self.standing = Standing::InStep;
        true
    }

    /// The copy has failed.
    pub fn give_copy_up(&mut self, copy: Copying) {
        if self.is_copying(copy) {
            self.copying = None;
        }
    }

    /// True if values must have room at the node behind: every batch waits for it, or soon will.
    fn limits_room(&self) -> bool {
        let ends = self.ending.is_some_and(|ending| self.is_copying(ending.copy));
        self.node.is_some() && (self.standing != Standing::Behind || ends)
    }

    /// True if the node behind is to be asked for its room: values depend on it.
    pub fn may_ask_for_room(&self) -> bool {
        self.standing != Standing::Unknown && self.limits_room()
    }

    /// Takes room behind for a value of so many bytes. [`Self::give_room_back`] when its batch is complete, or if it is not
    /// written after all.
    pub fn take_room(&mut self, bytes: u64, awaited: &mut Option<u64>) -> Verdict {
        if self.limits_room() {
            return self.room.take(bytes, awaited);
        }
        self.room.note_taken(bytes);
        Verdict::Taken
    }

    /// As [`Self::take_room`], for values that the first node could do without: twice as much must be free.
    pub fn take_room_of_plenty(&mut self, bytes: u64) -> bool {
        if !self.limits_room() {
            self.room.note_taken(bytes);
            return true;
        }
        self.room.take_spare(bytes, 2)
    }

    /// As [`Self::take_room`], for a value that the first node has admitted.
    pub fn note_room_taken(&mut self, bytes: u64) {
        self.room.note_taken(bytes);
    }

    /// Takes room for a packed payload beside its values, if there is so much: the sender could do without. It is given
    /// back as that of values.
    pub fn take_spare_room(&mut self, bytes: u64) -> bool {
        self.room.take_spare(bytes, 1)
    }

    /// What [`Self::take_room`] has taken.
    pub fn give_room_back(&mut self, bytes: u64) {
        self.room.give_back(bytes);
    }

    /// A report of the node behind in view `version`, which came with a welcome or an acknowledgement. Reports of different
    /// nodes have no common order: one of an older view does not count.
    pub fn note_room(&mut self, version: u64, room: Report) {
        if version == self.version {
            self.room.note(room);
        }
    }

    /// Bytes that can be written behind, at once and after a while; `None` if there is no limit.
    pub fn room(&self) -> Option<(u64, u64)> {
        self.limits_room().then(|| self.room.left())
    }

    /// True if somebody waits for an answer that has not been asked for.
    pub fn wants_room(&self) -> bool {
        self.room.wants_answer()
    }

    /// True if it is not known whether there is room behind: who finds none tries again.
    pub fn asks_for_room(&self) -> bool {
        self.limits_room() && self.room.is_open()
    }

    /// Begins a question for the room of the node behind, by a connection of view `version`; says what is sent. `is_ready`:
    /// nothing of an earlier life of this node is under way, for which it has taken no room.
    pub fn ask_for_room(&mut self, version: u64, is_ready: bool) -> (Question, Ask) {
        let question = self.room.ask();
        let round = if self.is_first { Some(self.room.round(is_ready)) } else { self.round };
        let round = round.filter(|_| version == self.version);
        (question, Ask { wanted: question.wanted, round })
    }

    /// The answer to a question, in view `version`: as [`Self::note_room`].
    pub fn answer_of_room(&mut self, version: u64, question: Question, room: Report) {
        if version == self.version {
            self.room.answer(question, room);
        }
    }

    /// For a question of the node before: true if the node behind has answered it, too.
    pub fn is_room_known(&mut self, wanted: u64, awaited: &mut Option<u64>) -> bool {
        !self.limits_room() || self.room.is_answered(wanted, awaited)
    }

    /// True if somebody has begun to wait for room since the last call.
    pub fn take_room_awaited(&mut self) -> bool {
        self.room.take_awaited()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(version: u64, members: &[(&str, u64)]) -> View {
        let member = |(name, since): &(&str, u64)| Member {
            name: (*name).into(),
            address: format!("127.0.0.1:{}", name.as_bytes()[0]),
            since: *since,
        };
        View { name: "orders".into(), version, members: members.iter().map(member).collect() }
    }

    fn downstream(since: u64) -> Downstream {
        let mut downstream = Downstream::new(2);
        downstream.set_view(&view(5, &[("a", 1), ("b", since)]), "a");
        downstream
    }

    fn report(order: u64, free: u64) -> Report {
        Report { order, free, obtainable: free }
    }

    #[test]
    fn values_need_room_at_a_node_that_every_batch_waits_for() {
        let mut downstream = downstream(5);
        assert_eq!(downstream.take_room(1, &mut None), Verdict::Wait, "nothing is known of it");
        downstream.connected(0, 5, Welcome { since: 5, files: 0 });
        downstream.note_room(5, report(1, 10));
        assert_eq!(downstream.room(), Some((10, 10)));
        assert_eq!(downstream.take_room(11, &mut None), Verdict::Wait);
        assert!(!downstream.take_room_of_plenty(6), "twice as much is not free");
        assert_eq!(downstream.take_room(9, &mut None), Verdict::Taken);
        downstream.set_view(&view(6, &[("a", 1)]), "a");
        assert_eq!(downstream.take_room(11, &mut None), Verdict::Taken, "nobody is behind");
        downstream.set_view(&view(7, &[("a", 1), ("b", 7)]), "a");
        downstream.connected(0, 7, Welcome { since: 7, files: 0 });
        downstream.note_room(7, report(1, 21));
        assert_eq!(downstream.room(), Some((1, 21)), "what is under way comes there, too");
    }

    #[test]
    fn what_is_packed_takes_only_room_that_nobody_has_taken() {
        let mut downstream = Downstream::new(1);
        assert!(!downstream.take_spare_room(1), "nothing is known");
        downstream.note_room(0, report(1, 10));
        downstream.note_room_taken(4);
        assert!(!downstream.take_spare_room(7) && downstream.take_spare_room(6));
        assert!(!downstream.take_spare_room(1));
        downstream.give_room_back(6);
        assert!(downstream.take_spare_room(6));
    }

    #[test]
    fn a_copy_ends_where_everything_under_way_has_room() {
        let mut downstream = downstream(5);
        (0..2).for_each(|stream| assert!(downstream.connected(stream, 5, Welcome { since: 0, files: 0 })));
        let copy = downstream.begin_copy().expect("it is behind");
        downstream.note_room(5, report(1, 10));
        assert_eq!(downstream.take_room(20, &mut None), Verdict::Taken, "it does not count yet");
        assert!(!downstream.counts_room(copy));
        assert_eq!(downstream.take_room(1, &mut None), Verdict::Wait);
        downstream.give_room_back(20);
        assert!(downstream.counts_room(copy) && downstream.end_copy(copy));
        assert_eq!(downstream.take_room(1, &mut None), Verdict::Taken);
    }

    /// The second of three nodes, which has copied everything to the third one. Its streams are connected, and a report has
    /// come that so many bytes are free there.
    fn copied_to_third(free: u64) -> (Downstream, Copying) {
        let mut middle = Downstream::new(1);
        middle.set_view(&view(5, &[("a", 1), ("b", 1), ("c", 5)]), "b");
        assert!(middle.connected(0, 5, Welcome { since: 0, files: 0 }));
        let copy = middle.begin_copy().expect("it is behind");
        middle.note_room(5, report(1, free));
        (middle, copy)
    }

    #[test]
    fn a_copy_ends_where_what_the_first_node_has_admitted_without_it_has_room() {
        let (mut middle, copy) = copied_to_third(10);
        middle.note_round(5, Round { number: 7, answered: 6, taken: Some(0) });
        assert!(
            !middle.counts_room(copy),
            "the first node may have admitted more by what it was told before"
        );
        middle.note_round(5, Round { number: 8, answered: 7, taken: Some(0) });
        assert!(!middle.counts_room(copy), "question 7 may have been answered before the room counted");
        let round = Round { number: 9, answered: 8, taken: Some(20) };
        middle.note_round(5, round);
        assert!(!middle.counts_room(copy), "a value of 20 bytes has not come here yet");
        let (question, ask) = middle.ask_for_room(5, true);
        assert_eq!(ask, Ask { wanted: 20, round: Some(round) });
        middle.answer_of_room(5, question, report(2, 10));
        middle.note_round(5, Round { number: 10, answered: 9, taken: Some(10) });
        middle.note_room_taken(11);
        assert!(!middle.counts_room(copy), "what has come here counts, too");
        middle.give_room_back(11);
        assert!(middle.counts_room(copy) && middle.end_copy(copy));
    }

    #[test]
    fn a_copy_does_not_end_by_what_the_first_node_does_not_know_or_has_said_in_another_view() {
        let (mut middle, copy) = copied_to_third(10);
        assert!(!middle.counts_room(copy), "nothing was heard of the first node");
        middle.note_round(4, Round { number: 9, answered: 8, taken: Some(0) });
        middle.note_round(5, Round { number: 5, answered: 4, taken: Some(0) });
        middle.note_round(5, Round { number: 6, answered: 5, taken: Some(0) });
        assert!(!middle.counts_room(copy), "the first one that was heard may have been answered before");
        middle.note_round(5, Round { number: 7, answered: 6, taken: None });
        assert!(!middle.counts_room(copy), "it may send values again");
        middle.note_round(5, Round { number: 8, answered: 7, taken: Some(0) });
        assert!(middle.counts_room(copy));
        middle.set_view(&view(6, &[("a", 1), ("b", 1), ("c", 5)]), "b");
        assert_eq!(middle.ask_for_room(6, true).1, Ask { wanted: 0, round: None });
    }

    #[test]
    fn what_was_heard_of_the_first_node_is_passed_on_by_new_connections_of_the_view() {
        let (mut middle, _) = copied_to_third(10);
        let round = Round { number: 7, answered: 6, taken: Some(0) };
        middle.note_round(5, round);
        middle.set_view(&view(5, &[("a", 1), ("b", 1), ("c", 5)]), "b");
        assert_eq!(middle.ask_for_room(5, true).1.round, Some(round));
        assert_eq!(middle.ask_for_room(4, true).1.round, None, "a connection of an older view");
    }

    #[test]
    fn a_first_node_is_waited_for_as_long_as_one_behind_the_next_is_not_in_step() {
        let mut first = Downstream::new(1);
        let members = [("a", 1), ("b", 1), ("c", 1)];
        first.set_view(&view(5, &members), "a");
        assert!(!first.may_be_waited_for(), "nothing is known of the next one");
        first.connected(0, 5, Welcome { since: 1, files: 0 });
        assert!(first.may_be_waited_for());
        first.note_copies(5, 2);
        assert!(!first.may_be_waited_for());
        let mut second = Downstream::new(1);
        second.set_view(&view(5, &members), "b");
        second.connected(0, 5, Welcome { since: 1, files: 0 });
        assert!(!second.may_be_waited_for());
    }

    #[test]
    fn the_first_node_says_what_it_has_taken_and_which_question_was_answered() {
        let mut first = downstream(5);
        first.connected(0, 5, Welcome { since: 5, files: 0 });
        first.note_room(5, report(1, 10));
        assert_eq!(first.take_room(9, &mut None), Verdict::Taken);
        let (question, ask) = first.ask_for_room(5, true);
        assert_eq!(ask, Ask { wanted: 0, round: Some(Round { number: 1, answered: 0, taken: Some(9) }) });
        first.answer_of_room(4, question, report(9, 100));
        assert_eq!(first.room(), Some((1, 10)), "that is the room of a node of an older view");
        first.answer_of_room(5, question, report(2, 100));
        let (_, ask) = first.ask_for_room(5, false);
        assert_eq!(ask.round, Some(Round { number: 2, answered: 1, taken: None }));
    }

    #[test]
    fn a_report_of_a_node_that_was_behind_in_an_older_view_does_not_count() {
        let mut downstream = downstream(5);
        downstream.set_view(&view(6, &[("a", 1), ("c", 6)]), "a");
        downstream.connected(0, 6, Welcome { since: 6, files: 0 });
        downstream.note_room(5, report(1 << 40, 100));
        assert_eq!(downstream.room(), Some((0, u64::MAX)), "nothing is known of c");
        downstream.note_room(6, report(1, 10));
        assert_eq!(downstream.room(), Some((10, 10)));
    }

    #[test]
    fn a_node_is_asked_for_its_room_from_the_moment_on_at_which_that_counts() {
        let mut downstream = downstream(5);
        assert!(!downstream.may_ask_for_room());
        (0..2).for_each(|stream| assert!(downstream.connected(stream, 5, Welcome { since: 0, files: 0 })));
        let copy = downstream.begin_copy().expect("it is behind");
        assert!(!downstream.may_ask_for_room());
        downstream.note_room(5, report(1, 10));
        assert!(downstream.counts_room(copy) && downstream.may_ask_for_room());
        downstream.give_copy_up(copy);
        assert!(!downstream.may_ask_for_room());
    }

    #[test]
    fn copies_are_those_of_the_view_that_counts() {
        let mut downstream = downstream(5);
        downstream.note_copies(5, 2);
        assert_eq!(downstream.copies(), 0, "nothing is known of the node behind");
        downstream.connected(0, 5, Welcome { since: 5, files: 0 });
        assert_eq!(downstream.copies(), 2);
        downstream.set_view(&view(6, &[("a", 1), ("b", 5)]), "a");
        downstream.note_copies(5, 2);
        downstream.connected(0, 6, Welcome { since: 5, files: 0 });
        assert_eq!(
            downstream.copies(),
            1,
            "the node behind has it, and of those behind that nothing is known"
        );
    }

    #[test]
    fn a_batch_waits_for_a_node_of_which_nothing_is_known() {
        let mut downstream = downstream(5);
        assert!(!downstream.is_complete_alone(0));
        downstream.connected(0, 5, Welcome { since: 5, files: 0 });
        downstream.lost(0);
        assert!(!downstream.is_complete_alone(0), "it was in step");
    }

    #[test]
    fn a_batch_does_not_wait_where_there_is_nobody() {
        let mut downstream = downstream(5);
        downstream.set_view(&view(6, &[("a", 1)]), "a");
        assert!(downstream.is_complete_alone(0));
        downstream.set_view(&view(7, &[("b", 5)]), "a");
        assert!(downstream.is_out() && !downstream.is_complete_alone(0), "it is not in the chain any more");
        downstream.set_view(&view(8, &[("b", 5), ("a", 8)]), "a");
        assert!(
            downstream.is_out() && !downstream.is_complete_alone(0),
            "it is back, with a write of its earlier time"
        );
    }

    #[test]
    fn a_node_that_was_removed_and_added_is_out_also_if_it_has_not_seen_the_removal() {
        let mut downstream = downstream(5);
        downstream.set_view(&view(9, &[("b", 5), ("a", 9)]), "a");
        assert!(downstream.is_out());
        let mut second = Downstream::new(2);
        second.set_view(&view(5, &[("a", 1), ("b", 1)]), "a");
        second.set_view(&view(6, &[("b", 1), ("a", 1)]), "a");
        assert!(second.is_out(), "another one takes writes");
        let mut started_anew = Downstream::new(2);
        started_anew.set_view(&view(9, &[("b", 5), ("a", 9)]), "a");
        assert!(!started_anew.is_out());
    }

    #[test]
    fn a_node_behind_is_waited_for_while_it_is_connected() {
        let mut downstream = downstream(5);
        downstream.connected(0, 5, Welcome { since: 1, files: 0 });
        assert!(!downstream.is_complete_alone(0));
        assert!(downstream.is_complete_alone(1), "this stream is not connected");
    }

    #[test]
    fn a_copy_needs_every_stream_all_the_time() {
        let mut downstream = downstream(5);
        downstream.connected(0, 5, Welcome { since: 0, files: 0 });
        assert_eq!(downstream.begin_copy(), None);
        downstream.connected(1, 5, Welcome { since: 0, files: 0 });
        let copy = downstream.begin_copy().unwrap();
        assert!(downstream.is_copying(copy));
        downstream.lost(1);
        assert!(!downstream.end_copy(copy));
        downstream.connected(1, 5, Welcome { since: 0, files: 0 });
        let next = downstream.begin_copy().unwrap();
        assert!(!downstream.end_copy(copy), "another copy");
        assert!(downstream.end_copy(next));
        downstream.lost(1);
        assert!(!downstream.is_complete_alone(1), "it may be in step");
    }

    #[test]
    fn a_connection_of_an_older_view_is_refused() {
        let mut downstream = downstream(5);
        downstream.set_view(&view(6, &[("a", 1), ("b", 6)]), "a");
        assert!(!downstream.connected(0, 5, Welcome { since: 5, files: 0 }));
        assert_eq!(downstream.standing(), Standing::Unknown);
    }
}
