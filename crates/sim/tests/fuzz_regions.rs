//! Fuzzing of recovery: it must never panic, whatever the bytes of a region are. `cargo test` runs a bounded number of
//! generated regions (`LANDFALL_SIM_SEEDS=N` runs N of them). `cargo bolero test` runs them under a fuzzer.

mod common;

use bolero::{TypeGenerator, check};
use landfall_media::sim::{SimMedia, SimOptions};
use landfall_media::{Extent, Media};
use std::sync::{Arc, OnceLock};

const SALT: [u8; 16] = [42; 16];
/// Number of generated regions. They are few, because each has 32 MiB.
const REGIONS: u64 = 60;
const RECORD_SIZE: u64 = 128;

/// A change of the bytes of a region that holds a few keys.
#[derive(Clone, Debug, TypeGenerator)]
enum Patch {
    Superblock {
        copy: bool,
        at: u8,
        bytes: [u8; 8],
    },
    Table {
        copy: bool,
        run: u8,
        word: u64,
    },
    /// A table word with a valid checksum.
    Slab {
        run: u8,
        durable: u16,
        sealed: bool,
    },
    /// Any bytes at any offset.
    Bytes {
        off: u32,
        bytes: Vec<u8>,
    },
    /// A record with a valid checksum and any fields.
    Record {
        slot: u8,
        bytes: Vec<u8>,
    },
    /// A change of a field of an existing record, whose checksum is corrected.
    Field {
        slot: u8,
        at: u8,
        value: u32,
    },
}

#[test]
fn fuzz_recovery_of_patched_regions() {
    check!().with_iterations(common::count(REGIONS) as usize).with_type::<Vec<Patch>>().for_each(|patches| {
        let media = SimMedia::from_image(base().clone(), SimOptions::default());
        patches.iter().for_each(|patch| apply(&media, patch));
        let Ok((engine, _)) = common::try_reopen(&media) else { return };
        use_region(&engine);
        let _ = common::try_reopen(&media);
    });
}

#[test]
fn fuzz_superblocks() {
    check!().with_type::<Vec<u8>>().for_each(|bytes| drop(landfall_heap::decode_superblock(bytes)));
}

/// Executes all operations of a client on a recovered region.
fn use_region(engine: &landfall_kv::Engine) {
    let mut writer = landfall_heap::Writer::new(Arc::clone(engine.heap()), 0);
    let query = landfall_kv::RangeQuery::all(0);
    let keys: Vec<Vec<u8>> = match engine.range(&query, 100, 1) {
        Ok(page) => page.ungated().items.into_iter().map(|(key, _)| key).collect(),
        Err(_) => Vec::new(),
    };
    for (index, key) in keys.iter().enumerate() {
        let _ = engine.get(0, key, 1);
        if index % 2 == 0 {
            let _ = engine.delete(&mut writer, 0, key, 1, 1);
        }
    }
    let _ = engine.purge_expired(&mut writer, 1 << 40, 10);
    let _ = writer.commit_now();
    let mut compactor = landfall_heap::Compactor::new(Arc::clone(engine.heap()));
    for _ in 0..4 {
        let goal = landfall_heap::CompactGoal::DENSE;
        let _ = compactor.step(engine, goal, 1 << 20);
    }
}

/// A region with records of several shapes.
fn base() -> &'static Vec<u8> {
    static BASE: OnceLock<Vec<u8>> = OnceLock::new();
    BASE.get_or_init(|| {
        let (media, engine) = common::create(32, SimOptions::default());
        let mut writer = landfall_heap::Writer::new(Arc::clone(engine.heap()), 0);
        for round in 0..2u8 {
            for key in 0..6u8 {
                let len = [0, 10, 3000, 20, 900_000, 60][usize::from(key)] + usize::from(round);
                common::set(
                    &engine,
                    &mut writer,
                    &vec![b'a' + key; 1 + usize::from(key) * 15],
                    &vec![round; len],
                );
            }
            writer.commit_now().expect("commits");
        }
        media.crash_state().durable_image()
    })
}

fn apply(media: &SimMedia, patch: &Patch) {
    match patch {
        Patch::Superblock { copy, at, bytes } => {
            write(media, u64::from(*copy) * 32768 + u64::from(*at % 120), bytes)
        }
        Patch::Table { copy, run, word } => write(media, table(*copy, *run), &word.to_le_bytes()),
        Patch::Slab { run, durable, sealed } => {
            let low = 1 | u32::from(*sealed) << 8 | u32::from(*durable % 8193) << 16;
            let run_crc = crc32c::crc32c_append(crc32c::crc32c(&SALT), &u32::from(run % 32).to_le_bytes());
            let word = u64::from(low) | u64::from(crc32c::crc32c_append(run_crc, &low.to_le_bytes())) << 32;
            for copy in [false, true] {
                write(media, table(copy, *run), &word.to_le_bytes());
            }
        }
        Patch::Bytes { off, bytes } => {
            write(media, u64::from(*off) % (31 << 20), &bytes[..bytes.len().min(1 << 16)])
        }
        Patch::Record { slot, bytes } => {
            let mut record = [0; RECORD_SIZE as usize];
            let len = bytes.len().min(124);
            record[4..4 + len].copy_from_slice(&bytes[..len]);
            write_record(media, *slot, record);
        }
        Patch::Field { slot, at, value } => {
            let bytes = media.bytes(Extent::new(record_off(*slot), RECORD_SIZE as u32)).expect("in bounds");
            let mut record: [u8; RECORD_SIZE as usize] = bytes.try_into().expect("a record");
            let at = 4 + usize::from(*at) % 120;
            record[at..at + 4].copy_from_slice(&value.to_le_bytes());
            write_record(media, *slot, record);
        }
    }
}

fn table(copy: bool, run: u8) -> u64 {
    (64 << 10) + u64::from(copy) * (64 << 10) + u64::from(run % 32) * 8
}

/// The number of the base region's slab: its first run with a table word that is not zero.
fn slab() -> u64 {
    static SLAB: OnceLock<u64> = OnceLock::new();
    *SLAB.get_or_init(|| {
        let word = |run: &u64| base()[(64 << 10) + *run as usize * 8..][..8] != [0; 8];
        (1..32).find(word).expect("a slab")
    })
}

fn record_off(slot: u8) -> u64 {
    (slab() << 20) + u64::from(slot % 24) * RECORD_SIZE
}

fn write_record(media: &SimMedia, slot: u8, mut record: [u8; RECORD_SIZE as usize]) {
    let off = record_off(slot);
    let number = (off / RECORD_SIZE) as u32;
    let seeded = crc32c::crc32c_append(crc32c::crc32c(&SALT), &number.to_le_bytes());
    let crc = crc32c::crc32c_append(seeded, &record[4..]);
    record[..4].copy_from_slice(&crc.to_le_bytes());
    write(media, off, &record);
}

fn write(media: &SimMedia, off: u64, bytes: &[u8]) {
    media.store(off, bytes).expect("in bounds");
}
