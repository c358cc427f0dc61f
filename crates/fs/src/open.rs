//! Opening the files of a region: what recovery has found becomes the tree, and the log is executed on it again.

mod left;

use crate::calls::Calls;
use crate::error::FsError;
use crate::files::Files;
use crate::header::{Header, LogFields};
use crate::key::{InodeNumber, OperationKey};
use crate::log::{CLIENT, Log};
use crate::operation::Operation;
use crate::publish::Publisher;
use crate::received::Received;
use crate::recover::{FilesRecovery, LogFound, Recovered, Settled};
use crate::state::State;
use crate::stored::Stored;
use crate::tree::{Tree, TreeError};
use landfall_heap::{Damage, FEATURE_CALLS, FEATURE_FILES, Heap, HeapError, SlotId, Writer};
use std::collections::BTreeMap;
use std::sync::Arc;

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

/// What becomes of inodes without a name, which were open when the region was used last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Orphans {
    /// Nobody has them open any more: they are deleted.
    Delete,
    /// A mount that has outlived its server may have them open: [`Recovered::orphans`] names them.
    Keep,
    /// The region is of a node of a chain: a program at the first node may have them open. What the log has is not
    /// published before [`Files::publish_again`], as the node behind may lack it.
    OfChain,
}

impl State {
    fn join_chain(&mut self) {
        if self.header.seed.is_none() {
            // Another node finds the names by it.
            self.header.seed = Some(self.header.seed_in(&self.heap));
            self.header_changed = true;
        }
        self.held = Some(self.log.next()).filter(|_| !self.log.slots.is_empty());
    }
}

impl FilesRecovery {
    /// Ends recovery: returns the files, and what publishes their log. A region without files gets a root directory.
    ///
    /// # Errors
    /// [`FsError::Header`]; damage of the log, which `landfall check` names; [`HeapError::Full`] if there is no space to
    /// publish what the log has; the medium's.
    pub fn open(
        &self,
        heap: &Arc<Heap>,
        options: &OpenFiles,
    ) -> Result<(Arc<Files>, Publisher, Recovered), FsError> {
        self.open_with(heap, options, Orphans::Delete)
    }

    /// As [`Self::open`]. `unnamed`: what becomes of inodes without a name.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_with(
        &self,
        heap: &Arc<Heap>,
        options: &OpenFiles,
        unnamed: Orphans,
    ) -> Result<(Arc<Files>, Publisher, Recovered), FsError> {
        let mut settled = self.take_settled();
        if let Some(what) = settled.header_damage() {
            return Err(FsError::Header(what));
        }
        heap.require_features(FEATURE_FILES)?;
        let mut report = std::mem::take(&mut settled.report);
        let orphans = std::mem::take(&mut settled.orphans);
        let refused = if settled.has_nameless { Refused::IsDamage } else { Refused::EndsItsLog };
        let left = std::mem::take(&mut settled.left);
        let has_floor = settled.floor.is_some();
        // Another header of this tree may be lost, which has given a client its number.
        let client_min =
            settled.client_max.filter(|_| settled.has_nameless).map_or(0, |max| max.saturating_add(1));
        let (mut state, operations, next_number) = restore(heap, settled, options)?;
        state.header.next_client = state.header.next_client.max(client_min);
        // Earlier releases have not written the floor a second time: the next bound has it.
        state.header_changed |= !has_floor;
        let next_number = execute_again(&mut state, operations, next_number, refused, &mut report)?;
        report.log_end = state.log.next();
        state.execute_left(left, &mut report)?;
        match unnamed {
            Orphans::Delete => delete_orphans(&mut state, orphans),
            Orphans::Keep | Orphans::OfChain => report.orphans = found_orphans(&state, orphans),
        }
        if unnamed == Orphans::OfChain {
            state.join_chain();
        }
        let files = Arc::new(Files::new(state, next_number));
        let mut publisher = Publisher::new(Arc::clone(&files), options.publish_writer);
        publisher.step()?;
        Ok((files, publisher, report))
    }
}

/// What becomes of the log of the mount behind an operation that the tree refuses. Other logs end there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The operation was refused when it was executed first, and nothing behind it counted.
    EndsItsLog,
    /// The same, or the newest bound is lost, an older one passes for it, and the operation is published.
    IsDamage,
    /// The tree has lost what the operation needs. Those behind it count.
    IsLeftOut,
}

