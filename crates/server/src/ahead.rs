//! The checksum of a long value, computed while the value is arriving. When the last byte arrives, little is left to
//! do, and each byte is in the cache when it is read.

use crate::landing::Inbox;
use landfall_heap::{ArrivingCrcs, Crcs, Heap, PIECES_FROM, PieceCrc};
use landfall_media::{Extent, MediaError};
use std::ops::Range;
use std::sync::Arc;

/// Shorter values are checksummed when they are written: they are still in the cache then.
const LONG_MIN: usize = PIECES_FROM as usize;

/// State of the checksum of the value that a connection waits for.
#[derive(Debug)]
pub(crate) struct Ahead {
    /// Where the value lies in the bytes that the connection has received and not consumed.
    value: Range<usize>,
    /// All bytes of the value before this position are in the checksum.
    done: usize,
    /// The extent that contains this position, and the offset in it.
    extent: usize,
    skip: usize,
    crcs: ArrivingCrcs,
}

/// The CRC-32C of each piece of a range of a connection's received bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownCrc {
    value: Range<usize>,
    parts: Arc<[PieceCrc]>,
}

impl KnownCrc {
    /// The checksums of `value`, if it is the known one.
    pub(crate) fn of(&self, value: &Range<usize>) -> Option<Crcs<'_>> {
        (self.value == *value).then(|| Crcs::Parts(&self.parts))
    }
}

impl Ahead {
    /// The state for an awaited value; `None` if the value is too short.
    pub(crate) fn of(value: Range<usize>) -> Option<Self> {
        let crcs = ArrivingCrcs::default();
        (value.len() >= LONG_MIN).then_some(Self { value, done: 0, extent: 0, skip: 0, crcs })
    }

    /// True if the state belongs to this value.
    pub(crate) fn is_of(&self, value: &Range<usize>) -> bool {
        self.value == *value
    }

    /// Adds the bytes that have arrived since the last call.
    pub(crate) fn advance(&mut self, inbox: &Inbox, heap: &Heap) -> Result<(), MediaError> {
        while self.done < self.value.end {
            let Some(extent) = inbox.extent(self.extent) else { break };
            let left = extent.len() as usize - self.skip;
            if left == 0 {
                // The last extent may still grow.
                if inbox.extent(self.extent + 1).is_none() {
                    break;
                }
                (self.extent, self.skip) = (self.extent + 1, 0);
                continue;
            }
            let until = (self.done + left).min(self.value.end);
            let from = self.done.max(self.value.start);
            if from < until {
                let first = extent.off + (self.skip + from - self.done) as u64;
                self.crcs.add(heap, Extent::new(first, (until - from) as u32))?;
            }
            self.skip += until - self.done;
            self.done = until;
        }
        Ok(())
    }

    /// The checksum, once it covers the whole value.
    pub(crate) fn known(&self) -> Option<KnownCrc> {
        let parts = || self.crcs.parts().into();
        (self.done >= self.value.end).then(|| KnownCrc { value: self.value.clone(), parts: parts() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reply::tests::heap;
    use landfall_heap::{FRAME_SIZE, crc};
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        /// A packet that follows the previous one in memory extends its extent.
        #[test]
        fn the_checksum_is_known_as_soon_as_the_whole_value_has_arrived(
            packets in prop::collection::vec((1..2000_u32, any::<bool>()), 1..40),
            from in 0..3000_usize,
            len in 1..20_000_usize,
        ) {
            let heap = heap();
            let mut at = heap.take_landing_run().unwrap();
            let (mut inbox, mut received) = (Inbox::default(), Vec::new());
            let value = from..from + len;
            let crcs = ArrivingCrcs::default();
            let mut ahead = Ahead { value: value.clone(), done: 0, extent: 0, skip: 0, crcs };
            for (index, (len, joins)) in packets.into_iter().enumerate() {
                if !joins {
                    at = at.next_multiple_of(FRAME_SIZE) + 100;
                }
                let bytes: Vec<u8> = (0..len as usize).map(|byte| (byte * 31 + index * 7) as u8).collect();
                let extent = Extent::new(at, len);
                heap.media().store(at, &bytes).unwrap();
                heap.runs().hold(extent);
                inbox.push(&heap, extent);
                received.extend(bytes);
                at = extent.end();
                ahead.advance(&inbox, &heap).unwrap();
                let known = ahead.known().and_then(|known| known.of(&value).map(Crcs::whole));
                prop_assert_eq!(known, received.get(value.clone()).map(crc::of));
            }
            let of_other = ahead.known().is_some_and(|known| known.of(&(from + 1..from + len)).is_some());
            prop_assert!(!of_other);
            inbox.clear(&heap);
        }
    }

    #[test]
    fn only_long_values_are_checksummed_ahead() {
        assert!(Ahead::of(10..10 + LONG_MIN).is_some_and(|ahead| ahead.is_of(&(10..10 + LONG_MIN))));
        assert!(Ahead::of(10..9 + LONG_MIN).is_none());
    }
}
