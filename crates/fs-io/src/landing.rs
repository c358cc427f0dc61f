//! Where a worker receives requests: frames of runs that the heap lends it.
//!
//! The data of a WRITE begin at the next free frame and stay there. Any other request spills into the frames and leaves
//! them free. Where the heap has no run to lend, requests are received beside the region, so that a full file system
//! still reads, unlinks and truncates.

use crate::sys::Image;
use landfall_heap::{CopyPath, FRAME_SIZE, Heap, HeapError};
use landfall_media::{Extent, RUN_SIZE};
use smallvec::{SmallVec, smallvec};
use std::io::IoSliceMut;
use std::sync::Arc;

/// Extents of one WRITE: it may continue in a second run.
pub(crate) type Landed = SmallVec<[Extent; 2]>;

/// Where the data of a WRITE are.
pub(crate) trait Data {
    /// Holds the data of the WRITE of `len` bytes. The caller releases the hold.
    ///
    /// # Errors
    /// [`HeapError::Full`], [`HeapError::Cleaning`] if there are no frames for what was received beside the region; the
    /// medium's. Try again.
    fn hold(&mut self, len: u32) -> Result<Landed, HeapError>;

    /// Releases what [`Self::hold`] has held. The frames of what was `kept` by a record are not used again.
    fn release(&mut self, landed: &Landed, kept: bool);
}

/// Data that wait in their frames for the request that has brought them.
pub(crate) struct SetAside {
    heap: Arc<Heap>,
    landed: Landed,
}

impl SetAside {
    /// Of a request that has brought none.
    pub(crate) fn nothing(heap: &Arc<Heap>) -> Self {
        Self { heap: Arc::clone(heap), landed: Landed::new() }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.landed.iter().map(|extent| u64::from(extent.len())).sum()
    }
}

impl Data for SetAside {
    fn hold(&mut self, _: u32) -> Result<Landed, HeapError> {
        self.landed.iter().for_each(|extent| self.heap.runs().hold(*extent));
        Ok(self.landed.clone())
    }

    fn release(&mut self, landed: &Landed, _: bool) {
        landed.iter().for_each(|extent| self.heap.runs().release(*extent));
    }
}

impl Drop for SetAside {
    fn drop(&mut self) {
        self.landed.iter().for_each(|extent| self.heap.runs().release(*extent));
    }
}

/// The run that is being filled.
#[derive(Clone, Copy, Debug)]
struct Filling {
    run: u64,
    filled: u64,
}

impl Filling {
    fn rest(self) -> Extent {
        extent(self.run + self.filled, RUN_SIZE - self.filled)
    }
}

fn extent(off: u64, len: u64) -> Extent {
    Extent::new(off, u32::try_from(len).expect("parts of a run have less than 4 GiB"))
}

/// A worker's landing runs.
#[derive(Debug)]
pub(crate) struct Landing {
    heap: Arc<Heap>,
    image: Image,
    /// Bytes that a request may take.
    needed: u64,
    current: Option<Filling>,
    /// Follows the current run.
    next: Option<u64>,
    /// Memory beside the region; empty until it is needed.
    beside: Vec<u8>,
    ahead: Ahead,
}

/// What is done with a run before a request is received into it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ahead {
    Nothing,
    /// Its pages are mapped. The kernel fails a request (`EIO`) if its receiver is killed while a page is mapped for it.
    Mapped,
}

impl Landing {
    /// Landing runs for requests of up to `needed` bytes, at most a run's.
    pub(crate) fn new(heap: Arc<Heap>, image: Image, needed: usize, ahead: Ahead) -> Self {
        let needed = needed as u64;
        assert!(needed <= RUN_SIZE, "a request goes on in one further run at most");
        Self { heap, image, needed, current: None, next: None, beside: Vec::new(), ahead }
    }

    /// Memory for the next request.
    pub(crate) fn frames(&mut self) -> SmallVec<[IoSliceMut<'_>; 2]> {
        if self.borrow_runs() {
            // It was needed for a request that did not come.
            self.beside.clear();
            return self
                .space(self.needed)
                .into_iter()
                .map(|extent| self.image.lent(extent, &*self))
                .collect();
        }
        self.beside.resize(usize::try_from(self.needed).unwrap_or(usize::MAX), 0);
        smallvec![IoSliceMut::new(&mut self.beside)]
    }

    /// Takes in the data of a WRITE that came in other memory, as if they had been received by [`Self::frames`].
    pub(crate) fn land(&mut self, data: &[u8]) {
        let mut rest = data;
        for frame in &mut self.frames() {
            let (here, behind) = rest.split_at(rest.len().min(frame.len()));
            frame[..here.len()].copy_from_slice(here);
            rest = behind;
        }
        self.heap.copies.add(CopyPath::Placed, data.len() - rest.len());
    }

    /// Borrows runs until a request fits; false if there are none.
    fn borrow_runs(&mut self) -> bool {
        if self.current.is_none() {
            self.current = self.take_run().map(|run| Filling { run, filled: 0 });
        }
        let Some(current) = self.current else { return false };
        let rest = u64::from(current.rest().len());
        if rest < self.needed && self.next.is_none() {
            self.next = self.take_run();
        }
        rest >= self.needed || self.next.is_some()
    }

    fn take_run(&self) -> Option<u64> {
        let run = self.heap.take_landing_run()?;
        if self.ahead == Ahead::Mapped {
            self.image.populate(extent(run, RUN_SIZE));
        }
        Some(run)
    }

