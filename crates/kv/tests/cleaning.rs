//! Space: the cost of cleaning, and deletes that always find room.

mod churn;

use churn::{Churn, Keys};
use landfall_heap::{CompactGoal, Compactor, HeapError, NewRegion, Source, Until, Writer, create};
use landfall_kv::{Engine, KvError, Recovery, SetRequest};
use landfall_media::RUN_SIZE;
use landfall_media::sim::{SimMedia, SimOptions};
use proptest::prelude::*;
use std::sync::Arc;

fn engine(runs: u64) -> Engine {
    let media = SimMedia::new(runs * RUN_SIZE, SimOptions::default());
    create(&*media, &NewRegion { salt: [1; 16], hash_seed: 2, created_ms: 3 }).expect("a new region");
    Recovery::run(media, 4).expect("opens").0
}

#[test]
fn nothing_is_moved_while_there_is_room() {
    let mut churn = Churn::new(engine(64), 1024, 0.1);
    churn.load();
    // Writes half of the free space.
    let traffic = churn.overwrite(Keys::Uniform, 0.4);
    assert_eq!(traffic.moved, 0);
    assert!(traffic.amplification() < 1.3, "{traffic:?}");
}

#[test]
fn cleaning_costs_little_while_much_of_the_region_is_dead() {
    // The bounds are higher than for larger regions, because the reserves are a tenth of this one.
    for (keys, share, most) in [
        (Keys::Uniform, 0.33, 1.6),
        (Keys::Zipf(0.99), 0.33, 1.8),
        (Keys::Uniform, 0.6, 3.2),
        (Keys::Zipf(0.99), 0.6, 3.0),
    ] {
        let mut churn = Churn::new(engine(96), 1024, share);
        churn.load();
        churn.overwrite(keys, 1.0);
        let traffic = churn.overwrite(keys, 1.5);
        assert!(
            traffic.amplification() <= most,
            "{keys:?} at {share}: {} of {most}",
            traffic.amplification()
        );
    }
}

/// Long-lived values are packed densely. Every packed run loses a few of them, and the sum of these holes is the only
/// space.
#[test]
fn a_region_that_is_four_fifths_live_is_not_full() {
    let mut churn = Churn::new(engine(96), 1024, 0.8);
    churn.load();
    churn.overwrite(Keys::Zipf(0.99), 0.8);
}

/// A region, a writer and the background thread.
struct Store {
    engine: Engine,
    writer: Writer,
    compactor: Compactor,
}

impl Store {
    fn new(runs: u64) -> Self {
        let engine = engine(runs);
        let heap = engine.heap();
        let (writer, compactor) = (Writer::new(Arc::clone(heap), 0), Compactor::new(Arc::clone(heap)));
        Self { engine, writer, compactor }
    }

    /// Executes a command; commits and cleans while it waits. False if the region is full.
    fn execute<T>(&mut self, mut command: impl FnMut(&Engine, &mut Writer) -> Result<T, KvError>) -> bool {
        const TRIES: usize = 100_000;
        for _ in 0..TRIES {
            match command(&self.engine, &mut self.writer) {
                Ok(_) => return true,
                Err(KvError::Heap(HeapError::Full)) => return false,
                Err(KvError::Wait(Until::Space)) => {
                    self.writer.commit_now().expect("commits");
                    self.clean(self.engine.heap().clean_below());
                }
                Err(KvError::Wait(_)) => self.writer.commit_now().expect("commits"),
                Err(error) => panic!("{error}"),
            }
        }
        panic!("a command waits for ever");
    }

    fn set(&mut self, key: u32, len: usize) -> bool {
        let value = vec![key as u8; len];
        self.execute(|engine, writer| {
            let (key, value) = (&key.to_le_bytes()[..], Source::Bytes(&value));
            engine
                .set(writer, &SetRequest { space: 0, key, key_at: None, value, expiry_ms: 0, arrival_ns: 9 })
        })
    }

    fn delete(&mut self, key: u32) -> bool {
        self.execute(|engine, writer| engine.delete(writer, 0, &key.to_le_bytes(), 1, 1))
    }

    /// Runs one step of the compactor; true while it is not idle.
    fn clean(&mut self, free_runs: u32) -> bool {
        match self.compactor.step(&self.engine, CompactGoal::free(free_runs), 1 << 20) {
            Err(HeapError::Full) => false,
            done => !done.expect("cleans").is_idle,
        }
    }
}

/// Values that each of six writers sets and does not commit.
const EACH: u32 = 1100;
const NOT_DURABLE: std::ops::Range<u32> = 601..EACH;

/// A store, and writers whose runs are dead by a half; what else is in them is not durable.
fn half_dead(runs: u64) -> (Store, Vec<Writer>) {
    let mut store = Store::new(runs);
    let engine = &store.engine;
    let mut writers: Vec<Writer> = (1..7).map(|id| Writer::new(Arc::clone(engine.heap()), id)).collect();
    let value = vec![7; 1024];
    for (writer, first) in writers.iter_mut().zip((0..).step_by(EACH as usize)) {
        for key in first..first + EACH {
            if key == first + NOT_DURABLE.start {
                writer.commit_now().unwrap();
            }
            let (key_at, value) = (None, Source::Bytes(&value));
            let key = &key.to_le_bytes()[..];
            let request = SetRequest { space: 0, key, key_at, value, expiry_ms: 0, arrival_ns: 9 };
            let _ticket = engine.set(writer, &request).unwrap();
        }
    }
    for key in (0..6 * EACH).filter(|key| !NOT_DURABLE.contains(&(key % EACH))) {
        let _ticket = engine.delete(&mut store.writer, 0, &key.to_le_bytes(), 1, 1).unwrap();
    }
    store.writer.commit_now().unwrap();
    (store, writers)
}

