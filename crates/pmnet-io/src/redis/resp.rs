//! The part of RESP that side-cars need: the end and the words of a request, and the end of a reply.
//!
//! Requests and replies pass through unchanged, so that nothing else is decoded. Requests share a buffer. The parser
//! of `landfall-resp` works on chains of frames, which side-cars do not have.

use smallvec::SmallVec;
use std::ops::Range;

/// Longest line, bytes: an inline command, or the first line of any other type.
const LINE_BYTES_MAX: usize = 64 << 10;
/// Positions of the words of a request.
pub(crate) type Words = SmallVec<[Range<usize>; 8]>;

/// Errors of malformed or too long requests and replies. Blame: the peer. The connection must be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RespError {
    /// A count or a length is not a number, or out of range.
    #[error("Protocol error: invalid {what}")]
    Number {
        /// Which number.
        what: &'static str,
    },
    /// A word does not begin with `$`, or does not end with a line end.
    #[error("Protocol error: expected '{expected}'")]
    Expected {
        /// The character that was expected.
        expected: char,
    },
    /// A line is too long.
    #[error("Protocol error: too big inline request")]
    Line,
    /// An inline request has quotes, which are not supported.
    #[error("Protocol error: unbalanced quotes in request")]
    Quotes,
    /// A request is longer than the limit.
    #[error(
        "Protocol error: a request is longer than {max} bytes; raise the side-car's request limit, or write less at once"
    )]
    Request {
        /// The limit.
        max: usize,
    },
    /// A reply begins with an unknown type.
    #[error("Protocol error: byte {byte:#04x} starts no reply")]
    Reply {
        /// The byte.
        byte: u8,
    },
}

/// A request at the start of a buffer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Request {
    /// Positions of the words; none for an empty line.
    pub(crate) words: Words,
    /// Length of the request, bytes.
    pub(crate) bytes: usize,
    /// The request is a line and not an array. It must be encoded as an array before it is passed on.
    pub(crate) inline: bool,
}

/// Parses the request at the start of `buffer`. `None` if its end is not in the buffer yet.
///
/// # Errors
/// [`RespError`].
pub(crate) fn request(buffer: &[u8], max: usize) -> Result<Option<Request>, RespError> {
    let found = match buffer.first() {
        None => return Ok(None),
        Some(b'*') => array(buffer, max)?,
        Some(_) => inline(buffer)?,
    };
    match found {
        Some(request) if request.bytes > max => Err(RespError::Request { max }),
        None if buffer.len() > max => Err(RespError::Request { max }),
        found => Ok(found),
    }
}

fn array(buffer: &[u8], max: usize) -> Result<Option<Request>, RespError> {
    let Some((count, mut at)) = number(buffer, 1, "multibulk length")? else { return Ok(None) };
    // Each word takes four bytes at least, so that the limit on bytes also limits the number of words.
    if count > i64::try_from(max / 4).unwrap_or(i64::MAX) {
        return Err(RespError::Request { max });
    }
    let mut words = Words::new();
    for _ in 0..count.max(0) {
        match buffer.get(at) {
            None => return Ok(None),
            Some(b'$') => {}
            Some(_) => return Err(RespError::Expected { expected: '$' }),
        }
        let Some((len, start)) = number(buffer, at + 1, "bulk length")? else { return Ok(None) };
        let len = usize::try_from(len).map_err(|_| RespError::Number { what: "bulk length" })?;
        if len > max {
            return Err(RespError::Request { max });
        }
        words.push(start..start + len);
        at = start + len + 2;
        if buffer.len() < at {
            return Ok(None);
        }
        if &buffer[at - 2..at] != b"\r\n" {
            return Err(RespError::Expected { expected: '\n' });
        }
    }
    Ok(Some(Request { words, bytes: at, inline: false }))
}

fn inline(buffer: &[u8]) -> Result<Option<Request>, RespError> {
    let head = &buffer[..buffer.len().min(LINE_BYTES_MAX)];
    let Some(end) = head.iter().position(|byte| *byte == b'\n') else {
        return if head.len() == LINE_BYTES_MAX { Err(RespError::Line) } else { Ok(None) };
    };
    if head[..end].iter().any(|byte| matches!(byte, b'"' | b'\'')) {
        return Err(RespError::Quotes);
    }
    let mut words = Words::new();
    let mut start = None;
    for (at, byte) in head[..=end].iter().enumerate() {
        match (byte.is_ascii_whitespace(), start) {
            (false, None) => start = Some(at),
            (true, Some(from)) => {
                words.push(from..at);
                start = None;
            }
            _ => {}
        }
    }
    Ok(Some(Request { words, bytes: end + 1, inline: true }))
}

/// The number that begins at `at`, and the position behind its line.
fn number(buffer: &[u8], at: usize, what: &'static str) -> Result<Option<(i64, usize)>, RespError> {
    let Some((line, next)) = line(buffer, at)? else { return Ok(None) };
    let text = std::str::from_utf8(line).ok();
    let value = text.and_then(|text| text.parse().ok()).ok_or(RespError::Number { what })?;
    Ok(Some((value, next)))
}

