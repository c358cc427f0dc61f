//! The heap as the transport's source of landing space, and the received bytes of a connection.

use landfall_heap::{CopyPath, FRAME_SIZE, Heap};
use landfall_media::{Extent, MediaError, RUN_SIZE, Segment, Sum};
use landfall_sockets::Frames;
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::sync::Arc;

/// Pieces of a stream in the form that a parser takes.
pub(crate) type Segments<'h> = SmallVec<[Segment<'h>; 4]>;

/// Longer pieces are not copied, because they fill landing runs alone, bytes.
const ASIDE_PIECE_MAX: u64 = 64 << 10;

/// Lends free runs of the heap to a transport.
#[derive(Debug)]
pub(crate) struct Landing {
    heap: Arc<Heap>,
    /// Where bytes of stalled requests are copied to, so that they do not keep whole landing runs.
    aside: Option<(u64, u64)>,
}

impl Landing {
    pub(crate) fn new(heap: Arc<Heap>) -> Self {
        Self { heap, aside: None }
    }

    /// Copies held bytes into a run that stalled requests share. The copy is held, and the hold on the original is
    /// released. `None` if there is no space, or if the piece is so long that it should stay where it is.
    pub(crate) fn set_aside(&mut self, extent: Extent) -> Result<Option<Extent>, MediaError> {
        let len = u64::from(extent.len());
        if len > ASIDE_PIECE_MAX {
            return Ok(None);
        }
        if self.aside.is_none_or(|(_, used)| used + len > RUN_SIZE) {
            self.end_aside();
            self.aside = self.heap.take_landing_run().map(|run| (run, 0));
        }
        let Some((run, used)) = &mut self.aside else { return Ok(None) };
        let copy = Extent::new(*run + *used, extent.len());
        self.heap.media().store(copy.off, self.heap.media().bytes(extent)?)?;
        *used += len;
        self.heap.runs().hold(copy);
        self.heap.runs().release(extent);
        self.heap.copies.add(CopyPath::Stalled, extent.len() as usize);
        Ok(Some(copy.with_sum(extent.sum())))
    }

    /// Gives the run back where copies went, if none of them is left.
    pub(crate) fn tidy(&mut self) {
        if self.aside.is_some_and(|(run, _)| self.heap.runs().is_filled_in_vain(run)) {
            self.end_aside();
        }
    }

    fn end_aside(&mut self) {
        if let Some((run, _)) = self.aside.take() {
            self.heap.retire_landing_run(run);
        }
    }
}

impl Drop for Landing {
    fn drop(&mut self) {
        self.end_aside();
    }
}

impl Frames for Landing {
    fn take_run(&mut self) -> Option<u64> {
        self.heap.take_landing_run()
    }

    fn is_short(&self) -> bool {
        !self.heap.has_room()
    }

    fn retire_run(&mut self, run_off: u64) {
        self.heap.retire_landing_run(run_off);
    }

    fn hold(&mut self, extent: Extent) {
        self.heap.runs().hold(extent);
    }

    fn release(&mut self, extent: Extent) {
        self.heap.runs().release(extent);
    }

    fn bytes(&self, extent: Extent) -> &[u8] {
        // Held bytes are in memory; an error is possible only for an extent outside of all runs.
        self.heap.media().bytes(extent).unwrap_or_default()
    }

    fn write(&mut self, off: u64, bytes: &[u8]) -> bool {
        self.heap.media().store(off, bytes).is_ok()
    }

    fn is_held(&self, off: u64) -> bool {
        self.heap.runs().frame_refs(off) > 0
    }

    fn set_aside(&mut self, extent: Extent) -> Option<Extent> {
        self.set_aside(extent).ok().flatten()
    }
}

/// The sum of the bytes behind the first `count`, if the sum of the whole extent is known.
fn sum_of_remaining(heap: &Heap, whole: Extent, count: usize) -> Option<Sum> {
    let sum = whole.sum()?;
    let bytes = heap.media().bytes(whole).ok()?;
    Some(sum.of_part(bytes, count..bytes.len()))
}

