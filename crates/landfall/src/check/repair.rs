//! Making a damaged region whole again: recovery, tombstones for keys that lost their value, and only then
//! records that say nothing in place of those that cannot be read.
//!
//! The order matters. Once an unreadable slot is cleared nothing bars its key any more, so that an older
//! version, if the medium still has one, would come back to life: its tombstone must be durable before.

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
/// Keys deleted between two commits.
const BATCH: usize = 256;

/// A database and a key.
type Name = (u8, Vec<u8>);

/// Repairs what was found; says in words what was done.
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
        done.push(format!("{} records that were never acknowledged dropped", recovered.resolved.rejected));
    }
    let (of_logs, of_keys) = names.into_iter().partition(|(space, _)| spaces::LOGS.contains(space));
    bury(&engine, &of_keys, &mut done)?;
    give_up(&logs, &of_logs, &mut done)?;
    clear(engine.heap(), found, &mut done)?;
    engine.heap().mark_slabs(1).map_err(KvError::from)?;
    Ok(done)
}

/// Every key that must get a tombstone: those named, and those of which only the hash is known, by the names
/// in their older versions.
fn names(check: &RegionCheck, found: &Checked) -> Result<BTreeSet<Name>, HeapError> {
    let hashes: BTreeSet<u64> = found.findings.iter().filter_map(|finding| finding.hash).collect();
    let mut names = if hashes.is_empty() { BTreeSet::new() } else { check.names_of(&hashes)? };
    names.extend(found.findings.iter().filter_map(|finding| finding.named.clone()));
    Ok(names)
}

fn bury(engine: &Engine, names: &BTreeSet<Name>, done: &mut Vec<String>) -> Result<(), KvError> {
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

/// Says durably which entries are lost, before their slots are cleared: what comes behind them stays. A log
/// whose head cannot be read is deleted.
fn give_up(logs: &Logs, names: &BTreeSet<Name>, done: &mut Vec<String>) -> Result<(), RecoverError> {
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
    // Completing a batch may leave slots to clear.
    writer.commit_now().map_err(KvError::from)?;
    Ok(())
}

/// Overwrites what cannot be read; what was found by its value has a tombstone already.
fn clear(heap: &Heap, found: &Checked, done: &mut Vec<String>) -> Result<(), KvError> {
    let unreadable = |finding: &&Finding| {
        matches!(finding.what, None | Some(Damage::RecordChecksum | Damage::RecordFields | Damage::KeyHash))
    };
    for finding in found.findings.iter().filter(unreadable) {
        heap.entomb_slot(finding.slot)?;
        done.push(format!("record {}: cleared", finding.slot.0));
    }
    for run in &found.copies.runs {
        heap.declare_no_slab(*run)?;
        done.push(format!("run {}: given up; if records were in it, they are gone", run.0));
    }
    Ok(())
}
