//! System calls that nothing replaces, and that change no `errno`.

use crate::engine::Errno;
use crate::kernel::Kernel;
use std::arch::asm;
use std::io::{IoSlice, IoSliceMut};
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
compile_error!("the calls are those of Linux on x86-64");

/// Arguments of a call: those that it does not have are ignored.
pub(super) type Arguments = [usize; 6];

/// The result of the error with the highest number.
const ERRNO_LAST: isize = -4095;

/// A system call. An error is its negative number.
///
/// # Safety
/// Pointers among the arguments are valid for what the call does with them.
#[inline]
pub(super) unsafe fn system_call(number: i64, [a, b, c, d, e, f]: Arguments) -> isize {
    let mut result = number as isize;
    // SAFETY: the kernel keeps all registers but these; the caller vouches for the pointers.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") result,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    result
}

/// The result of a system call.
pub(super) fn result_of(result: isize) -> Result<usize, Errno> {
    match result {
        ERRNO_LAST..=-1 => Err(Errno(-result as i32)),
        done => Ok(done.cast_unsigned()),
    }
}

/// As [`system_call`], with the result and the `errno` of a function of the C library.
///
/// # Safety
/// As [`system_call`].
pub(super) unsafe fn as_function(number: i64, arguments: Arguments) -> isize {
    // SAFETY: the caller vouches for the arguments.
    match result_of(unsafe { system_call(number, arguments) }) {
        Ok(done) => done.cast_signed(),
        Err(errno) => failed(errno),
    }
}

/// Sets `errno`. Returns what a function returns then.
pub(super) fn failed(errno: Errno) -> isize {
    // SAFETY: the address is that of the thread's own number.
    unsafe { *libc::__errno_location() = errno.0 };
    -1
}

/// Where the C library says that there is one thread only; 0: nowhere.
static SINGLE_THREADED: AtomicUsize = AtomicUsize::new(0);

/// Looks for that place.
pub(super) fn find_single_threaded() {
    // SAFETY: the name ends in a zero byte.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__libc_single_threaded".as_ptr()) };
    SINGLE_THREADED.store(found.expose_provenance(), Ordering::Relaxed);
}

/// The kernel.
pub(super) struct Raw;

fn argument(fd: i32) -> usize {
    fd as isize as usize
}

impl Kernel for Raw {
    fn seek(&self, fd: i32, offset: i64, whence: i32) -> Result<u64, Errno> {
        let arguments = [argument(fd), offset as usize, argument(whence), 0, 0, 0];
        // SAFETY: there are no pointers.
        result_of(unsafe { system_call(libc::SYS_lseek, arguments) }).map(|offset| offset as u64)
    }

    fn read(&self, fd: i32, space: &mut [IoSliceMut<'_>]) -> Result<usize, Errno> {
        let arguments = [argument(fd), space.as_mut_ptr().expose_provenance(), space.len(), 0, 0, 0];
        // SAFETY: a slice of `IoSliceMut` is an array of `iovec`, and the kernel writes into their bytes only.
        result_of(unsafe { system_call(libc::SYS_readv, arguments) })
    }

    fn write(&self, fd: i32, data: &[IoSlice<'_>]) -> Result<usize, Errno> {
        let arguments = [argument(fd), data.as_ptr().expose_provenance(), data.len(), 0, 0, 0];
        // SAFETY: a slice of `IoSlice` is an array of `iovec`; the kernel only reads.
        result_of(unsafe { system_call(libc::SYS_writev, arguments) })
    }

    fn refresh(&self, fd: i32) {
        refresh(fd);
    }

    fn is_single_threaded(&self) -> bool {
        match SINGLE_THREADED.load(Ordering::Relaxed) {
            0 => false,
            address => {
                let said = std::ptr::with_exposed_provenance::<AtomicU8>(address);
                // SAFETY: the variable of the C library, a `char`, lives as long as the process. Threads of its own change it.
                unsafe { (*said).load(Ordering::Relaxed) != 0 }
            }
        }
    }

    fn sync(&self, fd: i32) -> Result<(), Errno> {
        // SAFETY: there are no pointers.
        result_of(unsafe { system_call(libc::SYS_fsync, [argument(fd), 0, 0, 0, 0, 0]) }).map(|_| ())
    }
}

/// Type, permissions, device and number of a descriptor's inode, as the kernel knows them. It asks nobody: a question
/// about attributes would end the leases of the inode.
pub(super) fn stat(fd: i32) -> Result<libc::statx, Errno> {
    let mut stat = std::mem::MaybeUninit::<libc::statx>::uninit();
    let flags = libc::AT_EMPTY_PATH | libc::AT_STATX_DONT_SYNC;
    let wanted = libc::STATX_TYPE | libc::STATX_MODE | libc::STATX_INO;
    let arguments = [
        argument(fd),
        c"".as_ptr().expose_provenance(),
        argument(flags),
        wanted as usize,
        stat.as_mut_ptr().expose_provenance(),
        0,
    ];
    // SAFETY: the name ends in a zero byte, and there is space for what the kernel writes.
    result_of(unsafe { system_call(libc::SYS_statx, arguments) })?;
    // SAFETY: the call has filled it.
    Ok(unsafe { stat.assume_init() })
}

/// Makes the kernel ask for the attributes of a descriptor's inode: some calls use the size that it knows.
pub(super) fn refresh(fd: i32) {
    let mut stat = std::mem::MaybeUninit::<libc::stat>::uninit();
    let arguments = [argument(fd), stat.as_mut_ptr().expose_provenance(), 0, 0, 0, 0];
    // SAFETY: there is space for what the kernel writes. A descriptor without attributes fails in the call that follows.
    unsafe { system_call(libc::SYS_fstat, arguments) };
}

/// The number of the process.
pub(super) fn process_id() -> usize {
    // SAFETY: there are no arguments.
    unsafe { system_call(libc::SYS_getpid, [0; 6]) }.cast_unsigned()
}
