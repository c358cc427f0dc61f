//! AF_XDP sockets; each uses one queue of one interface.

use crate::bpf;
use crate::error::XdpError;
use crate::interface::Interface;
use crate::packet::{NotTaken, PIECES_MAX, Piece, Received, Statistics};
use crate::ring::{Consumer, Producer};
use crate::sys::{BindFlags, Mapped, RawSocket, RingKind};
use crate::umem::Umem;
use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Entries of a ring, at most.
pub const RING_ENTRIES_MAX: u32 = 1 << 16;

/// Packets that one call should send in copy mode, and that one busy poll takes, at most.
const BATCH_PACKETS: u32 = 1024;
const BUSY_POLL_PACKETS: u32 = 64;
/// Calls of the kernel in one [`Socket::kick`], and calls in a row without progress, at most.
const KICKS_MAX: u32 = 4096;
const KICKS_IN_VAIN_MAX: u32 = 4;
/// Attempts to bind, a millisecond apart: a kernel worker frees a queue only some time after its socket was closed, and on a
/// busy machine that may be more than half a second later.
const BIND_TRIES_MAX: u32 = 3000;
/// What the send buffer is charged for each packet in flight in copy mode, bytes: a page and its overhead.
const PACKET_COST: u32 = 4096 + 1024;
const BIND: &str = "bind a socket to a queue";

/// Number of entries of a socket's four rings: powers of two, at most [`RING_ENTRIES_MAX`].
///
/// The completion ring should have as many entries as the transmit ring: the kernel does not send a packet that it
/// cannot complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingSizes {
    /// Chunks that the kernel may receive into.
    pub fill: u32,
    /// Descriptors of received packets.
    pub rx: u32,
    /// Descriptors of packets to transmit.
    pub tx: u32,
    /// Addresses of transmitted descriptors.
    pub completion: u32,
}

impl Default for RingSizes {
    fn default() -> Self {
        Self { fill: 4096, rx: 2048, tx: 2048, completion: 2048 }
    }
}

impl RingSizes {
    fn check(self) -> Result<(), XdpError> {
        let rings = [("fill", self.fill), ("rx", self.rx), ("tx", self.tx), ("completion", self.completion)];
        let wrong = |entries: u32| !entries.is_power_of_two() || entries > RING_ENTRIES_MAX;
        match rings.into_iter().find(|(_, entries)| wrong(*entries)) {
            Some((ring, entries)) => Err(XdpError::BadRingSize { ring, entries, max: RING_ENTRIES_MAX }),
            None => Ok(()),
        }
    }
}

/// Who copies packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Zero-copy if the driver supports it, otherwise copy.
    #[default]
    Auto,
    /// The kernel copies each packet once, into or out of its chunk. This works with every driver.
    Copy,
    /// The device reads and writes chunks itself. If the driver does not support this, opening the socket fails.
    ZeroCopy,
}

impl Mode {
    fn flags(self) -> BindFlags {
        let always = BindFlags::NEED_WAKEUP | BindFlags::SCATTER_GATHER;
        BindFlags(match self {
            Self::Auto => always,
            Self::Copy => always | BindFlags::COPY,
            Self::ZeroCopy => always | BindFlags::ZEROCOPY,
        })
    }
}

/// An AF_XDP socket: receives from, and transmits to, one queue of one interface.
///
/// One thread uses the socket at a time; the socket may move to another thread. Dropping it unmaps its rings and closes
/// it, which frees the queue and removes the socket from the steering program's map.
pub struct Socket {
    // Rings are dropped before the descriptor, because their mappings keep the socket alive.
    fill: Producer<Mapped<u64>>,
    rx: Consumer<Mapped<libc::xdp_desc>>,
    tx: Producer<Mapped<libc::xdp_desc>>,
    completion: Consumer<Mapped<u64>>,
    raw: RawSocket,
    umem: Umem,
    interface: String,
    queue: u32,
    zero_copy: bool,
    stamps: Arc<Stamps>,
    /// The last received part was not the last part of its packet.
    is_inside: bool,
}

/// How to distinguish a stamp from other bytes: see [`crate::Steering::set_socket`].
#[derive(Debug, Default)]
struct Stamps {
    /// A stamp's check word is XORed with this value; 0 while no stamps are expected.
    cookie: AtomicU64,
}

