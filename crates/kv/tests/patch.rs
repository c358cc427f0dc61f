//! Reads and changes of parts of long values. The unchanged rest is neither read, nor written, nor counted again.

mod common_pieces;

use common_pieces::{Store, value};
use landfall_heap::{Change, CompactGoal, Compactor, FRAME_SIZE, HeapError, PIECES_FROM, RunUse, Writer};
use landfall_kv::{KvError, Place, TxnKey};
use landfall_media::{Extent, Media};
use proptest::prelude::*;
use std::sync::Arc;

const KEY: &str = "key";
/// Length of a value with three lists of pieces.
const LEN: usize = 30 << 20;
/// Bytes of a record, a piece, its list, and the list of lists, at most.
const LITTLE: u64 = 12 << 10;

/// A change of `len` bytes at a place.
#[derive(Clone, Copy, Debug)]
struct Edit {
    place: Place,
    len: usize,
    seed: u8,
    landed: bool,
}

impl Edit {
    fn end(len: usize) -> Self {
        Self { place: Place::End, len, seed: 3, landed: false }
    }

    fn at(at: usize, len: usize) -> Self {
        Self { place: Place::At(at), ..Self::end(len) }
    }

    fn bytes(self) -> Vec<u8> {
        (0..self.len).map(|index| (index as u8).wrapping_mul(7).wrapping_add(self.seed)).collect()
    }

    fn apply(self, model: &mut Vec<u8>) {
        let at = if let Place::At(at) = self.place { at } else { model.len() };
        model.resize(model.len().max(at + self.len), 0);
        model[at..at + self.len].copy_from_slice(&self.bytes());
    }
}

fn land(store: &Store, bytes: &[u8]) -> Vec<Extent> {
    let heap = store.engine.heap();
    let chunks = bytes.chunks(700_000);
    let land = |chunk: &[u8]| {
        let run = heap.take_landing_run().expect("a free run");
        let extent = Extent::new(run + 1000, chunk.len() as u32);
        store.media.store(extent.off, chunk).expect("in bounds");
        heap.runs().hold(extent);
        heap.retire_landing_run(run);
        extent
    };
    chunks.map(land).collect()
}

fn edit(store: &Store, writer: &mut Writer, edits: &[Edit]) -> Result<(), KvError> {
    let landed: Vec<Vec<Extent>> =
        edits.iter().map(|edit| if edit.landed { land(store, &edit.bytes()) } else { Vec::new() }).collect();
    let mut txn = store.engine.transaction([TxnKey { space: 0, key: KEY.as_bytes() }], 1);
    let mut done = Ok(());
    for (edit, landed) in edits.iter().zip(&landed) {
        assert!(txn.patchable(0, KEY.as_bytes())?.ungated().is_some());
        let bytes = edit.bytes();
        let change = if edit.landed { Change::Landed(landed, None) } else { Change::Bytes(&bytes) };
        done = done.and(txn.patch(0, KEY.as_bytes(), edit.place, change));
    }
    let done = done.and_then(|()| {
        txn.commit(writer, 1).map(|committed| {
            committed.ungated();
        })
    });
    landed.iter().flatten().for_each(|extent| store.engine.heap().runs().release(*extent));
    done
}

/// The counts of each run, and the references of each frame.
fn counts(store: &Store) -> (Vec<(u32, u32)>, Vec<u32>) {
    let heap = store.engine.heap();
    let runs = heap.runs().iter().map(|(id, run)| (id.0, run.live_bytes()));
    let frames = heap.geometry().bytes() / FRAME_SIZE;
    (runs.collect(), (0..frames).map(|frame| heap.runs().frame_refs(frame * FRAME_SIZE)).collect())
}

/// Restarts the store and checks that recovery computes the counts of before.
fn recounted(store: Store) -> Store {
    let before = counts(&store);
    let store = store.restarted();
    assert!(counts(&store) == before, "the counts differ after a restart");
    store
}

fn stored(runs: u64, len: usize) -> (Store, Vec<u8>) {
    let store = Store::new(runs);
    let mut writer = store.writer();
    store.set(&mut writer, KEY, len);
    writer.commit_now().expect("commits");
    drop(writer);
    (store, value(KEY, len))
}

