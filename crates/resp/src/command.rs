//! A parsed command.

use std::borrow::Cow;
use std::ops::Range;

use landfall_media::Chain;
use smallvec::SmallVec;

/// One argument of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Arg {
    /// Its bytes lie in the chain, at these stream offsets.
    Stream(Range<usize>),
    /// Its bytes do not occur in the chain as such: a quoted inline argument with escapes. At most
    /// `Limits::inline_bytes_max` long.
    Owned(Box<[u8]>),
}

impl Arg {
    /// Length, bytes.
    pub fn len(&self) -> usize {
        match self {
            Self::Stream(range) => range.len(),
            Self::Owned(bytes) => bytes.len(),
        }
    }

    /// True for the empty string.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where the argument lies in the chain; `None` where it had to be unescaped.
    pub fn range(&self) -> Option<Range<usize>> {
        match self {
            Self::Stream(range) => Some(range.clone()),
            Self::Owned(_) => None,
        }
    }

    /// The bytes; copied only where they are split over segments. `chain` is the one that was parsed.
    ///
    /// # Panics
    /// If the argument lies outside `chain`.
    pub fn bytes<'s>(&'s self, chain: &Chain<'s>) -> Cow<'s, [u8]> {
        match self {
            Self::Stream(range) => chain.gather(range.clone()),
            Self::Owned(bytes) => Cow::Borrowed(bytes),
        }
    }
}

/// A whole command: at least one argument, and where it and the next command start.
///
/// Keep one and hand it to [`Parser::next_into`] for each command: its buffer is used again.
///
/// [`Parser::next_into`]: crate::Parser::next_into
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Command {
    /// The arguments, the command's name first.
    pub args: SmallVec<[Arg; 8]>,
    /// Stream offset of the command's first byte, behind empty commands.
    pub start: usize,
    /// Stream offset of the first byte after the command.
    pub end: usize,
}
