//! The threads of the loader, which do what could block a worker.

use super::{Job, Loads};
use crate::shared::Shared;
use std::sync::Arc;

/// Reads that threads do at once.
const THREADS: usize = 32;
/// Stacks of these threads are small, because the threads do nothing but read.
const STACK_BYTES: usize = 128 << 10;

impl Loads {
    /// Starts the threads.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn spawn(
        self: &Arc<Self>,
        shared: &Arc<Shared>,
    ) -> std::io::Result<Vec<std::thread::JoinHandle<()>>> {
        (0..THREADS)
            .map(|index| {
                let (loads, shared) = (Arc::clone(self), Arc::clone(shared));
                let thread = std::thread::Builder::new().name(format!("load-{index}"));
                thread.stack_size(STACK_BYTES).spawn(move || loads.run(&shared))
            })
            .collect()
    }

    fn run(&self, shared: &Shared) {
        while let Some(job) = self.next() {
            let is_done = match job {
                Job::MakeRoom => {
                    self.make_room();
                    false
                }
                Job::Read(part) => self.read(part),
            };
            if is_done {
                shared.wake_load_waiters(None);
            }
        }
    }
}
