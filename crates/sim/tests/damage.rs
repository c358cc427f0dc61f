//! Damage at rest: flipped bits in every part of a region. The damage is corrected, or a read of the damaged key
//! returns an error. Every other key returns its value, and no read ever returns a wrong value.

mod common;

use common::{create, set, try_reopen};
use landfall_heap::{KeyPlace, RunId, SlotId, ValuePlace, Writer};
use landfall_kv::{Engine, KvError, Recovered};
use landfall_media::sim::{SimMedia, SimOptions};
use landfall_media::{Extent, Media};
use std::collections::BTreeMap;
use std::sync::Arc;

const RUNS: u64 = 32;
/// Offsets of the superblock copies and their size, from `docs/format/region.md`.
const SUPERBLOCKS: [u64; 2] = [0, 32 << 10];
const SUPERBLOCK_SIZE: u64 = 128;
/// Offsets of the two run-table copies.
const TABLES: [u64; 2] = [64 << 10, 128 << 10];

const INLINE: &[u8] = b"inline";
const FRAMED: &[u8] = b"framed";
const LISTED: &[u8] = b"listed";
const PIECES: &[u8] = b"pieces";

/// A cleanly closed region with a key of each shape.
struct Region {
    media: Arc<SimMedia>,
    keys: BTreeMap<Vec<u8>, Vec<u8>>,
    slots: BTreeMap<Vec<u8>, SlotId>,
    long_key: Vec<u8>,
}

impl Region {
    fn new() -> Self {
        let (media, engine) = create(RUNS, SimOptions::default());
        let mut writer = Writer::new(Arc::clone(engine.heap()), 0);
        let long_key = vec![b'k'; 3000];
        let bytes = |len: u32| (0..len).map(|at| (at % 251) as u8).collect();
        let shapes: [(&[u8], Vec<u8>); 5] = [
            (INLINE, vec![7; 30]),
            (FRAMED, vec![8; 5000]),
            (&long_key, vec![9; 40]),
            (LISTED, bytes(110_000)),
            (PIECES, bytes(3_300_000)),
        ];
        // An older version of each key, which must never come back.
        for (key, _) in &shapes {
            set(&engine, &mut writer, key, b"older");
        }
        writer.commit_now().expect("commits");
        // Gaps between extents, so that long values need a list of them.
        let slots = shapes.iter().map(|(key, value)| {
            let slot = match *key {
                LISTED => land(&media, &engine, &mut writer, key, value, 10_000),
                PIECES => land(&media, &engine, &mut writer, key, value, 300_000),
                _ => set(&engine, &mut writer, key, value),
            };
            (key.to_vec(), slot)
        });
        let slots = slots.collect();
        writer.commit_now().expect("commits");
        engine.heap().mark_slabs(1).expect("marks");
        drop((writer, engine));
        Self { media, keys: shapes.into_iter().map(|(k, v)| (k.to_vec(), v)).collect(), slots, long_key }
    }

    fn open(&self) -> Result<(Engine, Recovered), KvError> {
        try_reopen(&self.media)
    }

    /// Opens the region, and checks that every key but `damaged` returns its value. Returns the read of `damaged`.
    fn check(&self, damaged: Option<&[u8]>) -> Option<Result<Option<Vec<u8>>, KvError>> {
        let (engine, recovered) = self.open().expect("the region opens");
        for (key, value) in self.keys.iter().filter(|(key, _)| Some(key.as_slice()) != damaged) {
            let found = read(&engine, key)
                .unwrap_or_else(|error| panic!("{error:?} of an undamaged key; {recovered:?}"));
            assert_eq!(found.as_ref(), Some(value), "an undamaged key; {recovered:?}");
        }
        damaged.map(|key| read(&engine, key))
    }

    /// Flips one bit, calls `run`, and flips the bit back.
    fn with_flip<R>(&self, off: u64, bit: u64, run: impl FnOnce() -> R) -> R {
        self.media.damage(off, 1 << bit);
        let done = run();
        self.media.damage(off, 1 << bit);
        done
    }

    /// The record of a key, the extents of its value, its list of extents, and the extent of its key.
    fn places(&self, key: &[u8]) -> (SlotId, Vec<Extent>, Option<Extent>, Option<Extent>) {
        let (engine, _) = self.open().expect("the region opens");
        let slot = self.slots[key];
        let view = engine.heap().record(slot).expect("a record");
        let list = match view.value() {
            ValuePlace::Indirect(list) => Some(list),
            ValuePlace::Pieces(list) => Some(list.at),
            _ => None,
        };
        let key_at = match view.key() {
            KeyPlace::Stored(at) => Some(at),
            KeyPlace::Inline(_) => None,
        };
        (slot, engine.heap().value_extents(slot, &view).expect("extents").to_vec(), list, key_at)
    }
}

