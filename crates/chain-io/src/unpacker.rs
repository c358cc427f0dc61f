//! Unpacks what the node before sends, into frames: `docs/format/chain.md`, "Packing".

use landfall_chain::{BLOCK_BYTES, BLOCK_HEADER_BYTES, BlockHeader, WireError, block_lens, values_len};
use landfall_heap::Heap;
use landfall_media::{Chain, Extent, MediaError, RUN_SIZE, Segment};
use std::ops::Range;
use std::sync::Arc;

/// Why a payload is not unpacked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UnpackError {
    /// There is no run to unpack into.
    #[error("there is no room to unpack what the node before has sent")]
    NoRoom,
    /// It is malformed.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// The medium's.
    #[error(transparent)]
    Media(#[from] MediaError),
}

/// Values that were unpacked into frames, which are held as long as this lives.
#[derive(Debug)]
pub struct Unpacked {
    heap: Arc<Heap>,
    /// In the order of the values; each within a run.
    extents: Vec<Extent>,
}

impl Unpacked {
    /// The values, one behind the other.
    ///
    /// # Errors
    /// The medium's.
    pub fn segments(&self) -> Result<Vec<Segment<'_>>, MediaError> {
        let media = self.heap.media();
        self.extents.iter().map(|extent| Ok(Segment::new(extent.off, media.bytes(*extent)?))).collect()
    }
}

impl Drop for Unpacked {
    fn drop(&mut self) {
        self.extents.iter().for_each(|extent| self.heap.runs().release(*extent));
    }
}

/// Fills runs with what one connection brings.
#[derive(Debug)]
pub struct Unpacker {
    heap: Arc<Heap>,
    filling: Option<Filling>,
    block: Vec<u8>,
}

/// A run that is filled.
#[derive(Clone, Copy, Debug)]
struct Filling {
    run: u64,
    /// Bytes that are used up to here.
    used: u64,
}

impl Unpacker {
    /// It has no run before something is unpacked.
    pub fn new(heap: Arc<Heap>) -> Self {
        Self { heap, filling: None, block: Vec::new() }
    }

    /// Unpacks the payload of a message with this head, which lies at `payload` in the stream. The values are not verified.
    ///
    /// # Errors
    /// [`UnpackError`]. After [`UnpackError::NoRoom`] it may be tried again.
    pub fn unpack(
        &mut self,
        head: &[u8],
        stream: &Chain<'_>,
        payload: Range<usize>,
    ) -> Result<Unpacked, UnpackError> {
        let len = values_len(head, payload.len() as u64)?;
        let mut unpacked = Unpacked { heap: Arc::clone(&self.heap), extents: Vec::new() };
        // What was unpacked and is not held when an error ends this is written over.
        let mut open = None;
        let mut at = payload.start;
        for block_len in block_lens(len) {
            at = self.block(stream, at..payload.end, block_len)?;
            self.place(&mut open, &mut unpacked)?;
        }
        self.hold(&mut open, &mut unpacked);
        if at == payload.end { Ok(unpacked) } else { Err(WireError::Length.into()) }
    }

    /// Unpacks the block that begins the range; returns where the next one begins.
    fn block(
        &mut self,
        stream: &Chain<'_>,
        from: Range<usize>,
        block_len: usize,
    ) -> Result<usize, WireError> {
        let header_end = from.start + BLOCK_HEADER_BYTES;
        if header_end > from.end {
            return Err(WireError::Length);
        }
        let header = stream.gather(from.start..header_end);
        let header = BlockHeader::decode(header[..].try_into().map_err(|_| WireError::Length)?, block_len)?;
        let end = header_end + header.len(block_len);
        if end > from.end {
            return Err(WireError::Length);
        }
        let bytes = stream.gather(header_end..end);
        self.block.resize(BLOCK_BYTES, 0);
        self.block.truncate(block_len);
        match header {
            BlockHeader::Stored => self.block.copy_from_slice(&bytes),
            BlockHeader::Packed(_) => {
                let unpacked = lz4_flex::block::decompress_into(&bytes, &mut self.block);
                if unpacked.ok() != Some(block_len) {
                    return Err(WireError::Length);
                }
            }
        }
        Ok(end)
    }

