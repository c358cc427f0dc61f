//! A TUN interface: the kernel receives the packets that are written to it.

use std::fs::File;
use std::io::{self, Write};
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::PathBuf;

/// Link-local address of the interface (RFC 3927). Nothing sends to it. Without any address, the kernel would refuse
/// packets from the interface whose sources are reached through another interface.
const OWN: [u8; 4] = [169, 254, 81, 81];

/// A TUN interface that delivers packets to this host's kernel. The interface is removed when this value is dropped.
pub(crate) struct Tun {
    file: File,
    name: String,
}

impl Tun {
    /// Creates an interface for packets up to `mtu` bytes, and sets it up.
    ///
    /// # Errors
    /// The error of the system call, for example that `/dev/net/tun` does not exist or the process lacks
    /// `CAP_NET_ADMIN`.
    pub(crate) fn open(mtu: u32) -> io::Result<Self> {
        let file = File::options().read(true).write(true).open("/dev/net/tun")?;
        // SAFETY: all-zero bytes are a valid `ifreq`.
        let mut request: libc::ifreq = unsafe { mem::zeroed() };
        for (to, from) in request.ifr_name.iter_mut().zip(b"pmnet%d") {
            *to = from.cast_signed();
        }
        request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short;
        // SAFETY: the request lives until the call returns; the kernel writes the name into it.
        checked(unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) })?;
        let name = request.ifr_name.iter().take_while(|byte| **byte != 0);
        let name: String = name.map(|byte| char::from(byte.cast_unsigned())).collect();
        // SAFETY: socket takes no pointers.
        let control = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
        checked(control)?;
        // SAFETY: the descriptor is new, and nothing else owns it.
        let control = unsafe { OwnedFd::from_raw_fd(control) };
        request.ifr_ifru.ifru_mtu = mtu.cast_signed();
        // SAFETY: the request lives until the call returns.
        checked(unsafe { libc::ioctl(control.as_raw_fd(), libc::SIOCSIFMTU, &raw const request) })?;
        for (call, address) in [(libc::SIOCSIFADDR, OWN), (libc::SIOCSIFNETMASK, [255; 4])] {
            request.ifr_ifru.ifru_addr = address_of(address);
            // SAFETY: the request lives until the call returns.
            checked(unsafe { libc::ioctl(control.as_raw_fd(), call, &raw const request) })?;
        }
        request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
        // SAFETY: the request lives until the call returns.
        checked(unsafe { libc::ioctl(control.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) })?;
        let tun = Self { file, name };
        tun.accept_all_sources()?;
        Ok(tun)
    }

    /// Switches the strict source check (RFC 3704) off: clients are reached through another interface than the one on
    /// which the kernel receives their packets.
    fn accept_all_sources(&self) -> io::Result<()> {
        let path: PathBuf = ["/proc/sys/net/ipv4/conf", &self.name, "rp_filter"].iter().collect();
        std::fs::write(path, "2")
    }

    /// Delivers an IP packet to the kernel.
    ///
    /// # Errors
    /// The error of the system call.
    pub(crate) fn deliver(&self, packet: &[u8]) -> io::Result<()> {
        (&self.file).write_all(packet)
    }
}

/// An IPv4 address in the form that `ifreq` takes.
fn address_of(octets: [u8; 4]) -> libc::sockaddr {
    let mut address = libc::sockaddr { sa_family: libc::AF_INET as u16, sa_data: [0; 14] };
    // The address is behind the port.
    for (to, from) in address.sa_data[2..6].iter_mut().zip(octets) {
        *to = from.cast_signed();
    }
    address
}

fn checked(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
