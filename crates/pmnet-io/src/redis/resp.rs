//! The part of RESP that side-cars need: requests in one buffer, with the positions of their words.
//!
//! `landfall-resp` parses requests and replies. Requests pass through unchanged, except inline requests, which become
//! arrays.

use landfall_media::{Chain, Segment};
use landfall_resp::{Arg, Command, Limits, Parser, Protocol, ProtocolError, Reply, Writer};
use smallvec::SmallVec;
use std::borrow::Cow;
use std::ops::Range;

/// Positions of the words of a request.
pub(crate) type Words = SmallVec<[Range<usize>; 8]>;

/// Errors of malformed or too long requests and replies. Blame: the peer. The connection must be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RespError {
    /// The request is malformed.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    /// A request is longer than the limit.
    #[error(
        "Protocol error: a request is longer than {max} bytes; raise the side-car's request limit, or write less at once"
    )]
    Request {
        /// The limit.
        max: usize,
    },
}

/// A request at the start of a buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request<'b> {
    /// The request as an array. An inline request is encoded as one.
    pub(crate) text: Cow<'b, [u8]>,
    /// Positions of the words in the text.
    pub(crate) words: Words,
    /// Bytes of the buffer up to the request's end, including empty requests in front of it.
    pub(crate) bytes: usize,
}

impl Request<'_> {
    /// The words. The first is the command's name.
    pub(crate) fn args(&self) -> SmallVec<[&[u8]; 8]> {
        self.words.iter().map(|word| &self.text[word.clone()]).collect()
    }
}

/// Result of parsing the start of a buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Found<'b> {
    /// A request.
    Request(Request<'b>),
    /// A part of a request, after empty requests.
    Part {
        /// Length of the empty requests, which can be dropped, bytes.
        skipped: usize,
    },
}

/// Parses the request at the start of `buffer`. A request longer than `max` bytes is an error, and so is one that a client
/// which has not authenticated may not send.
///
/// # Errors
/// [`RespError`].
pub(crate) fn read(buffer: &[u8], max: usize, is_authenticated: bool) -> Result<Found<'_>, RespError> {
    let segments = [Segment::new(0, buffer)];
    let chain = Chain::new(&segments);
    // Requests longer than `max` are refused here, with a text that says what to do.
    let mut parser =
        Parser::new(Limits { args_max: usize::MAX, bulk_bytes_max: usize::MAX, ..Limits::default() });
    parser.set_authenticated(is_authenticated);
    let mut skipped = 0;
    loop {
        match parser.next(&chain, skipped)? {
            Some(command) if command.end - command.start > max => return Err(RespError::Request { max }),
            Some(command) => return Ok(Found::Request(whole(buffer, &chain, &command))),
            None => match parser.take_skipped() {
                0 => break,
                more => skipped += more,
            },
        }
    }
    let least = parser.awaited().map_or(buffer.len() - skipped, |argument| argument.end);
    // Each argument takes four bytes at least, so that the limit on bytes also limits the number of arguments.
    let is_long = least.max(parser.args_left().saturating_mul(4)) > max;
    if is_long { Err(RespError::Request { max }) } else { Ok(Found::Part { skipped }) }
}

/// Parses the request at the start of `buffer`. `None` if its end is not in the buffer.
///
/// # Errors
/// [`RespError`].
pub(crate) fn request(buffer: &[u8]) -> Result<Option<Request<'_>>, RespError> {
    match read(buffer, usize::MAX, true)? {
        Found::Request(request) => Ok(Some(request)),
        Found::Part { .. } => Ok(None),
    }
}

fn whole<'b>(buffer: &'b [u8], chain: &Chain<'_>, command: &Command) -> Request<'b> {
    let text = &buffer[command.start..command.end];
    if text.first() == Some(&b'*') {
        let in_text = |range: Range<usize>| range.start - command.start..range.end - command.start;
        let words = command.args.iter().filter_map(Arg::range).map(in_text).collect();
        return Request { text: Cow::Borrowed(text), words, bytes: command.end };
    }
    let args: Vec<Cow<'_, [u8]>> = command.args.iter().map(|arg| arg.bytes(chain)).collect();
    let (mut text, mut words) = (Vec::new(), Words::new());
    let mut writer = Writer::new(&mut text, Protocol::Resp2);
    writer.array(args.len());
    for arg in &args {
        put_bulk(&mut text, arg);
        let end = text.len() - b"\r\n".len();
        words.push(end - arg.len()..end);
    }
    Request { text: Cow::Owned(text), words, bytes: command.end }
}

/// The elements of an array; `None` for a null and for other types.
pub(crate) fn elements_of(reply: &[u8]) -> Option<Vec<&[u8]>> {
    match Reply::whole(reply)? {
        Reply::Aggregate(elements) => Some(landfall_resp::elements(elements).collect()),
        _ => None,
    }
}

