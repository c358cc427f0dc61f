//! The promises of the log service. Each test states one promise.

mod common;

use common::{ALL, all, append, crash, open, region, writer};
use landfall_heap::{
    CompactGoal, Compactor, CopyPath, HeapError, RegionCheck, SlotId, Source, Tenant, Until, Writer,
};
use landfall_media::sim::{SimMedia, SimOptions};
use landfall_media::{Extent, Media};
use landfall_wal::{LogRecovery, Logs, ReadLimit, Retained, Settings, WalError};
use std::sync::Arc;

#[test]
fn offsets_count_from_zero_and_entries_are_read_once_durable() {
    let logs = open(&region());
    let mut writer = writer(&logs, 0);
    let done = logs.append(&mut writer, b"a", &[Source::Bytes(b"x"), Source::Bytes(&[7; 5000])], 1).unwrap();
    let done = done.if_durable(logs.heap()).expect_err("not durable yet");
    assert_eq!(logs.read(b"a", 0, ALL).unwrap().ungated().entries.len(), 0, "not durable yet");
    writer.commit_now().unwrap();
    let done = done.if_durable(logs.heap()).expect("durable");
    assert_eq!((done.first, done.count), (0, 2));
    assert_eq!(all(&logs, "a").unwrap(), (0, vec![b"x".to_vec(), vec![7; 5000]]));
    assert_eq!(logs.get(b"a", 1).unwrap().ungated().len, 5000);
    assert_eq!(append(&logs, &mut writer, "a", b"y"), 2);
    assert_eq!(append(&logs, &mut writer, "b", b"z"), 0, "each log counts for itself");
}

#[test]
fn what_landed_is_logged_by_reference() {
    let logs = open(&region());
    let mut writer = writer(&logs, 0);
    let heap = Arc::clone(logs.heap());
    let run = heap.take_landing_run().unwrap();
    let pieces = [Extent::new(run + 100, 600), Extent::new(run + 4000, 500)];
    pieces.iter().enumerate().for_each(|(at, piece)| {
        heap.media().store(piece.off, &vec![at as u8 + 1; piece.len() as usize]).unwrap();
        heap.runs().hold(*piece);
    });
    logs.append(&mut writer, b"a", &[Source::Landed { extents: &pieces, crc: None }], 1).unwrap().ungated();
    writer.commit_now().unwrap();
    let item = logs.get(b"a", 0).unwrap().ungated();
    assert_eq!(item.extents(), pieces, "where they landed");
    assert!(CopyPath::ALL.iter().all(|(path, _)| heap.copies.get(*path) == 0));
}

#[test]
fn reads_are_limited_and_say_where_to_go_on() {
    let logs = open(&region());
    let mut writer = writer(&logs, 0);
    for _ in 0..10 {
        append(&logs, &mut writer, "a", &[1; 100]);
    }
    writer.commit_now().unwrap();
    let read = |from, entries, bytes| {
        let page = logs.read(b"a", from, ReadLimit { entries, bytes }).unwrap().ungated();
        (page.entries.len(), page.next, page.end)
    };
    assert_eq!(read(0, 3, u64::MAX), (3, 3, 10));
    assert_eq!(read(2, 100, 250), (2, 4, 10));
    assert_eq!(read(2, 100, 0), (1, 3, 10), "always one");
    assert_eq!(read(10, 5, 100), (0, 10, 10), "right behind the last there is nothing yet");
    let beyond = logs.read(b"a", 11, ALL).unwrap_err();
    assert!(matches!(beyond, WalError::OutOfRange { offset: 11, first: 0, next: 10 }));
}

#[test]
fn trimmed_offsets_never_come_back_nor_are_given_again() {
    let media = region();
    let logs = open(&media);
    let mut writer = writer(&logs, 0);
    for at in 0..5 {
        append(&logs, &mut writer, "a", &[at; 3000]);
    }
    writer.commit_now().unwrap();
    let live = logs.heap().runs().live_bytes();
    assert_eq!(logs.trim(&mut writer, b"a", 5, 1).unwrap().ungated(), 5);
    assert!(matches!(logs.trim(&mut writer, b"a", 6, 1), Err(WalError::OutOfRange { next: 5, .. })));
    assert_eq!(logs.sweep(100), 0, "not before the trim is durable");
    writer.commit_now().unwrap();
    assert_eq!((logs.sweep(100), logs.unswept()), (5, 0));
    assert!(live >= 15_000 && logs.heap().runs().live_bytes() == 0, "the bytes of the entries are free");
    assert!(matches!(logs.get(b"a", 4), Err(WalError::OutOfRange { first: 5, next: 5, .. })));
    for _ in 0..2 {
        let (_, logs) = crash(&media);
        assert_eq!(all(&logs, "a").unwrap(), (5, vec![]));
    }
    let (_, logs) = crash(&media);
    assert_eq!(append(&logs, &mut common::writer(&logs, 0), "a", b"next"), 5);
}