/// What kept it from being moved was that it was not durable, which changes no number that the compactor knows of its run.
#[test]
fn what_was_not_durable_while_its_run_was_emptied_is_moved_later() {
    let (mut store, mut writers) = half_dead(64);
    let cleans = |store: &mut Store| while store.clean(u32::MAX) {};
    cleans(&mut store);
    let used = |store: &Store| store.engine.heap().runs().counts().data;
    let before = used(&store);
    writers.iter_mut().for_each(|writer| writer.commit_now().unwrap());
    // It does not try again at every occasion.
    (0..8).for_each(|_| cleans(&mut store));
    let after = used(&store);
    assert!(after + 2 <= before, "{after} of {before} runs");
}

/// Half of these runs is dead for as long as nobody commits: who waited for that would wait for ever.
#[test]
fn a_region_is_full_although_what_cannot_be_emptied_is_half_dead() {
    let (mut store, mut writers) = half_dead(32);
    let first = 6 * EACH;
    let set = (first..).take_while(|key| store.set(*key, 1024)).count();
    assert!(set > 1000, "{set} values");
    // Deletes always find room, and what they free is room again.
    let last = first + u32::try_from(set).unwrap();
    assert!((first..last).all(|key| store.delete(key)));
    store.writer.commit_now().unwrap();
    assert!(store.set(0, 1024));
    writers.iter_mut().for_each(|writer| writer.commit_now().unwrap());
}

/// Some runs are free, but too few for a long value; the other space would have to be made, and nobody has looked for it.
#[test]
fn a_long_value_waits_until_enough_is_free_although_something_is() {
    let mut store = Store::new(64);
    let keys = (0u32..).take_while(|key| store.set(*key, 400_000)).count() as u32;
    // A few runs are empty afterwards, and of most others a half.
    for key in (0..keys).filter(|key| *key < 16 || key % 2 == 0) {
        assert!(store.delete(key));
    }
    store.writer.commit_now().expect("commits");
    let heap = store.engine.heap();
    assert!(heap.runs().free_count() > heap.clean_below() && heap.free_bytes() < 12 << 20, "{heap:?}");
    heap.request_free(12 << 20);
    let search = heap.search_to_wait_for();
    assert!(search.is_some(), "whether there is so much is not known");
    while store.engine.heap().search_to_wait_for() == search {
        store.clean(store.engine.heap().clean_below());
    }
    assert!(store.engine.heap().room_bytes() >= 12 << 20);
    assert!(store.set(u32::MAX, 12 << 20));
}

/// The order of deletes.
#[derive(Clone, Copy, Debug)]
enum Order {
    OldestFirst,
    NewestFirst,
    Strided(usize),
}

impl Order {
    fn of(self, mut keys: Vec<u32>) -> Vec<u32> {
        match self {
            Self::OldestFirst => keys,
            Self::NewestFirst => {
                keys.reverse();
                keys
            }
            Self::Strided(step) => {
                let count = keys.len();
                let step = (step..).find(|step| gcd(*step, count.max(1)) == 1).unwrap_or(1);
                (0..count).map(|at| keys[at * step % count]).collect()
            }
        }
    }
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

fn order() -> impl Strategy<Value = Order> {
    prop_oneof![
        Just(Order::OldestFirst),
        Just(Order::NewestFirst),
        (50usize..40_000).prop_map(Order::Strided)
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn full_region_accepts_deletes_in_any_order_and_frees_all_space(
        sizes in prop::collection::vec(prop_oneof![Just(100usize), 0..60usize, 500..5000usize, Just(300_000)], 1..4),
        runs in 32u64..40,
        order in order(),
        commits_each in 1usize..400,
    ) {
        let mut store = Store::new(runs);
        let mut keys = Vec::new();
        for key in 0u32.. {
            if !store.set(key, sizes[key as usize % sizes.len()]) {
                break;
            }
            keys.push(key);
            if keys.len().is_multiple_of(commits_each) {
                store.writer.commit_now().expect("commits");
            }
        }
        for (at, key) in order.of(keys).into_iter().enumerate() {
            prop_assert!(store.delete(key), "delete {at} found the region full: {:?}", store.engine.heap().runs().counts());
            if at.is_multiple_of(commits_each) {
                store.writer.commit_now().expect("commits");
            }
            // Writers that find no room in between must neither block the deletes nor wait in vain.
            if at.is_multiple_of(1000) {
                store.set(u32::MAX, 100);
            }
        }
        store.delete(u32::MAX);
        store.writer.commit_now().expect("commits");
        prop_assert_eq!(store.engine.count(0).ungated(), 0);
        while store.clean(u32::MAX) {}
        let heap = Arc::clone(store.engine.heap());
        let counts = heap.runs().counts();
        prop_assert_eq!(heap.runs().live_bytes(), 0);
        // The open runs of the writer and the compactor remain.
        prop_assert!(counts.data <= 2 && counts.slab <= 4, "an empty region takes {:?}", counts);
    }
}
