//! Requests that outlive the memory in which they were received.

use crate::request::{Op, Request};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

/// A request with copies of what it names.
#[derive(Clone, Debug)]
pub struct KeptRequest {
    /// Its names are empty.
    request: Request<'static>,
    /// Its name, ...
    name: OsString,
    /// ... and its new name, or its target, or the value.
    other: OsString,
}

impl KeptRequest {
    /// A copy of a request that changes something; `None` for others. Data of a WRITE are not part of a request.
    pub fn of(request: &Request<'_>) -> Option<Self> {
        let nothing = OsStr::new("");
        let (name, other) = match request.op {
            Op::Write(_) | Op::SetAttr(_) | Op::Fallocate { .. } | Op::CopyFileRange(_) => (nothing, nothing),
            Op::TmpFile { .. } => (nothing, nothing),
            Op::Create { name, .. } | Op::MkNod { name, .. } | Op::MkDir { name, .. } => (name, nothing),
            Op::Unlink { name } | Op::RmDir { name } => (name, nothing),
            Op::Link { name, .. } | Op::RemoveXattr { name } => (name, nothing),
            Op::Symlink { name, target } => (name, target),
            Op::Rename { name, new_name, .. } => (name, new_name),
            Op::SetXattr { name, value, .. } => (name, OsStr::from_bytes(value)),
            _ => return None,
        };
        let op = with_names(&request.op, nothing, nothing)?;
        let request = Request { op, ..fixed(request) };
        Some(Self { request, name: name.to_owned(), other: other.to_owned() })
    }

    /// The request.
    #[must_use]
    pub fn request(&self) -> Request<'_> {
        let op = with_names(&self.request.op, &self.name, &self.other).unwrap_or(Op::Unknown);
        Request { op, ..fixed(&self.request) }
    }
}

/// What does not depend on the operation.
fn fixed<'a>(request: &Request<'_>) -> Request<'a> {
    let Request { unique, opcode, node, uid, gid, pid, supplementary_group, .. } = *request;
    Request { unique, opcode, node, uid, gid, pid, supplementary_group, op: Op::Unknown }
}

/// The operation with these names instead of its own.
fn with_names<'a>(op: &Op<'_>, name: &'a OsStr, other: &'a OsStr) -> Option<Op<'a>> {
    Some(match *op {
        Op::Write(write) => Op::Write(write),
        Op::SetAttr(set) => Op::SetAttr(set),
        Op::Fallocate { fh, offset, length, mode } => Op::Fallocate { fh, offset, length, mode },
        Op::CopyFileRange(copy) => Op::CopyFileRange(copy),
        Op::TmpFile { mode, umask, open } => Op::TmpFile { mode, umask, open },
        Op::Create { mode, umask, open, .. } => Op::Create { name, mode, umask, open },
        Op::MkNod { mode, rdev, umask, .. } => Op::MkNod { name, mode, rdev, umask },
        Op::MkDir { mode, umask, .. } => Op::MkDir { name, mode, umask },
        Op::Unlink { .. } => Op::Unlink { name },
        Op::RmDir { .. } => Op::RmDir { name },
        Op::Link { target, .. } => Op::Link { target, name },
        Op::RemoveXattr { .. } => Op::RemoveXattr { name },
        Op::Symlink { .. } => Op::Symlink { name, target: other },
        Op::Rename { new_parent, flags, .. } => Op::Rename { name, new_parent, new_name: other, flags },
        Op::SetXattr { flags, clear_sgid, .. } => {
            Op::SetXattr { name, value: other.as_bytes(), flags, clear_sgid }
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{Node, Unique};

    #[test]
    fn a_kept_request_is_the_one_that_was_received() {
        let (name, other) = (OsStr::new("name"), OsStr::new("another"));
        let value = other.as_bytes();
        let ops = [
            Op::Unlink { name },
            Op::MkDir { name, mode: 1, umask: 2 },
            Op::MkNod { name, mode: 1, rdev: 2, umask: 3 },
            Op::Link { target: Node(9), name },
            Op::Symlink { name, target: other },
            Op::Rename { name, new_parent: Node(8), new_name: other, flags: 1 },
            Op::SetXattr { name, value, flags: 1, clear_sgid: true },
            Op::RemoveXattr { name },
            Op::RmDir { name },
        ];
        for op in ops {
            let request = Request {
                unique: Unique(2),
                opcode: 3,
                node: Node(4),
                uid: 5,
                gid: 6,
                pid: 7,
                supplementary_group: Some(8),
                op,
            };
            assert_eq!(KeptRequest::of(&request).expect("it changes something").request(), request);
            assert!(KeptRequest::of(&Request { op: Op::Lookup { name }, ..request }).is_none());
        }
    }
}
