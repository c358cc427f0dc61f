//! Publishing: what a chunk of the logs has changed becomes records of the tree, in one transaction. The protocol and the
//! argument for every crash point: `docs/format/fs.md`, "Writing" and "Why a crash does no harm".
//!
//! 1. *Build* the records under the lock of the tree. They refer to the frames in which the bytes landed, unless
//!    [`Publishing`] says otherwise.
//! 2. Make the log of the mount durable up to the newest operation of the chunk. Those of other clients are.
//! 3. Commit the transaction.
//! 4. *Apply*: the index refers to the new records, and what they replace is dropped, the operations among it.

use crate::apply;
use crate::build::{Builder, Built, Record, build, build_dropped};
use crate::error::FsError;
use crate::files::Files;
use crate::header::Header;
use crate::log::Log;
use crate::pace::CHUNK_BYTES;
use crate::published::Published;
use crate::publishing::Publishing;
use crate::state::State;
use landfall_heap::{SlotId, Ticket, Transaction, Until, Writer};
use std::sync::Arc;

/// Operations after which a chunk is published.
pub const CHUNK_OPERATIONS: usize = 4096;

/// Bytes of writes in the log of the mount above which it takes no operation until a chunk is published.
pub const BACKLOG_BYTES: u64 = 16 * CHUNK_BYTES;
/// Operations above which it takes none.
pub const BACKLOG_OPERATIONS: usize = 16 * CHUNK_OPERATIONS;
/// So many times as much may be in the log while nothing is published.
const HELD_BACKLOGS: usize = 16;

/// What the publisher does to a chunk, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Fetches what the logs have, and puts the records together, under the lock of the tree. What the operations undo is
    /// left out. They were validated when they were executed.
    Fetch,
    /// Makes the log durable up to the newest operation of the chunk.
    Log,
    /// Commits the records in one transaction.
    Commit,
    /// Applies them, and drops the operations, under the lock of the tree.
    Acknowledge,
}

impl Stage {
    /// All stages, in order.
    pub const ALL: [Self; 4] = [Self::Fetch, Self::Log, Self::Commit, Self::Acknowledge];
}

/// Whether the header says that a repair has yet to end, when some of its records are dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repair {
    /// It does, until the next transaction.
    GoesOn,
    IsNotNoted,
}

/// The records of a chunk, the transaction that has them, and the newest operation of the mount's log.
type Fetched = (Built, Transaction, Option<Ticket>);

/// Publishes the logs of [`Files`].
#[derive(Debug)]
pub struct Publisher {
    pub(crate) files: Arc<Files>,
    pub(crate) writer: Writer,
    publishing: Publishing,
    /// A step publishes nothing that is not durable.
    waits_to_be_asked: bool,
    /// What the log had when a copy began: it goes when the log's new bound is durable.
    pub(crate) left: Vec<SlotId>,
    /// A copy has ended, and what follows from that is not published.
    pub(crate) has_ended_copy: bool,
}

impl Files {
    /// True if a chunk of the logs is complete.
    pub fn publishing_is_due(&self) -> bool {
        let state = self.lock();
        let (operations, bytes) = state.logs_len();
        bytes >= CHUNK_BYTES || operations >= CHUNK_OPERATIONS as u64
    }

    /// True if publishing is held, as after [`Self::hold_publishing`], and the log has all that it may have meanwhile.
    pub fn is_held_up(&self) -> bool {
        let state = self.lock();
        state.held.is_some() && state.is_backlog_full()
    }

    /// True if what the log may have until something is published is nearly reached: there is room for the operations that have
    /// begun, and whoever begins another one is to wait.
    pub fn is_log_crowded(&self) -> bool {
        self.lock().is_backlog_over(7, 8)
    }

    /// Operations in all logs, and bytes of their values.
    pub fn log_len(&self) -> (u64, u64) {
        self.lock().logs_len()
    }
}

impl State {
    /// Refuses operations while too many are not published.
    pub(crate) fn check_backlog(&self) -> Result<(), FsError> {
        if self.is_backlog_full() { Err(FsError::Backlog) } else { Ok(()) }
    }

    fn is_backlog_full(&self) -> bool {
        self.is_backlog_over(1, 1)
    }

    /// True if the log has this part of what it may have, as a fraction, or more.
    fn is_backlog_over(&self, numerator: usize, denominator: usize) -> bool {
        let times = if self.held.is_some() { HELD_BACKLOGS } else { 1 };
        let part = |whole: usize| whole / denominator * numerator * times;
        self.log.bytes >= part(BACKLOG_BYTES as usize) as u64
            || self.log.slots.len() >= part(BACKLOG_OPERATIONS)
    }

    fn logs_len(&self) -> (u64, u64) {
        let len = |log: &Log| (log.slots.len() as u64, log.bytes);
        self.logs().map(len).fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1))
    }

    /// True if the bounds on the medium say all, and the header.
    fn is_published(&self) -> bool {
        let is_bound = |client: &u32| self.stored.bounds.contains_key(client);
        !self.header_changed && self.logs().all(Log::is_published) && self.others.keys().all(is_bound)
    }
}

