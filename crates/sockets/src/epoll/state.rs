//! The state of the epoll transport.

use super::landing::Landing;
use crate::conn_id::ConnId;
use crate::event::Event;
use crate::sending::Sending;
use crate::slots::Slots;
use crate::sys::{Epoll, Interest, Ready, Region};
use crate::waker::Waker;
use crate::write_back::WriteBack;
use std::collections::VecDeque;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::time::Instant;

/// The sockets of one worker, and what epoll watches.
pub(super) struct EpollTransport {
    pub(super) epoll: Epoll,
    pub(super) region: Region,
    pub(super) waker: Waker,
    /// Descriptors of others that are reported as a wake.
    pub(super) watched: Vec<OwnedFd>,
    pub(super) landing: Landing,
    pub(super) listeners: Vec<Listener>,
    pub(super) conns: Slots<Conn>,
    /// Connections that epoll does not watch for lack of landing space; each one is marked.
    pub(super) stalled: Vec<ConnId>,
    /// Connections that were closed with a send in flight, and the time at which the send is cut off, in order of time.
    pub(super) draining: VecDeque<(Instant, ConnId)>,
    /// Events that were not returned yet.
    pub(super) ready: Vec<Event>,
    pub(super) found: Vec<Ready>,
    pub(super) write_back: WriteBack,
    pub(super) stopped: bool,
}

/// One connection.
pub(super) struct Conn {
    pub(super) socket: TcpStream,
    /// Events that epoll watches the socket for now.
    pub(super) interest: Interest,
    /// Receives without the limit per turn.
    pub(super) trusted: bool,
    pub(super) paused: bool,
    pub(super) eof: bool,
    pub(super) stalled: bool,
    pub(super) sending: Sending,
    pub(super) closing: Option<Closing>,
}

/// A socket that accepts connections.
pub(super) struct Listener {
    pub(super) socket: TcpListener,
    pub(super) tag: u32,
    pub(super) interest: Interest,
    /// Time to accept again after an error.
    pub(super) retry_at: Option<Instant>,
}

/// A connection that is being closed.
#[derive(Default)]
pub(super) struct Closing {
    pub(super) error: Option<io::Error>,
    /// Its peer is to see that it was cut off.
    pub(super) is_reset: bool,
}
