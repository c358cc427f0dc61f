//! Appends records to a region, then opens it again and lists what is there: the heap without an engine.
//!
//! `cargo run -p landfall-heap --example records -- /dev/shm/records.region`
#![allow(clippy::print_stdout, reason = "it is a command-line example")]

use landfall_heap::{Entry, Found, Heap, Kind, NewRegion, Opening, Source, Writer, create};
use landfall_media::{Media, OpenOptions, RUN_SIZE, open};
use std::error::Error;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

const CAPACITY: u64 = 64 * RUN_SIZE;

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("usage: records PATH")?;
    let media = open_or_create(Path::new(&path))?;
    println!("{}", media.describe());

    let (heap, found) = recover(Arc::clone(&media))?;
    println!("{} records were there", found.len());
    append(&heap)?;
    drop(heap);

    let (heap, found) = recover(media)?;
    for record in &found {
        let view = heap.record(record.slot)?;
        let (key, value) = (heap.key(&view)?, heap.value_bytes(record.slot, &view)?);
        let (key, version) = (String::from_utf8_lossy(&key), record.seq);
        println!("slot {:?}, version {version}: {key} = {} bytes", record.slot, value.len());
    }
    Ok(())
}

fn open_or_create(path: &Path) -> Result<Arc<dyn Media>, Box<dyn Error>> {
    let opened = open(path, &OpenOptions { create: Some(CAPACITY), ..OpenOptions::default() })?;
    if opened.created {
        // The heap draws no randomness. The caller that creates a region passes it in.
        let mut random = [0; 24];
        std::fs::File::open("/dev/urandom")?.read_exact(&mut random)?;
        let (salt, seed) = random.split_at(16);
        let new = NewRegion {
            salt: salt.try_into()?,
            hash_seed: u64::from_le_bytes(seed.try_into()?),
            created_ms: 0,
        };
        create(&*opened.media, &new)?;
    }
    Ok(opened.media)
}

/// Reads every slab, settles what a crash may have left at its end, and takes every record found as current.
fn recover(media: Arc<dyn Media>) -> Result<(Arc<Heap>, Vec<Found>), Box<dyn Error>> {
    let mut opening = Opening::begin(media)?;
    let mut found = Vec::new();
    for unit in opening.units() {
        opening.scan(unit, |record, _| found.push(record))?;
    }
    // Here nothing supersedes anything; an owner with versions says what is newer.
    opening.resolve(&|_: &Heap, _: u64, _: u64| false, |record, _| found.push(record))?;
    for record in &found {
        opening.adopt(record.slot, &opening.heap().record(record.slot)?)?;
    }
    Ok((opening.finish()?, found))
}

/// Appends two records, one with its value inside and one with its value in frames, behind one fence.
fn append(heap: &Arc<Heap>) -> Result<(), Box<dyn Error>> {
    let mut writer = Writer::new(Arc::clone(heap), 0);
    for value in [&b"short"[..], &[7; 5000]] {
        let key = format!("value of {} bytes", value.len());
        let slot = writer.append(&Entry {
            kind: Kind::Put,
            space: 0,
            hash: heap.hash(0, key.as_bytes()),
            key: key.as_bytes(),
            key_at: None,
            value: Source::Bytes(value),
            arrival_ns: 0,
            expiry_ms: 0,
            aux: 0,
        })?;
        println!("appended {slot:?}, durable: {}", heap.pending(slot).is_none());
    }
    let appended = writer.so_far();
    writer.commit_now()?;
    println!("committed: all durable: {}", appended.if_durable(heap).is_ok());
    Ok(())
}