impl Publisher {
    /// A publisher. `writer` is its id, which no other writer of the region has.
    pub fn new(files: Arc<Files>, writer: u8) -> Self {
        let mut writer = Writer::new(Arc::clone(files.heap()), writer);
        // What was taken into the log must get out of it, also when the region is full.
        writer.set_frees_space(true);
        let publishing = Publishing::default();
        Self { files, writer, publishing, waits_to_be_asked: false, left: Vec::new(), has_ended_copy: false }
    }

    /// From now on records get their bytes in this way.
    pub fn set_publishing(&mut self, publishing: Publishing) {
        self.publishing = publishing;
    }

    /// From now on a step publishes, or does not, nothing while the log has an operation that is not durable: it makes none
    /// durable then, and so sends none to the log's successor.
    pub fn set_waits_to_be_asked(&mut self, waits: bool) {
        self.waits_to_be_asked = waits;
    }

    /// Publishes everything that the logs have, in one transaction. It blocks in fences.
    ///
    /// # Errors
    /// [`FsError::Wait`] and [`landfall_heap::HeapError::Full`] while there is no space for the records: the logs stay as they are. The
    /// medium's.
    pub fn step(&mut self) -> Result<Published, FsError> {
        self.step_by_stages(&mut |_| {})
    }

    /// As [`Self::step`]. `begins` is called when a stage begins. None does if there is nothing to publish, but the first.
    ///
    /// # Errors
    /// As [`Self::step`].
    pub fn step_by_stages(&mut self, begins: &mut dyn FnMut(Stage)) -> Result<Published, FsError> {
        begins(Stage::Fetch);
        let Some((built, transaction, ticket)) = self.fetch()? else { return Ok(Published::default()) };
        begins(Stage::Log);
        let logged = ticket.map_or(Ok(()), |ticket| self.files.sync_to(ticket));
        begins(Stage::Commit);
        let committed = logged.and_then(|()| Ok(self.writer.commit(transaction)?));
        begins(Stage::Acknowledge);
        let mut state = self.files.lock();
        match committed {
            Ok(_) => Ok(apply::apply(&mut state, built)),
            Err(error) => {
                apply::abort(&mut state, built);
                Err(error)
            }
        }
    }

    /// Publishes tombstones of records of the tree, in one transaction, and nothing of the logs. Of a repair that goes on, also
    /// that it does.
    ///
    /// # Errors
    /// As [`Self::step`].
    pub(crate) fn drop_records(&mut self, dropped: Vec<Record>, repair: Repair) -> Result<(), FsError> {
        let mut state = self.files.lock();
        let header = (repair == Repair::GoesOn).then(|| Header { under_repair: true, ..state.header });
        state.header_changed |= header.is_some();
        let mut transaction = self.writer.begin_transaction(0)?;
        let mut built = Built { parts: Vec::new(), ..Built::new(&state, self.files.next_number()) };
        let heap = Arc::clone(&state.heap);
        let (writer, publishing) = (&mut self.writer, self.publishing);
        let builder =
            Builder { heap: &heap, publishing, writer, transaction: &mut transaction, built: &mut built };
        build_dropped(builder, dropped, header.as_ref())?;
        self.writer.commit(transaction)?;
        apply::apply(&mut state, built);
        Ok(())
    }

    /// What it needs and is not in memory is read first, if the calling thread may block.
    fn fetch(&mut self) -> Result<Option<Fetched>, FsError> {
        let mut publishing = self.publishing;
        loop {
            match self.fetch_by(publishing) {
                Err(FsError::Wait(Until::Load(load))) if self.files.heap().wait_for_load(load) => {}
                // There may be no room for copies.
                Err(_) if publishing != Publishing::Relink => publishing = Publishing::Relink,
                fetched => return fetched,
            }
        }
    }

    fn fetch_by(&mut self, publishing: Publishing) -> Result<Option<Fetched>, FsError> {
        let mut state = self.files.lock();
        if state.held.is_some() || !state.tree.has_changed() && state.is_published() {
            return Ok(None);
        }
        let is_durable = |ticket: Ticket| self.files.heap().is_durable(ticket);
        if self.waits_to_be_asked && !state.writer.newest().is_none_or(is_durable) {
            return Ok(None);
        }
        state.restore_foreign()?;
        let mut transaction = self.writer.begin_transaction(0)?;
        let next_number = self.files.next_number();
        let mut built = Built::new(&state, next_number);
        state.moves = Some(Default::default());
        let (heap, writer) = (Arc::clone(&state.heap), &mut self.writer);
        let builder =
            Builder { heap: &heap, publishing, writer, transaction: &mut transaction, built: &mut built };
        match build(&mut state, builder) {
            Ok(()) => Ok(Some((built, transaction, state.writer.newest()))),
            Err(error) => {
                apply::abort(&mut state, built);
                Err(error)
            }
        }
    }
}
