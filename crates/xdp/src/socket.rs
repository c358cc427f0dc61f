//! AF_XDP sockets: one queue of one interface each.

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

/// Most entries of a ring.
pub const RING_ENTRIES_MAX: u32 = 1 << 16;

/// Packets that one call should send in copy mode, and that a busy poll takes at most.
const BATCH_PACKETS: u32 = 1024;
const BUSY_POLL_PACKETS: u32 = 64;
/// How often [`Socket::kick`] calls the kernel, and how often in a row without any progress.
const KICKS_MAX: u32 = 4096;
const KICKS_IN_VAIN_MAX: u32 = 4;
/// A queue is freed by a kernel worker soon after its socket was closed: how often to try, a millisecond apart.
const BIND_TRIES_MAX: u32 = 200;
/// What the send buffer counts for each packet on its way in copy mode, bytes: a page and its overhead.
const PACKET_COST: u32 = 4096 + 1024;
const BIND: &str = "bind a socket to a queue";

/// Entries of a socket's four rings: powers of two, at most [`RING_ENTRIES_MAX`].
///
/// The completion ring should have as many entries as the transmit ring: the kernel sends nothing that
/// it could not complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingSizes {
    /// Chunks lent to the kernel to receive into.
    pub fill: u32,
    /// Descriptors of packets received.
    pub rx: u32,
    /// Descriptors of packets to transmit.
    pub tx: u32,
    /// Addresses of descriptors transmitted.
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
    /// Zero-copy if the driver can, otherwise copy.
    #[default]
    Auto,
    /// The kernel copies each packet once, into or out of its chunk. Works with every driver.
    Copy,
    /// The device reads and writes chunks itself, or the socket is refused.
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
/// One thread uses it at a time; it may be sent to another. Dropping it unmaps its rings and closes it, so
/// that the queue is free again, and takes it out of the steering program's map.
pub struct Socket {
    // Rings are dropped before the descriptor: their mappings keep the socket alive.
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
    /// The part received last was not its packet's last one.
    is_inside: bool,
}

/// How to tell a stamp from other bytes: see [`crate::Steering::set_socket`].
#[derive(Debug, Default)]
struct Stamps {
    /// What a stamp's check word is XORed with; 0 while no stamps are expected.
    cookie: AtomicU64,
}

impl Socket {
    /// Opens a socket on `queue` of `interface` over `umem`.
    ///
    /// All sockets over one UMEM share the mode of the first.
    ///
    /// # Errors
    /// [`XdpError::BadRingSize`], [`XdpError::NoSuchQueue`], [`XdpError::QueueBusy`],
    /// [`XdpError::NoZeroCopy`], [`XdpError::NoPrivilege`], [`XdpError::LinkDown`],
    /// [`XdpError::OtherNamespace`], or what else the kernel said.
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
        // Refused by kernels before 6.17, which send 32 a call: `kick` then calls more often.
        let _ = raw.raise_budget(BATCH_PACKETS.min(rings.tx_entries));
        // Otherwise a device is sent some fifty packets at a time; where it is refused, it stays that way.
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

    /// Chunks that can be filled now.
    pub fn fill_room(&mut self) -> u32 {
        self.fill.room()
    }

    /// Lends chunks to the kernel to receive into, each named by any address inside it; stops when the ring is
    /// full. Returns how many were taken: the rest stay the caller's, and the iterator is left at them.
    pub fn fill(&mut self, mut chunks: impl Iterator<Item = u64>) -> u32 {
        while self.fill.has_room(1) {
            let Some(addr) = chunks.next() else { break };
            self.fill.push(self.umem.chunk_of(addr));
        }
        self.fill.publish()
    }

    /// Takes up to `max` descriptors of received packets, in order; appends them and returns how many.
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

    /// Descriptors that can be transmitted now.
    pub fn transmit_room(&mut self) -> u32 {
        self.tx.room()
    }

    /// Queues one packet made of `pieces`, as a whole or not at all. [`Socket::kick`] sends it. The bytes
    /// are the kernel's until [`Socket::completed`] reports each piece's address.
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

