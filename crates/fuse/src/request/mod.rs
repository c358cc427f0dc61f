//! Requests: what the kernel asks for.

mod body;
mod decode;
mod error;
mod op;
#[cfg(test)]
mod tests;

pub use error::{DecodeError, Malformed};
pub use op::{
    CopyCount, CopyFileRange, Forgets, Init, LockRequest, Op, Open, Read, ReadDir, Release, SetAttr, SetTime,
    Write,
};

use crate::abi::{self, opcode};
use crate::types::{Node, Unique};
use body::Body;
use std::ops::Deref;
use zerocopy::FromBytes;

/// Bytes of the head of a request: `fuse_in_header` and `fuse_write_in`. What follows them in a WRITE are its data.
pub const HEAD_BYTES: usize = 80;
/// Bytes of `fuse_in_header`.
const HEADER_BYTES: usize = 40;

/// A request of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// Its id; the reply repeats it.
    pub unique: Unique,
    /// Its number in the protocol, for counters and logs.
    pub opcode: u32,
    /// Its subject: a file, or the directory that a name is in.
    pub node: Node,
    /// The caller's user; 0 where the kernel asks for itself, `u32::MAX` where an id-mapped mount hides it.
    pub uid: u32,
    /// The caller's group.
    pub gid: u32,
    /// The caller's process, 0 where it is not visible from here.
    pub pid: u32,
    /// With the feature `CreateSuppGroup`: the parent directory's group, if the caller is a member of it by a
    /// supplementary group. Only creating requests carry it.
    pub supplementary_group: Option<u32>,
    /// What it asks for.
    pub op: Op<'a>,
}

/// Decodes requests in the form that INIT has agreed on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Decoder {
    setxattr_ext: bool,
}

impl Decoder {
    /// For requests before INIT was answered, that is, for INIT. [`crate::Negotiated::decoder`] gives the one after.
    pub fn new() -> Self {
        Self::default()
    }

    pub(crate) fn with_setxattr_ext(setxattr_ext: bool) -> Self {
        Self { setxattr_ext }
    }

    /// Decodes a request of `received` bytes, which lie in `head` and, from byte 80 on, in `frames`.
    ///
    /// The data of a WRITE stay where they are: they are the first `size` bytes of the frames. The body of any other
    /// request is copied into `joined`, and the frames can be used again at once. A body has at most some 70 KiB
    /// (SETXATTR), and commonly less than 300 bytes.
    ///
    /// # Errors
    /// The request is malformed. No bytes, however strange, cause a panic.
    pub fn decode<'a, F: Deref<Target = [u8]>>(
        &self,
        head: &[u8; HEAD_BYTES],
        frames: &[F],
        received: usize,
        joined: &'a mut Vec<u8>,
    ) -> Result<Request<'a>, DecodeError> {
        let unknown = |what| DecodeError { unique: None, opcode: 0, what };
        let header = header(head, received).map_err(unknown)?;
        let failed = |what| DecodeError { unique: Some(Unique(header.unique)), opcode: header.opcode, what };
        if usize::try_from(header.len) != Ok(received) {
            return Err(failed(Malformed::Length));
        }
        if header.opcode == opcode::WRITE {
            let data_bytes = write_data(frames, received).map_err(failed)?;
            let op = decode::write(Body::new(&head[HEADER_BYTES..]), data_bytes).map_err(failed)?;
            return Ok(request(&header, op, None));
        }
        join(head, frames, received, joined).map_err(failed)?;
        self.joined(&header, joined).map_err(failed)
    }

    /// Decodes a request that came in three parts, as over io_uring: `fuse_in_header` (40 bytes, what follows them does not
    /// count), then room for its first structure, and what comes behind that. Only the header says how much of that room
    /// is used. The data of a WRITE stay where they are, at the first byte of `rest`; any other body is copied into
    /// `joined`.
    ///
    /// # Errors
    /// As for [`Self::decode`].
    pub(crate) fn decode_parts<'a>(
        &self,
        head: &[u8],
        first: &[u8],
        rest: &[u8],
        joined: &'a mut Vec<u8>,
    ) -> Result<Request<'a>, DecodeError> {
        let unknown = |what| DecodeError { unique: None, opcode: 0, what };
        let header = header(head, head.len()).map_err(unknown)?;
        let failed = |what| DecodeError { unique: Some(Unique(header.unique)), opcode: header.opcode, what };
        let first_bytes =
            usize::try_from(header.len).ok().and_then(|len| len.checked_sub(HEADER_BYTES + rest.len()));
        let first = first_bytes.and_then(|bytes| first.get(..bytes)).ok_or(failed(Malformed::Length))?;
        if header.opcode == opcode::WRITE {
            let op = decode::write(Body::new(first), rest.len()).map_err(failed)?;
            return Ok(request(&header, op, None));
        }
        joined.clear();
        joined.extend_from_slice(first);
        joined.extend_from_slice(rest);
        self.joined(&header, joined).map_err(failed)
    }

    /// Decodes the body of a request other than WRITE.
    fn joined<'a>(&self, header: &abi::InHeader, joined: &'a [u8]) -> Result<Request<'a>, Malformed> {
        let (body, extensions) = split_extensions(joined, header.extension_words)?;
        let op = decode::op(header.opcode, Body::new(body), self.setxattr_ext)?;
        let group = supplementary_group(Body::new(extensions))?;
        Ok(request(header, op, group))
    }
}

