//! The stream of one writer to the node behind.
//!
//! A stream has a thread, which connects, sends, and reads the answers. Where the writer reads answers itself, as it waits for
//! them anyway, it sends short batches itself, too, if nobody else uses the connection: so no thread has to be woken for them.
//! Whatever goes wrong is left to the thread.

use crate::answer_wait::{AnswerWait, GRACE};
use crate::answers::Answers;
use crate::connection::{AtOnce, Connection, Lost};
use crate::counters::Counters;
use crate::line::{Line, SILENT_AFTER, SentBatch};
use crate::node::Node;
use crate::outgoing::{each_message, short_message};
use crate::packer::Packer;
use crate::slot::{Batch, Slot};
use crate::spare_room::SpareRoom;
use landfall_chain::{Acknowledged, Code, Compression, Standing, Window};
use landfall_heap::{Heap, HeapError, Kind, SlotId, Successor};
use landfall_spin::SpinWait;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Pause before a connection is tried again.
const RETRY_AFTER: Duration = Duration::from_millis(100);
/// How often an idle connection is looked at, ...
const CHECK_EVERY: Duration = Duration::from_millis(500);
/// ... and one whose node stops.
const CHECK_STOPPING_EVERY: Duration = Duration::from_millis(10);

/// Sends the batches of one writer to the node behind.
#[derive(Clone, Debug)]
pub struct Link {
    node: Arc<Node>,
    stream: usize,
}

impl Node {
    /// What a writer sends its batches by.
    ///
    /// # Panics
    /// If there are fewer streams.
    pub fn link(self: &Arc<Self>, stream: usize) -> Link {
        assert!(stream < self.streams(), "a stream for each writer");
        Link { node: Arc::clone(self), stream }
    }
}

impl Link {
    /// `wake` is called when a batch is complete, unless the writer itself has found that.
    pub fn wake_by(&self, wake: impl Fn() + Send + Sync + 'static) {
        self.slot().wake_by(Box::new(wake));
    }

    /// Who has sent a batch waits for it ([`Successor::wait`]), or asks [`Successor::is_done`] when an answer is announced: so the
    /// writer sends short batches itself.
    pub fn is_waited_for(&self) {
        self.slot().read_answers();
    }

    /// False if the writer sends nothing itself, as packing takes long.
    pub fn may_send_itself(&self) -> bool {
        self.node.compression() == Compression::Off
    }

    /// From now on what the node behind says is announced there, and whoever is told of it asks [`Successor::is_done`]: so the
    /// writer sends short batches itself.
    ///
    /// # Errors
    /// The kernel's.
    pub fn announce_by(&self, answers: &Answers) -> io::Result<()> {
        self.slot().announced.set_answers(Some(answers))?;
        self.slot().read_answers();
        Ok(())
    }

    /// Nobody is told of answers any more.
    pub fn announce_nowhere(&self) {
        // Nothing is added, so that nothing fails.
        let _ = self.slot().announced.set_answers(None);
    }

    /// Everything that the writer has appended with a lower seq is complete.
    pub fn note_complete(&self, seq: u64) {
        self.slot().note_complete(seq);
    }

    fn slot(&self) -> &Slot {
        self.stream().slot()
    }

    fn stream(&self) -> Stream<'_> {
        Stream { node: &self.node, index: self.stream }
    }
}

impl Successor for Link {
    fn sends_early(&self) -> bool {
        !self.node.is_first() && self.node.sending().overlaps_stages()
    }

    fn send(&self, heap: &Heap, records: &[SlotId]) {
        let flush =
            records.iter().filter_map(|slot| heap.record(*slot).ok()).any(|view| view.kind() == Kind::Flush);
        if !flush && self.node.downstream.lock().is_complete_alone(self.stream) {
            return;
        }
        let flushed = flush.then(|| heap.next_seq());
        self.slot().begin(Batch { records: records.to_vec(), flushed });
        if flush || !self.stream().send_at_once(records) {
            self.slot().want_thread();
        }
    }

