//! Placing bytes that did not land in frames: densely, one after the other, in runs of the writer's own.

use crate::copies::CopyPath;
use crate::error::HeapError;
use crate::heap::Extents;
use crate::layout::RunId;
use crate::writer::Writer;
use landfall_media::{Extent, RUN_SIZE};

/// The run that a writer places bytes into.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fill {
    run: RunId,
    used: u32,
}

impl Fill {
    fn room(self) -> usize {
        RUN_SIZE as usize - self.used as usize
    }
}

impl Writer {
    /// Copies `bytes` into frames, in as few pieces as runs allow. The pieces are held in `held`.
    pub(crate) fn place(
        &mut self,
        bytes: &[u8],
        path: CopyPath,
        held: &mut Extents,
    ) -> Result<Extents, HeapError> {
        let mut extents = Extents::new();
        let mut rest = bytes;
        while !rest.is_empty() {
            if self.fill.is_none_or(|fill| fill.room() == 0) {
                self.open_fill()?;
            }
            let room = self.fill.map_or(0, Fill::room);
            let (now, later) = rest.split_at(room.min(rest.len()));
            extents.push(self.fill_with(now, held)?);
            rest = later;
        }
        self.heap.copies.add(path, bytes.len());
        Ok(extents)
    }

    /// Copies `bytes`, at most a run of them, into frames in one piece, held in `held`.
    pub(crate) fn place_contiguous(
        &mut self,
        bytes: &[u8],
        path: CopyPath,
        held: &mut Extents,
    ) -> Result<Extent, HeapError> {
        if bytes.len() as u64 > RUN_SIZE {
            return Err(HeapError::TooLarge {
                what: "an extent list",
                size: bytes.len() as u64,
                max: RUN_SIZE,
            });
        }
        if self.fill.is_none_or(|fill| fill.room() < bytes.len()) {
            self.open_fill()?;
        }
        self.heap.copies.add(path, bytes.len());
        self.fill_with(bytes, held)
    }

    fn fill_with(&mut self, bytes: &[u8], held: &mut Extents) -> Result<Extent, HeapError> {
        let fill = self.fill.as_mut().expect("a run is open for filling");
        let extent = Extent::new(fill.run.off() + u64::from(fill.used), bytes.len() as u32);
        self.heap.media.store(extent.off, bytes)?;
        fill.used += extent.len();
        self.heap.runs.hold(extent);
        held.push(extent);
        self.flush_data(extent);
        Ok(extent)
    }

    fn open_fill(&mut self) -> Result<(), HeapError> {
        self.close_fill();
        let Some(run) = self.heap.take_data_run(self.reserve(self.urgency)) else {
            return Err(self.no_run());
        };
        self.begin_run(run);
        self.fill = Some(Fill { run, used: 0 });
        Ok(())
    }

    pub(crate) fn close_fill(&mut self) {
        if let Some(fill) = self.fill.take() {
            if self.is_compactor() {
                self.heap.runs.get(fill.run).pack(fill.used);
            }
            self.heap.runs.end_data(fill.run);
            self.end_run();
        }
    }
}
