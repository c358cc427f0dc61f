//! Replies, as their reader sees them: where one ends, and what is in it. RESP2 and RESP3, in one buffer.

use std::ops::Range;

use crate::number::parse_i64;

/// Longest line, bytes: a simple string, an error, a number, or what comes before anything else.
const LINE_BYTES_MAX: usize = 64 << 10;

/// Most elements of an aggregate: more would fit into no reply that anybody takes.
const ELEMENTS_MAX: u64 = u32::MAX as u64;

/// Why bytes are no reply. Blame: the server. The connection is to be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReplyError {
    /// No type begins with this byte.
    #[error("Protocol error: byte {byte:#04x} starts no reply")]
    Type {
        /// The byte.
        byte: u8,
    },
    /// A line that does not end within 64 KiB.
    #[error("Protocol error: a line of a reply is too long")]
    Line,
    /// A number that is none, or a length or count that cannot be.
    #[error("Protocol error: invalid number in a reply")]
    Number,
    /// The bytes after a bulk string are not CRLF.
    #[error("Protocol error: expected CRLF after bulk")]
    MissingBulkEnd,
}

/// One reply, borrowed from the bytes received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reply<'a> {
    /// A simple string, without its line's end.
    Simple(&'a [u8]),
    /// An error: its code and its words.
    Error(&'a [u8]),
    /// An integer.
    Integer(i64),
    /// A bulk string. A verbatim string, with the format in front, is one, too.
    Bulk(&'a [u8]),
    /// A null of any kind.
    Null,
    /// An array, a set, a push or a map: the bytes of its elements, one behind the other ([`elements`]).
    Aggregate(&'a [u8]),
    /// Anything else of one line, with its type: a double, a truth value, a big number.
    Other(&'a [u8]),
}

impl<'a> Reply<'a> {
    /// The reply at the start of `bytes` and its length; `None` while it is not all there. An attribute in front of it
    /// is part of the length and is not shown.
    ///
    /// # Errors
    /// [`ReplyError`].
    #[inline]
    pub fn first(bytes: &'a [u8]) -> Result<Option<(Self, usize)>, ReplyError> {
        let Some(part) = part(bytes, 0)? else { return Ok(None) };
        if part.next > bytes.len() {
            return Ok(None);
        }
        if part.elements == 0 && part.kind != b'|' {
            return Ok(Some((part.reply(bytes)?, part.next)));
        }
        Self::of_parts(bytes, part)
    }

    #[cold]
    fn of_parts(bytes: &'a [u8], mut first: Part) -> Result<Option<(Self, usize)>, ReplyError> {
        let Some(len) = ReplyScanner::default().scan(bytes)? else { return Ok(None) };
        while first.kind == b'|' {
            let mut attribute = ReplyScanner { at: first.next, left: first.elements };
            let Some(end) = attribute.scan(bytes)? else { return Ok(None) };
            let Some(part) = part(bytes, end)? else { return Ok(None) };
            first = part;
        }
        let reply = if is_aggregate(first.kind) && first.body.is_some() {
            Self::Aggregate(&bytes[first.next..len])
        } else {
            first.reply(bytes)?
        };
        Ok(Some((reply, len)))
    }

    /// The reply that `bytes` are, if they are exactly one.
    pub fn whole(bytes: &'a [u8]) -> Option<Self> {
        let (reply, len) = Self::first(bytes).ok().flatten()?;
        (len == bytes.len()).then_some(reply)
    }
}

/// The elements of an [`Reply::Aggregate`], each with its type and its ends; of a map, keys and values in turn. Ends
/// early where one is not whole.
pub fn elements(mut bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let len = ReplyScanner::default().scan(bytes).ok().flatten().filter(|len| *len > 0)?;
        let (element, rest) = bytes.split_at(len);
        bytes = rest;
        Some(element)
    })
}

/// Finds the end of a reply that arrives in pieces. No byte is looked at twice, but for those of a line that has not
/// ended.
#[derive(Clone, Copy, Debug)]
pub struct ReplyScanner {
    at: usize,
    /// Parts that have not been seen: of an array all its elements.
    left: u64,
}

impl Default for ReplyScanner {
    fn default() -> Self {
        Self { at: 0, left: 1 }
    }
}

impl ReplyScanner {
    /// Goes on in `buffer`, which starts with the reply and may have grown since the last call. The reply's length,
    /// once it is there.
    ///
    /// # Errors
    /// [`ReplyError`].
    pub fn scan(&mut self, buffer: &[u8]) -> Result<Option<usize>, ReplyError> {
        while self.left > 0 {
            let Some(part) = part(buffer, self.at)? else { return Ok(None) };
            // An attribute stands before what it is about.
            let done = u64::from(part.kind != b'|');
            self.at = part.next;
            self.left = (self.left - done).saturating_add(part.elements);
        }
        Ok((self.at <= buffer.len()).then_some(self.at))
    }

    /// Bytes that the reply has at least.
    pub fn reached(&self) -> usize {
        self.at
    }

    /// The first bytes of the buffer, no more than were [`reached`](Self::reached), are gone.
    pub fn skip(&mut self, bytes: usize) {
        self.at -= bytes;
    }
}

/// A reply without its elements.
struct Part {
    kind: u8,
    /// The line behind the type, or the bytes of a bulk string; `None` for a null.
    body: Option<Range<usize>>,
    /// Where the next part begins; behind the bytes that are there, if this one is not whole.
    next: usize,
    /// Parts that follow and belong to it.
    elements: u64,
}

impl Part {
    /// What it is, if it has no elements. It is whole.
    fn reply<'a>(&self, bytes: &'a [u8]) -> Result<Reply<'a>, ReplyError> {
        let Some(body) = self.body.clone() else { return Ok(Reply::Null) };
        let text = &bytes[body.clone()];
        Ok(match self.kind {
            b'+' => Reply::Simple(text),
            b'-' => Reply::Error(text),
            b':' => Reply::Integer(parse_i64(text).ok_or(ReplyError::Number)?),
            b'$' | b'=' | b'!' if &bytes[body.end..self.next] != b"\r\n" => {
                return Err(ReplyError::MissingBulkEnd);
            }
            b'$' | b'=' => Reply::Bulk(text),
            b'!' => Reply::Error(text),
            kind if is_aggregate(kind) => Reply::Aggregate(&[]),
            _ => Reply::Other(&bytes[body.start - 1..body.end]),
        })
    }
}

