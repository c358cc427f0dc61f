//! A record that cannot be read is one key's: keys with the same tag in the index have nothing to do with it.

use landfall_heap::{
    CompactGoal, Compactor, Damage, Kind, NewRegion, RECORD_SIZE, RegionCheck, Source, Writer, create, spaces,
};
use landfall_kv::{Engine, KeyCheck, KvError, Recovery, SetRequest};
use landfall_media::sim::{SimMedia, SimOptions};
use landfall_media::{Extent, Media, RUN_SIZE};
use std::collections::HashMap;
use std::sync::Arc;

/// Bits of a hash that its tag does not have.
const HASH_BITS: u32 = 37;

fn key(number: u64) -> [u8; 16] {
    let mut key = *b"key ------------";
    key[8..].copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
    key
}

/// Two keys with the same tag.
fn alike(engine: &Engine) -> [[u8; 16]; 2] {
    let mut known = HashMap::new();
    for number in 0.. {
        let tag = engine.heap().hash(0, &key(number)) >> HASH_BITS;
        if let Some(other) = known.insert(tag, number) {
            return [key(other), key(number)];
        }
    }
    unreachable!("there are fewer tags than numbers")
}

fn set(engine: &Engine, writer: &mut Writer, key: &[u8]) {
    let value = Source::Bytes(b"value");
    let request = SetRequest { space: 0, key, key_at: None, value, expiry_ms: 0, arrival_ns: 1 };
    engine.set(writer, &request).expect("there is room").ungated();
    writer.commit_now().expect("commits");
}

/// Damages the records with these bytes, beyond what their checksums correct.
fn damage(media: &SimMedia, key: &[u8]) {
    let whole = media.bytes(Extent::new(RUN_SIZE, (20 * RUN_SIZE) as u32)).expect("in bounds");
    let found = (0..).zip(whole.windows(key.len())).filter(|(_, bytes)| *bytes == key);
    let records: Vec<u64> = found.map(|(at, _)| RUN_SIZE + at / RECORD_SIZE * RECORD_SIZE).collect();
    assert!(!records.is_empty(), "the record is there");
    for record in records {
        (0..8).for_each(|byte| media.damage(record + 8 + byte, 0x11));
    }
}

#[test]
fn a_key_that_cannot_be_read_stays_so_whatever_becomes_of_one_with_its_tag() {
    for deletes in [false, true] {
        let media = SimMedia::new(48 * RUN_SIZE, SimOptions::default());
        create(&*media, &NewRegion { salt: [1; 16], hash_seed: 2, created_ms: 3 }).expect("a new region");
        let engine = Recovery::run(Arc::clone(&media) as _, 1).expect("opens").0;
        let mut writer = Writer::new(Arc::clone(engine.heap()), 0);
        let [damaged, other] = alike(&engine);
        set(&engine, &mut writer, &damaged);
        damage(&media, &damaged);
        let read = |key: &[u8]| engine.get(0, key, 1).map(|found| found.ungated().is_some());
        assert!(matches!(read(&damaged), Err(KvError::Damaged { .. })));
        assert!(matches!(read(&other), Ok(false)), "it was never there");
        if deletes {
            engine.delete(&mut writer, 0, &other, 1, 1).expect("there is nothing to delete").ungated();
        } else {
            set(&engine, &mut writer, &other);
        }
        writer.commit_now().expect("commits");
        assert!(matches!(read(&damaged), Err(KvError::Damaged { .. })), "nobody has written this key");
        assert!(matches!(read(&other), Ok(found) if found != deletes));
        set(&engine, &mut writer, &damaged);
        assert!(matches!(read(&damaged), Ok(true)));
    }
}

/// The tombstone of a key cannot be read, or that of one with its tag.
#[test]
fn a_key_can_be_written_and_deleted_whose_tombstone_cannot_be_read() {
    for of_the_other in [false, true] {
        let media = SimMedia::new(48 * RUN_SIZE, SimOptions::default());
        create(&*media, &NewRegion { salt: [1; 16], hash_seed: 2, created_ms: 3 }).expect("a new region");
        let engine = Recovery::run(Arc::clone(&media) as _, 1).expect("opens").0;
        let mut writer = Writer::new(Arc::clone(engine.heap()), 0);
        let [deleted, other] = alike(&engine);
        set(&engine, &mut writer, &deleted);
        engine.delete(&mut writer, 0, &deleted, 1, 1).expect("deletes").ungated();
        writer.commit_now().expect("commits");
        damage(&media, &deleted);
        let written = if of_the_other { other } else { deleted };
        set(&engine, &mut writer, &written);
        let is_there = |key: &[u8]| engine.get(0, key, 1).map(|found| found.ungated().is_some());
        assert!(matches!(is_there(&written), Ok(true)));
        engine.delete(&mut writer, 0, &written, 1, 1).expect("deletes").ungated();
        writer.commit_now().expect("commits");
        assert!(matches!(is_there(&written), Ok(false)));
        drop((engine, writer));
        let image = media.crash_state().durable_image();
        let media = SimMedia::from_image(image, SimOptions::default());
        let engine = Recovery::run(media as _, 1).expect("opens").0;
        assert!(!matches!(engine.get(0, &written, 1).map(|found| found.ungated().is_some()), Ok(true)));
    }
}