#[test]
fn deleted_logs_stay_deleted_and_their_names_start_anew() {
    let media = region();
    let logs = open(&media);
    let mut writer = writer(&logs, 0);
    append(&logs, &mut writer, "a", b"old");
    logs.commit_position(&mut writer, b"a", b"c", 0, 1).unwrap().ungated();
    writer.commit_now().unwrap();
    assert!(logs.delete(&mut writer, b"a", 1).unwrap().is_some());
    assert!(logs.delete(&mut writer, b"a", 1).unwrap().is_none());
    writer.commit_now().unwrap();
    assert!(matches!(logs.read(b"a", 0, ALL), Err(WalError::NoLog)));
    let (media, logs) = crash(&media);
    assert!(matches!(logs.read(b"a", 0, ALL), Err(WalError::NoLog)));
    let mut writer = self::writer(&logs, 0);
    assert_eq!(append(&logs, &mut writer, "a", b"new"), 0);
    writer.commit_now().unwrap();
    let (_, logs) = crash(&media);
    assert_eq!(all(&logs, "a").unwrap(), (0, vec![b"new".to_vec()]));
    assert!(matches!(logs.position(b"a", b"c"), Err(WalError::NoConsumer)));
}

#[test]
fn groups_survive_a_crash_whole_or_not_at_all() {
    let media = region();
    let logs = open(&media);
    let mut writer = writer(&logs, 0);
    append(&logs, &mut writer, "a", b"first");
    writer.commit_now().unwrap();
    logs.append(&mut writer, b"a", &[Source::Bytes(b"g1"), Source::Bytes(b"g2"), Source::Bytes(b"g3")], 1)
        .unwrap()
        .ungated();
    for seed in 0..60 {
        let image = media.crash_image_seeded(seed);
        let image = SimMedia::from_image(image, Default::default());
        let (_, entries) = all(&open(&image), "a").unwrap();
        assert!([1, 4].contains(&entries.len()), "seed {seed}: {}", entries.len());
    }
}

#[test]
fn positions_are_kept_and_bounded_by_what_is_durable() {
    let media = region();
    let logs = open(&media);
    let mut writer = writer(&logs, 0);
    append(&logs, &mut writer, "a", b"x");
    let early = logs.commit_position(&mut writer, b"a", b"mirror", 1, 1);
    assert!(matches!(early, Err(WalError::OutOfRange { next: 0, .. })));
    writer.commit_now().unwrap();
    logs.commit_position(&mut writer, b"a", b"mirror", 1, 1).unwrap().ungated();
    logs.commit_position(&mut writer, b"a", b"other", 0, 1).unwrap().ungated();
    assert!(logs.delete_position(&mut writer, b"a", b"other", 1).unwrap().is_some());
    writer.commit_now().unwrap();
    let (_, logs) = crash(&media);
    assert_eq!(logs.position(b"a", b"mirror").unwrap().ungated(), 1);
    assert!(matches!(logs.position(b"a", b"other"), Err(WalError::NoConsumer)));
    assert_eq!(logs.positions(b"a").unwrap().ungated().len(), 1);
}

#[test]
fn logs_keep_what_they_are_set_to_keep() {
    let media = region();
    let logs = open(&media);
    let mut writer = writer(&logs, 0);
    for at in 0..10u64 {
        logs.append(&mut writer, b"a", &[Source::Bytes(&[1; 100])], at * 1_000_000).unwrap().ungated();
    }
    writer.commit_now().unwrap();
    let mut keeps = |settings, now_ms| {
        logs.set_settings(&mut writer, b"a", settings, 1).unwrap().ungated();
        logs.retain(&mut writer, now_ms).unwrap();
        writer.commit_now().unwrap();
        logs.stats_of(b"a").unwrap().ungated().first
    };
    assert_eq!(keeps(Settings { retain_bytes: 850, ..Default::default() }, 0), 2);
    assert_eq!(keeps(Settings { retain_entries: 6, ..Default::default() }, 0), 4);
    let aged = Settings { retain_ms: 5, ..Default::default() };
    assert_eq!(keeps(aged, 11), 6);
    let (_, logs) = crash(&media);
    assert_eq!(logs.settings(b"a").unwrap().ungated(), aged);
    assert_eq!(logs.stats_of(b"a").unwrap().ungated().first, 6);
}

