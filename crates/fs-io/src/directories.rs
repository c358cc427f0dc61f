//! READDIR and READDIRPLUS.
//!
//! The offset of an entry is its position, which it has for life: whoever goes on from an offset sees every entry that
//! was there all the time exactly once. 1 and 2 stand for `.` and `..`.

use crate::attributes::entry_of;
use crate::service::{Service, number_of};
use landfall_fs::{FileType, InodeNumber, NameEntry, Position};
use landfall_fuse::{DirBuffer, DirEntry, Errno, Node, ReadDir};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

const DOT: u64 = 1;
const DOT_DOT: u64 = 2;
/// Least bytes of an entry in a reply to READDIRPLUS: `fuse_direntplus` and one character.
const PLUS_BYTES_MIN: usize = 160;

/// Fills the buffer with entries behind the offset.
pub(crate) fn read(service: &Service, node: Node, dir: ReadDir, buffer: &mut DirBuffer) -> Result<(), Errno> {
    let number = number_of(node);
    buffer.reset(dir.size);
    if !dots(service, number, dir.offset, &mut |entry| buffer.push(entry))? {
        return Ok(());
    }
    let from = Position(dir.offset.max(DOT_DOT) + 1);
    service.retry(|| {
        // An attempt that fails has visited nothing.
        service.files.entries(number, from, &mut |entry| buffer.push(&dir_entry(entry)))
    })
}

/// As [`read`], with attributes. Each entry that was added counts one lookup.
pub(crate) fn read_plus(
    service: &Service,
    node: Node,
    dir: ReadDir,
    buffer: &mut DirBuffer,
) -> Result<(), Errno> {
    let number = number_of(node);
    buffer.reset(dir.size);
    if !dots(service, number, dir.offset, &mut |entry| buffer.push_plus(entry, None))? {
        return Ok(());
    }
    let from = Position(dir.offset.max(DOT_DOT) + 1);
    let count_max = usize::try_from(dir.size).unwrap_or(usize::MAX) / PLUS_BYTES_MIN;
    let mut entries: Vec<NameEntry> = Vec::new();
    service.retry(|| {
        entries.clear();
        service.files.entries(number, from, &mut |entry| {
            entries.push(entry.clone());
            entries.len() < count_max
        })
    })?;
    for entry in &entries {
        // Without attributes, for what has been removed meanwhile, is damaged, or is a library's to change, the kernel asks
        // by name.
        let is_leased = service.is_leased(entry.number);
        let stat = if is_leased { None } else { service.files.stat(entry.number).ok() };
        let found = stat.map(|stat| entry_of(service, &stat));
        if !buffer.push_plus(&dir_entry(entry), found.as_ref()) {
            break;
        }
        if found.is_some() {
            service.look_up(entry.number);
        }
    }
    Ok(())
}

/// Adds `.` and `..` if they are behind the offset; false when there is no room.
fn dots(
    service: &Service,
    number: InodeNumber,
    offset: u64,
    push: &mut dyn FnMut(&DirEntry<'_>) -> bool,
) -> Result<bool, Errno> {
    if offset >= DOT_DOT {
        return Ok(true);
    }
    let parent = service.stat(number)?.inode.extra;
    let dots = [(DOT, number.0, "."), (DOT_DOT, parent, "..")];
    let mut behind = dots.into_iter().filter(|(position, ..)| *position > offset);
    Ok(behind.all(|(position, ino, name)| {
        push(&DirEntry { ino, next_offset: position, mode: libc::S_IFDIR, name: OsStr::new(name) })
    }))
}

fn dir_entry(entry: &NameEntry) -> DirEntry<'_> {
    DirEntry {
        ino: entry.number.0,
        next_offset: entry.position.0,
        mode: mode_of(entry.file_type),
        name: OsStr::from_bytes(entry.name()),
    }
}

fn mode_of(file_type: FileType) -> u32 {
    u32::from(file_type.code()) << 12
}
