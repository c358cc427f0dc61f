//! Repairs a damaged region. The steps are recovery, then tombstones for keys that lost their value, then the tree of
//! files (`landfall_fs::FilesRecovery::repair`), then overwriting unreadable records with empty ones.
//!
//! The order matters. Once an unreadable slot is cleared, nothing blocks its key any more: an older version, if the
//! medium still has one, would become current again. So the tombstone must be durable before.

use landfall_fs::{FilesRecovery, FsError, OpenFiles};
use landfall_heap::layout::RunId;
use landfall_heap::{Checked, Finding, Heap, HeapError, RegionCheck, SlotId, Tenant, Writer, spaces};
use landfall_kv::{Engine, KvError, Recovery};
use landfall_media::Media;
use landfall_server::shared::now_ns;
use landfall_server::store::{self, RecoverError, StoreError};
use landfall_wal::{LogRecovery, Logs, WalError, with_commit};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Shards of the index that repair builds.
const SHARDS: usize = 16;
/// Keys deleted in one commit.
const BATCH: usize = 256;
/// The writers of keys and logs, of the files' log, and of what publishes it.
const WRITER: u8 = 0;
const LOG_WRITER: u8 = 1;
const PUBLISH_WRITER: u8 = 2;
/// Permissions of a root directory that is made anew. It belongs to root.
const ROOT_MODE: u32 = 0o755;

/// Why a region cannot be repaired.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RepairError {
    /// From recovery, or from keys and logs.
    #[error(transparent)]
    Recover(#[from] RecoverError),
    /// From the files.
    #[error(transparent)]
    Files(#[from] FsError),
    /// No source of randomness is available.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<HeapError> for RepairError {
    fn from(error: HeapError) -> Self {
        Self::Recover(KvError::from(error).into())
    }
}

/// A database and a key.
type Name = (u8, Vec<u8>);

/// What a repair does with the files of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Files {
    /// There are none.
    None,
    /// Their records are kept, and nobody opens them.
    StayAsTheyAre,
    /// Their tree is made whole.
    AreRepaired,
}

/// Repairs what was found; returns descriptions of what was done.
pub(super) fn repair(
    media: Arc<dyn Media>,
    check: &RegionCheck,
    found: &Checked,
    of_files: Files,
) -> Result<Vec<String>, RepairError> {
    let mut names = names(check, found)?;
    // Files are repaired as a tree, and a damaged flush mark is no key that could be deleted.
    names.retain(|(space, _)| !spaces::FILES.contains(space) && *space != spaces::FLUSH);
    let (keys, logs) = (Arc::new(Recovery::new(SHARDS)), Arc::new(LogRecovery::default()));
    let files = (of_files != Files::None).then(|| Arc::new(FilesRecovery::default()));
    let mut tenants: Vec<Arc<dyn Tenant>> = vec![Arc::clone(&keys) as _, Arc::clone(&logs) as _];
    tenants.extend(files.clone().map(|files| files as _));
    let (heap, recovered) = store::open_on_all_cores(media, tenants)?;
    // Before keys and logs are touched: what is refused has changed nothing.
    let repaired = files.as_ref().filter(|_| of_files == Files::AreRepaired);
    repaired.map_or(Ok(()), |files| files.check_repair())?;
    let of_runs = mark_runs(&heap, found)?;
    let (logs, of_logs) = logs.open(&heap).map_err(RecoverError::from)?;
    let engine = keys.open(&heap);
    let mut done = [recovered.notes, of_runs, of_logs.notes].concat();
    let corrected = recovered.corrected.iter().map(|slot| format!("record {}: corrected", slot.0));
    done.extend(corrected);
    if recovered.resolved.rejected > 0 {
        done.push(format!("{} unacknowledged records dropped", recovered.resolved.rejected));
    }
    let (of_logs, of_keys) = names.into_iter().partition(|(space, _)| spaces::LOGS.contains(space));
    delete_damaged(&engine, &of_keys, &mut done).map_err(RecoverError::from)?;
    mark_lost(&logs, &of_logs, &mut done)?;
    // Keys and logs need these no more. The files' repair may get the space of whatever nobody has any more.
    let is_of_files =
        |finding: &&Finding| finding.named.as_ref().is_none_or(|(space, _)| spaces::FILES.contains(space));
    let (last, first): (Vec<&Finding>, Vec<&Finding>) = found.unreadable().partition(is_of_files);
    clear(&heap, &first, &mut done).map_err(RecoverError::from)?;
    if let Some(files) = files.filter(|_| of_files == Files::AreRepaired) {
        done.extend(repair_files(&files, &heap, found)?);
    }
    clear(&heap, &last, &mut done).map_err(RecoverError::from)?;
    let rewritten = heap.write_unreadable_again().map_err(HeapError::from)?;
    done.extend(rewritten.iter().map(|block| format!("block at {:#x}: written again", block.off)));
    heap.mark_slabs(1)?;
    Ok(done)
}

