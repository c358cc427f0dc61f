//! The library's beginning and end in a process.

use super::owner;
use super::process;
use super::raw;
use super::{before, data, duplicates, opened};
use std::io::Write;
use std::sync::atomic::{AtomicI32, Ordering};

/// With this variable the library says at the end what it has answered.
const STATISTICS: &std::ffi::CStr = c"LANDFALL_FS_STATS";
/// Bytes of the longest line.
const LINE_BYTES_MAX: usize = 128;

/// Where the statistics go: a descriptor of the library's own, because programs close theirs before they end.
static STATISTICS_TO: AtomicI32 = AtomicI32::new(-1);
/// Its least number: programs expect the lowest free one for themselves.
const DESCRIPTOR_MIN: usize = 500;

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
    // SAFETY: the name ends in a zero byte, and no other thread changes the environment yet.
    if !unsafe { libc::getenv(STATISTICS.as_ptr()) }.is_null() {
        let arguments = [2, libc::F_DUPFD_CLOEXEC as usize, DESCRIPTOR_MIN, 0, 0, 0];
        // SAFETY: there are no pointers. A program without standard error has asked for nothing.
        let copy = unsafe { raw::system_call(libc::SYS_fcntl, arguments) };
        STATISTICS_TO.store(copy as i32, Ordering::Relaxed);
    }
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
    let to = STATISTICS_TO.load(Ordering::Relaxed);
    if to < 0 || !owner::is_owner() {
        return;
    }
    let ([answered, passed_on], mut line) = (process::counts(), [0_u8; LINE_BYTES_MAX]);
    let mut rest = &mut line[..];
    let said = writeln!(rest, "landfall: {answered} calls answered in the process, {passed_on} passed on");
    let len = LINE_BYTES_MAX - rest.len();
    if said.is_ok() {
        let arguments = [to as usize, line.as_ptr().expose_provenance(), len, 0, 0, 0];
        // SAFETY: the line lives longer than the call. If nobody reads it, nobody has asked.
        unsafe { raw::system_call(libc::SYS_write, arguments) };
    }
}
