//! Asks the kernel about a network interface.

use super::checked::checked;
use std::ffi::CStr;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

const SIOCGIFFLAGS: libc::Ioctl = 0x8913;
const SIOCSIFFLAGS: libc::Ioctl = 0x8914;
const SIOCGIFMTU: libc::Ioctl = 0x8921;
const SIOCGIFHWADDR: libc::Ioctl = 0x8927;
const SIOCETHTOOL: libc::Ioctl = 0x8946;
const ETHTOOL_GDRVINFO: u32 = 3;
const ETHTOOL_GCHANNELS: u32 = 0x3c;
/// Linux 5.14.
const SO_NETNS_COOKIE: libc::c_int = 71;
const NAME_BYTES: usize = 16;

/// `struct ifreq` of `linux/if.h`: a name and a union of 24 bytes.
#[repr(C)]
struct Request {
    name: [u8; NAME_BYTES],
    value: Value,
}

#[repr(C)]
union Value {
    flags: u16,
    mtu: i32,
    hardware: libc::sockaddr,
    data: *mut libc::c_void,
    whole: [u64; 3],
}

/// `struct ethtool_channels`.
#[repr(C)]
#[derive(Default)]
struct Channels {
    command: u32,
    max: [u32; 4],
    rx: u32,
    tx: u32,
    other: u32,
    combined: u32,
}

/// `struct ethtool_drvinfo`.
#[repr(C)]
struct DriverInfo {
    command: u32,
    driver: [u8; 32],
    rest: [u8; 160],
}

const _: () = assert!(size_of::<Request>() == 40 && size_of::<DriverInfo>() == 196);

/// Properties of an interface.
#[derive(Debug)]
pub(crate) struct Link {
    /// As [`super::RawSocket::namespace`].
    pub(crate) namespace: u64,
    pub(crate) index: u32,
    pub(crate) mac: [u8; 6],
    /// `ARPHRD_*`.
    pub(crate) link_type: u16,
    pub(crate) mtu: u32,
    /// Receive and transmit queues; one each if the driver does not report the numbers.
    pub(crate) queues: (u32, u32),
    pub(crate) driver: Option<String>,
}

/// Reads the properties of the interface `name`.
pub(crate) fn link(name: &str) -> io::Result<Link> {
    let socket = control_socket()?;
    let name = name_bytes(name)?;
    let mtu = ioctl(&socket, name, SIOCGIFMTU, Value { whole: [0; 3] })?;
    // SAFETY: the kernel filled the member that the request is about; any bits are a number.
    let mtu = unsafe { mtu.mtu };
    let hardware = ioctl(&socket, name, SIOCGIFHWADDR, Value { whole: [0; 3] })?;
    // SAFETY: as for `mtu`: a family and 14 bytes.
    let hardware = unsafe { hardware.hardware };
    Ok(Link {
        namespace: namespace_of(socket.as_raw_fd())?,
        index: index(name)?,
        mac: std::array::from_fn(|i| hardware.sa_data[i].cast_unsigned()),
        link_type: hardware.sa_family,
        mtu: mtu.cast_unsigned(),
        queues: channels(&socket, name).unwrap_or((1, 1)),
        driver: driver(&socket, name).ok(),
    })
}

/// The network namespace of the calling thread, as [`super::RawSocket::namespace`].
pub(crate) fn current_namespace() -> io::Result<u64> {
    namespace_of(control_socket()?.as_raw_fd())
}

/// The network namespace that a socket was opened in.
pub(super) fn namespace_of(socket: RawFd) -> io::Result<u64> {
    let (mut cookie, mut length) = (0u64, size_of::<u64>() as libc::socklen_t);
    let into = (&raw mut cookie).cast();
    // SAFETY: the kernel writes at most `length` bytes of `cookie`.
    checked(unsafe { libc::getsockopt(socket, libc::SOL_SOCKET, SO_NETNS_COOKIE, into, &raw mut length) })?;
    Ok(cookie)
}

/// Makes the interface accept frames to a multicast Ethernet address until the result is dropped.
pub(crate) fn join_multicast(ifindex: u32, mac: [u8; 6]) -> io::Result<OwnedFd> {
    let [a, b, c, d, e, f] = mac;
    join(libc::packet_mreq {
        mr_ifindex: ifindex.cast_signed(),
        mr_type: libc::PACKET_MR_MULTICAST as u16,
        mr_alen: 6,
        mr_address: [a, b, c, d, e, f, 0, 0],
    })
}

/// Makes the interface accept frames to any Ethernet address until the result is dropped.
pub(crate) fn join_all(ifindex: u32) -> io::Result<OwnedFd> {
    join(libc::packet_mreq {
        mr_ifindex: ifindex.cast_signed(),
        mr_type: libc::PACKET_MR_PROMISC as u16,
        mr_alen: 0,
        mr_address: [0; 8],
    })
}

