//! Values that the node before has sent, where they landed.

use super::stop::Stop;
use landfall_chain::{Record, WireError};
use landfall_fs::FilesRecord;
use landfall_heap::{Crcs, Extents, Heap, HeapError, KeptCrcs, PIECES_FROM, Source};
use landfall_kv::SetRequest;
use landfall_media::Chain;
use std::ops::Range;

/// A value where it landed, verified.
pub(super) struct Landed {
    pub(super) extents: Extents,
    crcs: Option<KeptCrcs>,
}

impl Landed {
    pub(super) fn of(
        heap: &Heap,
        stream: &Chain<'_>,
        record: &Record<'_>,
        value: Range<usize>,
    ) -> Result<Self, Stop> {
        let (mut extents, len) = (Extents::new(), value.len() as u64);
        stream.extents(value, |extent| extents.push(extent));
        let crcs = if len < PIECES_FROM {
            KeptCrcs::Whole(heap.crc_of(&extents).map_err(HeapError::from)?)
        } else {
            heap.crcs_of(&extents).map_err(HeapError::from)?
        };
        if crcs.get().whole() != record.value_crc {
            return Err(WireError::Checksum.into());
        }
        Ok(Self { extents, crcs: (!heap.trusts_sums()).then_some(crcs) })
    }

    pub(super) fn of_files<'a>(&'a self, record: &Record<'a>) -> FilesRecord<'a> {
        FilesRecord {
            space: record.space,
            key: record.key,
            aux: record.aux,
            mark: record.mark,
            arrival_ns: record.arrival_ns,
            value: if record.value_len == 0 { Source::None } else { self.source() },
        }
    }

    pub(super) fn source(&self) -> Source<'_> {
        Source::Landed { extents: &self.extents, crc: self.crcs() }
    }

    pub(super) fn crcs(&self) -> Option<Crcs<'_>> {
        self.crcs.as_ref().map(KeptCrcs::get)
    }

    pub(super) fn request<'a>(&'a self, record: &Record<'a>) -> SetRequest<'a> {
        SetRequest {
            space: record.space,
            key: record.key,
            key_at: None,
            value: self.source(),
            expiry_ms: record.mark,
            arrival_ns: record.arrival_ns,
        }
    }
}
