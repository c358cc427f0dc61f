//! The cost of cleaning: bytes written over bytes received, by the share of the region that is live.
//!
//! `cargo run --release -p landfall-kv --example cleaning -- PATH [MEBIBYTES] [VALUE_BYTES]`. Each row creates a new
//! region at the path and removes it.
#![allow(clippy::print_stdout, reason = "it is a command-line example")]

#[path = "../tests/churn/mod.rs"]
mod churn;

use churn::{Churn, Keys};
use landfall_heap::{NewRegion, create};
use landfall_kv::{Engine, Recovery};
use landfall_media::{OpenOptions, RUN_SIZE, open};
use std::error::Error;
use std::path::Path;

/// Bytes received before the count begins, and again while it runs, as a multiple of the region's size.
const TIMES: f64 = 4.0;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("usage: cleaning PATH [MEBIBYTES] [VALUE_BYTES]")?;
    let runs: u64 = arguments.next().map_or(Ok(512), |text| text.parse())?;
    let value_bytes: usize = arguments.next().map_or(Ok(1024), |text| text.parse())?;
    println!("{runs} MiB, values of {value_bytes} B");
    println!("| live | keys | amplification | data moved | records | zeroes |");
    println!("|---|---|---|---|---|---|");
    for share in [1.0 / 3.0, 0.6, 0.8] {
        for keys in [Keys::Uniform, Keys::Zipf(0.99)] {
            let mut churn = Churn::new(region(Path::new(&path), runs)?, value_bytes, share);
            churn.load();
            churn.overwrite(keys, TIMES);
            let traffic = churn.overwrite(keys, TIMES);
            let of_received = |bytes: u64| bytes as f64 / traffic.received as f64;
            println!(
                "| {:.0} % | {keys:?} | {:.2} | {:.2} | {:.2} | {:.2} |",
                share * 100.0,
                traffic.amplification(),
                of_received(traffic.moved),
                of_received(traffic.records),
                of_received(traffic.zeroes),
            );
        }
    }
    Ok(())
}

fn region(path: &Path, runs: u64) -> Result<Engine, Box<dyn Error>> {
    let opened = open(path, &OpenOptions { create: Some(runs * RUN_SIZE), ..OpenOptions::default() })?;
    if !opened.created {
        return Err("the path exists already: name a new one".into());
    }
    // The file remains until it is closed.
    std::fs::remove_file(path)?;
    create(&*opened.media, &NewRegion { salt: [1; 16], hash_seed: 2, created_ms: 3 })?;
    Ok(Recovery::run(opened.media, 4)?.0)
}
