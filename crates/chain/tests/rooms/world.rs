//! Nodes around the rules for room.

use landfall_chain::{Ask, Copying, Downstream, Member, Question, Report, Round, Verdict, View, Welcome};

const STREAMS: usize = 3;
const VALUE_BYTES_MAX: usize = 30;
/// Steps in which the last node must get in step once nothing fails any more.
const HEAL_STEPS: usize = 60_000;

/// A rule that is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Canary {
    None,
    /// A copy ends when what has come to its sender has room.
    AtOnce,
    /// It is enough that the first node has asked again: the answer before may not know of the room.
    Unanswered,
    /// What the first node has admitted need not have room.
    NothingTaken,
    /// A first node that sends values again says that it has taken no room for anything.
    Unready,
    /// A first node that starts again says that a question of its life before was answered.
    Older,
}

impl Canary {
    pub const ALL: [Self; 5] =
        [Self::AtOnce, Self::Unanswered, Self::NothingTaken, Self::Unready, Self::Older];
}

/// A value under way. The room that it needs is free again when it is complete, as if it had replaced another one.
#[derive(Clone, Copy)]
struct Batch {
    bytes: u64,
    is_sent: bool,
    is_acknowledged: bool,
    /// The first node sends it again after a start: it has taken no room for it.
    is_again: bool,
    /// The node before waits for no answer, as it has started again.
    is_orphan: bool,
}

impl Batch {
    fn new(bytes: u64) -> Self {
        Self { bytes, is_sent: false, is_acknowledged: false, is_again: false, is_orphan: false }
    }
}

/// What a writer of a node has under way, and its connection to the node behind.
#[derive(Clone, Copy, Default)]
struct Stream {
    batch: Option<Batch>,
    is_connected: bool,
    forth: Option<u64>,
    back: Option<Report>,
}

/// A question to the node behind, and its answer.
#[derive(Clone, Copy)]
struct Asking {
    question: Question,
    ask: Ask,
    /// What the node behind waits for.
    awaited: Option<u64>,
    answer: Option<Report>,
}

struct Node {
    capacity: u64,
    used: u64,
    /// The number of its last report.
    order: u64,
    downstream: Downstream,
    streams: [Stream; STREAMS],
    asking: Option<Asking>,
}

pub struct World {
    draw: u64,
    canary: Canary,
    view: View,
    nodes: Vec<Node>,
    /// Values that clients wait to write, and what they wait for.
    waiting: [Option<(u64, Option<u64>)>; STREAMS],
    /// The last node is in step.
    is_in_step: bool,
    copy: Option<Copying>,
    /// The first node has nothing of an earlier life under way.
    is_ready: bool,
    starts: u64,
    writes: u64,
    copies: u64,
}

fn name(node: usize) -> String {
    char::from(b'a' + node as u8).to_string()
}

