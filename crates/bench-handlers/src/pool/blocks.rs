//! The pool: reads, commits and recovery.

use super::batch::{Batch, LINE};
use super::layout::{self, HEADER_BYTES, Layout, ROOT_AT, TOP_AT};
use super::log::{self, Record};
use crate::error::{HandlerError, Result};
use landfall_media::{BLOCK_SIZE, Dirty, Extent, LINE_SIZE, Media, Site};
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

/// Default size of one half of the log, bytes: room for several values of the maximum size.
pub const LOG_BYTES: u64 = 1 << 20;

/// A persistent object pool: blocks in a region, changed by transactions, made durable batch by batch.
///
/// [`Pool::begin`] opens a transaction. [`Transaction::keep`](super::Transaction::keep) adds it to the batch, and [`Pool::commit`] makes the
/// batch durable with one fence. Reads return kept changes, durable or not: a caller may use them in a reply only after
/// the commit.
pub struct Pool {
    pub(super) media: Arc<dyn Media>,
    pub(super) layout: Layout,
    pub(super) batch: Batch,
    /// What the next fence makes durable: the lines of the last batch at their home offsets.
    dirty: Dirty,
    /// Number of the last committed batch.
    number: u64,
    failed: bool,
}

impl Pool {
    /// Creates a pool in the whole region, which must begin with a zero word. Each half of its log takes `log_bytes`, a
    /// multiple of 4096: approximately the maximum size of a batch.
    ///
    /// # Errors
    /// [`HandlerError::Occupied`], [`HandlerError::Geometry`]; those of the medium.
    pub fn create(media: Arc<dyn Media>, log_bytes: u64) -> Result<Self> {
        let layout = Layout::new(media.len() / LINE_SIZE * LINE_SIZE, log_bytes)?;
        if media.bytes(Extent::new(0, 8))? != [0; 8] {
            return Err(HandlerError::Occupied);
        }
        format(&*media, &layout)?;
        Ok(Self::with(media, layout, 0))
    }

    /// Opens the region's pool. It first completes what a crash has interrupted.
    ///
    /// # Errors
    /// [`HandlerError::NoPool`], [`HandlerError::Unknown`], [`HandlerError::Damaged`]; those of the medium.
    pub fn open(media: Arc<dyn Media>) -> Result<Self> {
        let header = media.bytes(Extent::new(0, HEADER_BYTES as u32))?;
        let header = header.first_chunk().expect("as long as asked for");
        let layout = Layout::decode(header, media.len())?;
        let number = recover(&*media, &layout)?;
        Ok(Self::with(media, layout, number))
    }

    fn with(media: Arc<dyn Media>, layout: Layout, number: u64) -> Self {
        Self { media, layout, batch: Batch::default(), dirty: Dirty::new(), number, failed: false }
    }

    /// The medium that holds the pool.
    pub fn media(&self) -> &Arc<dyn Media> {
        &self.media
    }

    /// Offset of the root block; 0 if there is none.
    ///
    /// # Errors
    /// Those of the medium.
    pub fn root(&self) -> Result<u64> {
        self.state(ROOT_AT)
    }

    // ---- reading ----

