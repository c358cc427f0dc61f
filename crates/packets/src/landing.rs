//! Memory that packets land in and are sent from, for the TCP transport and for devices without TCP.

use crate::bounce::{BYTES_PER_SOCKET, Inbound, Outbound};
use crate::error::PacketsError;
use crate::pool::Pool;
use crate::sys::Zone;
use crate::transmit::{Outlet, Transmitter};
use crate::units::RING_ENTRIES;
use landfall_media::Extent;
use landfall_net::Packet;
use landfall_sockets::Frames;
use landfall_xdp::{Chunk, Interface, Mode, Received, RingSizes, Socket, Umem, XDP_HEADROOM, XdpError};
use std::sync::Arc;

/// Bytes of a chunk that an IP packet cannot use: XDP's headroom, an Ethernet header and a VLAN tag.
const CHUNK_OVERHEAD: u32 = XDP_HEADROOM + 18;

/// A region whose frames packets land in, registered with the kernel once for all interfaces and workers.
///
/// Each worker has a [`Landing`] and, for its socket on each interface, a [`Departures`]. A round is: for each socket,
/// receive; for each packet, [`Landing::land`] it, parse it and hold what is needed of it, then [`Landing::done`];
/// queue packets to send on any of the sockets, then [`Departures::kick`]; [`Landing::recycle_landed`], and
/// [`Landing::fill`] each socket.
///
/// If the kernel cannot pin the region (fs-DAX), packets land in a zone beside it and are copied into the region once,
/// and packets to send are gathered in the zone. The calls do not change.
#[derive(Clone, Debug)]
pub struct LandingMemory {
    umem: Umem,
    /// Where packets land if not in the region.
    zone: Option<Arc<Zone>>,
    /// Number of sockets of each worker.
    sockets: usize,
}

impl LandingMemory {
    /// Registers the frames of the region image at `image` (address, bytes) for `workers` that each have a socket on
    /// each of `interfaces`. The image must stay mapped while this value or any socket over it lives. The chunk size is
    /// the smallest that holds whole packets of all interfaces. With `beside`, packets land beside the region in any
    /// case.
    ///
    /// # Errors
    /// [`PacketsError::MtuTooLarge`], [`PacketsError::NoImage`], or an error of the kernel.
    pub fn register(
        image: (usize, u64),
        interfaces: &[&Interface],
        workers: usize,
        beside: bool,
    ) -> Result<Self, PacketsError> {
        let chunk = choose_chunk(interfaces)?;
        if image.1 == 0 {
            return Err(PacketsError::NoImage);
        }
        let sockets = interfaces.len();
        if !beside {
            match Umem::register(image, chunk, 0) {
                Err(XdpError::CannotPin { .. }) => {}
                registered => return Ok(Self { umem: registered?, zone: None, sockets }),
            }
        }
        let bytes = (workers * sockets) as u64 * BYTES_PER_SOCKET;
        let zone = Zone::new(bytes as usize)
            .map_err(|source| PacketsError::System { what: "mapping a zone to land packets in", source })?;
        Ok(Self { umem: Umem::register(zone.area(), chunk, 0)?, zone: Some(Arc::new(zone)), sockets })
    }

    /// Size of a chunk, bytes; a chunk holds one packet.
    pub fn chunk(&self) -> u32 {
        self.umem.chunk().bytes()
    }

    /// True if packets land in the region itself.
    pub fn is_in_region(&self) -> bool {
        self.zone.is_none()
    }

    /// Opens a socket on one queue of an interface, with rings of the size that a [`Landing`] fills.
    ///
    /// # Errors
    /// As [`Socket::open`].
    pub fn open(&self, interface: &Interface, queue: u32, mode: Mode) -> Result<Socket, XdpError> {
        let entries = RING_ENTRIES;
        let rings = RingSizes { fill: entries, rx: entries, tx: entries, completion: entries };
        Socket::open(&self.umem, interface, queue, rings, mode)
    }

    /// The landing space of a worker's sockets; one for each worker.
    pub fn landing(&self, worker: usize) -> Landing {
        let chunk = u64::from(self.chunk());
        let sockets = worker * self.sockets..(worker + 1) * self.sockets;
        let zone = self.zone.as_ref().map(|zone| Inbound::new(Arc::clone(zone), sockets, chunk));
        let pool = Pool::new(chunk, RING_ENTRIES * self.sockets as u32);
        Landing { chunk, pool, zone, starved: false, reported: false }
    }

    /// The sending side of a worker's socket on the interface with this number; one for each socket.
    pub fn departures(&self, worker: usize, interface: usize) -> Departures {
        let (chunk, socket) = (u64::from(self.chunk()), worker * self.sockets + interface);
        Departures(match &self.zone {
            Some(zone) => Way::Zone(Outbound::new(Arc::clone(zone), socket, chunk)),
            None => Way::Region(Transmitter::new(chunk)),
        })
    }
}

/// Landing space of one worker: chunks of landing runs, lent to its sockets, and reused unless the packets in them are
/// held.
#[derive(Debug)]
pub struct Landing {
    chunk: u64,
    pool: Pool,
    /// The zone that packets land in, if the interface cannot reach the region.
    zone: Option<Inbound>,
    starved: bool,
    /// Starvation was reported.
    reported: bool,
}

impl Landing {
    /// Fills chunks into the ring of a socket, until the ring is full.
    pub fn fill(&mut self, socket: &mut Socket, frames: &mut dyn Frames) {
        if let Some(zone) = &mut self.zone {
            return zone.refill(socket);
        }
        let room = socket.fill_room();
        if room == 0 {
            return;
        }
        let (pool, mut got) = (&mut self.pool, 0);
        let chunks =
            std::iter::from_fn(|| (got < room).then(|| pool.take(frames)).flatten().inspect(|_| got += 1));
        socket.fill(chunks);
        self.set_starved(got < room && got + room >= RING_ENTRIES);
        if socket.needs_fill_wakeup() {
            // An error also shows at the next kick.
            let _ = socket.wake_receive();
        }
    }