fn header(head: &[u8], received: usize) -> Result<abi::InHeader, Malformed> {
    if received < HEADER_BYTES {
        return Err(Malformed::Short);
    }
    abi::InHeader::read_from_prefix(head).map(|(header, _)| header).map_err(|_| Malformed::Short)
}

/// The number of bytes of data that a WRITE has in the frames.
fn write_data<F: Deref<Target = [u8]>>(frames: &[F], received: usize) -> Result<usize, Malformed> {
    let data = received.checked_sub(HEAD_BYTES).ok_or(Malformed::Short)?;
    let room: usize = frames.iter().map(|frame| frame.len()).sum();
    if data <= room { Ok(data) } else { Err(Malformed::Length) }
}

/// Copies the body of a request into `joined`.
fn join<F: Deref<Target = [u8]>>(
    head: &[u8; HEAD_BYTES],
    frames: &[F],
    received: usize,
    joined: &mut Vec<u8>,
) -> Result<(), Malformed> {
    joined.clear();
    joined.extend_from_slice(&head[HEADER_BYTES..received.min(HEAD_BYTES)]);
    let mut left = received.saturating_sub(HEAD_BYTES);
    for frame in frames {
        let here = &frame[..left.min(frame.len())];
        joined.extend_from_slice(here);
        left -= here.len();
    }
    if left == 0 { Ok(()) } else { Err(Malformed::Length) }
}

/// Extensions are at the end; their length is counted in words of 8 bytes.
fn split_extensions(body: &[u8], words: u16) -> Result<(&[u8], &[u8]), Malformed> {
    let at = body.len().checked_sub(usize::from(words) * 8).ok_or(Malformed::Short)?;
    Ok(body.split_at(at))
}

/// The first group of the extension `FUSE_EXT_GROUPS`; the kernel sends at most one.
fn supplementary_group(mut body: Body<'_>) -> Result<Option<u32>, Malformed> {
    while !body.rest().is_empty() {
        let header: abi::ExtensionHeader = body.take()?;
        let mut content = Body::new(body.bytes(header.size.checked_sub(8).ok_or(Malformed::Short)?)?);
        if header.kind == abi::EXT_GROUPS && content.take::<u32>()? > 0 {
            return content.take().map(Some);
        }
    }
    Ok(None)
}

fn request<'a>(header: &abi::InHeader, op: Op<'a>, supplementary_group: Option<u32>) -> Request<'a> {
    Request {
        unique: Unique(header.unique),
        opcode: header.opcode,
        node: Node(header.node),
        uid: header.uid,
        gid: header.gid,
        pid: header.pid,
        supplementary_group,
        op,
    }
}