#[test]
fn an_entry_that_came_when_the_clock_was_ahead_keeps_none_behind_it() {
    let logs = open(&region());
    let mut writer = writer(&logs, 0);
    for at_ms in [1, 1_000_000, 2, 3, 2_000_000] {
        logs.append(&mut writer, b"a", &[Source::Bytes(b"x")], at_ms * 1_000_000).unwrap().ungated();
    }
    writer.commit_now().unwrap();
    logs.set_settings(&mut writer, b"a", Settings { retain_ms: 5, ..Default::default() }, 1)
        .unwrap()
        .ungated();
    let mut first = |now_ms| {
        logs.retain(&mut writer, now_ms).unwrap();
        writer.commit_now().unwrap();
        logs.stats_of(b"a").unwrap().ungated().first
    };
    assert_eq!([first(7), first(8), first(9), first(2_000_006)], [1, 3, 4, 5]);
}

/// Who appends fast appends more than one step trims: the caller is told to go on.
#[test]
fn retention_goes_on_until_logs_have_what_they_are_set_to_keep() {
    let logs = open(&region());
    let mut writer = writer(&logs, 0);
    for name in ["a", "b", "c"] {
        for _ in 0..10 {
            let payloads = [Source::Bytes(b"x"); 1000];
            logs.append(&mut writer, name.as_bytes(), &payloads, 1).unwrap().ungated();
            writer.commit_now().unwrap();
        }
    }
    let settings = Settings { retain_entries: 10, ..Default::default() };
    for name in [b"a", b"c"] {
        logs.set_settings(&mut writer, name, settings, 1).unwrap().ungated();
    }
    let (mut steps, mut trimmed) = (0, 0);
    loop {
        let done = logs.retain(&mut writer, 0).unwrap();
        writer.commit_now().unwrap();
        (steps, trimmed) = (steps + 1, trimmed + done.trimmed);
        if !done.has_more {
            break;
        }
    }
    assert_eq!((steps, trimmed), (3, 2 * 9990));
    let first = |name: &[u8]| logs.stats_of(name).unwrap().ungated().first;
    assert_eq!([first(b"a"), first(b"b"), first(b"c")], [9990, 0, 9990]);
    assert_eq!(logs.retain(&mut writer, 0).unwrap(), Retained::default());
}

#[test]
fn a_log_keeps_its_bytes_whatever_comes_in_the_place_of_what_it_has_trimmed() {
    const KEPT: u64 = 20;
    const OTHERS: u64 = 60;
    let media = region();
    let logs = open(&media);
    let (mut writer, mut compactor) = (writer(&logs, 0), Compactor::new(Arc::clone(logs.heap())));
    let settings = Settings { retain_bytes: KEPT * 100, ..Default::default() };
    append(&logs, &mut writer, "a", &[1; 100]);
    logs.set_settings(&mut writer, b"a", settings, 1).unwrap().ungated();
    for at in 1..1000_u64 {
        append(&logs, &mut writer, "a", &[1; 100]);
        // Others, which are trimmed at once, so that slabs become empty.
        for _ in 0..OTHERS {
            append(&logs, &mut writer, "b", b"other");
        }
        writer.commit_now().unwrap();
        logs.retain(&mut writer, 0).unwrap();
        logs.trim(&mut writer, b"b", at * OTHERS, 1).unwrap().ungated();
        writer.commit_now().unwrap();
        logs.sweep(usize::MAX);
        if compactor.step(&logs, CompactGoal::DENSE, 1 << 20).unwrap().freed_slabs > 0 {
            fill_and_empty(&logs, &mut writer);
        }
        let stats = logs.stats_of(b"a").unwrap().ungated();
        assert_eq!(stats.first, (at + 1).saturating_sub(KEPT), "after {at}");
    }
}

/// Has bytes of an entry be wherever there is space, and frees that.
fn fill_and_empty(logs: &Logs, writer: &mut Writer) {
    let entry = vec![255; 1 << 20];
    while logs.append(writer, b"full", &[Source::Bytes(&entry)], 1).is_ok() {
        writer.commit_now().unwrap();
    }
    let next = logs.stats_of(b"full").unwrap().ungated().next;
    logs.trim(writer, b"full", next, 1).unwrap().ungated();
    writer.commit_now().unwrap();
    logs.sweep(usize::MAX);
}

