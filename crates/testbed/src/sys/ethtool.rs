//! Offload settings of interfaces, by system calls instead of the program `ethtool`.

use super::checked::checked;
use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;

const SIOCETHTOOL: libc::Ioctl = 0x8946;

/// Work that a kernel offloads to an interface. The value is the `ETHTOOL_S*` command that sets it (`linux/ethtool.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Offload {
    TransmitChecksum = 0x17,
    TcpSegmentation = 0x1f,
    Segmentation = 0x24,
    Receive = 0x2c,
}

/// `struct ifreq` of `linux/if.h`, with the pointer variant of its union.
#[repr(C)]
struct Request {
    name: [u8; 16],
    data: *mut Setting,
    padding: [u64; 2],
}

/// `struct ethtool_value`.
#[repr(C)]
struct Setting {
    command: u32,
    value: u32,
}

const _: () = assert!(size_of::<Request>() == 40);

/// Switches one offload on or off, on an interface of the calling thread's namespace.
pub(crate) fn switch(interface: &str, offload: Offload, on: bool) -> io::Result<()> {
    let mut name = [0; 16];
    let fits = interface.len() < name.len();
    let into = name.get_mut(..interface.len()).filter(|_| fits).ok_or(io::ErrorKind::InvalidInput)?;
    into.copy_from_slice(interface.as_bytes());
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    let mut setting = Setting { command: offload as u32, value: on.into() };
    let mut request = Request { name, data: &raw mut setting, padding: [0; 2] };
    // SAFETY: the kernel reads one ifreq and the setting that it points at; both live until the call returns.
    checked(unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL, &raw mut request) }).map(drop)
}
