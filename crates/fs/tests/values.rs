//! Values of keys as files, and files as values of keys: both refer to the same bytes, and keep them.

mod common;

use common::{OPTIONS, ROOT, RUNS};
use landfall_fs::FileType;
use landfall_fs::{
    FilePart, Files, FilesRecovery, FsError, Imported, InodeNumber, Mode, Name, NewFile, Operation,
    Publisher, TreeError,
};
use landfall_heap::{
    CompactGoal, Compactor, CopyPath, Heap, ItemPart, NewRegion, Owner, OwnerBySpace, Region, Source, Tenant,
    Writer, create, spaces,
};
use landfall_kv::{Engine, KeyCheck, Recovery, SetRequest, TxnKey};
use landfall_media::sim::{SimMedia, SimOptions};
use landfall_media::{Extent, Media, RUN_SIZE};
use std::sync::Arc;

/// Most bytes that are copied for the fields of operations and names.
const LITTLE: u64 = 1024;
const KEY: &[u8] = b"key";

/// Keys and files in one region.
struct Both {
    media: Arc<SimMedia>,
    heap: Arc<Heap>,
    engine: Engine,
    writer: Writer,
    files: Arc<Files>,
    publisher: Publisher,
    compactor: Compactor,
}

fn name(text: &str) -> Name<'_> {
    Name::new(text.as_bytes()).expect("a good name")
}

fn bytes(seed: u8, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8 ^ seed ^ (at >> 12) as u8).collect()
}

impl Both {
    fn new() -> Self {
        let media = SimMedia::new(RUNS * RUN_SIZE, SimOptions::default());
        create(&*media, &NewRegion { salt: [1; 16], hash_seed: 2, created_ms: 3 }).expect("a new region");
        Self::open(media)
    }

    fn open(media: Arc<SimMedia>) -> Self {
        let (keys, files) = (Arc::new(Recovery::new(4)), Arc::new(FilesRecovery::default()));
        let tenants = vec![Arc::clone(&keys) as Arc<dyn Tenant>, Arc::clone(&files) as Arc<dyn Tenant>];
        let (heap, found) = Region::run(Arc::clone(&media) as Arc<dyn Media>, tenants).expect("opens");
        assert!(found.damaged.is_empty() && found.damaged_values == 0, "{found:?}");
        let (files, publisher, _) = files.open(&heap, &OPTIONS).expect("opens");
        let (writer, compactor) = (Writer::new(Arc::clone(&heap), 2), Compactor::new(Arc::clone(&heap)));
        Self { media, engine: keys.open(&heap), heap, writer, files, publisher, compactor }
    }

    fn reopened(self) -> Self {
        let media = Arc::clone(&self.media);
        drop(self);
        let left = media.crash_state().durable();
        Self::open(SimMedia::restart(&left, SimOptions::default()))
    }

    /// Sets the key to bytes that land in pieces of `piece` bytes, as packets do.
    fn set_landed(&mut self, bytes: &[u8], piece: usize) {
        let mut extents: Vec<Extent> = Vec::new();
        for run_bytes in bytes.chunks(RUN_SIZE as usize / 2) {
            let run = self.heap.take_landing_run().expect("a free run");
            let mut at = run;
            for part in run_bytes.chunks(piece) {
                let extent = Extent::new(at, part.len() as u32);
                self.heap.media().store(at, part).expect("stores");
                self.heap.runs().hold(extent);
                extents.push(extent);
                // Adjacent pieces would be one extent.
                at = extent.end() + 1;
            }
            self.heap.retire_landing_run(run);
        }
        let value = Source::Landed { extents: &extents, crc: None };
        let request = SetRequest { space: 0, key: KEY, key_at: None, value, expiry_ms: 0, arrival_ns: 1 };
        self.engine.set(&mut self.writer, &request).expect("there is room").ungated();
        extents.iter().for_each(|extent| self.heap.runs().release(*extent));
        self.writer.commit_now().expect("commits");
    }

    fn delete_key(&mut self) {
        let mut txn = self.engine.transaction([TxnKey { space: 0, key: KEY }], 1);
        txn.delete(0, KEY).expect("reads").ungated();
        txn.commit(&mut self.writer, 1).expect("there is room").ungated();
        self.writer.commit_now().expect("commits");
    }

