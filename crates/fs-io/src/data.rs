//! Data of files: WRITE, READ, FALLOCATE, LSEEK, COPY_FILE_RANGE, FSYNC.

use crate::attributes::take_privileges;
use crate::clock;
use crate::counters::Counters;
use crate::errors::{INVALID, NOT_SUPPORTED};
use crate::landing::Data;
use crate::service::{Answer, Answered, Service, Written, number_of};
use crate::transport::Transport;
use landfall_fs::{Access, BLOCK_BYTES, FilePart, InodeNumber, Operation, Seek};
use landfall_fuse::{CopyFileRange, Errno, Read, Reply, Request, Sent, Unique, Write};
use landfall_heap::{CopyPath, Item};
use smallvec::SmallVec;
use std::io::IoSlice;

/// What holes read as.
static ZEROES: [u8; 64 << 10] = [0; 64 << 10];
/// Slices of one reply; a longer one is copied together (`UIO_MAXIOV`, less its head).
const SLICES_MAX: usize = 1023;
/// How often a copy is tried during which the lengths of its files change. Then the kernel copies.
const COPIES_MAX: usize = 4;

const DATA_SYNC: u32 = libc::O_DSYNC.cast_unsigned();
const DIRECT: u32 = libc::O_DIRECT.cast_unsigned();
const APPEND: u32 = libc::O_APPEND.cast_unsigned();
const SEEK_DATA: u32 = libc::SEEK_DATA.cast_unsigned();
const SEEK_HOLE: u32 = libc::SEEK_HOLE.cast_unsigned();

/// WRITE: the data are in the frames of `landing`, and stay there.
pub(crate) fn write(
    service: &Service,
    landing: &mut impl Data,
    request: &Request<'_>,
    write: &Write,
) -> Answered {
    let number = number_of(request.node);
    service.check_open()?;
    let _entered = service.enter(number, Access::Write);
    let time_ns = clock::now_ns();
    if write.kill_suid_gid {
        take_privileges(service, number)?;
    }
    let reply = Reply::written(request.unique, write.size);
    // What the kernel writes back is made durable by the FSYNC that follows.
    let is_synchronous = write.flags & DATA_SYNC != 0 && !write.from_cache;
    let answer =
        |reply| if is_synchronous { Answer::Durable(number, reply) } else { service.changed(number, reply) };
    let Some(offset) = place_of(service, request, write)? else { return Ok(answer(reply)) };
    let landed = service.retry(|| Ok(landing.hold(write.size)?))?;
    let written = service.retry(|| service.files.write(number, offset, &landed, time_ns));
    landing.release(&landed, written.is_ok());
    written?;
    if offset != write.offset {
        // What the kernel has read at the end meanwhile.
        service.note_moved(number);
    }
    service.note_written(number, offset..offset + u64::from(write.size));
    Counters::add(&service.common.counters.written_bytes, u64::from(write.size));
    Ok(answer(reply))
}

/// Where the bytes of a write go, or went.
struct Place {
    offset: u64,
    /// A server that has died has appended them.
    is_done: bool,
}

/// Where a write goes. `None`: a server that has died has appended the bytes.
///
/// The kernel has them in its pages already, where it believes the file to end, and shows them there. It is to drop them before
/// the write waits for space.
fn place_of(service: &Service, request: &Request<'_>, write: &Write) -> Result<Option<u64>, Errno> {
    let Place { offset, is_done } = find_place(service, request, write)?;
    if offset != write.offset {
        service.note_moved(number_of(request.node));
    }
    Ok((!is_done).then_some(offset))
}

fn find_place(service: &Service, request: &Request<'_>, write: &Write) -> Result<Place, Errno> {
    let find = || offset_of(service, number_of(request.node), write);
    if write.flags & APPEND == 0 {
        return Ok(Place { offset: find()?, is_done: false });
    }
    let begun = service.begin(request, || Ok([find()?, 0]))?;
    if begun.is_done || !begun.is_again {
        return Ok(Place { offset: begun.numbers[0], is_done: begun.is_done });
    }
    // Others may have appended there.
    let offset = find()?;
    service.note_begun([offset, 0]);
    Ok(Place { offset, is_done: false })
}

