//! The stream of one writer to the node behind.

use crate::answer_wait::{AnswerWait, GRACE};
use crate::connection::{Connection, Lost};
use crate::counters::Counters;
use crate::node::Node;
use crate::outgoing::each_message;
use crate::packer::{Packer, SpareRoom};
use crate::slot::{Batch, Slot};
use landfall_chain::{Acknowledged, Code, Standing, Window};
use landfall_heap::{Heap, HeapError, Kind, SlotId, Successor};
use std::io::{self, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Pause before a connection is tried again.
const RETRY_AFTER: Duration = Duration::from_millis(100);
/// How often an idle connection is looked at.
const CHECK_EVERY: Duration = Duration::from_millis(500);
/// After so long without one the connection is made anew, and the batch sent again. The next time it is twice as long, so
/// that a batch for which a slow medium needs longer gets through.
const SILENT_AFTER: Duration = Duration::from_secs(30);

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
    /// `wake` is called when a batch is complete.
    pub fn wake_by(&self, wake: impl Fn() + Send + Sync + 'static) {
        self.slot().wake_by(Box::new(wake));
    }

    /// Everything that the writer has appended with a lower seq is complete.
    pub fn note_complete(&self, seq: u64) {
        self.slot().note_complete(seq);
    }

    fn slot(&self) -> &Slot {
        &self.node.slots[self.stream]
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
        !self.slot().is_busy()
    }

    fn wait(&self) -> Result<(), HeapError> {
        let mut stops = None;
        let is_over = || self.node.is_stopping() && stops.get_or_insert_with(Instant::now).elapsed() >= GRACE;
        if self.slot().wait(RETRY_AFTER, is_over) && !self.slot().is_lost() {
            return Ok(());
        }
        let node = self.node.behind().map_or_else(|| "the chain".into(), |(name, _)| name);
        Err(HeapError::Alone { node })
    }
}

/// What is done when nothing needs to be sent any more that an earlier life may not have sent.
pub type Prepare = Box<dyn Fn() -> io::Result<()> + Send>;

/// What the first stream does before the node answers anybody.
pub(crate) struct Begin {
    /// What an earlier life may not have sent.
    pub(crate) unsent: Vec<SlotId>,
    pub(crate) prepare: Prepare,
}

/// The work of a stream's thread.
pub(crate) fn run(node: &Node, stream: usize, begin: Option<Begin>) {
    let (connection, told, packer) = (None, String::new(), Packer::new(node.compression()));
    let (generation, is_again, patience) = (0, false, SILENT_AFTER);
    Thread { node, stream, connection, generation, begin, is_again, patience, packer, told }.run();
}

struct Thread<'n> {
    node: &'n Node,
    stream: usize,
    connection: Option<Connection>,
    /// The generation of the connection.
    generation: u64,
    /// Of the first stream, until the node is ready.
    begin: Option<Begin>,
    /// The batch may have been sent before.
    is_again: bool,
    /// How long an answer to the batch is waited for.
    patience: Duration,
    packer: Packer,
    /// What people were told last.
    told: String,
}

