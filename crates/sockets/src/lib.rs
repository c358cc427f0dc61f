//! Kernel sockets that receive directly into frames.
//!
//! Read [`Transport`] first. A transport owns the sockets of one worker. It accepts connections, receives *into runs of
//! the region* that a [`Frames`] source lends it, and sends from extents of the region, so that user space never copies
//! payload. [`open`] selects io_uring where the kernel supports it, and epoll elsewhere, and reports the choice with
//! its reason.

mod epoll;
mod error;
mod outgoing;
mod policy;
mod poller;
mod sending;
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

/// A connection of one transport. An id is never reused within a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnId(pub u64);

/// The memory that a transport receives into and sends from, implemented by the heap.
///
/// The transport, or the kernel on its behalf, may write anywhere into a run between `take_run` and `retire_run`. Bytes
/// that were reported as landed do not change until they are released.
pub trait Frames {
    /// Lends a free run of [`landfall_media::RUN_SIZE`] bytes and returns its region offset. `None`: no run is free.
    fn take_run(&mut self) -> Option<u64>;
    /// Takes a run back: the kernel does not write into it again.
    fn retire_run(&mut self, run_off: u64);
    /// Adds a hold on bytes that the kernel has just written; the consumer of the event releases them.
    fn hold(&mut self, extent: Extent);
    /// Drops one hold on these bytes.
    fn release(&mut self, extent: Extent);

    /// Bytes that are held. Only transports that parse packets call this.
    fn bytes(&self, extent: Extent) -> &[u8] {
        let _ = extent;
        &[]
    }
    /// Stores bytes into a run that is lent to the transport. False: the medium refused.
    fn write(&mut self, off: u64, bytes: &[u8]) -> bool {
        let _ = (off, bytes);
        false
    }
    /// True while there is a hold on the frame at `off`.
    fn is_held(&self, off: u64) -> bool {
        let _ = off;
        true
    }
    /// Copies held bytes into a frame that collects such copies. The copy is held, and the hold on the original is
    /// released.
    fn set_aside(&mut self, extent: Extent) -> Option<Extent> {
        let _ = extent;
        None
    }
}

/// Bytes that one turn receives of a connection that is not trusted yet: copying megabytes that no parser needs yet
/// would delay all other connections.
pub const LIMITED_BYTES_MAX: u32 = 16 << 10;

/// Events that a transport reports.
#[derive(Debug)]
pub enum Event {
    /// A client connected to the listener that was registered with the tag `listener`.
    Accepted {
        /// The new connection.
        conn: ConnId,
        /// The tag given to [`Transport::listen`].
        listener: u32,
        /// The client's address.
        peer: Option<SocketAddr>,
    },
    /// Received bytes of the stream. They carry one hold, which passes to the receiver.
    Received {
        /// The connection.
        conn: ConnId,
        /// Where the bytes landed; with their sum, if the transport itself has verified the packet's checksum.
        extent: Extent,
        /// When the packet arrived, Unix nanoseconds; 0 if the transport does not know.
        arrival_ns: u64,
    },
    /// An [`Outgoing`] was sent completely, and its extents were released. Its buffers can be reused.
    Sent {
        /// The connection.
        conn: ConnId,
        /// The emptied buffers.
        buffers: Outgoing,
    },
    /// The client closed its sending side. Queued replies can still be sent.
    Eof {
        /// The connection.
        conn: ConnId,
    },
    /// The connection has ended, and no call accepts its id any more. This event also follows every `close`.
    Closed {
        /// The connection.
        conn: ConnId,
        /// The error that ended the connection, if any.
        error: Option<io::Error>,
    },
    /// The writes of one [`Transport::write_back`] are durable, or have failed.
    WrittenBack {
        /// The id passed to [`Transport::write_back`].
        id: u64,
        /// `Ok` only if every write and the sync succeeded.
        outcome: io::Result<()>,
    },
    /// [`Waker::wake`] was called.
    Woken,
    /// No run could be taken: the transport receives nothing until runs are free again.
    Starved,
}

/// How long [`Transport::poll`] may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// Time limit; `None` waits until there is an event, zero does not wait.
    pub timeout: Option<Duration>,
    /// If above one: linger up to `linger` for this many events, to handle them as one batch.
    pub events_min: u32,
    /// How long to linger for `events_min` events.
    pub linger: Duration,
}

