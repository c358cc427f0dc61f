//! Commands that wait for a log to grow.

use super::Worker;
use crate::chain;
use crate::conn::Park;
use std::sync::atomic::Ordering;

impl Worker {
    /// Wakes the readers of logs that grew by a commit of this worker.
    pub(super) fn wake_tails(&mut self) {
        let mut wake = self.shared.logs.after_commit(self.writer.id());
        let Some(workers) = self.shared.workers.get().filter(|_| wake != 0) else { return };
        while wake != 0 {
            let worker = wake.trailing_zeros() as usize;
            wake &= wake - 1;
            workers[worker].logs_grown.store(true, Ordering::Release);
            if worker != self.id {
                workers[worker].waker.wake();
            }
        }
        self.resume_tails();
    }

    /// Executes commands again that wait for a log, if one has grown or their time limit has passed.
    pub(super) fn resume_tails(&mut self) {
        let grown = self
            .shared
            .workers
            .get()
            .is_some_and(|workers| workers[self.id].logs_grown.swap(false, Ordering::AcqRel));
        self.resume(grown);
    }

    /// A node of a chain that answers nobody tells those who wait, too: nothing grows here.
    pub(super) fn send_readers_away(&mut self) {
        if chain::admit(&self.shared, false).is_err() {
            self.resume(true);
        }
    }

    fn resume(&mut self, all: bool) {
        for (id, _) in self.tails.take(all, self.now.steady_ms) {
            if let Some(conn) = self.conns.get_mut(&id) {
                conn.listed.tailing = false;
                if matches!(conn.park, Some(Park::Log(_))) {
                    conn.park = None;
                }
            }
            self.touch(id);
        }
    }
}
