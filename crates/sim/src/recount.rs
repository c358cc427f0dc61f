//! Recounts from the records alone what the heap has counted incrementally, and compares the counts.

use crate::violation::{Violation, ensure};
use landfall_heap::{
    FRAME_SIZE, Heap, Kind, RecordView, RunId, RunUse, SLOTS_PER_RUN, Slot, SlotId, TransactionId,
};
use landfall_kv::Engine;
use landfall_media::{Extent, RUN_SIZE};
use std::collections::{BTreeMap, BTreeSet};

/// A record found in a slab.
struct Found<'h> {
    slot: SlotId,
    view: RecordView<'h>,
}

/// The counts that follow from the records.
#[derive(Default)]
struct Counts {
    frame_refs: BTreeMap<u64, u32>,
    /// Every extent of a current record, in order of its offset.
    extents: Vec<Extent>,
    live_bytes: BTreeMap<RunId, u64>,
    live_slots: BTreeMap<RunId, u32>,
    tombstones: u64,
    stale: u64,
    /// Copies of the last flush mark, without the current one.
    flush_copies: u64,
}

/// Compares the counts of the heap with those that follow from its records. All records must be durable, and no other
/// frames held. At most `filling` data runs without live bytes may be open for writers, the compactor or landing.
///
/// # Errors
/// The first count that differs.
pub fn recount(engine: &Engine, filling: usize) -> Result<(), Violation> {
    let heap = engine.heap();
    let found = records(heap)?;
    let counts = count(heap, &found)?;
    check_frames(heap, &counts)?;
    check_slabs(heap, &counts)?;
    check_runs(heap, &counts, filling)?;
    let stats = engine.stats();
    ensure!(
        stats.tombstones == counts.tombstones,
        "{} tombstones are kept, the records need {}",
        stats.tombstones,
        counts.tombstones
    );
    // Copies of a flush mark are counted when they are made, but recovery does not count them again.
    let wanted = counts.stale..=counts.stale + counts.flush_copies;
    ensure!(
        wanted.contains(&stats.stale),
        "{} stale copies are counted, the records have {wanted:?}",
        stats.stale
    );
    Ok(())
}

fn records(heap: &Heap) -> Result<Vec<Found<'_>>, Violation> {
    let mut found = Vec::new();
    for (run, slab) in heap.runs().iter().filter(|(_, run)| run.used_for() == RunUse::Slab) {
        for index in 0..SLOTS_PER_RUN {
            let slot = SlotId::new(run, index);
            match heap.slot(slot)? {
                Slot::Record(view) if index < slab.filled() => found.push(Found { slot, view }),
                Slot::Record(_) => {
                    return Err(Violation(format!("{slot:?} has a record, and was never written")));
                }
                Slot::Damaged(what) if index < slab.filled() => {
                    return Err(Violation(format!("{slot:?} is damaged: {what}")));
                }
                // Bytes from before the run became this slab.
                Slot::Empty | Slot::Damaged(_) => {}
            }
        }
    }
    Ok(found)
}

fn count(heap: &Heap, found: &[Found<'_>]) -> Result<Counts, Violation> {
    let flushed = found.iter().filter(|f| f.view.kind() == Kind::Flush).max_by_key(|f| version(f));
    let flush_seq = flushed.map_or(0, |f| f.view.seq());
    let commits = commits(found);
    let counts_at_all = |f: &&Found<'_>| {
        !matches!(f.view.kind(), Kind::Flush | Kind::Commit)
            && f.view.transaction().is_none_or(|id| commits.contains_key(&id))
    };
    let mut of_hash: BTreeMap<u64, Vec<&Found<'_>>> = BTreeMap::new();
    for record in found.iter().filter(counts_at_all).filter(|f| f.view.seq() >= flush_seq) {
        of_hash.entry(record.view.hash()).or_default().push(record);
    }
    let mut counts = Counts::default();
    for records in of_hash.values() {
        count_hash(heap, records, &mut counts)?;
    }
    let marked: BTreeSet<TransactionId> = found.iter().filter_map(|f| f.view.transaction()).collect();
    for (_, commit) in commits.iter().filter(|(id, _)| marked.contains(id)) {
        keep(heap, commit, &mut counts)?;
    }
    if let Some(mark) = flushed {
        counts.tombstones += 1;
        let is_copy = |f: &&Found<'_>| f.view.kind() == Kind::Flush && f.view.seq() == flush_seq;
        counts.flush_copies = found.iter().filter(is_copy).count() as u64 - 1;
        keep(heap, mark, &mut counts)?;
    }
    count_live(&mut counts);
    Ok(counts)
}

