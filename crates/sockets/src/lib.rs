//! Kernel sockets that receive straight into frames.
//!
//! Read [`Transport`] first. A transport owns one worker's sockets. It accepts, receives *into runs of the region* that
//! a [`Frames`] source lends it, and sends from extents of the region, so that user space never copies payload.
//! [`open`] picks io_uring where the kernel has it and epoll elsewhere, and says which and why.

mod epoll;
mod error;
mod outgoing;
mod policy;
mod poller;
mod slots;
mod sys;
mod uring;
mod waker;
mod write_back;

pub use error::TransportError;
pub use outgoing::{Outgoing, Part};
pub use policy::{prefer_slices_of, run_soon_when_woken};
pub use poller::Poller;
pub use waker::Waker;
pub use write_back::WriteBack;

use landfall_media::{Batch, Extent};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

/// A connection of one transport. Never reused within a process for another connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnId(pub u64);

/// Where landing space comes from: the heap's side of a transport.
///
/// The transport may write (have the kernel write) anywhere into a run between `take_run` and
/// `retire_run`. Bytes that were reported as landed stay put until they are released.
pub trait Frames {
    /// Lends a free run of [`landfall_media::RUN_SIZE`] bytes; its region offset. `None`: no space.
    fn take_run(&mut self) -> Option<u64>;
    /// The kernel will not write into this run again.
    fn retire_run(&mut self, run_off: u64);
    /// Holds bytes that the kernel has just written; whoever consumes the event releases them.
    fn hold(&mut self, extent: Extent);
    /// Drops one hold on these bytes.
    fn release(&mut self, extent: Extent);

    /// Bytes that are held. For transports that look into packets; the others never ask.
    fn bytes(&self, extent: Extent) -> &[u8] {
        let _ = extent;
        &[]
    }
    /// Stores bytes into a run that is lent to the transport. False: the medium refused.
    fn write(&mut self, off: u64, bytes: &[u8]) -> bool {
        let _ = (off, bytes);
        false
    }
    /// True while anybody holds the frame at `off`.
    fn is_held(&self, off: u64) -> bool {
        let _ = off;
        true
    }
    /// Copies held bytes into space shared by others that wait long; the copy is held, the original released.
    fn set_aside(&mut self, extent: Extent) -> Option<Extent> {
        let _ = extent;
        None
    }
}

/// Bytes that one turn receives of a connection that is not trusted yet: copying megabytes that nobody has asked for
/// would keep everybody else waiting.
pub const LIMITED_BYTES_MAX: u32 = 16 << 10;

/// What a transport reports.
#[derive(Debug)]
pub enum Event {
    /// A client connected to the listener registered under `listener`.
    Accepted {
        /// The new connection.
        conn: ConnId,
        /// The tag given to [`Transport::listen`].
        listener: u32,
        /// The client's address.
        peer: Option<SocketAddr>,
    },
    /// Bytes of the stream, held once for the receiver.
    Received {
        /// The connection.
        conn: ConnId,
        /// Where they landed; with their sum, where the transport has verified their packet's checksum itself.
        extent: Extent,
        /// When their packet arrived, Unix nanoseconds; 0 where the transport does not know.
        arrival_ns: u64,
    },
    /// An [`Outgoing`] was sent whole; its extents have been released. Its buffers may be used again.
    Sent {
        /// The connection.
        conn: ConnId,
        /// The emptied buffers.
        buffers: Outgoing,
    },
    /// The client closed its sending side. What was queued can still be sent.
    Eof {
        /// The connection.
        conn: ConnId,
    },
    /// The connection is gone; its id means nothing from here on. Follows every `close`, too.
    Closed {
        /// The connection.
        conn: ConnId,
        /// The error that ended it, if one did.
        error: Option<io::Error>,
    },
    /// The writes of one [`Transport::write_back`] are durable, or failed.
    WrittenBack {
        /// The id given.
        id: u64,
        /// Success only when every write and the sync succeeded.
        outcome: io::Result<()>,
    },
    /// Somebody called [`Waker::wake`].
    Woken,
    /// No landing space could be taken: receiving stands still until runs are free again.
    Starved,
}

/// How long [`Transport::poll`] may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// Return after this long at the latest; `None` waits for an event, zero never waits.
    pub timeout: Option<Duration>,
    /// With more than one: linger up to `linger` for this many events, to handle them as one batch.
    pub events_min: u32,
    /// How long to linger for `events_min` events.
    pub linger: Duration,
}

/// One worker's sockets.
pub trait Transport {
    /// `uring` or `epoll`, for logs, `INFO` and `/metrics`.
    fn name(&self) -> &'static str;