    /// Bytes of the heap, starting at the 8-byte aligned offset `off`.
    ///
    /// # Errors
    /// [`HandlerError::Damaged`] for a range outside the heap or not aligned; those of the medium.
    pub fn bytes(&self, off: u64, len: u32) -> Result<Cow<'_, [u8]>> {
        self.check_heap(off, u64::from(len))?;
        self.any_bytes(off, len)
    }

    /// Words of the heap, starting at the 8-byte aligned offset `off`.
    ///
    /// # Errors
    /// As [`Pool::bytes`].
    pub fn words<const N: usize>(&self, off: u64) -> Result<[u64; N]> {
        self.check_heap(off, N as u64 * 8)?;
        let home = self.media.bytes(Extent::new(off, N as u32 * 8))?;
        let mut words = [[0; 8]; N];
        words.as_flattened_mut().copy_from_slice(home);
        self.batch.patch(off, words.as_flattened_mut());
        Ok(words.map(u64::from_le_bytes))
    }

    /// One word of the heap.
    ///
    /// # Errors
    /// As [`Pool::bytes`].
    pub fn word(&self, off: u64) -> Result<u64> {
        Ok(self.words::<1>(off)?[0])
    }

    /// More blocks than the heap can hold: a longer chain contains a cycle.
    pub fn blocks_max(&self) -> u64 {
        (self.layout.len - self.layout.heap_at()) / LINE_SIZE
    }

    pub(super) fn heap(&self) -> Range<u64> {
        self.layout.heap_at()..self.layout.len
    }

    fn any_bytes(&self, off: u64, len: u32) -> Result<Cow<'_, [u8]>> {
        let home = self.media.bytes(Extent::new(off, len))?;
        if !self.batch.touches(off, len as usize) {
            return Ok(Cow::Borrowed(home));
        }
        let mut bytes = home.to_vec();
        self.batch.patch(off, &mut bytes);
        Ok(Cow::Owned(bytes))
    }

    pub(super) fn state(&self, off: u64) -> Result<u64> {
        let bytes = self.any_bytes(off, 8)?;
        Ok(u64::from_le_bytes(*bytes.first_chunk().expect("as long as asked for")))
    }

    pub(super) fn check_heap(&self, off: u64, len: u64) -> Result<()> {
        let end = off.checked_add(len).filter(|end| *end <= self.layout.len);
        if off < self.layout.heap_at() || !off.is_multiple_of(8) || end.is_none() {
            return Err(HandlerError::damaged("reference out of the heap", off));
        }
        Ok(())
    }

    // ---- changing ----

    /// Lines of 64 bytes that the batch has changed so far.
    pub fn batch_lines(&self) -> usize {
        self.batch.len()
    }

    /// Discards the batch: the pool is in the state of the last commit.
    pub fn abandon(&mut self) {
        self.batch.clear();
    }

    /// Makes the batch durable with one fence, which blocks where the medium is a file. Does nothing for an empty
    /// batch.
    ///
    /// # Errors
    /// Those of the medium; the pool is then closed, and only opening it again shows whether the batch is durable.
    /// [`HandlerError::Closed`] after that.
    pub fn commit(&mut self) -> Result<()> {
        self.check_open()?;
        if self.batch.is_empty() {
            return Ok(());
        }
        let done = self.write_batch();
        self.failed = done.is_err();
        self.batch.clear();
        done
    }

    fn write_batch(&mut self) -> Result<()> {
        let number = self.number + 1;
        let record = log::encode(number, &self.batch);
        let at = Extent::new(self.layout.half_of(number), record.len() as u32);
        self.media.store(at.off, &record)?;
        self.media.flush(&mut self.dirty, Site::Record, at);
        self.media.fence(&mut self.dirty, Site::Commit)?;
        self.number = number;
        let record = Record::parse(&record).expect("it was just made");
        apply_home(&*self.media, &self.layout, &record, &mut self.dirty)
    }

    pub(super) fn check_open(&self) -> Result<()> {
        if self.failed { Err(HandlerError::Closed) } else { Ok(()) }
    }
}

/// Creates a pool, in two steps.
fn format(media: &dyn Media, layout: &Layout) -> Result<()> {
    let mut header = layout.encode();
    header[..8].fill(0);
    let mut dirty = Dirty::new();
    media.zero(Extent::new(0, BLOCK_SIZE as u32))?;
    for parity in 0..2 {
        let line = Extent::new(layout.half_of(parity), LINE as u32);
        media.zero(line)?;
        media.flush(&mut dirty, Site::Superblock, line);
    }
    media.store(0, &header)?;
    media.store_u64(TOP_AT, layout.heap_at())?;
    media.flush(&mut dirty, Site::Superblock, Extent::new(0, BLOCK_SIZE as u32));
    media.fence(&mut dirty, Site::SuperblockFence)?;
    media.store_u64(0, layout::MAGIC)?;
    media.flush(&mut dirty, Site::Superblock, Extent::new(0, 8));
    Ok(media.fence(&mut dirty, Site::SuperblockFence)?)
}

/// Applies the batches in the log to their home offsets, and returns the number of the last one.
fn recover(media: &dyn Media, layout: &Layout) -> Result<u64> {
    let mut found = Vec::new();
    let mut dirty = Dirty::new();
    for parity in 0..2 {
        let at = layout.half_of(parity);
        let half = media.bytes(Extent::new(at, layout.log_bytes as u32))?;
        if let Some(record) = Record::parse(half).filter(|record| record.number % 2 == parity) {
            media.flush(&mut dirty, Site::Record, Extent::new(at, record.len));
            found.push(record);
        }
    }
    media.fence(&mut dirty, Site::Order)?;
    found.sort_by_key(|record| record.number);
    if let [older, newer] = &found[..]
        && older.number.checked_add(1) != Some(newer.number)
    {
        return Err(HandlerError::damaged("number of a batch", layout.half_of(older.number)));
    }
    for record in &found {
        apply_home(media, layout, record, &mut dirty)?;
    }
    media.fence(&mut dirty, Site::Order)?;
    Ok(found.last().map_or(0, |newest| newest.number))
}

fn apply_home(media: &dyn Media, layout: &Layout, record: &Record<'_>, dirty: &mut Dirty) -> Result<()> {
    record.entries(layout, |off, bytes| {
        media.store(off, bytes)?;
        media.flush(dirty, Site::Data, Extent::new(off, bytes.len() as u32));
        Ok(())
    })
}
