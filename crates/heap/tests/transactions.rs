//! Transactions of any size: all of their records count or none, at every crash.

mod common;

use common::{RUNS, heap, put, tombstone};
use landfall_heap::{
    CompactGoal, Compactor, Damage, DamagedSlot, Found, Gone, Heap, HeapError, Judge, Keeper, Named,
    NewRegion, Owner, RecordView, Recovered, Region, RegionCheck, RunUse, SLOTS_PER_RUN, SlotId, Source,
    Tenant, Transaction, Writer, create, spaces,
};
use landfall_media::sim::{SimMedia, SimOptions};
use landfall_media::{Extent, Media, RUN_SIZE, Site};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A minimal system that keeps the newest record of each hash.
#[derive(Debug, Default)]
struct Shelf {
    newest: Mutex<BTreeMap<u64, Newest>>,
    next: AtomicUsize,
}

#[derive(Clone, Copy, Debug)]
struct Newest {
    version: (u64, u32),
    slot: SlotId,
}

impl Shelf {
    fn put(&self, heap: &Heap, slot: SlotId) -> Option<SlotId> {
        let view = heap.record(slot).expect("a record");
        let new = Newest { version: (view.seq(), view.rev()), slot };
        self.newest.lock().insert(view.hash(), new).map(|old| old.slot)
    }

    fn slot(&self, heap: &Heap, key: &[u8]) -> Option<SlotId> {
        self.newest.lock().get(&heap.hash(0, key)).map(|newest| newest.slot)
    }

    fn value(&self, heap: &Heap, key: &[u8]) -> Option<Vec<u8>> {
        let slot = self.slot(heap, key)?;
        Some(heap.value_bytes(slot, &heap.record(slot).expect("whole")).expect("whole").into_owned())
    }

    fn len(&self) -> usize {
        self.newest.lock().len()
    }
}

impl Judge for Shelf {
    fn is_superseded(&self, _: &Heap, found: &Found) -> bool {
        self.newest.lock().get(&found.hash).is_some_and(|known| known.version.0 > found.seq)
    }
}

impl Tenant for Shelf {
    fn owns(&self, space: u8) -> bool {
        space == 0
    }

    fn restart(&self) {
        self.newest.lock().clear();
    }

    fn take(&self, _: &Heap, found: &Found, _: &RecordView<'_>) -> Result<(), HeapError> {
        let new = Newest { version: (found.seq, found.rev), slot: found.slot };
        let mut newest = self.newest.lock();
        let known = newest.entry(found.hash).or_insert(new);
        if new.version > known.version {
            *known = new;
        }
        Ok(())
    }

    fn take_damaged(&self, _: &DamagedSlot) {}

    fn settle(&self, _: &Heap) -> Result<Vec<DamagedSlot>, HeapError> {
        Ok(Vec::new())
    }

    fn current_some(&self, keeper: &dyn Keeper) -> Result<bool, HeapError> {
        if self.next.fetch_add(1, Ordering::Relaxed) > 0 {
            return Ok(false);
        }
        let slots: Vec<SlotId> = self.newest.lock().values().map(|newest| newest.slot).collect();
        slots.into_iter().try_for_each(|slot| keeper.keep(slot, &mut |_| Ok(true)).map(drop))?;
        Ok(true)
    }

    fn describe(&self, _: u8, _: &[u8]) -> Option<String> {
        None
    }
}

impl Owner for Shelf {
    fn begin_move(&self, Named { hash, .. }: Named, slot: SlotId, hold: &mut dyn FnMut()) -> bool {
        let is_current = self.newest.lock().get(&hash).is_some_and(|newest| newest.slot == slot);
        if is_current {
            hold();
        }
        is_current
    }

    fn end_move(&self, Named { hash, .. }: Named, old: SlotId, new: SlotId) -> bool {
        let mut newest = self.newest.lock();
        let current = newest.get_mut(&hash).filter(|newest| newest.slot == old);
        current.map(|newest| newest.slot = new).is_some()
    }

    fn abort_move(&self, _: Named) {}

    fn forget(&self, gone: &mut [Gone]) {
        assert!(gone.iter().all(|gone| gone.name.space == 0), "none of the heap's own");
    }
}

/// A region that was opened again.
struct Opened {
    heap: Arc<Heap>,
    shelf: Arc<Shelf>,
    found: Recovered,
}

