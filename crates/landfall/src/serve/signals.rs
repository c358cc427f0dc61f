//! SIGTERM and SIGINT stop whatever this process serves.

use crate::sys;
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

type Stop = Box<dyn Fn() + Send>;

/// Whether a signal has come, and what it stops.
pub(super) struct Signals {
    shared: Arc<Shared>,
}

struct Shared {
    has_come: AtomicBool,
    stop: Mutex<Stop>,
}

impl Signals {
    /// Starts the thread that waits for them.
    pub(super) fn follow() -> io::Result<Self> {
        let shared = Arc::new(Shared { has_come: AtomicBool::new(false), stop: Mutex::new(Box::new(|| {})) });
        let waiting = Arc::clone(&shared);
        let work = move || {
            if let Ok(signal) = sys::wait_for_stop_signal() {
                tracing::info!(signal, "stopping");
            }
            waiting.has_come.store(true, Ordering::Release);
            waiting.stop.lock()();
        };
        std::thread::Builder::new().name("signals".into()).spawn(work)?;
        Ok(Self { shared })
    }

    /// True if one has come.
    pub(super) fn has_come(&self) -> bool {
        self.shared.has_come.load(Ordering::Acquire)
    }

    /// What a signal stops from now on. One that has come stops it at once.
    pub(super) fn stop_by(&self, stop: impl Fn() + Send + 'static) {
        let mut place = self.shared.stop.lock();
        *place = Box::new(stop);
        if self.has_come() {
            place();
        }
    }
}