/// A piece of received data.
#[derive(Clone, Copy, Debug)]
struct Piece {
    extent: Extent,
    /// The piece was copied out of the landing run that it arrived in.
    is_aside: bool,
}

/// Data that a connection has received and not yet consumed: held extents, in stream order.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    pieces: VecDeque<Piece>,
    len: usize,
    /// Bytes of the region that the pieces keep from other uses.
    pinned: u64,
    /// Length of the space that each packet lands in: nothing else uses that space while the packet is held. 0: packets
    /// land directly behind each other.
    apart: u64,
    /// Where the latest listing began.
    mark: Mark,
    /// Number of leading extents that were already checked for [`Aside::Smallest`] and for [`Aside::All`].
    aside: [usize; 2],
}

/// Which pieces of an unfinished request are moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Aside {
    /// Pieces shorter than half a frame, each of which would keep a run.
    Smallest,
    /// All pieces that do not fill landing runs alone.
    All,
    /// Of these, the ones in runs that little else keeps. They may have been moved before, and be what is left of many.
    Scattered,
}

impl Aside {
    fn moves(self, heap: &Heap, extent: Extent) -> bool {
        let len = u64::from(extent.len());
        match self {
            Self::Smallest => len <= FRAME_SIZE / 2,
            Self::All => len <= ASIDE_PIECE_MAX,
            Self::Scattered => len <= ASIDE_PIECE_MAX && heap.runs().is_sparse(extent.off),
        }
    }
}

/// An extent of an inbox, and the number of bytes in front of it.
#[derive(Clone, Copy, Debug, Default)]
struct Mark {
    extent: usize,
    start: usize,
}

