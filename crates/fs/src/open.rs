//! Opening the files of a region: what recovery has found becomes the tree, and the log is executed on it again.

use crate::error::FsError;
use crate::files::Files;
use crate::header::{Header, LogFields};
use crate::key::{InodeNumber, OperationKey};
use crate::log::Log;
use crate::operation::Operation;
use crate::publish::Publisher;
use crate::recover::{FilesRecovery, LogFound, Recovered, Settled};
use crate::state::State;
use crate::stored::Stored;
use crate::tree::{Tree, TreeError};
use landfall_heap::{Damage, FEATURE_FILES, Heap, HeapError, SlotId, Writer};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// The client to which a mount's log belongs.
const CLIENT: u32 = 0;
/// The first number for inodes behind the root's.
const NUMBER_MIN: u64 = InodeNumber::ROOT.0 + 1;
/// Most inodes that stay in memory once they are published, unless [`Files::set_nodes_max`] says otherwise.
const NODES_MAX: usize = 1 << 16;

/// How files are opened.
#[derive(Clone, Copy, Debug)]
pub struct OpenFiles {
    /// Now, Unix nanoseconds.
    pub now_ns: i64,
    /// Identity of the tree, if there is none yet: random bytes.
    pub identity: [u8; 16],
    /// Permissions of the root directory, if there is none yet.
    pub mode: u32,
    /// Owner of the root directory.
    pub uid: u32,
    /// Group of the root directory.
    pub gid: u32,
    /// Id of the writer of the log. No other writer of the region has it.
    pub log_writer: u8,
    /// Id of the writer that publishes.
    pub publish_writer: u8,
}

impl FilesRecovery {
    /// Ends recovery: returns the files, and what publishes their log. A region without files gets a root directory.
    ///
    /// # Errors
    /// Damage of the header or of the log, which `landfall check` names; [`HeapError::Full`] if there is no space to
    /// publish what the log has; the medium's.
    pub fn open(
        &self,
        heap: &Arc<Heap>,
        options: &OpenFiles,
    ) -> Result<(Arc<Files>, Publisher, Recovered), FsError> {
        let mut settled = self.take_settled();
        heap.require_features(FEATURE_FILES)?;
        let mut report = std::mem::take(&mut settled.report);
        let (mut state, operations, next_number) = restore(heap, settled, options)?;
        let next_number = execute_again(&mut state, &operations, next_number, &mut report)?;
        delete_orphans(&mut state)?;
        let files = Arc::new(Files::new(state, next_number));
        let mut publisher = Publisher::new(Arc::clone(&files), options.publish_writer);
        publisher.step()?;
        Ok((files, publisher, report))
    }
}

fn damaged(slot: SlotId, what: Damage) -> FsError {
    HeapError::Damaged { slot, what }.into()
}

/// The published tree, the operations of the log, and the lowest number that no inode has had.
fn restore(
    heap: &Arc<Heap>,
    mut settled: Settled,
    options: &OpenFiles,
) -> Result<(State, Vec<SlotId>, u64), FsError> {
    let found = settled.logs.remove(&CLIENT);
    if let Some(damage) = found.as_ref().and_then(|log| log.damage.as_ref()) {
        return Err(damaged(damage.slot.unwrap_or(SlotId::NONE), damage.what));
    }
    let header = match settled.header {
        Some(found) => found.header.map_err(|what| damaged(found.slot, what))?,
        None if settled.inodes.is_empty() => Header { identity: options.identity, next_client: CLIENT + 1 },
        None => return Err(damaged(SlotId::NONE, Damage::RecordFields)),
    };
    let seed = heap.geometry().hash_seed;
    let tree = match settled.header {
        None => Tree::new(seed, options.mode, options.uid, options.gid, options.now_ns),
        Some(_) => Tree::of_stored(seed, settled.inodes),
    };
    let (log, bound, operations, log_number) = restore_log(heap, found, options);
    let stored = Stored {
        header: settled.header.map(|found| found.slot),
        names: settled.names,
        data: settled.data,
        extended: settled.extended,
        bounds: bound.into_iter().map(|slot| (CLIENT, slot)).collect(),
    };
    // They stay on the medium, so that the damage stays known.
    settled.damaged.values().flatten().for_each(|record| heap.adopt_damaged(record.slot));
    let first_damage = |records: Vec<crate::recover::DamagedRecord>| {
        records.first().map(|record| (record.slot, record.what))
    };
    let damaged = settled.damaged.into_iter();
    let state = State {
        heap: Arc::clone(heap),
        tree,
        stored,
        log,
        kept: settled.kept,
        header,
        damaged: damaged.filter_map(|(number, records)| Some((number, first_damage(records)?))).collect(),
        nodes_max: NODES_MAX,
        moves: None,
        pending: BTreeMap::new(),
    };
    let number = settled.number_max.map_or(0, |max| max.0 + 1);
    Ok((state, operations, number.max(log_number).max(NUMBER_MIN)))
}

