//! CPU time slices of the calling thread.

// sched_setattr has no safe wrapper.
#![allow(unsafe_code)]

use std::io;
use std::time::Duration;

/// Requests time slices of this length for the calling thread, 100 us to 100 ms. When it is woken, the thread preempts
/// a thread with longer slices at once, instead of waiting until that slice ends. Its share of the CPU does not change.
/// The call needs no privilege.
///
/// Source: `sched_setattr(2)`; slices of ordinary threads since Linux 6.12, where earlier kernels ignore it.
///
/// # Errors
/// The kernel's error, if it refuses (for example because of a seccomp filter).
pub(crate) fn prefer_short_slices(slice: Duration) -> io::Result<()> {
    // SAFETY: all zeroes is a valid value of this plain structure: an ordinary thread's attributes.
    let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
    attributes.size = size_of::<libc::sched_attr>() as u32;
    attributes.sched_policy = libc::SCHED_OTHER as u32;
    attributes.sched_runtime = slice.as_nanos() as u64;
    let (this_thread, flags) = (0, 0);
    // SAFETY: the kernel reads `size` bytes of the structure, which lives until the call returns.
    let result = unsafe { libc::syscall(libc::SYS_sched_setattr, this_thread, &raw const attributes, flags) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_accepts_the_slice_and_keeps_the_policy() {
        let asked = std::thread::spawn(|| {
            prefer_short_slices(Duration::from_micros(200)).expect("an ordinary thread may ask");
            // SAFETY: sched_getscheduler takes no pointers.
            unsafe { libc::sched_getscheduler(0) }
        });
        assert_eq!(asked.join().expect("the thread asserts nothing else"), libc::SCHED_OTHER);
    }
}
