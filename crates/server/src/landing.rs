//! The heap as the transport's source of landing space, and the way out of it for slow clients' bytes.

use landfall_heap::{CopyPath, FRAME_SIZE, Heap};
use landfall_media::{Extent, MediaError, RUN_SIZE, Sum};
use landfall_sockets::Frames;
use std::sync::Arc;

/// Lends free runs of the heap to a transport.
#[derive(Debug)]
pub(crate) struct Landing {
    heap: Arc<Heap>,
    /// Where bytes of stalled requests are gathered, so that they do not pin whole landing runs.
    aside: Option<(u64, u64)>,
}

impl Landing {
    pub(crate) fn new(heap: Arc<Heap>) -> Self {
        Self { heap, aside: None }
    }

    /// Copies held bytes into a run shared by stalled requests; the copy is held, the original released.
    pub(crate) fn set_aside(&mut self, extent: Extent) -> Result<Option<Extent>, MediaError> {
        let len = u64::from(extent.len());
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
        // What is held is in memory; an error could only be of an extent that no run has.
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

/// The sum of what follows the first `count` bytes, where the whole one's is known.
fn sum_of_rest(heap: &Heap, whole: Extent, count: usize) -> Option<Sum> {
    let sum = whole.sum()?;
    let bytes = heap.media().bytes(whole).ok()?;
    Some(sum.of_part(bytes, count..bytes.len()))
}

/// What a connection has received and not yet consumed: held extents, in stream order.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    extents: std::collections::VecDeque<Extent>,
    len: usize,
}

impl Inbox {
    /// Bytes waiting.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn extent(&self, index: usize) -> Option<Extent> {
        self.extents.get(index).copied()
    }

    pub(crate) fn extents(&self) -> impl Iterator<Item = Extent> + '_ {
        self.extents.iter().copied()
    }

    /// Appends bytes that are held once. Neighbours become one extent, whose shared frame needs one hold.
    pub(crate) fn push(&mut self, heap: &Heap, extent: Extent) {
        self.len += extent.len() as usize;
        match self.extents.back_mut() {
            Some(last) if last.end() == extent.off && last.len().checked_add(extent.len()).is_some() => {
                if !extent.off.is_multiple_of(FRAME_SIZE) {
                    heap.runs().release(Extent::new(extent.off, 1));
                }
                last.grow(extent.len());
            }
            _ => self.extents.push_back(extent),
        }
    }

    /// Drops the first `count` bytes, releasing the frames that hold no later ones.
    pub(crate) fn consume(&mut self, heap: &Heap, mut count: usize) {
        self.len -= count;
        while count > 0 {
            let front = self.extents.front_mut().expect("no more is consumed than was received");
            if front.len() as usize <= count {
                count -= front.len() as usize;
                heap.runs().release(*front);
                self.extents.pop_front();
                continue;
            }
            let rest = Extent::new(front.off + count as u64, front.len() - count as u32)
                .with_sum(sum_of_rest(heap, *front, count));
            let first_kept = rest.off / FRAME_SIZE * FRAME_SIZE;
            if first_kept > front.off {
                heap.runs().release(Extent::new(front.off, (first_kept - front.off) as u32));
            }
            *front = rest;
            count = 0;
        }
    }

    /// Moves everything aside, out of landing runs. True if it was moved.
    pub(crate) fn set_aside(&mut self, landing: &mut Landing) -> Result<bool, MediaError> {
        for extent in &mut self.extents {
            match landing.set_aside(*extent)? {
                Some(copy) => *extent = copy,
                None => return Ok(false),
            }
        }
        Ok(true)
    }

    pub(crate) fn clear(&mut self, heap: &Heap) {
        self.consume(heap, self.len);
    }
}
