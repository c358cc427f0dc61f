//! Tests of groups that are refused in the middle: the group is undone, and no crash brings a part of it back.

mod common;

use common::{create, medium, reopen, set};
use landfall_heap::{RECORD_SIZE, SlotId, Writer};
use landfall_kv::{Engine, KvError, TxnKey};
use landfall_media::sim::{CrashState, SimMedia, SimOptions};
use landfall_media::{Extent, Media};
use std::sync::Arc;

/// Lines of three records: a record has two lines.
const LINES_OF_THREE_RECORDS: usize = 6;

fn refused_group(engine: &Engine, writer: &mut Writer) {
    let keys = [&b"a"[..], b"b", b"c", b"large"];
    let mut txn = engine.transaction(keys.map(|key| TxnKey { space: 0, key }), 0);
    for key in &keys[..3] {
        txn.put_bytes(0, key, b"group".to_vec(), 0);
    }
    txn.put_bytes(0, b"large", vec![7; 26 << 20], 0);
    let refused = txn.commit(writer, 1);
    assert!(matches!(refused, Err(KvError::Heap(landfall_heap::HeapError::Full))), "{refused:?}");
}

/// A region with one key, its writer, and the crash state at the moment when three records of a refused group were
/// written.
fn refused_at_its_fourth_record() -> (Arc<SimMedia>, Engine, Writer, SlotId, CrashState) {
    for ahead in 1.. {
        let (media, engine) = create(32, SimOptions::default());
        let mut writer = Writer::new(Arc::clone(engine.heap()), 0);
        let first = SlotId(set(&engine, &mut writer, b"before", b"1").0 + 1);
        writer.commit_now().expect("commits");
        media.freeze_at(media.ops().total() + ahead);
        refused_group(&engine, &mut writer);
        let state = media.frozen().expect("the group was started");
        match state.pending_count() {
            LINES_OF_THREE_RECORDS => return (media, engine, writer, first, state),
            fewer => assert!(fewer < LINES_OF_THREE_RECORDS, "more than three records at once"),
        }
    }
    unreachable!("the group has at least three records");
}

#[test]
fn reused_slots_of_a_refused_group_do_not_bring_a_part_of_it_back() {
    let (media, engine, mut writer, first, state) = refused_at_its_fourth_record();
    let group = state.crash_images_exhaustive(LINES_OF_THREE_RECORDS).and_then(Iterator::last);
    let group = group.expect("few lines are pending").to_vec();
    for key in [&b"x"[..], b"y", b"z", b"w"] {
        set(&engine, &mut writer, key, b"later");
    }
    // A crash may leave each line as any of its stores wrote it. Here the first and the last slot are new, the others
    // old.
    let mut image = media.crash_state().durable_image();
    for (place, from_group) in [false, true, true, false].into_iter().enumerate() {
        let off = SlotId(first.0 + place as u32).off();
        let range = off as usize..(off + RECORD_SIZE) as usize;
        let now = media.bytes(Extent::new(off, RECORD_SIZE as u32)).expect("in bounds");
        image[range.clone()].copy_from_slice(if from_group { &group[range] } else { now });
    }
    let engine = reopen(&medium(image));
    for key in [&b"a"[..], b"b", b"c", b"large"] {
        assert!(engine.get(0, key, 0).expect("reads").ungated().is_none(), "{key:?} was refused");
    }
    assert!(engine.get(0, b"before", 0).expect("reads").ungated().is_some());
}

#[test]
fn a_refused_group_leaves_its_keys_as_they_were() {
    let (_, engine) = create(32, SimOptions::default());
    let mut writer = Writer::new(Arc::clone(engine.heap()), 0);
    set(&engine, &mut writer, b"a", b"older");
    writer.commit_now().expect("commits");
    refused_group(&engine, &mut writer);
    let read = |key: &[u8]| {
        engine.get(0, key, 0).expect("reads").ungated().map(|item| item.to_vec().expect("reads"))
    };
    assert_eq!(read(b"a"), Some(b"older".to_vec()));
    assert_eq!(read(b"b"), None);
    writer.commit_now().expect("commits");
    landfall_sim::recount(&engine, 1).expect("nothing leaks");
}