fn land(
    media: &SimMedia,
    engine: &Engine,
    writer: &mut Writer,
    key: &[u8],
    value: &[u8],
    extent_len: usize,
) -> SlotId {
    let heap = engine.heap();
    let (mut extents, mut runs) = (Vec::new(), Vec::new());
    for part in value.chunks(900_000) {
        let run = heap.take_landing_run().expect("a free run");
        for (index, piece) in part.chunks(extent_len).enumerate() {
            let at = run + index as u64 * (extent_len as u64 + 1000);
            media.store(at, piece).expect("in bounds");
            extents.push(Extent::new(at, piece.len() as u32));
        }
        runs.push(run);
    }
    extents.iter().for_each(|extent| heap.runs().hold(*extent));
    let value = landfall_heap::Source::Landed { extents: &extents, crc: None };
    let request = landfall_kv::SetRequest { space: 0, key, key_at: None, value, expiry_ms: 0, arrival_ns: 1 };
    let slot = engine.set(writer, &request).expect("there is room").ungated().slot;
    extents.iter().for_each(|extent| heap.runs().release(*extent));
    runs.into_iter().for_each(|run| heap.retire_landing_run(run));
    slot
}

fn read(engine: &Engine, key: &[u8]) -> Result<Option<Vec<u8>>, KvError> {
    Ok(engine.get(0, key, 0)?.ungated().map(|item| item.to_vec()).transpose()?)
}

/// Every `step`-th byte of a range, each with a different bit.
fn bits(start: u64, len: u64, step: usize) -> impl Iterator<Item = (u64, u64)> {
    (start..start + len).step_by(step).enumerate().map(|(count, off)| (off, (count as u64 * 3 + 1) % 8))
}

#[test]
fn a_flipped_bit_in_a_superblock_copy_is_repaired_from_the_other_copy() {
    let region = Region::new();
    for copy in SUPERBLOCKS {
        for (off, bit) in bits(copy, SUPERBLOCK_SIZE, 5) {
            region.media.damage(off, 1 << bit);
            assert!(region.check(None).is_none());
            let other =
                SUPERBLOCKS.map(|at| region.media.bytes(Extent::new(at, 128)).expect("in bounds").to_vec());
            assert_eq!(other[0], other[1], "offset {off}, bit {bit}: the copy was not rewritten");
        }
    }
}

#[test]
fn flipped_bits_in_both_superblock_copies_are_refused_and_nothing_is_changed() {
    let region = Region::new();
    SUPERBLOCKS.iter().for_each(|at| region.media.damage(at + 30, 4));
    let before = region.media.crash_state().durable_image();
    assert!(matches!(region.open(), Err(KvError::Heap(landfall_heap::HeapError::SuperblockDamaged))));
    assert!(before == region.media.crash_state().durable_image(), "a refused region was changed");
}

#[test]
fn a_flipped_bit_in_a_word_of_the_run_table_is_repaired_from_its_other_copy() {
    let region = Region::new();
    let slab = region.slots[INLINE].run();
    for table in TABLES {
        for run in [slab, RunId(slab.0 - 1), RunId(RUNS as u32 - 1)] {
            for (off, bit) in bits(table + u64::from(run.0) * 8, 8, 2) {
                region.media.damage(off, 1 << bit);
                assert!(region.check(None).is_none());
            }
        }
    }
}

#[test]
fn a_word_of_the_run_table_that_is_lost_in_both_copies_never_makes_a_value_wrong() {
    let region = Region::new();
    let slab = region.slots[INLINE].run();
    TABLES.iter().for_each(|table| region.media.damage(table + u64::from(slab.0) * 8 + 5, 16));
    let (engine, recovered) = region.open().expect("the region opens");
    assert!(recovered.notes.iter().any(|note| note.contains("table words")), "{:?}", recovered.notes);
    for key in region.keys.keys() {
        assert!(!matches!(read(&engine, key), Ok(Some(_))), "its records cannot be read");
    }
}

#[test]
fn one_flipped_bit_in_a_record_is_corrected() {
    let region = Region::new();
    for (key, slot) in &region.slots {
        for (off, bit) in bits(slot.off(), 128, 9) {
            region.media.damage(off, 1 << bit);
            let found = region.check(Some(key)).expect("a damaged key was given").expect("is corrected");
            assert_eq!(found.as_ref(), region.keys.get(key), "offset {off}, bit {bit}");
        }
    }
}

#[test]
fn two_flipped_bits_in_a_record_are_an_error_of_its_key_and_never_an_older_version() {
    let region = Region::new();
    // Bytes behind the checksum that do not name the key: not space, hash, lengths, flags, and the key itself.
    let fields: [(u64, u64); 4] = [(8, 14), (24, 31), (40, 59), (64 + 6, 90)];
    for (first, second) in fields {
        let slot = region.slots[INLINE];
        region.with_flip(slot.off() + first, 1, || {
            region.with_flip(slot.off() + second, 5, || {
                let found = region.check(Some(INLINE)).expect("a damaged key was given");
                assert!(
                    matches!(found, Err(KvError::Damaged { .. })),
                    "bytes {first} and {second}: {found:?}"
                );
            });
        });
    }
}

