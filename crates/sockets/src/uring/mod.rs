//! The io_uring transport: one ring per worker, and one system call per turn for all operations.
//!
//! The transport needs Linux 6.12 (`IOU_PBUF_RING_INC`, `min_wait_usec`); on an older kernel [`open`] is refused, and
//! epoll is selected. Buffers are consumed incrementally, so the data of all connections land as one dense log in whole
//! runs, and the transport needs no other way to post buffers.

mod accept;
mod close;
mod landings;
mod receive;
mod send;
mod state;
mod token;
mod write_back;

use crate::conn_id::ConnId;
use crate::error::TransportError;
use crate::event::Event;
use crate::frames::Frames;
use crate::outgoing::Outgoing;
use crate::policy::{STARVED_RETRY, until};
use crate::slots::Slots;
use crate::sys::{Completion, Region, Ring};
use crate::transport::{OpenedTransport, Transport, Wait};
use crate::waker::Waker;
use crate::write_back::WriteBack;
use landfall_media::Batch;
use landings::Landings;
use send::SEND_RETRY;
use state::Uring;
use std::collections::VecDeque;
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};
use token::{Operation, Token};

/// Completions that one wait may ask for; far below the ring's capacity.
const WANT_MAX: u32 = 4096;

/// Opens the transport; `why` is part of the reason line.
pub(crate) fn open(image: (usize, u64), why: &str) -> Result<OpenedTransport, TransportError> {
    let transport = Box::new(Uring::new(Region::new(image))?);
    let reason = format!("{why}; multishot receive into incremental buffers over runs");
    Ok(OpenedTransport { transport, reason })
}

impl Uring {
    fn new(region: Region) -> Result<Self, TransportError> {
        let waker = Waker::new().map_err(|e| TransportError::sort("making an eventfd", e))?;
        let mut ring = Ring::open()?;
        ring.watch_edges(waker.descriptor(), Token::of(Operation::Wake).0);
        Ok(Self {
            ring,
            region,
            waker,
            watched: Vec::new(),
            landings: Landings::new(),
            listeners: Vec::new(),
            conns: Slots::new(),
            stalled: Vec::new(),
            unsent: Vec::new(),
            draining: VecDeque::new(),
            ready: Vec::new(),
            completions: Vec::new(),
            small_sends: 0,
            write_back: WriteBack::new(true),
            stopping: false,
        })
    }

    /// Prepares a wait: posts landing space and restarts paused operations.
    fn prepare(&mut self, frames: &mut dyn Frames) {
        self.replenish(frames);
        self.restart_stalled();
        self.restart_sending(frames);
        self.restart_accepting();
        self.cut_off_drained();
    }

    /// Submits and waits once.
    ///
    /// Small sends complete during their submission. A wait that lingers must not count them as the requests that it
    /// lingers for, so it asks for as many additional completions. A wait that does not linger may end with them:
    /// ignoring them would need a timer of about 50 us, which costs more CPU time than the second system call does
    /// (`docs/results/decisions.md`).
    fn turn(&mut self, frames: &mut dyn Frames, wait: Wait) -> Result<(), TransportError> {
        let sends = std::mem::take(&mut self.small_sends);
        let lingers = wait.events_min > 1 && !wait.linger.is_zero();
        let (want, patience) = match () {
            () if !self.ready.is_empty() || wait.timeout == Some(Duration::ZERO) => (0, Duration::ZERO),
            () if lingers => (sends.saturating_add(wait.events_min).min(WANT_MAX), wait.linger),
            () => (1, Duration::ZERO),
        };
        let timeout = self.limit(wait.timeout);
        self.ring.enter(want, patience, timeout).map_err(|e| TransportError::sort("io_uring_enter", e))?;
        self.handle_completions(frames);
        Ok(())
    }

    /// The time limit of a wait, shortened to the next retry.
    fn limit(&self, timeout: Option<Duration>) -> Option<Duration> {
        let retry = match () {
            () if !self.unsent.is_empty() => Some(SEND_RETRY),
            () if self.landings.starved() => Some(STARVED_RETRY),
            () => None,
        };
        let timeout = retry.map_or(timeout, |retry| Some(timeout.map_or(retry, |limit| limit.min(retry))));
        let cut_off = self.draining.front().map(|(at, _)| *at);
        let accept = self.listeners.iter().filter_map(|listener| listener.retry_at).min();
        if cut_off.is_none() && accept.is_none() {
            return timeout;
        }
        let now = Instant::now();
        until(until(timeout, cut_off, now), accept, now)
    }