/// The bytes of a bulk string; `None` for a null and for other types.
pub(crate) fn bulk(reply: &[u8]) -> Option<&[u8]> {
    match Reply::whole(reply)? {
        Reply::Bulk(bytes) => Some(bytes),
        _ => None,
    }
}

/// True if a reply is an error.
pub(crate) fn is_error(reply: &[u8]) -> bool {
    matches!(reply.first(), Some(b'-' | b'!'))
}

/// True if a reply is a null.
pub(crate) fn is_null(reply: &[u8]) -> bool {
    Reply::whole(reply) == Some(Reply::Null)
}

/// Appends a command.
pub(crate) fn put_command(into: &mut Vec<u8>, words: &[&[u8]]) {
    Writer::new(into, Protocol::Resp2).command(words);
}

/// Appends a bulk string.
pub(crate) fn put_bulk(into: &mut Vec<u8>, bytes: &[u8]) {
    Writer::new(into, Protocol::Resp2).bulk(bytes);
}

/// Appends the head of an array.
pub(crate) fn put_array(into: &mut Vec<u8>, count: usize) {
    Writer::new(into, Protocol::Resp2).array(count);
}

/// Encodes an error. Line ends in its text become spaces.
pub(crate) fn error(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    Writer::new(&mut bytes, Protocol::Resp2).error(text);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MAX: usize = 1 << 20;

    fn words(bytes: &[u8]) -> Vec<Vec<u8>> {
        let Ok(Found::Request(request)) = read(bytes, MAX, true) else { panic!("no whole request") };
        request.args().iter().map(|word| word.to_vec()).collect()
    }

    #[test]
    fn inline_requests_are_parsed() {
        assert_eq!(words(b"  PING \r\n"), [b"PING"]);
        assert_eq!(words(b"SET a  b\nGET a\n"), [&b"SET"[..], b"a", b"b"]);
        assert_eq!(words(b"SET 'a b' \"\\x00\"\r\n"), [&b"SET"[..], b"a b", b"\0"]);
        let line = request(b"\r\nGET 'a'\r\n").unwrap().unwrap();
        assert_eq!((&*line.text, line.bytes), (&b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n"[..], 11));
    }

    #[test]
    fn empty_requests_are_dropped_and_not_passed_on() {
        assert_eq!(read(b"\r\n*0\r\n\r\n", MAX, true), Ok(Found::Part { skipped: 8 }));
        let many = "\r\n".repeat(5000);
        let found = read(many.as_bytes(), MAX, true);
        assert_eq!(found, Ok(Found::Part { skipped: many.len() }));
        let last = [many.as_bytes(), b"PING\r\n"].concat();
        assert!(matches!(read(&last, MAX, true), Ok(Found::Request(request)) if request.bytes == last.len()));
        assert_eq!(read(b"\r\n*1\r\n$4\r\nPI", MAX, true), Ok(Found::Part { skipped: 2 }));
        let request = request(b"\r\n*-1\r\n*1\r\n$4\r\nPING\r\n").unwrap().unwrap();
        assert_eq!((&*request.text, request.bytes), (&b"*1\r\n$4\r\nPING\r\n"[..], 21));
    }

    #[test]
    fn malformed_requests_are_errors() {
        let refused = |bytes: &[u8]| read(bytes, MAX, true).unwrap_err();
        assert_eq!(refused(b"*x\r\n"), RespError::Protocol(ProtocolError::InvalidMultibulkLength));
        assert_eq!(refused(b"*1\r\n+a\r\n"), RespError::Protocol(ProtocolError::ExpectedBulk { got: b'+' }));
        assert_eq!(refused(b"*1\r\n$-1\r\n"), RespError::Protocol(ProtocolError::InvalidBulkLength));
        assert_eq!(refused(b"*1\r\n$1\r\nabc"), RespError::Protocol(ProtocolError::MissingBulkEnd));
        assert_eq!(refused(b"GET \"a\r\n"), RespError::Protocol(ProtocolError::UnbalancedQuotes));
        assert_eq!(refused(b"*1\r\n$2000000\r\n"), RespError::Request { max: MAX });
        assert_eq!(refused(b"*999999999\r\n"), RespError::Request { max: MAX });
        assert_eq!(refused(&[b'x'; (64 << 10) + 1]), RespError::Protocol(ProtocolError::InlineTooLong));
    }

    #[test]
    fn elements_are_found() {
        let found = elements_of(b"*3\r\n:1\r\n*1\r\n+a\r\n$1\r\nx\r\n").unwrap();
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
                prop_assert_eq!(read(&bytes[..len], MAX, true), Ok(Found::Part { skipped: 0 }));
            }
            prop_assert_eq!(words(&bytes), sent);
        }

        #[test]
        fn no_bytes_make_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = read(&bytes, MAX, true);
            let _ = (elements_of(&bytes), bulk(&bytes));
        }
    }
}
