//! Long keys that have left memory: the background reads them while nobody waits for their shard.

use landfall_heap::{KeyPlace, Named, NewRegion, Owner, SlotId, Source, Writer, create};
use landfall_kv::{Engine, Recovery, SetRequest};
use landfall_media::sim::{SimMedia, SimOptions};
use landfall_media::{Extent, RUN_SIZE};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

const MEMORY: u64 = 12 * RUN_SIZE;
const LONG: [u8; 3000] = [b'k'; 3000];

/// An engine of one shard, with a long key that expires and has left memory.
struct Store {
    media: Arc<SimMedia>,
    engine: Arc<Engine>,
    writer: Writer,
    slot: SlotId,
    key_at: Extent,
}

fn open(media: &Arc<SimMedia>) -> (Arc<Engine>, Writer) {
    media.page(MEMORY);
    let engine = Arc::new(Recovery::run(Arc::clone(media) as _, 1).expect("opens").0);
    let writer = Writer::new(Arc::clone(engine.heap()), 0);
    (engine, writer)
}

fn store() -> Store {
    let media = SimMedia::new(48 * RUN_SIZE, SimOptions::default());
    create(&*media, &NewRegion { salt: [1; 16], hash_seed: 2, created_ms: 3 }).expect("a new region");
    let (engine, mut writer) = open(&media);
    let mut set = |key: &[u8], expiry_ms| {
        let value = Source::Bytes(b"value");
        let request = SetRequest { space: 0, key, key_at: None, value, expiry_ms, arrival_ns: 9 };
        engine.set(&mut writer, &request).expect("there is room").ungated().slot
    };
    let slot = set(&LONG, 5);
    set(b"short", 0);
    writer.commit_now().expect("commits");
    engine.heap().mark_slabs(1).expect("marks");
    drop((engine, writer));
    // No writer fills the run of the key after a restart.
    let media = SimMedia::from_image(media.crash_state().durable_image(), SimOptions::default());
    let (engine, writer) = open(&media);
    let KeyPlace::Stored(key_at) = engine.heap().record(slot).expect("a record").key() else {
        panic!("the key is long")
    };
    engine.heap().relieve_memory(u64::from(u32::MAX));
    assert!(!engine.heap().is_resident(key_at), "it has left memory");
    Store { media, engine, writer, slot, key_at }
}

impl Store {
    /// Set once the key is read, to whether its shard was free then.
    fn watch(&self) -> Arc<AtomicBool> {
        let was_free = Arc::new(AtomicBool::new(false));
        let (engine, seen) = (Arc::clone(&self.engine), Arc::clone(&was_free));
        self.media.before_reading(self.key_at.off - self.key_at.off % RUN_SIZE, move || {
            let (done, is_done) = mpsc::sync_channel(1);
            std::thread::spawn(move || done.send(engine.peek(0, b"short", 1).is_ok()));
            seen.store(is_done.recv_timeout(Duration::from_secs(1)) == Ok(true), Ordering::Relaxed);
        });
        was_free
    }

    fn begin_move(&self) -> bool {
        let name = Named { space: 0, hash: self.engine.heap().hash(0, &LONG) };
        self.engine.begin_move(name, self.slot, &mut || {})
    }
}

#[test]
fn an_expired_key_that_has_left_memory_is_read_while_its_shard_is_free() {
    let mut store = store();
    let was_free = store.watch();
    assert_eq!(store.engine.purge_expired(&mut store.writer, 20, 8).expect("purges"), 1);
    assert!(was_free.load(Ordering::Relaxed), "nobody waits for the medium");
    assert_eq!((store.engine.expired_keys(), store.engine.next_expiry_ms()), (1, None));
}

#[test]
fn a_key_that_has_left_memory_is_read_while_its_shard_is_free_before_its_record_moves() {
    let store = store();
    let was_free = store.watch();
    assert!(store.begin_move(), "it is current");
    assert!(was_free.load(Ordering::Relaxed), "nobody waits for the medium");
}

#[test]
fn a_key_that_has_left_memory_and_cannot_be_read_stays_where_it_is() {
    let mut store = store();
    store.media.fail_reads(store.key_at);
    assert!(!store.begin_move());
    store.engine.purge_expired(&mut store.writer, 20, 8).expect("others would expire");
    assert_eq!((store.engine.expired_keys(), store.engine.next_expiry_ms()), (0, None));
    assert_eq!(store.engine.stats().keys.iter().sum::<u64>(), 2, "it is hidden by its expiry");
}