/// The commit record of each transaction that has one.
fn commits<'f, 'h>(found: &'f [Found<'h>]) -> BTreeMap<TransactionId, &'f Found<'h>> {
    let mut commits: BTreeMap<TransactionId, &Found<'h>> = BTreeMap::new();
    for record in found {
        if let Some(id) = record.view.commits() {
            let newest = commits.entry(id).or_insert(record);
            if version(record) > version(newest) {
                *newest = record;
            }
        }
    }
    commits
}

fn version(found: &Found<'_>) -> (u64, u32) {
    (found.view.seq(), found.view.rev())
}

/// Counts the records of one key (the hashes of the workloads' keys do not collide). A tombstone without older records
/// is stale.
fn count_hash(heap: &Heap, records: &[&Found<'_>], counts: &mut Counts) -> Result<(), Violation> {
    let newest = records.iter().max_by_key(|f| version(f)).expect("a group is not empty");
    let is_put = newest.view.kind() == Kind::Put;
    let is_kept = is_put || records.len() > 1;
    counts.stale += records.len() as u64 - u64::from(is_kept);
    if is_kept {
        counts.tombstones += u64::from(!is_put);
        keep(heap, newest, counts)?;
    }
    Ok(())
}

fn keep(heap: &Heap, found: &Found<'_>, counts: &mut Counts) -> Result<(), Violation> {
    *counts.live_slots.entry(found.slot.run()).or_default() += 1;
    for extent in heap.all_extents(found.slot, &found.view)? {
        keep_extent(extent, counts);
    }
    Ok(())
}

fn keep_extent(extent: Extent, counts: &mut Counts) {
    let mut off = extent.off;
    while off < extent.end() {
        let end = ((off / FRAME_SIZE + 1) * FRAME_SIZE).min(extent.end());
        *counts.frame_refs.entry(off / FRAME_SIZE * FRAME_SIZE).or_default() += 1;
        off = end;
    }
    counts.extents.push(extent);
}

/// Counts live bytes. A byte that several records refer to counts once.
fn count_live(counts: &mut Counts) {
    counts.extents.sort_unstable_by_key(|extent| extent.off);
    let mut covered = 0;
    for extent in &counts.extents {
        let mut off = extent.off.max(covered);
        while off < extent.end() {
            let end = ((off / RUN_SIZE + 1) * RUN_SIZE).min(extent.end());
            *counts.live_bytes.entry(RunId::of(off)).or_default() += end - off;
            off = end;
        }
        covered = covered.max(extent.end());
    }
}

fn check_frames(heap: &Heap, counts: &Counts) -> Result<(), Violation> {
    for frame in 0..heap.geometry().bytes() / FRAME_SIZE {
        let off = frame * FRAME_SIZE;
        let (has, wants) = (heap.runs().frame_refs(off), counts.frame_refs.get(&off).copied().unwrap_or(0));
        ensure!(has == wants, "the frame at {off} has {has} references, the records make {wants}");
    }
    Ok(())
}

fn check_slabs(heap: &Heap, counts: &Counts) -> Result<(), Violation> {
    for (id, run) in heap.runs().iter().filter(|(_, run)| run.used_for() == RunUse::Slab) {
        let (has, wants) = (run.live_slots(), counts.live_slots.get(&id).copied().unwrap_or(0));
        ensure!(has == wants, "slab {} counts {has} live slots, there are {wants}", id.0);
    }
    let total: u64 = counts.live_slots.values().map(|slots| u64::from(*slots)).sum();
    ensure!(heap.runs().live_slots() == total, "live slots do not add up to {total}");
    Ok(())
}

fn check_runs(heap: &Heap, counts: &Counts, filling: usize) -> Result<(), Violation> {
    let mut uses = [0u32; 5];
    let mut empty_data = 0;
    for (id, run) in heap.runs().iter() {
        uses[run.used_for() as usize] += 1;
        let (has, wants) = (u64::from(run.live_bytes()), counts.live_bytes.get(&id).copied().unwrap_or(0));
        ensure!(has == wants, "run {} counts {has} live bytes, there are {wants}", id.0);
        ensure!(
            wants == 0 || run.used_for() == RunUse::Data,
            "run {} holds data and is {:?}",
            id.0,
            run.used_for()
        );
        empty_data += usize::from(run.used_for() == RunUse::Data && wants == 0);
    }
    let counted = heap.runs().counts();
    let [free, data, slab, table, bad] = uses;
    ensure!(bad == 0, "{bad} runs are marked as bad");
    ensure!(table == 1, "{table} table runs in a region of one zone");
    let has = (counted.free, counted.data, counted.slab, counted.total);
    ensure!(has == (free, data, slab, uses.iter().sum()), "run counts {has:?} are not {uses:?}");
    ensure!(empty_data <= filling, "{empty_data} data runs hold nothing, at most {filling} are open");
    let held: BTreeSet<u64> = counts.frame_refs.keys().map(|off| off / RUN_SIZE).collect();
    ensure!(held.len() <= data as usize, "{} runs hold data, {data} are data runs", held.len());
    Ok(())
}