impl World {
    pub fn new(seed: u64, canary: Canary) -> Self {
        let view = View { name: "chain".into(), version: 1, members: Vec::new() };
        let mut world = Self {
            draw: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) + 1,
            canary,
            view,
            nodes: Vec::new(),
            waiting: [None; STREAMS],
            is_in_step: false,
            copy: None,
            is_ready: true,
            starts: 0,
            writes: 0,
            copies: 0,
        };
        let count = 3 + world.below(2);
        for node in 0..count {
            let is_last = node + 1 == count;
            let (least, more) = if is_last { (30, 40) } else { (80, 100) };
            let capacity = least + world.below(more) as u64;
            let (downstream, streams) = (Downstream::new(STREAMS), [Stream::default(); STREAMS]);
            world.view.members.push(Member { name: name(node), address: format!("{node}:1"), since: 1 });
            world.nodes.push(Node { capacity, used: 0, order: 0, downstream, streams, asking: None });
        }
        world.set_view();
        world
    }

    /// How many values were written.
    pub fn writes(&self) -> u64 {
        self.writes
    }

    /// How often the last node got in step.
    pub fn copies(&self) -> u64 {
        self.copies
    }

    fn below(&mut self, bound: usize) -> usize {
        self.draw = self.draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.draw >> 33) as usize % bound
    }

    /// One event, faults among them.
    pub fn step(&mut self) -> Result<(), String> {
        let (hop, is_rare) = (self.below(self.nodes.len() - 1), self.below(8) == 0);
        match self.below(100) {
            0 => self.nodes[hop].asking = None,
            1 if is_rare => self.restart(),
            2 if is_rare && self.is_in_step => self.come_back(),
            _ => return self.work(),
        }
        Ok(())
    }

    /// One event that is no fault.
    fn work(&mut self) -> Result<(), String> {
        let count = self.nodes.len();
        let (node, hop, stream) = (self.below(count), self.below(count - 1), self.below(STREAMS));
        match self.below(100) {
            0..20 => self.write(stream),
            20..60 => self.stream_step(node, stream),
            60..75 => return self.arrive(hop, stream),
            75..92 => self.ask_step(hop),
            92..96 => self.copy_step(),
            _ => {}
        }
        Ok(())
    }

    /// Nothing fails any more: the last node gets in step.
    pub fn heal(&mut self) -> Result<(), String> {
        for _ in 0..HEAL_STEPS {
            if self.is_in_step {
                return Ok(());
            }
            self.work()?;
        }
        Err("the last node does not get in step".into())
    }

    /// The view counts at all nodes. What is under way between those that were there before goes on.
    fn set_view(&mut self) {
        for node in (0..self.nodes.len()).rev() {
            self.nodes[node].downstream.set_view(&self.view, &name(node));
            self.nodes[node].asking = None;
            if node + 1 < self.nodes.len() {
                (0..STREAMS).for_each(|stream| self.connect(node, stream));
            }
        }
    }

    fn connect(&mut self, node: usize, stream: usize) {
        let behind = node + 1;
        let is_behind = behind + 1 == self.nodes.len() && !self.is_in_step;
        let since = if is_behind { 0 } else { self.view.members[behind].since };
        let (version, room) = (self.view.version, self.report(behind));
        let Node { downstream, streams, .. } = &mut self.nodes[node];
        assert!(downstream.connected(stream, version, Welcome { since, files: 0 }));
        downstream.note_room(version, room);
        streams[stream].is_connected = true;
    }

    fn report(&mut self, node: usize) -> Report {
        let Node { capacity, used, order, downstream, .. } = &mut self.nodes[node];
        *order += 1;
        let (free, obtainable) = downstream.room().unwrap_or((u64::MAX, u64::MAX));
        Report { order: *order, free: free.min(*capacity - *used), obtainable: obtainable.min(*capacity) }
    }

    /// The first node starts again, and sends what it had under way.
    fn restart(&mut self) {
        self.starts += 1;
        let first = &mut self.nodes[0];
        first.downstream = Downstream::new(STREAMS);
        first.downstream.set_view(&self.view, &name(0));
        first.downstream.number_questions_above(self.starts << 32);
        first.asking = None;
        for link in &mut first.streams {
            (link.forth, link.back) = (None, None);
            let again = |batch: Batch| Batch { is_again: true, ..Batch::new(batch.bytes) };
            link.batch = link.batch.map(again);
        }
        self.is_ready = first.streams.iter().all(|link| link.batch.is_none());
        let orphans = self.nodes[1].streams.iter_mut().filter_map(|link| link.batch.as_mut());
        orphans.for_each(|batch| batch.is_orphan = true);
        self.waiting = [None; STREAMS];
        (0..STREAMS).for_each(|stream| self.connect(0, stream));
    }

    /// The last node was removed, and comes back.
    fn come_back(&mut self) {
        let last = self.nodes.len() - 1;
        self.view.version += 1;
        self.view.members[last].since = self.view.version;
        (self.is_in_step, self.copy) = (false, None);
        (0..STREAMS).for_each(|stream| self.lose(last - 1, stream));
        self.nodes[last].downstream = Downstream::new(STREAMS);
        self.set_view();
    }

    /// A connection to the last node is lost, and what came by it.
    fn lose(&mut self, node: usize, stream: usize) {
        let Node { downstream, streams, .. } = &mut self.nodes[node];
        let link = &mut streams[stream];
        (link.forth, link.back, link.is_connected) = (None, None, false);
        link.batch.iter_mut().for_each(|batch| (batch.is_sent, batch.is_acknowledged) = (false, false));
        downstream.lost(stream);
        let behind = &mut self.nodes[node + 1];
        if let Some(batch) = behind.streams[stream].batch.take() {
            behind.used -= batch.bytes;
            behind.downstream.give_room_back(batch.bytes);
        }
    }

    /// A client writes at the first node, or tries it again.
    fn write(&mut self, stream: usize) {
        let bytes = 1 + self.below(VALUE_BYTES_MAX) as u64;
        let first = &mut self.nodes[0];
        if !self.is_ready || first.streams[stream].batch.is_some() {
            return;
        }
        let (bytes, mut awaited) = self.waiting[stream].take().unwrap_or((bytes, None));
        let has_room = first.used + bytes <= first.capacity;
        let verdict = if has_room { first.downstream.take_room(bytes, &mut awaited) } else { Verdict::Wait };
        match verdict {
            Verdict::Taken => {
                first.used += bytes;
                first.streams[stream].batch = Some(Batch::new(bytes));
            }
            Verdict::Wait => self.waiting[stream] = Some((bytes, awaited)),
            Verdict::Full => {}
        }
    }

    /// A writer sends, hears an answer, completes its batch, or connects.
    fn stream_step(&mut self, node: usize, stream: usize) {
        let (version, is_retried) = (self.view.version, self.below(8) == 0);
        let is_last = node + 1 == self.nodes.len();
        if is_retried && !is_last && !self.nodes[node].streams[stream].is_connected {
            return self.connect(node, stream);
        }
        let Node { downstream, streams, .. } = &mut self.nodes[node];
        let Stream { batch: Some(batch), is_connected, forth, back } = &mut streams[stream] else { return };
        if *is_connected && !batch.is_sent {
            batch.is_sent = true;
            *forth = Some(batch.bytes);
        } else if let Some(room) = back.take() {
            batch.is_acknowledged = true;
            downstream.note_room(version, room);
        } else if batch.is_acknowledged || downstream.is_complete_alone(stream) {
            self.complete(node, stream);
        }
    }

    fn complete(&mut self, node: usize, stream: usize) {
        let Node { used, downstream, streams, .. } = &mut self.nodes[node];
        let Some(batch) = streams[stream].batch.take() else { return };
        *used -= batch.bytes;
        if !batch.is_again {
            downstream.give_room_back(batch.bytes);
        }
        if node == 0 {
            self.writes += 1;
            self.is_ready |= streams.iter().all(|link| link.batch.is_none_or(|batch| !batch.is_again));
        } else if !batch.is_orphan {
            let room = self.report(node);
            self.nodes[node - 1].streams[stream].back = Some(room);
        }
    }

    /// A value arrives at the node behind.
    fn arrive(&mut self, node: usize, stream: usize) -> Result<(), String> {
        let is_in_step = node + 2 < self.nodes.len() || self.is_in_step;
        let Some(bytes) = self.nodes[node].streams[stream].forth else { return Ok(()) };
        let behind = &mut self.nodes[node + 1];
        let free = behind.capacity - behind.used;
        if behind.streams[stream].batch.is_some() {
            // That came by an older connection.
            return Ok(());
        }
        if free < bytes {
            let wrong =
                format!("{} has no room for {bytes} bytes that were admitted: {free}", name(node + 1));
            self.lose(node, stream);
            return if is_in_step { Err(wrong) } else { Ok(()) };
        }
        behind.used += bytes;
        behind.downstream.note_room_taken(bytes);
        behind.streams[stream].batch = Some(Batch::new(bytes));
        self.nodes[node].streams[stream].forth = None;
        Ok(())
    }

    /// A question is asked, heard or answered.
    fn ask_step(&mut self, node: usize) {
        let version = self.view.version;
        let is_ready = self.is_ready || self.canary == Canary::Unready;
        let Node { downstream, asking, .. } = &mut self.nodes[node];
        let Some(Asking { question, ask, mut awaited, answer }) = asking.take() else {
            if downstream.may_ask_for_room() {
                let (question, ask) = downstream.ask_for_room(version, is_ready);
                *asking = Some(Asking { question, ask, awaited: None, answer: None });
            }
            return;
        };
        if let Some(room) = answer {
            return downstream.answer_of_room(version, question, room);
        }
        let round = ask.round.map(|round| self.as_heard(round));
        let behind = &mut self.nodes[node + 1].downstream;
        round.into_iter().for_each(|round| behind.note_round(version, round));
        let is_known = behind.is_room_known(ask.wanted, &mut awaited);
        let answer = is_known.then(|| self.report(node + 1));
        self.nodes[node].asking = Some(Asking { question, ask, awaited, answer });
    }

    fn as_heard(&self, round: Round) -> Round {
        match self.canary {
            Canary::Unanswered => Round { answered: round.number, ..round },
            Canary::NothingTaken => Round { taken: round.taken.map(|_| 0), ..round },
            Canary::Older => Round { answered: round.answered.max(self.starts << 32), ..round },
            Canary::None | Canary::AtOnce | Canary::Unready => round,
        }
    }

    /// The node before the last one copies: that everything else is copied takes no time.
    fn copy_step(&mut self) {
        if self.is_in_step {
            return;
        }
        let (version, sender) = (self.view.version, self.nodes.len() - 2);
        let downstream = &mut self.nodes[sender].downstream;
        let Some(copy) = self.copy.filter(|copy| downstream.is_copying(*copy)) else {
            self.copy = downstream.begin_copy();
            return;
        };
        let mut may_end = downstream.counts_room(copy);
        if self.canary == Canary::AtOnce {
            for (number, answered) in [(1, 0), (2, u64::MAX)] {
                downstream.note_round(version, Round { number, answered, taken: Some(0) });
            }
            may_end = downstream.counts_room(copy);
        }
        if may_end && downstream.end_copy(copy) {
            self.is_in_step = true;
            self.copies += 1;
        }
    }
}
