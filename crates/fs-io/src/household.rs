//! The threads that work for all mounts of one tree of files.

use crate::background;
use crate::panics::{self, Holder};
use crate::service::Service;
use landfall_fs::Publisher;
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

/// Who keeps the heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeapKeeper {
    /// A thread of its own.
    Thread,
    /// The program.
    Program,
}

/// The threads that work for all mounts: one publishes, one keeps the heap, and one sends to the log's successor.
pub(crate) struct Household {
    service: Arc<Service>,
    threads: Vec<JoinHandle<()>>,
}

impl Household {
    /// Starts the threads.
    ///
    /// # Errors
    /// No thread can be started.
    pub(crate) fn start(
        service: &Arc<Service>,
        publisher: &Arc<Mutex<Publisher>>,
        holder: &Holder,
        keeper: HeapKeeper,
    ) -> io::Result<Self> {
        let mut household = Self { service: Arc::clone(service), threads: Vec::new() };
        if keeper == HeapKeeper::Thread {
            background::prepare(&service.files);
            household
                .run("keep", holder, |service| background::keep(&service.files, &service.common.rounds))?;
        }
        if service.files.sends_chunks() {
            household
                .run("send", holder, |service| background::send(&service.files, &service.common.rounds))?;
        }
        let publisher = Arc::clone(publisher);
        household.run("publish", holder, move |service| background::publish(service, &publisher))?;
        Ok(household)
    }

    fn run(
        &mut self,
        name: &str,
        holder: &Holder,
        work: impl FnOnce(&Service) + Send + 'static,
    ) -> io::Result<()> {
        let (service, holder) = (Arc::clone(&self.service), holder.clone());
        let run = move || panics::essential(&holder, || work(&service));
        self.threads.push(std::thread::Builder::new().name(name.into()).spawn(run)?);
        Ok(())
    }
}

impl Drop for Household {
    fn drop(&mut self) {
        self.service.common.rounds.stop();
        for thread in self.threads.drain(..) {
            thread.join().expect("a panic ends the process");
        }
    }
}
