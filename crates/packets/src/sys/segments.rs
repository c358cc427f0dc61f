//! A packet socket that sends long packets, which the kernel or its device cuts.

use landfall_net::Cut;
use std::fs::File;
use std::io::{self, IoSlice, Write as _};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

/// Bytes in flight, at most. A slower device loses bursts, as a congested network does.
const SEND_BUFFER: libc::c_int = 16 << 20;
/// Flags of `struct virtio_net_hdr` (linux/virtio_net.h): the checksum is to be completed, and how to cut.
const NEEDS_CHECKSUM: u8 = 1;
const CUT_TCP_V4: u8 = 1;
const CUT_TCP_V6: u8 = 4;
/// Size of `struct virtio_net_hdr`, bytes.
const HEADER_LEN: usize = 10;

/// A packet socket (packet(7)) of one interface that only sends, with a `virtio_net_hdr` before each packet.
#[derive(Debug)]
pub(crate) struct SegmentSocket(File);

impl SegmentSocket {
    /// Needs `CAP_NET_RAW`.
    pub(crate) fn open(interface: u32) -> io::Result<Self> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: no memory is passed. Protocol 0 receives nothing.
        let raw = checked(unsafe { libc::socket(libc::AF_PACKET, kind, 0) })?;
        // SAFETY: the descriptor is new and has no other owner.
        let socket = unsafe { OwnedFd::from_raw_fd(raw) };
        set(&socket, libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1)?;
        // If this fails, the system's usual limit applies.
        let _ = set(&socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, SEND_BUFFER);
        let address = libc::sockaddr_ll {
            sll_family: libc::AF_PACKET as u16,
            sll_protocol: 0,
            sll_ifindex: interface.cast_signed(),
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: 0,
            sll_addr: [0; 8],
        };
        let (to, len) = ((&raw const address).cast(), size_of_val(&address) as libc::socklen_t);
        // SAFETY: the kernel reads `len` bytes of `address`, which lives until the call returns.
        checked(unsafe { libc::bind(socket.as_raw_fd(), to, len) })?;
        Ok(Self(File::from(socket)))
    }

    /// Sends one long packet made of `parts`; the first one is a [`cut_header`].
    pub(crate) fn send(&self, parts: &[IoSlice<'_>]) -> io::Result<()> {
        let len = parts.iter().map(|part| part.len()).sum::<usize>();
        match (&self.0).write_vectored(parts)? {
            sent if sent == len => Ok(()),
            sent => Err(io::Error::other(format!("{sent} of {len} bytes were sent"))),
        }
    }
}

/// A `virtio_net_hdr`, in the byte order of this machine.
#[expect(clippy::host_endian_bytes, reason = "so does the kernel")]
pub(crate) fn cut_header(cut: Cut) -> [u8; HEADER_LEN] {
    let kind = if cut.ipv4 { CUT_TCP_V4 } else { CUT_TCP_V6 };
    let mut header = [0; HEADER_LEN];
    header[..2].copy_from_slice(&[NEEDS_CHECKSUM, kind]);
    let words = [cut.header_len, cut.segment_len, cut.tcp_at, cut.checksum_at];
    for (place, word) in header[2..].chunks_exact_mut(2).zip(words) {
        place.copy_from_slice(&word.to_ne_bytes());
    }
    header
}

fn set(socket: &OwnedFd, level: libc::c_int, option: libc::c_int, value: libc::c_int) -> io::Result<()> {
    let (from, len) = ((&raw const value).cast(), size_of_val(&value) as libc::socklen_t);
    // SAFETY: the kernel reads `len` bytes of `value`, which lives until the call returns.
    checked(unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, from, len) }).map(drop)
}

fn checked(outcome: libc::c_int) -> io::Result<libc::c_int> {
    if outcome < 0 { Err(io::Error::last_os_error()) } else { Ok(outcome) }
}
