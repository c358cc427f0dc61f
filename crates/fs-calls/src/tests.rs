//! What a program sees through [`Calls`], beside what it sees without them: the same results, bytes and offsets.

use crate::calls::{Answered, Calls, Counts};
use crate::engine::{Engine, Errno, FileId, Opened, Refused, Use, Written};
use crate::kernel::Kernel;
use crate::table::{Access, Descriptor, Durable, Offset, Place, Table, Writes};
use proptest::prelude::*;
use std::io::{IoSlice, IoSliceMut};
use std::ops::RangeInclusive;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const EBADF: i32 = 9;
const EINVAL: i32 = 22;
const EFBIG: i32 = 27;
/// Bytes of the longest file.
const FILE_BYTES_MAX: u64 = 400;
const FD: i32 = 3;
const OTHER_FD: i32 = 4;
/// One file is open under both descriptors.
const FILE: FileId = FileId(0);

/// A file with two descriptors, as a kernel has them.
#[derive(Debug, Default)]
struct Machine {
    bytes: Vec<u8>,
    offsets: [u64; 2],
    synced: usize,
}

#[derive(Debug)]
struct Disk {
    machine: Mutex<Machine>,
    access: Access,
    writes: Writes,
}

impl Disk {
    fn new(access: Access, writes: Writes) -> Self {
        Self { machine: Mutex::default(), access, writes }
    }

