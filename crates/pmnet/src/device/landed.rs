//! The values of the read cache. A value is either a reference to the frames of the packet that brought it, or a
//! copy.
//!
//! The frame of an update is also that of its log entry. After the fence, a value in it is as durable as the entry,
//! and holding the frame costs nothing while the log holds it. When the entry is removed, the cache alone holds the
//! frame. So a value that takes only a small part of its frame is copied: [`SHARE_MIN`].

use super::arrival::Arrival;
use crate::cache::Weight;
use crate::wire::{Header, kind};
use crc_fast::CrcAlgorithm;
use landfall_heap::{FRAME_SIZE, Heap};
use landfall_media::Extent;
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A value is stored by reference if it takes at least 1/`SHARE_MIN` of its frames. At one half, a full cache holds
/// at least as many bytes of values as of other data. Below that, copies hold more values in the same memory.
const SHARE_MIN: u64 = 2;
/// Values are stored by reference while at least 1/`FREE_MIN` of the runs are free. Below that the log needs the
/// frames. A run is free only when none of its frames is held, so a few values could keep many runs from being
/// freed.
const FREE_MIN: u32 = 4;

/// A value in the read cache.
#[derive(Debug)]
pub(super) struct Value {
    place: Place,
    origin: Option<Origin>,
}

/// The update that has set a value: number and hash in its header.
#[derive(Clone, Copy, Debug)]
pub(super) struct Origin {
    pub(super) seq: u32,
    pub(super) hash: u32,
}

#[derive(Debug)]
enum Place {
    /// A reference to the frames of the packet.
    Landed(Landed),
    /// A copy in DRAM.
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
    /// The value's bytes; `None` if they cannot be read or fail their check.
    pub(super) fn bytes(&self) -> Option<Cow<'_, [u8]>> {
        match &self.place {
            Place::Landed(landed) => landed.bytes().map(Cow::Borrowed),
            Place::Copied(bytes) => Some(Cow::Borrowed(bytes)),
        }
    }

    /// The update that has set the value; `None` if the value comes from a response.
    pub(super) fn origin(&self) -> Option<Origin> {
        self.origin
    }

    pub(super) fn is_landed(&self) -> bool {
        matches!(self.place, Place::Landed(_))
    }
}

/// A range of a packet in the region, whose frames are held.
#[derive(Debug)]
pub(super) struct Landed {
    frames: Arc<Held>,
    extent: Extent,
    /// CRC-32C of the bytes, which are on a medium until they are read.
    crc: u32,
}

/// The region, and the number of values that hold frames in it.
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

/// Creates values from packets.
#[derive(Debug)]
pub(super) struct Frames(Arc<Held>);

impl Frames {
    pub(super) fn new(heap: Arc<Heap>) -> Self {
        Self(Arc::new(Held { heap, values: AtomicUsize::new(0) }))
    }

    /// The value in a part of a packet's payload.
    pub(super) fn value(&self, arrival: &Arrival<'_>, part: Range<usize>) -> Value {
        let bytes = arrival.payload.get(part.clone()).unwrap_or_default();
        let place = match self.extent(arrival, part) {
            Some(extent) => Place::Landed(Landed::new(&self.0, extent, bytes)),
            None => Place::Copied(bytes.into()),
        };
        let update = Header::parse(arrival.payload).ok().filter(|header| header.kind == kind::UPDATE);
        Value { place, origin: update.map(|Header { seq, hash, .. }| Origin { seq, hash }) }
    }

    /// The value's extent in the region, if it should be stored by reference.
    fn extent(&self, arrival: &Arrival<'_>, part: Range<usize>) -> Option<Extent> {
        let (at, len) = ((arrival.header_at + part.start) as u64, part.len() as u64);
        // A payload may be a copy of the packet that is not in the region.
        let has_landed = at + len <= u64::from(arrival.packet.len()) && part.end <= arrival.payload.len();
        let extent = has_landed.then(|| Extent::new(arrival.packet.off + at, len as u32))?;
        let is_worth_it = len > 0 && len * SHARE_MIN >= frames_bytes(extent);
        (is_worth_it && !self.is_short()).then_some(extent)
    }

    /// Whether free runs are so few that values must not hold frames.
    fn is_short(&self) -> bool {
        let runs = self.0.heap.runs();
        let enough = (self.0.heap.geometry().runs / FREE_MIN).max(self.0.heap.clean_below());
        runs.free_count() < enough
    }

    /// Whether values hold frames although the log needs them.
    pub(super) fn must_release(&self) -> bool {
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