fn open_on(media: Arc<SimMedia>) -> Opened {
    let shelf = Arc::new(Shelf::default());
    let (heap, found) = Region::run(media, vec![Arc::clone(&shelf) as _]).expect("opens");
    Opened { heap, shelf, found }
}

fn open(image: Vec<u8>) -> Opened {
    open_on(SimMedia::from_image(image, SimOptions::default()))
}

fn key(number: u32) -> [u8; 4] {
    number.to_le_bytes()
}

/// A value long enough for frames.
fn value(number: u32, version: u8) -> Vec<u8> {
    [vec![version; 200], key(number).to_vec()].concat()
}

fn append(writer: &mut Writer, number: u32, version: u8) -> SlotId {
    let heap = Arc::clone(writer.heap());
    writer.append(&put(&heap, &key(number), Source::Bytes(&value(number, version)))).expect("room")
}

fn append_all(writer: &mut Writer, keys: std::ops::Range<u32>, version: u8) -> Transaction {
    let heap = Arc::clone(writer.heap());
    let mut transaction = writer.begin_transaction(0).expect("begins");
    for number in keys {
        let value = value(number, version);
        writer.append_to(&mut transaction, &put(&heap, &key(number), Source::Bytes(&value))).expect("room");
    }
    transaction
}

/// Makes appended records current, and supersedes the replaced ones with the next batch.
fn show(writer: &mut Writer, shelf: &Shelf, slots: &[SlotId]) {
    let heap = Arc::clone(writer.heap());
    for old in slots.iter().filter_map(|slot| shelf.put(&heap, *slot)) {
        writer.supersede(old);
    }
}

/// Fills the slab up to `left` slots with records of one key.
fn fill_slab(writer: &mut Writer, shelf: &Shelf, left: u32) {
    loop {
        let slot = append(writer, u32::MAX, 0);
        show(writer, shelf, &[slot]);
        if slot.index() + 1 == SLOTS_PER_RUN - left {
            return writer.commit_now().expect("commits");
        }
    }
}

/// A heap with old versions of `keys` keys, whose writer's slab has `left` slots left.
fn prepared(options: SimOptions, keys: u32, left: u32) -> (Arc<SimMedia>, Writer, Shelf) {
    let (media, heap) = heap(options);
    let (mut writer, shelf) = (Writer::new(heap, 0), Shelf::default());
    let old: Vec<SlotId> = (0..keys).map(|number| append(&mut writer, number, 1)).collect();
    show(&mut writer, &shelf, &old);
    writer.commit_now().expect("commits");
    fill_slab(&mut writer, &shelf, left);
    (media, writer, shelf)
}

const KEYS: u32 = 300;

/// True if an image has the new versions of all keys, false if it has all old ones.
fn is_new(image: Vec<u8>) -> bool {
    let opened = open(image);
    let version = |number| {
        let value = opened.shelf.value(&opened.heap, &key(number)).expect("there");
        assert_eq!(value, self::value(number, value[0]), "key {number} is whole");
        value[0]
    };
    let first = version(0);
    assert!((1..KEYS).all(|number| version(number) == first), "a part of the transaction counts");
    assert!(first == 2 || opened.heap.committed_transactions() == 0);
    first == 2
}

/// A transaction over two slabs, and a later batch that releases the replaced versions.
fn run_transaction(mut writer: Writer, shelf: &Shelf) {
    let transaction = append_all(&mut writer, 0..KEYS, 2);
    let slots = writer.commit(transaction).expect("commits");
    show(&mut writer, shelf, &slots);
    writer.commit_now().expect("commits");
    // Released runs are reused.
    for number in 1000..1040 {
        append(&mut writer, number, 9);
    }
    writer.commit_now().expect("commits");
}

#[test]
fn a_transaction_counts_as_a_whole_or_not_at_all_at_every_crash() {
    // Over two slabs; and with the commit record alone in the second one.
    for left in [270, KEYS] {
        let ops = {
            let (media, writer, shelf) = prepared(SimOptions::default(), KEYS, left);
            let before = media.ops().total();
            run_transaction(writer, &shelf);
            before..media.ops().total() + 1
        };
        let mut outcomes = [0_u32; 2];
        // Moments around the commit record, and some of the long way there.
        let moments = ops.clone().filter(|op| op % 97 == 0 || ops.end - op < 150 && op % 3 == 0);
        for moment in moments {
            let (media, writer, shelf) = prepared(SimOptions::default(), KEYS, left);
            media.freeze_at(moment);
            run_transaction(writer, &shelf);
            let state = media.frozen().unwrap_or_else(|| media.crash_state());
            for seed in 0..2 {
                outcomes[usize::from(is_new(state.crash_image_seeded(seed)))] += 1;
            }
        }
        assert!(outcomes.iter().all(|count| *count > 10), "both are seen: {outcomes:?}");
    }
}

