//! Names: finding, making, linking, removing and renaming them.

use crate::attributes::{VALID, entry_of};
use crate::clock;
use crate::errors::INVALID;
use crate::service::{Answer, Answered, Service, name_of, number_of};
use landfall_fs::{InodeNumber, Mode, Name, Operation};
use landfall_fuse::{Errno, Node, OpenFlags, Opened, Reply, Request};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// LOOKUP.
pub(crate) fn lookup(service: &Service, request: &Request<'_>, name: &OsStr) -> Answered {
    match service.lookup(number_of(request.node), name_of(name)?) {
        Ok(stat) => {
            service.lives.look_up(stat.number);
            Ok(Answer::Now(Reply::entry(request.unique, &entry_of(&stat))))
        }
        Err(Errno::NOENT) => Ok(Answer::Now(Reply::no_entry(request.unique, VALID))),
        Err(errno) => Err(errno),
    }
}

/// What is made.
pub(crate) struct New {
    /// Type and permissions.
    pub(crate) mode: u32,
    /// Number of a device.
    pub(crate) rdev: u32,
}

/// MKNOD and MKDIR.
pub(crate) fn make(service: &Service, request: &Request<'_>, name: &OsStr, new: &New) -> Answered {
    let parent = number_of(request.node);
    let number = create(service, request, Some(name_of(name)?), new)?;
    service.lives.look_up(number);
    let reply = Reply::entry(request.unique, &entry_of(&service.stat(number)?));
    Ok(service.changed(parent, reply))
}

/// CREATE, and TMPFILE without a name: the new file is open.
pub(crate) fn make_open(
    service: &Service,
    request: &Request<'_>,
    name: Option<&OsStr>,
    mode: u32,
) -> Answered {
    let new = New { mode: libc::S_IFREG | mode & !libc::S_IFMT, rdev: 0 };
    let number = create(service, request, name.map(name_of).transpose()?, &new)?;
    service.lives.look_up(number);
    if name.is_none() {
        let _ = service.lives.orphan(number);
    }
    let opened = Opened { flags: OpenFlags::KEEP_CACHE, ..Opened::default() };
    let reply = Reply::created(request.unique, &entry_of(&service.stat(number)?), opened);
    Ok(service.changed(number, reply))
}

/// Makes an inode in the request's directory. One with the set-group-ID bit passes its group on, and directories the bit.
fn create(
    service: &Service,
    request: &Request<'_>,
    name: Option<Name<'_>>,
    new: &New,
) -> Result<InodeNumber, Errno> {
    let parent = number_of(request.node);
    let (gid, passed_on) = group_of(service, parent, request.gid)?;
    // A mode without a type stands for a file.
    let kind = if new.mode & libc::S_IFMT == 0 { libc::S_IFREG } else { 0 };
    let is_directory = new.mode & libc::S_IFMT == libc::S_IFDIR;
    let bits = new.mode | kind | if is_directory { passed_on } else { 0 };
    let mode = Mode::of_bits(bits).map_err(|_| INVALID)?;
    let (number, uid, rdev) = (service.files.take_number(), request.uid, u64::from(new.rdev));
    let place = name.map(|name| (parent, name));
    service.execute_now(&Operation::Create { place, number, mode, uid, gid, rdev })?;
    Ok(number)
}

/// The group of what is made in a directory, and the bit that a directory made in it has, too.
fn group_of(service: &Service, parent: InodeNumber, gid: u32) -> Result<(u32, u32), Errno> {
    let inode = service.stat(parent)?.inode;
    let passes_on = inode.mode.permissions() & libc::S_ISGID != 0;
    Ok(if passes_on { (inode.gid, libc::S_ISGID) } else { (gid, 0) })
}

/// SYMLINK.
pub(crate) fn symlink(service: &Service, request: &Request<'_>, name: &OsStr, target: &OsStr) -> Answered {
    let (parent, name, target) = (number_of(request.node), name_of(name)?, target.as_bytes());
    if target.len() > landfall_fs::TARGET_BYTES_MAX {
        return Err(Errno::from_raw(libc::ENAMETOOLONG));
    }
    let (gid, _) = group_of(service, parent, request.gid)?;
    let (number, uid) = (service.files.take_number(), request.uid);
    service.execute_now(&Operation::Symlink { parent, name, number, uid, gid, target })?;
    service.lives.look_up(number);
    let reply = Reply::entry(request.unique, &entry_of(&service.stat(number)?));
    Ok(service.changed(parent, reply))
}

/// READLINK.
pub(crate) fn read_link(service: &Service, request: &Request<'_>) -> Answered {
    let target = service.retry(|| service.files.link_target(number_of(request.node)))?;
    Ok(Answer::Bytes(target.into_vec()))
}

/// LINK.
pub(crate) fn link(service: &Service, request: &Request<'_>, target: Node, name: &OsStr) -> Answered {
    let (parent, name, number) = (number_of(request.node), name_of(name)?, number_of(target));
    service.execute_now(&Operation::Link { parent, name, number })?;
    service.lives.name(number);
    service.lives.look_up(number);
    let reply = Reply::entry(request.unique, &entry_of(&service.stat(number)?));
    Ok(service.changed(parent, reply))
}

/// UNLINK and RMDIR.
pub(crate) fn unlink(service: &Service, request: &Request<'_>, name: &OsStr, is_directory: bool) -> Answered {
    let (parent, name) = (number_of(request.node), name_of(name)?);
    // The kernel lets nobody change the directory meanwhile.
    let number = service.lookup(parent, name)?.number;
    service.execute_now(&Operation::Unlink { parent, name, is_directory })?;
    service.unlinked(number);
    Ok(service.changed(parent, Reply::ok(request.unique)))
}

/// RENAME and RENAME2.
pub(crate) fn rename(
    service: &Service,
    request: &Request<'_>,
    name: &OsStr,
    (new_parent, new_name): (Node, &OsStr),
    flags: u32,
) -> Answered {
    let (parent, name) = (number_of(request.node), name_of(name)?);
    let (new_parent, new_name) = (number_of(new_parent), name_of(new_name)?);
    if flags & !(libc::RENAME_NOREPLACE | libc::RENAME_EXCHANGE) != 0 {
        return Err(INVALID);
    }
    let (no_replace, exchange) = (flags & libc::RENAME_NOREPLACE != 0, flags & libc::RENAME_EXCHANGE != 0);
    let replaced = match service.lookup(new_parent, new_name) {
        Ok(stat) if flags == 0 => Some(stat.number),
        _ => None,
    };
    let operation = Operation::Rename { parent, name, new_parent, new_name, no_replace, exchange };
    service.execute(clock::now_ns(), &operation)?;
    if let Some(number) = replaced {
        service.unlinked(number);
    }
    Ok(service.changed(new_parent, Reply::ok(request.unique)))
}

/// The kernel has forgotten lookups of an inode.
pub(crate) fn forget(service: &Service, node: Node, lookups: u64) {
    let number = number_of(node);
    service.end(number, service.lives.forget(number, lookups));
}