impl Inbox {
    /// Bytes in the inbox.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn extent(&self, index: usize) -> Option<Extent> {
        self.pieces.get(index).map(|piece| piece.extent)
    }

    /// An inbox for packets that land `apart` bytes from each other, or directly behind each other (0).
    pub(crate) fn new(apart: u64) -> Self {
        Self { apart, ..Self::default() }
    }

    /// Bytes of the region that the inbox keeps from other uses: a packet of one byte may keep a frame.
    pub(crate) fn pinned(&self) -> u64 {
        self.pinned
    }

    fn pinned_by(&self, piece: Piece) -> u64 {
        let len = u64::from(piece.extent.len());
        if piece.is_aside || self.apart == 0 { len } else { len.next_multiple_of(self.apart) }
    }

    /// Number of pieces of the received bytes.
    pub(crate) fn pieces(&self) -> usize {
        self.pieces.len()
    }

    /// The received bytes from position `from` on, by reference. If callers list from increasing positions as data
    /// arrive, the cost is proportional to the new data.
    pub(crate) fn segments<'h>(&mut self, heap: &'h Heap, from: usize) -> Result<Segments<'h>, MediaError> {
        let mark = self.find(from);
        let mut skip = from - mark.start;
        let segment = |Piece { extent, .. }: &Piece| {
            let bytes = heap.media().bytes(*extent)?;
            let skip = std::mem::take(&mut skip);
            let sum = extent.sum().filter(|_| skip == 0);
            Ok(Segment { addr: extent.off + skip as u64, bytes: bytes.get(skip..).unwrap_or_default(), sum })
        };
        self.pieces.range(mark.extent..).map(segment).collect()
    }

    /// The extent that contains position `from`, or the end.
    fn find(&mut self, from: usize) -> Mark {
        let mut mark = if from < self.mark.start { Mark::default() } else { self.mark };
        while let Some(Piece { extent, .. }) = self.pieces.get(mark.extent)
            && mark.start + extent.len() as usize <= from
        {
            mark = Mark { extent: mark.extent + 1, start: mark.start + extent.len() as usize };
        }
        // The last extent may still grow.
        let end = mark.extent == self.pieces.len();
        if end && let Some(last) = self.pieces.back() {
            mark = Mark { extent: mark.extent - 1, start: mark.start - last.extent.len() as usize };
        }
        self.mark = mark;
        mark
    }

    /// Appends held bytes. Adjacent extents become one, whose shared frame needs one hold.
    pub(crate) fn push(&mut self, heap: &Heap, extent: Extent) {
        self.push_piece(heap, Piece { extent, is_aside: false });
    }

    fn push_piece(&mut self, heap: &Heap, piece: Piece) {
        let extent = piece.extent;
        self.len += extent.len() as usize;
        let Some(last) = self.pieces.back().copied().filter(|last| joins(*last, piece)) else {
            self.pinned += self.pinned_by(piece);
            return self.pieces.push_back(piece);
        };
        if !extent.off.is_multiple_of(FRAME_SIZE) {
            heap.runs().release(Extent::new(extent.off, 1));
        }
        let mut grown = last;
        grown.extent.grow(extent.len());
        self.replace(self.pieces.len() - 1, grown);
        let looked_at = self.pieces.len() - 1;
        self.aside = self.aside.map(|aside| aside.min(looked_at));
    }

    fn replace(&mut self, index: usize, piece: Piece) {
        let before = self.pinned_by(self.pieces[index]);
        self.pinned = self.pinned - before + self.pinned_by(piece);
        self.pieces[index] = piece;
    }

    /// Drops the first `count` bytes, and releases the frames that have no later bytes.
    pub(crate) fn consume(&mut self, heap: &Heap, mut count: usize) {
        self.len -= count;
        self.mark = Mark::default();
        while count > 0 {
            let piece = *self.pieces.front().expect("no more is consumed than was received");
            let front = piece.extent;
            if front.len() as usize <= count {
                count -= front.len() as usize;
                heap.runs().release(front);
                self.pinned -= self.pinned_by(piece);
                self.pieces.pop_front();
                self.aside = self.aside.map(|aside| aside.saturating_sub(1));
                continue;
            }
            let rest = Extent::new(front.off + count as u64, front.len() - count as u32)
                .with_sum(sum_of_remaining(heap, front, count));
            let first_kept = rest.off / FRAME_SIZE * FRAME_SIZE;
            if first_kept > front.off {
                heap.runs().release(Extent::new(front.off, (first_kept - front.off) as u32));
            }
            self.replace(0, Piece { extent: rest, ..piece });
            count = 0;
        }
    }

    /// Moves pieces out of landing runs. The length of a piece does not change once the next one has come: whether it is
    /// moved for that is checked once.
    pub(crate) fn set_aside(&mut self, landing: &mut Landing, what: Aside) -> Result<(), MediaError> {
        let from = self.aside.get(what as usize).copied().unwrap_or(0);
        for index in from..self.pieces.len() {
            let extent = self.pieces[index].extent;
            if what.moves(&landing.heap, extent) {
                let Some(copy) = landing.set_aside(extent)? else { break };
                self.replace(index, Piece { extent: copy, is_aside: true });
            }
            if let Some(checked) = self.aside.get_mut(what as usize) {
                *checked = index + 1;
            }
        }
        Ok(())
    }

    /// Copies everything together into few pieces, for short data that came in very many.
    pub(crate) fn gather(&mut self, landing: &mut Landing) -> Result<(), MediaError> {
        let heap = Arc::clone(&landing.heap);
        self.mark = Mark::default();
        let (mut rest, len) = (std::mem::take(&mut self.pieces), std::mem::take(&mut self.len));
        (self.aside, self.pinned) = ([0; 2], 0);
        let mut outcome = Ok(());
        while let Some(piece) = rest.pop_front() {
            let moved = if outcome.is_ok() { landing.set_aside(piece.extent) } else { Ok(None) };
            let copy = moved.as_ref().ok().copied().flatten().map(|extent| Piece { extent, is_aside: true });
            self.push_piece(&heap, copy.unwrap_or(piece));
            outcome = outcome.and(moved.map(|_| ()));
        }
        debug_assert_eq!(self.len, len, "nothing is lost");
        outcome
    }

    pub(crate) fn clear(&mut self, heap: &Heap) {
        self.consume(heap, self.len);
    }
}

