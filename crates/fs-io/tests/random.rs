//! Random operations on a mounted file and on a file of the host's file system: both must always be the same (after fsx).

mod common;

use common::{Mounted, sys};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

/// Bytes of the longest file.
const FILE_BYTES: u64 = 400_000;
/// Bytes of the longest operation.
const RANGE_BYTES: usize = 150_000;
/// Operations of one case.
const STEPS: usize = 120;

#[derive(Clone, Debug)]
enum Step {
    Write {
        offset: u64,
        len: usize,
        seed: u8,
    },
    SetSize(u64),
    /// `FALLOC_FL_*`, offset, bytes.
    Allocate(i32, u64, usize),
    WriteMapped {
        offset: u64,
        len: usize,
        seed: u8,
    },
    Copy {
        from: u64,
        to: u64,
        len: usize,
    },
    Sync,
    Reopen,
}

fn offset() -> impl Strategy<Value = u64> {
    prop_oneof![0..FILE_BYTES, (0..FILE_BYTES / 4096).prop_map(|block| block * 4096)]
}

fn len() -> impl Strategy<Value = usize> {
    prop_oneof![1..200_usize, 1..RANGE_BYTES, (1..RANGE_BYTES / 4096).prop_map(|blocks| blocks * 4096)]
}

fn step() -> impl Strategy<Value = Step> {
    let punch = libc::FALLOC_FL_KEEP_SIZE | libc::FALLOC_FL_PUNCH_HOLE;
    let keep_zero = libc::FALLOC_FL_KEEP_SIZE | libc::FALLOC_FL_ZERO_RANGE;
    let modes = vec![0, libc::FALLOC_FL_KEEP_SIZE, punch, libc::FALLOC_FL_ZERO_RANGE, keep_zero];
    prop_oneof![
        6 => (offset(), len(), any::<u8>()).prop_map(|(offset, len, seed)| Step::Write { offset, len, seed }),
        2 => offset().prop_map(Step::SetSize),
        3 => (prop::sample::select(modes), offset(), len()).prop_map(|(mode, at, len)| Step::Allocate(mode, at, len)),
        2 => (offset(), len(), any::<u8>()).prop_map(|(offset, len, seed)| Step::WriteMapped { offset, len, seed }),
        2 => (offset(), offset(), len()).prop_map(|(from, to, len)| Step::Copy { from, to, len }),
        1 => Just(Step::Sync),
        1 => Just(Step::Reopen),
    ]
}

fn bytes(len: usize, seed: u8) -> Vec<u8> {
    let byte = |at: usize| (at.wrapping_mul(2_654_435_761) >> 11) as u8 ^ seed;
    (0..len).map(byte).collect()
}

/// A file, and what it is called.
struct Tested {
    file: File,
    path: std::path::PathBuf,
}

impl Tested {
    fn new(path: &Path) -> Self {
        let file = File::options().read(true).write(true).create(true).truncate(true).open(path).unwrap();
        Self { file, path: path.to_owned() }
    }

    fn len(&self) -> u64 {
        self.file.metadata().unwrap().size()
    }

    fn run(&mut self, step: &Step) {
        match *step {
            Step::Write { offset, len, seed } => self.file.write_all_at(&bytes(len, seed), offset).unwrap(),
            Step::SetSize(size) => self.file.set_len(size).unwrap(),
            Step::Allocate(mode, offset, len) => {
                sys::fallocate(&self.file, mode, offset, len as u64).unwrap();
            }
            Step::WriteMapped { offset, len, seed } => {
                let size = usize::try_from(self.len()).unwrap();
                if size > 0 {
                    let offset = usize::try_from(offset).unwrap() % size;
                    let new = bytes(len.min(size - offset), seed);
                    sys::mapped(&self.file, size, |all| {
                        all[offset..offset + new.len()].copy_from_slice(&new)
                    });
                }
            }
            Step::Copy { from, to, len } => self.copy(from, to, len),
            Step::Sync => self.file.sync_all().unwrap(),
            Step::Reopen => {
                self.file = File::options().read(true).write(true).open(&self.path).unwrap();
            }
        }
    }

    fn copy(&self, mut from: u64, mut to: u64, len: usize) {
        let mut left = len;
        let overlaps = from < to + len as u64 && to < from + len as u64;
        while left > 0 && !overlaps {
            let copied = sys::copy_range((&self.file, from), (&self.file, to), left).unwrap();
            if copied == 0 {
                break;
            }
            (from, to, left) = (from + copied, to + copied, left - usize::try_from(copied).unwrap());
        }
    }

    fn all(&self) -> Vec<u8> {
        std::fs::read(&self.path).unwrap()
    }

    /// Half of the file as a mapping shows it.
    fn mapped(&self) -> Vec<u8> {
        let half = usize::try_from(self.len() / 2).unwrap();
        if half == 0 { Vec::new() } else { sys::mapped(&self.file, half, |bytes| bytes.to_vec()) }
    }
}

/// The first difference, for people: the files themselves are long.
fn check_same(ours: &[u8], theirs: &[u8], after: &Step) -> Result<(), TestCaseError> {
    let at = ours.iter().zip(theirs).position(|(ours, theirs)| ours != theirs);
    prop_assert_eq!((at, ours.len()), (None, theirs.len()), "after {:?}", after);
    Ok(())
}

fn run(words: &[&'static str], cases: u32) {
    let Some(mut mounted) = Mounted::new(128, words) else { return };
    let host = tempfile::tempdir().unwrap();
    let mut runner = TestRunner::new(Config { cases, max_shrink_iters: 64, ..Config::default() });
    let steps = prop::collection::vec(step(), 1..STEPS);
    let done = runner.run(&steps, |steps| {
        let (mut ours, mut theirs) = (Tested::new(&mounted.at("f")), Tested::new(&host.path().join("f")));
        for step in &steps {
            ours.run(step);
            theirs.run(step);
            check_same(&ours.all(), &theirs.all(), step)?;
        }
        check_same(&ours.mapped(), &theirs.mapped(), &Step::Sync)
    });
    done.unwrap_or_else(|error| panic!("{error}"));
    mounted.stop();
    mounted.start();
    assert!(std::fs::read(mounted.at("f")).unwrap() == std::fs::read(host.path().join("f")).unwrap());
    mounted.stop();
}

#[test]
fn random_operations_do_what_they_do_on_the_host() {
    run(&[], 24);
}

#[test]
fn random_operations_do_what_they_do_on_the_host_with_every_change_durable() {
    run(&["always"], 6);
}

#[test]
fn random_operations_do_what_they_do_on_the_host_while_the_kernel_keeps_written_data() {
    run(&["writeback"], 12);
}
