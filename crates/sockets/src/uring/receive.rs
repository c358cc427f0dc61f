//! Receives with one multishot operation per connection, all of them into a few shared runs.

use super::state::{Conn, Receiving, Uring};
use super::token::{Operation, Token};
use crate::conn_id::ConnId;
use crate::event::Event;
use crate::frames::Frames;
use crate::sys::Completion;
use crate::transport::LIMITED_BYTES_MAX;
use landfall_media::Extent;
use std::os::fd::AsRawFd;

impl Uring {
    /// Posts runs in place of full ones, and reports starvation if there are none.
    pub(super) fn replenish(&mut self, frames: &mut dyn Frames) {
        if self.landings.replenish(frames, &mut self.ring, self.region) {
            self.ready.push(Event::Starved);
        }
    }

    /// Starts to receive on a connection, if it may receive and does not already.
    pub(super) fn start_receiving(&mut self, id: ConnId) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        if conn.receiving != Receiving::Idle || !conn.may_receive() {
            return;
        }
        if !self.landings.any_posted() {
            conn.receiving = Receiving::Stalled;
            self.stalled.push(id);
        } else {
            conn.receiving = Receiving::Armed;
            let (socket, token) = (conn.socket.as_raw_fd(), Token::of_conn(Operation::Receive, id).0);
            if conn.trusted {
                self.ring.receive(socket, token);
            } else {
                self.ring.receive_once(socket, LIMITED_BYTES_MAX, token);
            }
        }
    }

    /// Lifts the limit per turn; the operation in the kernel is the last limited one.
    pub(super) fn trust_received(&mut self, id: ConnId) {
        if let Some(conn) = self.conns.get_mut(id) {
            conn.trusted = true;
        }
    }

    pub(super) fn restart_stalled(&mut self) {
        if self.stalled.is_empty() || !self.landings.any_posted() {
            return;
        }
        for id in std::mem::take(&mut self.stalled) {
            if let Some(conn) = self.conns.get_mut(id) {
                conn.receiving = Receiving::Idle;
                self.start_receiving(id);
            }
        }
    }

    pub(super) fn pause_receiving(&mut self, id: ConnId) {
        if let Some(conn) = self.conns.get_mut(id) {
            conn.paused = true;
            self.stop_receiving(id);
        }
    }

    pub(super) fn resume_receiving(&mut self, id: ConnId) {
        if let Some(conn) = self.conns.get_mut(id) {
            conn.paused = false;
            self.start_receiving(id);
        }
    }

    /// Cancels the operation; data that it has received are still reported.
    pub(super) fn stop_receiving(&mut self, id: ConnId) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        if conn.receiving == Receiving::Armed {
            conn.receiving = Receiving::Cancelling;
            let target = Token::of_conn(Operation::Receive, id);
            self.ring.cancel(target.0, Token::of_conn(Operation::Cancel, id).0);
        }
    }

    pub(super) fn received(&mut self, frames: &mut dyn Frames, id: ConnId, completion: &Completion) {
        if let Some(extent) = self.landings.landed(frames, completion) {
            self.report_received(frames, id, extent);
        }
        if !completion.more {
            self.receive_ended(id, completion);
        }
    }

    fn report_received(&mut self, frames: &mut dyn Frames, conn: ConnId, extent: Extent) {
        match self.conns.get_mut(conn) {
            Some(Conn { closing: None, .. }) => {
                self.ready.push(Event::Received { conn, extent, arrival_ns: 0 })
            }
            // The bytes landed after the connection was closed: they are released.
            _ => frames.release(extent),
        }
    }

    fn receive_ended(&mut self, id: ConnId, completion: &Completion) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        conn.receiving = Receiving::Idle;
        if conn.closing.is_some() {
            return self.finish_closing(id);
        }
        match completion.outcome() {
            Ok(0) => {
                conn.eof = true;
                self.ready.push(Event::Eof { conn: id });
            }
            Ok(_) => self.start_receiving(id),
            Err(error) => match error.raw_os_error() {
                Some(libc::ENOBUFS) => self.stall(id),
                Some(libc::ECANCELED | libc::EINTR | libc::EAGAIN) => self.start_receiving(id),
                _ => self.fail(id, error),
            },
        }
    }

    /// Marks a connection whose receive ended because all posted runs were filled in one turn.
    fn stall(&mut self, id: ConnId) {
        self.landings.note_shortage();
        if let Some(conn) = self.conns.get_mut(id) {
            conn.receiving = Receiving::Stalled;
            self.stalled.push(id);
        }
    }
}

impl Conn {
    const fn may_receive(&self) -> bool {
        !self.paused && !self.eof && self.closing.is_none()
    }
}
