//! Requests that wait until something is durable.
//!
//! The worker that comes first syncs for all (group commit): while it waits for the medium, requests of other workers
//! queue up, and it syncs for all of them next. So one worker at most waits for the medium.

use crate::counters::Counters;
use crate::errors;
use crate::service::Service;
use landfall_fs::InodeNumber;
use landfall_fuse::{Device, Reply, Unique};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Instant;

/// A request that waits.
pub(crate) struct Waiting {
    /// Where the request came from.
    pub(crate) device: Arc<Device>,
    pub(crate) unique: Unique,
    /// What must be durable; `None`: everything.
    pub(crate) number: Option<InodeNumber>,
    /// The reply then.
    pub(crate) reply: Reply,
}

/// The requests that wait.
#[derive(Default)]
pub(crate) struct Syncs {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// A worker syncs for all.
    is_led: bool,
    waiting: Vec<Waiting>,
}

impl Syncs {
    /// Replies to a request when what it waits for is durable: now, or from the worker that syncs for all.
    pub(crate) fn wait(&self, service: &Service, waiting: Waiting) {
        {
            let mut state = self.state.lock();
            state.waiting.push(waiting);
            if state.is_led {
                return;
            }
            state.is_led = true;
        }
        while let Some(group) = self.next_group() {
            let (begun, requests) = (Instant::now(), group.len() as u64);
            sync(service, group);
            service.counters.commits.note(begun);
            Counters::add(&service.counters.committed_requests, requests);
        }
    }

    fn next_group(&self) -> Option<Vec<Waiting>> {
        let mut state = self.state.lock();
        let group = std::mem::take(&mut state.waiting);
        state.is_led = !group.is_empty();
        state.is_led.then_some(group)
    }
}

fn sync(service: &Service, group: Vec<Waiting>) {
    let outcome = match &group[..] {
        [Waiting { number: Some(number), .. }] => service.files.sync(*number),
        _ => service.files.sync_all(),
    };
    let errno = outcome.err().map(|error| errors::errno_of(&error));
    for Waiting { device, unique, reply, .. } in group {
        let reply = errno.map_or(reply, |errno| Reply::error(unique, errno));
        if let Err(error) = device.reply(&reply) {
            tracing::error!(%error, "the kernel refuses a reply");
        }
        service.note_answered(unique);
    }
}
