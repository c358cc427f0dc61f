//! Replies on their way out: protocol bytes and stored values, and what must be durable first.

use landfall_heap::{CopyPath, Heap, SlotId};
use landfall_kv::Item;
use landfall_media::Extent;
use landfall_sockets::{Outgoing, Part};
use smallvec::SmallVec;
use std::collections::VecDeque;

/// Values up to this length are copied into the reply: an iovec entry of its own would cost more.
/// Counted as [`CopyPath::Reply`].
pub const REPLY_COPY_MAX: usize = 256;

/// Slots that a reply waits for.
pub type Barriers = SmallVec<[SlotId; 4]>;

/// A run of replies that may leave together, once what they wait for is durable.
#[derive(Debug, Default)]
pub struct Batch {
    /// What to send.
    pub out: Outgoing,
    /// Slots that must be durable first.
    pub barriers: Barriers,
    /// Commit round in which the barriers arose; replies of different rounds do not wait for each other.
    round: u64,
}

/// One connection's replies, in order.
#[derive(Debug, Default)]
pub struct Outbox {
    queue: VecDeque<Batch>,
    spare: Vec<Outgoing>,
    /// Bytes queued here and not yet handed to the transport.
    bytes: usize,
}

/// Empty buffers a connection keeps.
const SPARE_MAX: usize = 2;

impl Outbox {
    /// True when nothing is queued.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Bytes queued, for the limit on output buffers.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Begins a reply; commit round `round` is under way.
    pub fn begin<'a>(&'a mut self, heap: &'a Heap, round: u64) -> Reply<'a> {
        if self.queue.is_empty() {
            let out = self.spare.pop().unwrap_or_default();
            self.queue.push_back(Batch { out, barriers: Barriers::new(), round });
        }
        let bytes_start = self.queue.back().map_or(0, |batch| batch.out.bytes.len());
        let parts_start = self.queue.back().map_or(0, |batch| batch.out.parts.len());
        let waits = Barriers::new();
        Reply { outbox: self, heap, round, bytes_start, parts_start, waits, stored: 0, finished: false }
    }

    /// The next replies that may leave: everything at the front whose barriers are durable.
    pub fn take_ready(&mut self, is_durable: impl Fn(SlotId) -> bool) -> Option<Outgoing> {
        let ready = |batch: &Batch| batch.barriers.iter().all(|slot| is_durable(*slot));
        if !self.queue.front().is_some_and(ready) {
            return None;
        }
        let mut out = self.queue.pop_front()?.out;
        while self.queue.front().is_some_and(ready) {
            let next = self.queue.pop_front()?.out;
            append(&mut out, &next);
            self.recycle(next);
        }
        out.seal_bytes();
        self.bytes = self.bytes.saturating_sub(out.len());
        if out.is_empty() {
            self.recycle(out);
            return None;
        }
        Some(out)
    }

    /// The slot that the first reply waits for, if it waits.
    pub fn waits_for(&self, is_durable: impl Fn(SlotId) -> bool) -> Option<SlotId> {
        self.queue.front()?.barriers.iter().copied().find(|slot| !is_durable(*slot))
    }

    /// Takes emptied buffers back.
    pub fn recycle(&mut self, mut buffers: Outgoing) {
        if self.spare.len() < SPARE_MAX {
            buffers.clear();
            self.spare.push(buffers);
        }
    }

    /// Forgets the last batch if nothing is in it.
    fn drop_empty_batch(&mut self) {
        if self.queue.back().is_some_and(|batch| batch.out.is_empty())
            && let Some(batch) = self.queue.pop_back()
        {
            self.recycle(batch.out);
        }
    }

    /// Drops everything queued, releasing what it holds.
    pub fn clear(&mut self, heap: &Heap) {
        for batch in self.queue.drain(..) {
            batch.out.stored().for_each(|extent| heap.runs().release(extent));
        }
        self.bytes = 0;
    }
}

/// Appends `next` to `out`.
fn append(out: &mut Outgoing, next: &Outgoing) {
    out.seal_bytes();
    let shift = out.bytes.len() as u32;
    out.bytes.extend_from_slice(&next.bytes);
    let sealed = next.parts.iter().map(|part| match part {
        Part::Bytes { start, end } => Part::Bytes { start: start + shift, end: end + shift },
        stored => *stored,
    });
    out.parts.extend(sealed);
}

/// A reply being written. Finish it with [`Reply::finish`]; one that is dropped unfinished is taken back,
/// as [`Reply::abandon`] does.
#[derive(Debug)]
pub struct Reply<'a> {
    outbox: &'a mut Outbox,
    heap: &'a Heap,
    round: u64,
    bytes_start: usize,
    parts_start: usize,
    waits: Barriers,
    stored: usize,
    finished: bool,
}

