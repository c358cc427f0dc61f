//! The files of a node of a chain: operations that the first node has executed are executed here, too. The rules, and why
//! a crash does no harm: `docs/format/chain.md`, "Files".

use crate::bytes::gathered;
use crate::error::FsError;
use crate::files::Files;
use crate::inode::ORPHAN;
use crate::key::{InodeNumber, OperationKey};
use crate::log::CLIENT;
use crate::open::new_number;
use crate::operation::{Operation, Stamp};
use crate::received::{Received, Sent};
use crate::state::{State, Step};
use crate::tree::TreeError;
use landfall_heap::{Damage, Heap, HeapError, SlotId, Source, Successor, Ticket, spaces};
use landfall_media::MediaError;
use smallvec::SmallVec;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use thiserror::Error;

/// A record of another machine's files: of a log, or of the tree.
#[derive(Clone, Copy, Debug)]
pub struct FilesRecord<'a> {
    /// The space.
    pub space: u8,
    /// The key.
    pub key: &'a [u8],
    /// What the record says beside its value.
    pub aux: u32,
    /// As [`Self::aux`].
    pub mark: u64,
    /// As [`Self::aux`].
    pub arrival_ns: u64,
    /// The value, verified.
    pub value: Source<'a>,
}

/// Why a record of another machine is not taken.
#[derive(Debug, Error)]
pub enum ReceiveError {
    /// Not yet, or not on this medium.
    #[error(transparent)]
    Files(#[from] FsError),
    /// The files of the two machines differ.
    #[error("the files refuse operation {index}: {error}: they are not those of the node before")]
    Refused {
        /// Index of the operation.
        index: u64,
        /// Why.
        error: TreeError,
    },
    /// Operations are missing.
    #[error("operation {index} of the files came, and not {expected}")]
    Missing {
        /// Its index.
        index: u64,
        /// The next one of the log.
        expected: u64,
    },
    /// It is no record of files, or of another client than the mount.
    #[error("this is no record of files: {0}")]
    Damage(Damage),
    /// An inode comes under a number that had one here, of which something may be left.
    #[error("inode {} was deleted here, and is there at the node before: the next copy keeps nothing of here", .number.0)]
    Returned {
        /// Its number.
        number: InodeNumber,
    },
    /// No copy has begun.
    #[error("no copy of files has begun")]
    NoCopy,
}

impl From<HeapError> for ReceiveError {
    fn from(error: HeapError) -> Self {
        Self::Files(error.into())
    }
}

impl From<MediaError> for ReceiveError {
    fn from(error: MediaError) -> Self {
        Self::Files(error.into())
    }
}

impl From<Damage> for ReceiveError {
    fn from(damage: Damage) -> Self {
        Self::Damage(damage)
    }
}

/// What a group of operations does, decoded.
struct Decoded<'a> {
    stamp: Stamp,
    /// The file of its writes.
    file: InodeNumber,
    parts: SmallVec<[Part<'a>; 2]>,
    /// The highest number that it gives to an inode.
    number_max: u64,
}

enum Part<'a> {
    Operation(Operation<'a>),
    Write(u64, Source<'a>),
}

impl Files {
    /// From now on whatever is appended to the log of the mount is durable only when `successor` has it, too.
    pub fn set_successor(&self, successor: Arc<dyn Successor>) {
        self.lock().writer.set_successor(successor);
        self.has_successor.store(true, Ordering::Release);
    }

    /// True if other machines get what is appended to the log of the mount.
    pub fn has_successor(&self) -> bool {
        self.has_successor.load(Ordering::Acquire)
    }

    /// Executes operations that the first node has executed as one group. They are durable with [`Self::newest`]. What has
    /// come before is passed over. While a copy is being received they are executed at its end. Returns false from
    /// [`Self::pass_over`] on until a copy begins: they are not taken.
    ///
    /// # Errors
    /// [`ReceiveError`]. [`FsError::Wait`], [`FsError::Backlog`]: try again.
    pub fn receive(&self, group: &[FilesRecord<'_>]) -> Result<bool, ReceiveError> {
        let keys: SmallVec<[OperationKey; 2]> = group.iter().map(operation_key).collect::<Result<_, _>>()?;
        let Some(first) = keys.first().map(|key| key.index) else { return Ok(true) };
        if let Some((key, _)) = keys.iter().zip(first..).find(|(key, index)| key.index != *index) {
            return Err(ReceiveError::Missing { index: key.index, expected: first + 1 });
        }
        let mut state = self.lock();
        match state.received {
            Received::Executed => {}
            Received::PassedOver => return Ok(false),
            Received::Kept(_) => {
                return state.receive_for_later(&keys, group, Sent::AsExecuted).map(|()| true);
            }
        }
        let expected = state.log.next();
        if first < expected {
            return Ok(true);
        }
        if first > expected {
            return Err(ReceiveError::Missing { index: first, expected });
        }
        state.check_backlog()?;
        let bytes = operation_bytes(&self.heap, &keys, group)?;
        let decoded = decode(&keys, group, &bytes)?;
        let steps: SmallVec<[Step<'_>; 2]> = decoded.parts.iter().map(Part::step).collect();
        // The first node knows how much room there is here.
        state.writer.set_admitted(true);
        let applied = state.apply(decoded.stamp, decoded.file, &steps);
        state.writer.set_admitted(false);
        applied.map_err(|error| match error {
            FsError::Tree(error) => ReceiveError::Refused { index: first, error },
            error => error.into(),
        })?;
        drop(state);
        self.raise_next_number(decoded.number_max + 1);
        Ok(true)
    }

    /// These files are not those of the chain: what is received will be in a copy. It has no effect while one is received.
    pub fn pass_over(&self) {
        let mut state = self.lock();
        if state.received.copying().is_none() {
            state.received = Received::PassedOver;
        }
    }

    /// Index of the operation that the log expects next.
    pub fn next_operation(&self) -> u64 {
        self.lock().log.next()
    }

    /// Operations with a lower index are published.
    pub fn published_below(&self) -> u64 {
        self.lock().log.first
    }

    /// What makes everything durable that the log has.
    pub fn newest(&self) -> Option<Ticket> {
        self.lock().writer.newest()
    }

    /// Everything that was appended to the log with a lower seq is durable. It grows whenever nothing is under way.
    pub fn durable_below(&self) -> u64 {
        let state = self.lock();
        let is_idle = state.writer.newest().is_none_or(|ticket| self.heap.is_durable(ticket));
        if is_idle { self.heap.next_seq() } else { 0 }
    }

    /// The operations in the log whose seq is not lower, in order.
    ///
    /// # Errors
    /// Damage; the medium's.
    pub fn operations_from(&self, seq: u64) -> Result<Vec<SlotId>, FsError> {
        let state = self.lock();
        let mut slots = Vec::new();
        for slot in &state.log.slots {
            if self.heap.record(*slot)?.seq() >= seq {
                slots.push(*slot);
            }
        }
        Ok(slots)
    }

    /// Inodes without a name. Nobody has them open in a mount that has just begun.
    ///
    /// # Errors
    /// Damage; the medium's.
    pub fn orphans(&self) -> Result<Vec<InodeNumber>, FsError> {
        let state = self.lock();
        let mut orphans = state.tree.orphans_in_memory();
        for (number, slot) in state.tree.stored_inodes() {
            let is_stored_only =
                state.tree.in_memory(number).is_none() && !state.damaged.contains_key(&number);
            if is_stored_only && self.heap.record(slot)?.aux() == ORPHAN {
                orphans.push(number);
            }
        }
        Ok(orphans)
    }

    /// From now on nothing is published, and the log may take more than otherwise. Returns false while a chunk is being
    /// published: try again.
    pub fn hold_publishing(&self) -> bool {
        let mut state = self.lock();
        let may_hold = state.moves.is_none();
        if may_hold {
            state.held = Some(state.log.next());
        }
        may_hold
    }

    /// True from [`Self::hold_publishing`] on: nobody makes room in the log.
    pub fn is_publishing_held(&self) -> bool {
        self.lock().held.is_some()
    }

    /// Ends [`Self::hold_publishing`], unless a copy is being received.
    pub fn publish_again(&self) {
        let mut state = self.lock();
        if state.received.copying().is_none() {
            state.held = None;
        }
    }
}

impl<'a> Part<'a> {
    fn step(&self) -> Step<'_> {
        match self {
            Self::Operation(operation) => Step::Operation(operation),
            Self::Write(offset, value) => Step::Write(*offset, *value),
        }
    }
}

/// The key of an operation of the mount's log.
pub(crate) fn operation_key(record: &FilesRecord<'_>) -> Result<OperationKey, Damage> {
    let key = OperationKey::decode(record.key)?;
    let fits = (record.space, record.aux, record.mark) == (spaces::FILES_LOG, CLIENT, key.index);
    if fits && key.client == CLIENT { Ok(key) } else { Err(Damage::RecordFields) }
}

/// The values of those records that are no writes.
fn operation_bytes(
    heap: &Heap,
    keys: &[OperationKey],
    group: &[FilesRecord<'_>],
) -> Result<Vec<Vec<u8>>, MediaError> {
    let bytes = |(key, record): (&OperationKey, &FilesRecord<'_>)| match key.write {
        Some(_) => Ok(Vec::new()),
        None => source_bytes(heap, &record.value),
    };
    keys.iter().zip(group).map(bytes).collect()
}

/// The bytes of a value that came from another machine.
pub(crate) fn source_bytes(heap: &Heap, source: &Source<'_>) -> Result<Vec<u8>, MediaError> {
    match source {
        Source::Bytes(bytes) => Ok(bytes.to_vec()),
        Source::Landed { extents, .. } | Source::Stored { extents, .. } => gathered(heap, extents),
        Source::None | Source::Patched(_) => Ok(Vec::new()),
    }
}

fn decode<'a>(
    keys: &[OperationKey],
    group: &[FilesRecord<'a>],
    bytes: &'a [Vec<u8>],
) -> Result<Decoded<'a>, Damage> {
    let time_ns = group.first().map_or(0, |record| record.arrival_ns).cast_signed();
    let mut decoded = Decoded {
        stamp: Stamp { lease: 0, time_ns },
        file: InodeNumber::ROOT,
        parts: SmallVec::new(),
        number_max: 0,
    };
    for ((key, record), bytes) in keys.iter().zip(group).zip(bytes) {
        decoded.parts.push(match key.write {
            Some(place) => {
                (decoded.file, decoded.stamp.lease) = (place.file, place.lease);
                Part::Write(place.offset, record.value)
            }
            None => {
                let (stamp, operation) = Operation::decode(bytes)?;
                decoded.stamp = stamp;
                decoded.number_max = decoded.number_max.max(new_number(&operation));
                Part::Operation(operation)
            }
        });
    }
    Ok(decoded)
}

impl State {
    /// The record of an operation that is not published.
    pub(crate) fn operation_slot(&mut self, key: &OperationKey) -> Option<&mut SlotId> {
        let waits = self.received.copying().filter(|_| key.client == CLIENT);
        match waits.and_then(|copying| copying.waiting.get_mut(&key.index)) {
            Some(slot) => Some(slot),
            None if key.client == CLIENT => self.log.slot_mut(key.index),
            None => self.others.get_mut(&key.client)?.slot_mut(key.index),
        }
    }
}