fn is_aggregate(kind: u8) -> bool {
    matches!(kind, b'*' | b'~' | b'>' | b'%')
}

/// The part that begins at `at`; `None` while its line has not ended.
#[inline]
fn part(bytes: &[u8], at: usize) -> Result<Option<Part>, ReplyError> {
    let Some(kind) = bytes.get(at).copied() else { return Ok(None) };
    if !b"+-:_,#($=!*~>%|".contains(&kind) {
        return Err(ReplyError::Type { byte: kind });
    }
    let Some(line) = line(bytes, at + 1)? else { return Ok(None) };
    let next = line.end + 2;
    Ok(Some(match kind {
        b'$' | b'=' | b'!' => match count(&bytes[line])? {
            None => Part { kind, body: None, next, elements: 0 },
            Some(len) => {
                let len = usize::try_from(len).map_err(|_| ReplyError::Number)?;
                let end = next.saturating_add(len);
                Part { kind, body: Some(next..end), next: end.saturating_add(2), elements: 0 }
            }
        },
        b'*' | b'~' | b'>' | b'%' | b'|' => match count(&bytes[line])? {
            Some(count) if count > ELEMENTS_MAX => return Err(ReplyError::Number),
            Some(count) => {
                let each = if matches!(kind, b'%' | b'|') { 2 } else { 1 };
                Part { kind, body: Some(next..next), next, elements: count * each }
            }
            None => Part { kind, body: None, next, elements: 0 },
        },
        b'_' => Part { kind, body: None, next, elements: 0 },
        _ => Part { kind, body: Some(line), next, elements: 0 },
    }))
}

/// A length or count; `None` for the -1 of a null.
fn count(text: &[u8]) -> Result<Option<u64>, ReplyError> {
    match parse_i64(text).ok_or(ReplyError::Number)? {
        -1 => Ok(None),
        number => u64::try_from(number).map(Some).map_err(|_| ReplyError::Number),
    }
}

