//! The library's beginning and end in a process.

use super::owner;
use super::process;
use super::raw;
use super::statistics;
use super::{before, data, duplicates, opened};

#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;
#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = end;

/// Finds the functions that are replaced, while no lock is held that looking for them needs.
extern "C" fn begin() {
    for real in [data::ALL, opened::ALL, duplicates::ALL, before::ALL].concat() {
        real.find();
    }
    raw::find_single_threaded();
    statistics::begin();
    // SAFETY: both functions live as long as the process. Without memory for them no descriptor is answered for.
    let failed = unsafe { libc::pthread_atfork(Some(before_fork), None, Some(in_child)) };
    if failed != 0 || has_size_limit() {
        process::turn_off();
    }
}

/// The kernel ends programs that write beyond a limit: it must see what they write.
fn has_size_limit() -> bool {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the limit lives longer than the call.
    let failed = unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) };
    failed != 0 || limit.rlim_cur != libc::RLIM_INFINITY
}

/// Parent and child will share all offsets.
extern "C" fn before_fork() {
    process::prepare(|calls| calls.shares_all());
}

/// The log and the leases are the parent's.
extern "C" fn in_child() {
    process::become_child();
}

extern "C" fn end() {
    if owner::is_owner() {
        statistics::end(process::counts());
    }
}
