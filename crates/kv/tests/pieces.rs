//! Long values are kept in pieces, each with a checksum of its own.

mod common_pieces;
mod watched;

use common_pieces::{Store, value};
use landfall_heap::{
    Change, CompactGoal, Compactor, FEATURE_PIECES, PIECE_BYTES_MAX, PIECES_FROM, RegionCheck, ValuePlace,
};
use landfall_kv::{KeyCheck, KvError, Place, Recovery, TxnKey};
use landfall_media::sim::{SimMedia, SimOptions};
use std::sync::Arc;
use watched::Watched;

/// Lengths of values with one list of pieces and with several.
const LENS: [usize; 4] = [PIECES_FROM as usize, 300_000, 5 << 20, 30 << 20];

#[test]
fn long_values_in_pieces_are_moved_and_readable_after_a_restart() {
    let store = Store::new(96);
    let mut writer = store.writer();
    store.set(&mut writer, "short", PIECES_FROM as usize - 1);
    writer.commit_now().expect("commits");
    assert_eq!(store.engine.heap().features() & FEATURE_PIECES, 0, "no value is in pieces yet");
    for (index, len) in LENS.into_iter().enumerate() {
        store.set(&mut writer, &format!("gap{index}"), 700_000);
        store.set(&mut writer, &format!("key{index}"), len);
    }
    (0..LENS.len()).for_each(|index| store.delete(&mut writer, &format!("gap{index}")));
    writer.commit_now().expect("commits");
    drop(writer);
    let check = |store: &Store| {
        assert_ne!(store.engine.heap().features() & FEATURE_PIECES, 0);
        for (index, len) in LENS.into_iter().enumerate() {
            let key = format!("key{index}");
            assert!(store.get(&key) == Some(value(&key, len)), "{key}");
            assert!(matches!(store.place(&key), ValuePlace::Pieces(_)), "{key}");
        }
        assert!(!matches!(store.place("short"), ValuePlace::Pieces(_)));
    };
    check(&store);
    let mut compactor = Compactor::new(Arc::clone(store.engine.heap()));
    let mut moved = 0;
    for _ in 0..200 {
        moved +=
            compactor.step(&store.engine, CompactGoal::DENSE, 1 << 20).expect("there is room").moved_records;
    }
    assert!(moved > 0);
    check(&store);
    drop(compactor);
    let store = store.restarted();
    check(&store);
    let image = store.media.crash_state().durable_image();
    let media = SimMedia::from_image(image, SimOptions::default());
    let found = RegionCheck::run(media, vec![Arc::new(KeyCheck::default())]).expect("checks");
    assert!(found.is_clean(), "{found:?}");
}

#[test]
fn read_of_a_part_reads_only_its_pieces() {
    let store = Store::new(64);
    let mut writer = store.writer();
    store.set(&mut writer, "key", 30 << 20);
    writer.commit_now().expect("commits");
    drop(writer);
    let image = store.media.crash_state().durable_image();
    let media = SimMedia::from_image(image, SimOptions::default());
    let watched = Watched::over(media);
    let (engine, _) = Recovery::run(Arc::clone(&watched) as _, 4).expect("opens");
    for (from, pieces) in [(0, 1), (30 << 19, 1), ((30 << 20) - 10, 1), (65_530, 2)] {
        watched.take_reads();
        let part = engine.get_part(0, b"key", 1, |len| {
            assert_eq!(len, 30 << 20);
            from..from + 10
        });
        let part =
            part.expect("reads").ungated().expect("is there").to_vec(engine.heap()).expect("in bounds");
        assert_eq!(part, value("key", 30 << 20)[from..from + 10]);
        let reads = watched.take_reads();
        let bytes: u64 = reads.iter().map(|extent| u64::from(extent.len())).sum();
        let most = u64::from(PIECE_BYTES_MAX) * pieces + 2 * 4100 + 1000;
        assert!(bytes <= most, "{bytes} bytes were read for 10: {reads:?}");
    }
    watched.take_reads();
    let len = engine.get_part(0, b"key", 1, |_| 0..0).expect("reads").ungated().map(|part| part.value_len);
    assert_eq!(len, Some(30 << 20));
    let bytes: u32 = watched.take_reads().iter().map(|extent| extent.len()).sum();
    assert!(bytes < 1000, "{bytes} bytes were read for a length");
}

#[test]
fn recovery_reads_a_piece_once_for_all_versions_above_the_watermark() {
    const LEN: usize = 20 << 20;
    let store = Store::new(64);
    let mut writer = store.writer();
    store.set(&mut writer, "key", LEN);
    for _ in 0..100 {
        let mut txn = store.engine.transaction([TxnKey { space: 0, key: b"key" }], 1);
        txn.patch(0, b"key", Place::End, Change::Bytes(b"more")).expect("stages");
        txn.commit(&mut writer, 1).expect("there is room").ungated();
    }
    writer.commit_now().expect("commits");
    drop(writer);
    let image = store.media.crash_state().durable_image();
    let media = SimMedia::from_image(image, SimOptions::default());
    let watched = Watched::over(media);
    let (engine, _) = Recovery::run(Arc::clone(&watched) as _, 4).expect("opens");
    let bytes: u64 = watched.take_reads().iter().map(|extent| u64::from(extent.len())).sum();
    assert!(bytes > LEN as u64, "{bytes} bytes were read: the tail was not verified");
    assert!(bytes < 2 * LEN as u64, "{bytes} bytes were read");
    let found = engine.get(0, b"key", 1).expect("is whole").ungated().expect("is there");
    assert_eq!(found.len, LEN + 400);
}

#[test]
fn flipped_bit_of_a_piece_or_a_list_is_detected() {
    let store = Store::new(64);
    let mut writer = store.writer();
    store.set(&mut writer, "key", 20 << 20);
    writer.commit_now().expect("commits");
    let (pieces, lists) = store.pieces_and_lists("key");
    assert!(pieces.len() > 256 && lists.len() > 2, "{} pieces, {} lists", pieces.len(), lists.len());
    for extent in pieces.iter().step_by(37).chain(&lists) {
        for at in [0, extent.len() / 2, extent.len() - 1] {
            store.flip(extent.off + u64::from(at));
            let found = store.engine.get(0, b"key", 1);
            assert!(matches!(found, Err(KvError::Damaged { .. })), "{extent:?} at {at}");
            store.flip(extent.off + u64::from(at));
        }
    }
    assert!(store.get("key").is_some());
}