    /// Writes the block behind what is `open`, which is not held yet.
    fn place(&mut self, open: &mut Option<Extent>, unpacked: &mut Unpacked) -> Result<(), UnpackError> {
        let mut rest = 0;
        while rest < self.block.len() {
            let Filling { run, used } = self.filling(open, unpacked)?;
            let at = open.map_or(run + used, Extent::end);
            let len = (self.block.len() - rest).min((run + RUN_SIZE - at) as usize);
            self.heap.media().store(at, &self.block[rest..rest + len])?;
            open.get_or_insert(Extent::new(at, 0)).grow(len as u32);
            rest += len;
        }
        Ok(())
    }

    /// The run that is filled, with room in it.
    fn filling(
        &mut self,
        open: &mut Option<Extent>,
        unpacked: &mut Unpacked,
    ) -> Result<Filling, UnpackError> {
        if let Some(filling) = self.filling {
            let used = open.map_or(filling.used, |open| open.end() - filling.run);
            if used < RUN_SIZE {
                return Ok(filling);
            }
            self.hold(open, unpacked);
            self.retire();
        }
        let run = self.heap.take_landing_run().ok_or(UnpackError::NoRoom)?;
        Ok(*self.filling.insert(Filling { run, used: 0 }))
    }

    /// Holds what is open.
    fn hold(&mut self, open: &mut Option<Extent>, unpacked: &mut Unpacked) {
        let (Some(extent), Some(filling)) = (open.take(), &mut self.filling) else { return };
        self.heap.runs().hold(extent);
        filling.used = extent.end() - filling.run;
        unpacked.extents.push(extent);
    }

    fn retire(&mut self) {
        if let Some(filling) = self.filling.take() {
            self.heap.retire_landing_run(filling.run);
        }
    }
}

