//! Prints the image of a small region as text. The text is kept, and later versions must read it (`tests/images.rs`).
//!
//! `cargo run -p landfall-sim --example keep_image > crates/sim/images/VERSION.txt`

use landfall_heap::{Change, Entry, HeapError, Kind, NewRegion, Source, Transaction, Writer};
use landfall_kv::{Engine, KvError, Place, Recovery, SetRequest, TxnKey};
use landfall_media::sim::{SimMedia, SimOptions};
use landfall_media::{Extent, LINE_SIZE, Media, RUN_SIZE};
use std::error::Error;
use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::Arc;

const RUNS: u64 = 32;
const NOW_MS: u64 = 1_800_000_000_000;

fn main() -> Result<(), Box<dyn Error>> {
    let media = SimMedia::new(RUNS * RUN_SIZE, SimOptions::default());
    let new = NewRegion { salt: [0x5a; 16], hash_seed: 0x0123_4567_89ab_cdef, created_ms: NOW_MS };
    landfall_heap::create(&*media, &new)?;
    let (engine, _) = Recovery::run(media.clone(), 4)?;
    let mut writer = Writer::new(Arc::clone(engine.heap()), 0);
    set(&engine, &mut writer, 0, b"flushed", b"gone", 0)?;
    engine.flush_all(&mut writer, NOW_MS * 1_000_000)?.ungated();
    let long_key = [b'k'; 300];
    let sets: [(u8, &[u8], &[u8], u64); 8] = [
        (0, b"inline", b"short", 0),
        (0, b"framed", &[b'f'; 1024], 0),
        (0, &long_key, b"a long key", 0),
        (0, b"overwritten", b"old", 0),
        (0, b"overwritten", b"new", 0),
        (0, b"deleted", b"gone", 0),
        (0, b"expiring", b"later", NOW_MS * 2),
        (3, b"inline", b"of another database", 0),
    ];
    for (space, key, value, expiry_ms) in sets {
        set(&engine, &mut writer, space, key, value, expiry_ms)?;
    }
    // Mostly zeroes, which the image leaves out.
    let mut long = vec![0; 200_000];
    long.iter_mut().step_by(50_000).for_each(|byte| *byte = b'p');
    set(&engine, &mut writer, 5, b"pieces", &long, 0)?;
    engine.delete(&mut writer, 0, b"deleted", NOW_MS, NOW_MS * 1_000_000)?.ungated();
    let keys = [b"group/a", b"group/b"];
    let mut txn = engine.transaction(keys.iter().map(|key| TxnKey { space: 0, key: *key }), NOW_MS);
    keys.iter().for_each(|key| txn.put_bytes(0, *key, b"together".to_vec(), 0));
    txn.commit(&mut writer, NOW_MS * 1_000_000)?.ungated();
    transaction(&engine, &mut writer)?;
    writer.commit_now()?;
    engine.heap().mark_slabs(1)?;
    // Its records are on the medium, and nothing makes them count.
    let open = open_transaction(&engine, &mut writer)?;
    std::io::stdout().write_all(lines_of(&*media)?.as_bytes())?;
    drop(open);
    Ok(())
}

/// A transaction of few records, as one of more records than a group holds is written. It changes a value in pieces.
fn transaction(engine: &Engine, writer: &mut Writer) -> Result<(), KvError> {
    set(engine, writer, 6, b"patched", &[0; 200_000], 0)?;
    engine.group_up_to(1);
    let keys: Vec<String> = (0..40).map(|number| format!("transaction/{number}")).collect();
    let all = keys.iter().map(String::as_bytes).chain([&b"patched"[..]]);
    let mut txn = engine.transaction(all.map(|key| TxnKey { space: 6, key }), NOW_MS);
    keys.iter().for_each(|key| txn.put_bytes(6, key.as_bytes(), b"counts".to_vec(), 0));
    txn.patch(6, b"patched", Place::At(100_000), Change::Bytes(b"changed"))?;
    txn.commit(writer, NOW_MS * 1_000_000)?.ungated();
    Ok(())
}

/// A transaction that is not committed: new versions of keys, and new keys.
fn open_transaction(engine: &Engine, writer: &mut Writer) -> Result<Transaction, HeapError> {
    let heap = Arc::clone(engine.heap());
    let mut transaction = writer.begin_transaction(0)?;
    let names = (0..10).flat_map(|number| [format!("transaction/{number}"), format!("open/{number}")]);
    for key in names {
        let (key, value) = (key.as_bytes(), Source::Bytes(b"never"));
        let entry = Entry {
            kind: Kind::Put,
            space: 6,
            hash: heap.hash(6, key),
            key,
            key_at: None,
            value,
            arrival_ns: NOW_MS * 1_000_000,
            expiry_ms: 0,
            aux: 0,
        };
        writer.append_to(&mut transaction, &entry)?;
    }
    Ok(transaction)
}

fn set(
    engine: &Engine,
    writer: &mut Writer,
    space: u8,
    key: &[u8],
    value: &[u8],
    expiry_ms: u64,
) -> Result<(), KvError> {
    let value = Source::Bytes(value);
    let request = SetRequest { space, key, key_at: None, value, expiry_ms, arrival_ns: NOW_MS * 1_000_000 };
    engine.set(writer, &request).map(drop)
}

/// The length of the region, then every line of 64 bytes that is not all zero, with its offset.
fn lines_of(media: &dyn Media) -> Result<String, Box<dyn Error>> {
    let mut text = format!("{}\n", media.len());
    for off in (0..media.len()).step_by(LINE_SIZE as usize) {
        let line = media.bytes(Extent::new(off, LINE_SIZE as u32))?;
        if line.iter().any(|byte| *byte != 0) {
            let hex: String = line.iter().map(|byte| format!("{byte:02x}")).collect();
            writeln!(text, "{off} {hex}")?;
        }
    }
    Ok(text)
}