    /// The next `len` bytes of the borrowed runs.
    fn space(&self, len: u64) -> Landed {
        let Some(current) = self.current else { return Landed::new() };
        let first = current.rest();
        let here = len.min(u64::from(first.len()));
        let mut space: Landed = smallvec![extent(first.off, here)];
        if let Some(next) = self.next.filter(|_| here < len) {
            space.push(extent(next, len - here));
        }
        space
    }

    /// Sets the data of the WRITE of `len` bytes aside that was received last. The next request is received behind them.
    ///
    /// # Errors
    /// As [`Data::hold`].
    pub(crate) fn set_aside(&mut self, len: u32) -> Result<SetAside, HeapError> {
        let landed = self.hold(len)?;
        landed.iter().for_each(|extent| self.advance(*extent));
        Ok(SetAside { heap: Arc::clone(&self.heap), landed })
    }

    /// Copies what was received beside the region to its place.
    fn place(&self, landed: &Landed) -> Result<(), HeapError> {
        let mut bytes = &self.beside[..];
        for extent in landed {
            let (here, rest) = bytes.split_at(extent.len() as usize);
            self.heap.media().store(extent.off, here)?;
            self.heap.copies.add(CopyPath::Stalled, here.len());
            bytes = rest;
        }
        Ok(())
    }

    fn advance(&mut self, extent: Extent) {
        let Some(current) = &mut self.current else { return };
        current.filled = (extent.end() - current.run).next_multiple_of(FRAME_SIZE);
        if current.filled >= RUN_SIZE {
            self.heap.retire_landing_run(current.run);
            self.current = self.next.take().map(|run| Filling { run, filled: 0 });
        }
    }

    /// The request has been answered: the memory beside the region is not needed for it any more.
    pub(crate) fn answered(&mut self) {
        self.beside.clear();
    }
}

impl Data for Landing {
    /// Data that were received beside the region are copied into frames.
    fn hold(&mut self, len: u32) -> Result<Landed, HeapError> {
        let is_beside = !self.beside.is_empty();
        if is_beside && !self.borrow_runs() {
            let waits = self.heap.may_wait_for_any();
            return Err(if waits { HeapError::Cleaning } else { HeapError::Full });
        }
        let landed = self.space(u64::from(len));
        if is_beside {
            self.place(&landed)?;
        }
        landed.iter().for_each(|extent| self.heap.runs().hold(*extent));
        Ok(landed)
    }

    fn release(&mut self, landed: &Landed, kept: bool) {
        landed.iter().for_each(|extent| self.heap.runs().release(*extent));
        if kept {
            landed.iter().for_each(|extent| self.advance(*extent));
        }
    }
}

impl Drop for Landing {
    fn drop(&mut self) {
        let runs = self.current.take().map(|current| current.run).into_iter().chain(self.next.take());
        runs.for_each(|run| self.heap.retire_landing_run(run));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use landfall_heap::{NewRegion, Region};
    use landfall_media::OpenOptions;

    const NEEDED: usize = 64 << 10;

    fn landing(dir: &std::path::Path) -> Landing {
        let options = OpenOptions { create: Some(48 * RUN_SIZE), ..OpenOptions::default() };
        let media = landfall_media::open(&dir.join("region"), &options).expect("opens").media;
        let new = NewRegion { salt: [1; 16], hash_seed: 2, created_ms: 3 };
        landfall_heap::create(&*media, &new).expect("a new region");
        let (heap, _) = Region::run(media, Vec::new()).expect("opens");
        let image = Image::new(heap.media().image().expect("a file has an image"));
        Landing::new(heap, image, NEEDED, Ahead::Mapped)
    }

    #[test]
    fn what_was_meant_for_memory_beside_the_region_does_not_replace_what_landed() {
        let dir = tempfile::tempdir().expect("a folder");
        let mut landing = landing(dir.path());
        let heap = Arc::clone(&landing.heap);
        let taken: Vec<u64> = std::iter::from_fn(|| heap.take_landing_run()).collect();
        assert!(!taken.is_empty());
        landing.frames()[0].fill(1);
        // No request came. Meanwhile there are runs again.
        taken.into_iter().for_each(|run| heap.retire_landing_run(run));
        landing.frames()[0][..5000].fill(2);
        let landed = landing.hold(5000).expect("it has landed");
        let bytes = heap.media().bytes(landed[0]).expect("bytes");
        assert!(bytes.len() == 5000 && bytes.iter().all(|byte| *byte == 2), "as they landed");
        landing.release(&landed, false);
    }

    #[test]
    fn data_from_other_memory_land_where_the_kernel_would_put_them_and_are_counted() {
        let dir = tempfile::tempdir().expect("a folder");
        let mut landing = landing(dir.path());
        let heap = Arc::clone(&landing.heap);
        let data: Vec<u8> = (0..NEEDED).map(|at| ((at * 31) >> 3) as u8).collect();
        // The last of these goes on in a second run.
        for round in 1..=20 {
            landing.land(&data[..60_000]);
            let landed = landing.hold(60_000).expect("it has landed");
            let bytes: Vec<&[u8]> =
                landed.iter().map(|extent| heap.media().bytes(*extent).expect("bytes")).collect();
            assert!(bytes.concat() == data[..60_000]);
            landing.release(&landed, true);
            assert_eq!(heap.copies.get(CopyPath::Placed), round * 60_000);
        }
        assert_eq!(heap.copies.get(CopyPath::Stalled), 0);
    }
}