#[test]
fn short_change_of_a_long_value_writes_little_and_updates_the_counts() {
    let (store, mut model) = stored(64, LEN);
    let mut writer = store.writer();
    let places = [0, 1, 65_530, 100_000, LEN / 2, LEN - 11, LEN - 10, LEN - 3].map(|at| Edit::at(at, 10));
    for one in places.into_iter().chain([Edit::end(10), Edit::end(1), Edit::end(4000)]) {
        edit(&store, &mut writer, &[one]).expect("there is room");
        one.apply(&mut model);
        let mut dirty = writer.begin_commit().expect("something was written");
        let bytes = dirty.bytes();
        let outcome = store.media.fence(&mut dirty, landfall_media::Site::Commit);
        writer.finish_commit(outcome).expect("commits");
        assert!(bytes < LITTLE, "{one:?} wrote {bytes} bytes");
        assert!(store.get(KEY).as_ref() == Some(&model), "{one:?}");
    }
    drop(writer);
    let store = recounted(store);
    assert!(store.get(KEY) == Some(model));
}

#[test]
fn change_that_nearly_fills_a_piece_keeps_its_neighbours() {
    let (store, mut model) = stored(64, LEN);
    let mut writer = store.writer();
    for len in [4095, 4096, 60_000, 64_026, 65_535, 65_536, 65_537] {
        for at in [0, 6_354_705, LEN - 70_000] {
            let one = Edit::at(at, len);
            edit(&store, &mut writer, &[one]).expect("there is room");
            one.apply(&mut model);
            assert!(store.get(KEY).as_ref() == Some(&model), "{one:?}");
        }
    }
}

#[test]
fn many_short_changes_leave_few_pieces_and_write_little_each() {
    let (store, mut model) = stored(64, PIECES_FROM as usize);
    let mut writer = store.writer();
    let before = store.engine.heap().copies.get(landfall_heap::CopyPath::Placed);
    const CHANGES: usize = 30_000;
    for step in 0..CHANGES {
        let one = Edit { seed: step as u8, ..Edit::end(10) };
        edit(&store, &mut writer, &[one]).expect("there is room");
        one.apply(&mut model);
        if step % 100 == 99 {
            writer.commit_now().expect("commits");
        }
    }
    let placed = store.engine.heap().copies.get(landfall_heap::CopyPath::Placed) - before;
    assert!(placed < 200 * CHANGES as u64, "{placed} bytes were copied for {CHANGES} changes");
    let (pieces, _) = store.pieces_and_lists(KEY);
    assert!(pieces.len() < 2 + model.len() / 1500, "{} pieces for {} bytes", pieces.len(), model.len());
    for step in 0..3000 {
        let one = Edit { seed: step as u8, ..Edit::at(step * 7919 % model.len(), 10) };
        edit(&store, &mut writer, &[one]).expect("there is room");
        one.apply(&mut model);
        writer.commit_now().expect("commits");
    }
    let (pieces, _) = store.pieces_and_lists(KEY);
    assert!(pieces.len() < 2 + model.len() / 1500, "{} pieces for {} bytes", pieces.len(), model.len());
    drop(writer);
    let store = recounted(store);
    assert!(store.get(KEY) == Some(model));
}

#[test]
fn damaged_piece_fails_only_reads_and_changes_that_need_it() {
    let (store, mut model) = stored(64, LEN);
    let mut writer = store.writer();
    let (pieces, _) = store.pieces_and_lists(KEY);
    let begin: usize = pieces[..100].iter().map(|piece| piece.len() as usize).sum();
    let end = begin + pieces[100].len() as usize;
    store.flip(pieces[100].off + 5);
    let part = |store: &Store, range: std::ops::Range<usize>| {
        let part = store.engine.get_part(0, KEY.as_bytes(), 1, |len| {
            assert!(len >= LEN);
            range
        });
        part.map(|part| part.ungated().expect("is there").to_vec(store.engine.heap()).expect("in bounds"))
    };
    for range in [0..10, begin - 10..begin, end..end + 10, LEN - 1..LEN, 5..5] {
        assert_eq!(part(&store, range.clone()).expect("is whole"), model[range]);
    }
    for range in [begin..begin + 1, end - 1..end, begin - 1..end + 1, 0..LEN] {
        assert!(matches!(part(&store, range), Err(KvError::Damaged { .. })));
    }
    // The kept part of a damaged piece must not get a new, valid checksum.
    let refused = edit(&store, &mut writer, &[Edit::at(begin + 10, 10)]);
    assert!(matches!(refused, Err(KvError::Damaged { .. })), "{refused:?}");
    let rest = Edit { landed: true, ..Edit::at(begin, 2 * 65_536) };
    for one in [Edit::end(10), Edit::at(begin - 10, 10), Edit::at(end, 10)] {
        edit(&store, &mut writer, &[one]).expect("needs no damaged piece");
        one.apply(&mut model);
    }
    assert!(store.engine.get(0, KEY.as_bytes(), 1).is_err(), "the damage is still detected");
    edit(&store, &mut writer, &[rest]).expect("the damaged piece is overwritten");
    rest.apply(&mut model);
    assert!(store.get(KEY) == Some(model));
}

