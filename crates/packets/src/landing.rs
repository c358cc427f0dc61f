//! Memory that packets land in and leave from, for the transport and for devices that are none.

use crate::bounce::{BYTES_PER_SOCKET, Inbound, Outbound};
use crate::pool::Pool;
use crate::sys::Zone;
use crate::transmit::{Outlet, Transmitter};
use crate::{PacketsError, RING_ENTRIES};
use landfall_media::Extent;
use landfall_net::Packet;
use landfall_sockets::Frames;
use landfall_xdp::{Chunk, Interface, Mode, Received, RingSizes, Socket, Umem, XDP_HEADROOM, XdpError};
use std::sync::Arc;

/// Bytes in front of an IP packet in its chunk: XDP's own, an Ethernet header and a VLAN tag.
const CHUNK_OVERHEAD: u32 = XDP_HEADROOM + 18;

/// A region whose frames packets land in, registered with the kernel once for all interfaces and workers.
///
/// Each worker has a [`Landing`] and, for its socket on each interface, a [`Departures`]. A round: for each socket, receive and
/// [`Landing::land`] each packet, look at it and hold what is needed of it, [`Landing::done`]; queue what is to leave on any of
/// the sockets, [`Departures::kick`]; [`Landing::sort_landed`], and [`Landing::fill`] each socket.
///
/// Where the kernel cannot pin the region (fs-DAX), packets land in a zone beside it and are copied into the region once, and
/// what leaves is gathered in the zone. The calls are the same.
#[derive(Clone, Debug)]
pub struct LandingMemory {
    umem: Umem,
    /// Where packets land if not in the region.
    zone: Option<Arc<Zone>>,
    /// Sockets of each worker.
    sockets: usize,
}

impl LandingMemory {
    /// Registers the frames of the region image at `image` (address, bytes), which must stay mapped while this or any socket over
    /// it lives, for `workers` with a socket on each of `interfaces`. Chunks are the smallest that whole packets of all of
    /// them fit. With `beside`, packets land beside the region in any case.
    ///
    /// # Errors
    /// [`PacketsError::MtuTooLarge`], [`PacketsError::NoImage`], or what the kernel said.
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

    /// Bytes of a chunk: one packet each.
    pub fn chunk(&self) -> u32 {
        self.umem.chunk().bytes()
    }

    /// True if packets land in the region itself.
    pub fn is_in_region(&self) -> bool {
        self.zone.is_none()
    }

    /// Opens a socket on one queue of an interface, with rings of the sizes that a [`Landing`] fills.
    ///
    /// # Errors
    /// As [`Socket::open`].
    pub fn open(&self, interface: &Interface, queue: u32, mode: Mode) -> Result<Socket, XdpError> {
        let entries = RING_ENTRIES;
        let rings = RingSizes { fill: entries, rx: entries, tx: entries, completion: entries };
        Socket::open(&self.umem, interface, queue, rings, mode)
    }

    /// Where packets of a worker's sockets land; one for each worker.
    pub fn landing(&self, worker: usize) -> Landing {
        let chunk = u64::from(self.chunk());
        let sockets = worker * self.sockets..(worker + 1) * self.sockets;
        let zone = self.zone.as_ref().map(|zone| Inbound::new(Arc::clone(zone), sockets, chunk));
        let pool = Pool::new(chunk, RING_ENTRIES * self.sockets as u32);
        Landing { chunk, pool, zone, starved: false, told: false }
    }

    /// The way out of a worker's socket on the interface of this number; one for each socket.
    pub fn departures(&self, worker: usize, interface: usize) -> Departures {
        let (chunk, socket) = (u64::from(self.chunk()), worker * self.sockets + interface);
        Departures(match &self.zone {
            Some(zone) => Way::Zone(Outbound::new(Arc::clone(zone), socket, chunk)),
            None => Way::Region(Transmitter::new(chunk)),
        })
    }
}

/// One worker's landing space: chunks of landing runs, lent to its sockets and used again unless somebody holds
/// what landed in them.
#[derive(Debug)]
pub struct Landing {
    chunk: u64,
    pool: Pool,
    /// Between the interface and the region, where the one cannot reach the other.
    zone: Option<Inbound>,
    starved: bool,
    /// That it is starved was told.
    told: bool,
}