#[test]
fn without_the_fence_before_the_commit_record_a_crash_takes_records_of_a_committed_transaction() {
    let takes_some = |seed| {
        let (media, mut writer, _) = prepared(SimOptions::default(), KEYS, KEYS);
        media.skip_site(Site::Transaction);
        let transaction = append_all(&mut writer, 0..KEYS, 2);
        writer.commit(transaction).expect("commits");
        let image = media.crash_state().crash_image_seeded(seed);
        !std::panic::catch_unwind(|| is_new(image)).is_ok_and(|is_new| is_new)
    };
    assert!((0..3).all(takes_some), "a missing fence would not be noticed");
}

#[test]
fn a_transaction_is_durable_when_its_commit_returns_and_its_records_read_back() {
    for deferred in [false, true] {
        let (media, mut writer, shelf) = prepared(SimOptions { deferred }, KEYS, 270);
        let heap = Arc::clone(writer.heap());
        let transaction = append_all(&mut writer, 0..KEYS, 2);
        assert_eq!(transaction.len(), KEYS as usize);
        let slots = writer.commit(transaction).expect("commits");
        assert!(slots.iter().all(|slot| heap.pending(*slot).is_none()));
        assert!(slots[0].run() != slots[KEYS as usize - 1].run(), "it lies in two slabs");
        show(&mut writer, &shelf, &slots);
        assert_eq!(shelf.value(&heap, &key(7)), Some(value(7, 2)));
        assert!(is_new(media.crash_state().durable_image()));
    }
}

#[test]
fn a_transaction_waits_for_the_commit_that_is_under_way() {
    let (_, heap) = heap(SimOptions { deferred: true });
    let mut writer = Writer::new(heap, 0);
    append(&mut writer, 1, 1);
    let dirty = writer.begin_commit();
    assert!(matches!(writer.begin_transaction(0), Err(HeapError::Busy)));
    let outcome = writer.heap().media().fence(&mut dirty.expect("work"), Site::Commit);
    writer.finish_commit(outcome).expect("commits");
    assert!(writer.begin_transaction(0).expect("begins").is_empty());
}

#[test]
fn a_transaction_that_is_dropped_leaves_nothing_and_counts_after_no_restart() {
    let (media, mut writer, shelf) = prepared(SimOptions::default(), KEYS, 270);
    let heap = Arc::clone(writer.heap());
    let live = heap.runs().live_bytes();
    drop(append_all(&mut writer, 0..KEYS, 2));
    assert_eq!(heap.runs().live_bytes(), live, "its frames are free");
    // The writer goes on in the slab that holds its records.
    let slot = append(&mut writer, 5, 3);
    show(&mut writer, &shelf, &[slot]);
    writer.commit_now().expect("commits");
    let opened = open(media.crash_state().durable_image());
    assert_eq!(opened.found.resolved.undecided, u64::from(KEYS));
    assert_eq!(opened.shelf.value(&opened.heap, &key(5)), Some(value(5, 3)));
    assert_eq!(opened.shelf.value(&opened.heap, &key(6)), Some(value(6, 1)));
    assert_eq!(opened.heap.committed_transactions(), 0);
    // The check sees what recovery sees.
    let image = media.crash_state().durable_image();
    let checked = RegionCheck::run(
        SimMedia::from_image(image, SimOptions::default()),
        vec![Arc::new(Shelf::default())],
    )
    .expect("checks");
    assert!(checked.is_clean());
    assert_eq!((checked.keys, checked.unacknowledged), (u64::from(KEYS) + 1, u64::from(KEYS)));
}