    fn value(&self) -> Option<Vec<u8>> {
        let item = self.engine.get(0, KEY, 1).expect("reads").ungated()?;
        Some(item.to_vec().expect("reads"))
    }

    /// Makes a file of the key's value.
    fn import(&self, text: &str, replaces: bool) -> Result<Imported, FsError> {
        let txn = self.engine.transaction([TxnKey { space: 0, key: KEY }], 1);
        let item = txn.read(0, KEY).expect("reads").ungated().expect("it is there");
        let mode = Mode::new(FileType::File, 0o644);
        let new = NewFile { parent: ROOT, name: name(text), mode, uid: 1, gid: 2, replaces };
        self.files.import(9, &new, &item)
    }

    /// Makes the key's value of a file.
    fn export(&mut self, file: InodeNumber) {
        let mut txn = self.engine.transaction([TxnKey { space: 0, key: KEY }], 1);
        let writer = &mut self.writer;
        let taken = self.files.export(file, u64::MAX, |parts, pending| {
            let stored: Vec<&ItemPart<'_>> = parts
                .iter()
                .map(|part| match part {
                    FilePart::Stored(part) => part,
                    FilePart::Zeroes(_) => panic!("a hole"),
                })
                .collect();
            txn.put_parts(writer, 0, KEY, &stored, pending).expect("there is room");
            txn.commit(writer, 1).expect("there is room").ungated();
        });
        taken.expect("it is there");
        self.writer.commit_now().expect("commits");
    }

    /// Writes a file in pieces of one run at most. It is durable then.
    fn write(&self, text: &str, bytes: &[u8], piece: usize) -> InodeNumber {
        let number = self.write_only(text, bytes, piece);
        self.files.sync_all().expect("syncs");
        number
    }

    /// The same; nothing is durable.
    fn write_only(&self, text: &str, bytes: &[u8], piece: usize) -> InodeNumber {
        let number = self.files.take_number();
        let (place, mode) = (Some((ROOT, name(text))), Mode::new(FileType::File, 0o644));
        let create = Operation::Create { place, number, mode, uid: 0, gid: 0, rdev: 0 };
        self.files.execute(5, &create).expect("makes it");
        for (part, offset) in bytes.chunks(piece).zip((0..).step_by(piece)) {
            let run = self.heap.take_landing_run().expect("a free run");
            let extent = Extent::new(run, part.len() as u32);
            self.heap.media().store(run, part).expect("stores");
            self.heap.runs().hold(extent);
            self.files.write(number, offset, &[extent], 6).expect("writes");
            self.heap.runs().release(extent);
            self.heap.retire_landing_run(run);
        }
        number
    }

    fn unlink(&self, text: &str, number: InodeNumber) {
        let unlink = Operation::Unlink { parent: ROOT, name: name(text), is_directory: false };
        self.files.execute(7, &unlink).expect("unlinks");
        self.files.execute(8, &Operation::Release { number }).expect("releases");
    }

    fn file(&self, text: &str) -> Option<Vec<u8>> {
        let number = match self.files.lookup(ROOT, name(text)) {
            Ok(stat) => stat.number,
            Err(FsError::Tree(TreeError::NotFound)) => return None,
            Err(error) => panic!("{error}"),
        };
        let mut bytes = Vec::new();
        for part in self.files.read(number, 0..u64::MAX).expect("reads") {
            match part {
                FilePart::Zeroes(len) => bytes.resize(bytes.len() + len as usize, 0),
                FilePart::Stored(part) => {
                    assert!(part.item().verify().expect("reads"), "the checksum holds");
                    bytes.extend(part.to_vec(&self.heap).expect("reads"));
                }
            }
        }
        Some(bytes)
    }

    fn publish(&mut self) {
        while self.publisher.step().expect("publishes").operations > 0 {}
    }

    /// Moves all data.
    fn compact(&mut self) {
        let others = [(spaces::FILES, &*self.files as &dyn Owner)];
        let owner = OwnerBySpace { default: &self.engine, others: &others };
        while !self.compactor.step(&owner, CompactGoal::DENSE_DATA, 1 << 20).expect("compacts").is_idle {}
    }

    /// Bytes that were copied so far, without lists of extents.
    fn copied(&self) -> u64 {
        let paths = CopyPath::ALL.iter().map(|(path, _)| *path).filter(|path| *path != CopyPath::List);
        paths.map(|path| self.heap.copies.get(path)).sum()
    }
}