    /// Lands a packet that a socket has received: returns its extent in the region, valid until [`Self::done`]. `None`:
    /// there is no landing space, or the medium refused, and the packet is lost.
    pub fn land(&mut self, packet: &Received, frames: &mut dyn Frames) -> Option<Extent> {
        let Some(zone) = &mut self.zone else { return Some(Extent::new(packet.addr, packet.len)) };
        let to = self.pool.take(frames);
        let landed = to.and_then(|to| zone.land((packet.addr, packet.len), to, frames));
        zone.give_back(packet.addr & !(self.chunk - 1));
        self.set_starved(to.is_none());
        if let (Some(to), None) = (to, landed) {
            self.pool.landed(to, frames);
        }
        landed
    }

    /// Ends the work on the packet that landed at `off`: what is needed of it is held.
    pub fn done(&mut self, off: u64, frames: &mut dyn Frames) {
        self.pool.landed(off & !(self.chunk - 1), frames);
    }

    /// Drops a packet, or a part of one, that a socket has received; it is not landed.
    pub fn discard(&mut self, packet: &Received, frames: &mut dyn Frames) {
        let chunk = packet.addr & !(self.chunk - 1);
        match &mut self.zone {
            Some(zone) => zone.give_back(chunk),
            None => self.pool.landed(chunk, frames),
        }
    }

    /// Recycles the chunks of landed packets, best late in a round: chunks that are not held are lent again, and the
    /// others are left to their holders for good.
    pub fn recycle_landed(&mut self, frames: &mut dyn Frames) {
        self.pool.recycle_landed(frames);
    }

    /// Size of a chunk, bytes; a chunk holds one packet.
    pub fn chunk(&self) -> u64 {
        self.chunk
    }

    /// True if packets land in the region itself.
    pub fn is_in_region(&self) -> bool {
        self.zone.is_none()
    }

    /// True while there is no landing space: the caller tries again after a while.
    pub fn is_starved(&self) -> bool {
        self.starved
    }

    /// True once when landing space has run out.
    pub fn became_starved(&mut self) -> bool {
        let news = self.starved && !self.reported;
        self.reported = self.starved;
        news
    }

    /// Returns all runs to the heap; the sockets must be closed.
    pub fn clear(&mut self, frames: &mut dyn Frames) {
        self.pool.clear(frames);
    }

    fn set_starved(&mut self, starved: bool) {
        self.starved = starved;
        self.reported &= starved;
    }
}

/// The sending side of one socket: sends stored frames from the region, and other frames from chunks of its own.
#[derive(Debug)]
pub struct Departures(Way);

#[derive(Debug)]
enum Way {
    Region(Transmitter),
    Zone(Outbound),
}

impl Departures {
    fn outlet(&mut self) -> &mut dyn Outlet {
        match &mut self.0 {
            Way::Region(transmitter) => transmitter,
            Way::Zone(outbound) => outbound,
        }
    }

    /// True if a frame can be sent, after making room if necessary. Callers call this before each frame.
    ///
    /// # Errors
    /// As [`Socket::kick`].
    pub fn has_room(&mut self, socket: &mut Socket, frames: &mut dyn Frames) -> Result<bool, XdpError> {
        self.outlet().has_room(socket, frames)
    }

    /// Queues an Ethernet frame that lies in the region. The frame is held until it is sent. False: it was not queued.
    pub fn send_stored(&mut self, frame: Extent, socket: &mut Socket, frames: &mut dyn Frames) -> bool {
        self.outlet().send_stored(frame, socket, frames)
    }

    /// Queues an Ethernet frame made of these bytes. False: it was not queued.
    pub fn send_bytes(&mut self, frame: &[u8], socket: &mut Socket, frames: &mut dyn Frames) -> bool {
        self.outlet().send_bytes(frame, socket, frames)
    }

    /// Queues a packet of the stack.
    pub(crate) fn send(&mut self, packet: &Packet, socket: &mut Socket, frames: &mut dyn Frames) {
        self.outlet().send(packet, socket, frames);
    }

    /// Makes the kernel send what was queued, and releases what it has sent.
    ///
    /// # Errors
    /// As [`Socket::kick`].
    pub fn kick(&mut self, socket: &mut Socket, frames: &mut dyn Frames) -> Result<(), XdpError> {
        self.outlet().kick(socket, frames)
    }

    /// Returns the chunks; the socket must be closed. Frames in flight stay held, so callers first kick until
    /// [`Socket::transmit_pending`] is zero.
    pub fn clear(&mut self, frames: &mut dyn Frames) {
        self.outlet().clear(frames);
    }
}

/// The smallest chunk that holds whole packets of all interfaces.
fn choose_chunk(interfaces: &[&Interface]) -> Result<Chunk, PacketsError> {
    let Some(widest) = interfaces.iter().max_by_key(|interface| interface.mtu) else {
        return Ok(Chunk::Bytes2048);
    };
    let fits = |chunk: &Chunk| widest.mtu + CHUNK_OVERHEAD <= chunk.bytes();
    [Chunk::Bytes2048, Chunk::Bytes4096].into_iter().find(fits).ok_or_else(|| PacketsError::MtuTooLarge {
        interface: widest.name.clone(),
        mtu: widest.mtu,
        max: Chunk::Bytes4096.bytes() - CHUNK_OVERHEAD,
    })
}
