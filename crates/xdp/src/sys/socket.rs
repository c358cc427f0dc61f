//! System calls of the AF_XDP socket.

use super::area::Area;
use super::checked::checked;
use super::netdev::namespace_of;
use super::rings::{Mapped, Plain};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// `XDP_MAX_TX_SKB_BUDGET` of `linux/if_xdp.h`: packets that one `sendto` sends in copy mode. Linux 6.17.
const MAX_TX_SKB_BUDGET: libc::c_int = 9;
const SO_PREFER_BUSY_POLL: libc::c_int = 69;
const SO_BUSY_POLL_BUDGET: libc::c_int = 70;

/// Which ring of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RingKind {
    Fill,
    Completion,
    Receive,
    Transmit,
}

/// Flags of a bind (`XDP_*` of `linux/if_xdp.h`).
#[derive(Clone, Copy, Debug)]
pub(crate) struct BindFlags(pub(crate) u16);

impl BindFlags {
    pub(crate) const COPY: u16 = libc::XDP_COPY;
    pub(crate) const ZEROCOPY: u16 = libc::XDP_ZEROCOPY;
    pub(crate) const NEED_WAKEUP: u16 = libc::XDP_USE_NEED_WAKEUP;
    pub(crate) const SCATTER_GATHER: u16 = libc::XDP_USE_SG;
}

/// `xdp_statistics` of the kernel.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counters {
    pub(crate) rx_dropped: u64,
    pub(crate) rx_invalid_descs: u64,
    pub(crate) tx_invalid_descs: u64,
    pub(crate) rx_ring_full: u64,
    pub(crate) rx_fill_ring_empty_descs: u64,
    pub(crate) tx_ring_empty_descs: u64,
}

// SAFETY: numbers only, without padding.
unsafe impl Plain for libc::xdp_mmap_offsets {}
// SAFETY: numbers only, without padding.
unsafe impl Plain for libc::xdp_options {}
// SAFETY: numbers only, without padding.
unsafe impl Plain for libc::xdp_statistics {}

/// An AF_XDP socket's descriptor.
#[derive(Debug)]
pub(crate) struct RawSocket(OwnedFd);

impl RawSocket {
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: socket takes no pointers.
        let fd = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        checked(fd)?;
        // SAFETY: the descriptor is new and has no other owner.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// `XDP_UMEM_REG`: pins the area.
    pub(crate) fn register(&self, area: Area, chunk: u32, headroom: u32) -> io::Result<()> {
        let request = libc::xdp_umem_reg {
            addr: area.base() as u64,
            len: area.bytes(),
            chunk_size: chunk,
            headroom,
            flags: 0,
            tx_metadata_len: 0,
        };
        self.set(libc::SOL_XDP, libc::XDP_UMEM_REG, &request)
    }

    /// Creates a ring of the socket and maps it.
    pub(crate) fn ring<T: Plain>(&self, kind: RingKind, entries: u32) -> io::Result<Mapped<T>> {
        let (option, page_offset) = match kind {
            RingKind::Fill => (libc::XDP_UMEM_FILL_RING, libc::XDP_UMEM_PGOFF_FILL_RING.cast_signed()),
            RingKind::Completion => {
                (libc::XDP_UMEM_COMPLETION_RING, libc::XDP_UMEM_PGOFF_COMPLETION_RING.cast_signed())
            }
            RingKind::Receive => (libc::XDP_RX_RING, libc::XDP_PGOFF_RX_RING),
            RingKind::Transmit => (libc::XDP_TX_RING, libc::XDP_PGOFF_TX_RING),
        };
        self.set(libc::SOL_XDP, option, &entries)?;
        let offsets: libc::xdp_mmap_offsets = self.get(libc::SOL_XDP, libc::XDP_MMAP_OFFSETS)?;
        let offsets = match kind {
            RingKind::Fill => offsets.fr,
            RingKind::Completion => offsets.cr,
            RingKind::Receive => offsets.rx,
            RingKind::Transmit => offsets.tx,
        };
        Mapped::of_socket(self.fd(), entries, page_offset, &offsets)
    }

    /// Binds the socket to a queue; with `shared`, over the UMEM of that bound socket, whose flags apply.
    pub(crate) fn bind(
        &self,
        ifindex: u32,
        queue: u32,
        flags: BindFlags,
        shared: Option<RawFd>,
    ) -> io::Result<()> {
        let address = libc::sockaddr_xdp {
            sxdp_family: libc::AF_XDP as u16,
            sxdp_flags: if shared.is_some() { libc::XDP_SHARED_UMEM } else { flags.0 },
            sxdp_ifindex: ifindex,
            sxdp_queue_id: queue,
            sxdp_shared_umem_fd: shared.map_or(0, i32::cast_unsigned),
        };
        let length = size_of::<libc::sockaddr_xdp>() as libc::socklen_t;
        // SAFETY: the kernel reads `length` bytes of `address`, which lives until the call returns.
        checked(unsafe { libc::bind(self.fd(), (&raw const address).cast(), length) }).map(drop)
    }