/// The line that starts at `at`, without its end.
#[inline]
fn line(bytes: &[u8], at: usize) -> Result<Option<Range<usize>>, ReplyError> {
    let rest = bytes.get(at..).unwrap_or_default();
    let head = &rest[..rest.len().min(LINE_BYTES_MAX)];
    match head.windows(2).position(|pair| pair == b"\r\n") {
        Some(len) => Ok(Some(at..at + len)),
        None if head.len() == LINE_BYTES_MAX => Err(ReplyError::Line),
        None => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(bytes: &[u8]) -> Result<Option<(Reply<'_>, usize)>, ReplyError> {
        Reply::first(bytes)
    }

    #[test]
    fn replies_of_every_type_end_where_they_end() {
        let replies: [(&[u8], Reply<'_>); 17] = [
            (b"+OK\r\n", Reply::Simple(b"OK")),
            (b"-ERR no\r\n", Reply::Error(b"ERR no")),
            (b":-12\r\n", Reply::Integer(-12)),
            (b"$-1\r\n", Reply::Null),
            (b"$0\r\n\r\n", Reply::Bulk(b"")),
            (b"$3\r\n\r\n1\r\n", Reply::Bulk(b"\r\n1")),
            (b"*-1\r\n", Reply::Null),
            (b"_\r\n", Reply::Null),
            (b"*0\r\n", Reply::Aggregate(b"")),
            (b"*2\r\n*1\r\n:1\r\n$1\r\na\r\n", Reply::Aggregate(b"*1\r\n:1\r\n$1\r\na\r\n")),
            (b"%1\r\n+a\r\n*2\r\n_\r\n#t\r\n", Reply::Aggregate(b"+a\r\n*2\r\n_\r\n#t\r\n")),
            (b"~1\r\n,1.5\r\n", Reply::Aggregate(b",1.5\r\n")),
            (b"|1\r\n+ttl\r\n:3\r\n(123\r\n", Reply::Other(b"(123")),
            (b"|1\r\n+ttl\r\n:3\r\n*1\r\n:1\r\n", Reply::Aggregate(b":1\r\n")),
            (b"=6\r\ntxt:ab\r\n", Reply::Bulk(b"txt:ab")),
            (b">1\r\n!3\r\nERR\r\n", Reply::Aggregate(b"!3\r\nERR\r\n")),
            (b"!3\r\nERR\r\n", Reply::Error(b"ERR")),
        ];
        for (bytes, reply) in replies {
            let text = bytes.escape_ascii();
            let mut scanner = ReplyScanner::default();
            for len in 0..bytes.len() {
                assert_eq!(scanner.scan(&bytes[..len]), Ok(None), "{text} at {len}");
                assert_eq!(read(&bytes[..len]), Ok(None), "{text} at {len}");
            }
            let more = [bytes, b"+more\r\n"].concat();
            assert_eq!(scanner.scan(&more), Ok(Some(bytes.len())), "{text}");
            assert_eq!(read(&more), Ok(Some((reply, bytes.len()))), "{text}");
            assert_eq!((Reply::whole(bytes), Reply::whole(&more)), (Some(reply), None), "{text}");
        }
    }

    #[test]
    fn nonsense_is_refused() {
        assert_eq!(read(b"HTTP/1.1 400\r\n"), Err(ReplyError::Type { byte: b'H' }));
        assert_eq!(read(b"\r\n"), Err(ReplyError::Type { byte: b'\r' }));
        for bytes in [&b"$x\r\n"[..], b"$-2\r\n", b":01\r\n", b":\r\n", b"*4294967296\r\n", b"*-2\r\n"] {
            assert_eq!(read(bytes), Err(ReplyError::Number), "{}", bytes.escape_ascii());
        }
        assert_eq!(read(b"$1\r\nabc\r\n"), Err(ReplyError::MissingBulkEnd));
        assert_eq!(read(&[b'+'; LINE_BYTES_MAX + 1]), Err(ReplyError::Line));
    }

    #[test]
    fn elements_are_found() {
        let Ok(Some((Reply::Aggregate(bytes), _))) = read(b"*3\r\n:1\r\n*1\r\n+a\r\n$1\r\nx\r\n") else {
            panic!()
        };
        assert_eq!(elements(bytes).collect::<Vec<_>>(), [&b":1\r\n"[..], b"*1\r\n+a\r\n", b"$1\r\nx\r\n"]);
        assert_eq!(elements(b"").count(), 0);
        assert_eq!(elements(b":1\r\n$2\r\nx").count(), 1);
    }

    #[test]
    fn a_scan_goes_on_when_what_it_has_reached_is_gone() {
        let reply = b"*2\r\n$5\r\nhello\r\n:1\r\n";
        let mut scanner = ReplyScanner::default();
        assert_eq!(scanner.scan(&reply[..10]), Ok(None));
        assert_eq!(scanner.reached(), 15);
        scanner.skip(9);
        assert_eq!(scanner.scan(&reply[9..]), Ok(Some(reply.len() - 9)));
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = read(&bytes);
            let _ = elements(&bytes).count();
        }

        #[test]
        fn scanner_and_reader_agree(
            parts in prop::collection::vec(prop::sample::select(PARTS), 1..6),
        ) {
            let bytes = parts.concat().into_bytes();
            let scanned = ReplyScanner::default().scan(&bytes);
            match read(&bytes) {
                Ok(found) => prop_assert_eq!(scanned, Ok(found.map(|(_, len)| len))),
                // Only the reader looks at the end of a bulk string.
                Err(error) => prop_assert!(scanned == Err(error) || error == ReplyError::MissingBulkEnd),
            }
        }
    }

    const PARTS: &[&str] = &[
        "*2\r\n",
        "%1\r\n",
        "|1\r\n",
        "$1\r\na\r\n",
        ":1\r\n",
        "+a\r\n",
        "$-1\r\n",
        "*-1\r\n",
        "*0\r\n",
        "?",
        "$3\r\n",
    ];
}
