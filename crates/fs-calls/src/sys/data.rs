//! The functions that are answered in the process.

use super::process::{answer, cancellation_point};
use super::raw;
use super::real::Real;
use crate::calls::{Answered, Calls};
use libc::{c_int, iovec, off_t};
use std::ffi::c_void;
use std::io::{IoSlice, IoSliceMut};

/// Bytes that one call transfers (`MAX_RW_COUNT`). Of a longer one the kernel does so much.
const BYTES_MAX: usize = 0x7fff_f000;
/// Slices of one call (`UIO_MAXIOV`).
const SLICES_MAX: usize = 1024;
/// No program has memory below: what lies there is the kernel's to refuse (`EFAULT`).
const ADDRESS_MIN: usize = 4096;

/// True for memory that a call may have. What is empty may lie anywhere, but a slice has an address.
fn is_memory(base: *const c_void, len: usize) -> bool {
    (base.addr() >= ADDRESS_MIN || (len == 0 && !base.is_null())) && len <= BYTES_MAX
}

/// The space of `read`. `None`: the kernel is to say what is wrong with it.
///
/// # Safety
/// As for `read`.
unsafe fn space<'a>(base: *mut c_void, len: usize) -> Option<[IoSliceMut<'a>; 1]> {
    let len = len.min(BYTES_MAX);
    if !is_memory(base, len) {
        return None;
    }
    // SAFETY: the caller lends the bytes to the call, and nobody else uses them meanwhile.
    Some([IoSliceMut::new(unsafe { std::slice::from_raw_parts_mut(base.cast(), len) })])
}

/// The data of `write`.
///
/// # Safety
/// As for `write`.
unsafe fn data<'a>(base: *const c_void, len: usize) -> Option<[IoSlice<'a>; 1]> {
    let len = len.min(BYTES_MAX);
    if !is_memory(base, len) {
        return None;
    }
    // SAFETY: the caller lends the bytes to the call, and nobody changes them meanwhile.
    Some([IoSlice::new(unsafe { std::slice::from_raw_parts(base.cast(), len) })])
}

/// The number of slices, if all of them are memory.
///
/// # Safety
/// As for `readv`.
unsafe fn checked(slices: *const iovec, count: c_int) -> Option<usize> {
    let count = usize::try_from(count).ok().filter(|count| *count <= SLICES_MAX)?;
    if slices.addr() < ADDRESS_MIN {
        return None;
    }
    // SAFETY: the caller has an array of so many.
    let slices = unsafe { std::slice::from_raw_parts(slices, count) };
    let is_right = slices.iter().all(|slice| is_memory(slice.iov_base, slice.iov_len));
    let bytes = slices.iter().map(|slice| slice.iov_len).fold(0, usize::saturating_add);
    (is_right && bytes <= BYTES_MAX).then_some(count)
}

/// The space of `readv`.
///
/// # Safety
/// As for `readv`.
unsafe fn spaces<'a>(slices: *const iovec, count: c_int) -> Option<&'a mut [IoSliceMut<'a>]> {
    // SAFETY: the caller vouches for the array.
    let count = unsafe { checked(slices, count) }?;
    // SAFETY: `IoSliceMut` has the layout of `iovec`. The engine changes the bytes, and leaves the array as it is.
    Some(unsafe { std::slice::from_raw_parts_mut(slices.cast_mut().cast(), count) })
}

/// The data of `writev`.
///
/// # Safety
/// As for `writev`.
unsafe fn datas<'a>(slices: *const iovec, count: c_int) -> Option<&'a [IoSlice<'a>]> {
    // SAFETY: the caller vouches for the array.
    let count = unsafe { checked(slices, count) }?;
    // SAFETY: `IoSlice` has the layout of `iovec`.
    Some(unsafe { std::slice::from_raw_parts(slices.cast(), count) })
}

/// What a function returns.
trait Returned {
    fn returned(self) -> isize;
}

impl Returned for usize {
    fn returned(self) -> isize {
        self.cast_signed()
    }
}

impl Returned for u64 {
    fn returned(self) -> isize {
        self.cast_signed() as isize
    }
}

impl Returned for () {
    fn returned(self) -> isize {
        0
    }
}

fn returned<T: Returned>(result: Result<T, crate::engine::Errno>) -> isize {
    result.map_or_else(raw::failed, T::returned)
}

/// A call at the descriptor's offset for which there is no memory: the kernel may do a part of it.
///
/// # Safety
/// As for the system call.
unsafe fn by_kernel(
    calls: &Calls<'_>,
    fd: i32,
    number: i64,
    pointer: usize,
    count: usize,
) -> Answered<usize> {
    calls.by_kernel(fd, || {
        // SAFETY: the caller vouches for the pointer.
        raw::result_of(unsafe { raw::system_call(number, [fd as isize as usize, pointer, count, 0, 0, 0]) })
    })
}

