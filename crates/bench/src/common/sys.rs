//! Signals, poll, epoll, page-cache advice, extended attributes, and the core that a thread runs on.

// sigaction, poll, epoll, sched_setaffinity, posix_fadvise, getxattr and prctl have no safe wrapper in the standard library.
#![allow(unsafe_code)]

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::net::TcpStream;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

/// Connections reported by one wait at most.
const READY_MAX: i32 = 128;

static STOP: AtomicBool = AtomicBool::new(false);

extern "C" fn on_stop_signal(_signal: libc::c_int) {
    STOP.store(true, Ordering::Relaxed);
}

/// Makes SIGINT and SIGTERM set a flag. Loops then return, and guards clean up.
pub(crate) fn note_stop_signals() {
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: the handler only stores to an atomic, which is async-signal-safe, and lives for ever.
        unsafe { libc::signal(signal, on_stop_signal as *const () as libc::sighandler_t) };
    }
}

/// True once SIGINT or SIGTERM has arrived.
pub(crate) fn stop_asked() -> bool {
    STOP.load(Ordering::Relaxed)
}

/// Makes the child a group of its own, away from the terminal's Ctrl-C, and lets the kernel end it with us.
///
/// The kernel's promise is tied to the spawning thread, so only the main thread may spawn.
pub(crate) fn end_with_parent(command: &mut Command) {
    command.process_group(0);
    // SAFETY: prctl is async-signal-safe, touches no memory of ours and allocates nothing.
    unsafe {
        command.pre_exec(|| match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        });
    }
}

/// The value of an extended attribute, as text; at most 64 KiB of it.
pub(crate) fn extended_attribute(path: &Path, name: &str) -> io::Result<String> {
    let (path, name) = (CString::new(path.as_os_str().as_bytes())?, CString::new(name)?);
    let mut value = vec![0_u8; 64 << 10];
    // SAFETY: both names end with a NUL, and `value` has as many bytes as it says.
    let len = unsafe { libc::getxattr(path.as_ptr(), name.as_ptr(), value.as_mut_ptr().cast(), value.len()) };
    value.truncate(usize::try_from(len).map_err(|_| io::Error::last_os_error())?);
    Ok(String::from_utf8_lossy(&value).into_owned())
}

/// Kills a process that is no child of this one.
pub(crate) fn kill(pid: u32) {
    send(pid, libc::SIGKILL);
}

/// Stops a process (SIGSTOP) until [`go_on`].
pub(crate) fn stop(pid: u32) {
    send(pid, libc::SIGSTOP);
}

/// Lets a process go on that was stopped.
pub(crate) fn go_on(pid: u32) {
    send(pid, libc::SIGCONT);
}

fn send(pid: u32, signal: libc::c_int) {
    if let Ok(pid @ 1..) = libc::pid_t::try_from(pid) {
        // SAFETY: takes numbers only. It may have ended already.
        unsafe { libc::kill(pid, signal) };
    }
}

/// Kills all processes of the group that a process has begun ([`end_with_parent`]).
pub(crate) fn kill_group(leader: u32) {
    if let Ok(leader @ 2..) = libc::pid_t::try_from(leader) {
        // SAFETY: takes numbers only. They may have ended already.
        unsafe { libc::killpg(leader, libc::SIGKILL) };
    }
}

/// Drops a file's clean pages from the page cache.
pub(crate) fn drop_cached(file: &File) -> io::Result<()> {
    // SAFETY: a descriptor that lives through the call, and numbers.
    match unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// What a connection waits for, and whether it has come.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Interest {
    /// Wait for room to send, not only for bytes to read.
    pub(crate) write: bool,
    /// Set by [`poll`]: something can be done.
    pub(crate) ready: bool,
}

/// Waits up to `timeout_ms` until a connection can do what it is interested in.
pub(crate) fn poll(
    connections: &mut [(&TcpStream, Interest)],
    scratch: &mut Vec<libc::pollfd>,
    timeout_ms: i32,
) -> io::Result<()> {
    scratch.clear();
    scratch.extend(connections.iter().map(|(stream, interest)| libc::pollfd {
        fd: stream.as_raw_fd(),
        events: if interest.write { libc::POLLIN | libc::POLLOUT } else { libc::POLLIN },
        revents: 0,
    }));
    // SAFETY: the vector lives through the call, and its length goes with it.
    let ready = unsafe { libc::poll(scratch.as_mut_ptr(), scratch.len() as libc::nfds_t, timeout_ms) };
    if ready < 0 {
        let error = io::Error::last_os_error();
        return if error.kind() == io::ErrorKind::Interrupted { Ok(()) } else { Err(error) };
    }
    for ((_, interest), poll) in connections.iter_mut().zip(scratch.iter()) {
        interest.ready = poll.revents != 0;
    }
    Ok(())
}

/// Reports which of many sockets can be read.
#[derive(Debug)]
pub(crate) struct Readiness {
    epoll: OwnedFd,
    events: Vec<libc::epoll_event>,
}

impl Readiness {
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: takes flags only.
        let epoll = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if epoll < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a descriptor that was just created and has no other owner.
        let epoll = unsafe { OwnedFd::from_raw_fd(epoll) };
        Ok(Self { epoll, events: vec![libc::epoll_event { events: 0, u64: 0 }; READY_MAX as usize] })
    }

    /// Reports a socket by its descriptor whenever it can be read, until it is closed.
    pub(crate) fn add(&self, socket: &impl AsRawFd) -> io::Result<()> {
        let descriptor = socket.as_raw_fd();
        let mut event =
            libc::epoll_event { events: libc::EPOLLIN as u32, u64: u64::from(descriptor.unsigned_abs()) };
        // SAFETY: both descriptors are open, and the event lives through the call.
        let done = unsafe {
            libc::epoll_ctl(self.epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, descriptor, &raw mut event)
        };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// The sockets that can be read; waits for one for at most `timeout_ms`.
    pub(crate) fn wait(&mut self, timeout_ms: i32) -> io::Result<impl Iterator<Item = RawFd> + '_> {
        // SAFETY: the vector lives through the call and holds as many events as is said.
        let ready = unsafe {
            let events = self.events.as_mut_ptr();
            libc::epoll_wait(self.epoll.as_raw_fd(), events, READY_MAX, timeout_ms)
        };
        let interrupted = ready < 0 && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted;
        if ready < 0 && !interrupted {
            return Err(io::Error::last_os_error());
        }
        let ready = usize::try_from(ready).unwrap_or(0);
        Ok(self.events[..ready].iter().map(|event| event.u64 as RawFd))
    }
}

/// Gives the calling thread the lowest priority, for ever.
pub(crate) fn take_lowest_priority() {
    // SAFETY: takes a number only. On Linux the niceness is that of the calling thread; to give way needs no right.
    unsafe { libc::nice(19) };
}

/// Pins the calling thread to a core. Without that core, the thread's affinity does not change.
pub(crate) fn pin(core: usize) {
    // SAFETY: an all-zero set is a valid empty one; CPU_SET checks its bounds; the kernel reads the set only.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(core, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The 19th field of the calling thread's line: behind a name that may hold anything, the 17th.
    fn niceness() -> i32 {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        let (_, rest) = stat.rsplit_once(')').unwrap();
        rest.split_whitespace().nth(16).unwrap().parse().unwrap()
    }

    #[test]
    fn a_thread_gives_way_and_the_others_do_not() {
        let before = niceness();
        let of_thread = std::thread::spawn(|| {
            take_lowest_priority();
            niceness()
        });
        assert_eq!((of_thread.join().unwrap(), niceness()), (19, before));
    }
}
