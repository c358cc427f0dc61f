//! What was there before a copy began, and the node before does not have, is deleted; what has come since stays.

use landfall_heap::{CompactGoal, Compactor, NewRegion, Source, Writer, create};
use landfall_kv::{Engine, Recovery, SetRequest};
use landfall_media::RUN_SIZE;
use landfall_media::sim::{SimMedia, SimOptions};
use std::sync::Arc;

fn set(engine: &Engine, writer: &mut Writer, key: u32, expiry_ms: u64) {
    let (key, value) = (key.to_le_bytes(), Source::Bytes(b"value"));
    let request = SetRequest { space: 0, key: &key, key_at: None, value, expiry_ms, arrival_ns: 1 };
    engine.set(writer, &request).expect("there is room").ungated();
}

#[test]
fn only_older_versions_are_deleted_wherever_they_were_moved_to() {
    let media = SimMedia::new(48 * RUN_SIZE, SimOptions::default());
    create(&*media, &NewRegion { salt: [1; 16], hash_seed: 2, created_ms: 3 }).expect("a new region");
    let engine = Recovery::run(Arc::clone(&media) as _, 4).expect("opens").0;
    let mut writer = Writer::new(Arc::clone(engine.heap()), 0);
    for key in 0..20_000 {
        set(&engine, &mut writer, key, 0);
        if key % 1000 == 0 {
            writer.commit_now().expect("commits");
        }
    }
    // Most are deleted, so that the others are moved.
    for key in (0..20_000_u32).filter(|key| key % 50 != 0) {
        engine.delete(&mut writer, 0, &key.to_le_bytes(), 1, 1).expect("deletes").ungated();
        if key % 1000 == 1 {
            writer.commit_now().expect("commits");
        }
    }
    set(&engine, &mut writer, 30_000, 1);
    writer.commit_now().expect("commits");
    let below = engine.heap().next_seq();
    set(&engine, &mut writer, 50, 0);
    writer.commit_now().expect("commits");
    let mut compactor = Compactor::new(Arc::clone(engine.heap()));
    let mut moved = 0;
    loop {
        let done = compactor.step(&engine, CompactGoal::DENSE, 1 << 20).expect("compacts");
        moved += done.moved_records;
        if done.is_idle {
            break;
        }
    }
    assert!(moved > 0, "records were moved");
    let mut deletes = |key: u32| {
        let deleted = engine.delete_older(&mut writer, 0, &key.to_le_bytes(), below, 1).expect("deletes");
        writer.commit_now().expect("commits");
        deleted
    };
    assert!(!deletes(50), "a newer version");
    assert!(!deletes(51), "there is none");
    assert!(deletes(100) && !deletes(100));
    assert!(deletes(30_000), "it has expired, and is there all the same");
    let left: u64 = engine.stats().keys.iter().sum();
    assert_eq!(left, 399);
}
