//! The arguments of a command, wherever their bytes are.

use landfall_heap::{Crcs, Extents, Heap, Source};
use landfall_media::{Chain, Extent};
use std::borrow::Cow;
use std::ops::Range;

/// One argument: in the stream that was just received, in frames that a queued command holds, or in plain memory.
#[derive(Clone, Debug)]
pub enum Arg<'a> {
    /// A range of the received stream, whose bytes lie in landing frames, and their checksums, if they are known.
    Stream(Chain<'a>, Range<usize>, Option<Crcs<'a>>),
    /// Bytes outside the region.
    Plain(&'a [u8]),
    /// In frames that a queued command holds.
    Held(&'a Heap, &'a [Extent]),
}

impl<'a> Arg<'a> {
    /// Length, bytes.
    #[inline]
    pub fn len(&self) -> usize {
        match self {
            Self::Stream(_, range, _) => range.len(),
            Self::Plain(bytes) => bytes.len(),
            Self::Held(_, extents) => extents.iter().map(|extent| extent.len() as usize).sum(),
        }
    }

    /// True for the empty string.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes as one slice; they are copied only if they lie in several pieces.
    pub fn bytes(&self) -> Cow<'a, [u8]> {
        match self {
            Self::Stream(chain, range, _) => chain.gather(range.clone()),
            Self::Plain(bytes) => Cow::Borrowed(bytes),
            Self::Held(heap, extents) => gather(heap, extents),
        }
    }

    /// The value in the form that a write takes: by reference if it lies in frames. `extents` is scratch space.
    #[inline]
    pub fn source<'s>(&self, extents: &'s mut Extents) -> Source<'s>
    where
        'a: 's,
    {
        match self {
            Self::Plain(bytes) => Source::Bytes(bytes),
            Self::Stream(chain, range, crc) => {
                extents.clear();
                chain.extents(range.clone(), |extent| extents.push(extent));
                Source::Landed { extents, crc: *crc }
            }
            Self::Held(_, held) => Source::Landed { extents: held, crc: None },
        }
    }

    /// Where the argument lies, if it lies in frames in one piece: long keys are then kept in place.
    pub fn place(&self) -> Option<Extent> {
        let mut extents = Extents::new();
        match self {
            Self::Plain(_) => return None,
            Self::Stream(chain, range, _) => chain.extents(range.clone(), |extent| extents.push(extent)),
            Self::Held(_, held) => extents.extend_from_slice(held),
        }
        match extents.as_slice() {
            [one] => Some(*one),
            _ => None,
        }
    }
}

fn gather<'a>(heap: &'a Heap, extents: &[Extent]) -> Cow<'a, [u8]> {
    let read = |extent: &Extent| heap.media().bytes(*extent).unwrap_or_default();
    match extents {
        [] => Cow::Borrowed(&[]),
        [one] => Cow::Borrowed(read(one)),
        many => Cow::Owned(many.iter().flat_map(read).copied().collect()),
    }
}
