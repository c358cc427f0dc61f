//! Extended attributes.

use crate::errors::{self, NOT_SUPPORTED, TOO_SMALL};
use crate::service::{Answer, Answered, Service, number_of};
use landfall_fs::{ExtendedName, Operation};
use landfall_fuse::{Errno, Reply, Request};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// Names of POSIX ACLs, which are not kept.
const ACL_PREFIX: &[u8] = b"system.posix_acl_";
/// Names that only the superuser sees.
const TRUSTED_PREFIX: &[u8] = b"trusted.";

const CREATE: u32 = libc::XATTR_CREATE.cast_unsigned();
const REPLACE: u32 = libc::XATTR_REPLACE.cast_unsigned();

/// SETXATTR.
pub(crate) fn set(
    service: &Service,
    request: &Request<'_>,
    name: &OsStr,
    value: &[u8],
    flags: u32,
) -> Answered {
    let number = number_of(request.node);
    if name.as_bytes().starts_with(ACL_PREFIX) {
        return Err(NOT_SUPPORTED);
    }
    if flags & (CREATE | REPLACE) != 0 {
        // The kernel lets nobody change the inode's attributes meanwhile.
        match service.retry(|| service.files.extended(number, name.as_bytes())) {
            Ok(_) if flags & CREATE != 0 => return Err(Errno::from_raw(libc::EEXIST)),
            Err(errno) if flags & REPLACE != 0 || errno.raw() != libc::ENODATA => return Err(errno),
            _ => {}
        }
    }
    service.execute_now(&Operation::SetExtended { number, name: extended_name(name)?, value })?;
    Ok(service.changed(number, Reply::ok(request.unique)))
}

/// REMOVEXATTR.
pub(crate) fn remove(service: &Service, request: &Request<'_>, name: &OsStr) -> Answered {
    let number = number_of(request.node);
    service.execute_now(&Operation::RemoveExtended { number, name: extended_name(name)? })?;
    Ok(service.changed(number, Reply::ok(request.unique)))
}

/// GETXATTR.
pub(crate) fn get(service: &Service, request: &Request<'_>, name: &OsStr, size: u32) -> Answered {
    if name.as_bytes().starts_with(ACL_PREFIX) {
        return Err(NOT_SUPPORTED);
    }
    let number = number_of(request.node);
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
