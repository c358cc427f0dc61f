//! Receives into the current run, behind the bytes that landed before.

use super::state::EpollTransport;
use crate::conn_id::ConnId;
use crate::event::Event;
use crate::frames::Frames;
use crate::sys::receive;
use crate::transport::LIMITED_BYTES_MAX;
use landfall_media::Extent;
use std::io;

/// Receives on one connection in one turn. A connection with more data has its next turn soon.
const RECEIVES_PER_TURN: usize = 4;

/// Result of a receive.
enum Outcome {
    /// There may be more data.
    More,
    /// There are no more data now.
    Drained,
    /// There is no landing space.
    NoSpace,
    /// The client has closed its side.
    Eof,
    Failed(io::Error),
}

impl EpollTransport {
    pub(super) fn trust_received(&mut self, id: ConnId) {
        if let Some(conn) = self.conns.get_mut(id) {
            conn.trusted = true;
        }
    }

    pub(super) fn set_paused(&mut self, id: ConnId, paused: bool) {
        if let Some(conn) = self.conns.get_mut(id) {
            conn.paused = paused;
            self.watch(id);
        }
    }

    pub(super) fn receive_some(&mut self, frames: &mut dyn Frames, id: ConnId) {
        for _ in 0..RECEIVES_PER_TURN {
            let outcome = match self.conns.get_mut(id) {
                Some(conn) if conn.wanted().read => self.receive_once(frames, id),
                _ => return,
            };
            let trusted = self.conns.get(id).is_some_and(|conn| conn.trusted);
            match outcome {
                // The descriptor is level-triggered: the next wait reports the remaining data.
                Outcome::More if !trusted => return,
                Outcome::More => {}
                Outcome::Drained => return,
                Outcome::NoSpace => return self.stall(id),
                Outcome::Eof => return self.note_eof(id),
                Outcome::Failed(error) => return self.fail(frames, id, error),
            }
        }
    }

    fn receive_once(&mut self, frames: &mut dyn Frames, id: ConnId) -> Outcome {
        let Some(space) = self.space(frames) else { return Outcome::NoSpace };
        let Some(conn) = self.conns.get_mut(id) else { return Outcome::Drained };
        let len_max = if conn.trusted { space.len() } else { space.len().min(LIMITED_BYTES_MAX) };
        let space = Extent::new(space.off, len_max);
        match receive(&conn.socket, self.region, space) {
            Ok(0) => Outcome::Eof,
            Ok(len) => {
                let extent = self.landing.landed(frames, len);
                self.ready.push(Event::Received { conn: id, extent, arrival_ns: 0 });
                if len == space.len() { Outcome::More } else { Outcome::Drained }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Outcome::Drained,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Outcome::More,
            Err(error) => Outcome::Failed(error),
        }
    }

    /// Where to receive next; reports starvation once when there is no space.
    fn space(&mut self, frames: &mut dyn Frames) -> Option<Extent> {
        let was_starved = self.landing.starved();
        let space = self.landing.space(frames);
        if self.landing.starved() && !was_starved {
            self.ready.push(Event::Starved);
        }
        space
    }

    /// Stops watching a connection for lack of space: it is level-triggered and would end every wait.
    fn stall(&mut self, id: ConnId) {
        if let Some(conn) = self.conns.get_mut(id) {
            conn.stalled = true;
            self.stalled.push(id);
            self.watch(id);
        }
    }

    pub(super) fn restart_stalled(&mut self, frames: &mut dyn Frames) {
        if !self.landing.starved() || self.space(frames).is_none() {
            return;
        }
        for id in std::mem::take(&mut self.stalled) {
            if let Some(conn) = self.conns.get_mut(id) {
                conn.stalled = false;
                self.watch(id);
            }
        }
    }

    fn note_eof(&mut self, id: ConnId) {
        if let Some(conn) = self.conns.get_mut(id) {
            conn.eof = true;
            self.ready.push(Event::Eof { conn: id });
            self.watch(id);
        }
    }
}