impl Landing {
    /// Lends chunks to a socket, as many as it takes.
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
            // An error would show at the next kick.
            let _ = socket.wake_receive();
        }
    }

    /// A packet that a socket has received: where it lies in the region, until [`Self::done`] with it. `None`: there is no
    /// landing space, or the medium refused, and the packet is lost.
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

    /// A packet that was landed at `off` has been looked at: what is needed of it is held.
    pub fn done(&mut self, off: u64, frames: &mut dyn Frames) {
        self.pool.landed(off & !(self.chunk - 1), frames);
    }

    /// Nothing is needed of a packet, or of a part of one, that a socket has received; it is not landed.
    pub fn discard(&mut self, packet: &Received, frames: &mut dyn Frames) {
        let chunk = packet.addr & !(self.chunk - 1);
        match &mut self.zone {
            Some(zone) => zone.give_back(chunk),
            None => self.pool.landed(chunk, frames),
        }
    }

    /// Looks once, and best late in a round, at what is done with: what nobody holds any more is lent again, the rest is left to its
    /// holders for good.
    pub fn sort_landed(&mut self, frames: &mut dyn Frames) {
        self.pool.sort_landed(frames);
    }

    /// Bytes of a chunk: one packet each.
    pub fn chunk(&self) -> u64 {
        self.chunk
    }

    /// True if packets land in the region itself.
    pub fn is_in_region(&self) -> bool {
        self.zone.is_none()
    }

    /// True while there is no landing space: it is to be asked for again after a while.
    pub fn is_starved(&self) -> bool {
        self.starved
    }

    /// True once when landing space has come to its end.
    pub fn became_starved(&mut self) -> bool {
        let news = self.starved && !self.told;
        self.told = self.starved;
        news
    }

    /// Gives all runs back; the sockets must be closed.
    pub fn clear(&mut self, frames: &mut dyn Frames) {
        self.pool.clear(frames);
    }

    fn set_starved(&mut self, starved: bool) {
        self.starved = starved;
        self.told &= starved;
    }
}

/// One socket's way out: whole frames from where they are stored, and others through chunks of its own.
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

    /// True if a frame can be sent, after making room for it if need be. To be asked before each one.
    ///
    /// # Errors
    /// As [`Socket::kick`].
    pub fn has_room(&mut self, socket: &mut Socket, frames: &mut dyn Frames) -> Result<bool, XdpError> {
        self.outlet().has_room(socket, frames)
    }

    /// Queues an Ethernet frame that lies in the region, wherever it came from; it is held until it is sent. False: it was not
    /// taken.
    pub fn send_stored(&mut self, frame: Extent, socket: &mut Socket, frames: &mut dyn Frames) -> bool {
        self.outlet().send_stored(frame, socket, frames)
    }

    /// Queues an Ethernet frame made of these bytes. False: it was not taken.
    pub fn send_bytes(&mut self, frame: &[u8], socket: &mut Socket, frames: &mut dyn Frames) -> bool {
        self.outlet().send_bytes(frame, socket, frames)
    }

    /// Queues a packet of the stack's.
    pub(crate) fn send(&mut self, packet: &Packet, socket: &mut Socket, frames: &mut dyn Frames) {
        self.outlet().send(packet, socket, frames);
    }

    /// Has the kernel send what was queued, and takes back what it has sent.
    ///
    /// # Errors
    /// As [`Socket::kick`].
    pub fn kick(&mut self, socket: &mut Socket, frames: &mut dyn Frames) -> Result<(), XdpError> {
        self.outlet().kick(socket, frames)
    }

    /// Gives its chunks back; the socket must be closed. Frames that are still on their way then stay held: kick first, until
    /// [`Socket::transmit_pending`] is zero.
    pub fn clear(&mut self, frames: &mut dyn Frames) {
        self.outlet().clear(frames);
    }
}

/// The smallest chunk that whole packets of all interfaces fit.
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