impl Thread<'_> {
    fn run(&mut self) {
        // A batch under way gets a little time when the node stops.
        while !self.node.is_stopping() || self.is_in_grace() {
            let outcome = self.turn();
            if let Err(lost) = outcome {
                self.lose(&lost);
            }
            self.complete_if_alone();
            self.lose_if_out();
        }
    }

    fn is_in_grace(&self) -> bool {
        self.slot().is_busy() && self.connection.is_some()
    }

    fn slot(&self) -> &Slot {
        &self.node.slots[self.stream]
    }

    /// Sends one batch, or waits for one for a while.
    fn turn(&mut self) -> Result<(), Lost> {
        if self.generation != self.node.generation() {
            if self.connection.take().is_some() {
                // It may have been made while the view changed.
                self.node.downstream.lock().lost(self.stream);
            }
            self.generation = self.node.generation();
        }
        if self.connection.is_none() && !self.connect()? {
            self.wait_for_work(CHECK_EVERY);
            return Ok(());
        }
        match self.slot().batch() {
            Some(batch) => {
                self.transmit(&batch.records, self.is_again)?;
                (self.is_again, self.patience) = (false, SILENT_AFTER);
                self.complete(&batch)
            }
            None => {
                self.wait_for_work(CHECK_EVERY);
                let idle = !self.slot().is_busy();
                self.connection.as_mut().filter(|_| idle).map_or(Ok(()), Connection::check)
            }
        }
    }

    fn wait_for_work(&self, time: Duration) {
        let may_wait = || !self.node.is_stopping() && self.generation == self.node.generation();
        self.slot().wait_for_work(time, may_wait);
    }

    /// Opens the stream; false if there is no node behind.
    fn connect(&mut self) -> Result<bool, Lost> {
        let (version, member) = {
            let downstream = self.node.downstream.lock();
            (downstream.version(), downstream.node().cloned())
        };
        let Some(member) = member else {
            self.be_ready()?;
            return Ok(false);
        };
        if !self.node.may_connect() {
            return Ok(false);
        }
        let view = self.node.view();
        let stream = u8::try_from(self.stream).map_err(io::Error::other)?;
        let hello = self.node.hello_for(&view, &member.name, stream);
        let (node, generation) = (self.node, self.generation);
        let goes_on = || !node.is_stopping() && node.generation() == generation;
        let opened = Connection::open(&member.address, version, &hello, &goes_on)?;
        if !self.node.downstream.lock().connected(self.stream, version, opened.welcome) {
            return Err(Lost::Ended);
        }
        let (theirs, ours) = (opened.welcome.files, self.node.next_operation());
        let in_step = self.node.downstream.lock().standing() == Standing::InStep;
        // Others get again from the node before what they have lost and the node behind has.
        if self.node.is_first() && in_step && theirs > ours {
            return Err(Lost::Ahead { node: member.name, theirs, ours });
        }
        self.node.note_room(opened.room);
        self.connection = Some(opened.connection);
        Counters::add(&self.node.counters.connections, 1);
        self.told.clear();
        let standing = self.node.downstream.lock().standing();
        tracing::info!(node = member.name, stream, ?standing, "connected to the node behind");
        if standing == Standing::InStep {
            self.send_unsent()?;
        }
        self.be_ready()?;
        self.node.notify();
        Ok(true)
    }

    fn send_unsent(&mut self) -> Result<(), Lost> {
        let Some(begin) = &mut self.begin else { return Ok(()) };
        let unsent = std::mem::take(&mut begin.unsent);
        if unsent.is_empty() {
            return Ok(());
        }
        tracing::info!(records = unsent.len(), "sending what may not have been sent before");
        let sent = self.transmit(&unsent, true);
        if sent.is_err() {
            self.begin.iter_mut().for_each(|begin| begin.unsent.clone_from(&unsent));
        }
        sent
    }

    /// Everything that the region has is at the node behind, or comes there in a copy: clients are answered.
    fn be_ready(&mut self) -> Result<(), Lost> {
        // Only the first stream decides.
        if self.stream == 0 && !self.node.is_ready() {
            self.begin.as_ref().map_or(Ok(()), |begin| (begin.prepare)())?;
            self.node.raise_floor(self.node.heap.next_seq()).map_err(io::Error::other)?;
            self.begin = None;
            self.node.set_ready_in(self.generation);
        }
        Ok(())
    }

    /// Sends records, and waits until they are complete. If they may have been sent before, the long ones are sent only if
    /// they are not there.
    fn transmit(&mut self, records: &[SlotId], is_again: bool) -> Result<(), Lost> {
        let (node, begun) = (self.node, Instant::now());
        let Some(connection) = &mut self.connection else { return Ok(()) };
        let wait = AnswerWait::new(node, self.stream, self.generation, self.patience);
        self.packer.begin();
        let sent = send(node, connection, records, is_again, (&wait, &mut self.packer));
        if sent.is_err() && wait.is_silent() {
            let seconds = self.patience.as_secs();
            self.patience = self.patience.saturating_mul(2);
            return Err(Lost::Silent { seconds });
        }
        let (answer, value_bytes) = sent?;
        node.note_acknowledged(connection.version(), answer);
        let ns = Counters::add_since(&node.counters.batch_ns, begun);
        self.packer.end(value_bytes, ns);
        Counters::add(&node.counters.batches, 1);
        Ok(())
    }

    /// The connection is of no use any more.
    fn lose(&mut self, lost: &Lost) {
        if self.connection.take().is_some() && self.generation == self.node.generation() {
            self.node.downstream.lock().lost(self.stream);
        }
        if lost.is_full() {
            self.node.note_full_behind(true);
        }
        self.is_again |= self.slot().is_busy();
        let text = lost.to_string();
        if text != self.told && !matches!(lost, Lost::Ended) {
            match lost.needs_people() {
                true => {
                    tracing::error!(stream = self.stream, error = text, "the node behind refuses this one")
                }
                false => {
                    tracing::warn!(stream = self.stream, error = text, "no connection to the node behind")
                }
            }
            self.told = text;
        }
        self.complete_if_alone();
        if !self.node.is_stopping() {
            self.node.wait_for_change(RETRY_AFTER);
        }
    }

    fn complete_if_alone(&self) {
        let is_alone = || self.node.downstream.lock().is_complete_alone(self.stream);
        if let Some(batch) = self.slot().batch().filter(|_| is_alone())
            && let Err(error) = self.complete(&batch)
        {
            tracing::error!(%error, "a flush is not complete as long as the state of the node cannot be written");
        }
    }

    /// The batch is complete. What a restart sends again then never begins with a flush that others have built on.
    fn complete(&self, batch: &Batch) -> Result<(), Lost> {
        if let Some(seq) = batch.flushed {
            self.node.raise_floor(seq).map_err(io::Error::other)?;
        }
        self.slot().complete();
        Ok(())
    }

    /// A node that was removed completes nothing any more, whenever it has begun.
    fn lose_if_out(&self) {
        let may_lose = self.slot().is_busy() || !self.slot().is_lost();
        if may_lose && self.node.downstream.lock().is_out() {
            self.slot().lose();
        }
    }
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