fn read(calls: &Calls<'_>, fd: i32, into: *mut c_void, len: usize) -> Answered<usize> {
    // SAFETY: a caller of `read` vouches for its memory.
    match unsafe { space(into, len) } {
        Some(mut space) => calls.read(fd, &mut space),
        // SAFETY: as above.
        None => unsafe { by_kernel(calls, fd, libc::SYS_read, into.expose_provenance(), len) },
    }
}

fn write(calls: &Calls<'_>, fd: i32, from: *const c_void, len: usize) -> Answered<usize> {
    // SAFETY: a caller of `write` vouches for its memory.
    match unsafe { data(from, len) } {
        Some(data) => calls.write(fd, &data),
        // SAFETY: as above.
        None => unsafe { by_kernel(calls, fd, libc::SYS_write, from.expose_provenance(), len) },
    }
}

fn pread(calls: &Calls<'_>, fd: i32, into: *mut c_void, len: usize, at: off_t) -> Answered<usize> {
    // SAFETY: a caller of `pread` vouches for its memory.
    calls.read_from(fd, at, &mut unsafe { space(into, len) }?)
}

fn pwrite(calls: &Calls<'_>, fd: i32, from: *const c_void, len: usize, at: off_t) -> Answered<usize> {
    // SAFETY: a caller of `pwrite` vouches for its memory.
    calls.write_to(fd, at, &unsafe { data(from, len) }?)
}

fn readv(calls: &Calls<'_>, fd: i32, slices: *const iovec, count: c_int) -> Answered<usize> {
    // SAFETY: a caller of `readv` vouches for its memory.
    match unsafe { spaces(slices, count) } {
        Some(spaces) => calls.read(fd, spaces),
        // SAFETY: as above.
        None => unsafe {
            by_kernel(calls, fd, libc::SYS_readv, slices.expose_provenance(), count as isize as usize)
        },
    }
}

fn writev(calls: &Calls<'_>, fd: i32, slices: *const iovec, count: c_int) -> Answered<usize> {
    // SAFETY: a caller of `writev` vouches for its memory.
    match unsafe { datas(slices, count) } {
        Some(datas) => calls.write(fd, datas),
        // SAFETY: as above.
        None => unsafe {
            by_kernel(calls, fd, libc::SYS_writev, slices.expose_provenance(), count as isize as usize)
        },
    }
}

fn preadv(calls: &Calls<'_>, fd: i32, slices: *const iovec, count: c_int, at: off_t) -> Answered<usize> {
    // SAFETY: a caller of `preadv` vouches for its memory.
    calls.read_from(fd, at, unsafe { spaces(slices, count) }?)
}

fn pwritev(calls: &Calls<'_>, fd: i32, slices: *const iovec, count: c_int, at: off_t) -> Answered<usize> {
    // SAFETY: a caller of `pwritev` vouches for its memory.
    calls.write_to(fd, at, unsafe { datas(slices, count) }?)
}

/// Which function `preadv2` and `pwritev2` stand for.
enum Plain {
    /// That without an offset.
    Sequential,
    /// That with one.
    Positioned,
}

/// Without a flag `preadv2` is `preadv`, or `readv` at offset -1; `pwritev2` likewise. With flags it is the kernel's.
fn without_flags(calls: &Calls<'_>, fd: i32, at: off_t, flags: c_int) -> Option<Plain> {
    match (at, flags) {
        (-1, 0) => Some(Plain::Sequential),
        (_, 0) => Some(Plain::Positioned),
        (-1, _) => {
            calls.shares(fd);
            None
        }
        _ => None,
    }
}

fn preadv2(
    calls: &Calls<'_>,
    fd: i32,
    slices: *const iovec,
    count: c_int,
    at: off_t,
    flags: c_int,
) -> Answered<usize> {
    match without_flags(calls, fd, at, flags)? {
        Plain::Sequential => readv(calls, fd, slices, count),
        Plain::Positioned => preadv(calls, fd, slices, count, at),
    }
}

fn pwritev2(
    calls: &Calls<'_>,
    fd: i32,
    slices: *const iovec,
    count: c_int,
    at: off_t,
    flags: c_int,
) -> Answered<usize> {
    match without_flags(calls, fd, at, flags)? {
        Plain::Sequential => writev(calls, fd, slices, count),
        Plain::Positioned => pwritev(calls, fd, slices, count, at),
    }
}

/// Memory that a program checks (`_FORTIFY_SOURCE`) and that is too small is the C library's, which ends the program.
fn read_checked(calls: &Calls<'_>, fd: i32, into: *mut c_void, len: usize, has: usize) -> Answered<usize> {
    if len <= has { read(calls, fd, into, len) } else { None }
}