#[test]
fn an_entry_that_cannot_be_read_goes_with_the_next_one() {
    let media = region();
    let logs = open(&media);
    let mut writer = writer(&logs, 0);
    for at in 0..6_u64 {
        logs.append(&mut writer, b"a", &[Source::Bytes(&[1; 100])], at * 1_000_000).unwrap().ungated();
    }
    writer.commit_now().unwrap();
    let slots: Vec<_> = (0..6).map(|at| logs.get(b"a", at).unwrap().ungated().slot).collect();
    logs.heap().mark_slabs(1).unwrap();
    for at in [0, 3] {
        // Two bits of a record cannot be corrected.
        media.damage(slots[at].off() + 41, 0x81);
    }
    let (logs, found) = LogRecovery::run(Arc::clone(&media) as Arc<dyn Media>).unwrap();
    assert_eq!((found.entries, found.damaged), (6, 2), "{found:?}");
    let mut writer = self::writer(&logs, 0);
    let settings = Settings { retain_ms: 5, ..Default::default() };
    logs.set_settings(&mut writer, b"a", settings, 1).unwrap().ungated();
    for (now_ms, first) in [(6, 0), (7, 2), (8, 3), (9, 3), (10, 5)] {
        logs.retain(&mut writer, now_ms).unwrap();
        writer.commit_now().unwrap();
        assert_eq!(logs.stats_of(b"a").unwrap().ungated().first, first, "at {now_ms}");
    }
}

#[test]
fn an_entry_behind_one_that_was_lost_never_was() {
    let media = region();
    let logs = open(&media);
    let (mut one, mut other) = (writer(&logs, 0), writer(&logs, 1));
    append(&logs, &mut one, "a", b"0");
    one.commit_now().unwrap();
    append(&logs, &mut one, "a", b"lost");
    let behind = logs.append(&mut other, b"a", &[Source::Bytes(b"behind")], 1).unwrap();
    other.commit_now().unwrap();
    assert!(behind.if_durable(logs.heap()).is_err(), "the result depends on the other writer");
    assert_eq!(all(&logs, "a").unwrap().1.len(), 1, "the entry is not read before");
    let (media, logs) = crash(&media);
    assert_eq!(all(&logs, "a").unwrap().1, [b"0"]);
    // A new entry takes the offset of the lost one. The old entry behind it must not come back.
    let mut writer = writer(&logs, 0);
    assert_eq!(append(&logs, &mut writer, "a", b"1"), 1);
    writer.commit_now().unwrap();
    let (media, logs) = crash(&media);
    assert_eq!(all(&logs, "a").unwrap().1, [b"0", b"1"]);
    let (_, logs) = crash(&media);
    assert_eq!(append(&logs, &mut common::writer(&logs, 0), "a", b"2"), 2);
}

#[test]
fn what_was_void_stays_void_whoever_writes_the_next_head() {
    let media = region();
    let logs = open(&media);
    let (mut lost, mut kept) = (writer(&logs, 0), writer(&logs, 1));
    append(&logs, &mut kept, "log", b"first");
    kept.commit_now().unwrap();
    append(&logs, &mut lost, "log", b"lost");
    for (offset, void) in (2..).zip(["void", "void, too"]) {
        assert_eq!(append(&logs, &mut kept, "log", void.as_bytes()), offset);
    }
    kept.commit_now().unwrap();

    let (media, logs) = crash(&media);
    assert_eq!(all(&logs, "log").unwrap(), (0, vec![b"first".to_vec()]));
    let (mut lost, mut kept) = (writer(&logs, 0), writer(&logs, 1));
    // The head that says what is void is in a batch of another writer than the next entry: that must not be lost alone.
    assert_eq!(logs.trim(&mut lost, b"log", 1, 1).unwrap().ungated(), 1);
    let refused = logs.append(&mut kept, b"log", &[Source::Bytes(b"next")], 1);
    assert!(matches!(refused, Err(WalError::Wait(Until::Ticket(_)))), "{refused:?}");
    lost.commit_now().unwrap();
    assert_eq!(append(&logs, &mut kept, "log", b"next"), 1);
    kept.commit_now().unwrap();
    let (_, logs) = crash(&media);
    assert_eq!(all(&logs, "log").unwrap(), (1, vec![b"next".to_vec()]));
}

