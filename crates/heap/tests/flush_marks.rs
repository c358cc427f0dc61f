//! A flush mark ends records of its own system. The other systems decide what it means for theirs.

mod common;

use common::{heap, put};
use landfall_heap::{Entry, Found, Heap, Judge, Kind, Opening, Source, Writer};
use landfall_media::sim::{SimMedia, SimOptions};
use std::sync::Arc;

const DATABASE: u8 = 0;
const ELSEWHERE: u8 = 40;

/// Databases are flushed by their own mark and by the mark for all spaces. No mark flushes records of the other system.
struct Databases;

impl Judge for Databases {
    fn is_superseded(&self, _: &Heap, _: &Found) -> bool {
        false
    }

    fn is_flushed(&self, mark: &Found, found: &Found) -> bool {
        found.space == DATABASE && (mark.space == DATABASE || mark.space == u8::MAX)
    }
}

/// Number of records that recovery rejects, from a record of `space` whose data are torn on. The tail of another slab
/// has a flush mark of `flushed`.
fn rejected(space: u8, flushed: u8) -> u64 {
    let (media, heap) = heap(SimOptions::default());
    let (mut first, mut second) = (Writer::new(Arc::clone(&heap), 0), Writer::new(Arc::clone(&heap), 1));
    let value = [b'v'; 500];
    let record = Entry { space, hash: heap.hash(space, b"key"), ..put(&heap, b"key", Source::Bytes(&value)) };
    let slot = first.append(&record).expect("room");
    let mark = Entry {
        kind: Kind::Flush,
        space: flushed,
        hash: heap.hash(flushed, b""),
        ..put(&heap, b"", Source::None)
    };
    second.append(&mark).expect("room");
    first.commit_now().expect("commits");
    second.commit_now().expect("commits");
    let at = heap.all_extents(slot, &heap.record(slot).expect("whole")).expect("whole")[0];
    drop((first, second, heap));
    let mut image = media.crash_state().durable_image();
    image[at.off as usize] ^= 1;
    let mut opening = Opening::begin(SimMedia::from_image(image, SimOptions::default())).expect("opens");
    opening.resolve(&Databases, |_, _| {}).expect("resolves").rejected
}

#[test]
fn a_flush_excuses_torn_data_of_its_own_database() {
    assert_eq!((rejected(DATABASE, DATABASE), rejected(DATABASE, u8::MAX)), (0, 0));
}

#[test]
fn a_flush_excuses_nothing_that_another_system_keeps() {
    assert_eq!((rejected(ELSEWHERE, u8::MAX), rejected(ELSEWHERE, ELSEWHERE)), (1, 1));
}
