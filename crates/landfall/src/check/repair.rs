//! Repairs a damaged region. The steps are recovery, then tombstones for keys that lost their value, then overwriting
//! unreadable records with empty ones.
//!
//! The order matters. Once an unreadable slot is cleared, nothing blocks its key any more: an older version, if the
//! medium still has one, would become current again. So the tombstone must be durable before.

use landfall_heap::{Checked, Damage, Finding, Heap, HeapError, RegionCheck, Writer, spaces};
use landfall_kv::{Engine, KvError};
use landfall_media::Media;
use landfall_server::shared::now_ns;
use landfall_server::store::{self, RecoverError};
use landfall_wal::Logs;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Shards of the index that repair builds.
const SHARDS: usize = 16;
/// Keys deleted in one commit.
const BATCH: usize = 256;

/// A database and a key.
type Name = (u8, Vec<u8>);

/// Repairs what was found; returns descriptions of what was done.
pub(super) fn repair(
    media: Arc<dyn Media>,
    check: &RegionCheck,
    found: &Checked,
) -> Result<Vec<String>, RecoverError> {
    let names = names(check, found).map_err(KvError::from)?;
    let (engine, logs, recovered) = store::recover(media, SHARDS)?;
    let mut done = recovered.notes;
    let corrected =
        recovered.corrected.iter().map(|slot| format!("record {}: one flipped bit corrected", slot.0));
    done.extend(corrected);
    if recovered.resolved.rejected > 0 {
        done.push(format!("{} unacknowledged records dropped", recovered.resolved.rejected));
    }
    let (of_logs, of_keys) = names.into_iter().partition(|(space, _)| spaces::LOGS.contains(space));
    delete_damaged(&engine, &of_keys, &mut done)?;
    mark_lost(&logs, &of_logs, &mut done)?;
    clear(engine.heap(), found, &mut done)?;
    engine.heap().mark_slabs(1).map_err(KvError::from)?;
    Ok(done)
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
    let mut writer = Writer::new(Arc::clone(engine.heap()), 0);
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
    let mut writer = Writer::new(Arc::clone(logs.heap()), 0);
    let entries: Vec<(u32, u64)> =
        names.iter().filter_map(|(space, key)| Logs::entry_of(*space, key)).collect();
    done.extend(logs.mark_lost(&mut writer, &entries)?);
    for (_, name) in names.iter().filter(|(space, _)| *space == spaces::LOG) {
        if logs.settings(name).is_err() && logs.delete(&mut writer, name, now_ns()).is_ok_and(|d| d.is_some())
        {
            done.push(format!("log {}: dropped", name.escape_ascii()));
        }
    }
    writer.commit_now().map_err(KvError::from)?;
    // Completing a batch may add slots to clear.
    writer.commit_now().map_err(KvError::from)?;
    Ok(())
}

/// Overwrites unreadable records. Keys that were found by their value have a tombstone already. Nothing is overwritten
/// while there are more doubtful keys than a check lists: older versions of the others would become current.
fn clear(heap: &Heap, found: &Checked, done: &mut Vec<String>) -> Result<(), KvError> {
    let unreadable = |finding: &&Finding| {
        matches!(finding.what, None | Some(Damage::RecordChecksum | Damage::RecordFields | Damage::KeyHash))
    };
    let is_doubtful = |finding: &Finding| finding.what == Some(Damage::Undecided);
    let is_listed = found.findings_count == found.findings.len() as u64;
    let may_clear = is_listed || !found.findings.iter().any(is_doubtful);
    for finding in found.findings.iter().filter(unreadable).filter(|_| may_clear) {
        heap.overwrite_with_tombstone(finding.slot)?;
        done.push(format!("record {}: cleared", finding.slot.0));
    }
    for run in &found.copies.runs {
        heap.mark_not_slab(*run)?;
        done.push(format!("run {}: marked as no slab; records in it, if any, are lost", run.0));
    }
    Ok(())
}