impl Socket {
    /// Opens a socket on `queue` of `interface` over `umem`.
    ///
    /// All sockets over one UMEM have the mode of the first one.
    ///
    /// # Errors
    /// [`XdpError::BadRingSize`], [`XdpError::NoSuchQueue`], [`XdpError::QueueBusy`],
    /// [`XdpError::NoZeroCopy`], [`XdpError::NoPrivilege`], [`XdpError::LinkDown`],
    /// [`XdpError::OtherNamespace`], or another error of the kernel.
    pub fn open(
        umem: &Umem,
        interface: &Interface,
        queue: u32,
        rings: RingSizes,
        mode: Mode,
    ) -> Result<Self, XdpError> {
        rings.check()?;
        interface.check_namespace()?;
        let mut mapped = None;
        let raw = umem.join(interface, queue, |socket, share| {
            let made = Rings::new(socket, rings);
            mapped = Some(made.map_err(|source| {
                XdpError::from_io(&interface.name, "make the rings of a socket", source)
            })?);
            bind(socket, interface, queue, mode, share)
        })?;
        let rings = mapped.expect("a socket that joined has rings");
        let zero_copy = raw.is_zero_copy().unwrap_or(false);
        // Kernels before 6.17 refuse this and send 32 packets a call: `kick` then calls more often.
        let _ = raw.raise_budget(BATCH_PACKETS.min(rings.tx_entries));
        // Otherwise a device gets about fifty packets at a time. If the kernel refuses, that limit remains.
        let _ = raw.raise_send_buffer(rings.tx_entries.saturating_mul(PACKET_COST));
        Ok(Self {
            fill: Producer::new(rings.fill),
            rx: Consumer::new(rings.rx),
            tx: Producer::new(rings.tx),
            completion: Consumer::new(rings.completion),
            raw,
            umem: umem.clone(),
            interface: interface.name.clone(),
            queue,
            zero_copy,
            stamps: Arc::default(),
            is_inside: false,
        })
    }

    /// Number of chunks that can be filled now.
    pub fn fill_room(&mut self) -> u32 {
        self.fill.room()
    }

    /// Fills chunks, each named by any address inside it, for the kernel to receive into; stops when the ring is full.
    /// Returns the number of chunks that the ring took. The remaining ones stay with the caller, in the iterator.
    pub fn fill(&mut self, mut chunks: impl Iterator<Item = u64>) -> u32 {
        while self.fill.has_room(1) {
            let Some(addr) = chunks.next() else { break };
            self.fill.push(self.umem.chunk_of(addr));
        }
        self.fill.publish()
    }

    /// Takes up to `max` descriptors of received packets, in order; appends them to `into` and returns their number.
    pub fn receive(&mut self, max: u32, into: &mut Vec<Received>) -> u32 {
        let cookie = self.stamps.cookie.load(Ordering::Relaxed);
        let area = self.umem.area();
        let is_inside = &mut self.is_inside;
        self.rx.take(max, |descriptor| {
            let stamp_ns = match cookie {
                0 => 0,
                _ => area.words_before(descriptor.addr).map_or(0, |words| stamp(words, cookie)),
            };
            let continues = descriptor.options & libc::XDP_PKT_CONTD != 0;
            let is_part = std::mem::replace(is_inside, continues) || continues;
            into.push(Received { addr: descriptor.addr, len: descriptor.len, stamp_ns, is_part });
        })
    }

    /// True if packets wait to be received.
    pub fn has_received(&mut self) -> bool {
        self.rx.available() > 0
    }

    /// Number of descriptors that can be transmitted now.
    pub fn transmit_room(&mut self) -> u32 {
        self.tx.room()
    }

    /// Queues one packet made of `pieces`, as a whole or not at all. [`Socket::kick`] sends it. The bytes belong to the
    /// kernel until [`Socket::completed`] reports the address of each piece.
    ///
    /// # Errors
    /// [`NotTaken`]; nothing was queued.
    pub fn transmit(&mut self, pieces: &[Piece]) -> Result<(), NotTaken> {
        if pieces.is_empty() || pieces.len() > PIECES_MAX {
            return Err(NotTaken::Pieces(pieces.len()));
        }
        if let Some(piece) = pieces.iter().find(|piece| !self.is_inside(**piece)) {
            return Err(NotTaken::Piece { addr: piece.addr, len: piece.len });
        }
        if !self.tx.has_room(pieces.len() as u32) {
            return Err(NotTaken::Full);
        }
        push_packet(&mut self.tx, pieces);
        self.tx.publish();
        Ok(())
    }

