//! What the library says at the end of a process, if it is asked to.

use super::raw;
use std::io::Write;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicI32, Ordering};

/// With this variable the library says what it has answered.
const WANTED: &std::ffi::CStr = c"LANDFALL_FS_STATS";
/// Bytes of the longest line.
const LINE_BYTES_MAX: usize = 128;

/// Where that goes: a descriptor of the library's own, because programs close theirs before they end. Negative: nowhere.
static TO: AtomicI32 = AtomicI32::new(-1);
/// Its least number: programs expect the lowest free one for themselves.
const DESCRIPTOR_MIN: usize = 500;

/// The process begins.
pub(super) fn begin() {
    // SAFETY: the name ends in a zero byte, and no other thread changes the environment yet.
    if !unsafe { libc::getenv(WANTED.as_ptr()) }.is_null() {
        let arguments = [2, libc::F_DUPFD_CLOEXEC as usize, DESCRIPTOR_MIN, 0, 0, 0];
        // SAFETY: there are no pointers. A program without standard error has asked for nothing.
        let copy = unsafe { raw::system_call(libc::SYS_fcntl, arguments) };
        TO.store(copy as i32, Ordering::Relaxed);
    }
}

/// The program makes these descriptors others.
pub(super) fn loses(descriptors: RangeInclusive<u32>) {
    let to = TO.load(Ordering::Relaxed);
    if to >= 0 && descriptors.contains(&to.cast_unsigned()) {
        TO.store(-1, Ordering::Relaxed);
    }
}

/// The process ends, and so many calls were answered here, and passed on.
pub(super) fn end([answered, passed_on]: [u64; 2]) {
    let to = TO.load(Ordering::Relaxed);
    if to < 0 {
        return;
    }
    let mut line = [0_u8; LINE_BYTES_MAX];
    let mut rest = &mut line[..];
    let said = writeln!(rest, "landfall: {answered} calls answered in the process, {passed_on} passed on");
    let len = LINE_BYTES_MAX - rest.len();
    if said.is_ok() {
        let arguments = [to as usize, line.as_ptr().expose_provenance(), len, 0, 0, 0];
        // SAFETY: the line lives longer than the call. If nobody reads it, nobody has asked.
        unsafe { raw::system_call(libc::SYS_write, arguments) };
    }
}