fn damaged(slot: SlotId, what: Damage) -> FsError {
    HeapError::Damaged { slot, what }.into()
}

/// An operation to be executed again.
#[derive(Debug)]
pub(crate) struct Again {
    pub(crate) seq: u64,
    pub(crate) client: u32,
    pub(crate) slot: SlotId,
}

/// The published tree, the operations of all logs, and the lowest number that no inode has had.
pub(crate) fn restore(
    heap: &Arc<Heap>,
    mut settled: Settled,
    options: &OpenFiles,
) -> Result<(State, Vec<Again>, u64), FsError> {
    let found = std::mem::take(&mut settled.logs);
    // Nobody knows which operations of a client count whose bound cannot be read: they are kept.
    if let Some(damage) = found.get(&CLIENT).and_then(|log| log.damage) {
        return Err(damaged(damage.slot.unwrap_or(SlotId::NONE), damage.what));
    }
    // The log of another client ends at an operation that cannot be read.
    let counts = |client: u32, log: &LogFound| client == CLIENT || log.fields.is_some();
    let found: BTreeMap<u32, LogFound> =
        found.into_iter().filter(|(client, log)| counts(*client, log)).collect();
    let header = header_of(&settled, options)?;
    let seed = header.seed_in(heap);
    let calls = restore_calls(heap, found.get(&CLIENT), settled.header.is_none())?;
    let mut tree = match settled.header {
        None => Tree::new(seed, options.mode, options.uid, options.gid, options.now_ns),
        Some(_) => Tree::of_stored(seed, settled.inodes),
    };
    tree.calls = calls;
    let mut operations: Vec<Again> = found.iter().flat_map(|(client, log)| again_of(*client, log)).collect();
    operations.sort_unstable_by_key(|operation| operation.seq);
    let log_number = found.values().filter_map(|log| log.fields).map(|fields| fields.next_number.0).max();
    let log_number = log_number.unwrap_or(0);
    let bounds = found.iter().filter_map(|(client, log)| Some((*client, log.bound?))).collect();
    let mut logs: BTreeMap<u32, Log> =
        found.into_iter().map(|(client, log)| (client, restore_log(client, log))).collect();
    let log = logs.remove(&CLIENT).unwrap_or_else(|| Log::new(CLIENT));
    let stored = Stored {
        // A repair puts one in the place of a header that is lost.
        header: settled.header.map(|found| found.slot).filter(|slot| *slot != SlotId::NONE),
        names: settled.names,
        data: settled.data,
        extended: settled.extended,
        bounds,
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
        writer: Writer::new(Arc::clone(heap), options.log_writer),
        // Their processes have lost the region with the mount.
        others: logs.into_iter().map(|(client, log)| (client, Log { has_ended: true, ..log })).collect(),
        kept: settled.kept,
        kept_bounds: settled.kept_bounds,
        dead: settled.dead,
        header,
        header_changed: false,
        damaged: damaged.filter_map(|(number, records)| Some((number, first_damage(records)?))).collect(),
        nodes_max: NODES_MAX,
        moves: None,
        pending: BTreeMap::new(),
        persistent_below: 0,
        witness: None,
        held: None,
        received: Received::default(),
    };
    let number = settled.number_max.map_or(0, |max| max.0 + 1);
    Ok((state, operations, number.max(log_number).max(NUMBER_MIN)))
}

/// The header of the tree, or that of a new one.
fn header_of(settled: &Settled, options: &OpenFiles) -> Result<Header, FsError> {
    let Some(found) = settled.header else {
        let new = Header {
            identity: options.identity,
            next_client: CLIENT + 1,
            seed: None,
            floor: 0,
            under_repair: false,
        };
        return if settled.inodes.is_empty() {
            Ok(new)
        } else {
            Err(damaged(SlotId::NONE, Damage::RecordFields))
        };
    };
    match found.header.map_err(|what| damaged(found.slot, what))? {
        // The log may begin with operations that are published, and refused.
        Header { under_repair: true, .. } => Err(damaged(found.slot, Damage::Unrepaired)),
        header => Ok(header),
    }
}

/// What the bound of the mount's log says of calls.
fn restore_calls(heap: &Heap, log: Option<&LogFound>, is_new: bool) -> Result<Calls, FsError> {
    if log.is_none() && is_new {
        return Ok(Calls::default());
    }
    let Some(slot) = log.filter(|log| log.fields.is_some()).and_then(|log| log.bound) else {
        heap.require_features(FEATURE_CALLS)?;
        return Ok(Calls::lost());
    };
    let value = heap.value_bytes(slot, &heap.record(slot)?)?;
    LogFields::decode(&value).map(|(_, calls)| calls).map_err(|what| damaged(slot, what))
}

