//! A batch is durable when its successor has it.

mod common;

use common::{heap, put, reopen, tombstone};
use landfall_heap::{Heap, HeapError, KEY_BYTES_MAX, SlotId, Source, Successor, Writer};
use landfall_media::Media;
use landfall_media::sim::{SimMedia, SimOptions};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

#[derive(Debug, Default)]
struct Node {
    is_early: bool,
    is_done: AtomicBool,
    is_gone: AtomicBool,
    got: Mutex<Vec<Vec<Vec<u8>>>>,
    /// Room that is taken, of `ROOM`.
    taken: AtomicU64,
}

const ROOM: u64 = 2000;

impl Node {
    fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    fn got(&self) -> Vec<Vec<Vec<u8>>> {
        self.got.lock().expect("no panic").clone()
    }
}

impl Successor for Node {
    fn take_room(&self, bytes: u64, _: &mut Option<u64>) -> Result<(), HeapError> {
        if self.taken() + bytes > ROOM {
            return Err(HeapError::Full);
        }
        self.taken.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    fn take_spare_room(&self, bytes: u64) -> bool {
        self.take_room(bytes, &mut None).is_ok()
    }

    fn give_room_back(&self, bytes: u64) {
        self.taken.fetch_sub(bytes, Ordering::Relaxed);
    }

    fn sends_early(&self) -> bool {
        self.is_early
    }

    fn send(&self, heap: &Heap, records: &[SlotId]) {
        let key = |slot: &SlotId| heap.key(&heap.record(*slot).expect("a record")).expect("its key").to_vec();
        self.got.lock().expect("no panic").push(records.iter().map(key).collect());
    }

    fn is_done(&self) -> bool {
        self.is_done.load(Ordering::Relaxed)
    }

    fn wait(&self) -> Result<(), HeapError> {
        if self.is_gone.load(Ordering::Relaxed) { Err(HeapError::Alone { node: "b".into() }) } else { Ok(()) }
    }
}

fn writer(heap: &Arc<Heap>, node: &Arc<Node>) -> Writer {
    let mut writer = Writer::new(Arc::clone(heap), 0);
    writer.set_successor(Arc::clone(node) as _);
    writer
}

fn append(writer: &mut Writer, key: &[u8]) -> SlotId {
    let heap = Arc::clone(writer.heap());
    writer.append(&put(&heap, key, Source::Bytes(b"value"))).expect("room")
}

#[test]
fn a_batch_is_sent_when_it_is_durable_here_and_is_durable_when_the_successor_has_it() {
    let (media, heap) = heap(SimOptions::default());
    let node = Arc::new(Node::default());
    let mut writer = writer(&heap, &node);
    let slot = append(&mut writer, b"a");
    append(&mut writer, b"b");
    let mut dirty = writer.begin_commit().expect("work");
    assert!(node.got().is_empty(), "it may still be lost here");
    let fenced = media.fence(&mut dirty, landfall_media::Site::Commit);
    fenced.expect("fences");
    writer.send_on();
    assert_eq!(node.got(), [[b"a".to_vec(), b"b".to_vec()]]);
    assert!(!writer.is_sent_on() && heap.pending(slot).is_some());
    node.is_done.store(true, Ordering::Relaxed);
    assert!(writer.is_sent_on());
    writer.finish_commit(Ok(())).expect("completes");
    assert!(heap.pending(slot).is_none());
    assert_eq!(node.got().len(), 1, "sent once");
}

#[test]
fn a_node_in_the_middle_sends_while_it_makes_durable() {
    let (_, heap) = heap(SimOptions::default());
    let node = Arc::new(Node { is_early: true, ..Node::default() });
    let mut writer = writer(&heap, &node);
    append(&mut writer, b"a");
    let _dirty = writer.begin_commit().expect("work");
    assert_eq!(node.got(), [[b"a".to_vec()]]);
}

#[test]
fn a_transaction_is_sent_whole_and_only_once_it_counts() {
    let (_, heap) = heap(SimOptions::default());
    let node = Arc::new(Node::default());
    let mut writer = writer(&heap, &node);
    append(&mut writer, b"before");
    let mut transaction = writer.begin_transaction(0).expect("begins");
    for key in [b"x", b"y"] {
        writer.append_to(&mut transaction, &put(&heap, key, Source::Bytes(b"v"))).expect("room");
    }
    writer.commit(transaction).expect("commits");
    let mut given_up = writer.begin_transaction(0).expect("begins");
    writer.append_to(&mut given_up, &put(&heap, b"z", Source::Bytes(b"v"))).expect("room");
    drop(given_up);
    append(&mut writer, b"after");
    writer.commit_now().expect("commits");
    let got = node.got();
    assert_eq!(got, [vec![b"before".to_vec()], vec![b"x".to_vec(), b"y".to_vec()], vec![b"after".to_vec()]]);
}

#[test]
fn nothing_is_durable_behind_a_batch_that_the_successor_never_gets() {
    let (_, heap) = heap(SimOptions::default());
    let node = Arc::new(Node::default());
    let mut writer = writer(&heap, &node);
    node.is_gone.store(true, Ordering::Relaxed);
    let slot = append(&mut writer, b"a");
    assert!(matches!(writer.commit_now(), Err(HeapError::Alone { .. })));
    assert!(heap.pending(slot).is_some());
    assert!(
        writer.append(&put(&heap, b"b", Source::Bytes(b"v"))).is_err(),
        "it would seem to cover the first one"
    );
    assert!(writer.begin_commit().is_none());
}

#[test]
fn values_take_room_at_the_successor_until_their_batch_is_complete_and_deletes_need_none() {
    let (_, heap) = heap(SimOptions::default());
    let node = Arc::new(Node { is_done: AtomicBool::new(true), ..Node::default() });
    let mut writer = writer(&heap, &node);
    append(&mut writer, b"a");
    let one = node.taken();
    assert!(one > 128);
    let long = [7; 5000];
    let refused = writer.append(&put(&heap, b"long", Source::Bytes(&long)));
    assert!(matches!(refused, Err(HeapError::Full)), "{refused:?}");
    let group = [put(&heap, b"b", Source::Bytes(b"v")), put(&heap, b"long", Source::Bytes(&long))];
    assert!(writer.append_group(&group).is_err());
    assert_eq!(node.taken(), one, "what was not written has taken nothing");
    writer
        .append_group(&[put(&heap, b"b", Source::Bytes(b"v")), put(&heap, b"c", Source::Bytes(b"v"))])
        .expect("room");
    writer.append(&tombstone(&heap, b"b")).expect("no room is needed");
    assert!(node.taken() > 2 * one);
    writer.commit_now().expect("completes");
    assert_eq!(node.taken(), 0);
}

/// Whatever executes its records after it has appended them, as files do, may refuse any number of them in a row.
#[test]
fn records_that_are_taken_back_give_their_room_back() {
    let (_, heap) = heap(SimOptions::default());
    let node = Arc::new(Node { is_done: AtomicBool::new(true), ..Node::default() });
    let mut writer = writer(&heap, &node);
    append(&mut writer, b"a");
    let one = node.taken();
    for _ in 0..ROOM {
        let group = [put(&heap, b"b", Source::Bytes(b"v")), put(&heap, b"c", Source::Bytes(b"v"))];
        let slots = writer.append_group(&group).expect("room");
        writer.take_back(&slots);
        assert_eq!(node.taken(), one);
        // No room was taken for it.
        let slot = writer.append(&tombstone(&heap, b"a")).expect("room");
        writer.take_back(&[slot]);
        assert_eq!(node.taken(), one);
    }
    writer.commit_now().expect("completes");
    assert_eq!(node.taken(), 0);
}

#[test]
fn a_transaction_takes_room_as_a_whole_or_none() {
    let (_, heap) = heap(SimOptions::default());
    let node = Arc::new(Node { is_done: AtomicBool::new(true), ..Node::default() });
    let mut writer = writer(&heap, &node);
    let keys: Vec<Vec<u8>> = (0..12_u32).map(|number| number.to_le_bytes().to_vec()).collect();
    let entries = |count: usize| keys[..count].iter().map(|key| put(&heap, key, Source::Bytes(b"v")));
    let mut transaction = writer.begin_transaction(0).expect("begins");
    assert!(writer.take_room_for(&mut transaction, entries(12)).is_err());
    assert_eq!(node.taken(), 0);
    writer.take_room_for(&mut transaction, entries(8)).expect("room");
    entries(8).for_each(|entry| assert!(writer.append_to(&mut transaction, &entry).is_ok()));
    let taken = node.taken();
    assert!(taken > 8 * 128);
    drop(transaction);
    assert_eq!(node.taken(), 0, "it was given up");
    let mut transaction = writer.begin_transaction(0).expect("begins");
    writer.take_room_for(&mut transaction, entries(8)).expect("room");
    entries(8).for_each(|entry| assert!(writer.append_to(&mut transaction, &entry).is_ok()));
    assert_eq!(node.taken(), taken);
    writer.commit(transaction).expect("completes");
    assert_eq!(node.taken(), 0);
}

#[test]
fn room_that_was_taken_ahead_is_used_by_what_is_appended_and_the_rest_is_given_back() {
    let (_, heap) = heap(SimOptions::default());
    let node = Arc::new(Node { is_done: AtomicBool::new(true), ..Node::default() });
    let mut writer = writer(&heap, &node);
    assert!(writer.take_spare_room((20, 1, 5)).is_none() && node.taken() == 0);
    let room = writer.take_spare_room((2, 1, 10)).expect("room");
    let taken = node.taken();
    assert_eq!(room.bytes(), taken);
    // Others have the rest.
    node.taken.store(ROOM, Ordering::Relaxed);
    assert!(writer.append(&put(&heap, b"a", Source::Bytes(b"value"))).is_err());
    writer.lend_room(room);
    let slots = [append(&mut writer, b"a"), append(&mut writer, b"b")];
    assert_eq!(node.taken(), ROOM, "nothing more was taken");
    assert!(writer.append(&put(&heap, b"c", Source::Bytes(b"value"))).is_err(), "it is used up");
    assert_eq!(writer.take_lent_room().bytes(), 0);
    writer.commit_now().expect("completes");
    assert_eq!(node.taken(), ROOM - taken, "the batch has given it back");
    assert!(slots.iter().all(|slot| heap.pending(*slot).is_none()));
    let mut room = writer.take_spare_room((1, 1, 5)).expect("room");
    room.add(writer.take_spare_room((1, 1, 5)).expect("room"));
    assert_eq!((room.bytes(), node.taken()), (taken, ROOM));
    room.keep_at_most(taken / 2);
    assert_eq!(node.taken(), ROOM - taken / 2);
    drop(room);
    assert_eq!(node.taken(), ROOM - taken);
}

/// What is appended under a loan may be tried again, any number of times, when it is taken back.
#[test]
fn lent_room_that_is_not_used_after_all_stays_lent() {
    let (_, heap) = heap(SimOptions::default());
    let node = Arc::new(Node { is_done: AtomicBool::new(true), ..Node::default() });
    let mut writer = writer(&heap, &node);
    let room = writer.take_spare_room((1, 1, 5)).expect("room");
    let lent = room.bytes();
    node.taken.store(ROOM, Ordering::Relaxed);
    writer.lend_room(room);
    for _ in 0..3 {
        let slot = append(&mut writer, b"a");
        writer.take_back(&[slot]);
    }
    assert_eq!(node.taken(), ROOM, "nobody else gets it");
    assert_eq!(writer.take_lent_room().bytes(), lent);
}

/// Deletes, too: the successor would refuse the message with all of them for ever.
#[test]
fn a_transaction_whose_keys_the_successor_would_not_take_is_refused_before_it_is_appended() {
    let (_, heap) = heap(SimOptions::default());
    let node = Arc::new(Node { is_done: AtomicBool::new(true), ..Node::default() });
    let mut writer = writer(&heap, &node);
    let key = vec![b'k'; KEY_BYTES_MAX];
    let deletes = |count: usize| std::iter::repeat_n(tombstone(&heap, &key), count);
    let mut transaction = writer.begin_transaction(0).expect("begins");
    let refused = writer.take_room_for(&mut transaction, deletes(16_385));
    assert!(matches!(refused, Err(HeapError::TooLarge { max: 0x4000_0000, .. })), "{refused:?}");
    writer.take_room_for(&mut transaction, deletes(16_384)).expect("1 GiB");
}

#[test]
fn a_full_slab_waits_for_the_batch_that_the_successor_has_not_acknowledged() {
    let (media, heap) = heap(SimOptions::default());
    let node = Arc::new(Node::default());
    let mut writer = writer(&heap, &node);
    append(&mut writer, b"a");
    let mut dirty = writer.begin_commit().expect("work");
    media.fence(&mut dirty, landfall_media::Site::Commit).expect("fences");
    writer.send_on();
    let entry = tombstone(&heap, b"gone");
    let fill = |writer: &mut Writer| (0..10_000).find_map(|_| writer.append(&entry).err());
    let refused = fill(&mut writer);
    assert!(matches!(refused, Some(HeapError::Busy)), "{refused:?}");
    node.is_done.store(true, Ordering::Relaxed);
    writer.finish_commit(Ok(())).expect("completes");
    assert!(matches!(writer.append(&entry), Err(HeapError::Busy)), "a batch that the successor has not got");
    writer.commit_now().expect("completes");
    writer.append(&entry).expect("a new slab");
}

#[test]
fn a_batch_goes_on_in_the_next_slab_once_what_it_has_in_the_full_one_is_durable_here() {
    let (media, heap) = heap(SimOptions::default());
    let node = Arc::new(Node::default());
    let mut writer = writer(&heap, &node);
    let key = |at: u32| at.to_le_bytes();
    let append = |writer: &mut Writer, at: u32| writer.append(&tombstone(&heap, &key(at)));
    let fence = |mut dirty| media.fence(&mut dirty, landfall_media::Site::Commit).expect("fences");
    let first = append(&mut writer, 0).expect("room");
    fence(writer.begin_commit().expect("work"));
    writer.send_on();
    // The successor has not got the first batch. The second one fills the slab, and two more.
    let (mut slots, mut slabs) = (vec![first], 1);
    while slabs < 4 {
        match append(&mut writer, slots.len() as u32) {
            Ok(slot) => {
                slabs += usize::from(slot.run() != slots[slots.len() - 1].run());
                slots.push(slot);
            }
            Err(error) => {
                assert!(matches!(error, HeapError::Busy), "{error}");
                let filled = writer.filled();
                let dirty = writer.begin_persist().expect("work");
                assert!(append(&mut writer, u32::MAX).is_err(), "the fence has not returned");
                fence(dirty);
                writer.note_persisted(filled);
            }
        }
    }
    assert_eq!(node.got().len(), 1);
    assert!(slots.iter().all(|slot| heap.pending(*slot).is_some()));
    // What was left behind is durable here, and everything before it.
    let left = SimMedia::restart(&media.crash_state().durable(), SimOptions::default());
    let (survivor, _) = reopen(&left);
    for (at, slot) in slots[..slots.len() - 1].iter().enumerate() {
        let record = survivor.record(*slot).expect("a record");
        assert_eq!(&*survivor.key(&record).expect("its key"), key(at as u32));
    }
    node.is_done.store(true, Ordering::Relaxed);
    writer.finish_commit(Ok(())).expect("completes");
    assert!(heap.pending(first).is_none() && slots[1..].iter().all(|slot| heap.pending(*slot).is_some()));
    writer.commit_now().expect("commits");
    assert!(slots.iter().all(|slot| heap.pending(*slot).is_none()));
    let second: Vec<Vec<u8>> = (1..slots.len() as u32).map(|at| key(at).to_vec()).collect();
    assert_eq!(node.got()[1], second);
    drop(writer);
    // A writer that ends gives every slab back.
    let mut next = Writer::new(Arc::clone(&heap), 1);
    assert!(append(&mut next, 0).is_ok());
}
