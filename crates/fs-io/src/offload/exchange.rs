//! Requests on their way to a server on another machine, and its replies.

use crate::peer::is_farewell;
use landfall_fuse::{HEAD_BYTES, Op, REPLY_HEADER_BYTES, Request, Unique};
use parking_lot::Mutex;
use std::io::{self, IoSlice, Read, Write};
use std::net::TcpStream;

/// Bytes of the longest reply: what the kernel reads at once, with a header.
const REPLY_BYTES_MAX: usize = (1 << 20) + 4096;

/// Where FORGET has its lookups, in bytes from the beginning of the request.
const FORGET_AT: usize = 40;
/// Where BATCH_FORGET has the number of its inodes.
const BATCH_COUNT_AT: usize = 40;
/// Where it has the first one, of 16 bytes each: number, lookups.
const BATCH_FORGET_AT: usize = 48;
/// Where READ has the number of bytes.
const READ_SIZE_AT: usize = 56;

/// A queue to the server.
pub(super) struct Line {
    pub(super) stream: TcpStream,
    /// Held from a request to its reply.
    pub(super) turn: Mutex<()>,
}

/// A request, as it was received.
#[derive(Clone, Copy)]
pub(super) struct Pending<'a> {
    pub(super) head: [u8; HEAD_BYTES],
    pub(super) room: &'a [u8],
    pub(super) len: usize,
}

impl<'a> Pending<'a> {
    /// A request from all of its bytes.
    pub(super) fn of(bytes: &'a [u8]) -> Self {
        let (mut head, in_head) = ([0; HEAD_BYTES], bytes.len().min(HEAD_BYTES));
        head[..in_head].copy_from_slice(&bytes[..in_head]);
        Self { head, room: &bytes[in_head..], len: bytes.len() }
    }

    /// A READ of so many bytes instead.
    pub(super) fn reading(&self, bytes: u32) -> Self {
        let mut reading = *self;
        reading.head[READ_SIZE_AT..READ_SIZE_AT + 4].copy_from_slice(&bytes.to_le_bytes());
        reading
    }

    /// The request, as the kernel would deliver it again: who has done it knows it by that.
    pub(super) fn again(&self, unique: Unique) -> Self {
        let mut again = *self;
        again.head[8..16].copy_from_slice(&unique.resent().0.to_le_bytes());
        again
    }

    /// What a server is told of lookups that the kernel forgets: of each inode's as many as `counted` says, if it is to be told.
    /// `None`: nothing.
    pub(super) fn forgetting(
        &self,
        request: &Request<'_>,
        mut counted: impl FnMut(u64, u64) -> Option<u64>,
    ) -> Option<Vec<u8>> {
        let mut bytes = self.to_vec();
        match request.op {
            Op::Forget { lookups } => {
                let left = counted(request.node.0, lookups)?;
                bytes[FORGET_AT..FORGET_AT + 8].copy_from_slice(&left.to_le_bytes());
                Some(bytes)
            }
            Op::BatchForget(forgets) => {
                let told: Vec<(u64, u64)> =
                    forgets.filter_map(|(node, lookups)| Some((node.0, counted(node.0, lookups)?))).collect();
                bytes.truncate(BATCH_FORGET_AT);
                bytes.extend(
                    told.iter().flat_map(|(node, left)| [node.to_le_bytes(), left.to_le_bytes()]).flatten(),
                );
                let (len, count) = (u32::try_from(bytes.len()).ok()?, u32::try_from(told.len()).ok()?);
                bytes[..4].copy_from_slice(&len.to_le_bytes());
                bytes[BATCH_COUNT_AT..BATCH_COUNT_AT + 4].copy_from_slice(&count.to_le_bytes());
                (count > 0).then_some(bytes)
            }
            _ => Some(bytes),
        }
    }

    /// The request by itself.
    pub(super) fn to_vec(self) -> Vec<u8> {
        let body = self.len.saturating_sub(HEAD_BYTES);
        [&self.head[..self.len.min(HEAD_BYTES)], &self.room[..body]].concat()
    }

    pub(super) fn send(&self, mut line: &TcpStream) -> io::Result<()> {
        let body = self.len.saturating_sub(HEAD_BYTES);
        let mut parts =
            [IoSlice::new(&self.head[..self.len.min(HEAD_BYTES)]), IoSlice::new(&self.room[..body])];
        let mut parts = &mut parts[..];
        IoSlice::advance_slices(&mut parts, 0);
        while !parts.is_empty() {
            match line.write_vectored(parts) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(bytes) => IoSlice::advance_slices(&mut parts, bytes),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Why a request has no answer.
#[derive(Debug)]
pub(super) enum Unanswered {
    /// The server has left in good order, and has not executed it.
    NotExecuted,
    /// The connection has ended. Perhaps it was executed.
    Perhaps(io::Error),
}

impl From<io::Error> for Unanswered {
    fn from(error: io::Error) -> Self {
        Self::Perhaps(error)
    }
}

/// Leaves no more than so many bytes of the data in a reply.
pub(super) fn shorten(reply: &mut Vec<u8>, data_bytes: u32) {
    reply.truncate(REPLY_HEADER_BYTES + data_bytes as usize);
    let len = u32::try_from(reply.len()).unwrap_or(u32::MAX);
    reply[..4].copy_from_slice(&len.to_le_bytes());
}

/// Sends a request, and receives the reply. Returns whether that is marked.
pub(super) fn exchange(line: &Line, pending: &Pending<'_>, reply: &mut Vec<u8>) -> Result<bool, Unanswered> {
    let _turn = line.turn.lock();
    let mut line = &line.stream;
    let sent = pending.send(line);
    let mut header = [0; REPLY_HEADER_BYTES];
    // If the server has left, it has said so, and perhaps nothing could be sent.
    let received = line.read_exact(&mut header);
    if received.is_ok() && is_farewell(&header) {
        return Err(Unanswered::NotExecuted);
    }
    sent.and(received)?;
    let len = u32::from_le_bytes(*header.first_chunk().expect("it is longer")) as usize;
    // Both have the id at offset 8.
    let [answered, asked] = [&header[8..], &pending.head[8..]]
        .map(|at| Unique(u64::from_le_bytes(*at.first_chunk().expect("it is longer"))));
    let is_answer = answered.unmarked() == asked;
    if !is_answer || !(REPLY_HEADER_BYTES..=REPLY_BYTES_MAX).contains(&len) {
        return Err(io::Error::from(io::ErrorKind::InvalidData).into());
    }
    reply.clear();
    reply.extend_from_slice(&header);
    reply.resize(len, 0);
    line.read_exact(&mut reply[REPLY_HEADER_BYTES..])?;
    Ok(answered.is_marked())
}

pub(super) fn is_success(reply: &[u8]) -> bool {
    reply[4..8] == [0; 4]
}