#[test]
fn a_transaction_without_room_leaves_no_live_bytes() {
    let (_, heap) = heap(SimOptions::default());
    let mut writer = Writer::new(Arc::clone(&heap), 0);
    let whole = RUNS * RUN_SIZE;
    assert!(writer.begin_transaction(whole).is_ok(), "nobody makes space: it is found out by trying");
    let mut transaction = writer.begin_transaction(0).expect("begins");
    let large = vec![1; 900_000];
    let refused = (0..100).find_map(|number: u32| {
        writer.append_to(&mut transaction, &put(&heap, &key(number), Source::Bytes(&large))).err()
    });
    assert!(matches!(refused, Some(HeapError::Full)));
    drop(transaction);
    assert_eq!(heap.runs().live_bytes(), 0);
    // Deletes alone have the reserve for deletes.
    let mut transaction = writer.begin_transaction(0).expect("begins");
    for number in 0..SLOTS_PER_RUN + 5 {
        writer.append_to(&mut transaction, &tombstone(&heap, &key(number))).expect("room");
    }
    assert_eq!(writer.commit(transaction).expect("commits").len(), SLOTS_PER_RUN as usize + 5);
}

#[test]
fn a_transaction_whose_commit_failed_releases_nothing() {
    let (media, mut writer, _) = prepared(SimOptions::default(), KEYS, 270);
    let heap = Arc::clone(writer.heap());
    let transaction = append_all(&mut writer, 0..KEYS, 2);
    let live = heap.runs().live_bytes();
    media.fail_at(media.ops().fences + 2);
    assert!(matches!(writer.commit(transaction), Err(HeapError::Media(_))));
    assert_eq!(heap.runs().live_bytes(), live, "the commit record may be on the medium");
    assert!(writer.begin_transaction(0).is_err(), "closed");
}

/// Compacts until nothing is gained any more.
fn compact(compactor: &mut Compactor, shelf: &Shelf, goal: CompactGoal) {
    for _ in 0..2000 {
        if compactor.step(shelf, goal, 8 << 20).expect("steps").is_idle {
            return;
        }
    }
    panic!("the compactor never rests");
}

#[test]
fn nothing_of_an_open_transaction_is_moved_and_none_of_its_slabs_given_back() {
    let (media, mut writer, shelf) = prepared(SimOptions::default(), KEYS, 270);
    let heap = Arc::clone(writer.heap());
    let mut compactor = Compactor::new(Arc::clone(&heap));
    let transaction = append_all(&mut writer, 0..KEYS, 2);
    for goal in [CompactGoal::DENSE_DATA, CompactGoal::DENSE_SLABS, CompactGoal::DENSE] {
        compact(&mut compactor, &shelf, goal);
    }
    // Whatever has been moved: a crash takes all of it back.
    assert!(!is_new(media.crash_state().durable_image()));
    let slots = writer.commit(transaction).expect("commits");
    assert!(is_new(media.crash_state().durable_image()));
    show(&mut writer, &shelf, &slots);
    writer.commit_now().expect("commits");
    compact(&mut compactor, &shelf, CompactGoal::DENSE);
    assert!(is_new(media.crash_state().durable_image()));
    assert_eq!(shelf.value(&heap, &key(299)), Some(value(299, 2)));
}

#[test]
fn a_record_moves_only_when_its_commit_record_is_below_the_durable_mark() {
    let (_, mut writer, shelf) = prepared(SimOptions::default(), 2, 270);
    let heap = Arc::clone(writer.heap());
    let transaction = append_all(&mut writer, 0..KEYS, 2);
    let slots = writer.commit(transaction).expect("commits");
    show(&mut writer, &shelf, &slots);
    writer.commit_now().expect("commits");
    let is_marked = |slot: &SlotId| heap.is_marked(*slot);
    assert!(!slots.iter().any(is_marked), "nothing is marked yet");
    heap.mark_slabs(1).expect("marks");
    assert!(slots.iter().all(is_marked));
    let mut compactor = Compactor::new(Arc::clone(&heap));
    compact(&mut compactor, &shelf, CompactGoal::DENSE_SLABS);
    let moved = shelf.slot(&heap, &key(3)).expect("there");
    let view = heap.record(moved).expect("whole");
    assert!(moved != slots[3] && view.transaction().is_none() && view.rev() == 1);
}

