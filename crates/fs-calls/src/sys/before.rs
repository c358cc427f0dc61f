//! The functions that are passed on after the table has been prepared for them.
//!
//! Each of them saves the registers of its caller, prepares the table, and jumps to the function that it replaces: as
//! many arguments as there are reach it, on the stack as well, and `vfork` may return twice.

use super::owner::is_owner;
use super::process::{lose, prepare, prepare_for, turn_off};
use super::quiet;
use super::raw::{self, Arguments};
use super::real::Real;
use super::statistics;
use crate::calls::Calls;
use libc::{c_int, c_long};
use std::arch::naked_asm;

/// `ioctl` that returns the bytes between the offset and the end of a file.
const FIONREAD: u32 = 0x541b;

/// An engine's own descriptors have higher numbers: programs expect the lowest free ones for themselves.
const ENGINES_MIN: u32 = 500;

/// A descriptor among the arguments.
fn fd(argument: usize) -> c_int {
    argument as c_int
}

/// Descriptors in this range are about to be others.
pub(super) fn loses(first: u32, last: u32) {
    if last >= ENGINES_MIN {
        lose(first..=last);
        statistics::loses(first..=last);
    }
}

fn closes([file, ..]: Arguments) {
    prepare_for(fd(file), Calls::closes);
    loses(file as u32, file as u32);
}

fn closes_from([first, ..]: Arguments) {
    prepare(|calls| calls.leaves_range(first as u32, u32::MAX));
    loses(first as u32, u32::MAX);
}

fn closes_range([first, last, flags, ..]: Arguments) {
    if flags as u32 & libc::CLOSE_RANGE_UNSHARE != 0 {
        leaves_for_good();
    }
    if flags as u32 & libc::CLOSE_RANGE_CLOEXEC == 0 {
        prepare(|calls| calls.leaves_range(first as u32, last as u32));
        loses(first as u32, last as u32);
    }
}

fn shares([file, ..]: Arguments) {
    prepare_for(fd(file), Calls::shares);
}

fn shares_third([_, _, file, ..]: Arguments) {
    prepare_for(fd(file), Calls::shares);
}

fn shares_all(_: Arguments) {
    prepare(|calls| calls.shares_all());
}

fn leaves([file, ..]: Arguments) {
    prepare_for(fd(file), Calls::leaves);
}

fn leaves_all(_: Arguments) {
    prepare(|calls| calls.leaves_range(0, u32::MAX));
}

/// The threads have no common descriptors from now on, or the kernel must see everything.
fn leaves_for_good() {
    if is_owner() {
        leaves_all([0; 6]);
        turn_off();
    }
}

/// `vfork`: the child has the memory of its parent, which waits, and descriptors of its own.
fn forks(_: Arguments) {
    shares_all([0; 6]);
    quiet::note_child();
}

fn unshares([flags, ..]: Arguments) {
    if flags as c_int & libc::CLONE_FILES != 0 {
        leaves_for_good();
    }
}

/// The C library closes a standard descriptor by itself, or makes it that of another file.
fn leaves_standard(_: Arguments) {
    prepare(|calls| calls.leaves_range(libc::STDIN_FILENO as u32, libc::STDERR_FILENO as u32));
}

fn shows([file, ..]: Arguments) {
    prepare_for(fd(file), Calls::shows_offset);
}

fn asks_device([file, request, ..]: Arguments) {
    if request as u32 == FIONREAD {
        shows([file, 0, 0, 0, 0, 0]);
        raw::refresh(fd(file));
    }
}

/// `sendfile`: the kernel changes the offset of the target, and of the source where none is given.
fn sends_file([target, source, offset, ..]: Arguments) {
    prepare_for(fd(target), Calls::shares);
    prepare_for(fd(source), |_, fd| raw::refresh(fd));
    if offset == 0 {
        prepare_for(fd(source), Calls::shares);
    }
}

/// `splice`, `copy_file_range`: as [`sends_file`].
fn moves([source, source_offset, target, target_offset, ..]: Arguments) {
    prepare_for(fd(source), |_, fd| raw::refresh(fd));
    for (file, offset) in [(source, source_offset), (target, target_offset)] {
        if offset == 0 {
            prepare_for(fd(file), Calls::shares);
        }
    }
}

