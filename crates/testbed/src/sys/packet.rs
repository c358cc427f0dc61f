//! Packet sockets, which receive and send whole frames of an interface.

use super::checked::checked;
use super::interface::index_of;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// `ETH_P_ALL` in network byte order.
const ALL: u16 = 0x0003_u16.swap_bytes();
const PACKET_IGNORE_OUTGOING: libc::c_int = 23;

/// A non-blocking `AF_PACKET` socket that gets every frame that arrives on one interface.
#[derive(Debug)]
pub struct PacketSocket(OwnedFd);

impl PacketSocket {
    /// Opens a socket in the calling thread's namespace (see [`crate::Host::enter`]) and makes the interface
    /// promiscuous.
    ///
    /// # Errors
    /// The error of the system call: there is no such interface, or the process lacks `CAP_NET_RAW`.
    pub fn open(interface: &str) -> io::Result<Self> {
        let index = index_of(interface)?.cast_signed();
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // Protocol 0: nothing arrives before the bind names the interface.
        // SAFETY: socket takes no pointers.
        let fd = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
        checked(fd)?;
        // SAFETY: the descriptor is new, and nothing else owns it.
        let socket = Self(unsafe { OwnedFd::from_raw_fd(fd) });
        let promiscuous = libc::packet_mreq {
            mr_ifindex: index,
            mr_type: libc::PACKET_MR_PROMISC as u16,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        socket.set(PACKET_IGNORE_OUTGOING, &1i32)?;
        socket.set(libc::PACKET_ADD_MEMBERSHIP, &promiscuous)?;
        socket.bind(index)?;
        Ok(socket)
    }

    fn bind(&self, index: i32) -> io::Result<()> {
        let address = libc::sockaddr_ll {
            sll_family: libc::AF_PACKET as u16,
            sll_protocol: ALL,
            sll_ifindex: index,
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: 0,
            sll_addr: [0; 8],
        };
        let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        // SAFETY: the kernel reads `length` bytes of `address`, which lives until the call returns.
        checked(unsafe { libc::bind(self.fd(), (&raw const address).cast(), length) }).map(drop)
    }

    fn set<T>(&self, option: libc::c_int, value: &T) -> io::Result<()> {
        let (value, length) = (std::ptr::from_ref(value).cast(), size_of::<T>() as libc::socklen_t);
        // SAFETY: the kernel reads `length` bytes of `value`, which is borrowed until the call returns.
        checked(unsafe { libc::setsockopt(self.fd(), libc::SOL_PACKET, option, value, length) }).map(drop)
    }

    fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Copies the next frame that has arrived into `into` and returns its length.
    ///
    /// # Errors
    /// `WouldBlock` if no frame has arrived; the error of the system call.
    pub fn receive(&self, into: &mut [u8]) -> io::Result<usize> {
        // SAFETY: the kernel writes at most `len` bytes into the slice.
        checked(unsafe { libc::recv(self.fd(), into.as_mut_ptr().cast(), into.len(), 0) })
    }

    /// Sends one frame, Ethernet header first.
    ///
    /// # Errors
    /// The error of the system call: `EMSGSIZE` for more than the MTU, `ENOBUFS` when the queue is full.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        // SAFETY: the kernel reads at most `len` bytes of the slice.
        checked(unsafe { libc::send(self.fd(), frame.as_ptr().cast(), frame.len(), 0) }).map(drop)
    }
}

/// Waits until one of the sockets has a frame, the other end of `stop` is closed, or `timeout` has passed (`None`: no
/// timeout). Returns true if `stop` was closed.
pub(crate) fn wait(sockets: [&PacketSocket; 2], stop: RawFd, timeout: Option<Duration>) -> io::Result<bool> {
    let watch = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    let mut watched = [watch(sockets[0].fd()), watch(sockets[1].fd()), watch(stop)];
    let limit = timeout.map(|timeout| libc::timespec {
        tv_sec: timeout.as_secs().try_into().unwrap_or(libc::time_t::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    });
    let limit = limit.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: three pollfds; the timespec, if any, lives until the call returns; no signal mask.
    match checked(unsafe { libc::ppoll(watched.as_mut_ptr(), 3, limit, std::ptr::null()) }) {
        Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
        _ => Ok(watched[2].revents != 0),
    }
}
