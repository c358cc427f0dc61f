//! Opens (or creates) a region of 256 MiB and times the persistence seam on it.
//!
//! `cargo run --release -p landfall-media --example media_costs -- /dev/shm/region`
#![allow(clippy::print_stdout, reason = "it is a command-line example")]

use std::error::Error;
use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

use landfall_media::{BLOCK_SIZE, Dirty, Extent, Media, OpenOptions, RUN_SIZE, Site, open, persist};

const CAPACITY: u64 = 256 * RUN_SIZE;
const STEPS: u64 = 20_000;
const BATCHES: u64 = 1_000;

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("usage: media_costs PATH")?;
    let options = OpenOptions { create: Some(CAPACITY), ..OpenOptions::default() };
    let opened = open(Path::new(&path), &options)?;
    let media = &*opened.media;
    println!("{}", media.describe());
    while media.load_some()? {}
    for run in 0..64.min(media.len() / RUN_SIZE) {
        media.back_run(run * RUN_SIZE)?;
    }
    per_call(media)?;
    batches(media)
}

/// Costs of the single operations on 1 KiB that is in the cache.
fn per_call(media: &dyn Media) -> Result<(), Box<dyn Error>> {
    let (value, mut dirty) = ([7_u8; 1024], Dirty::new());
    let at = |step: u64| Extent::new(64 * RUN_SIZE + step % 64 * 1024, 1024);
    report("bytes 1 KiB", STEPS, || media.bytes(at(1)).map(|bytes| _ = black_box(bytes)))?;
    let mut step = 0;
    report("store 1 KiB", STEPS, || {
        step += 1;
        media.store(at(step).off, &value)
    })?;
    report("store, flush 1 KiB", STEPS, || {
        step += 1;
        media.store(at(step).off, &value)?;
        media.flush(&mut dirty, Site::Data, at(step));
        Ok(())
    })?;
    if media.kind().is_byte_addressable() {
        report("store, flush, fence 1 KiB", STEPS, || {
            step += 1;
            media.store(at(step).off, &value)?;
            persist(media, at(step), Site::Data, Site::Commit)
        })?;
    } else {
        report("file_writes", STEPS, || {
            _ = black_box(media.file_writes(&dirty));
            Ok(())
        })?;
    }
    Ok(())
}

/// Batches of 16 KiB, one after the other: first where zeroes were written ahead, then where they were not.
fn batches(media: &dyn Media) -> Result<(), Box<dyn Error>> {
    for (name, start) in [("batch 16 KiB, prepared", 16), ("batch 16 KiB, far ahead", 200)] {
        let mut off = start * RUN_SIZE;
        report(name, BATCHES, || {
            media.store(off, &[9; 16 << 10])?;
            let done = persist(media, Extent::new(off, 16 << 10), Site::Data, Site::Commit);
            off += 4 * BLOCK_SIZE;
            done
        })?;
    }
    Ok(())
}

fn report(
    name: &str,
    steps: u64,
    mut step: impl FnMut() -> Result<(), landfall_media::MediaError>,
) -> Result<(), Box<dyn Error>> {
    let start = Instant::now();
    for _ in 0..steps {
        step()?;
    }
    let each = start.elapsed().as_nanos() as f64 / steps as f64;
    println!("{name:28} {each:10.1} ns");
    Ok(())
}