/// Checks the region as `landfall check` does.
fn check(media: Arc<SimMedia>) {
    common::check_beside(media, vec![Arc::new(KeyCheck::default())]);
}

#[test]
fn a_value_becomes_a_file_without_a_copy_and_the_file_outlives_it() {
    // A packet's payload, a block, and a size at which values are kept in pieces; more than one record holds.
    for (len, piece) in [(20, 20), (3000, 3000), (100_000, 1448), (1 << 20, 4096), (5 << 20, 1 << 18)] {
        let (mut both, value) = (Both::new(), bytes(1, len));
        both.set_landed(&value, piece);
        let before = both.copied();
        let made = both.import("file", false).expect("there is room");
        assert!(both.copied() - before < LITTLE, "{len} by {piece}: {}", both.copied() - before);
        assert!(both.file("file").expect("it is there") == value);
        let stat = both.files.stat(made.number).expect("it is there");
        assert_eq!((stat.inode.nlink, stat.inode.uid, stat.inode.gid), (1, 1, 2));
        both.publish();
        assert!(both.copied() - before < 2 * LITTLE, "published {len} by {piece}");
        both.delete_key();
        both.compact();
        assert!(both.file("file").expect("it is there") == value, "{len} by {piece}: after compaction");
        let mut both = both.reopened();
        assert_eq!(both.value(), None);
        both.compact();
        assert!(both.file("file").expect("it is there") == value, "{len} by {piece}: after a restart");
        check(both.media);
    }
}

#[test]
fn a_file_becomes_a_value_without_a_copy_and_the_value_outlives_it() {
    // One record, one that is short, records in pieces; a last block of few bytes, which its record holds itself.
    for (len, piece) in
        [(0, 4096), (10, 4096), (3000, 4096), (100_000, 1 << 20), (8202, 4096), (3 << 20, 1 << 20)]
    {
        for publishes in [false, true] {
            let (mut both, value) = (Both::new(), bytes(2, len));
            let file = both.write("file", &value, piece);
            if publishes {
                both.publish();
            }
            let before = both.copied();
            both.export(file);
            assert!(both.copied() - before < LITTLE, "{len} by {piece}: {}", both.copied() - before);
            assert!(both.value().expect("it is there") == value);
            both.unlink("file", file);
            both.publish();
            both.compact();
            assert!(both.value().expect("it is there") == value, "{len} by {piece}: after compaction");
            let mut both = both.reopened();
            assert_eq!(both.file("file"), None);
            both.compact();
            assert!(both.value().expect("it is there") == value, "{len} by {piece}: after a restart");
            check(both.media);
        }
    }
}

#[test]
fn what_keys_and_files_share_is_counted_once_and_moved_once() {
    let (mut both, value) = (Both::new(), bytes(3, 1 << 20));
    let empty = both.heap.runs().live_bytes();
    both.set_landed(&value, 1 << 19);
    let one = both.heap.runs().live_bytes();
    assert!(one - empty >= value.len() as u64);
    both.import("file", false).expect("there is room");
    both.publish();
    assert!(both.heap.runs().live_bytes() - one < 64 << 10, "the bytes are there once");
    let mut both = both.reopened();
    assert!(both.heap.runs().live_bytes() - one < 64 << 10, "recovery counts them once");
    // Half of each run is free, so that all is worth moving.
    both.compact();
    let moved = both.heap.copies.get(CopyPath::Moved);
    assert!((1 << 20..3 << 19).contains(&moved), "{moved} bytes are moved");
    assert_eq!(both.heap.unshared_bytes(), 0);
    let number = both.files.lookup(ROOT, name("file")).expect("it is there").number;
    both.delete_key();
    both.unlink("file", number);
    both.publish();
    assert!(both.heap.runs().live_bytes() < empty + (64 << 10), "nothing is left");
}