    fn take_room(&self, bytes: u64, question: &mut Option<u64>) -> Result<(), HeapError> {
        self.node.take_room(bytes, question)
    }

    fn take_spare_room(&self, bytes: u64) -> bool {
        self.node.take_spare_room(bytes)
    }

    fn give_room_back(&self, bytes: u64) {
        self.node.downstream.lock().give_room_back(bytes);
    }

    fn is_done(&self) -> bool {
        if self.slot().is_busy() {
            self.stream().look_for_answer();
        }
        !self.slot().is_busy()
    }

    fn wait(&self) -> Result<(), HeapError> {
        if self.slot().is_busy() {
            self.stream().wait_for_answer();
        }
        let is_over = || self.node.stopping_for().is_some_and(|time| time >= GRACE);
        if self.slot().wait(RETRY_AFTER, is_over) && !self.slot().is_lost() {
            return Ok(());
        }
        let node = self.node.behind().map_or_else(|| "the chain".into(), |(name, _)| name);
        Err(HeapError::Alone { node })
    }
}

/// The work of a stream's thread.
pub(crate) fn run(node: &Node, index: usize) {
    let stream = Stream { node, index };
    // A batch under way gets a little time when the node stops.
    while !node.is_stopping() || stream.is_in_grace() {
        // The writer holds it for a short time only, or while it waits as the thread would.
        let mut line = stream.slot().line.lock();
        let next = stream.step(&mut line);
        drop(line);
        match next {
            Next::Again => {}
            Next::Wait if node.is_stopping() => stream.slot().wait_for_work(CHECK_STOPPING_EVERY),
            Next::Wait => stream.slot().wait_for_work(CHECK_EVERY),
            Next::Retry => node.wait_for_change(RETRY_AFTER),
        }
    }
}

/// What the thread does next.
enum Next {
    /// It looks at once whether there is more to do.
    Again,
    /// It waits for work.
    Wait,
    /// It tries again after a while, or when something has changed.
    Retry,
}

/// A stream, for its thread and for its writer.
#[derive(Clone, Copy)]
struct Stream<'n> {
    node: &'n Node,
    index: usize,
}

