//! Requests that are set aside: they change something, and the log takes nothing for now. They wait beside the workers, which
//! answer others meanwhile: reads go on while another machine does not answer, and the log is full.
//!
//! They begin in the order in which they came, when the log has room again, by as many threads as there are workers. A program
//! that is killed meanwhile is not kept waiting; other signals change nothing, as with any file system. Where more come than are
//! set aside, a worker waits with its request.

use crate::counters::RequestKind;
use crate::execute;
use crate::interrupts::Interrupts;
use crate::landing::SetAside;
use crate::service::{Answer, LogWait, Service};
use crate::syncs::{Syncs, Waiting};
use crate::transport::Later;
use landfall_fuse::{Errno, KeptRequest, Reply, Unique};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::VecDeque;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// So many requests are set aside at most, ...
const REQUESTS_MAX: usize = 1024;
/// ... with so many bytes that were written.
const BYTES_MAX: u64 = 32 << 20;
/// How often it is looked whether programs that were interrupted are being killed.
const LOOK_EVERY: Duration = Duration::from_millis(100);

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

/// A request among those that wait.
struct Queued {
    deferred: Deferred,
    /// The kernel says so once, of any signal.
    is_interrupted: bool,
}

impl Queued {
    /// True if nobody hears the reply any more. A request that is sent again may have been executed by an earlier server.
    fn is_given_up(&self) -> bool {
        let request = self.deferred.request.request();
        self.is_interrupted && !request.unique.is_resent() && is_being_killed(request.pid)
    }
}

/// The requests that wait.
#[derive(Default)]
pub(crate) struct Aside {
    state: Mutex<State>,
    called: Condvar,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Queued>,
    bytes: u64,
    /// An interrupt may overtake its request.
    interrupts: Interrupts,
    looked_at: Option<Instant>,
    is_ending: bool,
}

impl State {
    fn remove(&mut self, at: usize) -> Option<Deferred> {
        let Queued { deferred, .. } = self.waiting.remove(at)?;
        self.bytes -= deferred.landed.bytes();
        Some(deferred)
    }

    /// Removes the requests of programs that are being killed.
    fn take_given_up(&mut self) -> Vec<Deferred> {
        if self.looked_at.is_some_and(|looked_at| looked_at.elapsed() < LOOK_EVERY) {
            return Vec::new();
        }
        self.looked_at = Some(Instant::now());
        let given_up: Vec<usize> =
            (0..self.waiting.len()).rev().filter(|at| self.waiting[*at].is_given_up()).collect();
        given_up.into_iter().filter_map(|at| self.remove(at)).collect()
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
        let is_interrupted = state.interrupts.has(deferred.request.request().unique);
        state.waiting.push_back(Queued { deferred, is_interrupted });
        self.called.notify_one();
    }

    /// The program that waits for this request has got a signal. False if the request does not wait here.
    pub(crate) fn interrupt(&self, unique: Unique) -> bool {
        let mut state = self.state.lock();
        let is_it = |queued: &&mut Queued| queued.deferred.request.request().unique.first() == unique.first();
        match state.waiting.iter_mut().find(is_it) {
            Some(queued) => queued.is_interrupted = true,
            None => {
                state.interrupts.note(unique);
                return false;
            }
        }
        true
    }

    /// Executes what waits until [`Self::end`], as one of several threads.
    pub(crate) fn run(&self, service: &Service, syncs: &Syncs) {
        let mut wait = LogWait::default();
        while let Some(outcome) = self.next(service, &mut wait) {
            match outcome {
                (deferred, Ok(())) => answer(service, syncs, deferred),
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
            for Deferred { request, to, .. } in state.take_given_up() {
                let unique = request.request().unique;
                reply(service, to, &Reply::error(unique, Errno::INTR), unique);
            }
            if state.waiting.front().is_some_and(|first| wait.began_before(first.deferred.begun)) {
                *wait = LogWait::default();
            }
            let room = MutexGuard::unlocked(&mut state, || service.look_for_log_room(wait));
            // Others may have taken the one that came first.
            if let Some(room) = room
                && let Some(first) = state.remove(0)
            {
                return Some((first, room));
            }
        }
    }

    /// A thread in [`Self::run`].
    pub(crate) fn keep(&self, thread: JoinHandle<()>) {
        self.threads.lock().push(thread);
    }

    /// Ends [`Self::run`], and its threads.
    pub(crate) fn end(&self) {
        self.state.lock().is_ending = true;
        self.called.notify_all();
        let threads = std::mem::take(&mut *self.threads.lock());
        threads.into_iter().for_each(|thread| thread.join().expect("a panic ends the process"));
    }
}

fn answer(service: &Service, syncs: &Syncs, deferred: Deferred) {
    let Deferred { request, mut landed, to, begun } = deferred;
    let request = request.request();
    service.note_received(request.unique);
    let (unique, answered) = match service.keep_numbers(&request) {
        Ok(()) => execute::execute(service, &mut landed, &request),
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
            let refused = execute::refusal(service, &request, unique, errno);
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

/// True if a thread, by its number, is being killed.
fn is_being_killed(thread: u32) -> bool {
    // 0: it is not visible from here.
    let status = (thread != 0).then(|| std::fs::read_to_string(format!("/proc/{thread}/status")));
    status.and_then(Result::ok).is_some_and(|status| has_kill_pending(&status))
}

/// Whether `SIGKILL` is pending, as any signal that ends a process makes it, in a `/proc/PID/status`.
fn has_kill_pending(status: &str) -> bool {
    const KILL: u64 = 1 << (libc::SIGKILL - 1);
    let is_pending = |line: &str| {
        let mask = line.strip_prefix("SigPnd:").or_else(|| line.strip_prefix("ShdPnd:"));
        mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & KILL != 0)
    };
    status.lines().any(is_pending)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_is_no_reason_to_give_up_and_a_death_is() {
        assert!(!is_being_killed(0) && !is_being_killed(std::process::id()));
        let status = |pending: &str| {
            format!("Name:\tcp\nSigQ:\t1/95000\nSigPnd:\t{pending}\nShdPnd:\t0\nSigBlk:\t100\n")
        };
        assert!(has_kill_pending(&status("0000000000000100")));
        assert!(!has_kill_pending(&status("0000000000002000")), "SIGALRM");
    }

    #[test]
    fn an_interrupt_finds_its_request_whichever_comes_first() {
        let aside = Aside::default();
        assert!(!aside.interrupt(Unique(6)), "it does not wait here yet");
        let state = aside.state.lock();
        assert!(state.interrupts.has(Unique(6)) && !state.interrupts.has(Unique(8)));
    }
}
