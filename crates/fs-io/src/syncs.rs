//! Requests that wait until something is durable.
//!
//! The worker that comes first syncs for all (group commit): while it waits for the medium, requests of other workers
//! queue up, and it syncs for all of them next. So one worker at most waits for the medium. Where no worker can be spared,
//! because each has requests that no other one receives, a thread of its own syncs for all. As long as a request waits, writes keep
//! pace with it ([`Waiter`]).

use crate::counters::Counters;
use crate::errors;
use crate::service::Service;
use crate::transport::Later;
use landfall_fs::{InodeNumber, Waiter};
use landfall_fuse::{Reply, Unique};
use parking_lot::{Condvar, Mutex};
use std::time::Instant;

/// A request that waits.
pub(crate) struct Waiting {
    /// Where the reply goes.
    pub(crate) to: Later,
    pub(crate) unique: Unique,
    /// What must be durable; `None`: everything.
    pub(crate) number: Option<InodeNumber>,
    /// The reply then.
    pub(crate) reply: Reply,
    /// Writes keep pace with it.
    pub(crate) waiter: Waiter,
}

/// The requests that wait.
#[derive(Default)]
pub(crate) struct Syncs {
    state: Mutex<State>,
    /// There is work for the thread that syncs, or it is to end.
    called: Condvar,
}

#[derive(Default)]
struct State {
    leader: Leader,
    waiting: Vec<Waiting>,
}

/// Who syncs for all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Leader {
    /// The next worker.
    #[default]
    None,
    /// A worker, now.
    Worker,
    /// A thread of its own.
    Thread,
    /// That thread, which ends when nobody waits any more.
    EndingThread,
}

impl Syncs {
    /// Requests that wait for [`Self::run`], in a thread of its own.
    pub(crate) fn by_thread() -> Self {
        let state = State { leader: Leader::Thread, ..State::default() };
        Self { state: Mutex::new(state), called: Condvar::new() }
    }

    /// Replies to a request when what it waits for is durable: now, or from whoever syncs for all.
    pub(crate) fn wait(&self, service: &Service, waiting: Waiting) {
        {
            let mut state = self.state.lock();
            state.waiting.push(waiting);
            if state.leader != Leader::None {
                self.called.notify_one();
                return;
            }
            state.leader = Leader::Worker;
        }
        while let Some(group) = self.next_group() {
            sync_group(service, group);
        }
    }

    fn next_group(&self) -> Option<Vec<Waiting>> {
        let mut state = self.state.lock();
        let group = std::mem::take(&mut state.waiting);
        if group.is_empty() {
            state.leader = Leader::None;
            return None;
        }
        Some(group)
    }

    /// Syncs for all until [`Self::end`].
    pub(crate) fn run(&self, service: &Service) {
        let mut state = self.state.lock();
        loop {
            let group = std::mem::take(&mut state.waiting);
            if !group.is_empty() {
                parking_lot::MutexGuard::unlocked(&mut state, || sync_group(service, group));
            } else if state.leader == Leader::EndingThread {
                return;
            } else {
                self.called.wait(&mut state);
            }
        }
    }

    /// Ends [`Self::run`] when nobody waits any more.
    pub(crate) fn end(&self) {
        self.state.lock().leader = Leader::EndingThread;
        self.called.notify_all();
    }
}

fn sync_group(service: &Service, group: Vec<Waiting>) {
    let (begun, requests) = (Instant::now(), group.len() as u64);
    sync(service, group);
    service.common.counters.commits.note(begun);
    Counters::add(&service.common.counters.committed_requests, requests);
}

fn sync(service: &Service, group: Vec<Waiting>) {
    let outcome = match &group[..] {
        [Waiting { number: Some(number), .. }] => service.files.acknowledge(*number),
        _ => service.files.acknowledge_all(),
    };
    let errno = outcome.err().map(|error| errors::errno_of(&error));
    for Waiting { to, unique, reply, waiter, .. } in group {
        drop(waiter);
        // What was executed counts, although it is not durable.
        let id = if reply.is_marked() { unique.marked() } else { unique };
        let reply = errno.map_or(reply, |errno| Reply::error(id, errno));
        if let Err(error) = to.reply(&reply) {
            tracing::error!(%error, "the kernel refuses a reply");
        }
        service.note_answered(unique);
    }
}
