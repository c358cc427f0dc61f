//! Names: finding, making, linking, removing and renaming them.

use crate::acl::{self, Acl};
use crate::attributes::entry_of;
use crate::clock;
use crate::errors::{self, INVALID, STALE};
use crate::extended;
use crate::mates::Why;
use crate::service::{Answer, Answered, Service, name_of, number_of};
use landfall_fs::{ExtendedName, FileType, InodeNumber, Mode, Name, Operation, Stat};
use landfall_fuse::{Errno, Node, Open, Reply, Request};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// The bits of a mode that say who may do what.
const PERMISSIONS: u32 = 0o777;
const EXCLUSIVE: u32 = libc::O_EXCL.cast_unsigned();

/// LOOKUP.
pub(crate) fn lookup(service: &Service, request: &Request<'_>, name: &OsStr) -> Answered {
    let parent = number_of(request.node);
    let may_keep_name = service.lease_of(parent);
    let (is_kept, reply) = match service.lookup(parent, name_of(name)?) {
        Ok(stat) => {
            service.look_up(stat.number);
            let is_leased = may_keep_name && service.lease_of(stat.number);
            // Its attributes may have changed before there was a lease of them.
            let again = if is_leased { service.stat(stat.number).ok() } else { None };
            let (is_kept, stat) = (again.is_some(), again.unwrap_or(stat));
            (is_kept, Reply::entry(request.unique, &entry_of(service, &stat)))
        }
        Err(Errno::NOENT) => (may_keep_name, Reply::no_entry(request.unique, service.valid())),
        Err(errno) => return Err(errno),
    };
    Ok(Answer::Now(if is_kept { reply.marked() } else { reply }))
}

/// What is made.
pub(crate) struct New {
    /// Type and permissions.
    pub(crate) mode: u32,
    /// Number of a device.
    pub(crate) rdev: u32,
    /// Permissions that it does not get, unless its directory has an ACL for what is made in it.
    pub(crate) umask: u32,
}

/// MKNOD and MKDIR.
pub(crate) fn make(service: &Service, request: &Request<'_>, name: &OsStr, new: &New) -> Answered {
    let parent = number_of(request.node);
    let (number, _) = create(service, request, Some(name_of(name)?), new)?;
    service.look_up(number);
    let reply = Reply::entry(request.unique, &entry_of(service, &service.stat(number)?));
    Ok(service.changed(parent, reply))
}

/// CREATE, and TMPFILE without a name: the new file is open.
pub(crate) fn make_open(
    service: &Service,
    request: &Request<'_>,
    name: Option<&OsStr>,
    (mode, umask): (u32, u32),
    open: Open,
) -> Answered {
    let new = New { mode: libc::S_IFREG | mode & !libc::S_IFMT, rdev: 0, umask };
    let made = create(service, request, name.map(name_of).transpose()?, &new);
    // Another mount has made the name since the kernel has looked: it looks again.
    let is_there = made.is_err_and(|errno| errno == Errno::from_raw(libc::EEXIST));
    let (number, made) =
        if service.is_shared() && is_there && open.flags & EXCLUSIVE == 0 { Err(STALE) } else { made }?;
    // An orphan that an earlier server has made was found at the start.
    if name.is_some() || made == Made::Now {
        service.look_up(number);
    }
    if name.is_none() {
        let _ = service.orphan(number);
    }
    let entry = entry_of(service, &service.stat(number)?);
    let reply = Reply::created(request.unique, &entry, service.opened());
    Ok(service.changed(number, reply))
}

/// When an inode was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Made {
    Now,
    /// By a server that has died before it could say so.
    Before,
}

/// Makes an inode in the request's directory.
fn create(
    service: &Service,
    request: &Request<'_>,
    name: Option<Name<'_>>,
    new: &New,
) -> Result<(InodeNumber, Made), Errno> {
    let parent = number_of(request.node);
    let inherited = inherited(service, parent)?;
    // A mode without a type stands for a file.
    let kind = if new.mode & libc::S_IFMT == 0 { libc::S_IFREG } else { 0 };
    let is_directory = new.mode & libc::S_IFMT == libc::S_IFDIR;
    let asked = new.mode | kind | if is_directory { inherited.set_gid } else { 0 };
    let mut acl = inherited.acl.clone();
    let bits = match &mut acl {
        None => asked & !(new.umask & PERMISSIONS),
        Some(acl) => {
            acl.restrict(asked);
            asked & !PERMISSIONS | acl.permissions()
        }
    };
    let mode = Mode::of_bits(bits).map_err(|_| INVALID)?;
    let (uid, rdev) = (request.uid, u64::from(new.rdev));
    let (place, gid) = (name.map(|name| (parent, name)), inherited.gid.unwrap_or(request.gid));
    let (number, made) = number(service, request)?;
    if made == Made::Now {
        let create = Operation::Create { place, number, mode, uid, gid, rdev };
        let access = acl.filter(|acl| !acl.is_minimal()).map(|acl| (acl::ACCESS, acl.encode()));
        let default = inherited.acl.filter(|_| is_directory).map(|acl| (acl::DEFAULT, acl.encode()));
        // Without its ACL it would be open to others: it is not there without.
        let attributes: Vec<Operation<'_>> = access
            .iter()
            .chain(&default)
            .map(|(name, value)| {
                let name = ExtendedName::new(name).map_err(errors::of_name)?;
                Ok(Operation::SetExtended { number, name, value })
            })
            .collect::<Result<_, Errno>>()?;
        service.create(&create, &attributes)?;
    }
    Ok((number, made))
}

