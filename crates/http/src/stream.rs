//! The received bytes as seen from the start of a request.

use std::borrow::Cow;
use std::ops::Range;

use landfall_media::Chain;

/// What was received of a request: offsets are relative to its start.
pub(crate) struct Stream<'c, 'a> {
    chain: &'c Chain<'a>,
    /// Where the chain's first byte that may be asked for lies in it, and which byte of the request that is.
    from: usize,
    cut: usize,
}

impl<'c, 'a> Stream<'c, 'a> {
    /// A request that starts at `from` of the chain.
    pub(crate) fn new(chain: &'c Chain<'a>, from: usize) -> Self {
        Self { chain, from, cut: 0 }
    }

    /// A request without its first `cut` bytes, at which the chain starts. Nobody asks for what lies before.
    pub(crate) fn tail(chain: &'c Chain<'a>, cut: usize) -> Self {
        Self { chain, from: 0, cut }
    }

    /// Where in the chain a byte of the request lies.
    fn place(&self, at: usize) -> usize {
        debug_assert!(at >= self.cut, "byte {at} of a request lies before {}, where it was cut", self.cut);
        self.from + (at - self.cut)
    }

    /// Bytes received of the request, and of what follows it.
    pub(crate) fn len(&self) -> usize {
        self.chain.len().saturating_sub(self.from) + self.cut
    }

    /// The bytes of a range that has been received.
    pub(crate) fn gather(&self, range: Range<usize>) -> Cow<'a, [u8]> {
        let start = self.place(range.start);
        self.chain.gather(start..start + range.len())
    }

    /// True if CR, LF lie at `at`, which have been received.
    pub(crate) fn is_crlf(&self, at: usize) -> bool {
        (self.byte(at), self.byte(at + 1)) == (Some(b'\r'), Some(b'\n'))
    }

    fn byte(&self, at: usize) -> Option<u8> {
        self.chain.byte(self.place(at))
    }

    fn find_line_feed(&self, at: usize) -> Option<usize> {
        self.chain.find_byte(b'\n', self.place(at)).map(|found| found - self.from + self.cut)
    }
}

/// What was found where a line starts.
pub(crate) enum Line {
    /// Where the line's text ends; CR, LF follow.
    Ends(usize),
    /// The line is not complete.
    Open,
    /// The line does not end before the limit.
    TooLong,
    /// The line ends with LF alone.
    BareLineFeed,
}

/// Looks for line ends, and remembers how far it has looked.
#[derive(Clone, Debug, Default)]
pub(crate) struct LineScan {
    /// Bytes from the line's start on known to hold no line feed.
    scanned: usize,
}

impl LineScan {
    /// The line at `at`, whose end must not lie beyond `limit`. However the line arrives the answer is the same.
    pub(crate) fn line(&mut self, stream: &Stream<'_, '_>, at: usize, limit: usize) -> Line {
        match stream.find_line_feed(at + self.scanned) {
            Some(feed) if feed < limit => {
                self.scanned = 0;
                if feed > at && stream.byte(feed - 1) == Some(b'\r') {
                    Line::Ends(feed - 1)
                } else {
                    Line::BareLineFeed
                }
            }
            None if stream.len() < limit => {
                self.scanned = stream.len().saturating_sub(at);
                Line::Open
            }
            _ => Line::TooLong,
        }
    }
}
