//! Everything about files that one lock protects: the tree, the log, and where their records are.

use crate::data_map::{DataMap, Interval};
use crate::dead::Dead;
use crate::directory::Directory;
use crate::error::FsError;
use crate::header::Header;
use crate::inode::{ATTRIBUTE_BYTES, FileType, Inode};
use crate::kept::Kept;
use crate::key::{InodeNumber, WritePlace};
use crate::log::{Log, LogEntry};
use crate::names::{Names, Position};
use crate::node::{Body, Extended, Node};
use crate::operation::{Operation, Stamp};
use crate::received::Received;
use crate::relocations::Relocations;
use crate::stored::Stored;
use crate::tree::{Tree, TreeError, Unread};
use crate::witness::Witness;
use landfall_heap::{
    Damage, FEATURE_CALLS, Heap, HeapError, RecordView, SlotId, Source, Ticket, Writer, spaces,
};
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Whose operations are executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doer {
    /// Those of the calling thread: it says which call they are of, and is told what becomes of them.
    Caller,
    /// Those of a client.
    Client,
}

/// One operation of a group.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step<'a> {
    Operation(&'a Operation<'a>),
    /// A write of whole blocks.
    Write(u64, Source<'a>),
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) heap: Arc<Heap>,
    pub(crate) tree: Tree,
    pub(crate) stored: Stored,
    /// The log of the mount, and what appends to it.
    pub(crate) log: Log,
    pub(crate) writer: Writer,
    /// The logs of all other clients, by client.
    pub(crate) others: BTreeMap<u32, Log>,
    /// Of records of the tree: those of which the header's floor says that they mean nothing are not counted.
    pub(crate) kept: Kept,
    /// Of bounds.
    pub(crate) kept_bounds: Kept,
    pub(crate) dead: Dead,
    pub(crate) header: Header,
    /// The header on the medium is another one.
    pub(crate) header_changed: bool,
    /// Most inodes that stay in memory once they are published.
    pub(crate) nodes_max: usize,
    /// Inodes of which a record cannot be read.
    pub(crate) damaged: BTreeMap<InodeNumber, (SlotId, Damage)>,
    /// While a chunk is being published: where records have gone since it was put together.
    pub(crate) moves: Option<Relocations>,
    /// Inodes that have changed, and what makes the newest change durable.
    pub(crate) pending: BTreeMap<InodeNumber, Ticket>,
    /// Operations of the log with a lower index are durable in this region. Those of an earlier life are, too.
    pub(crate) persistent_below: u64,
    /// Learns of what is executed.
    pub(crate) witness: Option<Arc<dyn Witness>>,
    /// Nothing is published meanwhile. The index of the log's next operation when that began.
    pub(crate) held: Option<u64>,
    /// What becomes of operations that another machine sends.
    pub(crate) received: Received,
}

fn damaged(slot: SlotId) -> impl Fn(Damage) -> FsError {
    move |what| FsError::Heap(HeapError::Damaged { slot, what })
}

impl State {
    /// All logs.
    pub(crate) fn logs(&self) -> impl Iterator<Item = &Log> {
        std::iter::once(&self.log).chain(self.others.values())
    }

    /// What is kept of records of a space.
    pub(crate) fn kept_of(&mut self, space: u8) -> &mut Kept {
        if space == spaces::FILES_LOG { &mut self.kept_bounds } else { &mut self.kept }
    }

    /// The log of a client.
    pub(crate) fn log_of(&mut self, client: u32) -> Option<&mut Log> {
        if client == self.log.client { Some(&mut self.log) } else { self.others.get_mut(&client) }
    }

