//! Sends as much as the socket accepts at once, and the rest when it accepts more.

use super::state::EpollTransport;
use crate::conn_id::ConnId;
use crate::event::Event;
use crate::frames::Frames;
use crate::outgoing::Outgoing;
use crate::sys::send;
use std::io;

/// Calls of `sendmsg` for one connection in one turn. The fast reader of a long reply has its next turn soon.
const SENDS_PER_TURN: usize = 16;

impl EpollTransport {
    pub(super) fn start_sending(&mut self, frames: &mut dyn Frames, id: ConnId, out: Outgoing) {
        let conn = self.conns.get_mut(id).filter(|conn| conn.closing.is_none());
        let Some(conn) = conn else {
            return out.stored().for_each(|extent| frames.release(extent));
        };
        assert!(!conn.sending.active, "two sends at once on {id:?}: wait for Event::Sent");
        conn.sending.message.load(out);
        conn.sending.active = true;
        self.send_more(frames, id);
    }

    pub(super) fn send_more(&mut self, frames: &mut dyn Frames, id: ConnId) {
        for _ in 0..SENDS_PER_TURN {
            let Some(conn) = self.conns.get_mut(id).filter(|conn| conn.sending.active) else { return };
            if conn.sending.message.prepare(self.region) == 0 {
                return self.send_ended(frames, id);
            }
            match send(&conn.socket, &conn.sending.message) {
                Ok(0) => return self.fail(frames, id, io::ErrorKind::WriteZero.into()),
                Ok(sent) => conn.sending.message.advance(sent),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return self.fail(frames, id, error),
            }
        }
        self.watch(id);
    }

    /// Reports a reply that was sent, or continues to close the connection.
    fn send_ended(&mut self, frames: &mut dyn Frames, id: ConnId) {
        let buffers = self.release_reply(frames, id);
        match self.conns.get_mut(id) {
            Some(conn) if conn.closing.is_none() => {
                self.ready.push(Event::Sent { conn: id, buffers });
                self.watch(id);
            }
            _ => self.forget(id),
        }
    }

    /// Takes the reply out of a connection, sent or not, and releases its extents.
    pub(super) fn release_reply(&mut self, frames: &mut dyn Frames, id: ConnId) -> Outgoing {
        let Some(conn) = self.conns.get_mut(id) else { return Outgoing::new() };
        conn.sending.active = false;
        let mut out = conn.sending.message.take();
        out.stored().for_each(|extent| frames.release(extent));
        out.clear();
        out
    }
}