/// As [`read_checked`].
fn pread_checked(
    calls: &Calls<'_>,
    fd: i32,
    into: *mut c_void,
    len: usize,
    at: off_t,
    has: usize,
) -> Answered<usize> {
    if len <= has { pread(calls, fd, into, len, at) } else { None }
}

fn seek(calls: &Calls<'_>, fd: i32, offset: off_t, whence: c_int) -> Answered<u64> {
    calls.seek(fd, offset, whence)
}

fn sync(calls: &Calls<'_>, fd: i32) -> Answered<()> {
    calls.sync(fd)
}

/// A register of a caller.
trait Register {
    fn register(self) -> usize;
}

impl Register for usize {
    fn register(self) -> usize {
        self
    }
}

impl Register for c_int {
    fn register(self) -> usize {
        self as isize as usize
    }
}

impl Register for off_t {
    fn register(self) -> usize {
        self.cast_unsigned() as usize
    }
}

impl<T> Register for *const T {
    fn register(self) -> usize {
        self.expose_provenance()
    }
}

impl<T> Register for *mut T {
    fn register(self) -> usize {
        self.expose_provenance()
    }
}

macro_rules! functions {
    ($($name:ident = $number:expr, $answer:ident($($argument:ident: $type:ty),*) $(, $never:ident)?;)*) => {
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
                pub(crate) unsafe extern "C-unwind" fn $name(fd: c_int $(, $argument: $type)*) -> isize {
                    const IS_CANCELLED: bool = <[&str]>::is_empty(&[$(stringify!($never))?]);
                    if IS_CANCELLED {
                        cancellation_point(fd);
                    }
                    if let Some(done) = answer(fd, |calls| super::$answer(calls, fd $(, $argument)*)) {
                        return returned(done);
                    }
                    let mut arguments = [fd.register(), 0, 0, 0, 0, 0];
                    let others = [$($argument.register()),*];
                    arguments[1..=others.len()].copy_from_slice(&others);
                    // SAFETY: they are the caller's.
                    unsafe { real::$name.call(arguments) }
                }
            )*
        }
    };
}

functions! {
    read = Some(libc::SYS_read), read(into: *mut c_void, len: usize);
    __read = Some(libc::SYS_read), read(into: *mut c_void, len: usize);
    __read_chk = None, read_checked(into: *mut c_void, len: usize, has: usize);
    write = Some(libc::SYS_write), write(from: *const c_void, len: usize);
    __write = Some(libc::SYS_write), write(from: *const c_void, len: usize);
    pread = Some(libc::SYS_pread64), pread(into: *mut c_void, len: usize, at: off_t);
    pread64 = Some(libc::SYS_pread64), pread(into: *mut c_void, len: usize, at: off_t);
    __pread64 = Some(libc::SYS_pread64), pread(into: *mut c_void, len: usize, at: off_t);
    __pread_chk = None, pread_checked(into: *mut c_void, len: usize, at: off_t, has: usize);
    __pread64_chk = None, pread_checked(into: *mut c_void, len: usize, at: off_t, has: usize);
    pwrite = Some(libc::SYS_pwrite64), pwrite(from: *const c_void, len: usize, at: off_t);
    pwrite64 = Some(libc::SYS_pwrite64), pwrite(from: *const c_void, len: usize, at: off_t);
    __pwrite64 = Some(libc::SYS_pwrite64), pwrite(from: *const c_void, len: usize, at: off_t);
    readv = Some(libc::SYS_readv), readv(slices: *const iovec, count: c_int);
    writev = Some(libc::SYS_writev), writev(slices: *const iovec, count: c_int);
    preadv = None, preadv(slices: *const iovec, count: c_int, at: off_t);
    preadv64 = None, preadv(slices: *const iovec, count: c_int, at: off_t);
    pwritev = None, pwritev(slices: *const iovec, count: c_int, at: off_t);
    pwritev64 = None, pwritev(slices: *const iovec, count: c_int, at: off_t);
    preadv2 = None, preadv2(slices: *const iovec, count: c_int, at: off_t, flags: c_int);
    preadv64v2 = None, preadv2(slices: *const iovec, count: c_int, at: off_t, flags: c_int);
    pwritev2 = None, pwritev2(slices: *const iovec, count: c_int, at: off_t, flags: c_int);
    pwritev64v2 = None, pwritev2(slices: *const iovec, count: c_int, at: off_t, flags: c_int);
    lseek = Some(libc::SYS_lseek), seek(offset: off_t, whence: c_int), never_cancelled;
    lseek64 = Some(libc::SYS_lseek), seek(offset: off_t, whence: c_int), never_cancelled;
    __lseek = Some(libc::SYS_lseek), seek(offset: off_t, whence: c_int), never_cancelled;
    fsync = Some(libc::SYS_fsync), sync();
    fdatasync = Some(libc::SYS_fdatasync), sync();
}