/// True if the later piece lies directly behind the earlier one, and both keep other space in the same way.
fn joins(last: Piece, next: Piece) -> bool {
    last.is_aside == next.is_aside
        && last.extent.end() == next.extent.off
        && last.extent.len().checked_add(next.extent.len()).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reply::tests::heap;
    use proptest::prelude::*;

    /// Receives a packet into an inbox: directly behind the previous one, or one frame further on.
    fn receive(heap: &Heap, inbox: &mut Inbox, at: &mut u64, len: u32, joins: bool) -> Vec<u8> {
        if !joins {
            *at = at.next_multiple_of(FRAME_SIZE) + 100;
        }
        let bytes: Vec<u8> = (0..u64::from(len)).map(|byte| (byte * 31 + *at) as u8).collect();
        let extent = Extent::new(*at, len);
        heap.media().store(*at, &bytes).unwrap();
        heap.runs().hold(extent);
        inbox.push(heap, extent);
        *at = extent.end();
        bytes
    }

    fn listed(inbox: &mut Inbox, heap: &Heap, from: usize) -> Vec<u8> {
        inbox.segments(heap, from).unwrap().iter().flat_map(|segment| segment.bytes).copied().collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn listed_bytes_are_the_received_ones(
            packets in prop::collection::vec((1..1500_u32, any::<bool>(), any::<u8>(), any::<prop::sample::Index>()), 1..60),
        ) {
            let heap = heap();
            let mut landing = Landing::new(Arc::clone(&heap));
            let mut at = heap.take_landing_run().unwrap();
            let (mut inbox, mut model) = (Inbox::default(), Vec::new());
            for (len, joins, action, place) in packets {
                model.extend(receive(&heap, &mut inbox, &mut at, len, joins));
                match action % 8 {
                    0 => inbox.set_aside(&mut landing, Aside::Smallest).unwrap(),
                    3 => inbox.set_aside(&mut landing, Aside::All).unwrap(),
                    1 => inbox.gather(&mut landing).unwrap(),
                    2 => {
                        let count = place.index(model.len());
                        inbox.consume(&heap, count);
                        model.drain(..count);
                    }
                    _ => {}
                }
                let from = place.index(model.len() + 1);
                prop_assert_eq!(listed(&mut inbox, &heap, from), &model[from..]);
                prop_assert_eq!(listed(&mut inbox, &heap, 0), &model[..]);
                prop_assert_eq!((inbox.len(), inbox.pinned()), (model.len(), model.len() as u64));
            }
            inbox.clear(&heap);
        }
    }

    /// Also what was moved before, if it is all that is left of a run.
    #[test]
    fn what_keeps_a_run_alone_is_moved_and_what_others_keep_stays() {
        let heap = heap();
        let mut landing = Landing::new(Arc::clone(&heap));
        let (mut inbox, mut others, mut sent) = (Inbox::default(), Inbox::default(), Vec::new());
        let runs: Vec<u64> = (0..3).map(|_| heap.take_landing_run().unwrap()).collect();
        for run in &runs {
            let mut at = *run;
            sent.extend(receive(&heap, &mut inbox, &mut at, 1500, false));
        }
        let mut at = runs[2] + 2 * FRAME_SIZE;
        receive(&heap, &mut others, &mut at, (RUN_SIZE / 2) as u32, false);
        inbox.set_aside(&mut landing, Aside::Scattered).unwrap();
        assert!(!inbox.pieces.iter().any(|piece| piece.is_aside), "the runs are being filled");
        runs.iter().for_each(|run| heap.retire_landing_run(*run));
        let free = heap.runs().free_count();
        inbox.set_aside(&mut landing, Aside::Scattered).unwrap();
        assert_eq!(heap.runs().free_count(), free + 2 - 1, "two are free, and one has what was in them");
        landing.end_aside();
        let aside = inbox.pieces[0].extent.off;
        inbox.set_aside(&mut landing, Aside::Scattered).unwrap();
        assert_ne!(inbox.pieces[0].extent.off, aside);
        assert_eq!(heap.runs().free_count(), free + 2 - 1);
        assert_eq!(listed(&mut inbox, &heap, 0), sent);
        landing.tidy();
        assert!(landing.aside.is_some(), "it has what was received");
        inbox.clear(&heap);
        others.clear(&heap);
        landing.tidy();
        assert_eq!(heap.runs().free_count(), free + 3, "nothing is kept for nothing");
    }

    #[test]
    fn single_bytes_that_landed_apart_keep_a_frame_each_until_they_are_moved() {
        let heap = heap();
        let mut landing = Landing::new(Arc::clone(&heap));
        let mut at = heap.take_landing_run().unwrap();
        let mut inbox = Inbox::new(FRAME_SIZE);
        for _ in 0..100 {
            receive(&heap, &mut inbox, &mut at, 1, false);
        }
        assert_eq!((inbox.len(), inbox.pinned()), (100, 100 * FRAME_SIZE));
        inbox.consume(&heap, 10);
        assert_eq!(inbox.pinned(), 90 * FRAME_SIZE);
        inbox.set_aside(&mut landing, Aside::Smallest).unwrap();
        assert_eq!((inbox.len(), inbox.pinned()), (90, 90));
        inbox.clear(&heap);
        assert_eq!(inbox.pinned(), 0);
    }

    #[test]
    fn listing_what_is_new_costs_what_is_new() {
        let heap = heap();
        let mut at = heap.take_landing_run().unwrap();
        let (mut inbox, mut pieces) = (Inbox::default(), 0);
        for packet in 0..400_usize {
            receive(&heap, &mut inbox, &mut at, 10, false);
            pieces += inbox.segments(&heap, packet * 10).unwrap().len();
        }
        assert_eq!(inbox.pieces(), 400);
        assert!(pieces <= 800, "{pieces} pieces were listed of 400");
        inbox.clear(&heap);
    }

    #[test]
    fn many_pieces_are_copied_together_into_few() {
        let heap = heap();
        let mut landing = Landing::new(Arc::clone(&heap));
        let first = heap.take_landing_run().unwrap();
        let (mut inbox, mut at, mut model) = (Inbox::default(), first, Vec::new());
        for _ in 0..400 {
            model.extend(receive(&heap, &mut inbox, &mut at, 10, false));
        }
        inbox.gather(&mut landing).unwrap();
        assert_eq!((inbox.pieces(), listed(&mut inbox, &heap, 0)), (1, model));
        let held = (first..at).step_by(FRAME_SIZE as usize).filter(|off| heap.runs().frame_refs(*off) > 0);
        assert_eq!(held.count(), 0, "the frames that it came in are free");
        inbox.clear(&heap);
    }

    #[test]
    fn long_pieces_that_stayed_while_more_arrived_are_moved_when_nothing_does() {
        let heap = heap();
        let mut landing = Landing::new(Arc::clone(&heap));
        let first = heap.take_landing_run().unwrap();
        let (mut inbox, mut at) = (Inbox::default(), first);
        for len in [10, 5000, 20, 5000] {
            receive(&heap, &mut inbox, &mut at, len, false);
        }
        let held = |heap: &Heap| -> u32 {
            (first..at).step_by(FRAME_SIZE as usize).map(|off| heap.runs().frame_refs(off)).sum()
        };
        let before = held(&heap);
        inbox.set_aside(&mut landing, Aside::Smallest).unwrap();
        assert_eq!(held(&heap), before - 2);
        inbox.set_aside(&mut landing, Aside::All).unwrap();
        assert_eq!(held(&heap), 0, "nothing is left in the run it landed in");
        inbox.clear(&heap);
    }
}