fn maps([_, _, _, flags, file, ..]: Arguments) {
    if flags as c_int & libc::MAP_ANONYMOUS == 0 {
        prepare_for(fd(file), Calls::maps);
    }
}

/// A message with control data may contain descriptors.
fn sends([_, message, ..]: Arguments) {
    let message = std::ptr::with_exposed_provenance::<libc::msghdr>(message);
    // SAFETY: a caller of `sendmsg` has a message, or none.
    let has_control = unsafe { message.as_ref() }.is_some_and(|message| message.msg_controllen > 0);
    if has_control {
        shares_all([0; 6]);
    }
}

/// A child without the parent's memory must not have its descriptors; one with it shares only the offsets, while its parent
/// waits for it.
fn clones([_, _, flags, ..]: Arguments) {
    let has = |flag| flags as c_int & flag != 0;
    match (has(libc::CLONE_VM), has(libc::CLONE_FILES), has(libc::CLONE_VFORK)) {
        (true, true, _) => {}
        (true, false, true) => forks([0; 6]),
        (true, false, false) => leaves_for_good(),
        (false, ..) => leaves_all([0; 6]),
    }
}

/// The kernel limits the sizes of files from now on: it must see what is written.
fn limits(resource: usize, limit: usize) {
    if resource as u32 == libc::RLIMIT_FSIZE && limit != 0 {
        leaves_for_good();
    }
}

fn sets_limit([resource, limit, ..]: Arguments) {
    limits(resource, limit);
}

fn sets_limit_of([_, resource, limit, ..]: Arguments) {
    limits(resource, limit);
}

/// A new disposition of a signal: 0 is the default, 1 ignores it.
fn handles([_, action, ..]: Arguments) {
    let action = std::ptr::with_exposed_provenance::<usize>(action);
    // SAFETY: a caller of `sigaction` has an action, which begins with the handler, or none.
    if unsafe { action.as_ref() }.is_some_and(|handler| *handler > 1) {
        quiet::note_handler();
    }
}

fn handles_with([_, handler, ..]: Arguments) {
    if handler > 1 {
        quiet::note_handler();
    }
}

/// System calls that programs make by number: those that use offsets, or make or end descriptors or processes. They are
/// rare, and many; the kernel gets everything.
const BY_NUMBER: [c_long; 31] = [
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_preadv2,
    libc::SYS_pwritev2,
    libc::SYS_lseek,
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_dup,
    libc::SYS_dup2,
    libc::SYS_dup3,
    libc::SYS_fcntl,
    libc::SYS_ioctl,
    libc::SYS_sendfile,
    libc::SYS_splice,
    libc::SYS_copy_file_range,
    libc::SYS_sendmsg,
    libc::SYS_sendmmsg,
    libc::SYS_mmap,
    libc::SYS_fork,
    libc::SYS_vfork,
    libc::SYS_clone,
    libc::SYS_clone3,
    libc::SYS_unshare,
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_rt_sigaction,
    libc::SYS_prlimit64,
];

fn calls_by_number([number, first, second, ..]: Arguments) {
    let number = number as c_long;
    if number == libc::SYS_rt_sigaction {
        quiet::note_handler();
    }
    if BY_NUMBER.contains(&number) {
        leaves_all([0; 6]);
    }
    match number {
        libc::SYS_close => loses(first as u32, first as u32),
        libc::SYS_close_range => loses(first as u32, second as u32),
        libc::SYS_dup2 | libc::SYS_dup3 => loses(second as u32, second as u32),
        _ => {}
    }
}

