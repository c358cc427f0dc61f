//! Encoding of replies.

use crate::date::DATE_LEN;
use crate::error::HttpError;

/// The interim reply to a client that wants it at [`Progress::AwaitsBody`].
///
/// [`Progress::AwaitsBody`]: crate::Progress::AwaitsBody
pub const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// What a reply says about its connection. From [`Request::connection`].
///
/// [`Request::connection`]: crate::Request::connection
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Connection {
    /// Nothing: it stays open, as HTTP/1.1 implies.
    Implied,
    /// `keep-alive`: it stays open, which HTTP/1.0 has to be told.
    KeepAlive,
    /// `close`: it is closed after the reply.
    Close,
}

/// Appends replies to a buffer.
///
/// A reply is [`ResponseWriter::status`], any number of [`ResponseWriter::header`]s, and one of
/// [`ResponseWriter::no_body`], [`ResponseWriter::body`], [`ResponseWriter::content_length`] (the bytes are
/// to follow) and [`ResponseWriter::chunked`] (chunks and [`ResponseWriter::last_chunk`] are to follow).
#[derive(Debug)]
pub struct ResponseWriter<'a> {
    out: &'a mut Vec<u8>,
    status: u16,
}

impl<'a> ResponseWriter<'a> {
    /// A writer that appends to `out`.
    pub fn new(out: &'a mut Vec<u8>) -> Self {
        Self { out, status: 0 }
    }

    /// Status line, `Server`, `Date`, and `Connection` where it must be said.
    ///
    /// `date` is from [`format_date`]; keep it and format it anew once a second.
    ///
    /// [`format_date`]: crate::format_date
    pub fn status(&mut self, status: u16, date: &[u8; DATE_LEN], connection: Connection) {
        self.status = status;
        match status_line(status) {
            Some(line) => self.out.extend_from_slice(line),
            None => self.unnamed_status(status),
        }
        self.out.extend_from_slice(date);
        self.out.extend_from_slice(match connection {
            Connection::Implied => b"\r\n",
            Connection::KeepAlive => b"\r\nConnection: keep-alive\r\n",
            Connection::Close => b"\r\nConnection: close\r\n",
        });
    }

    /// A status line without a reason phrase, which is optional (RFC 9112, section 4).
    fn unnamed_status(&mut self, status: u16) {
        self.out.extend_from_slice(b"HTTP/1.1 ");
        self.out.extend_from_slice(itoa::Buffer::new().format(status).as_bytes());
        self.out.extend_from_slice(b" \r\nServer: landfall\r\nDate: ");
    }

    /// A header field. `name` is a token; CR, LF and NUL in `value` become blanks.
    pub fn header(&mut self, name: &str, value: &[u8]) {
        self.out.extend_from_slice(name.as_bytes());
        self.out.extend_from_slice(b": ");
        let start = self.out.len();
        self.out.extend_from_slice(value);
        for byte in &mut self.out[start..] {
            if matches!(byte, b'\r' | b'\n' | 0) {
                *byte = b' ';
            }
        }
        self.out.extend_from_slice(b"\r\n");
    }

    /// Ends a head that no body follows.
    pub fn no_body(&mut self) {
        // RFC 9110, section 8.6: no Content-Length in 1xx and 204; in 304 it would describe the 200.
        match self.status {
            100..=199 | 204 | 304 => self.out.extend_from_slice(b"\r\n"),
            _ => self.out.extend_from_slice(b"Content-Length: 0\r\n\r\n"),
        }
    }

    /// Ends the head of a body of `len` bytes, which are to follow; not in the reply to a `HEAD`.
    pub fn content_length(&mut self, len: usize) {
        self.out.extend_from_slice(b"Content-Length: ");
        self.out.extend_from_slice(itoa::Buffer::new().format(len).as_bytes());
        self.out.extend_from_slice(b"\r\n\r\n");
    }

    /// Ends the head, and appends the body.
    pub fn body(&mut self, bytes: &[u8]) {
        self.content_length(bytes.len());
        self.out.extend_from_slice(bytes);
    }

    /// Ends the head of a chunked body. Not for HTTP/1.0, which knows no chunks.
    pub fn chunked(&mut self) {
        self.out.extend_from_slice(b"Transfer-Encoding: chunked\r\n\r\n");
    }

    /// What comes before the `len` bytes of a chunk; they and [`ResponseWriter::chunk_end`] are to follow.
    ///
    /// # Panics
    /// If `len` is 0: that would end the body.
    pub fn chunk_header(&mut self, len: usize) {
        assert!(len > 0, "an empty chunk is the last one");
        let digits = (usize::BITS - len.leading_zeros()).div_ceil(4);
        let digit = |place: u32| b"0123456789abcdef"[len >> (4 * place) & 0xf];
        self.out.extend((0..digits).rev().map(digit));
        self.out.extend_from_slice(b"\r\n");
    }

    /// What comes after the bytes of a chunk.
    pub fn chunk_end(&mut self) {
        self.out.extend_from_slice(b"\r\n");
    }

