//! Publishing: what a chunk of the logs has changed becomes records of the tree, in one transaction. The protocol and the
//! argument for every crash point: `docs/format/fs.md`, "Writing" and "Why a crash does no harm".
//!
//! 1. *Build* the records under the lock of the tree. They refer to the frames in which the bytes landed.
//! 2. Make the log of the mount durable up to the newest operation of the chunk. Those of other clients are.
//! 3. Commit the transaction.
//! 4. *Apply*: the index refers to the new records, and what they replace is dropped, the operations among it.

use crate::apply;
use crate::build::{Built, Record, build, build_dropped};
use crate::error::FsError;
use crate::files::Files;
use crate::log::Log;
use crate::published::Published;
use crate::state::State;
use landfall_heap::{Ticket, Transaction, Writer};
use std::sync::Arc;

/// Bytes of writes after which a chunk is published.
pub const CHUNK_BYTES: u64 = 4 << 20;
/// Operations after which a chunk is published.
pub const CHUNK_OPERATIONS: usize = 4096;

/// Publishes the logs of [`Files`].
#[derive(Debug)]
pub struct Publisher {
    files: Arc<Files>,
    writer: Writer,
}

impl Files {
    /// True if a chunk of the logs is complete.
    pub fn publishing_is_due(&self) -> bool {
        let state = self.lock();
        let (operations, bytes) = state.logs_len();
        bytes >= CHUNK_BYTES || operations >= CHUNK_OPERATIONS as u64
    }

    /// Operations in all logs, and bytes of their values.
    pub fn log_len(&self) -> (u64, u64) {
        self.lock().logs_len()
    }
}

impl State {
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
        Self { files, writer }
    }

    /// Publishes everything that the logs have, in one transaction. It blocks in fences.
    ///
    /// # Errors
    /// [`FsError::Wait`] and [`landfall_heap::HeapError::Full`] while there is no space for the records: the logs stay as they are. The
    /// medium's.
    pub fn step(&mut self) -> Result<Published, FsError> {
        let Some((built, transaction, ticket)) = self.begin()? else { return Ok(Published::default()) };
        let committed = ticket
            .map_or(Ok(()), |ticket| self.files.sync_to(ticket))
            .and_then(|()| Ok(self.writer.commit(transaction)?));
        let mut state = self.files.lock();
        match committed {
            Ok(_) => Ok(apply::apply(&mut state, built)),
            Err(error) => {
                apply::abort(&mut state, built);
                Err(error)
            }
        }
    }

    /// Publishes tombstones of records of the tree, in one transaction, and nothing of the logs.
    ///
    /// # Errors
    /// As [`Self::step`].
    pub(crate) fn drop_records(&mut self, dropped: Vec<Record>) -> Result<(), FsError> {
        let mut state = self.files.lock();
        let mut transaction = self.writer.begin_transaction(0)?;
        let mut built = Built { parts: Vec::new(), ..Built::new(&state, self.files.next_number()) };
        let heap = Arc::clone(&state.heap);
        build_dropped(&heap, &mut self.writer, &mut transaction, &mut built, dropped)?;
        self.writer.commit(transaction)?;
        apply::apply(&mut state, built);
        Ok(())
    }

    fn begin(&mut self) -> Result<Option<(Built, Transaction, Option<Ticket>)>, FsError> {
        let mut state = self.files.lock();
        if !state.tree.has_changed() && state.is_published() {
            return Ok(None);
        }
        state.restore_foreign()?;
        let mut transaction = self.writer.begin_transaction(0)?;
        let next_number = self.files.next_number();
        let mut built = Built::new(&state, next_number);
        state.moves = Some(Default::default());
        match build(&mut state, &mut self.writer, &mut transaction, &mut built) {
            Ok(()) => Ok(Some((built, transaction, state.writer.newest()))),
            Err(error) => {
                apply::abort(&mut state, built);
                Err(error)
            }
        }
    }
}
