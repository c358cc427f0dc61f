//! Receiving datagrams directly into the region.

use socket2::{SockAddr, SockAddrStorage};
use std::io;
use std::mem;
use std::net::SocketAddr;
use std::os::fd::RawFd;

/// Size of the buffer beside the region for the bytes of a datagram that do not fit into its chunk.
const SPILL_BYTES: usize = 1 << 16;

/// A datagram that has been received.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Datagram {
    /// Source address.
    pub(crate) from: SocketAddr,
    /// Length, bytes. Bytes beyond the chunk are in the spill buffer.
    pub(crate) len: usize,
}

/// Receives several datagrams in one call.
pub(crate) struct Receiver {
    headers: Vec<libc::mmsghdr>,
    vectors: Vec<[libc::iovec; 2]>,
    addresses: Vec<libc::sockaddr_storage>,
    spill: Vec<Vec<u8>>,
    /// Address and length of the region's image.
    image: (usize, u64),
    chunk_bytes: usize,
}

// SAFETY: each call sets the pointers inside anew, to memory that the value owns or to the region.
unsafe impl Send for Receiver {}

impl Receiver {
    /// Creates a receiver for up to `max` datagrams at once, each into a chunk of `chunk_bytes`. `image` is the address
    /// and the length in bytes of the region's image, which must stay mapped for as long as the value lives.
    pub(crate) fn new(max: usize, chunk_bytes: usize, image: (usize, u64)) -> Self {
        let empty = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        // SAFETY: all-zero bytes are a valid `mmsghdr` and a valid `sockaddr_storage`.
        let (header, address) =
            unsafe { (mem::zeroed::<libc::mmsghdr>(), mem::zeroed::<libc::sockaddr_storage>()) };
        Self {
            headers: vec![header; max],
            vectors: vec![[empty; 2]; max],
            addresses: vec![address; max],
            spill: (0..max).map(|_| vec![0; SPILL_BYTES]).collect(),
            image,
            chunk_bytes,
        }
    }

    /// Receives into `chunks` without blocking. The chunks are region offsets of memory that was lent to the caller and
    /// that has no holds. Returns the number of datagrams.
    ///
    /// # Errors
    /// The error of the system call.
    pub(crate) fn receive(&mut self, socket: RawFd, chunks: &[u64]) -> io::Result<usize> {
        let count = chunks.len().min(self.headers.len());
        for (index, chunk) in chunks.iter().take(count).enumerate() {
            assert!(chunk + self.chunk_bytes as u64 <= self.image.1, "a chunk lies in the region");
            let at = (self.image.0 + *chunk as usize) as *mut libc::c_void;
            let spill = &mut self.spill[index];
            self.vectors[index] = [
                libc::iovec { iov_base: at, iov_len: self.chunk_bytes },
                libc::iovec { iov_base: spill.as_mut_ptr().cast(), iov_len: spill.len() },
            ];
            let header = &mut self.headers[index].msg_hdr;
            header.msg_name = (&raw mut self.addresses[index]).cast();
            header.msg_namelen = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
            header.msg_iov = self.vectors[index].as_mut_ptr();
            header.msg_iovlen = 2;
        }
        let flags = libc::MSG_DONTWAIT;
        let headers = self.headers.as_mut_ptr();
        // SAFETY: there are `count` headers, each with an address buffer and two vectors of writable memory: `self`
        // owns the spill buffer; the chunk lies in the image, and the heap has lent its run to the caller for the
        // kernel to write. There is no timeout, because the call does not block.
        let got = unsafe { libc::recvmmsg(socket, headers, count as u32, flags, std::ptr::null_mut()) };
        match usize::try_from(got) {
            Ok(got) => Ok(got),
            Err(_) => match io::Error::last_os_error() {
                error if is_final(&error) => Err(error),
                // Nothing is there, or something is reported once and the socket still works: no memory, an interface
                // that is down, or what ICMP says of a packet that was sent (RFC 1122, section 4.1.3.3).
                _ => Ok(0),
            },
        }
    }

    /// The datagram at `index` of the last call. `None` if its source is not an internet address.
    pub(crate) fn datagram(&self, index: usize) -> Option<Datagram> {
        let header = &self.headers[index];
        let storage = self.addresses[index];
        // SAFETY: both types are the kernel's `sockaddr_storage`, and the kernel has written an address of this length.
        let from = unsafe {
            SockAddr::new(
                mem::transmute::<libc::sockaddr_storage, SockAddrStorage>(storage),
                header.msg_hdr.msg_namelen,
            )
        };
        Some(Datagram { from: from.as_socket()?, len: header.msg_len as usize })
    }

    /// The bytes of a datagram of `len` bytes that did not fit into its chunk.
    pub(crate) fn spilled(&self, index: usize, len: usize) -> &[u8] {
        let beyond = len.saturating_sub(self.chunk_bytes);
        &self.spill[index][..beyond.min(SPILL_BYTES)]
    }
}

/// True if a socket that receives datagrams fails so for good: anybody can make it fail otherwise.
pub(super) fn is_final(error: &io::Error) -> bool {
    let of_callers = [libc::EBADF, libc::EFAULT, libc::EINVAL, libc::ENOTSOCK];
    error.raw_os_error().is_some_and(|errno| of_callers.contains(&errno))
}
