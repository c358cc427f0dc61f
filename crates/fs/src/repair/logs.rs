//! The header and the logs of a damaged tree.

use super::notes::Notes;
use crate::error::FsError;
use crate::header::Header;
use crate::key::{InodeNumber, OperationKey};
use crate::log::{CLIENT, Log};
use crate::open::{Again, new_number};
use crate::operation::Operation;
use crate::recover::{HeaderFound, LogFound, Settled};
use landfall_heap::{Heap, SlotId};
use std::collections::BTreeSet;

/// Makes what recovery has found a tree that can be restored. Returns true if something of it is lost, so that header and
/// bounds have to be written again.
pub(super) fn mend(
    heap: &Heap,
    settled: &mut Settled,
    identity: [u8; 16],
    suspects: &BTreeSet<SlotId>,
    notes: &mut Notes,
) -> Result<bool, FsError> {
    let mut is_lost = mend_header(heap, settled, identity, notes)?;
    for (client, log) in &mut settled.logs {
        is_lost |= cut(heap, *client, log, suspects, notes)?;
    }
    Ok(is_lost)
}

fn is_header_whole(settled: &Settled) -> bool {
    settled.header.is_some() && settled.header_damage().is_none()
}

/// True if a copy may have replaced the tree, and nothing says what is left of the one before.
pub(super) fn is_floor_lost(settled: &Settled) -> bool {
    !is_header_whole(settled) && settled.floor.is_none() && settled.is_of_chain
}

/// Puts another header in the place of one that is lost.
fn mend_header(
    heap: &Heap,
    settled: &mut Settled,
    identity: [u8; 16],
    notes: &mut Notes,
) -> Result<bool, FsError> {
    if is_header_whole(settled) {
        return Ok(end_repair(settled));
    }
    if is_floor_lost(settled) {
        return Err(FsError::FloorLost);
    }
    // A floor of 1 is none.
    let floor = settled.floor.filter(|floor| *floor > 1).unwrap_or(0);
    let found = settled.header.and_then(|found| found.header.ok());
    // The number of no client that has left anything on the medium.
    let client = settled.client_max.map_or(CLIENT + 1, |client| client.saturating_add(1));
    let next_client = client.max(found.map_or(CLIENT + 1, |header| header.next_client));
    // One of a tree that a copy has replaced says nothing of this tree. Names are put where they are looked for.
    let known = found.filter(|header| header.floor >= floor).unwrap_or(Header {
        identity,
        next_client,
        seed: (floor > 0).then(|| heap.geometry().hash_seed),
        floor,
        under_repair: false,
    });
    let header = Header { next_client: next_client.max(CLIENT + 1), under_repair: false, ..known };
    let slot = settled.header.map_or(SlotId::NONE, |found| found.slot);
    settled.header = Some(HeaderFound { slot, header: Ok(header) });
    notes.add("the header of the tree is written again".into());
    Ok(true)
}

/// If an earlier repair has not ended, this one does what is left. Returns true if there was one: the header says so no more.
fn end_repair(settled: &mut Settled) -> bool {
    let Some(HeaderFound { header: Ok(header), .. }) = &mut settled.header else { return false };
    std::mem::take(&mut header.under_repair)
}

/// Cuts a log off where its damage begins. Returns false if it has none.
fn cut(
    heap: &Heap,
    client: u32,
    log: &mut LogFound,
    suspects: &BTreeSet<SlotId>,
    notes: &mut Notes,
) -> Result<bool, FsError> {
    let mut dropped = std::mem::take(&mut log.behind);
    for (at, operation) in log.operations.iter().enumerate() {
        if suspects.contains(&operation.slot) && !is_write(heap, operation.slot)? {
            dropped.extend(log.operations.split_off(at));
            break;
        }
    }
    if dropped.is_empty() && log.damage.is_none() {
        return Ok(false);
    }
    dropped.iter().for_each(|operation| heap.drop_record(operation.slot));
    let (count, what) = (dropped.len(), if log.fields.is_some() { "an operation" } else { "its bound" });
    notes.add(format!("log of client {client}: {what} is lost, and {count} operations with it"));
    Ok(true)
}

/// The bytes of a write may be damaged: the operation is there, and they become a hole.
fn is_write(heap: &Heap, slot: SlotId) -> Result<bool, FsError> {
    let view = heap.record(slot)?;
    Ok(OperationKey::decode(&heap.key(&view)?).is_ok_and(|key| key.write.is_some()))
}

/// The inodes that operations make.
pub(super) fn made(heap: &Heap, operations: &[Again]) -> Result<BTreeSet<InodeNumber>, FsError> {
    let mut made = BTreeSet::new();
    for Again { slot, .. } in operations {
        if is_write(heap, *slot)? {
            continue;
        }
        let value = heap.value_bytes(*slot, &heap.record(*slot)?)?;
        if let Ok((_, operation)) = Operation::decode(&value) {
            made.extend(Some(InodeNumber(new_number(&operation))).filter(|number| number.0 > 0));
        }
    }
    Ok(made)
}

/// Takes out the logs of clients besides the mount whose bounds are lost: they end with a new bound.
pub(super) fn take_lost(settled: &mut Settled) -> Vec<Log> {
    let is_lost = |client: &u32, log: &mut LogFound| *client != CLIENT && log.fields.is_none();
    let lost = settled.logs.extract_if(.., is_lost);
    let ended: Vec<Log> = lost.map(|(client, _)| Log { has_ended: true, ..Log::new(client) }).collect();
    settled.logs.values_mut().for_each(|log| log.damage = None);
    ended
}
