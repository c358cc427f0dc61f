//! The functions that duplicate descriptors, and `fcntl`, which is one of them.

use super::before;
use super::process::{answer, child_changes_flags, prepare_for};
use super::raw::{self, Arguments};
use super::real::Real;
use crate::calls::{Answered, Calls};
use crate::engine::Errno;
use libc::c_int;

/// Makes a duplicate of a descriptor of the table. Descriptors that only the kernel knows are not its matter.
fn duplicates(number: i64, arguments: Arguments) -> Option<isize> {
    let fd = arguments[0] as c_int;
    returned(answer(fd, |calls| calls.duplicates(fd, || by_kernel(number, arguments))))
}

/// The kernel's answer.
fn by_kernel(number: i64, arguments: Arguments) -> Result<i32, Errno> {
    // SAFETY: no argument is a pointer.
    raw::result_of(unsafe { raw::system_call(number, arguments) }).map(|done| done as i32)
}

/// What a function returns.
fn returned(answered: Answered<i32>) -> Option<isize> {
    answered.map(|result| result.map_or_else(raw::failed, |done| done as isize))
}

/// `dup2` and `dup3`: what the new number was is closed first. Where both are the same there is nothing to do.
fn replaces(number: i64, arguments: Arguments) -> Option<isize> {
    let (old, new) = (arguments[0] as c_int, arguments[1] as c_int);
    if old == new {
        return None;
    }
    prepare_for(new, Calls::leaves);
    before::loses(new as u32, new as u32);
    duplicates(number, arguments)
}

/// `F_SETFL`: the file may be appended to, or be direct, from now on.
fn changes_flags(arguments: Arguments) -> Option<isize> {
    let fd = arguments[0] as c_int;
    child_changes_flags(fd);
    let change = || by_kernel(libc::SYS_fcntl, arguments);
    returned(answer(fd, |calls| calls.changes_flags(fd, arguments[2] as c_int, change)))
}

/// `fcntl`: duplicates, or sees or changes what the library must know.
fn controls(arguments: Arguments) -> Option<isize> {
    let fd = arguments[0] as c_int;
    match arguments[1] as c_int {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => return duplicates(libc::SYS_fcntl, arguments),
        libc::F_SETFL => return changes_flags(arguments),
        // A range may begin at the offset.
        libc::F_GETLK
        | libc::F_SETLK
        | libc::F_SETLKW
        | libc::F_OFD_GETLK
        | libc::F_OFD_SETLK
        | libc::F_OFD_SETLKW => prepare_for(fd, Calls::shows_offset),
        _ => {}
    }
    None
}

macro_rules! functions {
    ($($name:ident = $number:expr, |$arguments:ident| $answer:expr;)*) => {
        #[allow(non_upper_case_globals, reason = "they have the names of the functions")]
        mod real {
            use super::Real;
            $(pub(super) static $name: Real = Real::new(concat!(stringify!($name), "\0"), Some($number));)*
        }

        /// All of them.
        pub(super) static ALL: &[&Real] = &[$(&real::$name),*];

        mod exported {
            use super::*;
            $(
                /// # Safety
                /// As for the function of this name.
                #[unsafe(no_mangle)]
                pub(crate) unsafe extern "C-unwind" fn $name(a: usize, b: usize, c: usize) -> c_int {
                    let $arguments = [a, b, c, 0, 0, 0];
                    // SAFETY: the arguments are the caller's.
                    $answer.unwrap_or_else(|| unsafe { real::$name.call($arguments) }) as c_int
                }
            )*
        }
    };
}

functions! {
    dup = libc::SYS_dup, |arguments| duplicates(libc::SYS_dup, arguments);
    dup2 = libc::SYS_dup2, |arguments| replaces(libc::SYS_dup2, arguments);
    __dup2 = libc::SYS_dup2, |arguments| replaces(libc::SYS_dup2, arguments);
    dup3 = libc::SYS_dup3, |arguments| replaces(libc::SYS_dup3, arguments);
    fcntl = libc::SYS_fcntl, |arguments| controls(arguments);
    fcntl64 = libc::SYS_fcntl, |arguments| controls(arguments);
    __fcntl = libc::SYS_fcntl, |arguments| controls(arguments);
}
