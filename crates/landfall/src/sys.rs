//! Signals and system limits: SIGTERM and SIGINT are blocked in all threads, and one thread waits for them.

// signalfd, sigprocmask and setrlimit have no safe wrapper in the standard library.
#![allow(unsafe_code)]

use std::io;
use std::mem::MaybeUninit;

/// Blocks SIGTERM and SIGINT in the calling thread and every thread it starts later.
///
/// # Errors
/// An error of the kernel.
pub(crate) fn block_stop_signals() -> io::Result<()> {
    let set = stop_signals()?;
    // SAFETY: `set` is initialised; the old mask is not requested.
    let failed = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
    if failed == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(failed)) }
}

/// A file that may not grow further (`ulimit -f`) is an error of the write, and not the end of the process. Programs that it
/// starts inherit that.
pub(crate) fn ignore_size_signal() {
    // SAFETY: no handler is installed.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// Waits for SIGTERM or SIGINT and returns its number.
///
/// # Errors
/// An error of the kernel.
pub(crate) fn wait_for_stop_signal() -> io::Result<i32> {
    let set = stop_signals()?;
    let mut signal = 0;
    // SAFETY: both pointers refer to live locals.
    let failed = unsafe { libc::sigwait(&raw const set, &raw mut signal) };
    if failed == 0 { Ok(signal) } else { Err(io::Error::from_raw_os_error(failed)) }
}

fn stop_signals() -> io::Result<libc::sigset_t> {
    let mut set = MaybeUninit::uninit();
    // SAFETY: sigemptyset initialises the set before sigaddset reads it.
    let failed = unsafe {
        libc::sigemptyset(set.as_mut_ptr())
            | libc::sigaddset(set.as_mut_ptr(), libc::SIGTERM)
            | libc::sigaddset(set.as_mut_ptr(), libc::SIGINT)
    };
    if failed != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: initialised above.
    Ok(unsafe { set.assume_init() })
}

/// The effective user and group of the process.
pub(crate) fn user_and_group() -> (u32, u32) {
    // SAFETY: neither call has arguments or can fail.
    unsafe { (libc::geteuid(), libc::getegid()) }
}

/// Raises the limit on open files up to the hard limit; returns the limit then in force.
pub(crate) fn raise_open_files() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer refers to a live local.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 {
        return 0;
    }
    let raised = libc::rlimit { rlim_cur: limit.rlim_max, ..limit };
    // SAFETY: the pointer refers to a live local.
    let failed = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const raised) };
    if failed == 0 { raised.rlim_cur } else { limit.rlim_cur }
}

/// Notifies systemd, if it asked for that, that the server is ready (`Type=notify`).
pub(crate) fn notify_ready() {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixDatagram};
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let path = path.to_string_lossy().into_owned();
    let address = match path.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(&path),
    };
    if let (Ok(socket), Ok(address)) = (UnixDatagram::unbound(), address) {
        // A failure is ignored: the server also runs without a listener for this message.
        let _ = socket.send_to_addr(b"READY=1", &address);
    }
}
