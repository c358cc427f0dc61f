//! Where the values of the read cache lie: in the frames of the packets that brought them, or in a copy.
//!
//! The frame of an update is that of its log entry: behind the fence a value in it is as durable as the entry, and holding it
//! costs nothing while the entry is held. Once the entry is removed the cache alone holds the frame. So a value that takes a
//! small part of its frame is copied: [`SHARE_MIN`].

use super::Arrival;
use crate::cache::Weight;
use crate::wire::{Header, kind};
use crc_fast::CrcAlgorithm;
use landfall_heap::{FRAME_SIZE, Heap};
use landfall_media::Extent;
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A value is referred to if it takes at least one part in so many of its frames: at half, the frames of a full cache hold
/// as many bytes of values as of anything else; below that a copy holds more values in as many bytes.
const SHARE_MIN: u64 = 2;
/// The cache refers to frames while one run in so many is free. Below that the log needs them: a run is free only when none
/// of its frames is held, so that a few values could keep many runs.
const FREE_MIN: u32 = 4;

/// A value of the read cache.
#[derive(Debug)]
pub(super) struct Value {
    place: Place,
    origin: Option<Origin>,
}

/// The update that a value comes from: number and hash in its header.
#[derive(Clone, Copy, Debug)]
pub(super) struct Origin {
    pub(super) seq: u32,
    pub(super) hash: u32,
}

#[derive(Debug)]
enum Place {
    /// Where its packet landed.
    Landed(Landed),
    /// A copy.
    Copied(Box<[u8]>),
}

impl Weight for Value {
    fn bytes(&self) -> usize {
        match &self.place {
            Place::Landed(landed) => landed.frames_bytes() as usize,
            Place::Copied(bytes) => bytes.len(),
        }
    }
}

impl Value {
    /// The bytes; `None` if the medium does not give them back as they were.
    pub(super) fn bytes(&self) -> Option<Cow<'_, [u8]>> {
        match &self.place {
            Place::Landed(landed) => landed.bytes().map(Cow::Borrowed),
            Place::Copied(bytes) => Some(Cow::Borrowed(bytes)),
        }
    }

    /// The update that it comes from; `None` if a response brought it.
    pub(super) fn origin(&self) -> Option<Origin> {
        self.origin
    }

    pub(super) fn is_landed(&self) -> bool {
        matches!(self.place, Place::Landed(_))
    }
}

/// Bytes of a packet in the region, held.
#[derive(Debug)]
pub(super) struct Landed {
    frames: Arc<Held>,
    extent: Extent,
    /// CRC-32C: the bytes lie on a medium until they are asked for.
    crc: u32,
}

/// The region, and how many values refer to it.
#[derive(Debug)]
struct Held {
    heap: Arc<Heap>,
    values: AtomicUsize,
}

impl Landed {
    fn new(frames: &Arc<Held>, extent: Extent, bytes: &[u8]) -> Self {
        frames.heap.runs().hold(extent);
        frames.values.fetch_add(1, Ordering::Relaxed);
        Self { frames: Arc::clone(frames), extent, crc: crc(bytes) }
    }

    fn bytes(&self) -> Option<&[u8]> {
        self.frames.heap.media().bytes(self.extent).ok().filter(|bytes| crc(bytes) == self.crc)
    }

    fn frames_bytes(&self) -> u64 {
        frames_bytes(self.extent)
    }
}

impl Drop for Landed {
    fn drop(&mut self) {
        self.frames.values.fetch_sub(1, Ordering::Relaxed);
        self.frames.heap.runs().release(self.extent);
    }
}

/// Makes values of what arrives.
#[derive(Debug)]
pub(super) struct Frames(Arc<Held>);

impl Frames {
    pub(super) fn new(heap: Arc<Heap>) -> Self {
        Self(Arc::new(Held { heap, values: AtomicUsize::new(0) }))
    }

    /// The value that lies in a part of a packet's payload.
    pub(super) fn value(&self, arrival: &Arrival<'_>, part: Range<usize>) -> Value {
        let bytes = arrival.payload.get(part.clone()).unwrap_or_default();
        let place = match self.extent(arrival, part) {
            Some(extent) => Place::Landed(Landed::new(&self.0, extent, bytes)),
            None => Place::Copied(bytes.into()),
        };
        let update = Header::parse(arrival.payload).ok().filter(|header| header.kind == kind::UPDATE);
        Value { place, origin: update.map(|Header { seq, hash, .. }| Origin { seq, hash }) }
    }

    /// Where it lies in the region, if it is worth referring to.
    fn extent(&self, arrival: &Arrival<'_>, part: Range<usize>) -> Option<Extent> {
        let (at, len) = ((arrival.header_at + part.start) as u64, part.len() as u64);
        // What was seen as a copy has not landed.
        let has_landed = at + len <= u64::from(arrival.packet.len()) && part.end <= arrival.payload.len();
        let extent = has_landed.then(|| Extent::new(arrival.packet.off + at, len as u32))?;
        let is_worth_it = len > 0 && len * SHARE_MIN >= frames_bytes(extent);
        (is_worth_it && !self.is_short()).then_some(extent)
    }

    /// Whether the log needs what values may hold.
    fn is_short(&self) -> bool {
        let runs = self.0.heap.runs();
        let enough = (self.0.heap.geometry().runs / FREE_MIN).max(self.0.heap.clean_below());
        runs.free_count() < enough
    }

    /// Whether values must let go of frames now.
    pub(super) fn must_let_go(&self) -> bool {
        self.0.values.load(Ordering::Relaxed) > 0 && self.is_short()
    }
}

fn frames_bytes(extent: Extent) -> u64 {
    let end = extent.off + u64::from(extent.len());
    end.next_multiple_of(FRAME_SIZE) - extent.off / FRAME_SIZE * FRAME_SIZE
}

fn crc(bytes: &[u8]) -> u32 {
    crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32
}