fn join(membership: libc::packet_mreq) -> io::Result<OwnedFd> {
    // Protocol 0: the socket itself receives nothing.
    // SAFETY: socket takes no pointers.
    let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    checked(fd)?;
    // SAFETY: the descriptor is new and has no other owner.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    let (option, length) = (libc::PACKET_ADD_MEMBERSHIP, size_of::<libc::packet_mreq>() as libc::socklen_t);
    let value = (&raw const membership).cast();
    // SAFETY: the kernel reads `length` bytes of `membership`, which lives until the call returns.
    checked(unsafe { libc::setsockopt(fd, libc::SOL_PACKET, option, value, length) })?;
    Ok(socket)
}

/// Makes the interface promiscuous for good, as `ip link set NAME promisc on` does.
pub(crate) fn set_promiscuous(name: &str) -> io::Result<()> {
    let (socket, name) = (control_socket()?, name_bytes(name)?);
    let now = ioctl(&socket, name, SIOCGIFFLAGS, Value { whole: [0; 3] })?;
    // SAFETY: the kernel filled the member that the request is about; any bits are a number.
    let flags = unsafe { now.flags } | libc::IFF_PROMISC as u16;
    let mut value = Value { whole: [0; 3] };
    value.flags = flags;
    ioctl(&socket, name, SIOCSIFFLAGS, value).map(drop)
}

fn control_socket() -> io::Result<OwnedFd> {
    // SAFETY: socket takes no pointers.
    let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    checked(fd)?;
    // SAFETY: the descriptor is new and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn name_bytes(name: &str) -> io::Result<[u8; NAME_BYTES]> {
    let fits = !name.is_empty() && name.len() < NAME_BYTES && !name.bytes().any(|b| b == 0);
    if !fits {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    let mut bytes = [0; NAME_BYTES];
    bytes[..name.len()].copy_from_slice(name.as_bytes());
    Ok(bytes)
}

fn index(name: [u8; NAME_BYTES]) -> io::Result<u32> {
    // SAFETY: `name_bytes` left at least one NUL at the end.
    let index = unsafe { libc::if_nametoindex(name.as_ptr().cast()) };
    if index == 0 { Err(io::Error::last_os_error()) } else { Ok(index) }
}

fn ioctl(socket: &OwnedFd, name: [u8; NAME_BYTES], code: libc::Ioctl, value: Value) -> io::Result<Value> {
    let mut request = Request { name, value };
    // SAFETY: the kernel reads and writes one ifreq, and the buffer of `value`, which callers borrow.
    checked(unsafe { libc::ioctl(socket.as_raw_fd(), code, &raw mut request) })?;
    Ok(request.value)
}

fn channels(socket: &OwnedFd, name: [u8; NAME_BYTES]) -> io::Result<(u32, u32)> {
    let mut channels = Channels { command: ETHTOOL_GCHANNELS, ..Channels::default() };
    ioctl(socket, name, SIOCETHTOOL, Value { data: (&raw mut channels).cast() })?;
    let of = |own: u32| own.saturating_add(channels.combined).max(1);
    Ok((of(channels.rx), of(channels.tx)))
}

fn driver(socket: &OwnedFd, name: [u8; NAME_BYTES]) -> io::Result<String> {
    let mut info = DriverInfo { command: ETHTOOL_GDRVINFO, driver: [0; 32], rest: [0; 160] };
    ioctl(socket, name, SIOCETHTOOL, Value { data: (&raw mut info).cast() })?;
    let text = CStr::from_bytes_until_nul(&info.driver).map_err(io::Error::other)?;
    Ok(text.to_string_lossy().into_owned())
}

/// The addresses of the interface, in the kernel's order.
pub(crate) fn addresses(name: &str) -> io::Result<Vec<IpAddr>> {
    let mut first = std::ptr::null_mut();
    // SAFETY: the kernel's list is written to `first` and freed below.
    checked(unsafe { libc::getifaddrs(&raw mut first) })?;
    let mut found = Vec::new();
    let mut at = first;
    while !at.is_null() {
        // SAFETY: a non-null entry of the list, which is freed only after the loop.
        let entry = unsafe { &*at };
        // SAFETY: each entry names its interface with a NUL-terminated string.
        let of = unsafe { CStr::from_ptr(entry.ifa_name) };
        if of.to_bytes() == name.as_bytes() && !entry.ifa_addr.is_null() {
            found.extend(address(entry.ifa_addr));
        }
        at = entry.ifa_next;
    }
    // SAFETY: the list came from getifaddrs, and nothing borrows from it any more.
    unsafe { libc::freeifaddrs(first) };
    Ok(found)
}

fn address(at: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: the caller's pointer is an entry's address, which begins with its family.
    match i32::from(unsafe { (*at).sa_family }) {
        libc::AF_INET => {
            // SAFETY: an address of this family is a sockaddr_in.
            let v4 = unsafe { at.cast::<libc::sockaddr_in>().read_unaligned() };
            Some(Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: an address of this family is a sockaddr_in6.
            let v6 = unsafe { at.cast::<libc::sockaddr_in6>().read_unaligned() };
            Some(Ipv6Addr::from(v6.sin6_addr.s6_addr).into())
        }
        _ => None,
    }
}
