//! Attributes of inodes: GETATTR, STATX, SETATTR, STATFS, and the privileges that a change takes away.

use crate::acl;
use crate::clock;
use crate::extended;
use crate::service::{Answer, Answered, Service, number_of};
use landfall_fs::{
    Access, Attributes, ExtendedName, FileType, InodeNumber, Mode, NAME_BYTES_MAX, Operation, Stat,
};
use landfall_fuse::{Attr, Entry, Errno, Node, Reply, Request, SetAttr, SetTime, StatFs, Statx};
use landfall_heap::RECORD_SIZE;
use landfall_media::RUN_SIZE;

/// Bytes of a block in `statfs` and of the best transfer.
const BLOCK_BYTES: u32 = 4096;
/// Units of `st_blocks` in a block.
const UNITS_PER_BLOCK: u64 = 8;
/// Every field of `statx` that the protocol carries: `STATX_BASIC_STATS` and `STATX_BTIME`.
const STATX_ALL: u32 = 0xFFF;

const SET_UID: u32 = libc::S_ISUID;
const SET_GID: u32 = libc::S_ISGID;
/// The extended attribute with a program's capabilities.
const CAPABILITY: &[u8] = b"security.capability";

/// An inode's attributes as the kernel has them.
pub(crate) fn attr_of(stat: &Stat) -> Attr {
    let inode = &stat.inode;
    let is_device = matches!(inode.mode.file_type(), FileType::Character | FileType::Block);
    Attr {
        ino: stat.number.0,
        size: inode.size,
        blocks: stat.blocks * UNITS_PER_BLOCK,
        atime: clock::time_of(inode.atime_ns),
        mtime: clock::time_of(stat.mtime_ns),
        ctime: clock::time_of(stat.ctime_ns),
        mode: inode.mode.bits(),
        nlink: inode.nlink,
        uid: inode.uid,
        gid: inode.gid,
        rdev: if is_device { u32::try_from(inode.extra).unwrap_or(u32::MAX) } else { 0 },
        block_size: BLOCK_BYTES,
    }
}

/// A name's inode as the kernel has it. Numbers are never used again, so that there is one generation.
pub(crate) fn entry_of(service: &Service, stat: &Stat) -> Entry {
    let (node, valid) = (Node(stat.number.0), service.valid());
    Entry { node, generation: 0, entry_valid: valid, attr_valid: valid, attr: attr_of(stat) }
}

/// GETATTR.
pub(crate) fn get(service: &Service, request: &Request<'_>) -> Answered {
    let stat = service.stat(number_of(request.node))?;
    Ok(Answer::Now(Reply::attr(request.unique, &attr_of(&stat), service.valid())))
}

/// STATX.
pub(crate) fn statx(service: &Service, request: &Request<'_>) -> Answered {
    let stat = service.stat(number_of(request.node))?;
    let btime = clock::time_of(stat.inode.btime_ns);
    let statx = Statx { valid: service.valid(), mask: STATX_ALL, attr: attr_of(&stat), btime };
    Ok(Answer::Now(Reply::statx(request.unique, &statx)))
}

/// SETATTR.
pub(crate) fn set(service: &Service, request: &Request<'_>, set: &SetAttr) -> Answered {
    let (number, now_ns) = (number_of(request.node), clock::now_ns());
    let _entered = service.enter(number, Access::Write);
    let time = |time: SetTime| match time {
        SetTime::Now => now_ns,
        SetTime::To(time) => clock::ns_of(time),
    };
    if set.kill_suid_gid {
        take_privileges(service, number)?;
    }
    if let Some(mode) = set.mode {
        follow_mode(service, number, mode)?;
    }
    let attributes = Attributes {
        permissions: set.mode.map(|mode| mode & !libc::S_IFMT),
        uid: set.uid,
        gid: set.gid,
        size: set.size,
        atime_ns: set.atime.map(time),
        mtime_ns: set.mtime.map(time),
    };
    if attributes != Attributes::default() || set.ctime.is_some() {
        // The kernel says which ctime it has shown, where it keeps written data itself.
        let time_ns = set.ctime.map_or(now_ns, clock::ns_of);
        service.execute(time_ns, &Operation::SetAttributes { number, attributes })?;
    }
    let stat = service.stat(number)?;
    Ok(service.changed(number, Reply::attr(request.unique, &attr_of(&stat), service.valid())))
}

/// An ACL says what a new mode says.
fn follow_mode(service: &Service, number: InodeNumber, mode: u32) -> Result<(), Errno> {
    if !service.stat(number)?.inode.has_extended {
        return Ok(());
    }
    let Some(mut acl) = extended::acl(service, number, acl::ACCESS)? else { return Ok(()) };
    acl.set_permissions(mode);
    extended::set_acl(service, number, acl::ACCESS, &acl)
}

/// Clears the bits and removes the attribute by which a program has more rights than who starts it: its content, or its
/// owner, changes.
pub(crate) fn take_privileges(service: &Service, number: InodeNumber) -> Result<(), Errno> {
    let inode = service.stat(number)?.inode;
    if let Some(permissions) = without_privileges(inode.mode) {
        let attributes = Attributes { permissions: Some(permissions), ..Attributes::default() };
        service.execute_now(&Operation::SetAttributes { number, attributes })?;
    }
    let name = ExtendedName::new(CAPABILITY).expect("a good name");
    if inode.has_extended && service.retry(|| service.files.extended(number, CAPABILITY)).is_ok() {
        service.execute_now(&Operation::RemoveExtended { number, name })?;
    }
    Ok(())
}

/// The permissions without the set-user-ID bit, and without the set-group-ID bit of a program; `None`: no change.
/// (Without execution by the group, the latter stands for mandatory locks.)
fn without_privileges(mode: Mode) -> Option<u32> {
    let permissions = mode.permissions();
    let is_program = permissions & libc::S_IXGRP != 0;
    let kept = permissions & !SET_UID & !if is_program { SET_GID } else { 0 };
    (kept != permissions).then_some(kept)
}

/// Space that an inode takes at least: its record, and a place in one of names.
const INODE_BYTES_MIN: u64 = 2 * RECORD_SIZE;

/// STATFS. As many inodes are free as there is space for.
pub(crate) fn statfs(service: &Service, request: &Request<'_>) -> Answered {
    let heap = service.files.heap();
    let blocks = |bytes: u64| bytes / u64::from(BLOCK_BYTES);
    let room = heap.measured_room_bytes();
    let (free, inodes, inodes_free) =
        (blocks(room), service.files.inode_count() as u64, room / INODE_BYTES_MIN);
    let statfs = StatFs {
        block_size: BLOCK_BYTES,
        blocks: blocks(u64::from(heap.geometry().runs) * RUN_SIZE),
        blocks_free: free,
        blocks_available: free,
        files: inodes + inodes_free,
        files_free: inodes_free,
        name_len: u32::try_from(NAME_BYTES_MAX).unwrap_or(u32::MAX),
    };
    Ok(Answer::Now(Reply::statfs(request.unique, &statfs)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn privileges_are_those_of_programs() {
        let after = |permissions| without_privileges(Mode::new(FileType::File, permissions));
        assert_eq!(after(0o6_755), Some(0o755));
        assert_eq!(after(0o4_644), Some(0o644));
        assert_eq!(after(0o2_644), None, "mandatory locks");
        assert_eq!(after(0o1_755), None);
    }
}
