//! The packets of an interface, each with the time at which the kernel saw it.

use std::ffi::CString;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// `ETH_P_ALL` in network byte order.
const ALL: u16 = 0x0003_u16.swap_bytes();
/// Room for one time stamp and its header, aligned as the kernel requires.
const CONTROL_WORDS: usize = 8;

/// Receives a copy of every packet that leaves or reaches an interface. Copies wake no process.
#[derive(Debug)]
pub(crate) struct Tap(OwnedFd);

/// A packet that a [`Tap`] has a copy of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// It left by the interface; else it arrived.
    pub(crate) leaves: bool,
    /// When the kernel had it at the interface, ns of the system's clock.
    pub(crate) at_ns: u64,
    /// Bytes of the frame.
    pub(crate) len: usize,
}

impl Tap {
    /// Taps an interface of the calling thread's network namespace.
    pub(crate) fn open(interface: &str) -> io::Result<Self> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: takes numbers only. Protocol 0: nothing arrives before the bind names the interface.
        let fd = checked(unsafe { libc::socket(libc::AF_PACKET, kind, 0) })?;
        // SAFETY: a descriptor that was just created and has no other owner.
        let tap = Self(unsafe { OwnedFd::from_raw_fd(fd) });
        let (yes, length) = (1i32, size_of::<i32>() as libc::socklen_t);
        // SAFETY: the kernel reads `length` bytes of `yes`, which lives through the call.
        checked(unsafe {
            libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, (&raw const yes).cast(), length)
        })?;
        tap.bind(interface)?;
        Ok(tap)
    }

    fn bind(&self, interface: &str) -> io::Result<()> {
        let name = CString::new(interface)?;
        // SAFETY: a terminated string that lives through the call.
        let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
        if index == 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: an all-zero address is valid.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        (address.sll_family, address.sll_protocol) = (libc::AF_PACKET as u16, ALL);
        address.sll_ifindex = index.cast_signed();
        let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        // SAFETY: the kernel reads `length` bytes of `address`, which lives through the call.
        checked(unsafe { libc::bind(self.0.as_raw_fd(), (&raw const address).cast(), length) }).map(drop)
    }

    /// The next packet's first bytes, into `frame`; `None` if there is none.
    pub(crate) fn next(&self, frame: &mut [u8]) -> io::Result<Option<Seen>> {
        let mut from = MaybeUninit::<libc::sockaddr_ll>::zeroed();
        let mut control = [0u64; CONTROL_WORDS];
        let mut piece = libc::iovec { iov_base: frame.as_mut_ptr().cast(), iov_len: frame.len() };
        // SAFETY: an all-zero message is valid.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_name = from.as_mut_ptr().cast();
        message.msg_namelen = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        (message.msg_iov, message.msg_iovlen) = (&raw mut piece, 1);
        (message.msg_control, message.msg_controllen) = (control.as_mut_ptr().cast(), size_of_val(&control));
        // SAFETY: the message's parts live through the call, with the lengths that go with them.
        let got = unsafe { libc::recvmsg(self.0.as_raw_fd(), &raw mut message, 0) };
        let Ok(len) = usize::try_from(got) else {
            let error = io::Error::last_os_error();
            return if error.kind() == io::ErrorKind::WouldBlock { Ok(None) } else { Err(error) };
        };
        // SAFETY: zeroed is valid, and the kernel may have written an address over it.
        let leaves = unsafe { from.assume_init() }.sll_pkttype == libc::PACKET_OUTGOING;
        let at_ns = stamp(&message).ok_or_else(|| io::Error::other("a packet without a time stamp"))?;
        Ok(Some(Seen { leaves, at_ns, len }))
    }
}

/// The time stamp that came with a message.
fn stamp(message: &libc::msghdr) -> Option<u64> {
    // SAFETY: the kernel has filled the control buffer, and set its length; the macros stay within it.
    let mut head = unsafe { libc::CMSG_FIRSTHDR(message) };
    while !head.is_null() {
        // SAFETY: not null, and within the control buffer, which is aligned for it.
        let kind = unsafe { ((*head).cmsg_level, (*head).cmsg_type) };
        if kind == (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) {
            // SAFETY: what follows such a head is a time; it is copied, wherever it lies.
            let time: libc::timespec =
                unsafe { libc::CMSG_DATA(head).cast::<libc::timespec>().read_unaligned() };
            return Some(
                u64::try_from(time.tv_sec).ok()? * 1_000_000_000 + u64::try_from(time.tv_nsec).ok()?,
            );
        }
        // SAFETY: as above.
        head = unsafe { libc::CMSG_NXTHDR(message, head) };
    }
    None
}

fn checked(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

#[cfg(test)]
#[allow(clippy::print_stderr, reason = "a test says what it skips")]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::time::{SystemTime, UNIX_EPOCH};

    #[test]
    #[expect(clippy::big_endian_bytes, reason = "headers of IP, UDP and TCP are in network order")]
    fn a_packet_is_seen_as_it_leaves_and_as_it_arrives_between_the_calls_around_it() {
        let tap = match Tap::open("lo") {
            Ok(tap) => tap,
            Err(error) => return eprintln!("SKIP: packet sockets need root: {error}"),
        };
        let (from, to) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        let now = || u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos()).unwrap();
        let port = to.local_addr().unwrap().port();
        // The kernel takes time stamps some time after it was first asked to.
        for _ in 0..200 {
            let before = now();
            from.send_to(b"payload", ("127.0.0.1", port)).unwrap();
            to.recv_from(&mut [0; 16]).unwrap();
            let (after, mut frame, mut seen) = (now(), [0; 128], Vec::new());
            while let Some(packet) = tap.next(&mut frame).unwrap() {
                let is_ours = frame[..packet.len.min(128)].get(36..38) == Some(&port.to_be_bytes());
                seen.extend(is_ours.then_some(packet));
            }
            let within = seen.iter().all(|packet| (before..=after).contains(&packet.at_ns));
            if within && seen.len() == 2 {
                assert!(seen[0].leaves && !seen[1].leaves && seen[0].at_ns <= seen[1].at_ns, "{seen:?}");
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        panic!("no packet was seen twice with sensible times");
    }
}
