//! What every transport does.

use crate::conn_id::ConnId;
use crate::error::TransportError;
use crate::event::Event;
use crate::frames::Frames;
use crate::outgoing::Outgoing;
use crate::waker::Waker;
use landfall_media::Batch;
use std::io;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// Bytes that one turn receives of a connection that is not trusted yet: copying megabytes that no parser needs yet
/// would delay all other connections.
pub const LIMITED_BYTES_MAX: u32 = 16 << 10;

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

    /// Reports [`Event::Woken`] whenever `descriptor` becomes readable, which the transport never reads.
    ///
    /// # Errors
    /// The descriptor cannot be watched.
    fn watch(&mut self, descriptor: OwnedFd) -> io::Result<()>;

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

/// A transport, and the reason for its choice.
pub struct OpenedTransport {
    /// The transport.
    pub transport: Box<dyn Transport>,
    /// One line for the log, for example `epoll: io_uring is refused here (EPERM: kernel.io_uring_disabled)`.
    pub reason: String,
}