/// The line that begins at `at`, and the position behind it.
fn line(buffer: &[u8], at: usize) -> Result<Option<(&[u8], usize)>, RespError> {
    let tail = buffer.get(at..).unwrap_or_default();
    let head = &tail[..tail.len().min(LINE_BYTES_MAX)];
    match head.iter().position(|byte| *byte == b'\n') {
        Some(end) => Ok(Some((head[..end].strip_suffix(b"\r").unwrap_or(&head[..end]), at + end + 1))),
        None if head.len() == LINE_BYTES_MAX => Err(RespError::Line),
        None => Ok(None),
    }
}

/// Finds the end of a RESP2 or RESP3 reply that arrives in pieces.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scanner {
    at: usize,
    /// Number of parts that have not been scanned. Each element of an array is a part.
    left: u64,
}

impl Default for Scanner {
    fn default() -> Self {
        Self { at: 0, left: 1 }
    }
}

impl Scanner {
    /// Scans `buffer`, which begins with the reply and may have grown since the last call. Returns the length of the
    /// reply once the whole reply is in the buffer.
    ///
    /// # Errors
    /// [`RespError`].
    pub(crate) fn scan(&mut self, buffer: &[u8]) -> Result<Option<usize>, RespError> {
        while self.left > 0 {
            if !self.part(buffer)? {
                return Ok(None);
            }
        }
        Ok((self.at <= buffer.len()).then_some(self.at))
    }

    /// The least length of the reply, bytes.
    pub(crate) fn reached(&self) -> usize {
        self.at
    }

    /// Notes that the first bytes of the buffer were removed, no more than [`Self::reached`].
    pub(crate) fn skip(&mut self, bytes: usize) {
        self.at -= bytes;
    }

    fn part(&mut self, buffer: &[u8]) -> Result<bool, RespError> {
        let Some(kind) = buffer.get(self.at) else { return Ok(false) };
        let (at, more) = match kind {
            b'+' | b'-' | b':' | b'_' | b',' | b'#' | b'(' => match line(buffer, self.at)? {
                Some((_, next)) => (next, 0),
                None => return Ok(false),
            },
            b'$' | b'=' | b'!' => match number(buffer, self.at + 1, "bulk length")? {
                Some((len, next)) => (next + usize::try_from(len).map_or(0, |len| len.saturating_add(2)), 0),
                None => return Ok(false),
            },
            b'*' | b'~' | b'>' | b'%' | b'|' => match number(buffer, self.at + 1, "multibulk length")? {
                Some((count, next)) => (next, elements(*kind, count)?),
                None => return Ok(false),
            },
            byte => return Err(RespError::Reply { byte: *byte }),
        };
        // An attribute stands before the part that it belongs to, and is not a part itself.
        let done = u64::from(*kind != b'|');
        (self.at, self.left) = (at, self.left - done + more);
        Ok(true)
    }
}

fn elements(kind: u8, count: i64) -> Result<u64, RespError> {
    let pairs = if matches!(kind, b'%' | b'|') { 2 } else { 1 };
    let count = u64::try_from(count.max(0)).unwrap_or(0);
    // A reply with more elements would be longer than any limit.
    if count > u64::from(u32::MAX) {
        Err(RespError::Number { what: "multibulk length" })
    } else {
        Ok(count * pairs)
    }
}

/// Positions of the elements of an array; `None` for a null and for other types. The reply must be whole.
pub(crate) fn elements_of(reply: &[u8]) -> Option<Vec<Range<usize>>> {
    let count = matches!(reply.first(), Some(b'*' | b'~' | b'>'));
    let (count, mut at) = count.then(|| number(reply, 1, "multibulk length").ok().flatten()).flatten()?;
    let mut found = Vec::new();
    for _ in 0..usize::try_from(count).ok()? {
        let len = Scanner::default().scan(&reply[at..]).ok().flatten()?;
        found.push(at..at + len);
        at += len;
    }
    Some(found)
}

/// The bytes of a bulk string; `None` for a null and for other types.
pub(crate) fn bulk(reply: &[u8]) -> Option<&[u8]> {
    let is = reply.first() == Some(&b'$');
    let (len, at) = is.then(|| number(reply, 1, "bulk length").ok().flatten()).flatten()?;
    reply.get(at..at + usize::try_from(len).ok()?)
}

/// True if a reply is an error.
pub(crate) fn is_error(reply: &[u8]) -> bool {
    matches!(reply.first(), Some(b'-' | b'!'))
}

/// True if a reply is a null.
pub(crate) fn is_null(reply: &[u8]) -> bool {
    reply.starts_with(b"$-1") || reply.starts_with(b"*-1") || reply.starts_with(b"_")
}

/// Appends a command.
pub(crate) fn put_command(into: &mut Vec<u8>, words: &[&[u8]]) {
    put_head(into, b'*', words.len());
    for word in words {
        put_bulk(into, word);
    }
}