impl<'n> Stream<'n> {
    fn slot(self) -> &'n Slot {
        &self.node.slots[self.index]
    }

    /// Sends a batch that has just begun, in the writer's thread, if it is short and nobody else uses the connection; false if
    /// the thread has to send it, or the rest of it.
    fn send_at_once(self, records: &[SlotId]) -> bool {
        let (node, slot) = (self.node, self.slot());
        if !slot.reads_answers() || node.compression() != Compression::Off {
            return false;
        }
        let Some(mut line) = slot.line.try_lock() else { return false };
        // The thread may have sent it meanwhile.
        let is_due = slot.is_busy() && line.generation == node.generation() && !line.is_again;
        let Line { connection: Some(connection), begin: None, sent: sent @ None, lost: lost @ None, .. } =
            &mut *line
        else {
            return false;
        };
        if !is_due {
            return false;
        }
        let Ok(Some(message)) = short_message(node, records) else { return false };
        let (begun, version, number) = (Instant::now(), connection.version(), connection.next_number());
        *sent = Some(SentBatch { begun });
        match message.write(&node.heap, &mut AtOnce(connection), (Code::Chunk, version, number), None) {
            Ok(bytes) => {
                node.counters.note_sent(bytes);
                Counters::add_since(&node.counters.send_ns, begun);
                !connection.has_rest()
            }
            Err(error) => {
                *lost = Some(error.into());
                false
            }
        }
    }

    /// Completes the batch if the writer has sent it and the answer has come.
    fn look_for_answer(self) {
        let Some(mut line) = self.slot().line.try_lock() else { return };
        self.read_answer(&mut line, |connection, _| connection.answer_to_all());
    }

    /// Completes the batch when the answer has come, if the writer has sent it.
    fn wait_for_answer(self) {
        let Some(mut line) = self.slot().line.try_lock() else { return };
        let (generation, mut patience) = (line.generation, line.patience);
        let wait = AnswerWait::new(self.node, self.index, generation, patience);
        self.read_answer(&mut line, |connection, spin| {
            let wait_for = |time: Duration| match time.is_zero() {
                true => connection.answer_to_all(),
                false => connection.wait_for_all(&|| wait.goes_on()).map(Some),
            };
            unless_silent(spin.until(Duration::MAX, wait_for, Option::is_some), &wait, &mut patience)
        });
        if line.lost.is_some() {
            line.patience = patience;
        }
    }

    /// Completes the batch if the writer has sent it and `read` returns the answer.
    fn read_answer(
        self,
        line: &mut Line,
        read: impl FnOnce(&mut Connection, &mut SpinWait) -> Result<Option<Acknowledged>, Lost>,
    ) {
        let Line { connection: Some(connection), sent: Some(sent), lost: lost @ None, spin, .. } = line
        else {
            return;
        };
        if connection.has_rest() || line.generation != self.node.generation() {
            return;
        }
        match read(connection, spin) {
            Ok(Some(answer)) => {
                self.note_answer(connection.version(), answer, sent.begun);
                line.sent = None;
                line.patience = SILENT_AFTER;
                Counters::add(&self.node.counters.own_batches, 1);
                self.slot().complete_by_writer();
            }
            Ok(None) => {}
            Err(error) => {
                *lost = Some(error);
                self.slot().want_thread();
            }
        }
    }

    /// The batch that began then is acknowledged. Returns how long that took, nanoseconds.
    fn note_answer(self, version: u64, answer: Acknowledged, begun: Instant) -> u64 {
        self.node.note_acknowledged(version, answer);
        Counters::add(&self.node.counters.batches, 1);
        Counters::add_since(&self.node.counters.batch_ns, begun)
    }

    fn is_in_grace(self) -> bool {
        self.slot().is_busy() && self.slot().announced.is_connected()
    }

    /// One step of the thread.
    fn step(self, line: &mut Line) -> Next {
        let next = self.turn(line).unwrap_or_else(|lost| {
            self.lose(line, &lost);
            Next::Retry
        });
        self.complete_if_alone(line);
        self.lose_if_out();
        next
    }

    /// Sends one batch, or sees that the writer has sent one, or that there is none.
    fn turn(self, line: &mut Line) -> Result<Next, Lost> {
        if let Some(lost) = line.lost.take() {
            return Err(lost);
        }
        if line.generation != self.node.generation() {
            if self.disconnect(line) {
                // It may have been made while the view changed.
                self.node.downstream.lock().lost(self.index);
            }
            line.generation = self.node.generation();
        }
        if line.connection.is_none() && !self.connect(line)? {
            return Ok(Next::Wait);
        }
        let Some(batch) = self.slot().batch() else {
            line.connection.as_mut().map_or(Ok(()), Connection::check)?;
            return Ok(Next::Wait);
        };
        match line.sent {
            Some(sent) => self.finish(line, sent)?,
            None => self.transmit(line, &batch.records, line.is_again)?,
        }
        (line.is_again, line.patience) = (false, SILENT_AFTER);
        self.complete(&batch)?;
        Ok(Next::Again)
    }

    /// Opens the stream; false if there is no node behind.
    fn connect(self, line: &mut Line) -> Result<bool, Lost> {
        let (version, member) = {
            let downstream = self.node.downstream.lock();
            (downstream.version(), downstream.node().cloned())
        };
        let Some(member) = member else {
            if let Some(begin) = &mut line.begin {
                begin.unsent.clear();
                self.node.end_list();
            }
            self.be_ready(line)?;
            return Ok(false);
        };
        if !self.node.may_connect() {
            return Ok(false);
        }
        let view = self.node.view();
        let stream = u8::try_from(self.index).map_err(io::Error::other)?;
        let hello = self.node.hello_for(&view, &member.name, stream);
        let (node, generation) = (self.node, line.generation);
        let goes_on = || !node.is_stopping() && node.generation() == generation;
        let opened = Connection::open(&member.address, version, &hello, &goes_on)?;
        if !self.node.downstream.lock().connected(self.index, version, opened.welcome) {
            return Err(Lost::Ended);
        }
        let (theirs, ours) = (opened.welcome.files, self.node.next_operation());
        let in_step = self.node.downstream.lock().standing() == Standing::InStep;
        // Others get again from the node before what they have lost and the node behind has.
        if self.node.is_first() && in_step && theirs > ours {
            return Err(Lost::Ahead { node: member.name, theirs, ours });
        }
        self.node.note_room(version, opened.room);
        if let Err(error) = self.slot().announced.connected(opened.connection.socket()) {
            tracing::warn!(stream, %error, "answers of the node behind take longer");
            self.slot().leave_answers();
        }
        line.connection = Some(opened.connection);
        Counters::add(&self.node.counters.connections, 1);
        line.told.clear();
        self.node.troubles.note_stream(self.index, None);
        let standing = self.node.downstream.lock().standing();
        tracing::info!(node = member.name, stream, ?standing, "connected to the node behind");
        if standing == Standing::InStep {
            self.send_unsent(line)?;
        }
        self.be_ready(line)?;
        self.node.notify();
        Ok(true)
    }

    fn send_unsent(self, line: &mut Line) -> Result<(), Lost> {
        let Some(begin) = &mut line.begin else { return Ok(()) };
        let unsent = std::mem::take(&mut begin.unsent);
        if !unsent.is_empty() {
            tracing::info!(records = unsent.len(), "sending what may not have been sent before");
            if let Err(lost) = self.transmit(line, &unsent, true) {
                line.begin.iter_mut().for_each(|begin| begin.unsent.clone_from(&unsent));
                return Err(lost);
            }
        }
        // What is done before the node is ready may need space.
        self.node.end_list();
        Ok(())
    }

    /// Everything that the region has is at the node behind, or comes there in a copy: clients are answered.
    fn be_ready(self, line: &mut Line) -> Result<(), Lost> {
        // Only the first stream decides.
        if self.index == 0 && !self.node.is_ready() {
            line.begin.as_ref().map_or(Ok(()), |begin| (begin.prepare)())?;
            self.node.raise_floor(self.node.heap.next_seq()).map_err(io::Error::other)?;
            line.begin = None;
            self.node.end_list();
            self.node.set_ready_in(line.generation);
        }
        Ok(())
    }

    /// Sends records, and waits until they are complete. If they may have been sent before, the long ones are sent only if
    /// they are not there.
    fn transmit(self, line: &mut Line, records: &[SlotId], is_again: bool) -> Result<(), Lost> {
        let (node, begun) = (self.node, Instant::now());
        let Line { connection: Some(connection), packer, patience, generation, .. } = line else {
            return Ok(());
        };
        let wait = AnswerWait::new(node, self.index, *generation, *patience);
        packer.begin();
        let sent = send(node, connection, records, is_again, (&wait, packer));
        let (answer, value_bytes) = unless_silent(sent, &wait, patience)?;
        let ns = self.note_answer(connection.version(), answer, begun);
        packer.end(value_bytes, ns);
        Ok(())
    }

    /// Sends the rest of what the writer has sent, if there is one, and waits until it is complete.
    fn finish(self, line: &mut Line, sent: SentBatch) -> Result<(), Lost> {
        let Line { connection: Some(connection), patience, generation, .. } = line else { return Ok(()) };
        connection.write_rest()?;
        let wait = AnswerWait::new(self.node, self.index, *generation, *patience);
        let answer = connection.wait_for_all(&|| wait.goes_on());
        let answer = unless_silent(answer, &wait, patience)?;
        self.note_answer(connection.version(), answer, sent.begun);
        line.sent = None;
        Ok(())
    }

    /// Closes the connection; false if there is none.
    fn disconnect(self, line: &mut Line) -> bool {
        self.slot().announced.lost();
        line.is_again |= self.slot().is_busy();
        line.sent = None;
        line.connection.take().is_some()
    }

    /// The connection is of no use any more.
    fn lose(self, line: &mut Line, lost: &Lost) {
        if self.disconnect(line) && line.generation == self.node.generation() {
            self.node.downstream.lock().lost(self.index);
        }
        if lost.is_full() {
            self.node.note_full_behind(true);
        }
        let text = lost.to_string();
        if !matches!(lost, Lost::Ended) {
            self.node.troubles.note_stream(self.index, Some(text.clone()));
        }
        if text != line.told && !matches!(lost, Lost::Ended) {
            match lost.needs_people() {
                true => {
                    tracing::error!(stream = self.index, error = text, "the node behind refuses this one")
                }
                false => {
                    tracing::warn!(stream = self.index, error = text, "no connection to the node behind")
                }
            }
            line.told = text;
        }
    }

    fn complete_if_alone(self, line: &mut Line) {
        let is_alone = || self.node.downstream.lock().is_complete_alone(self.index);
        let Some(batch) = self.slot().batch().filter(|_| is_alone()) else { return };
        match self.complete(&batch) {
            Ok(()) => line.sent = None,
            Err(error) => {
                tracing::error!(%error, "a flush is not complete as long as the state of the node cannot be written");
            }
        }
    }

    /// The batch is complete. What a restart sends again then never begins with a flush that others have built on.
    fn complete(self, batch: &Batch) -> Result<(), Lost> {
        if let Some(seq) = batch.flushed {
            self.node.raise_floor(seq).map_err(io::Error::other)?;
        }
        self.slot().complete();
        Ok(())
    }

    /// A node that was removed completes nothing any more, whenever it has begun.
    fn lose_if_out(self) {
        let may_lose = self.slot().is_busy() || !self.slot().is_lost();
        if may_lose && self.node.downstream.lock().is_out() {
            self.slot().lose();
        }
    }
}

