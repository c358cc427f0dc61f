//! Placing bytes that did not land in frames: densely, in runs that one writer fills.

use crate::copies::CopyPath;
use crate::error::HeapError;
use crate::extents::Extents;
use crate::fill::{Fill, STREAMS};
use crate::space::COMPACTOR_RESERVE_RUNS;
use crate::writer::Writer;
use landfall_media::{Extent, RUN_SIZE};

impl Writer {
    /// Copies `bytes` into frames, for a record that is appended later ([`crate::Source::Stored`]). The caller holds them, and
    /// releases them then.
    ///
    /// # Errors
    /// As [`Writer::append`].
    pub fn place_held(&mut self, bytes: &[u8]) -> Result<Extents, HeapError> {
        let mut held = Extents::new();
        let placed = self.place(bytes, CopyPath::Placed, &mut held);
        if placed.is_err() {
            held.iter().for_each(|extent| self.heap.runs.release(*extent));
        }
        placed
    }

    /// Copies `bytes` into frames, in as few extents as possible. The extents are held in `held`.
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
                self.open_fill(1)?;
            }
            let room = self.fill.map_or(0, Fill::room);
            let (now, later) = rest.split_at(room.min(rest.len()));
            extents.push(self.fill_with(now, held)?);
            rest = later;
        }
        self.heap.copies.add(path, bytes.len());
        Ok(extents)
    }

    /// Copies `bytes`, at most one run, into frames in one extent, held in `held`.
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
            self.open_fill(bytes.len())?;
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

    /// Selects the compactor's fill for bytes that have been moved this often before. Bytes that have survived more
    /// moves will probably live longer, so they go to separate runs.
    pub(crate) fn fill_for(&mut self, moved_before: u8) {
        let moves = (moved_before + 1).min(STREAMS as u8);
        if moves != self.moves {
            self.park_fill();
            self.moves = moves;
            self.fill = self.parked[usize::from(moves) - 1].take();
            if self.fill.is_some() {
                self.heap.space.note_compactor_fills(true);
            }
        }
    }

    /// If only the reserve is left, uses a parked fill with room instead of a new run.
    fn unpark_fill(&mut self, len: usize) -> bool {
        if !self.is_compactor() || self.heap.runs.free_count() > COMPACTOR_RESERVE_RUNS {
            return false;
        }
        let with_room = |fill: &mut Option<Fill>| fill.take_if(|fill| fill.room() >= len);
        self.fill = self.parked.iter_mut().find_map(with_room);
        if self.fill.is_some() {
            self.heap.space.note_compactor_fills(true);
        }
        self.fill.is_some()
    }

    fn park_fill(&mut self) {
        if let Some(fill) = self.fill.take() {
            self.parked[usize::from(self.moves) - 1] = Some(fill);
            self.end_run();
        }
    }

    /// Opens a run with room for `len` bytes.
    fn open_fill(&mut self, len: usize) -> Result<(), HeapError> {
        self.close_fill();
        if self.unpark_fill(len) {
            return Ok(());
        }
        let Some(run) = self.heap.take_data_run(self.reserve(self.urgency)) else {
            return Err(self.no_run());
        };
        self.begin_run(run);
        if self.is_compactor() {
            self.heap.runs.get(run).set_moves(self.moves);
        }
        self.fill = Some(Fill { run, used: 0 });
        Ok(())
    }

    /// Closes all fills, parked ones included, when the writer is dropped.
    pub(crate) fn close_fills(&mut self) {
        self.close_fill();
        for fill in std::mem::take(&mut self.parked).into_iter().flatten() {
            self.fill = Some(fill);
            self.heap.space.note_compactor_fills(true);
            self.close_fill();
        }
    }

    fn close_fill(&mut self) {
        if let Some(fill) = self.fill.take() {
            if self.is_compactor() {
                self.heap.runs.get(fill.run).pack(fill.used);
            }
            self.heap.runs.end_data(fill.run);
            self.end_run();
        }
    }
}
