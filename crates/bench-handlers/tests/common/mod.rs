//! Shared parts of the tests: operations, the model that judges them, and reproducible random choices.
#![allow(dead_code, reason = "not every test uses all of it")]

use landfall_bench_handlers::{HandlerError, Op, Request, Result, Store, StoreOptions, Structure};
use landfall_media::Media;
use landfall_media::sim::{SimMedia, SimOptions};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Size of one half of a small store's log, bytes.
pub const LOG_BYTES: u64 = 16 << 10;
/// Size of a small store's region, bytes.
pub const REGION_BYTES: u64 = 192 << 10;

pub const DEFERRED: SimOptions = SimOptions { deferred: true };

/// One step of a trace.
#[derive(Clone, Debug)]
pub enum Step {
    Set { key: Vec<u8>, value: Vec<u8> },
    Delete { key: Vec<u8> },
    Row { key: Vec<u8>, row: Vec<u8> },
    RemoveRow { key: Vec<u8> },
    Floor(Vec<u8>),
}

/// The whole contents of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Model {
    pub entries: BTreeMap<Vec<u8>, Vec<u8>>,
    pub rows: BTreeMap<Vec<u8>, Vec<u8>>,
    pub floor: Vec<u8>,
}

/// The row for the request of a step. It is derived from the request, so that a missing request or row is detected.
pub fn row_of(key: &[u8], value: &[u8]) -> Vec<u8> {
    [key, b"=", &value[..value.len().min(8)]].concat()
}

const SESSION: &[u8] = b"session";

impl Model {
    pub fn step(&mut self, step: &Step) {
        match step.clone() {
            Step::Set { key, value } => {
                self.rows.insert(SESSION.to_vec(), row_of(&key, &value));
                self.entries.insert(key, value);
            }
            Step::Delete { key } => {
                self.rows.insert(SESSION.to_vec(), row_of(&key, b""));
                self.entries.remove(&key);
            }
            Step::Row { key, row } => _ = self.rows.insert(key, row),
            Step::RemoveRow { key } => _ = self.rows.remove(&key),
            Step::Floor(floor) => self.floor = floor,
        }
    }

    /// The contents of a store, read by walking every structure. Checks the store's invariants, too.
    pub fn of(store: &Store) -> Result<Self> {
        store.check()?;
        let (entries, rows) = (store.entries()?, store.rows()?);
        let model = Self {
            entries: entries.iter().cloned().collect(),
            rows: rows.into_iter().collect(),
            floor: store.floor()?,
        };
        assert_eq!((model.entries.len(), entries.len() as u64), (entries.len(), store.len()?));
        Ok(model)
    }
}

pub fn apply(store: &mut Store, step: &Step) -> Result<()> {
    let request = |op, key, value| Request { op, key, value }.encode();
    match step {
        Step::Set { key, value } => {
            let row = row_of(key, value);
            let response = store.apply(&request(Op::Set, key, value), Some((SESSION, &row)))?;
            assert_eq!(response, b"O");
        }
        Step::Delete { key } => {
            let row = row_of(key, b"");
            let response = store.apply(&request(Op::Delete, key, b""), Some((SESSION, &row)))?;
            assert_eq!(response, b"O");
        }
        Step::Row { key, row } => store.put_row(key, row)?,
        Step::RemoveRow { key } => _ = store.remove_row(key)?,
        Step::Floor(floor) => store.set_floor(floor)?,
    }
    Ok(())
}

/// Gets the value of a key like a client.
pub fn get(store: &mut Store, key: &[u8]) -> Option<Vec<u8>> {
    let response =
        store.apply(&Request { op: Op::Get, key, value: b"" }.encode(), None).expect("a good request");
    match response.split_first() {
        Some((b'V', value)) => Some(value.to_vec()),
        Some((b'N', [])) => None,
        _ => panic!("a response to a get: {response:?}"),
    }
}

pub fn options(structure: Structure) -> StoreOptions {
    StoreOptions { structure, log_bytes: LOG_BYTES, seed: 7 }
}

pub fn media(len: u64) -> Arc<SimMedia> {
    SimMedia::new(len, SimOptions::default())
}

pub fn create(media: &Arc<SimMedia>, structure: Structure) -> Result<Store> {
    Store::create(Arc::clone(media) as Arc<dyn Media>, options(structure))
}

/// Opens the region after a crash, as a server does: where there is no pool, it creates one.
pub fn open(media: &Arc<SimMedia>, structure: Structure) -> Result<Store> {
    match Store::open(Arc::clone(media) as Arc<dyn Media>, options(structure)) {
        Err(HandlerError::NoPool) => create(media, structure),
        other => other,
    }
}

/// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", OOPSLA 2014).
pub struct Rng(pub u64);

impl Rng {
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.draw() % bound
    }

    /// A step over a few dozen keys, some of which are prefixes of others.
    pub fn step(&mut self) -> Step {
        let number = self.below(40);
        let key = number.to_string().into_bytes();
        let len = [3, 20, 100, 700][self.below(4) as usize];
        match self.below(12) {
            0..7 => Step::Set { key, value: vec![self.draw() as u8; len] },
            7..10 => Step::Delete { key },
            10 => Step::Row { key, row: vec![self.draw() as u8; 16] },
            _ if number.is_multiple_of(2) => Step::RemoveRow { key },
            _ => Step::Floor(number.to_le_bytes().to_vec()),
        }
    }
}
