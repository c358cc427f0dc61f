//! The epoll transport, for kernels and containers without io_uring. It reports the same events in the same order.
//!
//! Bytes are received into the current run, behind those that landed before, and are not copied afterwards.

mod accept;
mod close;
mod landing;
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
use crate::sys::{Epoll, Interest, Ready, Region};
use crate::transport::{OpenedTransport, Transport, Wait};
use crate::waker::Waker;
use crate::write_back::WriteBack;
use landfall_media::Batch;
use landing::Landing;
use state::{Conn, EpollTransport};
use std::collections::VecDeque;
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};
use token::{Source, Token};

/// Opens the transport; `why` is part of the reason line.
pub(crate) fn open(image: (usize, u64), why: String) -> Result<OpenedTransport, TransportError> {
    let transport = Box::new(EpollTransport::new(Region::new(image))?);
    Ok(OpenedTransport { transport, reason: format!("epoll: {why}") })
}

impl EpollTransport {
    fn new(region: Region) -> Result<Self, TransportError> {
        let waker = Waker::new().map_err(|e| TransportError::sort("making an eventfd", e))?;
        let epoll = Epoll::new().map_err(|e| TransportError::sort("epoll_create1", e))?;
        epoll
            .watch_edges(waker.descriptor(), Token::of(Source::Waker).0)
            .map_err(|e| TransportError::sort("watching an eventfd", e))?;
        Ok(Self {
            epoll,
            region,
            waker,
            watched: Vec::new(),
            landing: Landing::new(),
            listeners: Vec::new(),
            conns: Slots::new(),
            stalled: Vec::new(),
            draining: VecDeque::new(),
            ready: Vec::new(),
            found: Vec::new(),
            write_back: WriteBack::new(false),
            stopped: false,
        })
    }

    /// Waits once and handles the ready descriptors.
    fn turn(&mut self, frames: &mut dyn Frames, timeout: Option<Duration>) -> Result<(), TransportError> {
        let timeout = if self.ready.is_empty() { self.limit(timeout) } else { Some(Duration::ZERO) };
        let mut found = std::mem::take(&mut self.found);
        self.epoll.wait(timeout, &mut found).map_err(|e| TransportError::sort("epoll_wait", e))?;
        for ready in found.drain(..) {
            self.handle(frames, ready);
        }
        self.found = found;
        Ok(())
    }

    fn handle(&mut self, frames: &mut dyn Frames, ready: Ready) {
        let token = Token(ready.token);
        match token.source() {
            Source::Conn => self.serve(frames, token.conn(), ready),
            Source::Listener => self.accept_some(token.index()),
            Source::Writer => self.collect_written(),
            Source::Waker => {
                self.waker.acknowledge();
                self.ready.push(Event::Woken);
            }
            Source::Watched => self.ready.push(Event::Woken),
        }
    }

    fn serve(&mut self, frames: &mut dyn Frames, id: ConnId, ready: Ready) {
        if ready.write {
            self.send_more(frames, id);
        }
        if ready.read {
            self.receive_some(frames, id);
        }
    }

    /// The time limit of a wait, shortened to the next retry.
    fn limit(&self, timeout: Option<Duration>) -> Option<Duration> {
        let timeout = match timeout {
            _ if !self.landing.starved() => timeout,
            Some(timeout) => Some(timeout.min(STARVED_RETRY)),
            None => Some(STARVED_RETRY),
        };
        let cut_off = self.draining.front().map(|(at, _)| *at);
        let accept = self.listeners.iter().filter_map(|listener| listener.retry_at).min();
        if cut_off.is_none() && accept.is_none() {
            return timeout;
        }
        let now = Instant::now();
        until(until(timeout, cut_off, now), accept, now)
    }

    /// Registers the events that a connection waits for next.
    fn watch(&mut self, id: ConnId) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        let interest = conn.wanted();
        let (fd, token) = (conn.socket.as_raw_fd(), Token::of_conn(id).0);
        match self.epoll.change(fd, token, conn.interest, interest) {
            Ok(()) => conn.interest = interest,
            Err(error) => self.fail_later(id, error),
        }
    }
}

impl Conn {
    const fn wanted(&self) -> Interest {
        let read = !self.paused && !self.eof && !self.stalled && self.closing.is_none();
        Interest { read, write: self.sending.active }
    }
}

impl Transport for EpollTransport {
    fn name(&self) -> &'static str {
        "epoll"
    }

    fn listen(&mut self, listener: TcpListener, tag: u32) -> Result<(), TransportError> {
        self.add_listener(listener, tag).map_err(|e| TransportError::sort("watching a listener", e))
    }

    fn waker(&self) -> Waker {
        self.waker.clone()
    }

    fn watch(&mut self, descriptor: OwnedFd) -> io::Result<()> {
        self.epoll.watch_edges(descriptor.as_raw_fd(), Token::of(Source::Watched).0)?;
        self.watched.push(descriptor);
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
        let mut timeout = wait.timeout;
        loop {
            self.restart_stalled(frames);
            self.restart_accepting();
            self.cut_off_drained(frames);
            let had_some = !self.ready.is_empty();
            self.turn(frames, timeout)?;
            if !had_some && !self.ready.is_empty() {
                self.linger(frames, wait)?;
            }
            if !self.ready.is_empty() || timeout == Some(Duration::ZERO) {
                break;
            }
            timeout = until(None, deadline, Instant::now());
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
        self.set_paused(conn, true);
    }

    fn resume(&mut self, _: &mut dyn Frames, conn: ConnId) {
        self.set_paused(conn, false);
    }

    fn close(&mut self, _: &mut dyn Frames, conn: ConnId) {
        self.close_after_send(conn);
    }

    fn reset(&mut self, frames: &mut dyn Frames, conn: ConnId) {
        self.cut_off(frames, conn);
    }

    fn write_back(&mut self, id: u64, batch: Batch) {
        self.start_writing(id, batch);
    }

    fn write_back_now(&mut self, batch: &Batch) -> io::Result<()> {
        self.write_back.now(batch)
    }

    fn shut_down(&mut self, frames: &mut dyn Frames) -> Result<(), TransportError> {
        self.stop(frames);
        Ok(())
    }
}

impl EpollTransport {
    /// Waits once more for a short time if there are too few events for a batch. The wait ends at the first event.
    fn linger(&mut self, frames: &mut dyn Frames, wait: Wait) -> Result<(), TransportError> {
        let few = self.ready.len() < wait.events_min as usize;
        if wait.events_min <= 1 || !few || wait.linger.is_zero() || wait.timeout == Some(Duration::ZERO) {
            return Ok(());
        }
        let mut found = std::mem::take(&mut self.found);
        self.epoll.wait(Some(wait.linger), &mut found).map_err(|e| TransportError::sort("epoll_wait", e))?;
        for ready in found.drain(..) {
            self.handle(frames, ready);
        }
        self.found = found;
        Ok(())
    }
}