fn again_of(client: u32, log: &LogFound) -> impl Iterator<Item = Again> {
    log.operations.iter().map(move |operation| Again { seq: operation.seq, client, slot: operation.slot })
}

fn restore_log(client: u32, found: LogFound) -> Log {
    let (epoch, lease) = found.fields.map_or((0, 0), |fields| (fields.epoch, fields.lease));
    Log {
        first: found.first,
        slots: found.operations.iter().map(|operation| operation.slot).collect(),
        above: found.index_max.map_or(0, |max| max + 1),
        epoch: epoch + 1,
        lease,
        ..Log::new(client)
    }
}

/// Executes the operations of all logs on the published tree. Returns the lowest number that no inode has had.
pub(crate) fn execute_again(
    state: &mut State,
    operations: Vec<Again>,
    next_number: u64,
    refusal: Refused,
    report: &mut Recovered,
) -> Result<u64, FsError> {
    let mut next_number = next_number;
    // Logs that have ended at an operation that the tree refuses, and how many are dropped.
    let mut refused: BTreeMap<u32, (TreeError, u64)> = BTreeMap::new();
    for Again { client, slot, .. } in operations {
        let heap = Arc::clone(&state.heap);
        let view = heap.record(slot)?;
        let log = state.log_of(client).expect("its log was found");
        log.bytes += view.value_len() as u64;
        if let Some((_, dropped)) = refused.get_mut(&client) {
            *dropped += 1;
            continue;
        }
        let key = OperationKey::decode(&heap.key(&view)?).map_err(|what| damaged(slot, what))?;
        if key.write.is_some() {
            let log = state.log_of(client).expect("its log was found");
            log.written += view.value_len() as u64;
        }
        let done = if let Some(place) = key.write {
            let (len, time_ns) = (view.value_len() as u64, view.arrival_ns().cast_signed());
            state.again(|tree| tree.write(&place, len, slot, time_ns))
        } else {
            let value = heap.value_bytes(slot, &view)?;
            let (stamp, operation) = Operation::decode(&value).map_err(|what| damaged(slot, what))?;
            next_number = next_number.max(new_number(&operation) + 1);
            state.again(|tree| tree.execute(stamp, &operation))
        };
        match done {
            Ok(()) => {}
            Err(FsError::Tree(_)) if refusal == Refused::IsDamage && client == CLIENT => {
                return Err(damaged(slot, Damage::Lost));
            }
            Err(FsError::Tree(error)) if refusal == Refused::IsLeftOut && client == CLIENT => {
                report.notes.push(format!("an operation of the log is refused ({error}), and dropped"));
            }
            // It was refused when it was executed first, and nothing behind it in its log counted.
            Err(FsError::Tree(error)) => drop(refused.insert(client, (error, 1))),
            Err(error) => return Err(error),
        }
    }
    for (client, (error, dropped)) in refused {
        report.notes.push(format!(
            "the log of client {client} ends at an operation that is refused ({error}); {dropped} are dropped"
        ));
        report.unacknowledged += dropped;
    }
    state.tree.take_touched();
    Ok(next_number)
}

/// The number that an operation gives to a new inode, or 0.
pub(crate) fn new_number(operation: &Operation<'_>) -> u64 {
    match operation {
        Operation::Create { number, .. } | Operation::Symlink { number, .. } => number.0,
        _ => 0,
    }
}

/// Deletes what has no name and was open when the region was used last: what was published as such, unless an operation
/// has changed it, and what operations have left so.
pub(crate) fn delete_orphans(state: &mut State, published: Vec<InodeNumber>) {
    let orphans = found_orphans(state, published);
    orphans.into_iter().for_each(|number| state.tree.delete_orphan(number));
    state.tree.take_touched();
}

fn found_orphans(state: &State, published: Vec<InodeNumber>) -> Vec<InodeNumber> {
    let is_unchanged =
        |number: &InodeNumber| !state.damaged.contains_key(number) && state.tree.in_memory(*number).is_none();
    let mut orphans: Vec<InodeNumber> = published.into_iter().filter(is_unchanged).collect();
    orphans.extend(state.tree.orphans_in_memory());
    orphans
}