/// Where a write goes. The kernel appends where it believes the file to end; a library or another mount may have made it
/// longer since. The end does not move meanwhile: the caller has entered the inode, and has its turn among all mounts.
fn offset_of(service: &Service, number: InodeNumber, write: &Write) -> Result<u64, Errno> {
    let appends =
        write.flags & APPEND != 0 && !write.from_cache && (service.socket().is_some() || service.is_shared());
    if !appends {
        return Ok(write.offset);
    }
    service.retry(|| service.files.stat(number)).map(|stat| stat.inode.size)
}

/// READ: replies from where the data are stored, to this id.
pub(crate) fn read(
    service: &Service,
    transport: &mut impl Transport,
    (request, unique): (&Request<'_>, Unique),
    read: &Read,
) -> Result<Sent, Errno> {
    let number = number_of(request.node);
    let _entered = service.enter(number, Access::Read);
    let range = read.offset..read.offset.saturating_add(u64::from(read.size));
    let parts = service.retry(|| service.files.read(number, range.clone()))?;
    if read.flags & DIRECT == 0 {
        service.note_read(number, range);
    }
    verify(service, number, &parts)?;
    let slices = slices_of(service, &parts)?;
    let bytes: usize = slices.iter().map(|slice| slice.len()).sum();
    Counters::add(&service.common.counters.read_bytes, bytes as u64);
    let sent = if slices.len() <= SLICES_MAX {
        transport.reply_data(unique, &slices)
    } else {
        let joined: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
        service.files.heap().copies.add(CopyPath::Reply, joined.len());
        transport.reply_data(unique, &[IoSlice::new(&joined)])
    };
    sent.map_err(Errno::from)
}

/// Checks what is read against its checksums, after it has been read from the medium where it is not in memory.
fn verify(service: &Service, number: InodeNumber, parts: &[FilePart<'_>]) -> Result<(), Errno> {
    let stored = || {
        parts.iter().filter_map(|part| match part {
            FilePart::Stored(part) => Some(part.item()),
            _ => None,
        })
    };
    service.retry(|| Ok(Item::fetch_all(stored())?))?;
    for item in stored() {
        if !service.retry(|| Ok(item.verify()?))? {
            let slot = item.slot.0;
            tracing::error!(inode = number.0, slot, "data of a file are damaged: reads of this part fail");
            return Err(Errno::IO);
        }
    }
    Ok(())
}

/// The bytes of the parts, where they are.
fn slices_of<'a>(
    service: &'a Service,
    parts: &'a [FilePart<'_>],
) -> Result<SmallVec<[IoSlice<'a>; 16]>, Errno> {
    let media = service.files.heap().media();
    let mut slices = SmallVec::new();
    for part in parts {
        match part {
            FilePart::Zeroes(len) => {
                let mut left = *len;
                while left > 0 {
                    let here = usize::try_from(left).unwrap_or(usize::MAX).min(ZEROES.len());
                    slices.push(IoSlice::new(&ZEROES[..here]));
                    left -= here as u64;
                }
            }
            FilePart::Stored(part) => match part.inline() {
                Some(bytes) => slices.push(IoSlice::new(bytes)),
                None => {
                    for extent in part.extents() {
                        let bytes = service.retry(|| Ok(media.bytes(extent)?))?;
                        slices.push(IoSlice::new(bytes));
                    }
                }
            },
        }
    }
    Ok(slices)
}

/// FALLOCATE.
pub(crate) fn allocate(
    service: &Service,
    request: &Request<'_>,
    (offset, len): (u64, u64),
    mode: u32,
) -> Answered {
    let number = number_of(request.node);
    let _entered = service.enter(number, Access::Write);
    service.execute_now(&Operation::Allocate { number, mode, offset, len })?;
    Ok(service.changed(number, Reply::ok(request.unique)))
}

/// LSEEK, for data and holes. Where the kernel keeps written data, nobody here knows what a hole is: the kernel does
/// without, and counts all of a file as data.
pub(crate) fn seek(service: &Service, request: &Request<'_>, offset: u64, whence: u32) -> Answered {
    let seek = match whence {
        _ if service.written == Written::Kept => return Err(Errno::NOSYS),
        SEEK_DATA => Seek::Data,
        SEEK_HOLE => Seek::Hole,
        _ => return Err(INVALID),
    };
    let number = number_of(request.node);
    let _entered = service.enter(number, Access::Read);
    let found = service.retry(|| service.files.seek(number, offset, seek))?;
    let found = found.ok_or(Errno::from_raw(libc::ENXIO))?;
    Ok(Answer::Now(Reply::seek(request.unique, found)))
}