#[test]
fn watchers_are_notified_when_a_log_grows_by_any_writer() {
    let logs = open(&region());
    let (mut one, mut other) = (writer(&logs, 0), writer(&logs, 1));
    append(&logs, &mut one, "a", b"0");
    one.commit_now().unwrap();
    assert_eq!(logs.after_commit(0), 0, "nobody waits");
    assert!(logs.watch(b"a", 0, 5).unwrap(), "the entry is durable already");
    assert!(!logs.watch(b"a", 1, 5).unwrap());
    append(&logs, &mut one, "a", b"1");
    append(&logs, &mut other, "a", b"2");
    other.commit_now().unwrap();
    assert_eq!(logs.after_commit(1), 1 << 5);
    assert!(!logs.watch(b"a", 1, 5).unwrap(), "the entry in front is not durable");
    one.commit_now().unwrap();
    assert_eq!(logs.after_commit(0), 1 << 5);
    assert!(logs.watch(b"a", 2, 5).unwrap());
}

#[test]
fn compaction_moves_entries_and_keeps_their_values() {
    let media = region();
    let logs = open(&media);
    let mut writer = writer(&logs, 0);
    let value = |at: u64| vec![at as u8; 3000];
    for at in 0..1000 {
        append(&logs, &mut writer, "a", &value(at));
        append(&logs, &mut writer, if at % 4 == 0 { "keep" } else { "drop" }, &value(at));
    }
    logs.commit_position(&mut writer, b"a", b"c", 0, 1).unwrap().ungated();
    writer.commit_now().unwrap();
    logs.delete(&mut writer, b"drop", 1).unwrap();
    logs.trim(&mut writer, b"a", 900, 1).unwrap().ungated();
    writer.commit_now().unwrap();
    drop(writer);
    logs.sweep(usize::MAX);
    let mut compactor = Compactor::new(Arc::clone(logs.heap()));
    let goal = CompactGoal::DENSE;
    let mut moved = 0;
    for _ in 0..200 {
        moved += compactor.step(&logs, goal, 1 << 20).unwrap().moved_records;
    }
    assert!(moved > 100, "{moved}");
    drop(compactor);
    let check = |logs: &Logs| {
        let (first, entries) = all(logs, "a").unwrap();
        assert_eq!((first, entries.len()), (900, 100));
        assert!(entries.iter().zip(900..).all(|(entry, at)| *entry == value(at)));
        let kept = all(logs, "keep").unwrap().1;
        assert!(kept.len() == 250 && kept.iter().zip(0..).all(|(entry, at)| *entry == value(at * 4)));
        assert_eq!(logs.position(b"a", b"c").unwrap().ungated(), 0);
        assert!(matches!(logs.read(b"drop", 0, ALL), Err(WalError::NoLog)));
    };
    check(&logs);
    check(&crash(&media).1);
}

#[test]
fn full_regions_refuse_appends_and_still_trim() {
    let logs = open(&region());
    let mut writer = writer(&logs, 0);
    let full = (0..).find_map(|_| logs.append(&mut writer, b"a", &[Source::Bytes(&[5; 500_000])], 1).err());
    assert!(matches!(full, Some(WalError::Heap(HeapError::Full))), "{full:?}");
    writer.commit_now().unwrap();
    assert!(matches!(logs.append(&mut writer, b"b", &[Source::Bytes(b"x")], 1), Err(WalError::Heap(_))));
    let next = logs.stats_of(b"a").unwrap().ungated().next;
    logs.trim(&mut writer, b"a", next, 1).unwrap().ungated();
    writer.commit_now().unwrap();
    logs.sweep(usize::MAX);
    assert_eq!(append(&logs, &mut writer, "a", &[6; 500_000]), next);
}

#[test]
fn damaged_entries_are_reported_and_never_served() {
    let media = region();
    let logs = open(&media);
    let mut writer = writer(&logs, 0);
    for at in 0..4 {
        append(&logs, &mut writer, "a", &[at; 900]);
    }
    writer.commit_now().unwrap();
    let slots: Vec<_> = (0..4).map(|at| logs.get(b"a", at).unwrap().ungated().slot).collect();
    logs.heap().mark_slabs(1).unwrap();
    let extent = logs.get(b"a", 1).unwrap().ungated().extents()[0];
    media.damage(extent.off + 5, 0x10);
    assert!(matches!(logs.get(b"a", 1), Err(WalError::Damaged { .. })));
    assert!(matches!(logs.read(b"a", 0, ALL).unwrap().ungated().entries[1].1, Err(WalError::Damaged { .. })));
    // Two bits of a record cannot be corrected.
    media.damage(slots[2].off() + 41, 0x81);
    let (logs, found) = LogRecovery::run(Arc::clone(&media) as Arc<dyn Media>).unwrap();
    assert_eq!((found.entries, found.damaged), (4, 1), "{found:?}");
    for (offset, whole) in [(0, true), (1, false), (2, false), (3, true)] {
        assert_eq!(logs.get(b"a", offset).is_ok(), whole, "{offset}");
    }
    let mut writer = self::writer(&logs, 0);
    assert_eq!(append(&logs, &mut writer, "a", b"x"), 4);
    logs.trim(&mut writer, b"a", 3, 1).unwrap().ungated();
    writer.commit_now().unwrap();
    writer.commit_now().unwrap();
    let (_, logs) = crash(&media);
    assert_eq!(all(&logs, "a").unwrap().0, 3, "the damaged entries are trimmed");
}