#[test]
fn what_a_damaged_flush_mark_has_deleted_does_not_come_back() {
    // Its time of arrival, or its version: eight bytes each.
    for (field, is_certain) in [(40, true), (8, false)] {
        let media = SimMedia::new(48 * RUN_SIZE, SimOptions::default());
        create(&*media, &NewRegion { salt: [1; 16], hash_seed: 2, created_ms: 3 }).expect("a new region");
        let engine = Recovery::run(Arc::clone(&media) as _, 1).expect("opens").0;
        let mut writer = Writer::new(Arc::clone(engine.heap()), 0);
        set(&engine, &mut writer, b"old");
        engine.flush_all(&mut writer, 1).expect("flushes").ungated();
        set(&engine, &mut writer, b"new");
        engine.heap().mark_slabs(1).expect("marks");
        let is_mark = |slot: &_| engine.heap().record(*slot).is_ok_and(|view| view.kind() == Kind::Flush);
        let mark = engine.records_from(0).expect("reads").into_iter().find(is_mark).expect("a mark");
        drop((engine, writer));
        (0..8).for_each(|byte| media.damage(mark.off() + field + byte, 0x11));
        let check = || {
            RegionCheck::run(Arc::clone(&media) as _, vec![Arc::new(KeyCheck::default())]).expect("checks")
        };
        let found = check();
        let named: Vec<_> =
            found.findings.iter().map(|finding| (finding.what, finding.named.clone())).collect();
        if is_certain {
            assert_eq!((named, found.correctable), (vec![], vec![mark]));
        } else {
            assert_eq!(named, [(Some(Damage::FlushMark), Some((spaces::FLUSH, vec![])))]);
        }
        let engine = Recovery::run(Arc::clone(&media) as _, 1).expect("opens").0;
        let is_there = |key: &[u8]| engine.get(0, key, 1).expect("reads").ungated().is_some();
        assert_eq!((is_there(b"old"), is_there(b"new")), (false, true), "field at {field}");
        drop(engine);
        assert!(check().is_clean(), "the mark is written anew");
    }
}

#[test]
fn a_copy_of_a_flush_mark_that_is_damaged_does_not_delete_what_lies_before_it() {
    let media = SimMedia::new(48 * RUN_SIZE, SimOptions::default());
    create(&*media, &NewRegion { salt: [1; 16], hash_seed: 2, created_ms: 3 }).expect("a new region");
    let open = || Recovery::run(Arc::clone(&media) as _, 1).expect("opens").0;
    let engine = open();
    let mut writer = Writer::new(Arc::clone(engine.heap()), 0);
    engine.flush_all(&mut writer, 1).expect("flushes").ungated();
    // One slab is nearly dead, and the next one is nearly empty: what lies in it is newer than the mark.
    (0..9000).for_each(|_| set(&engine, &mut writer, b"again"));
    set(&engine, &mut writer, b"new");
    engine.heap().mark_slabs(1).expect("marks");
    drop((engine, writer));
    // The compactor takes the slab that a writer has left.
    let engine = open();
    let mut compactor = Compactor::new(Arc::clone(engine.heap()));
    while !compactor.step(&engine, CompactGoal::DENSE_SLABS, 1 << 20).expect("compacts").is_idle {}
    engine.heap().mark_slabs(1).expect("marks");
    let is_mark = |slot: &_| engine.heap().record(*slot).is_ok_and(|view| view.kind() == Kind::Flush);
    let mark = engine.records_from(0).expect("reads").into_iter().find(is_mark).expect("a mark");
    assert!(
        engine.heap().record(mark).expect("a record").rev() == 1 && mark.index() > 0,
        "a copy, not the first"
    );
    drop((compactor, engine));
    (0..8).for_each(|byte| media.damage(mark.off() + 40 + byte, 0x11));
    let engine = open();
    let is_there = |key: &[u8]| engine.get(0, key, 1).expect("reads").ungated().is_some();
    assert!(is_there(b"new") && is_there(b"again"));
}
