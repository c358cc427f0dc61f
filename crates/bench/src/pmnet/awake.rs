//! Threads that keep cores from sleeping.

use super::sys::{Class, enter_class};
use crate::common::sys::pin;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// Turns between two checks of the stop flag: about a microsecond.
const TURNS: u32 = 1000;

/// Keeps cores from sleeping until it is dropped, as `idle=poll` would: a thread of the lowest class runs on each core.
/// A virtual core that sleeps takes 30 to 50 µs to wake, several times the latencies that are measured here.
#[derive(Debug)]
pub(crate) struct Awake {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Awake {
    /// Starts a thread on each core. With `yields`, the threads enter the kernel every microsecond.
    ///
    /// `yields` is for runs in which a process on the other core polls and never sleeps. A process that it wakes on
    /// this core can wait for the core's next tick, up to 4 ms, while a thread of the lowest class runs in user mode.
    /// Runs with few processes that sleep do without `yields`: a core that enters the kernel all the time slows down
    /// its hyper-thread twin. Three devices on one core can wait for up to 50 ms, with `yields` or without, unless
    /// the core may sleep (`--let-sleep`).
    pub(crate) fn start(cores: &[usize], yields: bool) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let thread = |core: usize| {
            let stop = stop.clone();
            std::thread::spawn(move || {
                pin(core);
                enter_class(Class::Idle);
                let mut turns = 0u32;
                while !stop.load(Ordering::Relaxed) {
                    // `spin_loop` would pause, and a hypervisor may take the core away from a thread that pauses.
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
            // The thread does nothing that could panic.
            let _ = thread.join();
        }
    }
}