/// They may have been in a slab of which both words in the run table are damaged.
#[test]
fn entries_behind_those_of_a_lost_slab_stay() {
    let media = region();
    let logs = open(&media);
    let mut writers = [writer(&logs, 0), writer(&logs, 1)];
    for (at, by) in [0, 1, 1, 0].into_iter().enumerate() {
        assert_eq!(append(&logs, &mut writers[by], "a", &[at as u8]), at as u64);
        writers[by].commit_now().unwrap();
    }
    logs.heap().mark_slabs(1).unwrap();
    let run = logs.get(b"a", 1).unwrap().ungated().slot.run();
    run.table_words().iter().for_each(|word| media.damage(word + 5, 16));
    let (logs, found) = LogRecovery::run(Arc::clone(&media) as Arc<dyn Media>).unwrap();
    assert_eq!(found.entries, 4, "{found:?}");
    for (offset, whole) in [(0, true), (1, false), (2, false), (3, true)] {
        assert_eq!(logs.get(b"a", offset).is_ok(), whole, "{offset}");
    }
}

/// An older position in the place of one that cannot be read would have the consumer read again what it has read.
#[test]
fn a_position_that_cannot_be_read_is_not_served_until_there_is_a_new_one() {
    let media = region();
    let logs = open(&media);
    let mut writer = writer(&logs, 0);
    for at in 0..9 {
        append(&logs, &mut writer, "a", &[at; 100]);
    }
    writer.commit_now().unwrap();
    let entry = logs.get(b"a", 8).unwrap().ungated().slot;
    for (consumer, offset) in [(&b"c"[..], 2), (b"d", 5), (b"c", 7)] {
        logs.commit_position(&mut writer, b"a", consumer, offset, 1).unwrap().ungated();
    }
    writer.commit_now().unwrap();
    logs.heap().mark_slabs(1).unwrap();
    let newest = SlotId::new(entry.run(), entry.index() + 3);
    media.damage(newest.off() + 41, 0x81);
    let reopen = || LogRecovery::run(Arc::clone(&media) as Arc<dyn Media>).unwrap();
    for is_deleted in [false, true] {
        let media = SimMedia::restart(&media.crash_state().durable(), SimOptions::default());
        let reopen = || LogRecovery::run(Arc::clone(&media) as Arc<dyn Media>).unwrap();
        let (logs, found) = reopen();
        assert_eq!(found.notes.len(), 1, "{found:?}");
        let damaged =
            |done: WalError| matches!(done, WalError::DamagedPosition { consumer, .. } if &*consumer == "c");
        assert!(damaged(logs.position(b"a", b"c").unwrap_err()));
        assert!(damaged(logs.positions(b"a").unwrap_err()));
        assert_eq!(logs.position(b"a", b"d").unwrap().ungated(), 5);
        let mut writer = self::writer(&logs, 1);
        if is_deleted {
            logs.delete_position(&mut writer, b"a", b"c", 1).unwrap().unwrap().ungated();
        } else {
            logs.commit_position(&mut writer, b"a", b"c", 8, 1).unwrap().ungated();
        }
        writer.commit_now().unwrap();
        let (logs, found) = reopen();
        assert_eq!(found.notes, Vec::<String>::new());
        let left = logs.positions(b"a").unwrap().ungated();
        let c = (!is_deleted).then(|| ("c".to_owned(), 8));
        assert_eq!(left, c.into_iter().chain([("d".to_owned(), 5)]).collect::<Vec<_>>());
    }
    let (logs, _) = reopen();
    let mut writer = self::writer(&logs, 1);
    logs.delete(&mut writer, b"a", 1).unwrap().unwrap().ungated();
    writer.commit_now().unwrap();
    assert_eq!(reopen().1.notes, Vec::<String>::new(), "nobody needs it any more");
}