fn repair_files(
    files: &FilesRecovery,
    heap: &Arc<Heap>,
    found: &Checked,
) -> Result<Vec<String>, RepairError> {
    let options = OpenFiles {
        now_ns: now_ns().cast_signed(),
        identity: store::random()?,
        mode: ROOT_MODE,
        uid: 0,
        gid: 0,
        log_writer: LOG_WRITER,
        publish_writer: PUBLISH_WRITER,
    };
    let suspects: BTreeSet<SlotId> = found.findings.iter().map(|finding| finding.slot).collect();
    // Keys and logs have their tombstones.
    Ok(files.repair(heap, &options, &suspects, &found.nameless())?)
}

/// Every key that must get a tombstone: the named keys, and the keys of which only the hash is known, by the names in
/// their older versions.
fn names(check: &RegionCheck, found: &Checked) -> Result<BTreeSet<Name>, HeapError> {
    let hashes: BTreeSet<u64> = found.findings.iter().filter_map(|finding| finding.hash).collect();
    let mut names = if hashes.is_empty() { BTreeSet::new() } else { check.names_of(&hashes)? };
    names.extend(found.findings.iter().filter_map(|finding| finding.named.clone()));
    Ok(names)
}

fn delete_damaged(engine: &Engine, names: &BTreeSet<Name>, done: &mut Vec<String>) -> Result<(), KvError> {
    let mut writer = Writer::new(Arc::clone(engine.heap()), WRITER);
    for (count, (space, key)) in names.iter().enumerate() {
        let now_ns = now_ns();
        engine.delete(&mut writer, *space, key, now_ns / 1_000_000, now_ns)?.ungated();
        done.push(format!("database {space}, key {}: dropped", super::show::quoted(key)));
        if count % BATCH == BATCH - 1 {
            writer.commit_now()?;
        }
    }
    writer.commit_now()?;
    Ok(())
}

/// Marks the lost entries durably, before their slots are cleared, so that the entries behind them stay. A log whose
/// head cannot be read is deleted.
fn mark_lost(logs: &Logs, names: &BTreeSet<Name>, done: &mut Vec<String>) -> Result<(), RecoverError> {
    let mut writer = Writer::new(Arc::clone(logs.heap()), WRITER);
    let entries: Vec<(u32, u64)> =
        names.iter().filter_map(|(space, key)| Logs::entry_of(*space, key)).collect();
    done.extend(logs.mark_lost(&mut writer, &entries)?);
    done.extend(logs.drop_positions(&mut writer)?);
    for (_, name) in names.iter().filter(|(space, _)| *space == spaces::LOG) {
        if logs.settings(name).is_ok() {
            continue;
        }
        // The head is cleared only when the log is durably deleted: an older one would pass for it.
        match with_commit(&mut writer, |writer| logs.delete(writer, name, now_ns())) {
            Ok(Some(_)) => done.push(format!("log {}: dropped", name.escape_ascii())),
            // The key of an entry is no name.
            Ok(None) | Err(WalError::NoLog | WalError::BadName { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    writer.commit_now().map_err(KvError::from)?;
    // Completing a batch may add slots to clear.
    writer.commit_now().map_err(KvError::from)?;
    Ok(())
}

/// Overwrites unreadable records. Keys that were found by their value have a tombstone already.
fn clear(heap: &Heap, findings: &[&Finding], done: &mut Vec<String>) -> Result<(), KvError> {
    for finding in findings {
        heap.overwrite_with_tombstone(finding.slot)?;
        done.push(format!("record {}: cleared", finding.slot.0));
    }
    Ok(())
}

/// Makes slabs of which nothing is known runs like others. One of them that holds data becomes free when these are dropped, and
/// may be a slab of what the repair writes from then on: so they are marked before anything is written.
fn mark_runs(heap: &Heap, found: &Checked) -> Result<Vec<String>, RepairError> {
    let mark = |run: &RunId| {
        heap.mark_not_slab(*run).map_err(HeapError::from)?;
        Ok(format!("run {}: marked as no slab; records in it, if any, are lost", run.0))
    };
    found.copies.runs.iter().map(mark).collect()
}
