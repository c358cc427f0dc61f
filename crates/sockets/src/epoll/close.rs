//! Closes connections: at once, or when the send in flight has ended.

use super::state::{Closing, EpollTransport};
use super::token::Token;
use crate::conn_id::ConnId;
use crate::event::Event;
use crate::frames::Frames;
use crate::options::reset_when_closed;
use crate::policy::CLOSE_DRAIN_MAX;
use crate::sys::Interest;
use std::io;
use std::net::Shutdown;
use std::time::Instant;

impl EpollTransport {
    pub(super) fn close_after_send(&mut self, id: ConnId) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        if conn.closing.is_some() {
            return;
        }
        conn.closing = Some(Closing::default());
        if conn.sending.active {
            self.draining.push_back((Instant::now() + CLOSE_DRAIN_MAX, id));
            self.watch(id);
        } else {
            self.forget(id);
        }
    }

    /// Ends a connection after an error.
    pub(super) fn fail(&mut self, frames: &mut dyn Frames, id: ConnId, error: io::Error) {
        self.release_reply(frames, id);
        if let Some(conn) = self.conns.get_mut(id) {
            conn.closing.get_or_insert(Closing { error: Some(error), is_reset: false });
            self.forget(id);
        }
    }

    /// Ends a connection after an error, where nothing can be released: the next poll releases its reply.
    pub(super) fn fail_later(&mut self, id: ConnId, error: io::Error) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        conn.closing.get_or_insert(Closing { error: Some(error), is_reset: false });
        // The connection goes to the front, because it is due now and the others are not.
        self.draining.push_front((Instant::now(), id));
    }

    /// Ends a connection at once, and tells its peer that it was cut off.
    pub(super) fn cut_off(&mut self, frames: &mut dyn Frames, id: ConnId) {
        self.release_reply(frames, id);
        let Some(conn) = self.conns.get_mut(id) else { return };
        reset_when_closed(&conn.socket);
        conn.closing.get_or_insert_default().is_reset = true;
        self.forget(id);
    }

    /// Closes the socket and reports it; nothing is left to release.
    pub(super) fn forget(&mut self, id: ConnId) {
        let Some(conn) = self.conns.remove(id) else { return };
        let token = Token::of_conn(id).0;
        let fd = std::os::fd::AsRawFd::as_raw_fd(&conn.socket);
        // Closing removes the socket from epoll's set, unless a child process has inherited it.
        let _ = self.epoll.change(fd, token, conn.interest, Interest::default());
        if !conn.closing.as_ref().is_some_and(|closing| closing.is_reset) {
            // This fails only if the client has already closed the connection.
            let _ = conn.socket.shutdown(Shutdown::Both);
        }
        let error = conn.closing.and_then(|closing| closing.error);
        self.ready.push(Event::Closed { conn: id, error });
    }

    /// Cuts off the sends of closed connections whose time limit has passed.
    pub(super) fn cut_off_drained(&mut self, frames: &mut dyn Frames) {
        if self.draining.is_empty() {
            return;
        }
        let now = Instant::now();
        while let Some((at, id)) = self.draining.front().copied() {
            if at > now {
                return;
            }
            self.draining.pop_front();
            self.release_reply(frames, id);
            self.forget(id);
        }
    }

    /// Ends all connections and returns everything to the heap.
    pub(super) fn stop(&mut self, frames: &mut dyn Frames) {
        if self.stopped {
            return;
        }
        self.stopped = true;
        for event in self.ready.drain(..) {
            if let Event::Received { extent, .. } = event {
                frames.release(extent);
            }
        }
        self.listeners.clear();
        for id in self.conns.ids() {
            self.release_reply(frames, id);
            self.forget(id);
        }
        self.write_back.end();
        self.landing.retire(frames);
        self.ready.clear();
    }
}
