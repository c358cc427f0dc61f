//! The words of a command: in the stream that was just received, or queued by `MULTI`.

use crate::args::Arg;
use crate::context::KnownCrc;
use crate::walk::Walk;
use landfall_heap::{Extents, Heap};
use landfall_resp::Command;
use std::borrow::Cow;

/// Arguments up to this length are copied when a command is queued; longer ones stay where they landed.
const COPY_MAX: usize = 256;

/// A word of a queued command.
#[derive(Debug)]
pub(super) enum Word {
    Copied(Box<[u8]>),
    /// The word lies in frames, which the queue holds.
    Held(Extents),
}

impl Word {
    /// Keeps an argument beyond the lifetime of the stream it came in.
    pub(super) fn keep(heap: &Heap, arg: &Arg<'_>) -> Self {
        if let Arg::Stream(chain, range, _) = arg
            && range.len() > COPY_MAX
        {
            let mut extents = Extents::new();
            chain.extents(range.clone(), |extent| extents.push(extent));
            extents.iter().for_each(|extent| heap.runs().hold(*extent));
            return Self::Held(extents);
        }
        Self::Copied(arg.bytes().into_owned().into_boxed_slice())
    }

    /// Bytes of memory that it takes beside itself.
    pub(super) fn beside(&self) -> usize {
        match self {
            Self::Copied(bytes) => bytes.len(),
            Self::Held(extents) if extents.spilled() => size_of_val(extents.as_slice()),
            Self::Held(_) => 0,
        }
    }

    pub(super) fn release(&self, heap: &Heap) {
        if let Self::Held(extents) = self {
            extents.iter().for_each(|extent| heap.runs().release(*extent));
        }
    }
}

/// A command's words, its name first.
#[derive(Clone, Copy, Debug)]
pub(super) enum Words<'a> {
    Landed { command: &'a Command, walk: &'a Walk<'a>, known_crc: Option<&'a KnownCrc> },
    Queued { words: &'a [Word], heap: &'a Heap },
}

impl<'a> Words<'a> {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Landed { command, .. } => command.args.len(),
            Self::Queued { words, .. } => words.len(),
        }
    }

    /// One word as an argument; the arity check has ensured that it exists.
    #[inline]
    pub(super) fn arg(&self, index: usize) -> Arg<'a> {
        match self {
            Self::Landed { command, walk, known_crc } => match &command.args[index] {
                landfall_resp::Arg::Stream(range) => {
                    let (chain, place) = walk.at(range);
                    Arg::Stream(chain, place, known_crc.and_then(|known| known.of(range)))
                }
                landfall_resp::Arg::Owned(bytes) => Arg::Plain(bytes),
            },
            Self::Queued { words, heap } => match &words[index] {
                Word::Copied(bytes) => Arg::Plain(bytes),
                Word::Held(extents) => Arg::Held(heap, extents),
            },
        }
    }

    /// One word's bytes; they are copied only if they lie in several segments.
    #[inline]
    pub(super) fn bytes(&self, index: usize) -> Cow<'a, [u8]> {
        match self {
            Self::Landed { command, walk, .. } => match &command.args[index] {
                landfall_resp::Arg::Stream(range) => match walk.first(range) {
                    Some(bytes) => Cow::Borrowed(bytes),
                    None => {
                        let (chain, place) = walk.at(range);
                        chain.gather(place)
                    }
                },
                landfall_resp::Arg::Owned(bytes) => Cow::Borrowed(bytes),
            },
            Self::Queued { .. } => self.arg(index).bytes(),
        }
    }

    /// Length of a word, bytes.
    #[inline]
    pub(super) fn len_of(&self, index: usize) -> usize {
        match self {
            Self::Landed { command, .. } => command.args[index].len(),
            Self::Queued { .. } => self.arg(index).len(),
        }
    }

    /// True if the word is `text` in upper, lower or mixed case.
    pub(super) fn is(&self, index: usize, text: &str) -> bool {
        index < self.len() && self.bytes(index).eq_ignore_ascii_case(text.as_bytes())
    }

    /// Every word from `first` on.
    pub(super) fn rest(self, first: usize) -> impl Iterator<Item = Cow<'a, [u8]>> {
        (first..self.len()).map(move |index| self.bytes(index))
    }
}
