//! How requests come and replies go: by reads and writes of `/dev/fuse`, or over io_uring (`queues`).

use crate::landing::Landing;
use crate::mailbox::Mailbox;
use crate::peer::Peer;
use landfall_fuse::{
    DecodeError, Decoder, Device, EntryId, HEAD_BYTES, Ready, Received, Reply, Request, Sent, Unique, Waiter,
};
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// How the kernel and the service exchange requests and replies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TransportKind {
    /// By reads and writes of `/dev/fuse`: what is written is received where it stays, and what is read leaves from there.
    #[default]
    Device,
    /// Over io_uring (Linux 6.14, where root has allowed it): fewer system calls, and one copy of what is written and read.
    /// It is not for mounts that another process holds.
    Uring,
}

/// What a worker has received.
pub(crate) enum Incoming<'a> {
    /// A request. The data of a WRITE are in the frames of the landing runs.
    Request(Request<'a>),
    /// Something that is none.
    Malformed(DecodeError),
    /// The mount has ended, or the worker is to end.
    Ended,
}

impl<'a> From<Result<Request<'a>, DecodeError>> for Incoming<'a> {
    fn from(decoded: Result<Request<'a>, DecodeError>) -> Self {
        match decoded {
            Ok(request) => Self::Request(request),
            Err(malformed) => Self::Malformed(malformed),
        }
    }
}

/// The transport of one worker. Each request is answered, now or later, before the next one is received.
pub(crate) trait Transport {
    /// Waits for a request. The data of a WRITE land in frames, all of the body of others goes into `joined`.
    ///
    /// # Errors
    /// An error of the kernel.
    fn receive<'a>(
        &mut self,
        decoder: &Decoder,
        landing: &mut Landing,
        joined: &'a mut Vec<u8>,
    ) -> io::Result<Incoming<'a>>;

    /// Replies to the request that was received last.
    ///
    /// # Errors
    /// An error of the kernel.
    fn reply(&mut self, reply: &Reply) -> io::Result<Sent>;

    /// Replies to the request that was received last, with these slices.
    ///
    /// # Errors
    /// An error of the kernel.
    fn reply_data(&mut self, unique: Unique, data: &[IoSlice<'_>]) -> io::Result<Sent>;

    /// The request that was received last will be answered later.
    fn later(&mut self) -> Later;

    /// False if so many requests are to be answered later that others might not come.
    fn may_owe_more(&self) -> bool {
        true
    }
}

/// Where the reply to a request goes that is not answered at once.
pub(crate) enum Later {
    /// To a device, by whoever has it.
    Device(Arc<Device>),
    /// To a connection, on which nothing else is sent until then.
    Connection(Arc<Peer>),
    /// To the thread whose ring the request came from.
    Ring(Arc<Mailbox>, EntryId),
}

impl Later {
    /// Replies.
    ///
    /// # Errors
    /// An error of the kernel.
    pub(crate) fn reply(self, reply: &Reply) -> io::Result<Sent> {
        match self {
            Self::Device(device) => device.reply(reply),
            Self::Connection(peer) => peer.reply(reply),
            Self::Ring(mailbox, entry) => {
                mailbox.post(entry, *reply);
                Ok(Sent::Done)
            }
        }
    }
}

/// Requests by reads of `/dev/fuse`.
pub(crate) struct DeviceQueue {
    device: Arc<Device>,
    waiter: Waiter,
    head: [u8; HEAD_BYTES],
}

impl DeviceQueue {
    /// Receives until the mount ends, or `stop` is readable.
    ///
    /// # Errors
    /// No descriptor is free.
    pub(crate) fn new(device: Device, stop: &OwnedFd) -> io::Result<Self> {
        let waiter = device.waiter(stop.as_fd())?;
        Ok(Self { device: Arc::new(device), waiter, head: [0; HEAD_BYTES] })
    }
}

impl Transport for DeviceQueue {
    fn receive<'a>(
        &mut self,
        decoder: &Decoder,
        landing: &mut Landing,
        joined: &'a mut Vec<u8>,
    ) -> io::Result<Incoming<'a>> {
        loop {
            {
                let mut frames = landing.frames();
                match self.device.receive(&mut self.head, &mut frames)? {
                    Received::Request { len } => {
                        return Ok(decoder.decode(&self.head, &frames, len, joined).into());
                    }
                    Received::Ended => return Ok(Incoming::Ended),
                    Received::Retry => {}
                }
            }
            if self.waiter.wait()? == Ready::Woken {
                return Ok(Incoming::Ended);
            }
        }
    }

    fn reply(&mut self, reply: &Reply) -> io::Result<Sent> {
        self.device.reply(reply)
    }

    fn reply_data(&mut self, unique: Unique, data: &[IoSlice<'_>]) -> io::Result<Sent> {
        self.device.reply_data(unique, data)
    }

    fn later(&mut self) -> Later {
        Later::Device(Arc::clone(&self.device))
    }
}