/// The answer, or that there is none: the next one is waited for twice as long then.
fn unless_silent<T>(
    answer: Result<T, Lost>,
    wait: &AnswerWait<'_>,
    patience: &mut Duration,
) -> Result<T, Lost> {
    if answer.is_err() && wait.is_silent() {
        let seconds = patience.as_secs();
        *patience = patience.saturating_mul(2);
        return Err(Lost::Silent { seconds });
    }
    answer
}

/// Sends records message by message; returns the answer to all of them, and the bytes of their values that were sent.
fn send(
    node: &Node,
    connection: &mut Connection,
    records: &[SlotId],
    is_again: bool,
    (wait, packer): (&AnswerWait<'_>, &mut Packer),
) -> Result<(Acknowledged, u64), Lost> {
    let (begun, version, goes_on) = (Instant::now(), connection.version(), || wait.goes_on());
    let (mut last, mut value_bytes, mut spare) = (None, 0, SpareRoom::new(node));
    let mut window = Window::new(node.sending());
    each_message(node, records, |message| {
        if is_again && message.is_worth_a_check() {
            let check = message.check(version, connection.next_number());
            connection.write_all(&check)?;
            let answer = connection.wait_for_all(&goes_on)?;
            if answer.nodes > 0 {
                last = Some(answer);
                return Ok(());
            }
        }
        last = None;
        let number = connection.next_number();
        // The node behind may have had no room for both, what is packed and what it unpacks to.
        let packing = (!is_again).then_some((&mut *packer, &mut spare));
        let sent = message.write(&node.heap, connection, (Code::Chunk, version, number), packing)?;
        node.counters.note_sent(sent);
        value_bytes += sent.value_bytes;
        if !window.send() {
            last = Some(connection.wait_for_all(&goes_on)?);
            window.acknowledge_all();
        }
        Ok::<(), Lost>(())
    })?;
    Counters::add_since(&node.counters.send_ns, begun);
    Ok((last.map_or_else(|| connection.wait_for_all(&goes_on), Ok)?, value_bytes))
}
