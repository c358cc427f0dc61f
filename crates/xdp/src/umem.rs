//! UMEM: memory that packets are received into and transmitted from.

use crate::error::XdpError;
use crate::interface::Interface;
use crate::sys::{Area, RawSocket, raise_memlock};
use std::io;
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes that XDP keeps free in front of each frame in its chunk, after the caller's headroom.
pub const XDP_HEADROOM: u32 = 256;
/// Length of an Ethernet header with one VLAN tag, bytes.
const LINK_HEADER: u32 = 18;
/// Alignment of an area, bytes: chunks lie at multiples of their size from its start.
const PAGE_BYTES: usize = 4096;

/// Size of a chunk: the memory that one descriptor of the fill ring gives to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chunk {
    /// 2048 bytes: an Ethernet frame of the usual MTU of 1500.
    Bytes2048,
    /// 4096 bytes: an Ethernet frame of an MTU of about 3500.
    Bytes4096,
}

impl Chunk {
    /// Size in bytes.
    pub const fn bytes(self) -> u32 {
        match self {
            Self::Bytes2048 => 2048,
            Self::Bytes4096 => 4096,
        }
    }
}

/// Checks that a packet of an interface always fits into one chunk: chunk − 256 − headroom − 18.
///
/// If it does not, packets arrive in several descriptors ([`crate::Received::is_part`]).
///
/// # Errors
/// [`XdpError::MtuForChunk`].
pub fn check_mtu(chunk: Chunk, headroom: u32, mtu: u32) -> Result<(), XdpError> {
    let chunk = chunk.bytes();
    let max = chunk.saturating_sub(XDP_HEADROOM).saturating_sub(headroom).saturating_sub(LINK_HEADER);
    if mtu <= max { Ok(()) } else { Err(XdpError::MtuForChunk { mtu, chunk, max }) }
}

/// Memory registered with the kernel, for all sockets that share it. Clones are handles to the same memory.
///
/// Addresses are byte offsets from the area's start. The mode is aligned: a chunk starts at a multiple of its size. A
/// frame lands at chunk + headroom + 256 ([`XDP_HEADROOM`]; the 256 bytes are for programs that push headers, and a
/// stamp lies at their end).
#[derive(Clone, Debug)]
pub struct Umem(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    area: Area,
    chunk: Chunk,
    headroom: u32,
    members: Mutex<Members>,
}

/// The sockets of a UMEM. The kernel ties a UMEM to sockets: the first one registers it, and the others join by naming
/// a bound one.
#[derive(Debug, Default)]
struct Members {
    /// The socket that has registered the UMEM, while it is not bound yet.
    registrar: Option<RawSocket>,
    bound: Vec<Member>,
}

#[derive(Clone, Copy, Debug)]
struct Member {
    /// Namespace, interface and queue.
    place: (u64, u32, u32),
    fd: RawFd,
}

impl Umem {
    /// Registers `area` (address, bytes), which pins it.
    ///
    /// The memory belongs to the caller. It must be mapped, readable and writable for as long as any clone of the UMEM
    /// or any socket over it lives; this type never unmaps it. The kernel may write or read a chunk at any time while
    /// it is in a fill ring, or in a transmit ring and not completed. A file behind the mapping must not be truncated:
    /// the kernel would continue with pages that no longer belong to the file.
    ///
    /// Register in the network namespace of the interfaces: in another one, the first socket has to register the memory
    /// again.
    ///
    /// `headroom`: bytes to keep free in each chunk before the 256 bytes of XDP; at most chunk − 257.
    ///
    /// # Errors
    /// [`XdpError::BadArea`], [`XdpError::CannotPin`], [`XdpError::MemoryLimit`],
    /// [`XdpError::NoPrivilege`], [`XdpError::KernelLacks`].
    pub fn register(area: (usize, u64), chunk: Chunk, headroom: u32) -> Result<Self, XdpError> {
        raise_memlock();
        let inner = Inner {
            area: Area::new(area.0, area.1),
            chunk,
            headroom,
            members: Mutex::new(Members::default()),
        };
        inner.check()?;
        let registrar = inner.registered()?;
        inner.members().registrar = Some(registrar);
        Ok(Self(Arc::new(inner)))
    }

    /// Size of a chunk.
    pub fn chunk(&self) -> Chunk {
        self.0.chunk
    }

    /// Bytes that are kept free in each chunk before those of XDP.
    pub fn headroom(&self) -> u32 {
        self.0.headroom
    }

    /// Size of the area, bytes.
    pub fn bytes(&self) -> u64 {
        self.0.area.bytes()
    }

    /// Offset of a received frame in its chunk, bytes.
    pub fn landing(&self) -> u32 {
        XDP_HEADROOM + self.0.headroom
    }

    /// Start of the chunk that contains `addr`.
    pub fn chunk_of(&self, addr: u64) -> u64 {
        addr & !u64::from(self.0.chunk.bytes() - 1)
    }

