//! Room at this node and behind it: what is taken, said and asked for.

use crate::connection::{Connection, Lost};
use crate::node::Node;
use crate::slot::Slot;
use landfall_chain::{Acknowledged, Ask, Hello, ROOM_STREAM, Report, Round, Verdict};
use landfall_heap::HeapError;
use std::io::Write;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How often the room behind is asked for.
const ASK_EVERY: Duration = Duration::from_millis(500);
/// The same while the end of a copy elsewhere in the chain may wait for it.
const ASK_OFTEN: Duration = Duration::from_millis(100);
/// Pause between questions while somebody waits for room.
const ASK_PAUSE: Duration = Duration::from_millis(5);
/// Pause before a connection is tried again.
const RETRY_AFTER: Duration = Duration::from_millis(100);

impl Node {
    /// True if it is not known whether the nodes behind have room: who finds none tries again.
    pub fn asks_for_room(&self) -> bool {
        self.downstream.lock().asks_for_room()
    }

    /// Takes room behind for values, if this is the first node; the others have no say.
    pub(crate) fn take_room(&self, bytes: u64, question: &mut Option<u64>) -> Result<(), HeapError> {
        let mut downstream = self.downstream.lock();
        if !self.is_first() {
            downstream.note_room_taken(bytes);
            return Ok(());
        }
        match downstream.take_room(bytes, question) {
            Verdict::Taken => Ok(()),
            Verdict::Full => Err(HeapError::Full),
            Verdict::Wait => {
                drop(downstream);
                self.room_wanted.notify_all();
                Err(HeapError::Cleaning)
            }
        }
    }

    /// As [`Self::take_room`], if there is plenty.
    pub(crate) fn take_spare_room(&self, bytes: u64) -> bool {
        self.is_first() && self.downstream.lock().take_room_of_plenty(bytes)
    }

    /// What the node behind has said of its room, in this version of the view.
    pub(crate) fn note_room(&self, version: u64, room: Report) {
        self.downstream.lock().note_room(version, room);
        self.wake_for_room();
    }

    /// The node before passes on what the first node has said, in this version of the view.
    pub fn note_round(&self, version: u64, round: Option<Round>) {
        round.into_iter().for_each(|round| self.downstream.lock().note_round(version, round));
    }

    /// Wakes whoever waits for room.
    pub(crate) fn wake_for_room(&self) {
        if self.downstream.lock().take_room_awaited() {
            self.slots.iter().for_each(Slot::wake);
        }
    }

    /// The room at this node and behind it, for the node before. What was executed before this call is known.
    pub fn room(&self) -> Report {
        let order = self.reports.fetch_add(1, Ordering::AcqRel) + 1;
        let (free, obtainable) = self.room_behind().unwrap_or((u64::MAX, u64::MAX));
        Report {
            order,
            free: free.min(self.heap.free_bytes()),
            obtainable: obtainable.min(self.heap.room_bytes()),
        }
    }

    /// Bytes that can be written behind, at once and after a while; `None` if there is no limit.
    pub fn room_behind(&self) -> Option<(u64, u64)> {
        self.downstream.lock().room()
    }

    /// For a question of the node before: true if the node behind has answered it, too. `awaited` belongs to the question.
    /// The workers are woken when there is an answer.
    pub fn is_room_known(&self, wanted: u64, awaited: &mut Option<u64>) -> bool {
        let is_known = self.downstream.lock().is_room_known(wanted, awaited);
        if !is_known {
            self.room_wanted.notify_all();
        }
        is_known
    }

    /// True if the node behind has been refusing what it is sent, as it has no room.
    pub fn is_full_behind(&self) -> bool {
        self.is_full_behind.load(Ordering::Relaxed)
    }

    /// Notes whether the node behind has room for what it is sent.
    pub(crate) fn note_full_behind(&self, is_full: bool) {
        self.is_full_behind.store(is_full, Ordering::Relaxed);
    }
}

/// Asks the node behind for its room, until the node stops.
pub(crate) fn run(node: &Node) {
    let mut asker = Asker { node, connection: None, generation: 0, asked: Instant::now() };
    while !node.is_stopping() {
        asker.wait();
        if let Err(lost) = asker.turn() {
            tracing::debug!(error = %lost, "the room of the node behind is not known");
            asker.connection = None;
            std::thread::sleep(RETRY_AFTER);
        }
    }
}

struct Asker<'n> {
    node: &'n Node,
    connection: Option<Connection>,
    /// The generation of the connection.
    generation: u64,
    /// When it has asked last.
    asked: Instant,
}

impl Asker<'_> {
    /// Waits until it is time to ask.
    fn wait(&self) {
        std::thread::sleep(ASK_PAUSE.saturating_sub(self.asked.elapsed()));
        let mut downstream = self.node.downstream.lock();
        while !self.node.is_stopping() && !downstream.wants_room() {
            let every = if downstream.may_be_waited_for() { ASK_OFTEN } else { ASK_EVERY };
            let left = every.saturating_sub(self.asked.elapsed());
            if left.is_zero() {
                return;
            }
            self.node.room_wanted.wait_for(&mut downstream, left);
        }
    }

    fn turn(&mut self) -> Result<(), Lost> {
        if self.generation != self.node.generation() {
            self.connection = None;
            self.generation = self.node.generation();
        }
        self.asked = Instant::now();
        // Of a node that is behind, the room is not asked for: no value depends on it before a copy ends.
        let may_ask = self.node.downstream.lock().may_ask_for_room();
        if !may_ask || (self.connection.is_none() && !self.connect()?) {
            std::thread::sleep(RETRY_AFTER);
            return Ok(());
        }
        let Some(version) = self.connection.as_ref().map(Connection::version) else { return Ok(()) };
        // Looked at before what was taken: from then on nothing else is under way.
        let is_ready = self.node.is_ready();
        let (question, ask) = self.node.downstream.lock().ask_for_room(version, is_ready);
        let answer = self.ask(ask)?;
        let mut downstream = self.node.downstream.lock();
        // A node that got in step since the last batch is counted, although nobody writes.
        downstream.note_copies(version, answer.nodes);
        downstream.answer_of_room(version, question, answer.room);
        drop(downstream);
        self.node.wake_for_room();
        Ok(())
    }

    /// Opens the stream; false if there is no node behind.
    fn connect(&mut self) -> Result<bool, Lost> {
        let (node, generation) = (self.node, self.generation);
        let (version, member) = {
            let downstream = node.downstream.lock();
            (downstream.version(), downstream.node().cloned())
        };
        let Some(member) = member else { return Ok(false) };
        let hello: Hello = node.hello_for(&node.view(), &member.name, ROOM_STREAM);
        let goes_on = || !node.is_stopping() && node.generation() == generation;
        let opened = Connection::open(&member.address, version, &hello, &goes_on)?;
        self.connection = Some(opened.connection);
        Ok(true)
    }

    /// Asks for the room behind; returns the answer.
    fn ask(&mut self, ask: Ask) -> Result<Acknowledged, Lost> {
        let (node, generation) = (self.node, self.generation);
        let Some(connection) = &mut self.connection else { return Err(Lost::Ended) };
        let (version, number) = (connection.version(), connection.next_number());
        connection.write_all(&ask.encode(version, number))?;
        let goes_on = || !node.is_stopping() && node.generation() == generation;
        connection.wait_for_all(&goes_on)
    }
}
