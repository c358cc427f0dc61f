//! Sends from the stored bytes, with one operation per connection at a time.

use super::state::Uring;
use super::token::{Operation, Token};
use crate::conn_id::ConnId;
use crate::event::Event;
use crate::frames::Frames;
use crate::outgoing::Outgoing;
use crate::sys::Completion;
use std::io;
use std::os::fd::AsRawFd;
use std::time::Duration;

/// Sends of up to this many bytes count as completing during submission: they fit into a socket's send buffer unless
/// the reader is slow.
const SMALL_SEND_MAX: usize = 64 << 10;

/// How long the ring may wait before it repeats sends that the kernel did not accept. An immediate retry would be a
/// busy loop: the kernel refuses again until the client has read something.
pub(super) const SEND_RETRY: Duration = Duration::from_millis(1);

impl Uring {
    pub(super) fn start_sending(&mut self, frames: &mut dyn Frames, id: ConnId, out: Outgoing) {
        let conn = self.conns.get_mut(id).filter(|conn| conn.closing.is_none());
        let Some(conn) = conn else {
            return out.stored().for_each(|extent| frames.release(extent));
        };
        assert!(!conn.sending.active, "two sends at once on {id:?}: wait for Event::Sent");
        conn.sending.message.load(out);
        self.send_next(frames, id);
    }

    /// Queues the next pieces, or reports the reply as sent.
    fn send_next(&mut self, frames: &mut dyn Frames, id: ConnId) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        let bytes = conn.sending.message.prepare(self.region);
        if bytes == 0 {
            return self.send_ended(frames, id);
        }
        conn.sending.active = true;
        let token = Token::of_conn(Operation::Send, id);
        self.ring.send(conn.socket.as_raw_fd(), &mut conn.sending.message, token.0);
        self.small_sends += u32::from(bytes <= SMALL_SEND_MAX);
    }

    pub(super) fn sent(&mut self, frames: &mut dyn Frames, id: ConnId, completion: &Completion) {
        let conn = self.conns.get_mut(id).expect("a connection lives as long as its send");
        conn.sending.message.completed();
        conn.sending.active = false;
        let cut_off = conn.closing.as_ref().is_some_and(|closing| closing.cut_off);
        match completion.outcome() {
            Ok(sent @ 1..) if !cut_off => {
                conn.sending.message.advance(sent as usize);
                self.send_next(frames, id);
            }
            Ok(0) => self.send_failed(frames, id, io::ErrorKind::WriteZero.into()),
            Ok(_) => self.send_ended(frames, id),
            Err(error) if took_nothing_yet(&error) && !cut_off => {
                conn.sending.active = true;
                self.unsent.push(id);
            }
            Err(error) => self.send_failed(frames, id, error),
        }
    }

    /// Repeats the sends that the kernel did not accept.
    pub(super) fn restart_sending(&mut self, frames: &mut dyn Frames) {
        if self.unsent.is_empty() {
            return;
        }
        for id in std::mem::take(&mut self.unsent) {
            self.send_next(frames, id);
        }
    }

    /// Releases the reply, sent or not, and reports it unless the connection is being closed.
    fn send_ended(&mut self, frames: &mut dyn Frames, id: ConnId) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        let mut buffers = conn.sending.message.take();
        buffers.stored().for_each(|extent| frames.release(extent));
        buffers.clear();
        if conn.closing.is_some() {
            self.shut(id);
        } else {
            self.ready.push(Event::Sent { conn: id, buffers });
        }
    }

    fn send_failed(&mut self, frames: &mut dyn Frames, id: ConnId, error: io::Error) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        conn.sending.message.take().stored().for_each(|extent| frames.release(extent));
        self.fail(id, error);
    }
}

/// True if the send can be repeated. If some bytes had been sent, the result would be their number.
fn took_nothing_yet(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EINTR))
}