    /// Has the kernel send what was queued. Returns when it has taken everything, or cannot go on now: its
    /// socket buffer or the completion ring is full. Then [`Socket::completed`] makes room, and
    /// [`Socket::transmit_pending`] says how much is left.
    ///
    /// # Errors
    /// [`XdpError::LinkDown`], or what else the kernel said.
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

    /// In copy mode the kernel sends only when called; a device may look at the ring by itself.
    fn must_kick(&self) -> bool {
        !self.zero_copy || self.tx.memory().needs_wakeup()
    }

    /// Descriptors queued that the kernel has not taken yet.
    pub fn transmit_pending(&mut self) -> u32 {
        self.tx.pending()
    }

    /// Reports the address of each piece that was sent since the last call: its bytes are the caller's
    /// again. Returns how many.
    pub fn completed(&mut self, each: impl FnMut(u64)) -> u32 {
        self.completion.take(u32::MAX, each)
    }

    /// For `poll`: readable when packets wait, writable when there is room to transmit. Not to be closed.
    pub fn descriptor(&self) -> RawFd {
        self.raw.fd()
    }

    /// True if the driver waits to be told that chunks were filled: [`Socket::wake_receive`]. Never in
    /// copy mode.
    pub fn needs_fill_wakeup(&self) -> bool {
        self.fill.memory().needs_wakeup()
    }

    /// Tells the driver that chunks were filled; with busy polling, has it poll the device.
    ///
    /// # Errors
    /// [`XdpError::LinkDown`], or what else the kernel said.
    pub fn wake_receive(&mut self) -> Result<(), XdpError> {
        match self.raw.wake_receive() {
            Err(error) if !is_passing(&error) => Err(XdpError::from_io(&self.interface, "receive", error)),
            _ => Ok(()),
        }
    }

    /// What the kernel counted.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn statistics(&self) -> Result<Statistics, XdpError> {
        let told = self.raw.counters();
        let told = told.map_err(|source| XdpError::from_io(&self.interface, "read statistics", source))?;
        Ok(Statistics {
            rx_dropped: told.rx_dropped.saturating_sub(told.rx_fill_ring_empty_descs),
            rx_invalid: told.rx_invalid_descs,
            tx_invalid: told.tx_invalid_descs,
            rx_ring_full: told.rx_ring_full,
            fill_ring_empty: told.rx_fill_ring_empty_descs,
            tx_ring_empty: told.tx_ring_empty_descs,
        })
    }

    /// True if the device reads and writes the UMEM itself.
    pub const fn is_zero_copy(&self) -> bool {
        self.zero_copy
    }

    /// The queue.
    pub const fn queue(&self) -> u32 {
        self.queue
    }

    /// The UMEM.
    pub const fn umem(&self) -> &Umem {
        &self.umem
    }

    /// Has calls on the socket poll the device for up to `micros` instead of waiting for its interrupt;
    /// false where the kernel refused. Does nothing on veth.
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
        // Before the descriptor is closed: another thread may be about to share the UMEM through it.
        self.umem.leave(self.raw.fd());
    }
}

/// Appends a packet's descriptors, for which there is room.
pub(crate) fn push_packet<M>(ring: &mut Producer<M>, pieces: &[Piece])
where
    M: crate::ring::RingMemory<Entry = libc::xdp_desc>,
{
    let last = pieces.len() - 1;
    for (at, piece) in pieces.iter().enumerate() {
        let options = if at < last { libc::XDP_PKT_CONTD } else { 0 };
        let pushed = ring.push(libc::xdp_desc { addr: piece.addr, len: piece.len, options });
        debug_assert!(pushed, "the caller looked for room");
    }
}

/// The stamp, if its check word matches.
fn stamp(words: [u64; 2], cookie: u64) -> u64 {
    const { assert!(bpf::META_BYTES == 16 && bpf::STAMP_BYTES == 8) }
    let [check, stamp] = words;
    if check ^ cookie == stamp { stamp } else { 0 }
}

/// Errors that say "not now".
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
        // Everything else that makes a bind invalid was checked before.
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
    fn stamps_are_believed_only_with_their_check_word() {
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
