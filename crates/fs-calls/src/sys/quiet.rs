//! Keeps handlers of signals out while a call is answered, so that none of them waits for a lock of its own thread.

use super::owner;
use super::raw;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};

/// The program has handlers for signals.
static HAS_HANDLERS: AtomicBool = AtomicBool::new(false);

thread_local! {
    static THREAD: Cell<Thread> = const { Cell::new(Thread { is_inside: false, may_be_child: false }) };
}

/// A thread, or a child of `vfork`, which has the memory of the thread that has made it.
#[derive(Clone, Copy)]
struct Thread {
    /// It is in a call that is answered here.
    is_inside: bool,
    /// Since its last call it has made a child that shares its memory.
    may_be_child: bool,
}

impl Thread {
    /// The caller is a child that shares the memory, and has descriptors of its own.
    fn is_child(self) -> bool {
        self.may_be_child && !owner::is_owner()
    }
}

/// The thread is about to make a child with its memory, and goes on when that has ended.
pub(super) fn note_child() {
    THREAD.set(Thread { may_be_child: true, ..THREAD.get() });
}

/// True if the caller is a child that shares the memory, and has descriptors of its own.
pub(super) fn is_child() -> bool {
    THREAD.get().is_child()
}

/// Why a call is not answered here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kernels {
    /// A handler of a signal interrupts a call of the thread.
    Interrupts,
    /// The caller is a child that shares the memory, and has descriptors of its own.
    Child,
}

/// Signals that stay as they are: those of the thread's own faults, and the two of the C library, whose handlers call
/// nothing that is replaced.
const OPEN: [i32; 7] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, 32, 33];
/// All other signals, as the kernel keeps them.
const CLOSED: u64 = {
    let (mut set, mut index) = (u64::MAX, 0);
    while index < OPEN.len() {
        set &= !(1 << (OPEN[index] - 1));
        index += 1;
    }
    set
};

/// The program installs a handler.
pub(super) fn note_handler() {
    HAS_HANDLERS.store(true, Ordering::SeqCst);
}

/// The thread answers a call. No handler runs before it ends.
pub(super) struct Quiet {
    /// The signals that were blocked before, if any had to be blocked.
    before: Option<u64>,
}

impl Quiet {
    /// Begins, unless the kernel is to answer.
    #[inline]
    pub(super) fn begin() -> Result<Self, Kernels> {
        let before = HAS_HANDLERS.load(Ordering::Relaxed).then(|| change(libc::SIG_BLOCK, CLOSED));
        let thread = THREAD.get();
        let kernels = if thread.is_child() {
            Kernels::Child
        } else if thread.is_inside {
            Kernels::Interrupts
        } else {
            THREAD.set(Thread { is_inside: true, may_be_child: false });
            return Ok(Self { before });
        };
        // The call that is interrupted ends by itself.
        if let Some(before) = before {
            change(libc::SIG_SETMASK, before);
        }
        Err(kernels)
    }
}

impl Drop for Quiet {
    #[inline]
    fn drop(&mut self) {
        THREAD.set(Thread { is_inside: false, ..THREAD.get() });
        if let Some(before) = self.before {
            change(libc::SIG_SETMASK, before);
        }
    }
}

/// Changes the signals that the thread blocks. Returns those that it blocked before.
fn change(how: i32, set: u64) -> u64 {
    let (set, mut before) = ([set], [0_u64]);
    let arguments = [
        how as usize,
        set.as_ptr().expose_provenance(),
        before.as_mut_ptr().expose_provenance(),
        size_of::<u64>(),
        0,
        0,
    ];
    // SAFETY: both sets live longer than the call.
    unsafe { raw::system_call(libc::SYS_rt_sigprocmask, arguments) };
    before[0]
}
