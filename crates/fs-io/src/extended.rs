//! Extended attributes, ACLs among them.

use crate::acl::{self, Acl};
use crate::errors::{self, INVALID, TOO_SMALL};
use crate::inspect;
use crate::service::{Answer, Answered, Service, number_of};
use landfall_fs::{Attributes, ExtendedName, InodeNumber, Operation};
use landfall_fuse::{Errno, Reply, Request};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// Names that only the superuser sees.
const TRUSTED_PREFIX: &[u8] = b"trusted.";

/// `ENODATA`: there is no such attribute.
const NO_ATTRIBUTE: Errno = Errno::from_raw(libc::ENODATA);
/// What an ACL says of a mode.
const PERMISSIONS: u32 = 0o777;

const CREATE: u32 = libc::XATTR_CREATE.cast_unsigned();
const REPLACE: u32 = libc::XATTR_REPLACE.cast_unsigned();

/// SETXATTR. `clear_sgid`: who sets an ACL may not keep the set-group-ID bit.
pub(crate) fn set(
    service: &Service,
    request: &Request<'_>,
    name: &OsStr,
    value: &[u8],
    (flags, clear_sgid): (u32, bool),
) -> Answered {
    let number = number_of(request.node);
    inspect::check_stored(name)?;
    if name.as_bytes() == acl::ACCESS {
        set_access(service, number, value, clear_sgid)?;
        return Ok(service.changed(number, Reply::ok(request.unique)));
    }
    if flags & (CREATE | REPLACE) != 0 {
        // The kernel lets nobody change the inode's attributes meanwhile. A request that is delivered again finds what a
        // server that has died since has set.
        let begun = service.begin(request, || Ok([u64::from(has(service, number, name)?), 0]))?;
        if begun.is_done {
            return Ok(service.changed(number, Reply::ok(request.unique)));
        }
        match begun.numbers[0] != 0 {
            true if flags & CREATE != 0 => return Err(Errno::from_raw(libc::EEXIST)),
            false if flags & REPLACE != 0 => return Err(NO_ATTRIBUTE),
            _ => {}
        }
    }
    service.execute_now(&Operation::SetExtended { number, name: extended_name(name)?, value })?;
    Ok(service.changed(number, Reply::ok(request.unique)))
}

/// Sets the ACL of an inode, and what the mode shows of it. An ACL that says no more than the mode is not kept.
fn set_access(service: &Service, number: InodeNumber, value: &[u8], clear_sgid: bool) -> Result<(), Errno> {
    let mut acl = Acl::decode(value).ok_or(INVALID)?;
    let cleared = PERMISSIONS | if clear_sgid { libc::S_ISGID } else { 0 };
    let kept = service.stat(number)?.inode.mode.permissions() & !cleared;
    let attributes = Attributes { permissions: Some(kept | acl.permissions()), ..Attributes::default() };
    service.execute_now(&Operation::SetAttributes { number, attributes })?;
    match acl.is_minimal() {
        true => remove_acl(service, number, acl::ACCESS),
        false => set_acl(service, number, acl::ACCESS, &acl),
    }
}

/// An ACL of an inode, if it has one.
pub(crate) fn acl(service: &Service, number: InodeNumber, name: &[u8]) -> Result<Option<Acl>, Errno> {
    match service.retry(|| service.files.extended(number, name)) {
        Ok(value) => Ok(Acl::decode(&value)),
        Err(NO_ATTRIBUTE) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// Keeps an ACL of an inode.
pub(crate) fn set_acl(service: &Service, number: InodeNumber, name: &[u8], acl: &Acl) -> Result<(), Errno> {
    let name = ExtendedName::new(name).map_err(errors::of_name)?;
    service.execute_now(&Operation::SetExtended { number, name, value: &acl.encode() })
}

/// Removes an ACL, if there is one.
fn remove_acl(service: &Service, number: InodeNumber, name: &[u8]) -> Result<(), Errno> {
    let name = ExtendedName::new(name).map_err(errors::of_name)?;
    match service.execute_now(&Operation::RemoveExtended { number, name }) {
        Err(NO_ATTRIBUTE) => Ok(()),
        done => done,
    }
}

/// REMOVEXATTR.
pub(crate) fn remove(service: &Service, request: &Request<'_>, name: &OsStr) -> Answered {
    let number = number_of(request.node);
    if [acl::ACCESS, acl::DEFAULT].contains(&name.as_bytes()) {
        remove_acl(service, number, name.as_bytes())?;
    } else {
        let begun = service.begin(request, || Ok([u64::from(has(service, number, name)?), 0]))?;
        // Not if a server that has died since has removed it.
        if !begun.is_done {
            service.execute_now(&Operation::RemoveExtended { number, name: extended_name(name)? })?;
        }
    }
    Ok(service.changed(number, Reply::ok(request.unique)))
}

/// True if an inode has an attribute.
fn has(service: &Service, number: InodeNumber, name: &OsStr) -> Result<bool, Errno> {
    match service.retry(|| service.files.extended(number, name.as_bytes())) {
        Ok(_) => Ok(true),
        Err(NO_ATTRIBUTE) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// GETXATTR.
pub(crate) fn get(service: &Service, request: &Request<'_>, name: &OsStr, size: u32) -> Answered {
    let number = number_of(request.node);
    if let Some(text) = inspect::value(service, request.uid, number, name) {
        return sized(request, text?.into_bytes(), size);
    }
    let value = service.retry(|| service.files.extended(number, name.as_bytes()))?;
    sized(request, value.into_vec(), size)
}

/// LISTXATTR.
pub(crate) fn list(service: &Service, request: &Request<'_>, size: u32) -> Answered {
    let names = service.retry(|| service.files.extended_names(number_of(request.node)))?;
    let is_visible = |name: &[u8]| request.uid == 0 || !name.starts_with(TRUSTED_PREFIX);
    let mut list = Vec::new();
    for name in names.iter().map(|name| &**name).filter(|name| is_visible(name)) {
        list.extend_from_slice(name);
        list.push(0);
    }
    sized(request, list, size)
}

fn extended_name(name: &OsStr) -> Result<ExtendedName<'_>, Errno> {
    ExtendedName::new(name.as_bytes()).map_err(errors::of_name)
}

/// The bytes, or their number for a caller that asks with size 0.
fn sized(request: &Request<'_>, bytes: Vec<u8>, size: u32) -> Answered {
    let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    match size {
        0 => Ok(Answer::Now(Reply::xattr_size(request.unique, len))),
        size if len > size => Err(TOO_SMALL),
        _ => Ok(Answer::Bytes(bytes)),
    }
}
