//! Requests for bytes that have left memory, and the connections that wait for them.

use crate::loads::{Again, Lane, Loads};
use crate::shared::Shared;
use landfall_heap::LoadId;
use landfall_media::EventFd;
use landfall_sockets::{ConnId, Transport};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A worker's part in reading what has left memory.
pub(super) struct Paged {
    pub(super) loads: Arc<Loads>,
    /// Reads these bytes; `None` where threads read.
    pub(super) lane: Option<Lane>,
    /// Connections with a command that waits for bytes to be read.
    pub(super) loading: BTreeMap<LoadId, ConnId>,
    /// Requests of which the commands are executed in this round.
    pub(super) loaded: Vec<(LoadId, ConnId)>,
    /// A request for bytes may be done.
    pub(super) is_due: bool,
    /// When further reads can be started.
    pub(super) again: Again,
}

impl Paged {
    pub(super) fn new(loads: &Arc<Loads>, transport: &dyn Transport) -> Self {
        Self {
            loads: Arc::clone(loads),
            lane: loads.open_lane(EventFd::of(&transport.waker())),
            loading: BTreeMap::new(),
            loaded: Vec::new(),
            is_due: false,
            again: Again::OnEvent,
        }
    }

    /// When the worker has something to do here.
    pub(super) fn again(&self) -> Again {
        if self.is_due { Again::AtOnce } else { self.again }
    }

    /// Something may have been read.
    pub(super) fn note_event(&mut self) {
        self.is_due = true;
    }

    /// A connection's command waits for a request.
    pub(super) fn wait(&mut self, load: LoadId, id: ConnId) {
        self.loading.insert(load, id);
    }

    /// The requests that have been done, with the connections that wait for them.
    pub(super) fn take_done(&mut self, shared: &Shared, worker: usize) -> Vec<(LoadId, ConnId)> {
        let is_done = self.lane.as_mut().is_some_and(|lane| self.loads.finish_reads(lane));
        if is_done {
            shared.wake_load_waiters(Some(worker));
        }
        if !std::mem::take(&mut self.is_due) && !is_done {
            return Vec::new();
        }
        if !self.loading.is_empty() {
            ask_for_load_wake(shared, worker);
        }
        self.loads.take_done(&mut self.loading)
    }
}

/// Has other threads wake a worker when they have read something. What they have read before is found at once.
pub(super) fn ask_for_load_wake(shared: &Shared, worker: usize) {
    if let Some(workers) = shared.workers.get() {
        workers[worker].loading.store(true, Ordering::SeqCst);
    }
}