macro_rules! functions {
    ($($name:ident: $prepare:ident;)*) => {
        #[allow(non_upper_case_globals, reason = "they have the names of the functions")]
        mod real {
            use super::Real;
            $(pub(super) static $name: Real = Real::new(concat!(stringify!($name), "\0"), None);)*
        }

        /// All of them.
        pub(super) static ALL: &[&Real] = &[$(&real::$name),*];

        /// Prepares the table. Each returns the address of the function that is passed on to.
        #[allow(non_snake_case, reason = "they have the names of the functions")]
        mod preparing {
            use super::real;
            $(
                pub(super) extern "C" fn $name(
                    a: usize,
                    b: usize,
                    c: usize,
                    d: usize,
                    e: usize,
                    f: usize,
                ) -> usize {
                    super::$prepare([a, b, c, d, e, f]);
                    real::$name.address()
                }
            )*
        }

        #[allow(non_snake_case, reason = "they have the names of the functions")]
        mod exported {
            use super::*;
            $(
                /// # Safety
                /// As for the function of this name.
                #[unsafe(no_mangle)]
                #[unsafe(naked)]
                pub(crate) unsafe extern "C" fn $name() {
                    naked_asm!(
                        // With its return address and 184 bytes the stack is aligned for a call.
                        "sub rsp, 184",
                        "mov [rsp], rdi",
                        "mov [rsp + 8], rsi",
                        "mov [rsp + 16], rdx",
                        "mov [rsp + 24], rcx",
                        "mov [rsp + 32], r8",
                        "mov [rsp + 40], r9",
                        "mov [rsp + 48], rax",
                        "movups [rsp + 56], xmm0",
                        "movups [rsp + 72], xmm1",
                        "movups [rsp + 88], xmm2",
                        "movups [rsp + 104], xmm3",
                        "movups [rsp + 120], xmm4",
                        "movups [rsp + 136], xmm5",
                        "movups [rsp + 152], xmm6",
                        "movups [rsp + 168], xmm7",
                        "call {prepare}",
                        "mov r11, rax",
                        "mov rdi, [rsp]",
                        "mov rsi, [rsp + 8]",
                        "mov rdx, [rsp + 16]",
                        "mov rcx, [rsp + 24]",
                        "mov r8, [rsp + 32]",
                        "mov r9, [rsp + 40]",
                        "mov rax, [rsp + 48]",
                        "movups xmm0, [rsp + 56]",
                        "movups xmm1, [rsp + 72]",
                        "movups xmm2, [rsp + 88]",
                        "movups xmm3, [rsp + 104]",
                        "movups xmm4, [rsp + 120]",
                        "movups xmm5, [rsp + 136]",
                        "movups xmm6, [rsp + 152]",
                        "movups xmm7, [rsp + 168]",
                        "add rsp, 184",
                        "jmp r11",
                        prepare = sym preparing::$name,
                    )
                }
            )*
        }
    };
}

functions! {
    close: closes;
    __close: closes;
    closefrom: closes_from;
    close_range: closes_range;
    ioctl: asks_device;
    lockf: shows;
    lockf64: shows;
    fclose: leaves_standard;
    _IO_fclose: leaves_standard;
    fcloseall: leaves_standard;
    freopen: leaves_standard;
    freopen64: leaves_standard;
    login_tty: leaves_standard;
    fdopen: leaves;
    _IO_fdopen: leaves;
    dprintf: shares;
    vdprintf: shares;
    __dprintf_chk: shares;
    __vdprintf_chk: shares;
    backtrace_symbols_fd: shares_third;
    sendfile: sends_file;
    sendfile64: sends_file;
    splice: moves;
    copy_file_range: moves;
    mmap: maps;
    mmap64: maps;
    sendmsg: sends;
    sendmmsg: shares_all;
    vfork: forks;
    __vfork: forks;
    unshare: unshares;
    _Fork: leaves_all;
    clone: clones;
    __clone: clones;
    posix_spawn: shares_all;
    posix_spawnp: shares_all;
    system: shares_all;
    popen: shares_all;
    _IO_popen: shares_all;
    wordexp: shares_all;
    execve: shares_all;
    execveat: shares_all;
    fexecve: shares_all;
    execv: shares_all;
    execvp: shares_all;
    execvpe: shares_all;
    execl: shares_all;
    execle: shares_all;
    execlp: shares_all;
    setrlimit: sets_limit;
    setrlimit64: sets_limit;
    prlimit: sets_limit_of;
    prlimit64: sets_limit_of;
    sigaction: handles;
    __sigaction: handles;
    signal: handles_with;
    bsd_signal: handles_with;
    ssignal: handles_with;
    sigset: handles_with;
    sysv_signal: handles_with;
    __sysv_signal: handles_with;
    syscall: calls_by_number;
}
