//! Requests that are set aside: they change something, and the log takes nothing for now. They wait beside the workers, which
//! answer others meanwhile: reads go on while another machine does not answer, and the log is full.
//!
//! They are executed in the order in which they came, when the log has room again. A program that is killed meanwhile is not kept
//! waiting. Where more come than are set aside, a worker waits with its request.

use crate::counters::RequestKind;
use crate::landing::SetAside;
use crate::service::{Answer, LogWait, Service};
use crate::syncs::{Syncs, Waiting};
use crate::transport::Later;
use crate::worker;
use landfall_fuse::{Errno, KeptRequest, Reply, Unique};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::VecDeque;
use std::time::Instant;

/// So many requests are set aside at most, ...
const REQUESTS_MAX: usize = 1024;
/// ... with so many bytes that were written.
const BYTES_MAX: u64 = 32 << 20;

/// A request that waits.
pub(crate) struct Deferred {
    pub(crate) request: KeptRequest,
    /// What a WRITE has brought.
    pub(crate) landed: SetAside,
    /// Where the reply goes.
    pub(crate) to: Later,
    /// When the request came.
    pub(crate) begun: Instant,
}

/// The requests that wait.
#[derive(Default)]
pub(crate) struct Aside {
    state: Mutex<State>,
    called: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Deferred>,
    bytes: u64,
    is_ending: bool,
}

impl State {
    fn remove(&mut self, at: usize) -> Option<Deferred> {
        let removed = self.waiting.remove(at)?;
        self.bytes -= removed.landed.bytes();
        Some(removed)
    }
}

impl Aside {
    /// True if a request that has brought so many bytes can be set aside.
    pub(crate) fn has_room(&self, bytes: u64) -> bool {
        let state = self.state.lock();
        !state.is_ending && state.waiting.len() < REQUESTS_MAX && state.bytes + bytes <= BYTES_MAX
    }

    /// Sets a request aside.
    pub(crate) fn add(&self, deferred: Deferred) {
        let mut state = self.state.lock();
        state.bytes += deferred.landed.bytes();
        state.waiting.push_back(deferred);
        self.called.notify_one();
    }

    /// The program that waits for this request has been killed, or interrupted. False if the request does not wait here.
    pub(crate) fn interrupt(&self, service: &Service, unique: Unique) -> bool {
        let found = {
            let mut state = self.state.lock();
            let at = state.waiting.iter().position(|one| one.request.request().unique == unique);
            at.and_then(|at| state.remove(at))
        };
        found.is_some_and(|deferred| {
            reply(service, deferred.to, &Reply::error(unique, Errno::INTR), unique);
            true
        })
    }

    /// Executes what waits, one after the other, until [`Self::end`].
    pub(crate) fn run(&self, service: &Service, syncs: &Syncs) {
        let mut wait = LogWait::default();
        while let Some(outcome) = self.next(service, &mut wait) {
            match outcome {
                (deferred, Ok(())) => execute(service, syncs, deferred),
                (Deferred { request, to, .. }, Err(errno)) => {
                    let unique = request.request().unique;
                    reply(service, to, &Reply::error(unique, errno), unique);
                }
            }
        }
    }

    /// The next request, and whether there is room for it; `None` at the end. Requests that still wait then are not answered:
    /// nothing was done for them, and the next server gets them again, if there is one.
    fn next(&self, service: &Service, wait: &mut LogWait) -> Option<(Deferred, Result<(), Errno>)> {
        let mut state = self.state.lock();
        loop {
            if state.is_ending {
                return None;
            }
            if state.waiting.is_empty() {
                *wait = LogWait::default();
                self.called.wait(&mut state);
                continue;
            }
            let room = MutexGuard::unlocked(&mut state, || service.look_for_log_room(wait));
            // The one that came first may have been interrupted.
            if let Some(room) = room
                && let Some(first) = state.remove(0)
            {
                return Some((first, room));
            }
        }
    }

    /// Ends [`Self::run`].
    pub(crate) fn end(&self) {
        self.state.lock().is_ending = true;
        self.called.notify_all();
    }
}

fn execute(service: &Service, syncs: &Syncs, deferred: Deferred) {
    let Deferred { request, mut landed, to, begun } = deferred;
    let request = request.request();
    service.note_received(request.unique);
    let (unique, answered) = match service.keep_numbers(&request) {
        Ok(()) => worker::execute(service, &mut landed, &request),
        Err(errno) => (request.unique, Err(errno)),
    };
    let wait_until_durable = |number, durable: Reply, to| {
        let waiter = service.files.waiter();
        syncs.wait(service, Waiting { to, unique: request.unique, number, reply: durable, waiter });
    };
    match answered {
        Ok(Answer::Durable(number, durable)) => wait_until_durable(Some(number), durable, to),
        Ok(Answer::AllDurable(durable)) => wait_until_durable(None, durable, to),
        Ok(Answer::Now(now)) => reply(service, to, &now, request.unique),
        Err(errno) => {
            let refused = worker::refusal(service, &request, unique, errno);
            reply(service, to, &refused, request.unique);
        }
        // No request that changes something is answered so.
        Ok(Answer::Bytes(_) | Answer::Nothing) => {
            reply(service, to, &Reply::error(unique, Errno::IO), request.unique)
        }
    }
    service.common.counters.requests(RequestKind::of(&request.op)).note(begun);
}

fn reply(service: &Service, to: Later, reply: &Reply, unique: Unique) {
    if let Err(error) = to.reply(reply) {
        tracing::error!(%error, "the kernel refuses a reply");
    }
    service.note_answered(unique);
}