#[test]
fn changed_value_is_moved_and_readable_after_a_restart() {
    let (store, mut model) = stored(96, LEN);
    let mut writer = store.writer();
    let mut compactor = Compactor::new(Arc::clone(store.engine.heap()));
    let mut moved = 0;
    for step in 0..120 {
        let at = step * 1_234_567 % LEN;
        let one =
            if step % 3 == 0 { Edit::end(3000) } else { Edit { landed: true, ..Edit::at(at, 200_000) } };
        edit(&store, &mut writer, &[one]).expect("there is room");
        one.apply(&mut model);
        writer.commit_now().expect("commits");
        let goal = if step % 2 == 0 { CompactGoal::DENSE_DATA } else { CompactGoal::DENSE_SLABS };
        moved += compactor.step(&store.engine, goal, 300_000).expect("there is room").moved_bytes;
    }
    assert!(moved > 1 << 20, "{moved} bytes were moved");
    assert!(store.get(KEY).as_ref() == Some(&model));
    compactor.leave_victim();
    drop((writer, compactor));
    let used = |store: &Store| {
        store.engine.heap().runs().iter().filter(|(_, run)| run.used_for() == RunUse::Data).count()
    };
    let store = recounted(store);
    assert!(used(&store) < LEN / (1 << 20) + 25, "{} data runs", used(&store));
    assert!(store.get(KEY) == Some(model));
}

#[test]
fn group_that_finds_no_room_undoes_its_changes() {
    let (store, model) = stored(40, 8 << 20);
    let mut writer = store.writer();
    let before = counts(&store);
    let keys = [KEY, "other"].map(|key| TxnKey { space: 0, key: key.as_bytes() });
    let mut txn = store.engine.transaction(keys, 1);
    txn.patch(0, KEY.as_bytes(), Place::At(5), Change::Bytes(b"changed")).expect("stages");
    txn.put_bytes(0, b"other", vec![1; 100 << 20], 0);
    let full = txn.commit(&mut writer, 1);
    assert!(matches!(full, Err(KvError::Heap(HeapError::Full) | KvError::Wait(_))));
    writer.commit_now().expect("commits");
    assert!(counts(&store) == before, "a part of the change is still counted");
    edit(&store, &mut writer, &[Edit::end(10)]).expect("there is room");
    let mut changed = model;
    Edit::end(10).apply(&mut changed);
    assert!(store.get(KEY) == Some(changed));
}

fn edits() -> impl Strategy<Value = Vec<Vec<Edit>>> {
    let len = prop_oneof![4 => 1..100_usize, 3 => 100..9000_usize, 2 => 9000..300_000_usize, 1 => 1..3_000_000_usize];
    let place = prop_oneof![2 => Just(None), 5 => (0..=u32::MAX).prop_map(Some)];
    let one = (place, len, any::<u8>(), any::<bool>()).prop_map(|(place, len, seed, landed)| {
        let scaled = |at: u32| Place::At(((u64::from(at) * (21 << 20)) >> 32) as usize);
        Edit { place: place.map_or(Place::End, scaled), len, seed, landed }
    });
    prop::collection::vec(prop::collection::vec(one, 1..4), 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn patched_value_matches_a_byte_vector(groups in edits()) {
        let (store, mut model) = stored(120, 20 << 20);
        let mut writer = store.writer();
        for (index, group) in groups.iter().enumerate() {
            edit(&store, &mut writer, group).expect("there is room");
            group.iter().for_each(|one| one.apply(&mut model));
            if index % 3 == 0 {
                writer.commit_now().expect("commits");
            }
        }
        prop_assert!(store.get(KEY).as_ref() == Some(&model));
        writer.commit_now().expect("commits");
        drop(writer);
        let store = recounted(store);
        prop_assert!(store.get(KEY) == Some(model));
    }
}