#[test]
fn commit_records_are_retired_with_the_last_record_of_their_transactions_and_not_before() {
    let (media, mut writer, shelf) = prepared(SimOptions::default(), KEYS, 270);
    let heap = Arc::clone(writer.heap());
    let mut compactor = Compactor::new(Arc::clone(&heap));
    for version in 2..6 {
        let transaction = append_all(&mut writer, 0..KEYS, version);
        let slots = writer.commit(transaction).expect("commits");
        show(&mut writer, &shelf, &slots);
        writer.commit_now().expect("commits");
    }
    assert_eq!(heap.committed_transactions(), 4);
    heap.mark_slabs(1).expect("marks");
    // Filled slabs, of which almost nothing is current.
    fill_slab(&mut writer, &shelf, 0);
    append(&mut writer, 77_777, 1);
    writer.commit_now().expect("commits");
    compact(&mut compactor, &shelf, CompactGoal::DENSE);
    assert_eq!(heap.committed_transactions(), 0);
    let opened = open(media.crash_state().durable_image());
    assert_eq!(opened.heap.committed_transactions(), 0);
    let there =
        (0..KEYS).all(|number| opened.shelf.value(&opened.heap, &key(number)) == Some(value(number, 5)));
    assert!(there, "the moved copies count by themselves");
    assert_eq!(opened.shelf.len(), KEYS as usize + 2);
}

#[test]
fn a_commit_record_moves_like_others_and_its_transaction_goes_on_counting() {
    let (media, mut writer, shelf) = prepared(SimOptions::default(), KEYS, KEYS);
    let heap = Arc::clone(writer.heap());
    // The commit record is alone in the second slab, which becomes sparse.
    let transaction = append_all(&mut writer, 0..KEYS, 2);
    let slots = writer.commit(transaction).expect("commits");
    show(&mut writer, &shelf, &slots);
    fill_slab(&mut writer, &shelf, 0);
    append(&mut writer, 77_777, 1);
    writer.commit_now().expect("commits");
    heap.mark_slabs(1).expect("marks");
    heap.pin_slab(slots[0]);
    let commit = commit_slot(&heap);
    assert!(commit.run() != slots[0].run());
    let mut compactor = Compactor::new(Arc::clone(&heap));
    compact(&mut compactor, &shelf, CompactGoal::DENSE_SLABS);
    let moved = commit_slot(&heap);
    assert!(moved.run() != commit.run(), "its slab was given back");
    assert_eq!(heap.committed_transactions(), 1, "its records are in the slab that stays");
    assert!(is_new(media.crash_state().durable_image()));
}

/// The slot of the only commit record.
fn commit_slot(heap: &Heap) -> SlotId {
    let slabs = heap.runs().iter().filter(|(_, run)| run.used_for() == RunUse::Slab);
    let slots = slabs.flat_map(|(id, run)| (0..run.filled()).map(move |index| SlotId::new(id, index)));
    let is_commit = |slot: &SlotId| heap.record(*slot).is_ok_and(|view| view.commits().is_some());
    let commits: Vec<SlotId> = slots.filter(is_commit).collect();
    assert_eq!(commits.len(), 1);
    commits[0]
}

#[test]
fn a_damaged_commit_record_whose_key_holds_is_written_anew() {
    let (media, mut writer, _) = prepared(SimOptions::default(), KEYS, 270);
    let transaction = append_all(&mut writer, 0..KEYS, 2);
    writer.commit(transaction).expect("commits");
    writer.heap().mark_slabs(1).expect("marks");
    let slot = commit_slot(writer.heap());
    assert_eq!(writer.heap().record(slot).expect("whole").space(), spaces::TRANSACTIONS);
    let mut image = media.crash_state().durable_image();
    image[slot.off() as usize + 40..][..20].fill(0xff);
    let media = SimMedia::from_image(image, SimOptions::default());
    let opened = open_on(Arc::clone(&media));
    assert_eq!((opened.found.corrected, opened.found.damaged.len()), (vec![slot], 0));
    assert!(is_new(media.crash_state().durable_image()), "durably");
}

/// The commit record may have been in any run of which nothing is known.
#[test]
fn records_of_a_transaction_are_doubtful_if_the_slab_of_its_commit_record_is_lost() {
    let (media, mut writer, _) = prepared(SimOptions::default(), KEYS, KEYS);
    let transaction = append_all(&mut writer, 0..KEYS, 2);
    let slots = writer.commit(transaction).expect("commits");
    writer.heap().mark_slabs(1).expect("marks");
    let run = commit_slot(writer.heap()).run();
    assert!(slots.iter().all(|slot| slot.run() != run), "the commit record is alone in its slab");
    let mut image = media.crash_state().durable_image();
    run.table_words().iter().for_each(|word| image[*word as usize + 5] ^= 16);
    let checked = RegionCheck::run(
        SimMedia::from_image(image, SimOptions::default()),
        vec![Arc::new(Shelf::default())],
    )
    .expect("checks");
    assert_eq!((&checked.copies.runs, checked.findings_count), (&vec![run], u64::from(KEYS)));
    assert!(checked.findings.iter().all(|finding| finding.what == Some(Damage::Undecided)), "{checked:?}");
}