    fn is_inside(&self, piece: Piece) -> bool {
        let chunk = u64::from(self.umem.chunk().bytes());
        let room = chunk - piece.addr % chunk;
        piece.len > 0 && u64::from(piece.len) <= room && piece.addr < self.umem.bytes()
    }

    /// Makes the kernel send queued packets. Returns when the kernel has taken all of them, or cannot continue now
    /// because its socket buffer or the completion ring is full. Then [`Socket::completed`] makes room, and
    /// [`Socket::transmit_pending`] returns how many descriptors remain.
    ///
    /// # Errors
    /// [`XdpError::LinkDown`], or another error of the kernel.
    pub fn kick(&mut self) -> Result<(), XdpError> {
        let (mut left, mut in_vain) = (self.tx.pending(), 0);
        for _ in 0..KICKS_MAX {
            if left == 0 || in_vain == KICKS_IN_VAIN_MAX || !self.must_kick() {
                break;
            }
            match self.raw.send() {
                Err(error) if !is_passing(&error) => {
                    return Err(XdpError::from_io(&self.interface, "transmit", error));
                }
                _ => {}
            }
            let now = self.tx.pending();
            in_vain = if now == left { in_vain + 1 } else { 0 };
            left = now;
        }
        Ok(())
    }

    /// In copy mode the kernel sends only when it is called; in zero-copy mode the device may poll the ring itself.
    fn must_kick(&self) -> bool {
        !self.zero_copy || self.tx.memory().needs_wakeup()
    }

    /// Number of queued descriptors that the kernel has not taken yet.
    pub fn transmit_pending(&mut self) -> u32 {
        self.tx.pending()
    }

    /// Reports the address of each piece that was sent since the last call: its bytes belong to the caller again.
    /// Returns their number.
    pub fn completed(&mut self, each: impl FnMut(u64)) -> u32 {
        self.completion.take(u32::MAX, each)
    }

    /// A descriptor for `poll`: readable when packets wait, writable when there is room to transmit. The caller must
    /// not close it.
    pub fn descriptor(&self) -> RawFd {
        self.raw.fd()
    }

    /// True if the driver waits for [`Socket::wake_receive`] before it reads the fill ring. Always false in copy mode.
    pub fn needs_fill_wakeup(&self) -> bool {
        self.fill.memory().needs_wakeup()
    }

    /// Tells the driver that chunks were filled. With busy polling, also makes the driver poll the device.
    ///
    /// # Errors
    /// [`XdpError::LinkDown`], or another error of the kernel.
    pub fn wake_receive(&mut self) -> Result<(), XdpError> {
        match self.raw.wake_receive() {
            Err(error) if !is_passing(&error) => Err(XdpError::from_io(&self.interface, "receive", error)),
            _ => Ok(()),
        }
    }

    /// Counters of the kernel for this socket.
    ///
    /// # Errors
    /// An error of the kernel.
    pub fn statistics(&self) -> Result<Statistics, XdpError> {
        let counted = self.raw.counters();
        let counted =
            counted.map_err(|source| XdpError::from_io(&self.interface, "read statistics", source))?;
        Ok(Statistics {
            rx_dropped: counted.rx_dropped.saturating_sub(counted.rx_fill_ring_empty_descs),
            rx_invalid: counted.rx_invalid_descs,
            tx_invalid: counted.tx_invalid_descs,
            rx_ring_full: counted.rx_ring_full,
            fill_ring_empty: counted.rx_fill_ring_empty_descs,
            tx_ring_empty: counted.tx_ring_empty_descs,
        })
    }

    /// True if the device reads and writes the UMEM itself.
    pub const fn is_zero_copy(&self) -> bool {
        self.zero_copy
    }

    /// Number of the queue.
    pub const fn queue(&self) -> u32 {
        self.queue
    }

    /// The UMEM of the socket.
    pub const fn umem(&self) -> &Umem {
        &self.umem
    }

    /// Makes calls on the socket poll the device for up to `micros` instead of waiting for its interrupt; false if the
    /// kernel refuses. This has no effect on veth.
    pub fn prefer_busy_poll(&mut self, micros: u32) -> bool {
        self.raw.prefer_busy_poll(micros, BUSY_POLL_PACKETS).is_ok()
    }

    /// From now on the words in front of a frame are a stamp if they match under `cookie`.
    pub(crate) fn expect_stamps(&self, cookie: u64) {
        self.stamps.cookie.store(cookie, Ordering::Relaxed);
    }
}

