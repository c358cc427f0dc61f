//! What is durable, what is pending, and what has been promised.

use std::collections::BTreeMap;

use smallvec::SmallVec;

use super::chunks::{Chunks, Line, Version};
use crate::extent::Extent;
use crate::units::LINE_SIZE;

/// Maximum number of contents of one pending line that are kept, besides the durable one.
pub const VERSIONS_MAX: usize = 4;

/// Lines that flushes promised to one [`crate::Dirty`]: line index and contents.
#[derive(Clone, Debug, Default)]
pub(crate) struct Promises {
    lines: Vec<(u64, Version)>,
    /// The batch in which they were submitted to the device.
    pub(super) batch: Option<u64>,
}

/// Contents of a line since it was last durable: oldest first, never empty, the last one is current.
pub(super) type Versions = SmallVec<[Version; VERSIONS_MAX]>;

/// Durable bytes and pending lines of a region.
#[derive(Clone, Debug)]
pub(super) struct Lines {
    /// With the number of each line's store: a late fence must not restore old bytes.
    durable: Chunks,
    pending: BTreeMap<u64, Versions>,
    stores: u64,
}

impl Lines {
    /// A region with these durable bytes, and no pending lines.
    pub(super) fn new(durable: Chunks) -> Self {
        Self { durable, pending: BTreeMap::new(), stores: 0 }
    }

    /// Durable bytes of the whole region.
    pub(super) fn durable(&self) -> &Chunks {
        &self.durable
    }

    /// The durable bytes, to be changed without a store (damage).
    pub(super) fn durable_mut(&mut self) -> &mut Chunks {
        &mut self.durable
    }

    /// The region after a crash that lost everything pending.
    pub(super) fn without_pending(&self) -> Self {
        Self { durable: self.durable.clone(), pending: BTreeMap::new(), stores: self.stores }
    }

    /// A pending line has survived a crash with these contents.
    pub(super) fn survive(&mut self, index: u64, line: Line) {
        self.durable.set(index, &Version { store: self.stores, line });
    }

    /// Pending lines by index, in order.
    pub(super) fn pending(&self) -> &BTreeMap<u64, Versions> {
        &self.pending
    }

    /// Durable contents of a line.
    pub(super) fn durable_line(&self, index: u64) -> &Line {
        self.durable.line(index)
    }

    /// Records the new contents of every line of a range that was just stored to.
    pub(super) fn note_store(&mut self, extent: Extent, contents: impl Fn(u64) -> Line) {
        self.stores += 1;
        for index in lines_of(extent) {
            let line = contents(index);
            if *self.current(index) != line {
                remember(self.pending.entry(index).or_default(), Version { store: self.stores, line });
            }
        }
    }

    fn current(&self, index: u64) -> &Line {
        let newest = self.pending.get(&index).and_then(|versions| versions.last());
        newest.map_or_else(|| self.durable_line(index), |version| &version.line)
    }

    /// Promises the current contents of a range.
    pub(super) fn promise(&self, promises: &mut Promises, extent: Extent) {
        let lines = lines_of(extent);
        let newest = self.pending.range(lines).filter_map(|(index, v)| Some((*index, *v.last()?)));
        promises.lines.extend(newest);
    }

    /// Makes what was promised durable.
    pub(super) fn keep(&mut self, promises: Promises) {
        for (index, version) in promises.lines {
            self.make_durable(index, &version);
        }
    }

    fn make_durable(&mut self, index: u64, version: &Version) {
        if version.store <= self.durable.store(index) {
            return;
        }
        self.durable.set(index, version);
        if let Some(versions) = self.pending.get_mut(&index) {
            versions.retain(|newer| newer.store > version.store);
            if versions.is_empty() {
                self.pending.remove(&index);
            }
        }
    }

    /// The current contents of a line in memory, and the number of the store that wrote them.
    pub(super) fn version(&self, index: u64) -> Version {
        let durable = || Version { store: self.durable.store(index), line: *self.durable_line(index) };
        self.pending.get(&index).and_then(|versions| versions.last()).copied().unwrap_or_else(durable)
    }

    /// The device writes an older version of a line over newer durable contents. The contents in memory are pending
    /// again.
    pub(super) fn overwrite(&mut self, index: u64, older: &Version) {
        let now = self.version(index);
        if older.store >= self.durable.store(index) {
            return self.make_durable(index, older);
        }
        self.durable.set(index, older);
        if !self.pending.contains_key(&index) {
            remember(self.pending.entry(index).or_default(), now);
        }
    }

    /// Drops what of a range is not durable.
    pub(super) fn forget(&mut self, extent: Extent) {
        let lines: Vec<u64> = self.pending.range(lines_of(extent)).map(|(index, _)| *index).collect();
        lines.iter().for_each(|index| _ = self.pending.remove(index));
    }

    /// Offsets and lengths of all that may not be zero in memory.
    pub(super) fn stored(&self) -> impl Iterator<Item = (u64, u64)> {
        let durable = self.durable.stored().map(|(off, part)| (off, part.len() as u64));
        durable.chain(self.pending.keys().map(|index| (index * LINE_SIZE, LINE_SIZE)))
    }

    /// Extends the region with durable zeroes.
    pub(super) fn grow(&mut self, len: usize) {
        self.durable.grow(len);
    }
}

fn remember(versions: &mut Versions, version: Version) {
    if versions.len() == VERSIONS_MAX {
        versions.remove(0);
    }
    versions.push(version);
}

/// Indices of the lines that a range touches.
fn lines_of(extent: Extent) -> std::ops::Range<u64> {
    let end = if extent.is_empty() { extent.off / LINE_SIZE } else { extent.end().div_ceil(LINE_SIZE) };
    extent.off / LINE_SIZE..end
}