impl Reply<'_> {
    fn out(&mut self) -> &mut Outgoing {
        &mut self.outbox.queue.back_mut().expect("begin has made sure of a batch").out
    }

    /// The buffer for protocol bytes.
    pub fn bytes(&mut self) -> &mut Vec<u8> {
        &mut self.out().bytes
    }

    /// The reply must not leave before the record in `slot` is durable.
    pub fn wait_for(&mut self, slot: SlotId) {
        if !self.heap.is_durable(slot) {
            add_barrier(&mut self.waits, slot);
        }
    }

    /// Appends a stored value, by reference unless it is tiny, and waits for its record.
    pub fn item(&mut self, item: Item<'_>) {
        self.wait_for(item.slot);
        if let Some(bytes) = item.inline() {
            self.heap.copies.add(CopyPath::Reply, bytes.len());
            self.bytes().extend_from_slice(bytes);
            return;
        }
        if item.len <= REPLY_COPY_MAX
            && let Ok(bytes) = item.bytes()
        {
            self.heap.copies.add(CopyPath::Reply, bytes.len());
            self.bytes().extend_from_slice(&bytes);
            return;
        }
        for extent in item.into_extents() {
            self.stored(extent);
        }
    }

    /// Appends bytes that lie in frames; the caller's hold on them goes with the reply.
    pub fn stored(&mut self, extent: Extent) {
        self.stored += extent.len as usize;
        self.out().push_stored(extent);
    }

    /// Bytes written so far.
    pub fn len(&self) -> usize {
        let bytes = self.outbox.queue.back().map_or(0, |batch| batch.out.bytes.len());
        bytes - self.bytes_start + self.stored
    }

    /// True when nothing has been written.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes everything written back, as if the reply had not begun.
    pub fn abandon(self) {
        drop(self);
    }

    /// Takes everything written back; the reply can be written anew.
    pub fn rewind(&mut self) {
        let (bytes_start, parts_start) = (self.bytes_start, self.parts_start);
        let heap = self.heap;
        let out = self.out();
        for part in out.parts.drain(parts_start..) {
            if let Part::Stored(extent) = part {
                heap.runs().release(extent);
            }
        }
        out.bytes.truncate(bytes_start);
        clip_parts(out, bytes_start as u32);
        self.waits.clear();
        self.stored = 0;
    }

    /// Ends the reply. If it waits for something that the replies before it do not, it starts a batch. An
    /// empty reply has nothing to wait with.
    pub fn finish(mut self) {
        if self.is_empty() {
            return;
        }
        self.finished = true;
        self.outbox.bytes += self.len();
        if !self.waits.is_empty() {
            self.apply_waits();
        }
    }

    fn apply_waits(&mut self) {
        let waits = std::mem::take(&mut self.waits);
        let round = self.round;
        let (bytes_start, parts_start) = (self.bytes_start, self.parts_start);
        let spare = self.outbox.spare.pop();
        let batch = self.outbox.queue.back_mut().expect("begin has made sure of a batch");
        let first = bytes_start == 0 && parts_start == 0;
        if first || batch.round == round && !batch.barriers.is_empty() {
            batch.round = round;
            waits.into_iter().for_each(|slot| add_barrier(&mut batch.barriers, slot));
            self.outbox.spare.extend(spare);
            return;
        }
        let out = split(&mut batch.out, bytes_start, parts_start, spare.unwrap_or_default());
        self.outbox.queue.push_back(Batch { out, barriers: waits, round });
    }
}

impl Drop for Reply<'_> {
    fn drop(&mut self) {
        if !self.finished {
            self.rewind();
            self.outbox.drop_empty_batch();
        }
    }
}

/// After a truncation, no part may reach past the bytes that are left.
fn clip_parts(out: &mut Outgoing, len: u32) {
    if let Some(Part::Bytes { end, .. }) = out.parts.last_mut() {
        *end = (*end).min(len);
    }
}

/// Moves everything from the given positions on into `tail`, which is empty.
fn split(out: &mut Outgoing, bytes_start: usize, parts_start: usize, mut tail: Outgoing) -> Outgoing {
    out.seal_bytes();
    tail.bytes.extend_from_slice(&out.bytes[bytes_start..]);
    out.bytes.truncate(bytes_start);
    let boundary = bytes_start as u32;
    // Earlier bytes that were not sealed yet share a part with the first of the reply's: it lies just
    // before `parts_start` if it was begun before the reply, and first among the reply's parts if not.
    if let Some(Part::Bytes { end, .. }) = parts_start.checked_sub(1).and_then(|last| out.parts.get_mut(last))
        && *end > boundary
    {
        tail.parts.push(Part::Bytes { start: 0, end: *end - boundary });
        *end = boundary;
    }
    let moved: SmallVec<[Part; 8]> = out.parts.drain(parts_start..).collect();
    for part in moved {
        match part {
            Part::Bytes { start, end } => {
                if start < boundary {
                    out.parts.push(Part::Bytes { start, end: end.min(boundary) });
                }
                if end > boundary {
                    let start = start.max(boundary) - boundary;
                    tail.parts.push(Part::Bytes { start, end: end - boundary });
                }
            }
            stored => tail.parts.push(stored),
        }
    }
    tail
}

/// Waiting for a later slot of the same slab covers an earlier one.
fn add_barrier(barriers: &mut Barriers, slot: SlotId) {
    match barriers.iter_mut().find(|known| known.run() == slot.run()) {
        Some(known) => *known = (*known).max(slot),
        None => barriers.push(slot),
    }
}