impl std::fmt::Debug for Socket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut f = f.debug_struct("Socket");
        f.field("interface", &self.interface).field("queue", &self.queue);
        f.field("zero_copy", &self.zero_copy).finish_non_exhaustive()
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // The member leaves before its descriptor is closed, because another thread may be about to share the UMEM
        // through it.
        self.umem.leave(self.raw.fd());
    }
}

/// Appends a packet's descriptors; the caller has checked that there is room.
pub(crate) fn push_packet<M>(ring: &mut Producer<M>, pieces: &[Piece])
where
    M: crate::ring::RingMemory<Entry = libc::xdp_desc>,
{
    let last = pieces.len() - 1;
    for (at, piece) in pieces.iter().enumerate() {
        let options = if at < last { libc::XDP_PKT_CONTD } else { 0 };
        let pushed = ring.push(libc::xdp_desc { addr: piece.addr, len: piece.len, options });
        debug_assert!(pushed, "the caller checked that there is room");
    }
}

/// The stamp, if its check word matches.
fn stamp(words: [u64; 2], cookie: u64) -> u64 {
    const { assert!(bpf::META_BYTES == 16 && bpf::STAMP_BYTES == 8) }
    let [check, stamp] = words;
    if check ^ cookie == stamp { stamp } else { 0 }
}

/// True for errors that mean "try again later".
fn is_passing(error: &io::Error) -> bool {
    let passing = [libc::EAGAIN, libc::EBUSY, libc::ENOBUFS, libc::EINTR];
    error.raw_os_error().is_some_and(|code| passing.contains(&code))
}

struct Rings {
    fill: Mapped<u64>,
    rx: Mapped<libc::xdp_desc>,
    tx: Mapped<libc::xdp_desc>,
    completion: Mapped<u64>,
    tx_entries: u32,
}

impl Rings {
    fn new(socket: &RawSocket, sizes: RingSizes) -> io::Result<Self> {
        Ok(Self {
            fill: socket.ring(RingKind::Fill, sizes.fill)?,
            completion: socket.ring(RingKind::Completion, sizes.completion)?,
            rx: socket.ring(RingKind::Receive, sizes.rx)?,
            tx: socket.ring(RingKind::Transmit, sizes.tx)?,
            tx_entries: sizes.tx,
        })
    }
}

fn bind(
    socket: &RawSocket,
    interface: &Interface,
    queue: u32,
    mode: Mode,
    share: Option<RawFd>,
) -> Result<(), XdpError> {
    let queues = interface.queues();
    if queue >= queues {
        return Err(XdpError::NoSuchQueue { name: interface.name.clone(), queue, queues });
    }
    for _ in 1..BIND_TRIES_MAX {
        match socket.bind(interface.index, queue, mode.flags(), share) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                std::thread::sleep(Duration::from_millis(1));
            }
            result => return result.map_err(|source| refusal(interface, queue, mode, source)),
        }
    }
    let last = socket.bind(interface.index, queue, mode.flags(), share);
    last.map_err(|source| refusal(interface, queue, mode, source))
}

fn refusal(interface: &Interface, queue: u32, mode: Mode, source: io::Error) -> XdpError {
    let name = interface.name.clone();
    match source.raw_os_error() {
        Some(libc::EBUSY) => XdpError::QueueBusy { name, queue },
        Some(libc::EOPNOTSUPP | libc::EINVAL) if mode == Mode::ZeroCopy => {
            XdpError::NoZeroCopy { name, queue, source }
        }
        // All other reasons for an invalid bind were checked before.
        Some(libc::EINVAL) => {
            XdpError::KernelLacks { action: BIND, needs: "scatter-gather for AF_XDP (Linux 6.6)", source }
        }
        _ => XdpError::from_io(&name, BIND, source),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_may_move_to_the_thread_that_uses_it() {
        const fn is_send<T: Send>() {}
        is_send::<Socket>();
    }

    #[test]
    fn stamps_count_only_with_their_check_word() {
        assert_eq!(stamp([5 ^ 77, 5], 77), 5);
        assert_eq!((stamp([5, 5], 77), stamp([0, 0], 77)), (0, 0));
    }

    #[test]
    fn ring_sizes_are_powers_of_two_up_to_the_maximum() {
        let with = |tx| RingSizes { tx, ..RingSizes::default() }.check();
        assert!(with(1).is_ok() && with(RING_ENTRIES_MAX).is_ok());
        for tx in [0, 3, 2 * RING_ENTRIES_MAX] {
            let refused = with(tx);
            assert!(matches!(refused, Err(XdpError::BadRingSize { ring: "tx", .. })), "{tx}: {refused:?}");
        }
    }
}
