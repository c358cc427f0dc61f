//! Cores that do not sleep.

use super::sys::{Class, enter_class};
use crate::common::sys::pin;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// Turns between two checks whether to stop: a microsecond or so.
const TURNS: u32 = 1000;

/// Keeps cores from sleeping while it lives, as `idle=poll` would: a thread of the lowest class on each one. A virtual
/// core that sleeps takes 30 to 50 µs to wake, several times what is measured here.
#[derive(Debug)]
pub(crate) struct Awake {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Awake {
    /// With `yields`, they enter the kernel every microsecond. Where somebody on the other core polls without ever sleeping, whom it
    /// wakes here was seen to wait for this core's next tick, up to 4 ms, while a thread of the lowest class ran on in user mode.
    /// Elsewhere with few processes that does not happen, and a core that enters the kernel all the time takes from what its twin can
    /// do. Where three devices wait on one core they were seen to wait for up to 50 ms, with `yields` or without; not so where nothing
    /// keeps the core awake (`--let-sleep`).
    pub(crate) fn start(cores: &[usize], yields: bool) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let thread = |core: usize| {
            let stop = stop.clone();
            std::thread::spawn(move || {
                pin(core);
                enter_class(Class::Idle);
                let mut turns = 0u32;
                while !stop.load(Ordering::Relaxed) {
                    // Not `spin_loop`: a hypervisor may take the core away from those who pause.
                    (0..TURNS).for_each(|_| turns = black_box(turns.wrapping_add(1)));
                    if yields {
                        std::thread::yield_now();
                    }
                }
            })
        };
        let threads = cores.iter().map(|core| thread(*core)).collect();
        Self { stop, threads }
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // It has nothing that could panic.
            let _ = thread.join();
        }
    }
}
