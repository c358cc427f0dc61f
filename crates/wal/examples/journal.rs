//! The log service as a library: a journal in a file, a device or shared memory, without a server.
//!
//! `cargo run -p landfall-wal --example journal -- /dev/shm/journal.region`
#![allow(clippy::print_stdout, reason = "it is a command-line example")]

use landfall_heap::{NewRegion, Source, Writer, create};
use landfall_media::{Extent, Media, OpenOptions, RUN_SIZE, open};
use landfall_wal::{LogRecovery, Logs, ReadLimit, Settings, WalError};
use std::error::Error;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

const CAPACITY: u64 = 64 * RUN_SIZE;
const LOG: &[u8] = b"journal";
const CONSUMER: &[u8] = b"mirror";

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("usage: journal PATH")?;
    let (logs, found) = LogRecovery::run(open_or_create(Path::new(&path))?)?;
    println!("{} logs with {} entries found", found.logs, found.entries);

    let mut writer = Writer::new(Arc::clone(logs.heap()), 0);
    let appended =
        logs.append(&mut writer, LOG, &[Source::Bytes(b"begun"), Source::Bytes(b"ended")], now_ns())?;
    append_where_it_landed(&logs, &mut writer)?;
    // `settle` commits the batch: an append may be reported only once it is durable.
    let done = writer.settle(appended)?;
    println!("offsets {} and {} are durable", done.first, done.first + 1);

    mirror(&logs, &mut writer)?;
    // The journal keeps its last thousand entries.
    let kept = Settings { retain_entries: 1000, ..Settings::default() };
    let set = logs.set_settings(&mut writer, LOG, kept, now_ns())?;
    writer.settle(set)?;
    while logs.retain(&mut writer, now_ns() / 1_000_000)?.has_more {
        writer.commit_now()?;
    }
    writer.commit_now()?;
    logs.sweep(usize::MAX);
    // The next start then need not verify the data of the last batch.
    logs.heap().mark_slabs(1)?;
    Ok(())
}

fn open_or_create(path: &Path) -> Result<Arc<dyn Media>, Box<dyn Error>> {
    let opened = open(path, &OpenOptions { create: Some(CAPACITY), ..OpenOptions::default() })?;
    if opened.created {
        let mut random = [0; 24];
        std::fs::File::open("/dev/urandom")?.read_exact(&mut random)?;
        let (salt, seed) = random.split_at(16);
        let (salt, hash_seed) = (salt.try_into()?, u64::from_le_bytes(seed.try_into()?));
        create(&*opened.media, &NewRegion { salt, hash_seed, created_ms: now_ns() / 1_000_000 })?;
    }
    Ok(opened.media)
}

fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

/// Appends as a transport does: bytes land in a run that the heap has lent, and the log refers to them there.
fn append_where_it_landed(logs: &Logs, writer: &mut Writer) -> Result<(), Box<dyn Error>> {
    let heap = logs.heap();
    let run = heap.take_landing_run().ok_or("no run to land in")?;
    let landed = Extent::new(run, 1000);
    heap.media().store(landed.off, &[b'.'; 1000])?;
    heap.runs().hold(landed);
    let appended = logs.append(writer, LOG, &[Source::Landed { extents: &[landed], crc: None }], now_ns())?;
    writer.settle(appended)?;
    heap.runs().release(landed);
    heap.retire_landing_run(run);
    Ok(())
}

/// Reads the entries that are new since the last start, and stores the position.
fn mirror(logs: &Logs, writer: &mut Writer) -> Result<(), WalError> {
    let mut next = match logs.position(LOG, CONSUMER) {
        Ok(position) => writer.settle(position)?,
        Err(WalError::NoConsumer) => writer.settle(logs.stats_of(LOG)?)?.first,
        Err(error) => return Err(error),
    };
    loop {
        let page = writer.settle(logs.read(LOG, next, ReadLimit { entries: 100, bytes: 1 << 20 })?)?;
        for (offset, entry) in page.entries {
            println!("{offset}: {} bytes", entry?.len);
        }
        next = page.next;
        if next == page.end {
            break;
        }
    }
    let kept = logs.commit_position(writer, LOG, CONSUMER, next, now_ns())?;
    writer.settle(kept).map_err(WalError::from)
}