    /// Executes operations on one file, or a single operation: all or nothing. What the tree needs is read.
    pub(crate) fn apply(
        &mut self,
        stamp: Stamp,
        file: InodeNumber,
        steps: &[Step<'_>],
    ) -> Result<(), FsError> {
        let call = self.witness.as_ref().and_then(|witness| witness.call()).map(Operation::Call);
        let steps: SmallVec<[Step<'_>; 4]> =
            steps.iter().copied().chain(call.as_ref().map(Step::Operation)).collect();
        self.apply_for(Doer::Caller, stamp, file, &steps)
    }

    /// As [`Self::apply`], without the call.
    pub(crate) fn apply_for(
        &mut self,
        doer: Doer,
        stamp: Stamp,
        file: InodeNumber,
        steps: &[Step<'_>],
    ) -> Result<(), FsError> {
        self.require_features(steps)?;
        self.check_later(file, steps)?;
        let encoded: Vec<Vec<u8>> = steps.iter().map(|step| encode(step, stamp)).collect();
        let entries: Vec<LogEntry<'_>> = steps
            .iter()
            .zip(&encoded)
            .map(|(step, bytes)| match *step {
                Step::Operation(_) => LogEntry { write: None, value: Source::Bytes(bytes) },
                Step::Write(offset, value) => {
                    LogEntry { write: Some(WritePlace { file, offset, lease: stamp.lease }), value }
                }
            })
            .collect();
        let keeps_space = matches!(steps, [Step::Operation(first), ..] if first.keeps_space());
        loop {
            self.writer.set_frees_space(keeps_space);
            self.note_appending(doer, Some(self.log.next() + entries.len() as u64));
            let appended = self.log.append(&mut self.writer, &self.heap, stamp.time_ns, &entries);
            let slots = appended.inspect_err(|_| self.note_appending(doer, None))?;
            let done = self.execute(stamp, steps, &entries, &slots);
            match done {
                Ok(()) => {
                    self.log.keep(&slots, &entries);
                    let ticket = self.writer.ticket();
                    let touched = self.tree.take_touched();
                    if let Some(witness) = &self.witness {
                        match doer {
                            Doer::Caller => witness.executed(self.log.next(), &touched),
                            Doer::Client => witness.adopted(self.log.next(), &touched),
                        }
                    }
                    self.pending.extend(touched.into_iter().map(|number| (number, ticket)));
                    return Ok(());
                }
                Err(refused) => {
                    self.writer.take_back(&slots);
                    self.note_appending(doer, None);
                    self.tree.take_touched();
                    let TreeError::Unread(unread) = refused else { return Err(refused.into()) };
                    self.load(unread)?;
                }
            }
        }
    }

    /// Checks what the first step does not, and reads what the others need: those cannot be refused once it is executed.
    fn check_later(&mut self, file: InodeNumber, steps: &[Step<'_>]) -> Result<(), FsError> {
        let makes_file = |step: &Step<'_>| matches!(step, Step::Operation(Operation::Create { number, .. }) if *number == file);
        let (first, later) = (steps.first(), steps.get(1..).unwrap_or_default());
        for step in later {
            match *step {
                Step::Operation(&Operation::Link { parent, name, replaces, .. }) => {
                    self.ask(|tree| tree.check_new_name(parent, name, replaces))?;
                }
                Step::Write(..) if !first.is_some_and(makes_file) => drop(self.node(file)?),
                Step::Operation(_) | Step::Write(..) => {}
            }
        }
        Ok(())
    }

    /// Earlier versions know nothing of calls: they refuse the region from the first one on.
    fn require_features(&self, steps: &[Step<'_>]) -> Result<(), HeapError> {
        let is_of_calls =
            |step: &Step<'_>| matches!(step, Step::Operation(operation) if operation.is_of_calls());
        match steps.iter().any(is_of_calls) {
            true => Ok(self.heap.require_features(FEATURE_CALLS)?),
            false => Ok(()),
        }
    }

    fn note_appending(&self, doer: Doer, end: Option<u64>) {
        if doer == Doer::Caller {
            self.witness.iter().for_each(|witness| witness.appending(end));
        }
    }

    /// Executes steps on the tree. Only the first one can be refused: [`Self::check_later`] has checked the others.
    fn execute(
        &mut self,
        stamp: Stamp,
        steps: &[Step<'_>],
        entries: &[LogEntry<'_>],
        slots: &[SlotId],
    ) -> Result<(), TreeError> {
        for (at, ((step, entry), slot)) in steps.iter().zip(entries).zip(slots).enumerate() {
            let done = match (step, entry.write) {
                (Step::Write(..), Some(place)) => {
                    self.tree.write(&place, entry.value.len(), *slot, stamp.time_ns)
                }
                (Step::Operation(operation), _) => self.tree.execute(stamp, operation),
                (Step::Write(..), None) => Err(TreeError::Invalid),
            };
            if at == 0 {
                done?;
            } else {
                done.expect("what follows the first step has been checked");
            }
        }
        Ok(())
    }

    /// Executes on the tree what is in a log already; what it needs is read.
    pub(crate) fn again(
        &mut self,
        mut execute: impl FnMut(&mut Tree) -> Result<(), TreeError>,
    ) -> Result<(), FsError> {
        loop {
            match execute(&mut self.tree) {
                Err(TreeError::Unread(unread)) => self.load(unread)?,
                done => return Ok(done?),
            }
        }
    }

    /// Asks the tree; what it needs is read.
    pub(crate) fn ask<T>(&mut self, ask: impl Fn(&Tree) -> Result<T, TreeError>) -> Result<T, FsError> {
        loop {
            match ask(&self.tree) {
                Err(TreeError::Unread(unread)) => self.load(unread)?,
                done => return Ok(done?),
            }
        }
    }

    /// An inode, which is read if it is not in memory.
    pub(crate) fn node(&mut self, number: InodeNumber) -> Result<&Node, FsError> {
        self.ask(|tree| tree.node(number).map(drop))?;
        Ok(self.tree.node(number)?)
    }

    /// Reads what the tree needs.
    pub(crate) fn load(&mut self, unread: Unread) -> Result<(), FsError> {
        match unread {
            Unread::Inode(number) => {
                // An older record of the key must not stand in for one that cannot be read.
                if let Some((slot, what)) = self.damaged.get(&number).copied() {
                    return Err(HeapError::Damaged { slot, what }.into());
                }
                let slot = self.tree.slot(number).ok_or(TreeError::NotFound)?;
                let node = self.read_node(number, slot)?;
                self.tree.load(number, node);
            }
            Unread::Names(number, first) => {
                let slot = self.stored.names.get(&(number, first)).copied().ok_or(TreeError::NotFound)?;
                let directory = self.tree.node(number)?.directory().ok_or(TreeError::NotADirectory)?;
                let covers = directory.covers(first);
                let view = self.heap.record(slot)?;
                let names = Names::decode(&self.heap.value_bytes(slot, &view)?, &covers);
                self.tree.load_names(number, first, names.map_err(damaged(slot))?);
            }
        }
        Ok(())
    }

    fn read_node(&self, number: InodeNumber, slot: SlotId) -> Result<Node, FsError> {
        let view = self.heap.record(slot)?;
        let value = self.heap.value_bytes(slot, &view)?;
        let inode = Inode::decode(&value, value.len() as u64).map_err(damaged(slot))?;
        let body = match inode.mode.file_type() {
            FileType::File => Body::File(self.read_blocks(number)?),
            FileType::Directory => {
                let records = self.stored.names.range((number, Position(0))..=(number, Position(u64::MAX)));
                Body::Directory(Directory::of_records(records.map(|((_, first), slot)| (*first, *slot))))
            }
            FileType::Link => Body::Link(value[ATTRIBUTE_BYTES..].into()),
            _ => Body::Special,
        };
        let extended = match self.stored.extended.get(&number) {
            Some(slot) => self.read_extended(*slot)?,
            None => Extended::new(),
        };
        let (mtime_ns, ctime_ns) = (view.arrival_ns().cast_signed(), view.mark().cast_signed());
        Ok(Node { inode, mtime_ns, ctime_ns, body, extended, extended_changed: false })
    }

    /// The blocks that the data records of a file hold.
    fn read_blocks(&self, number: InodeNumber) -> Result<DataMap, FsError> {
        let mut intervals = Vec::new();
        for (first, slot) in self.stored.data_from(number, 0) {
            intervals.push(interval_of(&self.heap.record(slot)?, first, slot).map_err(damaged(slot))?);
        }
        Ok(DataMap::of_stored(intervals))
    }

    fn read_extended(&self, slot: SlotId) -> Result<Extended, FsError> {
        let view = self.heap.record(slot)?;
        crate::node::decode_extended(&self.heap.value_bytes(slot, &view)?).map_err(damaged(slot))
    }
}

fn encode(step: &Step<'_>, stamp: Stamp) -> Vec<u8> {
    match step {
        Step::Operation(operation) => operation.encode(stamp),
        Step::Write(..) => Vec::new(),
    }
}

/// The blocks that a data record holds.
pub(crate) fn interval_of(view: &RecordView<'_>, first: u32, slot: SlotId) -> Result<Interval, Damage> {
    let reserved = view.aux();
    let blocks = match reserved {
        0 => (view.value_len() as u64).div_ceil(crate::data_map::BLOCK_BYTES),
        _ => u64::from(reserved),
    };
    let most =
        if reserved == 0 { u64::from(crate::data_map::RECORD_BLOCKS_MAX) } else { u64::from(u16::MAX) };
    if blocks == 0 || blocks > most || u64::from(first) + blocks > crate::data_map::BLOCKS_MAX {
        return Err(Damage::RecordFields);
    }
    Ok(match reserved {
        0 => Interval::written(first, blocks as u16, slot, 0),
        _ => Interval::unwritten(first, blocks as u16),
    })
}