/// A log was deleted, and what is left of it is one entry that cannot be read, but named: the number of the log is not
/// free.
#[test]
fn no_log_gets_the_number_of_one_of_which_an_unreadable_entry_is_left() {
    let media = region();
    let logs = open(&media);
    let mut writer = writer(&logs, 0);
    for at in 0..3 {
        append(&logs, &mut writer, "a", &[at; 100]);
    }
    writer.commit_now().unwrap();
    let slots: Vec<_> = (0..3).map(|at| logs.get(b"a", at).unwrap().ungated().slot).collect();
    logs.heap().mark_slabs(1).unwrap();
    let head = SlotId::new(slots[0].run(), slots[0].index() - 1);
    for gone in [head, slots[0], slots[1]] {
        logs.heap().overwrite_with_tombstone(gone).unwrap();
    }
    media.damage(slots[2].off() + 41, 0x81);
    let reopen = || LogRecovery::run(Arc::clone(&media) as Arc<dyn Media>).unwrap();
    let (logs, found) = reopen();
    assert_eq!(found.logs, 0, "{found:?}");
    let mut writer = self::writer(&logs, 1);
    for at in 0..2 {
        append(&logs, &mut writer, "b", &[at; 100]);
    }
    writer.commit_now().unwrap();
    let (logs, _) = reopen();
    assert_eq!(logs.stats_of(b"b").unwrap().ungated().next, 2, "the third entry is nobody's");
    assert_eq!(all(&logs, "b").unwrap().1.len(), 2);
}

/// The same of a position.
#[test]
fn no_log_gets_the_number_of_one_of_which_an_unreadable_position_is_left() {
    let media = region();
    let logs = open(&media);
    let mut writer = writer(&logs, 0);
    append(&logs, &mut writer, "stays", b"x");
    append(&logs, &mut writer, "a", &[1; 100]);
    logs.commit_position(&mut writer, b"a", b"c", 0, 1).unwrap().ungated();
    writer.commit_now().unwrap();
    let entry = logs.get(b"a", 0).unwrap().ungated().slot;
    let near = |by: i32| SlotId::new(entry.run(), entry.index().checked_add_signed(by).unwrap());
    logs.heap().mark_slabs(1).unwrap();
    for gone in [near(-1), entry] {
        logs.heap().overwrite_with_tombstone(gone).unwrap();
    }
    media.damage(near(1).off() + 41, 0x81);
    let reopen = || LogRecovery::run(Arc::clone(&media) as Arc<dyn Media>).unwrap();
    let (logs, found) = reopen();
    assert_eq!(found.logs, 1, "{found:?}");
    let mut writer = self::writer(&logs, 1);
    append(&logs, &mut writer, "b", &[2; 100]);
    writer.commit_now().unwrap();
    let (logs, _) = reopen();
    assert!(matches!(logs.position(b"b", b"c"), Err(WalError::NoConsumer)));
}

#[test]
fn names_and_counts_out_of_bounds_are_refused() {
    let logs = open(&region());
    let mut writer = writer(&logs, 0);
    for bad in [&b""[..], b"a/b", b"..", &[b'x'; 49]] {
        assert!(matches!(logs.append(&mut writer, bad, &[Source::None], 1), Err(WalError::BadName { .. })));
    }
    assert!(matches!(logs.append(&mut writer, b"a", &[], 1), Err(WalError::BadCount { .. })));
    let many = vec![Source::None; 9000];
    assert!(matches!(logs.append(&mut writer, b"a", &many, 1), Err(WalError::BadCount { .. })));
    assert!(matches!(logs.trim(&mut writer, b"a", 0, 1), Err(WalError::NoLog)));
    assert!(matches!(logs.watch(b"a", 0, 0), Err(WalError::NoLog)));
}

#[test]
fn a_region_with_records_of_other_owners_is_refused_and_not_changed() {
    let media = region();
    let opened =
        landfall_heap::Opening::begin(Arc::clone(&media) as Arc<dyn Media>).unwrap().finish().unwrap();
    let mut writer = Writer::new(Arc::clone(&opened), 0);
    let entry = landfall_heap::Entry {
        kind: landfall_heap::Kind::Put,
        space: 0,
        hash: opened.hash(0, b"key"),
        key: b"key",
        key_at: None,
        value: Source::Bytes(b"value"),
        arrival_ns: 1,
        expiry_ms: 0,
        aux: 0,
    };
    writer.append(&entry).unwrap();
    writer.commit_now().unwrap();
    let before = media.crash_state().durable_image();
    let refused = LogRecovery::run(Arc::clone(&media) as Arc<dyn Media>);
    assert!(matches!(refused, Err(WalError::Heap(HeapError::Foreign { space: 0 }))), "{refused:?}");
    assert!(media.crash_state().durable_image() == before);
}

