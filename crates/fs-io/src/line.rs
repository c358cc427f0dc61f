//! Where the requests of one worker come from: a queue of the kernel's device, or a connection to another machine
//! (`docs/format/fs-network.md`).

use crate::landing::Landing;
use crate::peer::{Filled, Peer};
use crate::transport::{Incoming, Later, Transport};
use landfall_fuse::{Decoder, Device, HEAD_BYTES, Reply, Sent, Unique};
use smallvec::SmallVec;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::TcpStream;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// Bytes of `fuse_in_header`, which begins with the length of the request.
const REQUEST_HEADER_BYTES: usize = 40;
/// Slices of one reply that need no allocation.
const SLICES_INLINE: usize = 17;

/// Where the requests of one worker come from.
#[derive(Debug)]
pub(crate) enum Line {
    Device(Device),
    /// It does not block.
    Connection(TcpStream),
}

impl Line {
    /// A connection that another thread has accepted.
    ///
    /// # Errors
    /// It is no socket.
    pub(crate) fn of_connection(socket: OwnedFd) -> io::Result<Self> {
        let stream = TcpStream::from(socket);
        stream.set_nonblocking(true)?;
        Ok(Self::Connection(stream))
    }

    /// The line once more: both descriptors are of the same queue, or connection.
    ///
    /// # Errors
    /// No descriptor is free.
    pub(crate) fn try_clone(&self) -> io::Result<Self> {
        match self {
            Self::Device(device) => Device::from_fd(device.as_fd().try_clone_to_owned()?).map(Self::Device),
            Self::Connection(stream) => stream.try_clone().map(Self::Connection),
        }
    }

    /// The kernel's device, if it is on this machine.
    pub(crate) fn device(&self) -> Option<&Device> {
        match self {
            Self::Device(device) => Some(device),
            Self::Connection(_) => None,
        }
    }
}

/// Requests that come over a connection.
pub(crate) struct ConnectionQueue {
    peer: Arc<Peer>,
    head: [u8; HEAD_BYTES],
}

impl ConnectionQueue {
    /// Receives until the connection ends, or `stop` is readable.
    ///
    /// # Errors
    /// No descriptor is free.
    pub(crate) fn new(stream: TcpStream, stop: &OwnedFd) -> io::Result<Self> {
        let peer = Arc::new(Peer::new(stream, stop.try_clone()?));
        Ok(Self { peer, head: [0; HEAD_BYTES] })
    }
}

/// What was received in part is not executed.
fn ended<'a>(peer: &Peer) -> Incoming<'a> {
    peer.leave();
    Incoming::Ended
}

impl Transport for ConnectionQueue {
    fn receive<'a>(
        &mut self,
        decoder: &Decoder,
        landing: &mut Landing,
        joined: &'a mut Vec<u8>,
    ) -> io::Result<Incoming<'a>> {
        // Runs are borrowed when there is a request.
        let (header, rest) = self.head.split_at_mut(REQUEST_HEADER_BYTES);
        if self.peer.fill(&mut [IoSliceMut::new(header)])? == Filled::Ended {
            return Ok(ended(&self.peer));
        }
        let len = header.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes) as usize);
        let mut frames = landing.frames();
        let room: usize = frames.iter().map(|frame| frame.len()).sum();
        if !(REQUEST_HEADER_BYTES..=HEAD_BYTES + room).contains(&len) {
            tracing::warn!(len, "the holder of a mount sends no requests of the kernel: its connection ends");
            return Ok(Incoming::Ended);
        }
        {
            let in_head = rest.len().min(len - REQUEST_HEADER_BYTES);
            let mut left = len.saturating_sub(HEAD_BYTES);
            let mut parts: SmallVec<[IoSliceMut<'_>; 3]> = SmallVec::new();
            parts.push(IoSliceMut::new(&mut rest[..in_head]));
            for frame in &mut frames {
                let here = left.min(frame.len());
                parts.push(IoSliceMut::new(&mut frame[..here]));
                left -= here;
            }
            if self.peer.fill(&mut parts)? == Filled::Ended {
                return Ok(ended(&self.peer));
            }
        }
        Ok(decoder.decode(&self.head, &frames, len, joined).into())
    }

    fn reply(&mut self, reply: &Reply) -> io::Result<Sent> {
        self.peer.reply(reply)
    }

    fn reply_data(&mut self, unique: Unique, data: &[IoSlice<'_>]) -> io::Result<Sent> {
        let head = Reply::data(unique, data.iter().map(|slice| slice.len()).sum());
        let mut parts: SmallVec<[IoSlice<'_>; SLICES_INLINE]> = SmallVec::with_capacity(data.len() + 1);
        parts.push(IoSlice::new(head.as_bytes()));
        parts.extend_from_slice(data);
        self.peer.send(&mut parts)
    }

    fn later(&mut self) -> Later {
        self.peer.owe();
        Later::Connection(Arc::clone(&self.peer))
    }
}