/// Appends a bulk string.
pub(crate) fn put_bulk(into: &mut Vec<u8>, bytes: &[u8]) {
    put_head(into, b'$', bytes.len());
    into.extend_from_slice(bytes);
    into.extend_from_slice(b"\r\n");
}

/// Appends a type and a number.
pub(crate) fn put_head(into: &mut Vec<u8>, kind: u8, number: usize) {
    into.push(kind);
    into.extend_from_slice(number.to_string().as_bytes());
    into.extend_from_slice(b"\r\n");
}

/// Encodes an error. Line ends in its text become spaces.
pub(crate) fn error(text: &str) -> Vec<u8> {
    let text = text.replace(['\r', '\n'], " ");
    format!("-{text}\r\n").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MAX: usize = 1 << 20;

    fn words(bytes: &[u8]) -> Vec<Vec<u8>> {
        let request = request(bytes, MAX).unwrap().expect("a whole request");
        request.words.iter().map(|word| bytes[word.clone()].to_vec()).collect()
    }

    #[test]
    fn inline_requests_are_parsed() {
        assert_eq!(words(b"  PING \r\n"), [b"PING"]);
        assert_eq!(words(b"SET a  b\nGET a\n"), [&b"SET"[..], b"a", b"b"]);
        assert!(words(b"\r\n").is_empty());
    }

    #[test]
    fn malformed_requests_are_errors() {
        assert_eq!(request(b"*x\r\n", MAX), Err(RespError::Number { what: "multibulk length" }));
        assert_eq!(request(b"*1\r\n+a\r\n", MAX), Err(RespError::Expected { expected: '$' }));
        assert_eq!(request(b"*1\r\n$-1\r\n", MAX), Err(RespError::Number { what: "bulk length" }));
        assert_eq!(request(b"*1\r\n$1\r\nabc", MAX), Err(RespError::Expected { expected: '\n' }));
        assert_eq!(request(b"GET \"a\r\n", MAX), Err(RespError::Quotes));
        assert_eq!(request(b"*1\r\n$2000000\r\n", MAX), Err(RespError::Request { max: MAX }));
        assert_eq!(request(b"*999999999\r\n", MAX), Err(RespError::Request { max: MAX }));
        assert_eq!(request(&[b'x'; LINE_BYTES_MAX], MAX), Err(RespError::Line));
    }

    #[test]
    fn the_end_of_replies_of_every_type_is_found() {
        let replies: [&[u8]; 14] = [
            b"+OK\r\n",
            b"-ERR no\r\n",
            b":-1\r\n",
            b"$-1\r\n",
            b"$0\r\n\r\n",
            b"$3\r\n\r\n1\r\n",
            b"*-1\r\n",
            b"*0\r\n",
            b"*2\r\n*1\r\n:1\r\n$1\r\na\r\n",
            b"%1\r\n+a\r\n*2\r\n_\r\n#t\r\n",
            b"~1\r\n,1.5\r\n",
            b"|1\r\n+ttl\r\n:3\r\n(123\r\n",
            b"=6\r\ntxt:ab\r\n",
            b">1\r\n!3\r\nERR\r\n",
        ];
        for reply in replies {
            let mut scanner = Scanner::default();
            for len in 0..reply.len() {
                assert_eq!(scanner.scan(&reply[..len]), Ok(None), "{} at {len}", reply.escape_ascii());
            }
            let more = [reply, b"+more\r\n"].concat();
            assert_eq!(scanner.scan(&more), Ok(Some(reply.len())), "{}", reply.escape_ascii());
        }
        assert_eq!(Scanner::default().scan(b"?"), Err(RespError::Reply { byte: b'?' }));
    }

    #[test]
    fn elements_are_found() {
        let reply = b"*3\r\n:1\r\n*1\r\n+a\r\n$1\r\nx\r\n";
        let found: Vec<&[u8]> = elements_of(reply).unwrap().into_iter().map(|range| &reply[range]).collect();
        assert_eq!(found, [&b":1\r\n"[..], b"*1\r\n+a\r\n", b"$1\r\nx\r\n"]);
        assert_eq!(bulk(found[2]), Some(&b"x"[..]));
        assert_eq!((elements_of(b"*-1\r\n"), bulk(b"$-1\r\n")), (None, None));
    }

    proptest! {
        #[test]
        fn encoded_requests_are_parsed_when_they_are_whole(
            sent in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..12),
        ) {
            let mut bytes = Vec::new();
            put_command(&mut bytes, &sent.iter().map(Vec::as_slice).collect::<Vec<_>>());
            for len in 0..bytes.len() {
                prop_assert_eq!(request(&bytes[..len], MAX), Ok(None));
            }
            prop_assert_eq!(words(&bytes), sent);
        }

        #[test]
        fn no_bytes_make_the_parsers_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = request(&bytes, MAX);
            let _ = Scanner::default().scan(&bytes);
            let _ = (elements_of(&bytes), bulk(&bytes));
        }
    }
}
