//! Every structure behaves like a `BTreeMap` under equal operations.

mod common;

use common::{Model, Step, apply, create, get, media, open};
use landfall_bench_handlers::{
    HandlerError, KEY_BYTES_MAX, Op, Request, Store, StoreOptions, Structure, VALUE_BYTES_MAX,
};
use landfall_media::{Media, OpenOptions, RUN_SIZE, open as media_open};
use proptest::prelude::*;
use std::sync::Arc;

#[derive(Clone, Debug)]
enum Act {
    Do(Step),
    Get {
        key: Vec<u8>,
    },
    /// A value that makes its transaction too large for the log.
    SetTooMuch {
        key: Vec<u8>,
    },
    Commit,
    Abandon,
    Reopen,
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        // Few keys, so that they repeat; some are prefixes of each other, with bytes of all kinds.
        4 => prop::collection::vec(prop::sample::select(vec![0_u8, 1, b'a', 0xff]), 0..4),
        2 => (0..200_u8).prop_map(|number| vec![b'n', number]),
        1 => Just(vec![b'x'; KEY_BYTES_MAX]),
    ]
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    (any::<u8>(), prop_oneof![0..30_usize, 100..130_usize, Just(1500)])
        .prop_map(|(byte, len)| vec![byte; len])
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        12 => (key(), value()).prop_map(|(key, value)| Act::Do(Step::Set { key, value })),
        8 => key().prop_map(|key| Act::Do(Step::Delete { key })),
        1 => (key(), value()).prop_map(|(key, row)| Act::Do(Step::Row { key, row })),
        1 => key().prop_map(|key| Act::Do(Step::RemoveRow { key })),
        1 => key().prop_map(|mut key| { key.truncate(64); Act::Do(Step::Floor(key)) }),
        4 => key().prop_map(|key| Act::Get { key }),
        1 => key().prop_map(|key| Act::SetTooMuch { key }),
        3 => Just(Act::Commit),
        1 => Just(Act::Abandon),
        1 => Just(Act::Reopen),
    ]
}

/// A store beside its model: the current state, and the state at the last commit.
struct Pair {
    store: Store,
    now: Model,
    committed: Model,
}

impl Pair {
    fn commit(&mut self) {
        self.store.commit().expect("nothing fails");
        self.committed = self.now.clone();
    }

    fn take(&mut self, step: &Step) {
        match apply(&mut self.store, step) {
            Err(HandlerError::BatchFull) => {
                self.commit();
                apply(&mut self.store, step).expect("an empty batch has room");
            }
            done => done.expect("there is room"),
        }
        self.now.step(step);
    }