    /// Ends a chunked body.
    pub fn last_chunk(&mut self) {
        self.out.extend_from_slice(b"0\r\n\r\n");
    }

    /// A whole reply that says what was wrong with a request.
    pub fn error(&mut self, error: &HttpError, date: &[u8; DATE_LEN]) {
        let connection = if error.close { Connection::Close } else { Connection::Implied };
        self.status(error.status, date, connection);
        self.header("Content-Type", b"text/plain");
        self.content_length(error.message.len() + 1);
        self.out.extend_from_slice(error.message.as_bytes());
        self.out.push(b'\n');
    }
}

/// What replies of common status codes start with, up to the value of `Date`.
macro_rules! status_lines {
    ($($code:literal $reason:literal,)*) => {
        fn status_line(status: u16) -> Option<&'static [u8]> {
            Some(match status {
                $($code => concat!(
                    "HTTP/1.1 ", $code, " ", $reason, "\r\nServer: landfall\r\nDate: "
                ).as_bytes(),)*
                _ => return None,
            })
        }
    };
}

status_lines! {
    200 "OK",
    201 "Created",
    202 "Accepted",
    204 "No Content",
    206 "Partial Content",
    304 "Not Modified",
    400 "Bad Request",
    401 "Unauthorized",
    403 "Forbidden",
    404 "Not Found",
    405 "Method Not Allowed",
    409 "Conflict",
    412 "Precondition Failed",
    413 "Content Too Large",
    414 "URI Too Long",
    415 "Unsupported Media Type",
    416 "Range Not Satisfiable",
    417 "Expectation Failed",
    422 "Unprocessable Content",
    428 "Precondition Required",
    429 "Too Many Requests",
    431 "Request Header Fields Too Large",
    500 "Internal Server Error",
    501 "Not Implemented",
    503 "Service Unavailable",
    505 "HTTP Version Not Supported",
    507 "Insufficient Storage",
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATE: &[u8; DATE_LEN] = b"Sun, 06 Nov 1994 08:49:37 GMT";

    fn reply(write: impl Fn(&mut ResponseWriter<'_>)) -> String {
        let mut out = Vec::new();
        write(&mut ResponseWriter::new(&mut out));
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_reply_with_a_body_says_its_length() {
        let got = reply(|w| {
            w.status(200, DATE, Connection::Implied);
            w.header("ETag", b"\"1\"");
            w.body(b"hello");
        });
        let want = "HTTP/1.1 200 OK\r\nServer: landfall\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\n\
                    ETag: \"1\"\r\nContent-Length: 5\r\n\r\nhello";
        assert_eq!(got, want);
    }

    #[test]
    fn replies_without_a_body_say_so_where_they_may() {
        let end = |status| {
            let got = reply(|w| {
                w.status(status, DATE, Connection::Implied);
                w.no_body();
            });
            got.split_once("GMT\r\n").unwrap().1.to_owned()
        };
        assert_eq!(end(201), "Content-Length: 0\r\n\r\n");
        assert_eq!([end(204), end(304)], ["\r\n", "\r\n"]);
    }

    #[test]
    fn connections_are_spoken_of_where_they_must_be() {
        let head = |connection| reply(|w| w.status(200, DATE, connection));
        assert!(head(Connection::Close).ends_with("\r\nConnection: close\r\n"));
        assert!(head(Connection::KeepAlive).ends_with("\r\nConnection: keep-alive\r\n"));
        assert!(!head(Connection::Implied).contains("Connection"));
    }

    #[test]
    fn unnamed_status_codes_have_an_empty_reason() {
        assert!(reply(|w| w.status(299, DATE, Connection::Implied)).starts_with("HTTP/1.1 299 \r\nServer"));
    }

    #[test]
    fn chunks_are_framed() {
        let got = reply(|w| {
            w.chunked();
            for len in [1, 15, 16, 255, 256, 0xabcdef] {
                w.chunk_header(len);
                w.chunk_end();
            }
            w.last_chunk();
        });
        let want = "Transfer-Encoding: chunked\r\n\r\n1\r\n\r\nf\r\n\r\n10\r\n\r\nff\r\n\r\n100\r\n\r\nabcdef\r\n\r\n0\r\n\r\n";
        assert_eq!(got, want);
    }

    #[test]
    fn line_ends_in_values_cannot_split_the_reply() {
        assert_eq!(reply(|w| w.header("X", b"a\r\nSet-Cookie: b\0")), "X: a  Set-Cookie: b \r\n");
    }

    #[test]
    fn errors_close_the_connection_and_say_why() {
        let got = reply(|w| w.error(&HttpError::new(413, "body too large"), DATE));
        assert!(
            got.starts_with("HTTP/1.1 413 Content Too Large\r\n")
                && got.contains("\r\nConnection: close\r\n")
        );
        assert!(got.ends_with("Content-Length: 15\r\n\r\nbody too large\n"));
    }
}
