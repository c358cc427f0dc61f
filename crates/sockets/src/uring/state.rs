//! The state of the io_uring transport.

use super::landings::Landings;
use crate::conn_id::ConnId;
use crate::event::Event;
use crate::sending::Sending;
use crate::slots::Slots;
use crate::sys::{Completion, Region, Ring};
use crate::waker::Waker;
use crate::write_back::WriteBack;
use std::collections::VecDeque;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::time::Instant;

/// The ring of one worker, and its sockets.
pub(super) struct Uring {
    pub(super) ring: Ring,
    pub(super) region: Region,
    pub(super) waker: Waker,
    /// Descriptors of others that are reported as a wake.
    pub(super) watched: Vec<OwnedFd>,
    pub(super) landings: Landings,
    pub(super) listeners: Vec<Listener>,
    pub(super) conns: Slots<Conn>,
    /// Connections whose receive found no buffer; each one has [`Receiving::Stalled`].
    pub(super) stalled: Vec<ConnId>,
    /// Connections whose send was not accepted by the kernel and must be queued again.
    pub(super) unsent: Vec<ConnId>,
    /// Connections that were closed with a send in flight, and the time at which the send is cut off, in order of time.
    pub(super) draining: VecDeque<(Instant, ConnId)>,
    /// Events that were not returned yet. Between polls the list has only events that `send` and `close` cause at once.
    pub(super) ready: Vec<Event>,
    pub(super) completions: Vec<Completion>,
    /// Sends queued since the last wait that complete during their submission.
    pub(super) small_sends: u32,
    pub(super) write_back: WriteBack,
    pub(super) stopping: bool,
}

/// One connection.
pub(super) struct Conn {
    pub(super) socket: TcpStream,
    pub(super) receiving: Receiving,
    /// Receives without the limit per turn.
    pub(super) trusted: bool,
    pub(super) paused: bool,
    pub(super) eof: bool,
    pub(super) sending: Sending,
    pub(super) closing: Option<Closing>,
}

/// A socket that accepts connections.
pub(super) struct Listener {
    pub(super) socket: TcpListener,
    pub(super) tag: u32,
    /// Time to accept again after an error.
    pub(super) retry_at: Option<Instant>,
}

/// A connection that is being closed.
pub(super) struct Closing {
    pub(super) error: Option<io::Error>,
    /// A send in flight must not be continued.
    pub(super) cut_off: bool,
}

/// State of a connection's receive operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Receiving {
    /// Not in the kernel.
    Idle,
    /// In the kernel, or queued for it.
    Armed,
    /// In the kernel, and being cancelled.
    Cancelling,
    /// Ended for lack of space; the connection is in the list of those to restart.
    Stalled,
}