fn restore_log(
    heap: &Arc<Heap>,
    found: Option<LogFound>,
    options: &OpenFiles,
) -> (Log, Option<SlotId>, Vec<SlotId>, u64) {
    let fields = found.as_ref().map(|log| log.fields);
    let fields = fields.unwrap_or(LogFields { epoch: 0, lease: 0, next_number: InodeNumber(NUMBER_MIN) });
    let slots: Vec<SlotId> =
        found.iter().flat_map(|log| &log.operations).map(|operation| operation.slot).collect();
    let log = Log {
        client: CLIENT,
        writer: Writer::new(Arc::clone(heap), options.log_writer),
        first: found.as_ref().map_or(0, |log| log.first),
        slots: VecDeque::from(slots.clone()),
        bytes: 0,
        above: found.as_ref().and_then(|log| log.index_max).map_or(0, |max| max + 1),
        epoch: fields.epoch + 1,
        lease: fields.lease,
    };
    (log, found.and_then(|log| log.bound), slots, fields.next_number.0)
}

/// Executes the operations of the log on the published tree. Returns the lowest number that no inode has had.
fn execute_again(
    state: &mut State,
    operations: &[SlotId],
    next_number: u64,
    report: &mut Recovered,
) -> Result<u64, FsError> {
    let mut next_number = next_number;
    for (at, slot) in operations.iter().enumerate() {
        let heap = Arc::clone(&state.heap);
        let view = heap.record(*slot)?;
        state.log.bytes += view.value_len() as u64;
        let key = OperationKey::decode(&heap.key(&view)?).map_err(|what| damaged(*slot, what))?;
        let done = if let Some(place) = key.write {
            let (len, time_ns) = (view.value_len() as u64, view.arrival_ns().cast_signed());
            again(state, |tree| tree.write(&place, len, *slot, time_ns))
        } else {
            let value = heap.value_bytes(*slot, &view)?;
            let (stamp, operation) = Operation::decode(&value).map_err(|what| damaged(*slot, what))?;
            next_number = next_number.max(new_number(&operation) + 1);
            again(state, |tree| tree.execute(stamp, &operation))
        };
        match done {
            Ok(()) => {}
            // It was taken back when it was executed first, and nothing has been appended behind it.
            Err(FsError::Tree(error)) => {
                let left = operations.len() - at;
                report.notes.push(format!(
                    "the log ends at an operation that is refused ({error}); {left} are dropped"
                ));
                report.unacknowledged += left as u64;
                break;
            }
            Err(error) => return Err(error),
        }
    }
    state.tree.take_touched();
    Ok(next_number)
}

/// Executes on the tree; what it needs is read.
fn again(
    state: &mut State,
    mut execute: impl FnMut(&mut Tree) -> Result<(), TreeError>,
) -> Result<(), FsError> {
    loop {
        match execute(&mut state.tree) {
            Err(TreeError::Unread(unread)) => state.load(unread)?,
            done => return Ok(done?),
        }
    }
}

fn new_number(operation: &Operation<'_>) -> u64 {
    match operation {
        Operation::Create { number, .. } | Operation::Symlink { number, .. } => number.0,
        _ => 0,
    }
}

/// Deletes what has no name and was open when the region was used last.
fn delete_orphans(state: &mut State) -> Result<(), FsError> {
    let mut orphans = Vec::new();
    for (number, slot) in state.tree.stored_inodes() {
        if state.damaged.contains_key(&number) || state.tree.in_memory(number).is_some() {
            continue;
        }
        match state.read_inode(slot) {
            Ok(inode) if inode.nlink == 0 => orphans.push(number),
            // Whoever looks at it gets the error; the others are served.
            Ok(_) | Err(FsError::Heap(HeapError::Damaged { .. })) => {}
            Err(error) => return Err(error),
        }
    }
    orphans.extend(state.tree.orphans_in_memory());
    orphans.into_iter().for_each(|number| state.tree.delete_orphan(number));
    state.tree.take_touched();
    Ok(())
}