/// The number of the inode that a request makes. No number is given twice: if there is an inode with the one that an
/// earlier server has chosen for this request, that server has made it.
fn number(service: &Service, request: &Request<'_>) -> Result<(InodeNumber, Made), Errno> {
    let begun = service.begin(request, || Ok([service.take_number().0, 0]))?;
    let number = InodeNumber(begun.numbers[0]);
    let is_made = begun.is_again && service.exists(number)?;
    if begun.is_done && !is_made {
        // Another mount has deleted it since.
        return Err(STALE);
    }
    Ok((number, if is_made { Made::Before } else { Made::Now }))
}

/// What a directory passes on to what is made in it.
struct Inherited {
    /// Its group, if it has the set-group-ID bit.
    gid: Option<u32>,
    /// That bit, for directories.
    set_gid: u32,
    /// The ACL of what is made in it.
    acl: Option<Acl>,
}

fn inherited(service: &Service, parent: InodeNumber) -> Result<Inherited, Errno> {
    let inode = service.stat(parent)?.inode;
    let set_gid = inode.mode.permissions() & libc::S_ISGID;
    let acl = if inode.has_extended { extended::acl(service, parent, acl::DEFAULT)? } else { None };
    Ok(Inherited { gid: (set_gid != 0).then_some(inode.gid), set_gid, acl })
}

/// SYMLINK.
pub(crate) fn symlink(service: &Service, request: &Request<'_>, name: &OsStr, target: &OsStr) -> Answered {
    let (parent, name, target) = (number_of(request.node), name_of(name)?, target.as_bytes());
    if target.len() > landfall_fs::TARGET_BYTES_MAX {
        return Err(Errno::from_raw(libc::ENAMETOOLONG));
    }
    let gid = inherited(service, parent)?.gid.unwrap_or(request.gid);
    let (uid, (number, made)) = (request.uid, number(service, request)?);
    if made == Made::Now {
        service.execute_now(&Operation::Symlink { parent, name, number, uid, gid, target })?;
    }
    service.look_up(number);
    let reply = Reply::entry(request.unique, &entry_of(service, &service.stat(number)?));
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
    if !service.begin(request, || Ok([0, 0]))?.is_done {
        service.execute_now(&Operation::Link { parent, name, number, replaces: false })?;
    }
    service.common.lives.name(number);
    service.look_up(number);
    let reply = Reply::entry(request.unique, &entry_of(service, &service.stat(number)?));
    Ok(service.changed(parent, reply))
}

/// UNLINK and RMDIR.
pub(crate) fn unlink(service: &Service, request: &Request<'_>, name: &OsStr, is_directory: bool) -> Answered {
    let (parent, name) = (number_of(request.node), name_of(name)?);
    let there = || service.lookup(parent, name).map(|stat| stat.number);
    let begun = service.begin(request, || Ok([there()?.0, 0]))?;
    // Another mount may have changed the name since a server that has died had found it.
    let number = if begun.is_again && !begun.is_done { there()? } else { InodeNumber(begun.numbers[0]) };
    if !begun.is_done {
        service.execute_now(&Operation::Unlink { parent, name, is_directory })?;
    }
    service.unlinked(number);
    service.tell_others(Why::Removed, (parent, name), number);
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
    let find = || {
        // Only other mounts need to know what had the old name.
        let renamed = if service.is_shared() { number_at(service, parent, name)? } else { 0 };
        Ok([renamed, number_at(service, new_parent, new_name)?])
    };
    let begun = service.begin(request, find)?;
    // Another mount may have changed the names since a server that has died had found them.
    let [renamed, replaced] = if begun.is_again && !begun.is_done { find()? } else { begun.numbers };
    let operation = Operation::Rename { parent, name, new_parent, new_name, no_replace, exchange };
    if !begun.is_done {
        service.execute(clock::now_ns(), &operation)?;
    }
    if flags == 0 && replaced != 0 {
        service.unlinked(InodeNumber(replaced));
        service.tell_others(Why::Removed, (new_parent, new_name), InodeNumber(replaced));
    }
    // A directory may be where a program works.
    let is_file = |stat: Stat| stat.inode.mode.file_type() != FileType::Directory;
    if renamed != 0 && service.stat(InodeNumber(renamed)).is_ok_and(is_file) {
        service.tell_others(Why::Renamed, (parent, name), InodeNumber(renamed));
    }
    Ok(service.changed(new_parent, Reply::ok(request.unique)))
}

/// The number of the inode with a name; 0 if there is none.
fn number_at(service: &Service, parent: InodeNumber, name: Name<'_>) -> Result<u64, Errno> {
    match service.lookup(parent, name) {
        Ok(stat) => Ok(stat.number.0),
        Err(Errno::NOENT) => Ok(0),
        Err(errno) => Err(errno),
    }
}

/// The kernel has forgotten lookups of an inode.
pub(crate) fn forget(service: &Service, node: Node, lookups: u64) {
    let number = number_of(node);
    service.end(number, service.forget(number, lookups));
}