/// It is no damage: a repair would delete the log.
#[test]
fn a_log_whose_head_is_of_a_newer_release_refuses_the_region() {
    let media = region();
    let logs = open(&media);
    let mut writer = writer(&logs, 0);
    append(&logs, &mut writer, "a", b"x");
    writer.commit_now().unwrap();
    // A tag that this release does not know.
    let value = [&[7_u8][..], &5_u64.to_le_bytes()].concat();
    let entry = landfall_heap::Entry {
        kind: landfall_heap::Kind::Bound,
        space: landfall_heap::spaces::LOG,
        hash: logs.heap().hash(landfall_heap::spaces::LOG, b"a"),
        key: b"a",
        key_at: None,
        value: Source::Bytes(&value),
        arrival_ns: 1,
        expiry_ms: 0,
        aux: 1,
    };
    writer.append(&entry).unwrap();
    writer.commit_now().unwrap();
    let image = media.crash_state().durable_image();
    let newer = || SimMedia::from_image(image.clone(), SimOptions::default()) as Arc<dyn Media>;
    let refused = LogRecovery::run(newer());
    assert!(matches!(refused, Err(WalError::Heap(HeapError::NewerRecord { .. }))), "{refused:?}");
    let checked = RegionCheck::run(newer(), vec![Arc::new(LogRecovery::default()) as _]);
    assert!(matches!(checked, Err(HeapError::NewerRecord { .. })), "{checked:?}");
}

/// An entry has another record where the compactor has moved its data: an old one that is damaged says nothing of the entry.
#[test]
fn an_entry_of_which_an_old_record_is_damaged_is_neither_lost_nor_does_it_end_a_check() {
    let media = region();
    let logs = open(&media);
    let mut writer = writer(&logs, 0);
    // Of each ten, nine go, so that the others are moved.
    for at in 0..2000_u64 {
        append(&logs, &mut writer, if at % 10 == 0 { "kept" } else { "gone" }, &[at as u8; 9000]);
        if at % 100 == 99 {
            writer.commit_now().unwrap();
            let next = logs.stats_of(b"gone").unwrap().ungated().next;
            logs.trim(&mut writer, b"gone", next, 1).unwrap().ungated();
            writer.commit_now().unwrap();
            logs.sweep(usize::MAX);
        }
    }
    writer.commit_now().unwrap();
    let before: Vec<SlotId> = (0..200).map(|at| logs.get(b"kept", at).unwrap().ungated().slot).collect();
    let mut compactor = Compactor::new(Arc::clone(logs.heap()));
    while !compactor.step(&logs, CompactGoal::DENSE, 1 << 20).unwrap().is_idle {}
    logs.heap().mark_slabs(1).unwrap();
    let moved = |at: &usize| logs.get(b"kept", *at as u64).unwrap().ungated().slot != before[*at];
    let is_there = |at: &usize| logs.heap().record(before[*at]).is_ok();
    let at = (0..200).find(|at| moved(at) && is_there(at)).expect("an old record is left");
    let number = number_of(&logs, before[at]);
    for mask in [0x01, 0x81] {
        let image = media.crash_state().durable_image();
        let media = SimMedia::from_image(image, SimOptions::default());
        media.damage(before[at].off() + 41, mask);
        // One bit is corrected in a copy.
        let tenants = vec![Arc::new(LogRecovery::default()) as Arc<dyn Tenant>];
        let check = RegionCheck::complete(Arc::clone(&media) as Arc<dyn Media>, tenants).expect("it ends");
        assert!(!check.report().is_clean());
        let (logs, _) = LogRecovery::run(Arc::clone(&media) as Arc<dyn Media>).unwrap();
        let mut writer = self::writer(&logs, 1);
        let lost = logs.mark_lost(&mut writer, &[(number, at as u64)]).unwrap();
        assert!(lost.is_empty(), "{lost:?}");
        writer.commit_now().unwrap();
        let (logs, _) = LogRecovery::run(Arc::clone(&media) as Arc<dyn Media>).unwrap();
        assert!(logs.get(b"kept", at as u64).is_ok());
    }
}

/// The number of the log of an entry.
fn number_of(logs: &Logs, slot: SlotId) -> u32 {
    let view = logs.heap().record(slot).unwrap();
    Logs::entry_of(view.space(), &logs.heap().key(&view).unwrap()).expect("an entry").0
}
