//! Closes connections. A connection is removed when the kernel has no operation of it any more.

use super::state::{Closing, Receiving, Uring};
use super::token::{Operation, Token};
use crate::conn_id::ConnId;
use crate::error::TransportError;
use crate::event::Event;
use crate::frames::Frames;
use crate::options::reset_when_closed;
use crate::policy::CLOSE_DRAIN_MAX;
use landfall_media::Extent;
use std::io;
use std::net::Shutdown;
use std::time::{Duration, Instant};

/// Time limit for cancelled operations to end when a transport is shut down.
const STOP_MAX: Duration = Duration::from_secs(5);
/// Length of each wait for them.
const STOP_STEP: Duration = Duration::from_millis(20);

impl Uring {
    /// Closes a connection: at once, or when its send in flight has ended.
    pub(super) fn close_after_send(&mut self, id: ConnId) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        if conn.closing.is_some() {
            return;
        }
        conn.closing = Some(Closing { error: None, cut_off: false });
        self.stop_receiving(id);
        match self.conns.get_mut(id) {
            Some(conn) if conn.sending.active => {
                self.draining.push_back((Instant::now() + CLOSE_DRAIN_MAX, id));
            }
            _ => self.shut(id),
        }
    }

    /// Ends a connection after an error.
    pub(super) fn fail(&mut self, id: ConnId, error: io::Error) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        if conn.closing.is_none() {
            conn.closing = Some(Closing { error: Some(error), cut_off: false });
        }
        self.stop_receiving(id);
        self.shut(id);
    }

    /// Ends a connection at once, and tells its peer that it was cut off.
    pub(super) fn cut_off(&mut self, id: ConnId) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        reset_when_closed(&conn.socket);
        conn.closing.get_or_insert(Closing { error: None, cut_off: true }).cut_off = true;
        self.stop_receiving(id);
        match self.conns.get_mut(id) {
            // What is queued in front of it keeps the end from the peer.
            Some(conn) if conn.sending.active => self.shut(id),
            _ => self.finish_closing(id),
        }
    }

    /// Shuts the socket down, which also ends a send that waits for the client.
    pub(super) fn shut(&mut self, id: ConnId) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        if let Some(closing) = &mut conn.closing {
            closing.cut_off = true;
        }
        // This fails only if the client has already closed the connection.
        let _ = conn.socket.shutdown(Shutdown::Both);
        self.finish_closing(id);
    }

    /// Removes the connection if the kernel has no operation of it.
    pub(super) fn finish_closing(&mut self, id: ConnId) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        let receives = matches!(conn.receiving, Receiving::Armed | Receiving::Cancelling);
        if receives || conn.sending.active || conn.closing.is_none() {
            return;
        }
        let error = self.conns.remove(id).and_then(|conn| conn.closing).and_then(|closing| closing.error);
        self.ready.push(Event::Closed { conn: id, error });
    }

    /// Cuts off the sends of closed connections whose time limit has passed.
    pub(super) fn cut_off_drained(&mut self) {
        if self.draining.is_empty() {
            return;
        }
        let now = Instant::now();
        while let Some((at, id)) = self.draining.front().copied() {
            if at > now {
                return;
            }
            self.draining.pop_front();
            self.shut(id);
        }
    }

    /// Ends all operations and returns everything to the heap.
    pub(super) fn stop(&mut self, frames: &mut dyn Frames) -> Result<(), TransportError> {
        if self.stopping {
            return Ok(());
        }
        self.stopping = true;
        for event in self.ready.drain(..) {
            if let Event::Received { extent, .. } = event {
                frames.release(extent);
            }
        }
        for id in self.conns.ids() {
            self.close_after_send(id);
            self.shut(id);
        }
        self.write_back.end();
        self.drain_operations(frames)?;
        self.ring.withdraw_buffers().map_err(|e| TransportError::sort("taking buffers back", e))?;
        self.landings.retire_all(frames);
        Ok(())
    }

    fn drain_operations(&mut self, frames: &mut dyn Frames) -> Result<(), TransportError> {
        let started = Instant::now();
        self.ring.cancel_all(Token::of(Operation::Cancel).0);
        while self.ring.in_flight() > 0 || !self.unsent.is_empty() {
            self.restart_sending(frames);
            let (operations, waited) = (self.ring.in_flight(), started.elapsed());
            if waited > STOP_MAX {
                return Err(TransportError::NotDrained { operations, waited });
            }
            let entered = self.ring.enter(1, Duration::ZERO, Some(STOP_STEP));
            entered.map_err(|e| TransportError::sort("io_uring_enter", e))?;
            self.handle_completions(frames);
        }
        self.ready.clear();
        Ok(())
    }
}

/// Receives what a transport still has when it is dropped without access to the heap.
pub(super) struct DiscardedFrames;

impl Frames for DiscardedFrames {
    fn take_run(&mut self) -> Option<u64> {
        None
    }
    fn retire_run(&mut self, _run_off: u64) {}
    fn hold(&mut self, _extent: Extent) {}
    fn release(&mut self, _extent: Extent) {}
}