    /// Makes the kernel read the transmit ring.
    pub(crate) fn send(&self) -> io::Result<()> {
        let (fd, nothing, flags) = (self.fd(), std::ptr::null(), libc::MSG_DONTWAIT);
        // SAFETY: no bytes and no address are passed: the null pointers are not read.
        checked(unsafe { libc::sendto(fd, nothing, 0, flags, std::ptr::null(), 0) }).map(drop)
    }

    /// Makes the kernel read the fill ring, and poll the device if busy polling is on.
    pub(crate) fn wake_receive(&self) -> io::Result<()> {
        let (fd, nothing, flags) = (self.fd(), std::ptr::null_mut(), libc::MSG_DONTWAIT);
        let null = std::ptr::null_mut();
        // SAFETY: no bytes and no address are asked for: the null pointers are not written.
        checked(unsafe { libc::recvfrom(fd, nothing, 0, flags, null, std::ptr::null_mut()) }).map(drop)
    }

    /// The network namespace that the socket was opened in: a number unique until the next boot. It never changes.
    pub(crate) fn namespace(&self) -> io::Result<u64> {
        namespace_of(self.fd())
    }

    pub(crate) fn is_zero_copy(&self) -> io::Result<bool> {
        let options: libc::xdp_options = self.get(libc::SOL_XDP, libc::XDP_OPTIONS)?;
        Ok(options.flags & libc::XDP_OPTIONS_ZEROCOPY != 0)
    }

    pub(crate) fn counters(&self) -> io::Result<Counters> {
        let counted: libc::xdp_statistics = self.get(libc::SOL_XDP, libc::XDP_STATISTICS)?;
        Ok(Counters {
            rx_dropped: counted.rx_dropped,
            rx_invalid_descs: counted.rx_invalid_descs,
            tx_invalid_descs: counted.tx_invalid_descs,
            rx_ring_full: counted.rx_ring_full,
            rx_fill_ring_empty_descs: counted.rx_fill_ring_empty_descs,
            tx_ring_empty_descs: counted.tx_ring_empty_descs,
        })
    }

    /// Lets one call send up to `packets` in copy mode; kernels before 6.17 send 32.
    pub(crate) fn raise_budget(&self, packets: u32) -> io::Result<()> {
        self.set(libc::SOL_XDP, MAX_TX_SKB_BUDGET, &packets)
    }

    /// Lets up to `bytes` be in flight in copy mode.
    pub(crate) fn raise_send_buffer(&self, bytes: u32) -> io::Result<()> {
        self.set(libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &bytes)
    }

    /// Makes calls on the socket poll the device for up to `micros` instead of waiting for its interrupt.
    pub(crate) fn prefer_busy_poll(&self, micros: u32, packets: u32) -> io::Result<()> {
        self.set(libc::SOL_SOCKET, SO_PREFER_BUSY_POLL, &1u32)?;
        self.set(libc::SOL_SOCKET, libc::SO_BUSY_POLL, &micros)?;
        self.set(libc::SOL_SOCKET, SO_BUSY_POLL_BUDGET, &packets)
    }

    fn set<T>(&self, level: libc::c_int, option: libc::c_int, value: &T) -> io::Result<()> {
        let (value, length) = (std::ptr::from_ref(value).cast(), size_of::<T>() as libc::socklen_t);
        // SAFETY: the kernel reads `length` bytes of `value`, which is borrowed until the call returns.
        checked(unsafe { libc::setsockopt(self.fd(), level, option, value, length) }).map(drop)
    }

    fn get<T: Plain>(&self, level: libc::c_int, option: libc::c_int) -> io::Result<T> {
        // SAFETY: any bit pattern is a value of a plain type.
        let mut value: T = unsafe { std::mem::zeroed() };
        let mut length = size_of::<T>() as libc::socklen_t;
        let into = (&raw mut value).cast();
        // SAFETY: `value` has room for `length` bytes.
        checked(unsafe { libc::getsockopt(self.fd(), level, option, into, &raw mut length) })?;
        if length as usize == size_of::<T>() { Ok(value) } else { Err(too_old()) }
    }
}

/// The error for kernels before 5.9, whose structs are shorter.
fn too_old() -> io::Error {
    io::Error::from_raw_os_error(libc::EOPNOTSUPP)
}

/// Raises the limit of locked memory as far as this process may.
pub(crate) fn raise_memlock() {
    let unlimited = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: the kernel reads one rlimit, which lives until the call returns.
    if unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const unlimited) } == 0 {
        return;
    }
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel writes one rlimit, for which there is room.
    if unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit) } == 0 {
        limit.rlim_cur = limit.rlim_max;
        // SAFETY: as above. If the limit stays as it is, pinning memory reports that later.
        let _ = unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const limit) };
    }
}