    fn act(&mut self, act: &Act, structure: Structure) {
        match act {
            Act::Do(step) => self.take(step),
            Act::Get { key } => assert_eq!(get(&mut self.store, key), self.now.entries.get(key).cloned()),
            Act::SetTooMuch { key } => {
                let request = Request { op: Op::Set, key, value: &[1; 20_000] }.encode();
                let refused = self.store.apply(&request, None);
                let right = matches!(refused, Err(HandlerError::TooLarge { .. } | HandlerError::BatchFull));
                assert!(right, "{refused:?}");
            }
            Act::Commit => self.commit(),
            Act::Abandon => {
                self.store.abandon();
                self.now = self.committed.clone();
            }
            Act::Reopen => {
                let media = Arc::clone(self.store.media());
                self.store = Store::open(media, common::options(structure)).expect("it was a store");
                self.now = self.committed.clone();
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn every_structure_behaves_like_an_ordered_map(acts in prop::collection::vec(act(), 1..250)) {
        for structure in Structure::ALL {
            let store = create(&media(4 << 20), structure).expect("room");
            let mut pair = Pair { store, now: Model::default(), committed: Model::default() };
            for (index, act) in acts.iter().enumerate() {
                pair.act(act, structure);
                if index % 16 == 0 {
                    prop_assert_eq!(&Model::of(&pair.store).expect("whole"), &pair.now);
                }
            }
            prop_assert_eq!(&Model::of(&pair.store).expect("whole"), &pair.now, "{:?}", structure);
        }
    }
}

fn number_key(number: u64) -> Vec<u8> {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()[4..].to_vec()
}

#[test]
fn thousands_of_entries_are_added_and_removed_without_a_leak() {
    for structure in Structure::ALL {
        let media = media(8 << 20);
        let options = StoreOptions { log_bytes: 256 << 10, ..common::options(structure) };
        let store = Store::create(Arc::clone(&media) as Arc<dyn Media>, options).expect("room");
        let mut pair = Pair { store, now: Model::default(), committed: Model::default() };
        for number in 0..5000 {
            pair.take(&Step::Set { key: number_key(number), value: number.to_le_bytes().to_vec() });
        }
        assert_eq!(Model::of(&pair.store).expect("whole"), pair.now, "{structure:?}");
        for number in 0..5000 {
            pair.take(&Step::Delete { key: number_key(number * 7 % 5000) });
        }
        pair.commit();
        let store = open(&media, structure).expect("a store");
        assert_eq!(Model::of(&store).expect("whole"), pair.now, "{structure:?}");
        assert!(store.is_empty().expect("readable"));
    }
}

#[test]
fn entries_are_visited_in_key_order_except_in_the_hash_map() {
    for structure in Structure::ALL {
        let mut store = create(&media(1 << 20), structure).expect("room");
        for key in ["b", "", "ab", "a", "abc", "\u{ff}", "\0"] {
            apply(&mut store, &Step::Set { key: key.into(), value: key.into() }).expect("room");
        }
        let entries = store.entries().expect("readable");
        assert_eq!(entries.is_sorted(), structure != Structure::HashMap, "{structure:?}");
    }
}

#[test]
fn the_largest_key_and_value_are_read_back() {
    for structure in Structure::ALL {
        let media = media(4 << 20);
        let options = StoreOptions { log_bytes: 128 << 10, ..common::options(structure) };
        let mut store = Store::create(Arc::clone(&media) as Arc<dyn Media>, options).expect("room");
        let (key, value) = (vec![b'k'; KEY_BYTES_MAX], vec![b'v'; VALUE_BYTES_MAX]);
        apply(&mut store, &Step::Set { key: key.clone(), value: value.clone() }).expect("room");
        store.commit().expect("nothing fails");
        let mut store = open(&media, structure).expect("a store");
        assert_eq!(get(&mut store, &key), Some(value));
    }
}

#[test]
fn a_bad_request_changes_nothing_but_its_row() {
    let mut store = create(&media(1 << 20), Structure::BTree).expect("room");
    let response = store.apply(b"X\x01\0k", Some((b"s", b"1"))).expect("answered");
    assert_eq!(response, b"Eunknown op");
    assert!(store.is_empty().expect("readable"));
    assert_eq!(store.row(b"s").expect("readable"), Some(b"1".to_vec()));
}

#[test]
fn a_full_pool_refuses_a_write_and_keeps_its_contents() {
    for structure in Structure::ALL {
        let mut store = create(&media(128 << 10), structure).expect("room");
        let (mut model, mut refused) = (Model::default(), None);
        for number in 0..2000 {
            let step = Step::Set { key: number_key(number), value: vec![1; 100] };
            match apply(&mut store, &step) {
                Ok(()) => model.step(&step),
                Err(error) => {
                    refused = Some(error);
                    break;
                }
            }
            store.commit().expect("nothing fails");
        }
        assert!(matches!(refused, Some(HandlerError::Full { .. })), "{refused:?}");
        assert_eq!(Model::of(&store).expect("whole"), model);
        let step = Step::Delete { key: number_key(3) };
        apply(&mut store, &step).expect("deletes need no room here");
    }
}

#[test]
fn a_store_is_created_in_an_empty_region_only() {
    let media = media(1 << 20);
    create(&media, Structure::BTree).expect("room");
    assert!(matches!(create(&media, Structure::BTree), Err(HandlerError::Occupied)));
    let store = open(&media, Structure::SkipList).expect("a store");
    assert_eq!(store.structure(), Structure::BTree, "the structure that is there counts");
}

#[test]
fn names_and_tags_parse_back() {
    for structure in Structure::ALL {
        assert_eq!(Structure::named(structure.name()), Some(structure));
        assert_eq!(Structure::tagged(structure.tag()), Some(structure));
    }
    assert_eq!((Structure::named("heap"), Structure::tagged(0)), (None, None));
}

#[test]
fn a_store_in_a_file_is_reopened_with_its_committed_contents() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("region");
    let new = OpenOptions { create: Some(8 * RUN_SIZE), ..OpenOptions::default() };
    for structure in Structure::ALL {
        let media = media_open(&path, &new).expect("a new file").media;
        let mut store = Store::create(media, StoreOptions::new(structure)).expect("room");
        let mut model = Model::default();
        for number in 0..60 {
            let step = Step::Set { key: number_key(number), value: vec![number as u8; 500] };
            apply(&mut store, &step).expect("room");
            model.step(&step);
            if number % 10 == 9 {
                store.commit().expect("nothing fails");
            }
        }
        apply(&mut store, &Step::Delete { key: number_key(1) }).expect("room");
        drop(store);
        let media = media_open(&path, &OpenOptions::default()).expect("the file").media;
        let store = Store::open(media, StoreOptions::new(structure)).expect("a store");
        assert_eq!(Model::of(&store).expect("whole"), model, "{structure:?}");
        drop(store);
        std::fs::remove_file(&path).expect("it is there");
    }
}
