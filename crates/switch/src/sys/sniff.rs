//! A packet socket that receives copies of the packets that this host sends from PMNet's ports.

use super::datagrams::is_final;
use landfall_pmnet::PORTS;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// Receives copies of the packets that this host sends from PMNet's ports on one interface.
pub(crate) struct Sniffer {
    socket: OwnedFd,
}

/// Ancillary data of a packet: its direction (`SKF_AD_OFF + SKF_AD_PKTTYPE`).
const PACKET_TYPE: u32 = (-0x1000_i32 + 4).cast_unsigned();
/// `PACKET_OUTGOING`.
const OUTGOING: u32 = 4;
const UDP: u32 = 17;
const ACCEPT: u32 = u32::MAX;

const fn load(size: u32, mode: u32, at: u32) -> libc::sock_filter {
    libc::sock_filter { code: (libc::BPF_LD | size | mode) as u16, jt: 0, jf: 0, k: at }
}

const fn jump(test: u32, value: u32, yes: u8, no: u8) -> libc::sock_filter {
    libc::sock_filter { code: (libc::BPF_JMP | test | libc::BPF_K) as u16, jt: yes, jf: no, k: value }
}

const fn result(bytes: u32) -> libc::sock_filter {
    libc::sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: bytes }
}

/// Outgoing UDP over IPv4 or IPv6 (without extension headers) whose source port is PMNet's.
fn filter() -> [libc::sock_filter; 17] {
    const HEADER_LENGTH: u16 = (libc::BPF_LDX | libc::BPF_B | libc::BPF_MSH) as u16;
    const TO_PORTS: libc::sock_filter =
        libc::sock_filter { code: (libc::BPF_JMP | libc::BPF_JA) as u16, jt: 0, jf: 0, k: 3 };
    let ports = (u32::from(*PORTS.start()), u32::from(*PORTS.end()));
    [
        load(libc::BPF_W, libc::BPF_ABS, PACKET_TYPE),
        jump(libc::BPF_JEQ, OUTGOING, 0, 14),
        load(libc::BPF_H, libc::BPF_ABS, 12),
        jump(libc::BPF_JEQ, 0x86dd, 6, 0),
        jump(libc::BPF_JEQ, 0x0800, 0, 11),
        load(libc::BPF_B, libc::BPF_ABS, 23),
        jump(libc::BPF_JEQ, UDP, 0, 9),
        libc::sock_filter { code: HEADER_LENGTH, jt: 0, jf: 0, k: 14 },
        load(libc::BPF_H, libc::BPF_IND, 14),
        TO_PORTS,
        load(libc::BPF_B, libc::BPF_ABS, 20),
        jump(libc::BPF_JEQ, UDP, 0, 4),
        load(libc::BPF_H, libc::BPF_ABS, 54),
        jump(libc::BPF_JGE, ports.0, 0, 2),
        jump(libc::BPF_JGT, ports.1, 1, 0),
        result(ACCEPT),
        result(0),
    ]
}

impl Sniffer {
    /// Opens the socket on the interface with the index `interface`.
    ///
    /// # Errors
    /// The error of the system call, for example that the process lacks `CAP_NET_RAW`.
    pub(crate) fn open(interface: u32) -> io::Result<Self> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: socket takes no pointers. A socket of protocol 0 receives nothing until it is bound.
        let socket = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
        checked(socket)?;
        // SAFETY: the descriptor is new, and nothing else owns it.
        let socket = unsafe { OwnedFd::from_raw_fd(socket) };
        let mut filter = filter();
        let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
        let bytes = size_of::<libc::sock_fprog>() as libc::socklen_t;
        // SAFETY: program and filter live until the call returns.
        checked(unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_ATTACH_FILTER,
                (&raw const program).cast(),
                bytes,
            )
        })?;
        // SAFETY: all-zero bytes are a valid `sockaddr_ll`.
        let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = (libc::ETH_P_ALL as u16).swap_bytes();
        address.sll_ifindex = interface.cast_signed();
        let bytes = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        // SAFETY: the address lives until the call returns.
        checked(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), bytes) })?;
        Ok(Self { socket })
    }

    /// Copies the next packet, from its Ethernet header on, and returns its length; 0 if there is none.
    ///
    /// # Errors
    /// The error of the system call.
    pub(crate) fn receive(&self, into: &mut [u8]) -> io::Result<usize> {
        // SAFETY: the buffer is borrowed until the call returns.
        let got = unsafe { libc::recv(self.socket.as_raw_fd(), into.as_mut_ptr().cast(), into.len(), 0) };
        match usize::try_from(got) {
            Ok(got) => Ok(got),
            Err(_) => match io::Error::last_os_error() {
                error if is_final(&error) => Err(error),
                // Nothing is there, or something is reported once, such as an interface that is down.
                _ => Ok(0),
            },
        }
    }

    pub(crate) fn descriptor(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

fn checked(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
