//! Receives with one multishot operation per connection, all of them into a few shared runs.

use super::token::{Operation, Token};
use super::{Conn, Uring};
use crate::sys::{BUFFERS_MAX, BufferId, Completion, Region, Ring};
use crate::{ConnId, Event, Frames, LIMITED_BYTES_MAX};
use landfall_media::{Extent, RUN_SIZE};
use std::os::fd::AsRawFd;

/// Runs kept posted: one that is being filled, and one for when the first is full in the middle of a turn.
const RUNS_POSTED_MIN: usize = 2;
/// Runs kept posted after a turn that needed more than was posted.
const RUNS_POSTED_MAX: usize = 4;
/// Runs filled without such a shortage after which fewer are posted again.
const CALM_RUNS: u32 = 64;
const _: () = assert!(RUNS_POSTED_MAX <= BUFFERS_MAX);

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

/// The runs lent to the kernel, by buffer number, and how far each is filled.
///
/// The kernel takes buffers in the order they were posted and fills each from its front, and completions come in the
/// order of filling. The sum of their lengths therefore tells where each piece landed.
pub(super) struct Landings {
    runs: [Option<Landing>; BUFFERS_MAX],
    posted: usize,
    /// Number of runs to keep posted; zero until there is a connection.
    target: usize,
    calm_runs: u32,
    starved: bool,
}

#[derive(Clone, Copy)]
struct Landing {
    run: Extent,
    filled: u32,
}

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
        if self.landings.posted == 0 {
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
        if self.stalled.is_empty() || self.landings.posted == 0 {
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

impl Landings {
    pub(super) const fn new() -> Self {
        Self { runs: [None; BUFFERS_MAX], posted: 0, target: 0, calm_runs: 0, starved: false }
    }

    /// True while a connection needs space and there is none.
    pub(super) const fn starved(&self) -> bool {
        self.starved
    }

    /// Posts runs from the next turn on, because there is a connection.
    pub(super) const fn want(&mut self) {
        if self.target == 0 {
            self.target = RUNS_POSTED_MIN;
        }
    }

    const fn note_shortage(&mut self) {
        (self.target, self.calm_runs) = (RUNS_POSTED_MAX, 0);
    }

    const fn note_filled_run(&mut self) {
        self.calm_runs += 1;
        if self.calm_runs >= CALM_RUNS && self.target > RUNS_POSTED_MIN {
            (self.target, self.calm_runs) = (self.target - 1, 0);
        }
    }

    /// Posts runs up to the target; true when starvation has just begun.
    fn replenish(&mut self, frames: &mut dyn Frames, ring: &mut Ring, region: Region) -> bool {
        while self.posted < self.target {
            let Some(run_off) = frames.take_run() else { break };
            self.post(Region::run(run_off), ring, region);
        }
        let was_starved = self.starved;
        self.starved = self.target > 0 && self.posted == 0;
        self.starved && !was_starved
    }

    fn post(&mut self, run: Extent, ring: &mut Ring, region: Region) {
        let free = self.runs.iter().position(Option::is_none);
        let free = free.expect("fewer runs are posted than there are buffer numbers");
        self.runs[free] = Some(Landing { run, filled: 0 });
        self.posted += 1;
        ring.post(region, run, BufferId(u16::try_from(free).expect("below BUFFERS_MAX")));
    }

    /// Accounts for one completion: holds the bytes that landed, and retires the run if it is full.
    fn landed(&mut self, frames: &mut dyn Frames, completion: &Completion) -> Option<Extent> {
        let (BufferId(id), stays_posted) = completion.buffer?;
        let slot = self.runs.get_mut(usize::from(id))?;
        let landing = slot.as_mut().expect("the kernel fills only runs that are posted");
        let len = completion.outcome().unwrap_or(0);
        let extent = Extent::new(landing.run.off + u64::from(landing.filled), len);
        landing.filled += len;
        assert!(u64::from(landing.filled) <= RUN_SIZE, "the kernel filled a run past its end");
        if len > 0 {
            frames.hold(extent);
        }
        if !stays_posted {
            let run = landing.run;
            *slot = None;
            self.posted -= 1;
            frames.retire_run(run.off);
            self.note_filled_run();
        }
        (len > 0).then_some(extent)
    }

    /// Retires every run; the kernel must have released them.
    pub(super) fn retire_all(&mut self, frames: &mut dyn Frames) {
        for landing in self.runs.iter_mut().filter_map(Option::take) {
            frames.retire_run(landing.run.off);
        }
        (self.posted, self.target, self.starved) = (0, 0, false);
    }
}