/// COPY_FILE_RANGE: whole blocks are shared. The kernel copies the rest by reading and writing.
pub(crate) fn copy(service: &Service, request: &Request<'_>, copy: &CopyFileRange) -> Answered {
    if service.is_shared() {
        // The lengths of both files may change meanwhile.
        return Err(NOT_SUPPORTED);
    }
    let (source, number) = (number_of(request.node), number_of(copy.node_out));
    let _entered = (service.enter(source, Access::Read), service.enter(number, Access::Write));
    copy_by_sizes(service, request, copy, || {
        Ok((service.stat(source)?.inode.size, service.stat(number)?.inode.size))
    })
}

/// As [`copy`]: `sizes` finds the lengths of source and target. The kernel has no lock of the source, whose length may be
/// another one when the blocks are shared: that is refused, and means nothing to the caller.
fn copy_by_sizes(
    service: &Service,
    request: &Request<'_>,
    copy: &CopyFileRange,
    mut sizes: impl FnMut() -> Result<(u64, u64), Errno>,
) -> Answered {
    let (source, number) = (number_of(request.node), number_of(copy.node_out));
    let (offset, source_offset) = (copy.offset_out, copy.offset_in);
    for _ in 0..COPIES_MAX {
        let (size, target_size) = sizes()?;
        if source_offset >= size {
            return Ok(Answer::Now(Reply::copied(request.unique, 0, copy.count)));
        }
        let len = shared_len(copy, (size, target_size));
        let overlaps = source == number && source_offset < offset + len && offset < source_offset + len;
        let is_aligned = source_offset.is_multiple_of(BLOCK_BYTES) && offset.is_multiple_of(BLOCK_BYTES);
        if len == 0 || !is_aligned || overlaps {
            return Err(NOT_SUPPORTED);
        }
        match service.execute_now(&Operation::Clone { number, offset, source, source_offset, len }) {
            Err(INVALID) => {}
            shared => {
                shared?;
                return Ok(service.changed(number, Reply::copied(request.unique, len, copy.count)));
            }
        }
    }
    Err(NOT_SUPPORTED)
}