/// The sockets of one worker.
pub trait Transport {
    /// `uring` or `epoll`, for logs, `INFO` and `/metrics`.
    fn name(&self) -> &'static str;

    /// Accepts connections from `listener` from now on; their events carry `tag`.
    ///
    /// # Errors
    /// The listener cannot be registered.
    fn listen(&mut self, listener: TcpListener, tag: u32) -> Result<(), TransportError>;

    /// A handle with which any thread can end this transport's wait.
    fn waker(&self) -> Waker;

    /// Submits what is queued, waits as `wait` says, and appends events to `events`.
    ///
    /// # Errors
    /// Only errors of the transport itself; errors of a connection are events.
    fn poll(
        &mut self,
        frames: &mut dyn Frames,
        wait: Wait,
        events: &mut Vec<Event>,
    ) -> Result<(), TransportError>;

    /// Queues a reply. Its extents must be held; the transport releases them when they are sent or the connection has
    /// ended. A connection has at most one send in flight: wait for [`Event::Sent`], unless this returns the emptied
    /// buffers at once.
    fn send(&mut self, frames: &mut dyn Frames, conn: ConnId, out: Outgoing) -> Option<Outgoing>;

    /// Distance from the start of one packet's landing space to that of the next: no other data land in the space that
    /// a short packet leaves. 0: data land directly behind the data before.
    fn lands_apart(&self) -> u64 {
        0
    }

    /// Bytes of the reply in flight that the connection has not accepted yet; `None` if that is not known. A decreasing
    /// number distinguishes a slow reader from one that has stopped.
    fn unsent(&self, conn: ConnId) -> Option<usize> {
        let _ = conn;
        None
    }

    /// Lifts the limit of [`LIMITED_BYTES_MAX`] bytes per turn, which applies to each connection until its client is
    /// authenticated. Transports that receive small packets have no such limit.
    fn trust(&mut self, conn: ConnId) {
        let _ = conn;
    }

    /// Stops receiving from a connection, so that TCP's window stops the client.
    fn pause(&mut self, conn: ConnId);

    /// Receives again after [`Transport::pause`].
    fn resume(&mut self, frames: &mut dyn Frames, conn: ConnId);

    /// Closes a connection at once, or after the send in flight; [`Event::Closed`] follows.
    fn close(&mut self, frames: &mut dyn Frames, conn: ConnId);

    /// Closes a connection without waiting for its peer: a transport that can choose does not send what is queued and
    /// releases its frames. [`Event::Closed`] follows.
    fn reset(&mut self, frames: &mut dyn Frames, conn: ConnId) {
        self.close(frames, conn);
    }

    /// Starts writing a batch to the file behind the region and syncing it; [`Event::WrittenBack`] reports the outcome.
    /// At most one write-back runs at a time.
    fn write_back(&mut self, id: u64, batch: Batch);

    /// Writes a batch to the file, syncs it and waits for that: the fastest way if the caller has nothing else to do.
    ///
    /// # Errors
    /// The first write or sync error.
    fn write_back_now(&mut self, batch: &Batch) -> io::Result<()>;

    /// Counters of the transport: names for `INFO` and `/metrics`, and values.
    fn counters(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    /// Closes all connections. Afterwards the kernel does not access the region any more, every hold of the transport
    /// is released, and every run is retired. The caller calls this last, before it unmaps the region. Dropping a
    /// transport also waits for the kernel, but cannot return the runs to the heap.
    ///
    /// # Errors
    /// [`TransportError::NotDrained`] if operations do not end: the region must stay mapped then.
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

/// A transport, and the reason for its choice.
pub struct OpenedTransport {
    /// The transport.
    pub transport: Box<dyn Transport>,
    /// One line for the log, for example `epoll: io_uring is refused here (EPERM: kernel.io_uring_disabled)`.
    pub reason: String,
}

/// Opens a worker's transport over the region image at `image` (address, bytes).
///
/// # Errors
/// io_uring was requested by name and is refused.
pub fn open(request: TransportRequest, image: (usize, u64)) -> Result<OpenedTransport, TransportError> {
    match request {
        TransportRequest::Epoll => epoll::open(image, "asked for".into()),
        TransportRequest::Uring => uring::open(image, "asked for"),
        TransportRequest::Auto => uring::open(image, "the best there is here")
            .or_else(|error| epoll::open(image, format!("io_uring is not usable here: {error}"))),
    }
}