    pub(crate) fn area(&self) -> Area {
        self.0.area
    }

    /// Makes a socket a member: `bind` gets the socket, and a bound member's descriptor to share with. Members are
    /// added and removed one at a time, so that the descriptor stays open meanwhile.
    pub(crate) fn join(
        &self,
        interface: &Interface,
        queue: u32,
        bind: impl FnOnce(&RawSocket, Option<RawFd>) -> Result<(), XdpError>,
    ) -> Result<RawSocket, XdpError> {
        let mut members = self.0.members();
        let place = (interface.namespace(), interface.index, queue);
        if members.bound.iter().any(|member| member.place == place) {
            return Err(XdpError::QueueBusy { name: interface.name.clone(), queue });
        }
        let share = members.bound.first().map(|member| member.fd);
        // A socket looks up interfaces in the namespace that it was opened in.
        let local = |socket: &RawSocket| socket.namespace().is_ok_and(|there| there == place.0);
        let socket = match (share, members.registrar.take().filter(local)) {
            (Some(_), _) => new_socket()?,
            (None, Some(registrar)) => registrar,
            (None, None) => self.0.registered()?,
        };
        bind(&socket, share)?;
        members.bound.push(Member { place, fd: socket.fd() });
        Ok(socket)
    }

    /// Removes a member before its descriptor is closed.
    pub(crate) fn leave(&self, fd: RawFd) {
        self.0.members().bound.retain(|member| member.fd != fd);
    }
}

impl Inner {
    fn members(&self) -> MutexGuard<'_, Members> {
        // Every change to the members is one assignment, so a panic elsewhere leaves them consistent.
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check(&self) -> Result<(), XdpError> {
        let chunk = u64::from(self.chunk.bytes());
        let room = self.chunk.bytes() - XDP_HEADROOM;
        let fits = self.area.base() != 0
            && self.area.base().is_multiple_of(PAGE_BYTES)
            && self.area.bytes() >= chunk
            && self.area.bytes().is_multiple_of(chunk)
            && self.headroom < room;
        if fits { Ok(()) } else { Err(self.bad_area()) }
    }

    fn bad_area(&self) -> XdpError {
        XdpError::BadArea {
            address: self.area.base(),
            bytes: self.area.bytes(),
            chunk: self.chunk.bytes(),
            headroom: self.headroom,
        }
    }

    fn registered(&self) -> Result<RawSocket, XdpError> {
        let socket = new_socket()?;
        socket
            .register(self.area, self.chunk.bytes(), self.headroom)
            .map_err(|source| self.refusal(source))?;
        Ok(socket)
    }

    fn refusal(&self, source: io::Error) -> XdpError {
        match source.raw_os_error() {
            Some(libc::EFAULT | libc::EOPNOTSUPP) => XdpError::CannotPin { source },
            Some(libc::EINVAL) => self.bad_area(),
            Some(libc::ENOBUFS | libc::ENOMEM) => XdpError::MemoryLimit { bytes: self.area.bytes(), source },
            _ => XdpError::from_io("packet memory", "register memory for packets", source),
        }
    }
}

fn new_socket() -> Result<RawSocket, XdpError> {
    const ACTION: &str = "open an AF_XDP socket";
    RawSocket::new().map_err(|source| match source.raw_os_error() {
        Some(libc::EAFNOSUPPORT) => {
            XdpError::KernelLacks { action: ACTION, needs: "CONFIG_XDP_SOCKETS", source }
        }
        _ => XdpError::from_io("AF_XDP", ACTION, source),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_may_be_shared_by_threads() {
        const fn is_shared<T: Send + Sync + Clone>() {}
        is_shared::<Umem>();
    }

    #[test]
    fn mtu_that_fits_is_chunk_less_headrooms_and_link_header() {
        assert!(check_mtu(Chunk::Bytes2048, 0, 1500).is_ok());
        assert!(check_mtu(Chunk::Bytes2048, 0, 2048 - 256 - 18).is_ok());
        assert!(check_mtu(Chunk::Bytes2048, 1, 2048 - 256 - 18).is_err());
        assert!(check_mtu(Chunk::Bytes4096, 64, 3500).is_ok());
        let refused = check_mtu(Chunk::Bytes2048, 4000, 1).unwrap_err();
        assert!(matches!(refused, XdpError::MtuForChunk { max: 0, .. }));
    }

    #[test]
    fn areas_that_do_not_fit_chunks_are_rejected_before_the_system_call() {
        for (area, headroom) in [
            ((0, 4096), 0),
            ((4096 + 64, 4096), 0),
            ((4096, 1024), 0),
            ((4096, 4096 + 64), 0),
            ((4096, 4096), 2048 - 256),
        ] {
            let refused = Umem::register(area, Chunk::Bytes2048, headroom);
            assert!(matches!(refused, Err(XdpError::BadArea { .. })), "{area:?} {headroom}: {refused:?}");
        }
    }
}
