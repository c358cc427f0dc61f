//! The engine as a library: durable keys in a file, a device or shared memory, without a server.
//!
//! `cargo run -p landfall-kv --example embedded -- /dev/shm/embedded.region`
#![allow(clippy::print_stdout, reason = "it is a command-line example")]

use landfall_heap::{NewRegion, Source, Writer, create};
use landfall_kv::{Engine, KvError, RangeQuery, Recovery, SetRequest, TxnKey};
use landfall_media::{Media, OpenOptions, RUN_SIZE, open};
use std::error::Error;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

const CAPACITY: u64 = 64 * RUN_SIZE;
/// Shards of the index. More threads need more shards.
const SHARDS: usize = 4;
const DATABASE: u8 = 0;

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("usage: embedded PATH")?;
    let media = open_or_create(Path::new(&path))?;
    println!("{}", media.describe());
    let (engine, recovered) = Recovery::run(media, SHARDS)?;
    println!(
        "{} records found, {} keys",
        recovered.records + recovered.resolved.accepted,
        engine.count(DATABASE).ungated()
    );

    let mut writer = Writer::new(Arc::clone(engine.heap()), 0);
    count_starts(&engine, &mut writer)?;
    move_money(&engine, &mut writer)?;
    list(&engine, &mut writer)?;
    // The next start then need not verify the data of the last batch.
    engine.heap().mark_slabs(1)?;
    Ok(())
}

fn open_or_create(path: &Path) -> Result<Arc<dyn Media>, Box<dyn Error>> {
    let opened = open(path, &OpenOptions { create: Some(CAPACITY), ..OpenOptions::default() })?;
    if opened.created {
        let mut random = [0; 24];
        std::fs::File::open("/dev/urandom")?.read_exact(&mut random)?;
        let (salt, seed) = random.split_at(16);
        let (salt, hash_seed) = (salt.try_into()?, u64::from_le_bytes(seed.try_into()?));
        create(&*opened.media, &NewRegion { salt, hash_seed, created_ms: now_ms() })?;
    }
    Ok(opened.media)
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// Reads and writes one key. Results may depend on what is not durable yet; `settle` commits first.
fn count_starts(engine: &Engine, writer: &mut Writer) -> Result<(), KvError> {
    let known =
        writer.settle(engine.get(DATABASE, b"starts", now_ms())?)?.map(|item| item.to_vec()).transpose()?;
    let starts: u64 = known.and_then(|text| String::from_utf8(text).ok()?.parse().ok()).unwrap_or(0);
    let text = (starts + 1).to_string();
    let request = SetRequest {
        space: DATABASE,
        key: b"starts",
        key_at: None,
        value: Source::Bytes(text.as_bytes()),
        expiry_ms: 0,
        arrival_ns: now_ms() * 1_000_000,
    };
    let written = engine.set(writer, &request)?;
    writer.settle(written)?;
    println!("start number {text}");
    Ok(())
}

/// Changes two keys atomically: after a crash both are changed, or neither.
fn move_money(engine: &Engine, writer: &mut Writer) -> Result<(), KvError> {
    let accounts = [&b"account:a"[..], b"account:b"];
    let mut txn = engine.transaction(accounts.map(|key| TxnKey { space: DATABASE, key }), now_ms());
    let mut balances = [100i64, 0];
    for (balance, key) in balances.iter_mut().zip(accounts) {
        if let Some(item) = writer.settle(txn.read(DATABASE, key)?)? {
            *balance = String::from_utf8_lossy(&item.to_vec()?).parse().unwrap_or(*balance);
        }
    }
    for ((balance, change), key) in balances.into_iter().zip([-10, 10]).zip(accounts) {
        txn.put_bytes(DATABASE, key, (balance + change).to_string().into_bytes(), 0);
    }
    let moved = txn.commit(writer, now_ms() * 1_000_000)?;
    writer.settle(moved)?;
    Ok(())
}

/// Lists the keys in order, page by page.
fn list(engine: &Engine, writer: &mut Writer) -> Result<(), KvError> {
    let mut query = RangeQuery::all(DATABASE);
    loop {
        let page = writer.settle(engine.range(&query, 100, now_ms())?)?;
        for (key, item) in page.items {
            println!("{} = {}", String::from_utf8_lossy(&key), String::from_utf8_lossy(&item?.to_vec()?));
        }
        match page.last {
            Some(last) => query.resume_after(last),
            None => return Ok(()),
        }
    }
}