/// How many bytes of a copy can be shared where source and target have these lengths: a part of a block can be at the end of
/// both files only.
fn shared_len(copy: &CopyFileRange, (size, target_size): (u64, u64)) -> u64 {
    let len = copy.len.min(size.saturating_sub(copy.offset_in));
    let is_end = copy.offset_in + len == size && copy.offset_out.saturating_add(len) >= target_size;
    if is_end { len } else { len / BLOCK_BYTES * BLOCK_BYTES }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::Sharing;
    use crate::ledger::Ledger;
    use crate::lives::MountNumber;
    use crate::service::tests::service_of;
    use crate::service::{Held, Which};
    use crate::sys::SharedMemory;
    use landfall_fs::{Attributes, FileType, Mode};
    use landfall_fuse::{CopyCount, Handle, Node, Op};
    use std::sync::Arc;

    const FILE: InodeNumber = InodeNumber(7);

    /// A server that has found a file of this size.
    fn server(memory: &SharedMemory, size: u64) -> Service {
        server_of(memory, size, Sharing::Shared)
    }

    fn server_of(memory: &SharedMemory, size: u64, sharing: Sharing) -> Service {
        let file = memory.file().try_clone_to_owned().expect("a descriptor");
        let held = Held::Here { ledger: Arc::new(Ledger::open(file).expect("a ledger")), losses: None };
        let which = Which { mount: MountNumber(1), sharing };
        let (service, _) = service_of(Some(held), which);
        let mode = Mode::new(FileType::File, 0o644);
        let create = Operation::Create { place: None, number: FILE, mode, uid: 0, gid: 0, rdev: 0 };
        let attributes = Attributes { size: Some(size), ..Attributes::default() };
        for operation in [create, Operation::SetAttributes { number: FILE, attributes }] {
            service.execute(1, &operation).expect("there is room");
        }
        service
    }

    fn request(unique: u64, op: Op<'_>) -> Request<'_> {
        Request {
            unique: Unique(unique),
            opcode: 0,
            node: Node(FILE.0),
            uid: 0,
            gid: 0,
            pid: 0,
            supplementary_group: None,
            op,
        }
    }

    fn place_of_append(service: &Service, unique: u64) -> Option<u64> {
        let write = Write {
            fh: Handle(1),
            offset: 0,
            size: 5,
            from_cache: false,
            kill_suid_gid: false,
            lock_owner: None,
            flags: APPEND,
        };
        let request = request(unique, Op::Write(write));
        service.note_received(request.unique);
        place_of(service, &request, &write).expect("a place")
    }

    #[test]
    fn an_append_that_no_server_has_done_goes_behind_what_others_have_appended_since() {
        const AGAIN: u64 = 1 << 63;
        let memory = Ledger::memory().expect("memory");
        assert_eq!(place_of_append(&server(&memory, 10), 2), Some(10));
        let next = server(&memory, 15);
        assert_eq!(place_of_append(&next, 2 | AGAIN), Some(15));
        next.ledger().expect("it is held").appending(Some(1));
        let ledger =
            Ledger::open(memory.file().try_clone_to_owned().expect("a descriptor")).expect("a ledger");
        ledger.settle(1);
        assert_eq!(place_of_append(&server(&memory, 30), 2 | AGAIN), None, "it was done");
    }

    #[test]
    fn the_kernel_drops_what_it_shows_elsewhere_than_it_was_appended_before_the_write_waits() {
        const AGAIN: u64 = 1 << 63;
        let memory = Ledger::memory().expect("memory");
        let first = server(&memory, 10);
        assert_eq!(place_of_append(&first, 2), Some(10));
        first.ledger().expect("it is held").appending(Some(1));
        let ledger =
            Ledger::open(memory.file().try_clone_to_owned().expect("a descriptor")).expect("a ledger");
        ledger.settle(1);
        let next = server_of(&memory, 15, Sharing::Alone);
        assert_eq!(place_of_append(&next, 4), Some(0), "nobody else has made the file longer");
        assert!(next.forgetter.awaited().is_empty());
        assert_eq!(place_of_append(&next, 2 | AGAIN), None, "it was done");
        assert_eq!(next.forgetter.awaited(), [FILE], "the kernel believes that the bytes are at 0");
    }

    #[test]
    fn a_copy_whose_source_changes_its_length_is_tried_again_and_then_left_to_the_kernel() {
        const TARGET: InodeNumber = InodeNumber(8);
        let (service, _publisher) = service_of(None, Which::default());
        let mode = Mode::new(FileType::File, 0o644);
        for number in [FILE, TARGET] {
            let create = Operation::Create { place: None, number, mode, uid: 0, gid: 0, rdev: 0 };
            service.execute(1, &create).expect("there is room");
        }
        let attributes = Attributes { size: Some(10_000), ..Attributes::default() };
        service.execute(1, &Operation::SetAttributes { number: FILE, attributes }).expect("there is room");
        let copy = CopyFileRange {
            fh_in: Handle(1),
            offset_in: 0,
            node_out: Node(TARGET.0),
            fh_out: Handle(2),
            offset_out: 0,
            len: 1 << 20,
            flags: 0,
            count: CopyCount::Bits64,
        };
        let asked = request(2, Op::CopyFileRange(copy));
        // It has grown since it was looked at, and then shrunk.
        let mut seen = [9_000, 20_000].into_iter();
        let copied = copy_by_sizes(&service, &asked, &copy, || Ok((seen.next().unwrap_or(10_000), 0)));
        let Ok(Answer::Now(reply)) = copied else { panic!("it is not shared") };
        assert_eq!(reply.as_bytes(), Reply::copied(Unique(2), 10_000, CopyCount::Bits64).as_bytes());
        assert_eq!(service.stat(TARGET).expect("it is there").inode.size, 10_000);
        let changing = copy_by_sizes(&service, &asked, &copy, || Ok((9_000, 0)));
        assert_eq!(changing.err(), Some(NOT_SUPPORTED), "the length is another one each time");
    }
}
