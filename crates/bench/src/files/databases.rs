//! LevelDB on a folder, as its `db_bench` has it: keys of 16 bytes, values of 1 KiB that do not compress.

use crate::common::error::BenchError;
use crate::files::args::FsArgs;
use crate::files::ran::{Failed, Ran, for_seconds};
use crate::files::random::Random;
use crate::stores::{Durability, LevelDb};
use std::path::Path;

/// Bytes of a value.
const VALUE_BYTES: usize = 1024;
/// Keys of the database that is read.
const KEYS: u64 = 100_000;
/// Keys of it in a quick run.
const KEYS_QUICK: u64 = 1000;
/// Keys of which fillrandom puts some.
const RANDOM_KEYS: u64 = 1_000_000;
/// One key in so many is hot.
const HOT_PART: u64 = 100;

fn keys(args: &FsArgs) -> u64 {
    if args.quick { KEYS_QUICK } else { KEYS }
}

fn key_of(number: u64) -> String {
    format!("{number:016}")
}

/// Bytes that no compression shortens.
fn value_of(number: u64) -> Vec<u8> {
    let mut random = Random::new(number);
    (0..VALUE_BYTES / 8).flat_map(|_| random.word().to_le_bytes()).collect()
}

/// Whether LevelDB is there.
///
/// # Errors
/// [`BenchError::Missing`] says what to install.
pub(crate) fn check_leveldb() -> Result<(), BenchError> {
    LevelDb::check().map_err(|error| BenchError::Missing(error.to_string()))
}

/// Makes the database that is read.
pub(super) fn prepare(files: &Path, args: &FsArgs) -> Result<(), Failed> {
    let db = LevelDb::open_in_files(&files.join("db"), Durability::Unsynced)?;
    let mut batch = db.batch();
    for number in 0..keys(args) {
        db.prepare(&mut batch, key_of(number).as_bytes(), &value_of(number));
        db.write(&mut batch)?;
    }
    Ok(())
}

/// `fillsync` and `fillseq`: puts keys in their order.
pub(super) fn fill(files: &Path, args: &FsArgs, durability: Durability) -> Result<Ran, Failed> {
    let mut numbers = 0..;
    put(files, args, durability, || numbers.next().unwrap_or_default())
}

/// `fillrandom`: puts keys in no order.
pub(super) fn fill_randomly(files: &Path, args: &FsArgs) -> Result<Ran, Failed> {
    let mut random = Random::new(0);
    put(files, args, Durability::Unsynced, || random.below(RANDOM_KEYS))
}

/// Puts the keys of which `next` says the numbers.
fn put(
    files: &Path,
    args: &FsArgs,
    durability: Durability,
    mut next: impl FnMut() -> u64,
) -> Result<Ran, Failed> {
    let db = LevelDb::open_in_files(&files.join("db"), durability)?;
    let mut batch = db.batch();
    for_seconds(args.seconds, || {
        let number = next();
        db.prepare(&mut batch, key_of(number).as_bytes(), &value_of(number));
        Ok(db.write(&mut batch)?)
    })
}

/// `readseq`: goes through all values in the order of their keys, again and again.
pub(super) fn read_in_order(files: &Path, args: &FsArgs) -> Result<Ran, Failed> {
    let db = LevelDb::open_in_files(&files.join("db"), Durability::Unsynced)?;
    let (mut cursor, mut read) = (db.cursor(), 0);
    for_seconds(args.seconds, || match cursor.next_len()? {
        Some(VALUE_BYTES) => {
            read += 1;
            Ok(())
        }
        None if read == keys(args) => {
            read = 0;
            cursor.rewind();
            Ok(())
        }
        found => Err(std::io::Error::other(format!("LevelDB has lost a value: {found:?} at {read}")).into()),
    })
}

/// `readrandom`: gets keys at random.
pub(super) fn read(files: &Path, args: &FsArgs) -> Result<Ran, Failed> {
    read_of(files, args, keys(args))
}

/// `readhot`: gets keys at random, all of a hundredth of them.
pub(super) fn read_hot(files: &Path, args: &FsArgs) -> Result<Ran, Failed> {
    read_of(files, args, keys(args) / HOT_PART)
}

/// Gets some of the first so many keys.
fn read_of(files: &Path, args: &FsArgs, keys: u64) -> Result<Ran, Failed> {
    let db = LevelDb::open_in_files(&files.join("db"), Durability::Unsynced)?;
    let mut random = Random::new(0);
    for_seconds(args.seconds, || {
        let number = random.below(keys);
        match db.value_len(key_of(number).as_bytes())? {
            Some(VALUE_BYTES) => Ok(()),
            found => Err(std::io::Error::other(format!("LevelDB has lost a value: {found:?}")).into()),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_in_order_and_values_do_not_repeat() {
        assert_eq!(key_of(1_234_567).as_bytes(), b"0000000001234567");
        assert!(key_of(99) < key_of(100));
        assert_eq!(value_of(1).len(), VALUE_BYTES);
        assert_ne!(value_of(1)[..8], value_of(1)[8..16]);
    }
}