#[test]
fn a_name_that_is_taken_is_replaced_only_where_that_is_asked_for() {
    let (mut both, value) = (Both::new(), bytes(4, 10_000));
    both.set_landed(&value, 10_000);
    let old = both.write("file", &bytes(5, 5000), 1 << 20);
    assert!(matches!(both.import("file", false), Err(FsError::Tree(TreeError::Exists))));
    let made = both.import("file", true).expect("there is room");
    assert_eq!(made.replaced, Some(old));
    assert_eq!(both.files.stat(old).expect("it is open").inode.nlink, 0);
    assert!(both.file("file").expect("it is there") == value);
    let (number, place) = (both.files.take_number(), Some((ROOT, name("d"))));
    let mode = Mode::new(FileType::Directory, 0o755);
    let create = Operation::Create { place, number, mode, uid: 0, gid: 0, rdev: 0 };
    both.files.execute(5, &create).expect("makes it");
    assert!(matches!(both.import("d", true), Err(FsError::Tree(TreeError::IsADirectory))));
    let inodes = both.files.inode_count();
    both.publish();
    assert_eq!(both.reopened().files.inode_count(), inodes - 1, "what was refused has left no inode");
}

/// A crash at any store, flush or fence leaves the old file or the new one, whole; the new one once it was durable.
#[test]
fn a_crash_leaves_the_old_file_or_the_new_one() {
    let (value, old) = (bytes(6, 30_000), bytes(7, 9000));
    let prepared = || {
        let mut both = Both::new();
        both.set_landed(&value, 1448);
        let number = both.write("file", &old, 1 << 20);
        both.publish();
        (both, number)
    };
    // What is done, and how many operations the medium has seen when the file was durable.
    let run = |both: &mut Both, number: InodeNumber| {
        let made = both.import("file", true).expect("there is room");
        both.files.sync(made.number).expect("syncs");
        let durable = both.media.ops().total();
        both.files.execute(8, &Operation::Release { number }).expect("releases");
        both.publish();
        both.delete_key();
        both.compact();
        durable
    };
    let (mut both, number) = prepared();
    let begin = both.media.ops().total();
    let durable = run(&mut both, number);
    let end = both.media.ops().total();
    let mut seen = [0, 0];
    for at in begin..=end {
        let (mut both, number) = prepared();
        both.media.freeze_at(at);
        run(&mut both, number);
        let state = both.media.frozen().unwrap_or_else(|| both.media.crash_state());
        drop(both);
        // What was stored and not fenced is there in part: which parts there are matters until the file is durable.
        let seeds = if at <= durable { 24 } else { 1 };
        for seed in 0..seeds {
            let image = state.draw(at * 64 + seed);
            let medium = || SimMedia::restart(&image, SimOptions::default());
            check(medium());
            let both = Both::open(medium());
            let file =
                both.file("file").unwrap_or_else(|| panic!("no file after a crash at {at}, seed {seed}"));
            let is_new = file == value;
            assert!(is_new || file == old, "a part of a file after a crash at {at}, seed {seed}");
            assert!(is_new || at < durable, "what was durable is gone after a crash at {at}, seed {seed}");
            assert!(both.value().is_none_or(|left| left == value), "the key's value after a crash at {at}");
            seen[usize::from(is_new)] += 1;
        }
    }
    assert!(seen[0] > 0 && seen[1] > 0, "{seen:?}");
}

/// A crash at any store, flush or fence leaves the key's old value or the file's bytes, whole, although nobody has synced the
/// file; these once the key was durable.
#[test]
fn a_crash_leaves_the_old_value_or_the_bytes_of_a_file_that_was_not_synced() {
    let (old, new) = (bytes(8, 5000), bytes(9, 20_000));
    let prepared = || {
        let mut both = Both::new();
        both.set_landed(&old, 1448);
        both
    };
    let run = |both: &mut Both| {
        let number = both.write_only("file", &new, 8192);
        let begin = both.media.ops().total();
        both.export(number);
        let durable = both.media.ops().total();
        both.files.sync_all().expect("syncs");
        (begin, durable)
    };
    let mut both = prepared();
    let (begin, durable) = run(&mut both);
    let mut seen = [0, 0];
    for at in begin..=durable {
        for seed in 0..24 {
            let mut both = prepared();
            both.media.freeze_at(at);
            run(&mut both);
            let state = both.media.frozen().unwrap_or_else(|| both.media.crash_state());
            drop(both);
            let image = state.draw(at * 64 + seed);
            let left = SimMedia::restart(&image, SimOptions::default());
            let value = Both::open(left).value().expect("it is there");
            assert!(
                value == old && at < durable || value == new,
                "crash at {at} of {begin}..{durable}, seed {seed}"
            );
            seen[usize::from(value == new)] += 1;
        }
    }
    assert!(seen[0] > 0 && seen[1] > 0, "{seen:?}");
}