#[test]
fn a_flipped_bit_in_a_record_of_a_transaction_is_corrected_before_it_counts() {
    let (media, mut writer, _) = prepared(SimOptions::default(), KEYS, 270);
    let transaction = append_all(&mut writer, 0..KEYS, 2);
    let slots = writer.commit(transaction).expect("commits");
    writer.heap().mark_slabs(1).expect("marks");
    let mut image = media.crash_state().durable_image();
    image[slots[3].off() as usize + 70] ^= 4;
    let checked = RegionCheck::run(
        SimMedia::from_image(image.clone(), SimOptions::default()),
        vec![Arc::new(Shelf::default())],
    );
    let checked = checked.expect("checks");
    assert_eq!((checked.correctable, checked.keys, checked.findings_count), (vec![slots[3]], 301, 0));
    assert!(is_new(image));
}

#[test]
fn a_region_takes_up_the_feature_with_its_first_transaction() {
    let (media, heap) = heap(SimOptions::default());
    let features = |media: &SimMedia| landfall_heap::Geometry::read(media).expect("a region").0.features;
    let before = features(&media);
    let mut writer = Writer::new(heap, 0);
    append(&mut writer, 1, 1);
    assert_eq!(features(&media), before);
    drop(append_all(&mut writer, 0..1, 1));
    assert_eq!(features(&media), before | 32);
}

const MILLION: u32 = 1_000_000;

/// How many of a million keys an image holds.
fn count_of(image: Vec<u8>) -> usize {
    let opened = open(image);
    let first = opened.shelf.slot(&opened.heap, &key(0)).is_some();
    assert_eq!(opened.heap.committed_transactions(), usize::from(first));
    opened.shelf.len()
}

#[test]
fn a_million_records_count_all_or_none() {
    let runs = u64::from(MILLION / SLOTS_PER_RUN) + 24;
    let media = SimMedia::new(runs * RUN_SIZE, SimOptions::default());
    create(&*media, &NewRegion { salt: [1; 16], hash_seed: 2, created_ms: 3 }).expect("a new region");
    let heap = open_on(Arc::clone(&media)).heap;
    let mut writer = Writer::new(Arc::clone(&heap), 0);
    let mut transaction = writer.begin_transaction(u64::from(MILLION) * 128).expect("room");
    for number in 0..MILLION {
        let key = key(number);
        writer.append_to(&mut transaction, &put(&heap, &key, Source::Bytes(&key))).expect("room");
    }
    assert_eq!(count_of(media.crash_state().durable_image()), 0);
    assert_eq!(count_of(media.crash_image_seeded(1)), 0, "whatever of the last slab is there");
    let fences = media.ops().fences;
    let slots = writer.commit(transaction).expect("commits");
    assert_eq!((slots.len(), media.ops().fences - fences), (MILLION as usize, 2));
    assert_eq!(count_of(media.crash_state().durable_image()), MILLION as usize);
    assert_eq!(count_of(media.crash_image_seeded(2)), MILLION as usize);
}

#[test]
fn references_of_a_record_are_kept_while_its_transaction_is_open() {
    let (media, heap) = heap(SimOptions::default());
    let mut writer = Writer::new(Arc::clone(&heap), 0);
    let run = heap.take_landing_run().expect("a free run");
    media.store(run, &[5; 3000]).expect("in bounds");
    let extent = Extent::new(run, 3000);
    heap.runs().hold(extent);
    let mut transaction = writer.begin_transaction(0).expect("begins");
    let landed = Source::Landed { extents: &[extent], crc: None };
    writer.append_to(&mut transaction, &put(&heap, b"k", landed)).expect("room");
    heap.runs().release(extent);
    heap.retire_landing_run(run);
    assert_eq!(heap.runs().live_bytes(), 3000);
    drop(transaction);
    assert_eq!((heap.runs().live_bytes(), heap.runs().counts().data), (0, 0));
}