    fn fill(bytes: &[u8], offset: u64, space: &mut [IoSliceMut<'_>]) -> usize {
        let mut rest = bytes.get(offset as usize..).unwrap_or_default();
        let begun = rest.len();
        for slice in space {
            let here = slice.len().min(rest.len());
            slice[..here].copy_from_slice(&rest[..here]);
            rest = &rest[here..];
        }
        begun - rest.len()
    }

    fn put(bytes: &mut Vec<u8>, offset: u64, data: &[IoSlice<'_>]) -> usize {
        let data: Vec<u8> = data.iter().flat_map(|slice| slice.iter().copied()).collect();
        let (from, to) = (offset as usize, offset as usize + data.len());
        if !data.is_empty() {
            bytes.resize(bytes.len().max(to), 0);
            bytes[from..to].copy_from_slice(&data);
        }
        data.len()
    }

    fn read_from(&self, offset: i64, space: &mut [IoSliceMut<'_>]) -> Result<usize, Errno> {
        let offset = u64::try_from(offset).map_err(|_| Errno(EINVAL))?;
        if !self.access.reads() {
            return Err(Errno(EBADF));
        }
        Ok(Self::fill(&self.machine.lock().unwrap().bytes, offset, space))
    }

    fn write_to(&self, offset: i64, data: &[IoSlice<'_>]) -> Result<usize, Errno> {
        let offset = u64::try_from(offset).map_err(|_| Errno(EINVAL))?;
        if !self.access.writes() {
            return Err(Errno(EBADF));
        }
        let mut machine = self.machine.lock().unwrap();
        let offset = if self.writes == Writes::AtEnd { machine.bytes.len() as u64 } else { offset };
        if !data.iter().all(|slice| slice.is_empty()) && !fits(offset, data) {
            return Err(Errno(EFBIG));
        }
        Ok(Self::put(&mut machine.bytes, offset, data))
    }
}

/// All of the data, from `start` on.
fn written_from(start: u64, data: &[IoSlice<'_>]) -> Written {
    let len = data.iter().map(|slice| slice.len() as u64).sum();
    Written { end: start + len, len }
}

impl Kernel for Disk {
    fn refresh(&self, _fd: i32) {}

    fn is_single_threaded(&self) -> bool {
        true
    }

    fn seek(&self, fd: i32, offset: i64, whence: i32) -> Result<u64, Errno> {
        let mut machine = self.machine.lock().unwrap();
        let index = usize::try_from(fd - FD).unwrap();
        let from = match whence {
            0 => 0,
            1 => machine.offsets[index],
            2 => machine.bytes.len() as u64,
            _ => return Err(Errno(EINVAL)),
        };
        let found = from.checked_add_signed(offset).filter(|found| *found <= i64::MAX as u64);
        machine.offsets[index] = found.ok_or(Errno(EINVAL))?;
        Ok(machine.offsets[index])
    }

    fn read(&self, fd: i32, space: &mut [IoSliceMut<'_>]) -> Result<usize, Errno> {
        let offset = self.seek(fd, 0, 1)?;
        let read = self.read_from(offset.cast_signed(), space)?;
        self.seek(fd, read.cast_signed() as i64, 1).map(|_| read)
    }

    fn write(&self, fd: i32, data: &[IoSlice<'_>]) -> Result<usize, Errno> {
        let offset = self.seek(fd, 0, 1)?;
        let written = self.write_to(offset.cast_signed(), data)?;
        if written > 0 && self.writes == Writes::AtEnd {
            self.seek(fd, 0, 2)?;
        } else {
            self.seek(fd, written.cast_signed() as i64, 1)?;
        }
        Ok(written)
    }

    fn sync(&self, _fd: i32) -> Result<(), Errno> {
        let mut machine = self.machine.lock().unwrap();
        machine.synced = machine.bytes.len();
        Ok(())
    }
}

fn fits(offset: u64, data: &[IoSlice<'_>]) -> bool {
    let len: usize = data.iter().map(|slice| slice.len()).sum();
    offset.checked_add(len as u64).is_some_and(|end| end <= FILE_BYTES_MAX)
}

/// Answers from the disk, and refuses some calls.
#[derive(Debug)]
struct Sometimes<'d> {
    disk: &'d Disk,
    /// A bit for each of 64 calls, from the lowest one on: set, the call is refused.
    refused: u64,
    calls: AtomicU64,
    /// Something was lost, and nobody was told of it yet.
    has_lost: AtomicBool,
}

impl<'d> Sometimes<'d> {
    fn new(disk: &'d Disk, refused: u64) -> Self {
        Self { disk, refused, calls: AtomicU64::new(0), has_lost: AtomicBool::new(false) }
    }
}

impl Sometimes<'_> {
    fn check(&self) -> Result<(), Refused> {
        let call = self.calls.fetch_add(1, Ordering::Relaxed) % 64;
        if self.refused >> call & 1 != 0 { Err(Refused::PassOn) } else { Ok(()) }
    }
}

impl Engine for Sometimes<'_> {
    fn open(&self, _opened: &Opened) -> Option<FileId> {
        Some(FILE)
    }

    fn close(&self, _file: FileId) {}

    fn is_ready(&self, _file: FileId, _using: Use) -> bool {
        self.check().is_ok()
    }

    fn read_at(&self, _file: FileId, offset: u64, space: &mut [IoSliceMut<'_>]) -> Result<usize, Refused> {
        self.check()?;
        Ok(Disk::fill(&self.disk.machine.lock().unwrap().bytes, offset, space))
    }

    fn write_at(&self, _file: FileId, offset: u64, data: &[IoSlice<'_>]) -> Result<Written, Refused> {
        self.check()?;
        if !fits(offset, data) {
            return Err(Refused::PassOn);
        }
        Disk::put(&mut self.disk.machine.lock().unwrap().bytes, offset, data);
        Ok(written_from(offset, data))
    }

    fn append(&self, _file: FileId, data: &[IoSlice<'_>]) -> Result<Written, Refused> {
        self.check()?;
        let mut machine = self.disk.machine.lock().unwrap();
        let end = machine.bytes.len() as u64;
        if !fits(end, data) {
            return Err(Refused::PassOn);
        }
        Disk::put(&mut machine.bytes, end, data);
        Ok(written_from(end, data))
    }

    fn size(&self, _file: FileId) -> Result<u64, Refused> {
        self.check()?;
        Ok(self.disk.machine.lock().unwrap().bytes.len() as u64)
    }

    fn sync(&self, _file: FileId) -> Result<(), Refused> {
        self.check()?;
        let mut machine = self.disk.machine.lock().unwrap();
        machine.synced = machine.bytes.len();
        Ok(())
    }

    fn at_stake(&self, _file: FileId) -> Option<u64> {
        self.has_lost.load(Ordering::Relaxed).then_some(1)
    }

    fn has_lost(&self, _file: FileId, _at_stake: u64) -> bool {
        self.has_lost.swap(false, Ordering::Relaxed)
    }

    fn leave(&self, _file: FileId) {}

    fn forked(&self) {}

    fn loses(&self, _descriptors: RangeInclusive<u32>) {}
}

/// What a program does with a descriptor.
#[derive(Clone, Debug)]
enum Act {
    Read(usize),
    Write(Vec<u8>),
    ReadFrom(i64, usize),
    WriteTo(i64, Vec<u8>),
    Seek(i64, i32),
    Sync,
    /// Something that looks at the offset.
    Show,
    /// Something after which the offset is shared.
    Share,
    /// Something after which the kernel answers everything.
    Leave,
}

/// What it sees.
#[derive(Debug, PartialEq)]
enum Seen {
    Bytes(Vec<u8>),
    Number(u64),
}

fn acts() -> impl Strategy<Value = Act> {
    let bytes = || prop::collection::vec(any::<u8>(), 0..20);
    prop_oneof![
        4 => (0..24_usize).prop_map(Act::Read),
        4 => bytes().prop_map(Act::Write),
        3 => (-2..60_i64, 0..24_usize).prop_map(|(offset, len)| Act::ReadFrom(offset, len)),
        3 => (-2..60_i64, bytes()).prop_map(|(offset, data)| Act::WriteTo(offset, data)),
        4 => (-30..60_i64, -1..4_i32).prop_map(|(offset, whence)| Act::Seek(offset, whence)),
        1 => Just(Act::Seek(i64::MAX, 1)),
        1 => Just(Act::Sync),
        1 => Just(Act::Show),
        1 => Just(Act::Share),
        1 => Just(Act::Leave),
    ]
}

/// Does it without the library.
fn directly(disk: &Disk, fd: i32, act: &Act) -> Result<Seen, Errno> {
    match act {
        Act::Read(len) => {
            let mut bytes = vec![0; *len];
            let read = disk.read(fd, &mut [IoSliceMut::new(&mut bytes)])?;
            Ok(Seen::Bytes(bytes[..read].to_vec()))
        }
        Act::ReadFrom(offset, len) => {
            let mut bytes = vec![0; *len];
            let read = disk.read_from(*offset, &mut [IoSliceMut::new(&mut bytes)])?;
            Ok(Seen::Bytes(bytes[..read].to_vec()))
        }
        Act::Write(data) => disk.write(fd, &[IoSlice::new(data)]).map(|n| Seen::Number(n as u64)),
        Act::WriteTo(offset, data) => {
            disk.write_to(*offset, &[IoSlice::new(data)]).map(|n| Seen::Number(n as u64))
        }
        Act::Seek(offset, whence) => disk.seek(fd, *offset, *whence).map(Seen::Number),
        Act::Sync => disk.sync(fd).map(|()| Seen::Number(0)),
        // A program that looks at the offset sees that of the kernel.
        Act::Show | Act::Share | Act::Leave => disk.seek(fd, 0, 1).map(Seen::Number),
    }
}

/// Does it with the library.
fn through(calls: &Calls<'_>, disk: &Disk, fd: i32, act: &Act) -> Result<Seen, Errno> {
    fn number(answered: Answered<usize>) -> Option<Result<Seen, Errno>> {
        answered.map(|result| result.map(|n| Seen::Number(n as u64)))
    }
    let mut bytes = vec![0; 64];
    let seen = match act {
        Act::Read(len) => number(calls.read(fd, &mut [IoSliceMut::new(&mut bytes[..*len])])),
        Act::ReadFrom(offset, len) => {
            number(calls.read_from(fd, *offset, &mut [IoSliceMut::new(&mut bytes[..*len])]))
        }
        // In two parts, of which the first may be empty.
        Act::Write(data) => {
            let (head, tail) = data.split_at(data.len() / 2);
            number(calls.write(fd, &[IoSlice::new(head), IoSlice::new(tail)]))
        }
        Act::WriteTo(offset, data) => number(calls.write_to(fd, *offset, &[IoSlice::new(data)])),
        Act::Seek(offset, whence) => calls.seek(fd, *offset, *whence).map(|found| found.map(Seen::Number)),
        Act::Sync => calls.sync(fd).map(|done| done.map(|()| Seen::Number(0))),
        Act::Show => {
            calls.shows_offset(fd);
            None
        }
        Act::Share => {
            calls.shares(fd);
            None
        }
        Act::Leave => {
            calls.leaves(fd);
            None
        }
    };
    match (seen, act) {
        (None, _) => directly(disk, fd, act),
        (Some(Ok(Seen::Number(read))), Act::Read(_) | Act::ReadFrom(..)) => {
            bytes.truncate(read as usize);
            Ok(Seen::Bytes(bytes))
        }
        (Some(seen), _) => seen,
    }
}

fn descriptor(access: Access, writes: Writes) -> Descriptor {
    Descriptor { file: FILE, access, writes, durable: Durable::Later, offset: Offset::Here(0) }
}

fn places() -> Vec<Place> {
    (0..8).map(|_| Place::new()).collect()
}

proptest! {
    #[test]
    fn a_program_sees_the_same_with_the_library_as_without_it(
        access in prop::sample::select(vec![Access::Read, Access::Write, Access::Both]),
        appends: bool,
        refused: u64,
        acts in prop::collection::vec((any::<bool>(), acts()), 1..60),
    ) {
        let writes = if appends { Writes::AtEnd } else { Writes::AtOffset };
        let (plain, disk, places) = (Disk::new(access, writes), Disk::new(access, writes), places());
        plain.machine.lock().unwrap().bytes = vec![7; 30];
        disk.machine.lock().unwrap().bytes = vec![7; 30];
        let engine = Sometimes::new(&disk, refused);
        let (table, counts) = (Table::new(&places), Counts::new());
        let calls = Calls { table: &table, engine: &engine, kernel: &disk, counts: &counts };
        for fd in [FD, OTHER_FD] {
            calls.opened(fd, || Some(descriptor(access, writes)));
        }
        for (is_other, act) in &acts {
            let fd = if *is_other { OTHER_FD } else { FD };
            prop_assert_eq!(through(&calls, &disk, fd, act), directly(&plain, fd, act), "{:?}", act);
        }
        calls.shares_all();
        let (plain, disk) = (plain.machine.lock().unwrap(), disk.machine.lock().unwrap());
        prop_assert_eq!(&plain.bytes, &disk.bytes);
        prop_assert_eq!(plain.offsets, disk.offsets);
    }
}

#[test]
fn calls_of_threads_at_one_offset_do_not_overlap() {
    const THREADS: usize = 4;
    const WRITES: usize = 12;
    let (disk, places) = (Disk::new(Access::Both, Writes::AtOffset), places());
    let engine = Sometimes::new(&disk, 0x1248_8421_1111_0f0f);
    let (table, counts) = (Table::new(&places), Counts::new());
    let calls = Calls { table: &table, engine: &engine, kernel: &disk, counts: &counts };
    calls.opened(FD, || Some(descriptor(Access::Both, Writes::AtOffset)));
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || {
                for _ in 0..WRITES {
                    let line = [thread as u8; 8];
                    assert_eq!(calls.write(FD, &[IoSlice::new(&line)]), Some(Ok(line.len())));
                }
            });
        }
    });
    let bytes = &disk.machine.lock().unwrap().bytes;
    assert_eq!(bytes.len(), THREADS * WRITES * 8, "no write is lost");
    for thread in 0..THREADS {
        let lines = bytes.chunks(8).filter(|line| line.iter().all(|byte| *byte == thread as u8));
        assert_eq!(lines.count(), WRITES, "and none is torn");
    }
}

#[test]
fn what_is_written_at_once_durably_is_synced_by_whoever_can() {
    for refused in [0, u64::MAX << 1] {
        let (disk, places) = (Disk::new(Access::Both, Writes::AtOffset), places());
        let engine = Sometimes::new(&disk, refused);
        let (table, counts) = (Table::new(&places), Counts::new());
        let calls = Calls { table: &table, engine: &engine, kernel: &disk, counts: &counts };
        let durable = Durable::AtOnce;
        calls.opened(FD, || Some(Descriptor { durable, ..descriptor(Access::Both, Writes::AtOffset) }));
        assert_eq!(calls.write(FD, &[IoSlice::new(b"bytes")]), Some(Ok(5)));
        assert_eq!(disk.machine.lock().unwrap().synced, 5);
        assert_eq!(counts.answered.load(Ordering::Relaxed), 1);
    }
}

#[test]
fn a_number_that_is_used_again_is_that_of_the_new_file() {
    let (disk, places) = (Disk::new(Access::Both, Writes::AtOffset), places());
    let engine = Sometimes::new(&disk, 0);
    let (table, counts) = (Table::new(&places), Counts::new());
    let calls = Calls { table: &table, engine: &engine, kernel: &disk, counts: &counts };
    calls.opened(FD, || Some(descriptor(Access::Both, Writes::AtOffset)));
    assert!(table.has(FD));
    calls.opened(FD, || None);
    assert!(!table.has(FD), "the new file is none of ours");
    calls.opened(1 << 20, || Some(descriptor(Access::Both, Writes::AtOffset)));
    assert!(!table.has(1 << 20), "there is no place for its number");
    for fd in [FD, OTHER_FD] {
        calls.opened(fd, || Some(descriptor(Access::Both, Writes::AtOffset)));
    }
    calls.leaves_range(OTHER_FD.unsigned_abs(), u32::MAX);
    assert!(table.has(FD) && !table.has(OTHER_FD));
}

#[test]
fn what_is_lost_is_said_once_when_the_kernel_has_made_the_file_durable() {
    let (disk, places) = (Disk::new(Access::Both, Writes::AtOffset), places());
    let engine = Sometimes::new(&disk, u64::MAX);
    let (table, counts) = (Table::new(&places), Counts::new());
    let calls = Calls { table: &table, engine: &engine, kernel: &disk, counts: &counts };
    calls.opened(FD, || Some(descriptor(Access::Both, Writes::AtOffset)));
    assert_eq!(calls.sync(FD), None, "the kernel's alone");
    disk.machine.lock().unwrap().bytes = b"0123".to_vec();
    engine.has_lost.store(true, Ordering::Relaxed);
    assert_eq!(calls.sync(FD), Some(Err(Errno(libc::EIO))));
    assert_eq!(disk.machine.lock().unwrap().synced, 4);
    assert_eq!(calls.sync(FD), None);
}

#[test]
fn duplicates_share_an_offset_and_outlive_each_other() {
    let (disk, places) = (Disk::new(Access::Both, Writes::AtOffset), places());
    disk.machine.lock().unwrap().bytes = b"0123456789".to_vec();
    let engine = Sometimes::new(&disk, 0);
    let (table, counts) = (Table::new(&places), Counts::new());
    let calls = Calls { table: &table, engine: &engine, kernel: &disk, counts: &counts };
    let next = |fd| {
        let mut byte = [0];
        calls.read(fd, &mut [IoSliceMut::new(&mut byte)]).expect("answered").expect("no error");
        byte[0]
    };
    calls.opened(FD, || Some(descriptor(Access::Both, Writes::AtOffset)));
    assert_eq!(calls.duplicates(FD, || Ok(OTHER_FD)), Some(Ok(OTHER_FD)));
    assert_eq!([FD, OTHER_FD, FD].map(next), *b"012");
    calls.closes(FD);
    calls.opened(FD, || Some(descriptor(Access::Both, Writes::AtOffset)));
    assert_eq!([OTHER_FD, FD, OTHER_FD, FD].map(next), *b"3041", "the new file has an offset of its own");
    assert_eq!(calls.duplicates(FD, || Err(Errno(EBADF))), Some(Err(Errno(EBADF))));
    assert_eq!(calls.duplicates(FD, || Ok(1 << 20)), Some(Ok(1 << 20)));
    assert_eq!(calls.seek(FD, 0, 1), None, "the kernel has the duplicate's offset");
    assert_eq!(disk.machine.lock().unwrap().offsets[0], 2);
}
