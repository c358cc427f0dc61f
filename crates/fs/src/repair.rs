//! Repair of a damaged tree: `docs/format/fs.md`, "Repair".
//!
//! 1. Tombstones for the keys whose records cannot be read or mean nothing, in one transaction; then these slots are
//!    overwritten. In the other order a crash would let older versions pass for current. The slots of which nothing is
//!    known are overwritten with them: while they are there, nobody knows of a transaction that a crash has left without
//!    its commit record whether it counts.
//! 2. In memory, what inodes, names and data say of each other is made to fit. The operations of the logs are executed on
//!    that. Bytes that fail their checksums become holes.
//! 3. All of it is published in one transaction, the ends of damaged logs among it.
//!
//! A crash leaves the region as damaged as before, or without what cannot be read. Repairing again does the rest.

mod data;
mod logs;
mod names;
mod nodes;
mod notes;
mod records;

use crate::error::FsError;
use crate::files::Files;
use crate::key::InodeNumber;
use crate::open::{OpenFiles, Refused, delete_orphans, execute_again, restore};
use crate::publish::{Publisher, Repair};
use crate::recover::{FilesRecovery, Settled};
use landfall_heap::{Damage, Heap, SlotId};
use nodes::Nodes;
use notes::Notes;
use records::Damaged;
use std::collections::BTreeSet;
use std::sync::Arc;

impl FilesRecovery {
    /// Whether [`Self::repair`] can begin.
    ///
    /// # Errors
    /// [`FsError::FloorLost`].
    pub fn check_repair(&self) -> Result<(), FsError> {
        let settled = self.settled();
        if has_tree(&settled) && logs::is_floor_lost(&settled) { Err(FsError::FloorLost) } else { Ok(()) }
    }

    /// Ends recovery of a damaged region: repairs its files, and executes what their log has. `suspects` are records
    /// whose values may be damaged, as [`landfall_heap::RegionCheck`] names them. `nameless` are slots that cannot be read
    /// and of which no key is known, once no other system needs them any more. Slots that still cannot be read afterwards
    /// are the caller's to overwrite.
    ///
    /// Returns what was done, one line each; none if nothing was wrong.
    ///
    /// # Errors
    /// [`FsError::FloorLost`], and nothing is changed; [`FsError::Wait`] and [`landfall_heap::HeapError::Full`] without space
    /// for the records of the repair; the medium's.
    pub fn repair(
        &self,
        heap: &Arc<Heap>,
        options: &OpenFiles,
        suspects: &BTreeSet<SlotId>,
        nameless: &[SlotId],
    ) -> Result<Vec<String>, FsError> {
        let (mut settled, mut notes) = (self.take_settled(), Notes::default());
        if !has_tree(&settled) {
            return Ok(Vec::new());
        }
        let damaged = settled.damaged.clone();
        let keeps_nameless = keeps_nameless(&settled);
        let is_lost = logs::mend(heap, &mut settled, options.identity, suspects, &mut notes)?;
        let ended = logs::take_lost(&mut settled);
        let mut report = std::mem::take(&mut settled.report);
        report.notes.clear();
        let marked = std::mem::take(&mut settled.orphans);
        let (mut state, operations, next_number) = restore(heap, settled, options)?;
        state.header_changed |= is_lost;
        state.others.extend(ended.into_iter().map(|log| (log.client, log)));
        let files = Arc::new(Files::new(state, next_number));
        let mut publisher = Publisher::new(Arc::clone(&files), options.publish_writer);
        let made = logs::made(heap, &operations)?;
        // One of them may be the newest bound: then operations are executed again that are published, and only a repair leaves
        // those out that are refused.
        let hides_bound = !keeps_nameless && !nameless.is_empty() && !operations.is_empty();
        let repair = if hides_bound { Repair::GoesOn } else { Repair::IsNotNoted };
        drop_unreadable(heap, &files, (&mut publisher, repair), (&damaged, &made), &mut notes)?;
        if !keeps_nameless {
            nameless.iter().try_for_each(|slot| heap.overwrite_with_tombstone(*slot))?;
        }
        let mut state = files.lock();
        records::put_root(&mut state, &damaged, options, &mut notes)?;
        files.raise_next_number(made.last().map_or(0, |number| number.0 + 1));
        let mut nodes =
            Nodes::repair(&mut state, marked, || files.take_number(), options.now_ns, &mut notes)?;
        execute_again(&mut state, operations, next_number, Refused::IsLeftOut, &mut report)?;
        report.notes.into_iter().for_each(|what| notes.add(what));
        data::cut_damaged(&mut state, suspects, &mut notes)?;
        delete_orphans(&mut state, std::mem::take(&mut nodes.orphans));
        drop(state);
        publisher.step()?;
        Ok(notes.lines(&nodes.ways))
    }
}

/// False for a region in which there is nothing of a tree.
fn has_tree(settled: &Settled) -> bool {
    let Settled { header, inodes, logs, damaged, .. } = settled;
    header.is_some() || !inodes.is_empty() || !logs.is_empty() || !damaged.is_empty()
}

/// True if the header, a log or the root's inode has damage. None of these gets a tombstone: a slot of which nothing is
/// known may be the only sign of what is lost, and an older one would pass for current if a crash followed.
fn keeps_nameless(settled: &Settled) -> bool {
    let mut damaged =
        settled.damaged.iter().flat_map(|(number, all)| all.iter().map(|record| (*number, record.space)));
    let has_header = settled.header.is_some_and(|found| found.header.is_ok());
    !has_header
        || settled.has_older_header()
        || !settled.inodes.contains_key(&InodeNumber::ROOT)
        || settled.logs.values().any(|log| log.damage.is_some())
        || damaged.any(|(number, space)| number.0 == 0 || records::is_root(number, space))
}

/// Drops what cannot be read. `made` are the inodes that operations of the logs make.
fn drop_unreadable(
    heap: &Heap,
    files: &Files,
    (publisher, repair): (&mut Publisher, Repair),
    (damaged, made): (&Damaged, &BTreeSet<InodeNumber>),
    notes: &mut Notes,
) -> Result<(), FsError> {
    let dropped = records::unreadable(&mut files.lock(), (damaged, made), notes)?;
    if !dropped.is_empty() || repair == Repair::GoesOn {
        publisher.drop_records(dropped, repair)?;
    }
    // Nothing older can come back: their tombstones are durable. From here on a record of the same key may be written.
    let all = damaged.iter().flat_map(|(number, all)| all.iter().map(|record| (*number, *record)));
    for (number, record) in all {
        let has_tombstone = number.0 > 0 && !records::is_root(number, record.space);
        if has_tombstone && record.what != Damage::Undecided {
            heap.overwrite_with_tombstone(record.slot)?;
        }
    }
    files.lock().damaged.clear();
    Ok(())
}

#[cfg(test)]
mod tests;