impl Drop for Unpacker {
    fn drop(&mut self) {
        self.retire();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packer::tests::{noisy, pack};
    use landfall_chain::{Record, RecordKind};
    use landfall_heap::{NewRegion, Region};
    use landfall_media::OpenOptions;
    use proptest::prelude::*;

    fn heap(dir: &std::path::Path) -> Arc<Heap> {
        let options = OpenOptions { create: Some(48 * RUN_SIZE), ..OpenOptions::default() };
        let media = landfall_media::open(&dir.join("region"), &options).expect("opens").media;
        let new = NewRegion { salt: [1; 16], hash_seed: 2, created_ms: 3 };
        landfall_heap::create(&*media, &new).expect("a new region");
        Region::run(media, Vec::new()).expect("opens").0
    }

    fn head(values: &[Vec<u8>]) -> Vec<u8> {
        let (mut head, kind) = (Vec::new(), RecordKind::Put);
        for value in values {
            let value_len = value.len() as u32;
            let (more, space, aux, arrival_ns, mark, value_crc) = (false, 0, 0, 0, 0, 0);
            Record { kind, more, space, aux, arrival_ns, mark, key: b"k", value_len, value_crc }
                .encode(&mut head);
        }
        head
    }

    fn slices(values: &[Vec<u8>]) -> Vec<&[u8]> {
        values.iter().map(|value| &value[..]).collect()
    }

    /// Unpacks what arrives in pieces of `step` bytes.
    fn unpack(
        unpacker: &mut Unpacker,
        head: &[u8],
        packed: &[u8],
        step: usize,
    ) -> Result<Unpacked, UnpackError> {
        let segments: Vec<Segment<'_>> = packed
            .chunks(step)
            .enumerate()
            .map(|(at, part)| Segment::new((at * step) as u64, part))
            .collect();
        unpacker.unpack(head, &Chain::new(&segments), 0..packed.len())
    }

    fn bytes(unpacked: &Unpacked) -> Vec<u8> {
        unpacked.segments().unwrap().iter().flat_map(|segment| segment.bytes).copied().collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn values_come_as_they_were_and_leave_nothing_behind(
            lens in prop::collection::vec(0..300_000_usize, 1..6), one_in in 2..10_usize, step in 100..5000_usize,
        ) {
            let dir = tempfile::tempdir().unwrap();
            let heap = heap(dir.path());
            let free = heap.free_bytes();
            let mut unpacker = Unpacker::new(Arc::clone(&heap));
            let mut kept = Vec::new();
            // What comes later lies behind what came before, and changes nothing of it.
            for seed in 0..3 {
                let values: Vec<Vec<u8>> = lens.iter().map(|len| noisy(*len, one_in, seed)).collect();
                let packed = pack(&slices(&values));
                prop_assume!(lens.iter().sum::<usize>() >= 4096);
                let unpacked = unpack(&mut unpacker, &head(&values), &packed.unwrap(), step).unwrap();
                kept.push((unpacked, values.concat()));
            }
            for (unpacked, values) in &kept {
                prop_assert!(bytes(unpacked) == *values);
            }
            drop((kept, unpacker));
            prop_assert_eq!(heap.free_bytes(), free);
        }

        #[test]
        fn damaged_bytes_are_refused_or_have_the_length_of_the_values(
            at in any::<prop::sample::Index>(), change: u8, cut in 0..3_usize, len in 4096..200_000_usize,
        ) {
            let dir = tempfile::tempdir().unwrap();
            let heap = heap(dir.path());
            let free = heap.free_bytes();
            let values = [noisy(len, 3, 9)];
            let mut packed = pack(&slices(&values)).unwrap();
            let place = at.index(packed.len());
            match cut {
                0 => packed[place] ^= change,
                1 => packed.truncate(place),
                _ => packed.insert(place, change),
            }
            let mut unpacker = Unpacker::new(Arc::clone(&heap));
            match unpack(&mut unpacker, &head(&values), &packed, 1000) {
                Ok(unpacked) => prop_assert_eq!(bytes(&unpacked).len(), len),
                Err(error) => prop_assert!(matches!(error, UnpackError::Wire(_)), "{error}"),
            }
            drop(unpacker);
            prop_assert_eq!(heap.free_bytes(), free);
        }
    }

    #[test]
    fn a_payload_that_unpacks_to_another_length_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let mut unpacker = Unpacker::new(heap(dir.path()));
        let values = [noisy(150_000, 4, 1)];
        let packed = pack(&slices(&values)).unwrap();
        for len in [149_999, 150_001, 131_072, 250_000] {
            let other = head(&[vec![0; len]]);
            let refused = unpack(&mut unpacker, &other, &packed, 4096);
            assert!(matches!(refused, Err(UnpackError::Wire(WireError::Length))), "{len}: {refused:?}");
        }
        let longer = [&packed[..], &[0]].concat();
        assert!(unpack(&mut unpacker, &head(&values), &longer, 4096).is_err());
        assert!(unpack(&mut unpacker, &head(&values), &packed[..packed.len() - 1], 4096).is_err());
        assert!(unpack(&mut unpacker, &head(&values), &packed, 4096).is_ok());
    }

    #[test]
    fn without_room_it_is_tried_again() {
        let dir = tempfile::tempdir().unwrap();
        let heap = heap(dir.path());
        let taken: Vec<u64> = std::iter::from_fn(|| heap.take_landing_run()).collect();
        let mut unpacker = Unpacker::new(Arc::clone(&heap));
        let values = [noisy(2 << 20, 4, 1)];
        let (packed, head) = (pack(&slices(&values)).unwrap(), head(&values));
        assert!(matches!(unpack(&mut unpacker, &head, &packed, 4096), Err(UnpackError::NoRoom)));
        heap.retire_landing_run(taken[0]);
        let one_is_too_few = unpack(&mut unpacker, &head, &packed, 4096);
        assert!(matches!(one_is_too_few, Err(UnpackError::NoRoom)));
        taken[1..].iter().for_each(|run| heap.retire_landing_run(*run));
        assert!(bytes(&unpack(&mut unpacker, &head, &packed, 4096).unwrap()) == values[0]);
    }
}