#[test]
fn two_flipped_bits_anywhere_in_a_record_never_make_another_key_wrong() {
    let region = Region::new();
    for (first, second) in [(4, 7), (5, 70), (7, 33), (20, 21), (34, 39), (64, 65), (66, 100), (0, 126)] {
        for key in [INLINE, FRAMED, LISTED] {
            let slot = region.slots[key];
            region.with_flip(slot.off() + first, 3, || {
                region.with_flip(slot.off() + second, 6, || {
                    let found = region.check(Some(key)).expect("a damaged key was given");
                    let older = matches!(&found, Ok(Some(value)) if value == b"older");
                    assert!(
                        older || matches!(found, Err(KvError::Damaged { .. })),
                        "{first}, {second}: {found:?}"
                    );
                });
            });
        }
    }
}

#[test]
fn a_flipped_bit_in_a_value_is_an_error_of_its_key() {
    let region = Region::new();
    for key in [FRAMED, LISTED, PIECES] {
        let (_, extents, _, _) = region.places(key);
        for extent in extents {
            for (off, bit) in bits(extent.off, u64::from(extent.len()), extent.len() as usize / 3 + 1) {
                let found =
                    region.with_flip(off, bit, || region.check(Some(key)).expect("a damaged key was given"));
                assert!(matches!(found, Err(KvError::Damaged { .. })), "offset {off}: {found:?}");
            }
        }
    }
}

#[test]
fn a_flipped_bit_in_a_list_of_extents_is_an_error_of_its_key() {
    let region = Region::new();
    for key in [LISTED, PIECES] {
        let (_, _, list, _) = region.places(key);
        let list = list.expect("the value is in more extents than a record holds");
        for (off, bit) in bits(list.off, u64::from(list.len()), 11) {
            let found =
                region.with_flip(off, bit, || region.check(Some(key)).expect("a damaged key was given"));
            assert!(matches!(found, Err(KvError::Damaged { .. })), "offset {off}: {found:?}");
        }
    }
}

#[test]
fn a_flipped_bit_in_a_long_key_is_an_error_of_that_key() {
    let region = Region::new();
    let (_, _, _, key_at) = region.places(&region.long_key);
    let key_at = key_at.expect("the key is too long for its record");
    for (off, bit) in bits(key_at.off, u64::from(key_at.len()), 401) {
        let found = region
            .with_flip(off, bit, || region.check(Some(&region.long_key)).expect("a damaged key was given"));
        assert!(matches!(found, Err(KvError::Damaged { .. })), "offset {off}: {found:?}");
    }
}

#[test]
fn writing_or_deleting_a_damaged_key_repairs_it_permanently() {
    for deletes in [false, true] {
        for key in [INLINE, LISTED] {
            let region = Region::new();
            let slot = region.slots[key];
            for (at, mask) in [(9, 2), (13, 64), (26, 1)] {
                region.media.damage(slot.off() + at, mask);
            }
            repair(&region, key, deletes);
            let wanted = (!deletes).then(|| b"repaired".to_vec());
            for restart in 0..3 {
                let found = region.check(Some(key)).expect("a damaged key was given").expect("is repaired");
                assert_eq!(found, wanted, "restart {restart}");
            }
        }
    }
}

#[test]
fn writing_or_deleting_a_key_with_damaged_key_bytes_repairs_it_permanently() {
    for deletes in [false, true] {
        let region = Region::new();
        let (_, _, _, key_at) = region.places(&region.long_key);
        region.media.damage(key_at.expect("a stored key").off + 70, 8);
        repair(&region, &region.long_key, deletes);
        let wanted = (!deletes).then(|| b"repaired".to_vec());
        for restart in 0..3 {
            let found =
                region.check(Some(&region.long_key)).expect("a damaged key was given").expect("is repaired");
            assert_eq!(found, wanted, "restart {restart}");
        }
    }
}

fn repair(region: &Region, key: &[u8], deletes: bool) {
    let (engine, _) = region.open().expect("the region opens");
    assert!(matches!(read(&engine, key), Err(KvError::Damaged { .. })), "is damaged before");
    let mut writer = Writer::new(Arc::clone(engine.heap()), 0);
    if deletes {
        let deleted = engine.delete(&mut writer, 0, key, 0, 1).expect("deletes");
        assert!(deleted.ungated(), "a damaged key counts as existing");
    } else {
        set(&engine, &mut writer, key, b"repaired");
    }
    // The second commit makes the slots durable that the first one cleared.
    writer.commit_now().expect("commits");
    writer.commit_now().expect("commits");
    assert_eq!(read(&engine, key).expect("is repaired"), (!deletes).then(|| b"repaired".to_vec()));
}
