//! The received bytes as seen from the start of a command.

use std::borrow::Cow;
use std::ops::Range;

use landfall_media::Chain;

/// How many bytes [`Stream::peek`] shows: every valid count line fits.
pub(crate) const PEEK_MAX: usize = 32;

/// What was received of a command: offsets are relative to its start.
pub(crate) struct Stream<'c, 'a> {
    chain: &'c Chain<'a>,
    /// Where the chain's first byte that may be asked for lies in it, and which byte of the command that is.
    from: usize,
    cut: usize,
    len: usize,
    /// The bytes from `cut` to the end of their segment.
    head: &'a [u8],
}

impl<'c, 'a> Stream<'c, 'a> {
    /// A command that starts at `from` of the chain.
    #[inline]
    pub(crate) fn new(chain: &'c Chain<'a>, from: usize) -> Self {
        Self { chain, from, cut: 0, len: chain.len().saturating_sub(from), head: chain.head_at(from) }
    }

    /// A command without its first `cut` bytes, at which the chain starts. Nobody asks for what lies before.
    #[inline]
    pub(crate) fn tail(chain: &'c Chain<'a>, cut: usize) -> Self {
        Self { chain, from: 0, cut, len: cut + chain.len(), head: chain.head_at(0) }
    }

    /// Where in the chain a byte of the command lies.
    #[inline]
    fn place(&self, at: usize) -> usize {
        debug_assert!(at >= self.cut, "byte {at} of a command lies before {}, where it was cut", self.cut);
        self.from + (at - self.cut)
    }

    /// The bytes from the command's start to the end of their segment: usually a whole command, or all of it but the end of
    /// its last argument.
    #[inline]
    pub(crate) fn head(&self) -> &'a [u8] {
        self.head
    }

    /// What of those bytes lies at `at` and behind it.
    #[inline]
    pub(crate) fn head_at(&self, at: usize) -> &'a [u8] {
        self.head.get(at - self.cut..).unwrap_or(&[])
    }

    /// Bytes received of the command, and of what follows it.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(crate) fn byte(&self, at: usize) -> Option<u8> {
        self.head.get(at - self.cut).copied().or_else(|| self.chain.byte(self.place(at)))
    }

    /// True if CR, LF lie at `at`, which have been received.
    #[inline]
    pub(crate) fn is_crlf(&self, at: usize) -> bool {
        match self.head.get(at - self.cut..at + 2 - self.cut) {
            Some(bytes) => bytes == b"\r\n",
            None => (self.byte(at), self.byte(at + 1)) == (Some(b'\r'), Some(b'\n')),
        }
    }

    /// The bytes at `at`, as far as they are contiguous, if those are all or as many as [`Self::peek`] shows.
    #[inline]
    pub(crate) fn rest(&self, at: usize) -> Option<&'a [u8]> {
        let rest = self.head.get(at - self.cut..)?;
        (rest.len() >= PEEK_MAX || self.cut + self.head.len() == self.len).then_some(rest)
    }

    /// Up to `PEEK_MAX` bytes at `at`, copied together where they are split.
    pub(crate) fn peek<'s>(&self, at: usize, scratch: &'s mut [u8; PEEK_MAX]) -> &'s [u8]
    where
        'a: 's,
    {
        let at = at.min(self.len);
        let len = (self.len - at).min(PEEK_MAX);
        let start = self.place(at);
        let range = start..start + len;
        match self.chain.contiguous(range.clone()) {
            Some(bytes) => bytes,
            None => self.copy(range, scratch),
        }
    }

    /// Copies a split range into `scratch`, which is long enough.
    fn copy<'s>(&self, range: Range<usize>, scratch: &'s mut [u8; PEEK_MAX]) -> &'s [u8] {
        let mut filled = 0;
        self.chain.pieces(range, |_, bytes| {
            scratch[filled..filled + bytes.len()].copy_from_slice(bytes);
            filled += bytes.len();
        });
        &scratch[..filled]
    }

    /// Position of the first `needle` at or after `at`.
    pub(crate) fn find(&self, needle: u8, at: usize) -> Option<usize> {
        self.chain.find_byte(needle, self.place(at)).map(|found| found - self.from + self.cut)
    }

    /// The bytes of a range that has been received.
    pub(crate) fn gather(&self, range: Range<usize>) -> Cow<'a, [u8]> {
        let start = self.place(range.start);
        self.chain.gather(start..start + range.len())
    }
}
