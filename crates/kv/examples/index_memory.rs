//! Memory per key of each index candidate, measured as the growth of the resident set.
//!
//! `cargo run --release -p landfall-kv --example index_memory`. Each candidate runs in a process of its own, so that
//! none reuses memory that another has freed.

#[path = "../benches/candidates/mod.rs"]
mod candidates;

use candidates::{HashAndSet, Index, Map, TableAndSet, Tree, random_keys};
use std::error::Error;
use std::process::Command;

/// Bytes of a page on x86-64, in which `/proc/self/statm` counts.
const PAGE_BYTES: u64 = 4096;
const COUNTS: [u32; 2] = [100_000, 1_000_000];

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    match (args.next(), args.next()) {
        (Some(name), Some(count)) => child(&name, count.parse()?),
        _ => parent(),
    }
}

#[expect(clippy::print_stdout, reason = "the table is the output")]
fn parent() -> Result<(), Box<dyn Error>> {
    println!("| index | keys | bytes a key |\n|---|---|---|");
    for name in [TableAndSet::NAME, HashAndSet::NAME, Map::NAME, Tree::NAME] {
        for count in COUNTS {
            let mut command = Command::new(std::env::current_exe()?);
            let ended = command.arg(name).arg(count.to_string()).status()?;
            if !ended.success() {
                return Err(format!("{name} ended with {ended}").into());
            }
        }
    }
    Ok(())
}

#[expect(clippy::print_stdout, reason = "a row of the table")]
fn child(name: &str, count: u32) -> Result<(), Box<dyn Error>> {
    let bytes = match name {
        TableAndSet::NAME => measure::<TableAndSet>(count)?,
        HashAndSet::NAME => measure::<HashAndSet>(count)?,
        Map::NAME => measure::<Map>(count)?,
        Tree::NAME => measure::<Tree>(count)?,
        other => return Err(format!("no candidate is named {other:?}").into()),
    };
    println!("| {name} | {count} | {:.0} |", bytes as f64 / f64::from(count));
    Ok(())
}

/// Fills an index key by key, as a server does, and returns the growth of the resident set. Then it checks the index.
fn measure<I: Index>(count: u32) -> Result<u64, Box<dyn Error>> {
    let keys = random_keys(count);
    let mut index = I::build(&[]);
    let before = resident_bytes()?;
    (0..).zip(&keys).for_each(|(slot, key)| index.insert(&keys, key, slot));
    let after = resident_bytes()?;
    index.overwrite(&keys, &keys[0], 0);
    if index.get(&keys, &keys[0]) != Some(0) || index.scan(&keys[0], 1) != u64::from(keys[0][15]) {
        return Err("the index lost a key".into());
    }
    Ok(after.saturating_sub(before))
}

fn resident_bytes() -> Result<u64, Box<dyn Error>> {
    let statm = std::fs::read_to_string("/proc/self/statm")?;
    let pages = statm.split_whitespace().nth(1).ok_or("no resident set in /proc/self/statm")?;
    Ok(pages.parse::<u64>()? * PAGE_BYTES)
}