    /// Handles every available completion.
    fn handle_completions(&mut self, frames: &mut dyn Frames) {
        let mut completions = std::mem::take(&mut self.completions);
        self.ring.drain(&mut completions);
        for completion in &completions {
            self.complete(frames, completion);
        }
        completions.clear();
        self.completions = completions;
    }

    fn complete(&mut self, frames: &mut dyn Frames, completion: &Completion) {
        let token = Token(completion.token);
        match token.operation() {
            Operation::Receive => self.received(frames, token.conn(), completion),
            Operation::Send => self.sent(frames, token.conn(), completion),
            Operation::Accept => self.accepted(token.index(), completion),
            Operation::Wake => self.woken(completion),
            Operation::Watch => self.alerted(token.index(), completion),
            Operation::Written => self.written(completion),
            // A cancelled operation reports its own end.
            Operation::Cancel => {}
        }
    }

    fn woken(&mut self, completion: &Completion) {
        if !completion.more && !self.stopping {
            self.ring.watch_edges(self.waker.descriptor(), Token::of(Operation::Wake).0);
        }
        self.waker.acknowledge();
        self.ready.push(Event::Woken);
    }

    /// A watched descriptor has become readable.
    fn alerted(&mut self, index: usize, completion: &Completion) {
        if !completion.more && !self.stopping {
            self.watch_again(index);
        }
        self.ready.push(Event::Woken);
    }

    fn watch_again(&mut self, index: usize) {
        self.ring.watch_edges(self.watched[index].as_raw_fd(), Token::of_index(Operation::Watch, index).0);
    }
}

impl Transport for Uring {
    fn name(&self) -> &'static str {
        "uring"
    }

    fn listen(&mut self, listener: TcpListener, tag: u32) -> Result<(), TransportError> {
        self.add_listener(listener, tag);
        Ok(())
    }

    fn waker(&self) -> Waker {
        self.waker.clone()
    }

    fn watch(&mut self, descriptor: OwnedFd) -> io::Result<()> {
        self.watched.push(descriptor);
        self.watch_again(self.watched.len() - 1);
        Ok(())
    }

    fn poll(
        &mut self,
        frames: &mut dyn Frames,
        wait: Wait,
        events: &mut Vec<Event>,
    ) -> Result<(), TransportError> {
        let may_wait = wait.timeout.filter(|timeout| !timeout.is_zero());
        let deadline = may_wait.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut wait = wait;
        loop {
            self.prepare(frames);
            self.turn(frames, wait)?;
            // Completions without an event do not end the wait.
            if !self.ready.is_empty() || wait.timeout == Some(Duration::ZERO) {
                break;
            }
            wait.timeout = until(None, deadline, Instant::now());
        }
        events.append(&mut self.ready);
        Ok(())
    }

    fn send(&mut self, frames: &mut dyn Frames, conn: ConnId, out: Outgoing) -> Option<Outgoing> {
        self.start_sending(frames, conn, out);
        None
    }

    fn trust(&mut self, conn: ConnId) {
        self.trust_received(conn);
    }

    fn unsent(&self, conn: ConnId) -> Option<usize> {
        self.conns.get(conn).map(|conn| conn.sending.unsent())
    }

    fn pause(&mut self, conn: ConnId) {
        self.pause_receiving(conn);
    }

    fn resume(&mut self, _: &mut dyn Frames, conn: ConnId) {
        self.resume_receiving(conn);
    }

    fn close(&mut self, _: &mut dyn Frames, conn: ConnId) {
        self.close_after_send(conn);
    }

    fn reset(&mut self, _: &mut dyn Frames, conn: ConnId) {
        self.cut_off(conn);
    }

    fn write_back(&mut self, id: u64, batch: Batch) {
        self.start_writing(id, batch);
    }

    fn write_back_now(&mut self, batch: &Batch) -> io::Result<()> {
        self.write_back.now(batch)
    }

    fn shut_down(&mut self, frames: &mut dyn Frames) -> Result<(), TransportError> {
        self.stop(frames)
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        if let Err(error) = self.stop(&mut close::DiscardedFrames) {
            tracing::error!(%error, "a transport was dropped while the kernel was at work");
        }
    }
}