    /// Accepts connections from `listener` from now on; events carry `tag`.
    ///
    /// # Errors
    /// If the listener cannot be registered.
    fn listen(&mut self, listener: TcpListener, tag: u32) -> Result<(), TransportError>;

    /// A handle with which any thread can end this transport's wait.
    fn waker(&self) -> Waker;

    /// Submits what is queued, waits as told, and appends what happened to `events`.
    ///
    /// # Errors
    /// Only errors of the transport itself; a connection's errors are events.
    fn poll(
        &mut self,
        frames: &mut dyn Frames,
        wait: Wait,
        events: &mut Vec<Event>,
    ) -> Result<(), TransportError>;

    /// Queues a reply. The extents in it must be held; the transport releases them once they are sent
    /// or the connection is gone. At most one send a connection at a time: wait for [`Event::Sent`], unless the
    /// emptied buffers come back at once.
    fn send(&mut self, frames: &mut dyn Frames, conn: ConnId, out: Outgoing) -> Option<Outgoing>;

    /// Bytes from the beginning of one packet's landing space to that of another: nobody else uses what a short packet leaves
    /// of it. 0: what arrives lands behind what arrived before.
    fn lands_apart(&self) -> u64 {
        0
    }

    /// Bytes of the reply being sent that the connection has not taken yet; `None` where nobody knows. A reader that is
    /// slow is told from one that has stopped by whether they become fewer.
    fn unsent(&self, conn: ConnId) -> Option<usize> {
        let _ = conn;
        None
    }

    /// Receives without the limit of [`LIMITED_BYTES_MAX`] a turn, which holds from the start of each connection until
    /// somebody knows who it is. Transports whose packets are small have no such limit.
    fn trust(&mut self, conn: ConnId) {
        let _ = conn;
    }

    /// Stops receiving from a connection, so that TCP's window holds the client back.
    fn pause(&mut self, conn: ConnId);

    /// Receives again after [`Transport::pause`].
    fn resume(&mut self, frames: &mut dyn Frames, conn: ConnId);

    /// Closes a connection at once, after at most the send in flight; [`Event::Closed`] follows.
    fn close(&mut self, frames: &mut dyn Frames, conn: ConnId);

    /// Closes a connection whose peer is not waited for: where that can be chosen, what is queued is not sent and
    /// holds no frames any more. [`Event::Closed`] follows.
    fn reset(&mut self, frames: &mut dyn Frames, conn: ConnId) {
        self.close(frames, conn);
    }

    /// Starts writing a batch to the file behind the region and syncing it; [`Event::WrittenBack`] tells
    /// the outcome. At most one at a time.
    fn write_back(&mut self, id: u64, batch: Batch);

    /// Does the same and waits: the fastest way where nothing else is to be done meanwhile.
    ///
    /// # Errors
    /// The first write or sync error.
    fn write_back_now(&mut self, batch: &Batch) -> io::Result<()>;

    /// What it counts beyond what the server does: names for `INFO` and `/metrics`, and counts.
    fn counters(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    /// Closes everything and gives everything back: after it the kernel touches the region no more, each
    /// hold of the transport has been released and each run retired. To be called last, before the
    /// region is unmapped; dropping a transport also waits for the kernel, but has nobody to give the
    /// runs back to.
    ///
    /// # Errors
    /// [`TransportError::NotDrained`] if operations would not end: the region must stay mapped then.
    fn shut_down(&mut self, frames: &mut dyn Frames) -> Result<(), TransportError> {
        let _ = frames;
        Ok(())
    }
}

/// Which transport to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TransportRequest {
    /// io_uring where it works, epoll elsewhere.
    #[default]
    Auto,
    /// io_uring or an error.
    Uring,
    /// epoll.
    Epoll,
}

/// A transport, and why it was chosen.
pub struct OpenedTransport {
    /// The transport.
    pub transport: Box<dyn Transport>,
    /// One line for people, for example `epoll: io_uring is refused here (EPERM: kernel.io_uring_disabled)`.
    pub reason: String,
}

/// Opens one worker's transport over the region image at `image` (address, bytes).
///
/// # Errors
/// When io_uring was asked for by name and is refused.
pub fn open(request: TransportRequest, image: (usize, u64)) -> Result<OpenedTransport, TransportError> {
    match request {
        TransportRequest::Epoll => epoll::open(image, "asked for".into()),
        TransportRequest::Uring => uring::open(image, "asked for"),
        TransportRequest::Auto => uring::open(image, "the best there is here")
            .or_else(|error| epoll::open(image, format!("io_uring is not usable here: {error}"))),
    }
}
