//! The functions that open files.

use super::owner;
use super::process;
use super::raw;
use super::real::Real;
use crate::engine::Opened;
use crate::table::{Access, Descriptor, Durable, Offset, Writes};
use libc::c_int;

/// With these flags a descriptor is the kernel's.
const KERNELS: c_int = libc::O_PATH | libc::O_DIRECT | libc::O_DIRECTORY;
/// A write takes these bits away: it is the kernel's to do that.
const PRIVILEGES: libc::mode_t = libc::S_ISUID | libc::S_ISGID;
/// Flags with which `creat` opens.
const CREAT: c_int = libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC;

/// Notes a descriptor that was opened.
fn note(fd: c_int, flags: c_int) {
    // A child that shares memory has descriptors of its own.
    if fd >= 0 && owner::is_owner() {
        process::prepare(|calls| {
            calls.opened(fd, || {
                let opened = opened(fd, flags)?;
                let file = calls.engine.open(&opened)?;
                Some(Descriptor {
                    file,
                    access: access(flags),
                    writes: if flags & libc::O_APPEND != 0 { Writes::AtEnd } else { Writes::AtOffset },
                    durable: if flags & libc::O_DSYNC != 0 { Durable::AtOnce } else { Durable::Later },
                    offset: Offset::Here(0),
                })
            });
        });
    }
}

/// What the engine is told, if the library may answer for the descriptor.
fn opened(fd: c_int, flags: c_int) -> Option<Opened> {
    let stat = if flags & KERNELS == 0 { raw::stat(fd).ok()? } else { return None };
    let mode = libc::mode_t::from(stat.stx_mode);
    let device = libc::makedev(stat.stx_dev_major, stat.stx_dev_minor);
    let is_file = mode & libc::S_IFMT == libc::S_IFREG;
    (is_file && mode & PRIVILEGES == 0).then_some(Opened { fd, device, inode: stat.stx_ino })
}

fn access(flags: c_int) -> Access {
    match flags & libc::O_ACCMODE {
        libc::O_RDONLY => Access::Read,
        libc::O_WRONLY => Access::Write,
        _ => Access::Both,
    }
}

macro_rules! functions {
    ($($name:ident = $number:expr, |$arguments:ident| $flags:expr;)*) => {
        #[allow(non_upper_case_globals, reason = "they have the names of the functions")]
        mod real {
            use super::Real;
            $(pub(super) static $name: Real = Real::new(concat!(stringify!($name), "\0"), $number);)*
        }

        /// All of them.
        pub(super) static ALL: &[&Real] = &[$(&real::$name),*];

        mod exported {
            use super::*;
            $(
                /// # Safety
                /// As for the function of this name.
                #[unsafe(no_mangle)]
                pub(crate) unsafe extern "C-unwind" fn $name(
                    a: usize,
                    b: usize,
                    c: usize,
                    d: usize,
                ) -> c_int {
                    let $arguments = [a, b, c, d, 0, 0];
                    // SAFETY: they are the caller's.
                    let fd = unsafe { real::$name.call($arguments) } as c_int;
                    note(fd, $flags);
                    fd
                }
            )*
        }
    };
}

functions! {
    open = Some(libc::SYS_open), |arguments| arguments[1] as c_int;
    open64 = Some(libc::SYS_open), |arguments| arguments[1] as c_int;
    __open = Some(libc::SYS_open), |arguments| arguments[1] as c_int;
    __open64 = Some(libc::SYS_open), |arguments| arguments[1] as c_int;
    __open_2 = None, |arguments| arguments[1] as c_int;
    __open64_2 = None, |arguments| arguments[1] as c_int;
    openat = Some(libc::SYS_openat), |arguments| arguments[2] as c_int;
    openat64 = Some(libc::SYS_openat), |arguments| arguments[2] as c_int;
    __openat_2 = None, |arguments| arguments[2] as c_int;
    __openat64_2 = None, |arguments| arguments[2] as c_int;
    creat = Some(libc::SYS_creat), |_arguments| CREAT;
    creat64 = Some(libc::SYS_creat), |_arguments| CREAT;
}
